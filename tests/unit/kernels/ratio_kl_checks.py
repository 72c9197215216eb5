"""What ratio_kl must do, written once for the interpreter's tests and for the GPU's."""

from __future__ import annotations

from typing import Any

import torch

from rltune_kernels.logprob import logprob
from rltune_kernels.ratio_kl import ratio_kl, reference
from tests.unit.kernels.checks import Tensors, layouts, raw, raw_all, ulp_error
from tests.unit.kernels.logprob_checks import DLOGITS_ULP, slopes

RESULT_ULP = 16.0
"""Largest error of ratio and kl in fp32, of what their logarithms add up: see ``check_accuracy``."""


def batch(
    num_tokens: int, vocab_size: int, dtype: torch.dtype, device: str, seed: int = 0
) -> Tensors:
    """Logits, reference logits near them, ids, old log-probabilities and a mask."""
    generator = torch.Generator(device).manual_seed(seed)
    logits = torch.randn((num_tokens, vocab_size), generator=generator, device=device) * 3
    noise = torch.randn(logits.shape, generator=generator, device=device)
    ids = torch.randint(0, vocab_size, (num_tokens,), generator=generator, device=device)
    logits[::3].scatter_(1, ids[::3, None], 12.0)
    own, ref = logits.to(dtype), (logits + 0.1 * noise).to(dtype)
    old = logprob(own, ids) + 0.05 * torch.randn(ids.shape, generator=generator, device=device)
    mask = torch.arange(num_tokens, device=device) % 4 != 1
    return own, ref, ids, old, mask


def run(given: Tensors, dys: tuple[torch.Tensor, torch.Tensor], **options: Any) -> Tensors:
    """Ratio, kl and dlogits."""
    logits, ref, ids, old, mask = given
    leaf = logits.detach().requires_grad_()
    ratio, kl = ratio_kl(leaf, ref, ids, old, mask=mask, **options)
    (dlogits,) = torch.autograd.grad((ratio, kl), (leaf,), dys)
    return ratio.detach(), kl.detach(), dlogits


