"""SiLU, SwiGLU and RMSNorm in the interpreter: accuracy, layouts, edges, registration."""

from typing import Any, cast

import pytest
import torch

from rltune.errors import OperatorArgumentError
from rltune_kernels import rms_norm as rms_norm_package
from rltune_kernels.add_rms_norm import add_rms_norm
from rltune_kernels.rms_norm import rms_norm
from rltune_kernels.silu import silu
from rltune_kernels.swiglu import swiglu
from tests.unit.kernels import checks

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="runs in the interpreter, without a CUDA device"
)
FP32 = torch.float32
every_operator = pytest.mark.parametrize("name", list(checks.OPERATORS))
every_dtype = pytest.mark.parametrize("dtype", checks.DTYPES, ids=str)


@every_operator
@every_dtype
@pytest.mark.parametrize(("num_tokens", "width"), [(1, 63), (5, 257), (130, 16)])
def test_operator_agrees_with_fp64(
    name: str, dtype: torch.dtype, num_tokens: int, width: int
) -> None:
    checks.check_accuracy(name, num_tokens, width, dtype, "cpu")


@every_operator
def test_wide_rows_agree_with_fp64(name: str) -> None:
    checks.check_accuracy(name, 2, 4096, torch.bfloat16, "cpu")


@every_operator
def test_layouts_change_no_byte(name: str) -> None:
    checks.check_layouts(name, 4, 63, torch.bfloat16, "cpu")


@every_operator
def test_expanded_inputs_are_copied(name: str) -> None:
    checks.check_expanded(name, 3, 63, torch.bfloat16, "cpu")


@every_operator
@every_dtype
def test_rows_do_not_depend_on_their_batch(name: str, dtype: torch.dtype) -> None:
    checks.check_batch_invariance(name, 9, 128, dtype, "cpu")


@every_operator
def test_padding_changes_no_byte(name: str) -> None:
    checks.check_padding(name, 5, 63, torch.bfloat16, "cpu")


def test_padding_changes_no_byte_over_three_steps_of_every_fold() -> None:
    checks.check_padding("rms_norm", 2100, 16, torch.bfloat16, "cpu")


@every_operator
def test_zero_rows_give_empty_results(name: str) -> None:
    checks.check_empty(name, 2520, torch.bfloat16, "cpu")


@every_operator
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_call_is_one_graph(name: str, backend: str) -> None:
    checks.check_compiled(name, "cpu", backend)


@every_operator
def test_leading_axes_are_kept(name: str) -> None:
    values = checks.inputs(name, 6, 63, torch.float32, "cpu")
    operator = checks.OPERATORS[name]
    dys = operator.upstream(values)
    shaped = tuple(v.view(2, 1, 3, 63) if v.dim() == 2 else v for v in values)
    got = operator.run(shaped, tuple(dy.view(2, 1, 3, 63) for dy in dys))
    assert checks.raw_all(*got) == checks.raw_all(*operator.run(values, dys))
    assert {result.shape for result in got[0]} == {(2, 1, 3, 63)}


@every_operator
def test_registered_operators_pass_opcheck(name: str) -> None:
    checks.check_registered(name, "cpu")


def test_registered_gradients_pass_opcheck() -> None:
    x, dy, weight = (torch.randn(shape) for shape in ((3, 63), (3, 63), (63,)))
    rstd = torch.rand(3, dtype=torch.float64)
    operators = torch.ops.rltune
    torch.library.opcheck(operators.silu_backward.default, (dy, x))
    torch.library.opcheck(operators.swiglu_backward.default, (dy, x, x + 1))
    torch.library.opcheck(operators.rms_norm_dx.default, (dy, x, weight, rstd))
    torch.library.opcheck(operators.rms_norm_dw.default, (dy, x, rstd))
    torch.library.opcheck(operators.add_rms_norm_dx.default, (dy, dy + 1, x, weight, rstd))


def test_fake_and_meta_tensors_take_the_registered_operator() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(4, 63, device="cuda", dtype=torch.bfloat16)
        assert silu(x).shape == (4, 63)
    meta = torch.empty(4, 63, device="meta")
    assert rms_norm(meta, meta[0]).device.type == "meta"


def test_functorch_transforms_are_refused_not_wrong() -> None:
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda value: silu(value).sum())(torch.randn(3, 63))


