"""Why one call takes the launch config it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ACCUMULATION, ShapeKey
from rltune.errors import UsageError
from rltune.runtime.device import Difference
from rltune.runtime.reasons import BaselineKept, Hit, Lookup, Miss, Pinned
from rltune.runtime.state import Runtime
from rltune.runtime.statuses import device_name, reason_differences


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The launch of one call, with its reason.

    Attributes:
        kernel: kernel id.
        key: structural key.
        tokens: size of the dynamic axis.
        device: ``cuda:N`` or ``interpreter``.
        launch_config: what the call takes.
        decided_by: ``selection``, ``baseline of the bundle``, ``pin`` or ``fixed launch``.
        reason: why, in one line.
        differences: fields in which this place differs from what a bundle expects.
    """

    kernel: str
    key: ShapeKey
    tokens: int
    device: str
    launch_config: LaunchConfig
    decided_by: str
    reason: str
    differences: tuple[Difference, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON object that stands for this explanation."""
        return {
            "kernel": self.kernel,
            "key": self.key.to_json(),
            "tokens": self.tokens,
            "device": self.device,
            "candidate_id": self.launch_config.candidate_id,
            "launch_config": self.launch_config.to_json(),
            "decided_by": self.decided_by,
            "reason": self.reason,
            "differences": [item.to_json() for item in self.differences],
        }

    def __str__(self) -> str:
        lines = [
            f"{self.kernel} for {self.key}, {self.tokens} tokens on {self.device}",
            f"  launch config: {self.launch_config.candidate_id}",
            f"  decided by: {self.decided_by}",
            f"  reason: {self.reason}",
        ]
        return "\n".join([*lines, *(f"  {item}" for item in self.differences)])


def explain_call(
    runtime: Runtime,
    kernel: KernelSpec,
    dtype: str,
    axes: Mapping[str, int],
    tokens: int,
    index: int | None,
) -> Explanation:
    """What a call would launch on a device, and why.

    Args:
        runtime: what is loaded.
        kernel: the kernel.
        dtype: element type of the operator, a key of ``ACCUMULATION``.
        axes: sizes of its structural axes.
        tokens: size of the dynamic axis.
        index: CUDA device index, or None for the interpreter.

    Raises:
        UsageError: the dtype is unknown, or the axes are not the kernel's.
        EnvironmentUnfitError: there is no such device.
    """
    if dtype not in ACCUMULATION:
        raise UsageError(f"dtype {dtype}: expected one of {', '.join(ACCUMULATION)}")
    if set(axes) != set(kernel.structural_axes):
        raise UsageError(
            f"{kernel.kernel_id}: expected the axes {', '.join(kernel.structural_axes) or 'none'}, "
            f"got {', '.join(sorted(axes)) or 'none'}"
        )
    key = kernel.shape_key(dtype, axes)
    found = runtime.lookup(kernel, key, tokens, index)
    return Explanation(
        kernel=kernel.kernel_id,
        key=key,
        tokens=tokens,
        device=device_name(index),
        launch_config=_config(found, kernel.baseline(key)),
        decided_by=_decided_by(found),
        reason=str(found),
        differences=reason_differences(found.reasons) if isinstance(found, Miss) else (),
    )


def _config(found: Lookup, baseline: LaunchConfig) -> LaunchConfig:
    if isinstance(found, Hit | BaselineKept):
        return found.launch.launch_config
    return found.launch_config if isinstance(found, Pinned) else baseline


def _decided_by(found: Lookup) -> str:
    if isinstance(found, Hit):
        return "selection"
    if isinstance(found, BaselineKept):
        return "baseline of the bundle"
    return "pin" if isinstance(found, Pinned) else "fixed launch"