def upstream(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Random gradients of ratio and kl."""
    return slopes(ids, 1), slopes(ids, 2)


def check_accuracy(
    num_tokens: int, vocab_size: int, dtype: torch.dtype, device: str, temperature: float = 1.0
) -> tuple[float, float, float]:
    """Results and gradients lie near fp64; gives their errors in units in the last place.

    ratio counts in places of ratio * max(|logprob|, 1), kl in places of
    (1 + exp(d)) * max(|logprob|, 1): a logarithm rounded to fp32 is that uncertain.
    """
    given = logits, ref, ids, old, mask = batch(num_tokens, vocab_size, dtype, device)
    dys = upstream(ids)
    ratio, kl, dlogits = run(given, dys, temperature=temperature)
    leaf = logits.double().requires_grad_()
    expected = reference.forward(leaf, ref, ids, old, mask, temperature)
    exact_dys = tuple(dy.double() for dy in dys)
    (gradient,) = torch.autograd.grad(expected, leaf, exact_dys)
    exact_ratio, exact_kl = (item.detach() for item in expected)
    size = (exact_ratio.log() + old).abs().clamp_min(1.0)
    errors = (
        ulp_error(ratio, exact_ratio, exact_ratio * size),
        ulp_error(kl, exact_kl, (2 + exact_kl) * size),
    )
    total = gradient.abs().amax(dim=1, keepdim=True)
    terms = (exact_ratio * dys[0].abs() + (2 + exact_kl) * dys[1].abs())[:, None] / temperature
    wide = torch.maximum(total, terms).expand_as(gradient)
    if dtype != torch.float32:
        # the slope adds two terms, and the selected column two shares
        wide = torch.where(gradient.abs() < total, wide * 2.0**-9, wide)
    gradient_error = ulp_error(dlogits, gradient, wide)
    assert max(errors) <= RESULT_ULP, errors
    assert gradient_error <= (4 * DLOGITS_ULP[dtype] if dtype == torch.float32 else 0.6)
    assert bool((kl >= 0).all())
    return (*errors, gradient_error)


def check_masked_rows(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """Masked tokens: ratio 1, kl +0.0, gradient +0.0; rows, id and old logprob are not read."""
    given = logits, ref, ids, old, mask = batch(12, vocab_size, dtype, device)
    dys = upstream(ids)
    expected = run(given, dys)
    for content in (float("nan"), float("inf"), float("-inf")):
        other = (
            logits.masked_fill(~mask[:, None], content),
            ref.masked_fill(~mask[:, None], content),
            ids.masked_fill(~mask, 2**62),
            old.masked_fill(~mask, content),
            mask,
        )
        poisoned = tuple(dy.masked_fill(~mask, content) for dy in dys)
        got = run(other, (poisoned[0], poisoned[1]))
        assert raw_all(got) == raw_all(expected)
    ratio, kl, dlogits = expected
    assert bool((ratio[~mask] == 1).all())
    assert not any(raw(kl[~mask]))
    assert not any(raw(dlogits[~mask]))


def check_infinities(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """A selected logit of minus infinity: no inf * 0, whichever side has it."""
    logits, ref, ids, old, _ = batch(4, vocab_size, dtype, device)
    mask = torch.ones(4, dtype=torch.bool, device=device)
    lowest = float("-inf")
    if vocab_size > 1:
        logits[1, ids[1]] = lowest
        ref[2, ids[2]] = lowest
        logits[3, ids[3]] = ref[3, ids[3]] = lowest
        old[3] = lowest
    ratio, kl, dlogits = run((logits, ref, ids, old, mask), upstream(ids))
    assert not ratio.isnan().any()
    assert not kl.isnan().any()
    assert ratio.tolist()[1:] == [0.0, ratio.tolist()[2], 1.0]
    assert kl.tolist()[1:] == [float("inf"), float("inf"), 0.0]
    assert bool(dlogits[[0, 2, 3]].isfinite().all())
    zeros = torch.zeros(4, device=device)
    _, _, none = run((logits, ref, ids, old, mask), (zeros, zeros))
    assert not any(raw(none))
    _, _, of_ratio = run((logits, ref, ids, old, mask), (zeros + 1, zeros))
    assert bool(of_ratio.isfinite().all())


def check_on_policy(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """The ratio of a policy to its own logprob is 1, its kl to itself 0, and its gradient ratio's."""
    logits, _, ids, _, mask = batch(9, vocab_size, dtype, device)
    for temperature in (1.0, 0.7):
        old = logprob(logits, ids, temperature=temperature)
        ratio, kl, _ = run((logits, logits, ids, old, mask), upstream(ids), temperature=temperature)
        assert bool((ratio == 1).all())
        assert not any(raw(kl))
    dy = slopes(ids)
    leaf = logits.detach().requires_grad_()
    (expected,) = torch.autograd.grad(logprob(leaf, ids), leaf, dy)
    _, _, got = run(
        (logits, logits, ids, logprob(logits, ids), torch.ones_like(mask)),
        (dy, torch.zeros_like(dy)),
    )
    assert raw(got) == raw(expected)


def check_padded_columns(vocab_size: int, padded: int, dtype: torch.dtype, device: str) -> None:
    """Columns of padding are not read and have gradient +0.0."""
    logits, ref, ids, old, mask = batch(5, padded, dtype, device)
    ids = ids % vocab_size
    dys = upstream(ids)
    made = []
    for content in (float("nan"), float("inf"), 7.0):
        own, other = logits.clone(), ref.clone()
        own[:, vocab_size:] = other[:, vocab_size:] = content
        made.append(run((own, other, ids, old, mask), dys, vocab_size=vocab_size))
    assert raw_all(made[0]) == raw_all(made[1]) == raw_all(made[2])
    ratio, kl, dlogits = made[0]
    real = logits[:, :vocab_size], ref[:, :vocab_size], ids, old, mask
    expected_ratio, expected_kl = reference.forward(*real)
    assert torch.allclose(ratio.double(), expected_ratio, rtol=1e-5)
    assert torch.allclose(kl.double(), expected_kl, atol=1e-5)
    assert not any(raw(dlogits[:, vocab_size:]))


def check_batches(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """A token's bytes are the same at batch 1, 3 and 64, packed and in another place."""
    given = batch(64, vocab_size, dtype, device)
    dys = upstream(given[2])
    whole = run(given, dys)
    for size in (1, 3):
        for start in range(0, 64 - size + 1, 21):
            part = slice(start, start + size)
            some = tuple(item[part] for item in given)
            got = run(some, (dys[0][part], dys[1][part]))
            assert raw_all(got) == raw_all(tuple(item[part] for item in whole))
    packed = tuple(item.view(4, 16, *item.shape[1:]) for item in given)
    assert raw_all(run(packed, (dys[0].view(4, 16), dys[1].view(4, 16)))) == raw_all(whole)
    order = torch.randperm(64, device=device)
    got = run(tuple(item[order] for item in given), (dys[0][order], dys[1][order]))
    assert raw_all(got) == raw_all(tuple(item[order] for item in whole))


def check_layouts(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """Strided, transposed and misaligned inputs and gradients give the contiguous bytes."""
    given = batch(6, vocab_size, dtype, device)
    dys = upstream(given[2])
    expected = raw_all(run(given, dys))
    for arranged in zip(*(layouts(item) for item in (*given, *dys)), strict=False):
        values = tuple(value for _, value in arranged)
        got = run(values[:5], (values[5], values[6]))
        assert raw_all(got) == expected, arranged[0][0]


def check_compiled(device: str, backend: str) -> None:
    """A full-graph compiled call gives the eager call's bytes, gradients included."""
    torch.compiler.reset()
    logits, ref, ids, old, mask = batch(5, 257, torch.bfloat16, device)
    dys = upstream(ids)
    compiled = torch.compile(ratio_kl, fullgraph=True, backend=backend)
    leaf = logits.detach().requires_grad_()
    results = compiled(leaf, ref, ids, old, mask=mask)
    (dlogits,) = torch.autograd.grad(results, (leaf,), dys)
    got = tuple(item.detach() for item in (*results, dlogits))
    assert raw_all(got) == raw_all(run((logits, ref, ids, old, mask), dys))
