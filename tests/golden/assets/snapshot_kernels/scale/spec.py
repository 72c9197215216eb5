"""Declaration of the scale operator."""

from collections.abc import Mapping

from rltune.core.launch import Grid, LaunchConfig, next_power_of_2
from rltune.core.operator import Axes, KernelSpec, OperatorSpec, Scalar, Tensor
from rltune.core.shapes import ShapeKey
from snapshot_kernels.scale.grid import programs

WIDTHS = tuple(next_power_of_2(width) for width in (3, 5))


def _grid(axes: Axes, launch: LaunchConfig) -> Grid:
    return (programs(axes["num_tokens"] * axes["width"], launch.knob("BLOCK")), 1, 1)


def _constexprs(axes: Axes, dtype: str, launch: LaunchConfig) -> Mapping[str, int]:
    return {"N": axes["width"], "BLOCK": launch.knob("BLOCK")}


def _derived_axes(axes: Axes) -> Mapping[str, int]:
    return {"padded": next_power_of_2(axes["width"]) if axes["width"] not in WIDTHS else 0}


def _baseline(key: ShapeKey) -> LaunchConfig:
    return LaunchConfig.of(BLOCK=1024, num_warps=4)


def _candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    return tuple(LaunchConfig.of(BLOCK=1024, num_warps=warps) for warps in (1, 2, 8))


SPEC = OperatorSpec(
    name="scale",
    summary="y = exp(x) * 2",
    kernels=(
        KernelSpec(
            operator="scale",
            name="forward",
            phase="forward",
            jit="snapshot_kernels.scale.kernel:_scale_fwd_kernel",
            binder="snapshot_kernels.scale.op:bind_forward",
            structural_axes=("width",),
            dynamic_axis="num_tokens",
            arguments=(
                Tensor(name="x_ptr", axes=("num_tokens", "width")),
                Tensor(name="y_ptr", axes=("num_tokens", "width"), role="out"),
                Scalar(name="num_tokens", dtype="i64", source="num_tokens"),
            ),
            grid=_grid,
            constexprs=_constexprs,
            baseline=_baseline,
            candidates=_candidates,
            derived_axes=_derived_axes,
        ),
    ),
    reference="snapshot_kernels.scale.reference",
    tolerance_ulp={"fp32": 1},
)

FORWARD = SPEC.kernel("forward")