def test_double_backward_is_refused_not_wrong() -> None:
    x = torch.randn(2, 63, requires_grad=True)
    dy = torch.ones(2, 63, requires_grad=True)
    (dx,) = torch.autograd.grad(silu(x), x, dy, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


@every_dtype
def test_silu_keeps_small_negative_results(dtype: torch.dtype) -> None:
    x = torch.linspace(-10, -6.5, 57).to(dtype)[None]
    y = silu(x)
    assert bool((y < 0).all())
    assert checks.ulp_error(y, x.double() * torch.sigmoid(x.double())) <= checks.HALF_ULP


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_silu_of_every_16_bit_input_is_within_half_an_ulp(dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype).view(64, 1024)
    assert checks.silu_error(x, silu(x)) <= checks.HALF_ULP


def test_silu_underflows_gradually() -> None:
    x = torch.linspace(-175, -80, 64)[None]
    expected = x.double() * torch.sigmoid(x.double())
    smallest = torch.finfo(torch.float32).smallest_normal
    assert bool(
        ((silu(x).double() - expected).abs() <= expected.abs() * 1e-6 + smallest * 2**-22).all()
    )
    huge = silu(torch.tensor([[-1e38, -174.5, 1e38]]))
    assert huge.tolist()[0][2] == pytest.approx(1e38, rel=1e-6)
    assert not huge[0, :2].any()


def test_swiglu_does_not_round_silu_before_the_product() -> None:
    gate, up = checks.inputs("swiglu", 4, 257, torch.bfloat16, "cpu")
    twice_rounded = (silu(gate).float() * up.float()).to(torch.bfloat16)
    once_rounded = swiglu(gate, up)
    assert checks.raw(once_rounded) != checks.raw(twice_rounded)
    single = silu(gate.float()) * up.float()
    assert checks.ulp_error(once_rounded, single.double()) <= 0.51


def test_rms_norm_leaves_out_gradients_nobody_asked_for() -> None:
    x, weight = checks.inputs("rms_norm", 3, 63, torch.float32, "cpu")
    x.requires_grad_()
    rms_norm(x, weight).sum().backward()
    assert x.grad is not None
    weight.requires_grad_()
    rms_norm(x.detach(), weight).sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("asked", [(0, 1), (0,), (1,)], ids=str)
def test_add_rms_norm_takes_the_upstream_gradients_there_are(asked: tuple[int, ...]) -> None:
    x, residual, weight = (
        value.requires_grad_() for value in checks.inputs("add_rms_norm", 3, 63, FP32, "cpu")
    )
    dys = checks.OPERATORS["add_rms_norm"].upstream((x,) * 2)
    results = add_rms_norm(x, residual, weight)
    sum((results[i] * dys[i]).sum() for i in asked).backward()  # type: ignore[union-attr]
    zeros = tuple(dy if i in asked else torch.zeros_like(dy) for i, dy in enumerate(dys))
    _, expected = checks.OPERATORS["add_rms_norm"].run((x, residual, weight), zeros)
    for leaf, right in zip((x, residual, weight), expected, strict=True):
        assert torch.equal(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad, right)


@every_dtype
def test_add_rms_norm_gives_the_bytes_of_two_calls(dtype: torch.dtype) -> None:
    checks.check_add_is_two_calls(5, 257, dtype, "cpu")


def test_residual_stream_does_not_drift() -> None:
    checks.check_residual_stream(4, 512, 72, "cpu")


def test_rms_norm_eps_is_the_callers() -> None:
    x = torch.full((1, 64), 1e-3)
    weight = torch.ones(64)
    assert rms_norm(x, weight, eps=1.0)[0, 0].item() == pytest.approx(1e-3, rel=1e-5)
    assert rms_norm(x, weight, eps=0)[0, 0].item() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: silu(torch.ones(4, dtype=torch.int64)), "silu: x: expected element type"),
        (lambda: silu(torch.ones(())), r"\[..., intermediate_size\]"),
        (lambda: silu(cast("Any", [1.0])), "got list"),
        (lambda: swiglu(torch.ones(2, 4), torch.ones(2, 5)), r"\(2, 4\), got \(2, 5\)"),
        (lambda: swiglu(torch.ones(2, 4), torch.ones(2, 4).half()), "up: expected element type"),
        (lambda: swiglu(torch.ones(2), torch.ones(2, device="meta")), "device cpu, got meta"),
        (lambda: rms_norm(torch.ones(2, 4), torch.ones(5)), r"\[hidden_size\] of \(4,\)"),
        (lambda: rms_norm(torch.ones(2, 4), torch.ones(4), eps=-1.0), "eps: expected"),
        (lambda: rms_norm(torch.ones(2, 4), torch.ones(4), eps=float("nan")), "eps: expected"),
        (
            lambda: add_rms_norm(torch.ones(2, 4), torch.ones(4), torch.ones(4)),
            r"add_rms_norm: residual: expected .* of \(2, 4\), got \(4,\)",
        ),
        (lambda: add_rms_norm(torch.ones(2, 4), torch.ones(2, 4), torch.ones(5)), "weight"),
        (lambda: rms_norm(torch.ones(1, 65537), torch.ones(65537)), "hidden_size up to 65536"),
    ],
)
def test_unfit_arguments_are_refused_by_name(call: Any, named: str) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        call()


def test_package_has_no_other_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'layer_norm'"):
        rms_norm_package.layer_norm  # noqa: B018
