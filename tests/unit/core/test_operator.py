"""What a kernel declaration says to compiler, sweep and runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune.core.shapes import ShapeKey

KERNEL = KernelSpec(
    operator="scale",
    name="forward",
    phase="forward",
    jit="scale.kernel:forward",
    binder="scale.op:bind",
    structural_axes=("width",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="x_ptr", axes=("num_tokens", "width")),
        Tensor(name="y_ptr", axes=("num_tokens", "width"), role="out"),
        Tensor(name="sum_ptr", axes=("blocks", 2), dtype="fp32", role="out"),
        Scalar(name="num_tokens", dtype="i64", source="num_tokens"),
        Scalar(name="eps", dtype="fp32", default=1e-6),
    ),
    grid=lambda axes, launch: (axes["num_tokens"], 1, 1),
    constexprs=lambda axes, dtype, launch: {"N": axes["width"]},
    baseline=lambda key: LaunchConfig.of(num_warps=4),
    candidates=lambda key: (),
    derived_axes=lambda axes: {"blocks": axes["num_tokens"] // 2},
)


def test_ids_and_keys() -> None:
    assert KERNEL.kernel_id == "scale/forward"
    key = KERNEL.shape_key("bf16", {"num_tokens": 7, "width": 64})
    assert key == ShapeKey.of("bf16", {"width": 64})


def test_tensors_have_shapes_of_given_derived_and_fixed_axes() -> None:
    axes = KERNEL.all_axes({"num_tokens": 8, "width": 64})

    assert [tensor.shape(axes) for tensor in KERNEL.tensors] == [(8, 64), (8, 64), (4, 2)]
    assert replace(KERNEL, derived_axes=None).all_axes({"n": 1}) == {"n": 1}


def test_signature_names_types_in_order_and_constexprs_last() -> None:
    signature = KERNEL.signature("bf16", {"N": 64})

    assert list(signature.items()) == [
        ("x_ptr", "*bf16"),
        ("y_ptr", "*bf16"),
        ("sum_ptr", "*fp32"),
        ("num_tokens", "i64"),
        ("eps", "fp32"),
        ("N", "constexpr"),
    ]


def test_witness_has_fp32_outputs_and_the_same_inputs() -> None:
    signature = KERNEL.witness().signature("bf16", {})

    assert (signature["x_ptr"], signature["y_ptr"], signature["sum_ptr"]) == (
        "*bf16",
        "*fp32",
        "*fp32",
    )


def test_binding_states_order_type_shape_and_role() -> None:
    assert KERNEL.binding()[1:4] == [
        {"name": "y_ptr", "dtype": "io", "axes": ["num_tokens", "width"], "role": "out"},
        {"name": "sum_ptr", "dtype": "fp32", "axes": ["blocks", 2], "role": "out"},
        {"name": "num_tokens", "dtype": "i64", "source": "num_tokens"},
    ]


def test_operator_finds_its_kernels_by_name() -> None:
    operator = OperatorSpec(
        name="scale", summary="y = 2x", kernels=(KERNEL,), reference="r", tolerance_ulp={}
    )

    assert operator.kernel("forward") is KERNEL
    with pytest.raises(KeyError, match="scale has no kernel 'dx'"):
        operator.kernel("dx")
