"""What grpo_loss must do, written once for the interpreter's tests and for the GPU's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

import torch
from torch.nn import functional

from rltune.core.launch import LaunchConfig
from rltune.runtime.launcher import launch_with
from rltune_kernels.grpo_loss import grpo_loss, reference
from rltune_kernels.grpo_loss.op import Tokens
from rltune_kernels.grpo_loss.reference import Rule
from rltune_kernels.grpo_loss.spec import AGGREGATIONS, BACKWARD, FOLD, FORWARD
from tests.unit.kernels import checks
from tests.unit.kernels.grpo_checks import INF, NAN, folded, single

BOUNDS = (single(0.8), single(1.2))


@dataclass(frozen=True)
class Case:
    """Arguments of a call and an upstream gradient."""

    logprob: torch.Tensor
    old_logprob: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    ref_logprob: torch.Tensor | None
    rule: Rule = field(default_factory=lambda: Rule(beta=0.04, max_length=400))
    dloss: float = 1.5

    def options(self) -> dict[str, Any]:
        rule = {item.name: getattr(self.rule, item.name) for item in fields(Rule)}
        return {"ref_logprob": self.ref_logprob, **rule}

    def call(self, logprob: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return grpo_loss(logprob, self.old_logprob, self.advantages, self.mask, **self.options())

    def run(self) -> tuple[torch.Tensor, ...]:
        """(loss, policy_loss, kl, dlogprob)."""
        return gradient_of(self.call, self.logprob, self.dloss)

    def raw(self) -> list[bytes]:
        return raw_all(self.run())


def raw_all(tensors: tuple[torch.Tensor, ...]) -> list[bytes]:
    return [checks.raw(item.reshape(-1)) for item in tensors]


def gradient_of(call: Any, logprob: torch.Tensor, dloss: float) -> tuple[torch.Tensor, ...]:
    leaf = logprob.detach().requires_grad_()
    loss, policy_loss, kl = call(leaf)
    (dlogprob,) = torch.autograd.grad(loss, leaf, torch.full_like(loss, dloss))
    return loss.detach(), policy_loss, kl, dlogprob


def case(
    num_sequences: int,
    length: int,
    device: str,
    *,
    dtype: torch.dtype = torch.float32,
    per_token: bool = False,
    aggregation: str = "token_mean",
    seed: int = 0,
) -> Case:
    """Random log-probabilities near one another, a fifth of the tokens masked, padding."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device)

    logprob = (-3 * normal(num_sequences, length).abs()).to(dtype)
    old = logprob.float() + 0.3 * normal(num_sequences, length)
    ref = logprob.float() + 0.1 * normal(num_sequences, length)
    shape = (num_sequences, length) if per_token else (num_sequences,)
    mask = normal(num_sequences, length) < 0.8
    for row in range(0, num_sequences, 3):
        mask[row, (row * 37 + length // 2) % length :] = False
    rule = Rule(beta=0.04, max_length=400, aggregation=aggregation)
    return Case(logprob, old, normal(*shape), mask, ref, rule)


def cases(num_sequences: int, length: int, device: str) -> Iterator[Case]:
    """Every average, advantages of both shapes, with a reference policy and without."""
    for aggregation in AGGREGATIONS:
        for per_token in (False, True):
            made = case(num_sequences, length, device, per_token=per_token, aggregation=aggregation)
            yield made
            yield replace(made, ref_logprob=None, rule=replace(made.rule, beta=0.0))


def one(
    log_ratio: float, advantage: float, device: str, gap: float | None = None, beta: float = 0.5
) -> Case:
    """A single token, with a reference policy if it has a gap from one."""
    logprob = torch.tensor([[log_ratio]], device=device)
    return Case(
        logprob=logprob,
        old_logprob=torch.zeros_like(logprob),
        advantages=torch.tensor([advantage], device=device),
        mask=torch.tensor([[True]], device=device),
        ref_logprob=None if gap is None else logprob + gap,
        rule=Rule(beta=0.0 if gap is None else beta),
        dloss=1.0,
    )


def check_ties(device: str) -> None:
    """Bounds of 1 make a ratio of 1 a tie and a bound; beyond bounds one side has a slope."""
    for advantage in (2.0, -2.0):
        tight = Rule(clip_low=0.0, clip_high=0.0)
        made = replace(one(0.0, advantage, device), rule=tight)
        assert float(made.run()[3]) == -advantage
        check_accuracy(made)
    for log_ratio, advantage in ((1.0, 2.0), (-1.0, -2.0)):
        assert not one(log_ratio, advantage, device).run()[3].any()
        check_accuracy(one(log_ratio, -advantage, device))


def check_near_policies(device: str) -> None:
    """The divergence and its slope are exact to half an ulp, however small the gap."""
    small = (2.0**-3, 2.0**-14, 2.0**-40, 0.2499, 0.25, 0.2501)
    for gap in (*small, *(-item for item in small), 0.9, 0.95, 0.99, -0.9, -0.95, -0.99):
        made = one(0.0, 0.0, device, gap)
        exact = Fraction(single(gap))
        series, term = Fraction(0), exact
        for order in range(2, 30):
            term = term * exact / order
            series += term
        *_, kl, dlogprob = made.run()
        right = torch.tensor([float(series), float(-(series + exact) / 2)], dtype=torch.float64)
        got = torch.stack((kl, dlogprob.view(()))).cpu()
        assert checks.ulp_error(got, right) <= 0.5001, gap
    assert not any(checks.raw(one(-3.0, 1.0, device, 0.0).run()[2].view(1)))


def check_far_policies(gap: float, device: str) -> None:
    """An infinite divergence is no NaN, and without a weight it is no part of the loss."""
    made = one(0.0, 1.0, device, gap)
    loss, policy_loss, kl, dlogprob = made.run()
    assert (float(loss), float(policy_loss), float(kl)) == (INF, -1.0, INF)
    assert not dlogprob.isnan().any()
    loss, _, kl, dlogprob = one(0.0, 1.0, device, gap, beta=0.0).run()
    assert (float(loss), float(kl), float(dlogprob)) == (-1.0, INF, -1.0)
    nowhere = torch.full_like(made.logprob, -INF)
    lost = replace(made, logprob=nowhere, ref_logprob=torch.zeros_like(nowhere))
    assert float(lost.run()[2]) == INF


def check_infinite_ratio(device: str) -> None:
    """Times no advantage it is no loss; else clipped above, and infinite below, as torch has it."""
    loss, *_, dlogprob = one(5000.0, 0.0, device).run()
    assert not any(checks.raw(loss.view(1)))
    assert float(dlogprob) == 0.0
    assert float(one(5000.0, 1.0, device).run()[0]) == -single(1.2)
    assert float(one(5000.0, -1.0, device).run()[0]) == INF


def check_nan(name: str, device: str) -> None:
    """NaN in a token that counts reaches the loss, and of the gradient that token's alone."""
    made = case(3, 140, device, per_token=True)
    made = replace(made, mask=torch.ones_like(made.mask))
    finite = made.run()
    value = getattr(made, name).clone()
    value[1, 130] = NAN
    got = replace(made, **{name: value}).run()
    assert got[0].isnan()
    assert got[3][1, 130].isnan()
    others = torch.ones_like(made.mask)
    others[1, 130] = False
    assert checks.raw(got[3][others]) == checks.raw(finite[3][others])


def check_accuracy(made: Case) -> None:
    """Results and gradient lie within half an ulp of torch's in fp64, of what is added up."""
    loss, policy_loss, kl, dlogprob = made.run()
    leaf = made.logprob.double().requires_grad_()
    rest = (made.old_logprob, made.advantages, made.mask, made.ref_logprob, made.rule)
    expected = reference.forward(leaf, *rest)
    (gradient,) = torch.autograd.grad(expected[0], leaf, torch.full_like(expected[0], made.dloss))
    sizes = _magnitudes(made)
    assert dlogprob.dtype == made.logprob.dtype
    assert dlogprob.shape == made.logprob.shape
    for got, right, size in zip((loss, policy_loss, kl), expected, sizes[:3], strict=True):
        assert got.dtype == torch.float32
        assert got.shape == ()
        assert checks.ulp_error(got, right.detach(), size) <= checks.HALF_ULP
    assert gradient.any()
    assert checks.ulp_error(dlogprob, gradient, sizes[3]) <= checks.HALF_ULP
    assert not any(checks.raw(dlogprob[made.mask == 0]))


def _magnitudes(made: Case) -> tuple[torch.Tensor, ...]:
    """Averages of magnitudes of surrogate and kl, and of the gradient's two terms."""
    valid = made.mask != 0
    advantages = made.advantages if made.advantages.dim() == 2 else made.advantages[:, None]
    logprob = made.logprob.double()
    ratio = torch.exp(logprob - made.old_logprob.double())
    unclipped = replace(made.rule, clip_low=1.0, clip_high=1e30)
    rest = (made.mask, made.ref_logprob, unclipped)
    loss, policy, kl = reference.forward(
        logprob, made.old_logprob, -advantages.abs().expand(valid.shape), *rest
    )
    slopes = (ratio * advantages.double()).abs()
    if made.ref_logprob is not None:
        slopes += made.rule.beta * torch.expm1(made.ref_logprob.double() - logprob).abs()
    count = valid.sum(-1, keepdim=True)
    weight = {
        "token_mean": 1 / valid.sum().clamp_min(1).double(),
        "sequence_mean": 1 / (count.clamp_min(1) * (count > 0).sum().clamp_min(1)).double(),
        "constant": torch.tensor(1 / (len(count) * made.rule.max_length)).double(),
    }[made.rule.aggregation]
    weighted = slopes * weight.to(slopes.device) * abs(made.dloss)
    return loss, policy, kl, torch.where(valid, weighted, 0)


def check_masked_tokens_are_unread(made: Case) -> None:
    """Whatever masked tokens hold: the bytes are the same, their gradient is +0.0."""
    expected = made.raw()
    masked = made.mask == 0
    for content in (NAN, INF, -INF, 3e38):
        filled = {
            name: value.masked_fill(masked, content)
            for name in ("logprob", "old_logprob", "ref_logprob", "advantages")
            if (value := getattr(made, name)) is not None and value.dim() == 2
        }
        assert replace(made, **filled).raw() == expected, content
    for upstream in (NAN, INF, -1.0):
        gradient = replace(made, dloss=upstream).run()[3]
        assert not any(checks.raw(gradient[masked]))
    for mask in (made.mask.to(torch.uint8) * 255, made.mask.int() * 256, made.mask.long()):
        assert replace(made, mask=mask).raw() == expected


def check_padding(made: Case) -> None:
    """Masked tokens on the right, and masked sequences below, change no byte."""
    expected = made.run()
    length = made.logprob.shape[1]
    for extra in (1, 127, 128, 1000):

        def padded(value: torch.Tensor | None, content: float, extra: int = extra) -> Any:
            if value is None or value.dim() == 1:
                return value
            return functional.pad(value, (0, extra), value=content)

        names = ("logprob", "old_logprob", "advantages", "ref_logprob")
        longer = replace(
            made,
            **{name: padded(getattr(made, name), NAN) for name in names},
            mask=padded(made.mask, 0.0),
        )
        got = longer.run()
        assert raw_all(got[:3]) == raw_all(expected[:3]), extra
        assert checks.raw(got[3][:, :length]) == checks.raw(expected[3]), extra
        assert not any(checks.raw(got[3][:, length:]))


def partials(made: Case, config: LaunchConfig | None = None) -> torch.Tensor:
    """What one launch of ``forward`` writes."""
    tokens = Tokens.of(made.logprob, made.old_logprob, made.advantages, made.mask, made.ref_logprob)
    axes = tokens.axes()
    partial = torch.full((len(made.logprob), 3), NAN, dtype=torch.float64)
    partial = partial.to(made.logprob.device)
    layout = axes["sequence_length"], axes["advantage_row"], axes["advantage_token"]
    numbers = (*layout, int(made.ref_logprob is not None), *BOUNDS)
    dtype = {torch.float32: "fp32", torch.bfloat16: "bf16"}[made.logprob.dtype]
    config = config or FORWARD.baseline(FORWARD.shape_key(dtype, axes))
    launch_with(FORWARD, axes, dtype, (*tokens.pointers(), partial, *numbers), config, None)
    return partial


def check_sequences_are_alone(made: Case) -> None:
    """Sums and gradient of a sequence depend on no other one."""
    whole = partials(made)
    parts = ("logprob", "old_logprob", "advantages", "mask", "ref_logprob")
    for row in range(len(made.logprob)):
        own = {name: getattr(made, name)[row : row + 1] for name in parts}
        assert checks.raw(partials(replace(made, **own))) == checks.raw(whole[row : row + 1])
    turned = {name: getattr(made, name).flip(0) for name in parts}
    assert checks.raw(partials(replace(made, **turned))) == checks.raw(whole.flip(0))
    fixed = replace(made, rule=replace(made.rule, aggregation="constant"))
    gradient = fixed.run()[3]
    for content in (NAN, INF, 5.0):
        value = made.logprob.clone()
        value[1:] = content
        other = replace(fixed, logprob=value).run()[3]
        assert checks.raw(other[:1]) == checks.raw(gradient[:1])


def _wide(shape: tuple[int, ...], device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    exponents = torch.randint(-30, 30, shape, generator=generator)
    return torch.ldexp(torch.randn(shape, generator=generator), exponents).to(device)


def fold(partial: torch.Tensor, aggregation: int, config: LaunchConfig | None = None) -> Any:
    """(totals, loss) of one launch of ``fold``, with a max_length of 10 and beta of 1/4."""
    device = partial.device
    totals = torch.full((3,), NAN, dtype=torch.float64, device=device)
    scalars = [torch.full((), NAN, device=device) for _ in range(3)]
    axes = {"num_sequences": len(partial), "length_bucket": 128}
    numbers = (len(partial), aggregation, 10, 0.25)
    config = config or FOLD.baseline(FOLD.shape_key("fp32", axes))
    launch_with(FOLD, axes, "fp32", (partial, totals, *scalars, *numbers), config, None)
    return totals, scalars[0]


def check_order(num_sequences: int, length: int, device: str) -> None:
    """Sums are the folds of lanes that the declaration states; the controls' are others."""
    made = case(num_sequences, length, device, per_token=True)
    made = replace(
        made,
        old_logprob=made.logprob,  # a ratio of exactly 1: the surrogate is minus the advantage
        ref_logprob=None,
        advantages=_wide((num_sequences, length), device),
    )
    got = partials(made)
    values = torch.where(made.mask, -made.advantages, 0).double().cpu()
    expected = torch.stack([folded(row) for row in values])
    assert checks.raw(got[:, 0]) == checks.raw(expected + 0.0)
    assert checks.raw(got[:, 2]) == checks.raw(made.mask.sum(-1).double())
    assert FORWARD.control is not None
    assert FOLD.control is not None
    key = FORWARD.shape_key("fp32", {"length_bucket": 1024})
    assert checks.raw(partials(made, FORWARD.control(key))) != checks.raw(got)
    sums = _wide((num_sequences, 2), device).double() / 3
    partial = torch.cat((sums, made.mask.sum(-1, keepdim=True).double()), dim=1)
    totals, loss = fold(partial, 0)
    columns = partial.cpu()
    right = [folded(columns[:, i]) / columns[:, 2].sum().clamp_min(1) for i in (0, 1)]
    assert totals.tolist()[:2] == [float(item) for item in right]
    assert float(loss) == single(float(right[0] + 0.25 * right[1]))
    assert checks.raw(fold(partial, 0, FOLD.control(key))[0]) != checks.raw(totals)


def check_candidates(num_sequences: int, length: int, device: str) -> None:
    """Every candidate of the three kernels gives the bytes of its fixed launch."""
    made = case(num_sequences, length, device)
    axes = Tokens.of(
        made.logprob, made.old_logprob, made.advantages, made.mask, made.ref_logprob
    ).axes()
    key = FORWARD.shape_key("fp32", axes)
    partial = partials(made)
    for config in FORWARD.candidates(key):
        assert checks.raw(partials(made, config)) == checks.raw(partial), config.candidate_id
    assert FORWARD.control is not None
    assert checks.raw(partials(made, FORWARD.control(key))) != checks.raw(partial)
    totals, loss = fold(partial, 1)
    for config in FOLD.candidates(key):
        got = fold(partial, 1, config)
        assert checks.raw(got[0]) == checks.raw(totals), config.candidate_id
        assert got[1] == loss
    gradient = checks.raw(_gradient(made, axes, partial, totals, BACKWARD.baseline(key)))
    for config in BACKWARD.candidates(key):
        got = checks.raw(_gradient(made, axes, partial, totals, config))
        assert got == gradient, config.candidate_id


def _gradient(
    made: Case, axes: dict[str, int], partial: Any, totals: Any, config: LaunchConfig
) -> torch.Tensor:
    out = torch.full(made.logprob.shape, NAN, dtype=torch.float64, device=partial.device)
    tokens = Tokens.of(made.logprob, made.old_logprob, made.advantages, made.mask, made.ref_logprob)
    dloss = torch.ones((), device=partial.device)
    layout = axes["sequence_length"], axes["advantage_row"], axes["advantage_token"], 1
    arguments = (*tokens.pointers(), partial, totals, dloss, out, *layout, 1, *BOUNDS, 0.25)
    launch_with(BACKWARD.witness(), axes, "fp32", arguments, config, None)
    return out


def check_layouts(made: Case) -> None:
    """Strided, transposed and misaligned arguments give the contiguous bytes."""
    names = ("logprob", "old_logprob", "advantages", "mask", "ref_logprob")
    expected = made.raw()
    for arranged in zip(*(checks.layouts(getattr(made, name)) for name in names), strict=False):
        others = {name: value for name, (_, value) in zip(names, arranged, strict=True)}
        assert replace(made, **others).raw() == expected, arranged[0][0]


def check_compiled(made: Case, backend: str) -> None:
    """A full-graph compiled call gives the eager bytes, gradient included."""
    torch.compiler.reset()
    compiled: Any = torch.compile(grpo_loss, fullgraph=True, backend=backend)
    rest = (made.old_logprob, made.advantages, made.mask)
    got = gradient_of(
        lambda value: compiled(value, *rest, **made.options()), made.logprob, made.dloss
    )
    assert raw_all(got) == made.raw()
