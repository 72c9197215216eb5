"""Log-probability of a selected token, forward and backward, whole or in vocabulary shards.

Formula, with T the temperature::

    row_max = max over v of logits[t, v]
    row_sum = sum over v of exp((logits[t, v] - row_max) / T)
    logprob[t] = (logits[t, ids[t]] - row_max) / T - log(row_sum)
    dlogits[t, v] = dlogprob[t] / T * ((v == ids[t]) - exp((logits[t, v] - row_max) / T) / row_sum)

The row is added up in fp32 for every element type, the last line of ``logprob`` is fp64 and
rounded once to fp32; dlogits is fp32 and rounded once on store. ``logprob`` is never above 0.

A token whose id is ``ignore_index`` has logprob 0 and gradient 0, and its logits are not read;
nor are they in ``backward`` where dlogprob is 0. Any other id outside the vocabulary gives NaN.
Columns from ``vocab_size`` to ``padded_vocab_size`` are padding: not read, gradient 0.

Axes: ``num_tokens`` (dynamic); ``vocab_size`` and ``padded_vocab_size`` (structural; V and P in
the kernels) count the columns of one shard; ``num_shards`` (structural) is 1, 2, 4 or 8.
Tensors: logits, dlogits [num_tokens, padded_vocab_size]; ids [num_tokens] i64; logprob,
dlogprob, row_max, row_sum [num_tokens] fp32; parts [3, num_tokens] fp32 of one shard: largest,
sum, selected logit; all contiguous. ``forward`` takes whole rows; ``shard`` the rows of one
shard, ``merge`` the parts of all, [num_shards, 3, num_tokens].
Limits: num_tokens below 2**31; offsets are 64-bit. Shards have equal padded sizes.
Source: the online softmax of M. Milakov and N. Gimelshein, arXiv:1805.02867.
Determinism: no atomics. A row is cut into 8 segments of ceil(padded_vocab_size / 8) columns;
lane l of 128 takes columns l, l + 128, … of a segment, four tiles a step; lanes are folded by
halves and segments by neighbouring pairs. So shards, which hold whole segments, are subtrees,
and their merge has the bytes of one device. LANES is part of the definition; warps, stages,
BLOCK_V and BLOCK are safe.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels._vocabulary import (
    lane_baseline,
    lane_candidates,
    lane_constexprs,
    lane_control,
    lane_grid,
    slope_baseline,
    slope_candidates,
    slope_constexprs,
    slope_grid,
)
from rltune_kernels.logprob.candidates import (
    merge_baseline,
    merge_candidates,
    merge_constexprs,
    merge_grid,
    num_columns,
)

IGNORE_INDEX = -100
"""Id of a token without a log-probability, if the caller says nothing; PyTorch's."""

_TILE = ("num_tokens", "padded_vocab_size")
_ROW = ("num_tokens",)
_VOCABULARY = ("vocab_size", "padded_vocab_size")
_IDS = Tensor(name="ids_ptr", axes=_ROW, dtype="i64", values="derived")
_NUM_TOKENS = Scalar(name="num_tokens", dtype="i64", source="num_tokens")
_VOCAB_START = Scalar(name="vocab_start", dtype="i64", default=0)
_IGNORE_INDEX = Scalar(name="ignore_index", dtype="i64", default=IGNORE_INDEX)
_INVERSE_TEMPERATURE = Scalar(name="inverse_temperature", dtype="fp32", default=1.0)
_RESULTS = tuple(
    Tensor(name=name, axes=_ROW, dtype="fp32", role="out")
    for name in ("logprob_ptr", "row_max_ptr", "row_sum_ptr")
)

FORWARD = KernelSpec(
    operator="logprob",
    name="forward",
    phase="forward",
    jit="rltune_kernels.logprob.kernel:_logprob_fwd_kernel",
    binder="rltune_kernels.logprob.op:launch_forward",
    prepare="rltune_kernels.logprob.reference:prepare_ids",
    structural_axes=_VOCABULARY,
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="logits_ptr", axes=_TILE),
        _IDS,
        *_RESULTS,
        _IGNORE_INDEX,
        _INVERSE_TEMPERATURE,
    ),
    grid=lane_grid,
    constexprs=lane_constexprs,
    baseline=lane_baseline,
    candidates=lane_candidates,
    control=lane_control,
)

SHARD = KernelSpec(
    operator="logprob",
    name="shard",
    phase="forward",
    jit="rltune_kernels.logprob.kernel:_logprob_shard_kernel",
    binder="rltune_kernels.logprob.op:launch_shard",
    prepare="rltune_kernels.logprob.reference:prepare_ids",
    structural_axes=(*_VOCABULARY, "num_shards"),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="logits_ptr", axes=_TILE),
        _IDS,
        Tensor(name="parts_ptr", axes=(3, "num_tokens"), dtype="fp32", role="out"),
        _NUM_TOKENS,
        _VOCAB_START,
        _IGNORE_INDEX,
        _INVERSE_TEMPERATURE,
    ),
    grid=lane_grid,
    constexprs=lane_constexprs,
    baseline=lane_baseline,
    candidates=lane_candidates,
    control=lane_control,
)

MERGE = KernelSpec(
    operator="logprob",
    name="merge",
    phase="forward",
    jit="rltune_kernels.logprob.kernel:_logprob_merge_kernel",
    binder="rltune_kernels.logprob.op:launch_merge",
    prepare="rltune_kernels.logprob.reference:prepare_parts",
    structural_axes=("num_shards",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(
            name="parts_ptr", axes=("num_shards", 3, "num_tokens"), dtype="fp32", values="derived"
        ),
        _IDS,
        *_RESULTS,
        _NUM_TOKENS,
        Scalar(name="vocab_size", dtype="i64", source="vocab_size"),
        Scalar(name="shard_size", dtype="i64", source="shard_size"),
        _IGNORE_INDEX,
        _INVERSE_TEMPERATURE,
    ),
    grid=merge_grid,
    constexprs=merge_constexprs,
    baseline=merge_baseline,
    candidates=merge_candidates,
    derived_axes=num_columns,
)

BACKWARD = KernelSpec(
    operator="logprob",
    name="backward",
    phase="backward",
    jit="rltune_kernels.logprob.kernel:_logprob_bwd_kernel",
    binder="rltune_kernels.logprob.op:launch_backward",
    prepare="rltune_kernels.logprob.reference:prepare_backward",
    structural_axes=_VOCABULARY,
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="dlogprob_ptr", axes=_ROW, dtype="fp32"),
        Tensor(name="logits_ptr", axes=_TILE),
        _IDS,
        Tensor(name="row_max_ptr", axes=_ROW, dtype="fp32", values="derived"),
        Tensor(name="row_sum_ptr", axes=_ROW, dtype="fp32", values="derived"),
        Tensor(name="dlogits_ptr", axes=_TILE, role="out"),
        _VOCAB_START,
        _IGNORE_INDEX,
        _INVERSE_TEMPERATURE,
    ),
    grid=slope_grid,
    constexprs=slope_constexprs,
    baseline=slope_baseline,
    candidates=slope_candidates,
)

SPEC = OperatorSpec(
    name="logprob",
    summary="logprob[t] = log_softmax(logits[t] / T)[ids[t]]",
    kernels=(FORWARD, SHARD, MERGE, BACKWARD),
    reference="rltune_kernels.logprob.reference",
    tolerance_ulp={"bf16": 4, "fp16": 4, "fp32": 4},
)
