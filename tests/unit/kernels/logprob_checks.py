"""What logprob must do, written once for the interpreter's tests and for the GPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rltune_kernels.logprob import logprob, merge_shards, reference, shard_gradient, shard_parts
from tests.unit.kernels.checks import Tensors, layouts, raw, raw_all, ulp_error, with_gradients

IGNORED = -100
LOGPROB_ULP = 4.0
"""Largest error of logprob, in the last place of fp32 at max(|logprob|, 1)."""

DLOGITS_ULP = {torch.bfloat16: 0.52, torch.float16: 0.55, torch.float32: 4.0}
"""Largest error of dlogits in last places: of what is added up in it, in fp32 of |dlogprob| / T."""


def logits_and_ids(
    num_tokens: int, vocab_size: int, dtype: torch.dtype, device: str, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits as a trained model gives them, every third token's own logit near the largest."""
    generator = torch.Generator(device).manual_seed(seed)
    logits = torch.randn((num_tokens, vocab_size), generator=generator, device=device) * 3
    ids = torch.randint(0, vocab_size, (num_tokens,), generator=generator, device=device)
    logits[::3].scatter_(1, ids[::3, None], 14.0)
    ids[1::5] = IGNORED
    return logits.to(dtype), ids


def run(
    logits: torch.Tensor, ids: torch.Tensor, dy: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and dlogits."""
    result, (dlogits,) = with_gradients(lambda leaf: logprob(leaf, ids, **options), (logits,), dy)
    return result, dlogits


def slopes(ids: torch.Tensor, seed: int = 1) -> torch.Tensor:
    """A random upstream gradient, fp32."""
    generator = torch.Generator(ids.device).manual_seed(seed)
    return torch.randn(ids.shape, generator=generator, device=ids.device)


def check_accuracy(
    num_tokens: int, vocab_size: int, dtype: torch.dtype, device: str, temperature: float = 1.0
) -> tuple[float, float]:
    """Results and gradients lie near fp64; gives both errors in units in the last place."""
    logits, ids = logits_and_ids(num_tokens, vocab_size, dtype, device)
    dy = slopes(ids)
    got, dlogits = run(logits, ids, dy, temperature=temperature)
    assert got.dtype == torch.float32
    assert dlogits.dtype == dtype
    one = torch.ones_like(dy, dtype=torch.float64)
    expected = reference.forward(logits, ids, temperature=temperature)
    error = ulp_error(got, expected, one)
    gradient = reference.backward(dy, logits, ids, temperature=temperature)
    size = (dy.abs().double() / temperature)[:, None].expand_as(gradient)
    if dtype != torch.float32:  # there a share of 1e-6 is as exact as what it is taken from
        own = torch.zeros_like(gradient).scatter_(1, ids.clamp_min(0)[:, None], 1.0)
        size = size * own
    gradient_error = ulp_error(dlogits, gradient, size)
    assert error <= LOGPROB_ULP
    assert gradient_error <= DLOGITS_ULP[dtype]
    assert bool((got <= 0).all())
    return error, gradient_error


def check_extremes(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """Logits at both ends of the type: never above 0, NaN only where fp64 has one."""
    largest = torch.finfo(dtype).max
    rows = [
        torch.full((vocab_size,), value, dtype=dtype, device=device)
        for value in (largest, -largest, 0.0, 1e-30, 88.0, -88.0)
    ]
    ramp = torch.linspace(-largest, largest, vocab_size, device=device, dtype=torch.float64)
    rows.append(ramp.to(dtype))
    rows.append(torch.full((vocab_size,), float("-inf"), dtype=dtype, device=device))
    rows[-1][vocab_size // 2] = -largest
    logits = torch.stack(rows)
    for column in (0, vocab_size // 2, vocab_size - 1):
        ids = torch.full((len(rows),), column, device=device)
        got, dlogits = run(logits, ids, torch.ones(len(rows), device=device))
        expected = reference.forward(logits, ids)
        assert torch.equal(got.isinf(), expected.float().isinf())
        finite = expected.float().isfinite()
        assert ulp_error(got[finite], expected[finite], torch.ones_like(expected[finite])) <= 4
        assert bool((got <= 0).all())
        assert bool(dlogits.isfinite().all())
        assert bool((dlogits.float().abs() <= 1).all())


def check_unread_rows(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """Ignored tokens give +0.0 and a gradient of +0.0, whatever their logits; so does no slope."""
    logits, ids = logits_and_ids(12, vocab_size, dtype, device)
    dy = slopes(ids)
    dy[2] = 0.0
    dy[3] = -0.0
    expected = run(logits, ids, dy)
    unread = (ids == IGNORED) | (dy == 0)
    for content in (float("nan"), float("inf"), float("-inf")):
        got, dlogits = run(logits.masked_fill(unread[:, None], content), ids, dy)
        assert raw(got[dy != 0]) == raw(expected[0][dy != 0])
        assert raw(dlogits) == raw(expected[1])
        assert not any(raw(got[ids == IGNORED]))
        assert not any(raw(dlogits[unread]))
    at_first = torch.where(ids == IGNORED, 0, ids)
    inside, _ = run(logits, at_first, dy, ignore_index=0)
    assert not any(raw(inside[at_first == 0]))


def check_ids_outside(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """An id that names no column and is not ignored gives NaN, and a gradient that shows it."""
    logits, ids = logits_and_ids(6, vocab_size, dtype, device)
    ids[0], ids[3] = -1, vocab_size
    ids[4], ids[5] = 2**63 - 1, -(2**63)
    got, dlogits = run(logits, ids, torch.ones(6, device=device))
    outside = torch.tensor([True, False, False, True, True, True], device=device)
    assert torch.equal(got.isnan(), outside)
    assert torch.equal(dlogits.isnan().any(dim=1), outside)


def check_padded_columns(vocab_size: int, padded: int, dtype: torch.dtype, device: str) -> None:
    """Columns of padding are not read and have gradient +0.0; the last column counts."""
    logits, ids = logits_and_ids(5, padded, dtype, device)
    ids = torch.where(ids == IGNORED, ids, ids % vocab_size)
    ids[0] = vocab_size - 1
    dy = slopes(ids)
    logits[:, vocab_size:] = float("nan")
    got, dlogits = run(logits, ids, dy, vocab_size=vocab_size)
    real = logits[:, :vocab_size]
    expected = reference.forward(real, ids)
    assert ulp_error(got, expected, torch.ones_like(expected)) <= LOGPROB_ULP
    assert bool((got <= 0).all())
    assert not any(raw(dlogits[:, vocab_size:]))
    assert bool(dlogits.isfinite().all())
    for content in (float("inf"), 3e4):
        logits[:, vocab_size:] = content
        assert raw_all(run(logits, ids, dy, vocab_size=vocab_size)) == raw_all((got, dlogits))


def sharded(
    logits: torch.Tensor, ids: torch.Tensor, dy: torch.Tensor, num_shards: int, **options: Any
) -> Tensors:
    """Log-probabilities and dlogits of ``num_shards`` shards on one device."""
    width = logits.shape[1] // num_shards
    pieces = [logits[:, i * width : (i + 1) * width] for i in range(num_shards)]
    parts = torch.stack(
        [
            shard_parts(piece, ids, shard=index, num_shards=num_shards, **options)
            for index, piece in enumerate(pieces)
        ]
    )
    result, row_max, row_sum = merge_shards(parts, ids, shard_size=width, **options)
    gradients = [
        shard_gradient(dy, (piece, ids, row_max, row_sum), shard=index, **options)
        for index, piece in enumerate(pieces)
    ]
    return result, torch.cat(gradients, dim=1)


def check_shards(
    num_tokens: int, vocab_size: int, padded: int, dtype: torch.dtype, device: str
) -> None:
    """Two, four and eight shards merge to the bytes of one device, gradients included."""
    logits, ids = logits_and_ids(num_tokens, padded, dtype, device)
    ids = torch.where(ids == IGNORED, ids, ids % vocab_size)
    ids[0] = vocab_size if padded > vocab_size else -1
    dy = slopes(ids)
    options = {"vocab_size": vocab_size, "temperature": 0.7}
    whole = run(logits, ids, dy, **options)
    for num_shards in (1, 2, 4, 8):
        got = sharded(logits, ids, dy, num_shards, **options)
        assert raw_all(got) == raw_all(whole), num_shards


def check_batches(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """A token's bytes are the same at batch 1, 3 and 64, packed, padded and in another place."""
    logits, ids = logits_and_ids(64, vocab_size, dtype, device)
    dy = slopes(ids)
    whole, gradient = run(logits, ids, dy)
    for size in (1, 3):
        for start in range(0, 64 - size + 1, 21):
            part = slice(start, start + size)
            got = run(logits[part], ids[part], dy[part])
            assert raw_all(got) == raw_all((whole[part], gradient[part]))
    packed = run(logits.view(4, 16, vocab_size), ids.view(4, 16), dy.view(4, 16))
    assert raw_all(packed) == raw_all((whole, gradient))
    order = torch.randperm(64, device=device)
    got = run(logits[order], ids[order], dy[order])
    assert raw_all(got) == raw_all((whole[order], gradient[order]))
    kept = torch.arange(64, device=device) % 3 == 0
    for content in (float("nan"), float("inf"), 3e4):
        got = run(logits.masked_fill(~kept[:, None], content), ids, dy)
        assert raw(got[0][kept]) == raw(whole[kept])
        assert raw(got[1][kept]) == raw(gradient[kept])


def check_layouts(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """Strided, transposed and misaligned inputs and gradients give the contiguous bytes."""
    logits, ids = logits_and_ids(6, vocab_size, dtype, device)
    dy = slopes(ids)
    expected = raw_all(run(logits, ids, dy))
    some_dy = [value for _, value in layouts(dy)]
    for index, (kind, value) in enumerate(layouts(logits)):
        other_ids = ids.repeat_interleave(2)[::2] if index else ids.to(torch.int32)
        got = run(value, other_ids, some_dy[index % len(some_dy)])
        assert raw_all(got) == expected, kind
    one = torch.ones((), device=device).expand(6)
    assert raw_all(run(logits, ids, one)) == raw_all(run(logits, ids, one.contiguous()))


def check_compiled(
    call: Callable[..., torch.Tensor], device: str, backend: str, vocab_size: int = 257
) -> None:
    """A full-graph compiled call gives the eager call's bytes, gradients included."""
    torch.compiler.reset()
    logits, ids = logits_and_ids(5, vocab_size, torch.bfloat16, device)
    dy = slopes(ids)
    compiled = torch.compile(call, fullgraph=True, backend=backend)
    got, (gradient,) = with_gradients(lambda leaf: compiled(leaf, ids), (logits,), dy)
    assert raw_all((got, gradient)) == raw_all(run(logits, ids, dy))
