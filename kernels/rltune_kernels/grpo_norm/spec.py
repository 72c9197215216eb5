"""GRPO's advantages: rewards centred within their group, and divided by its deviation.

Formula, in fp64, each output rounded once on store (nearest even), over the n members of
a group whose mask holds and whose reward is not NaN::

    mean = sum(r) / n
    std = sqrt(sum((r - mean)**2) / (n - 1))          0 for n of 1
    advantage = (r - mean) / (std + eps)              or r - mean, without scale_by_std

Every other member is left out: its advantage is +0.0, and it changes no other's. So is the
advantage of a single member, and of each of equal rewards, also with an eps of 0. An
infinite reward that is not masked makes the advantages of its group NaN, no other group's.
The rules, and what trainers call them, are in docs/adr/0016-grpo-rules.md.

Axes: ``num_groups`` (dynamic); ``group_bucket`` (structural), a size class that chooses a
launch and no byte: the next power of two, from 8 to 1024, of the group size, or of the mean
size of ragged groups, from 128 on. ``group_size``, passed at run time, is 0 for ragged
groups; ``num_rewards`` and ``num_offsets`` = num_groups + 1 are free in every call.
Tensors: rewards, advantages [num_rewards]; mask [num_rewards] u8, read where has_mask is
not 0; offsets [num_offsets] i64, read where group_size is 0: group g is offsets[g] up to
offsets[g + 1], clipped to the rewards. All contiguous. ``forward`` writes the advantages of
all groups. The function passes fp32 alone: rewards of bf16 and fp16 are widened, exactly.
Limits: fewer than 2**31 groups; offsets are 64-bit.
Source: Z. Shao et al., "DeepSeekMath", arXiv:2402.03300; two passes as in T. F. Chan et al.,
"Algorithms for computing the sample variance", 1983.
Determinism: no atomics. Lane l of 128 adds members l, l + 128, … and the lanes are folded by
halves, whatever the bucket, so a group's bytes depend on its members alone. Fewer lanes than
128 are taken where they suffice for one member each. GROUPS and warps are safe.
Errors are counted in the last place of the advantage, or of 2**-24 of the reward, scaled as
it, where the mean cancels more.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.grpo_norm.candidates import (
    baseline,
    candidates,
    constexprs,
    control,
    grid,
    group_axes,
)

DEFAULT_EPS = 1e-6
"""What is added to the deviation if the caller says nothing."""

FORWARD = KernelSpec(
    operator="grpo_norm",
    name="forward",
    phase="forward",
    jit="rltune_kernels.grpo_norm.kernel:_grpo_norm_fwd_kernel",
    binder="rltune_kernels.grpo_norm.op:launch_forward",
    prepare="rltune_kernels.grpo_norm.reference:prepare",
    structural_axes=("group_bucket",),
    dynamic_axis="num_groups",
    arguments=(
        Tensor(name="rewards_ptr", axes=("num_rewards",)),
        Tensor(name="mask_ptr", axes=("num_rewards",), dtype="u8", values="derived"),
        Tensor(name="offsets_ptr", axes=("num_offsets",), dtype="i64", values="derived"),
        Tensor(name="advantages_ptr", axes=("num_rewards",), role="out"),
        Scalar(name="num_groups", dtype="i64", source="num_groups"),
        Scalar(name="num_rewards", dtype="i64", source="num_rewards"),
        Scalar(name="group_size", dtype="i64", source="group_size"),
        Scalar(name="has_mask", dtype="i64", source="has_mask"),
        Scalar(name="scale_by_std", dtype="i64", source="scale_by_std"),
        Scalar(name="eps", dtype="fp32", default=DEFAULT_EPS),
    ),
    grid=grid,
    constexprs=constexprs,
    baseline=baseline,
    candidates=candidates,
    control=control,
    derived_axes=group_axes,
)

SPEC = OperatorSpec(
    name="grpo_norm",
    summary="advantage = (reward - mean) / (std + eps) within each group",
    kernels=(FORWARD,),
    reference="rltune_kernels.grpo_norm.reference",
    tolerance_ulp={"bf16": 1, "fp16": 1, "fp32": 1},
)
