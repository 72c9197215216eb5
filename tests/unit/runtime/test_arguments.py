"""What a launch re-checks: the message names the argument."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rltune.errors import OperatorArgumentError
from rltune.runtime.arguments import check_arguments
from tests.unit.runtime.test_pins import KERNEL as BARE

torch = pytest.importorskip("torch")

from rltune.core.operator import Scalar, Tensor  # noqa: E402

KERNEL = replace(
    BARE,
    arguments=(
        Tensor(name="x_ptr", axes=("num_tokens",)),
        Tensor(name="ids_ptr", axes=("num_tokens",), dtype="i64"),
        Scalar(name="num_tokens", dtype="i64"),
        Scalar(name="eps", dtype="fp32"),
    ),
)


def arguments(**others):
    values = {
        "x_ptr": torch.zeros(64, dtype=torch.bfloat16),
        "ids_ptr": torch.zeros(64, dtype=torch.int64),
        "num_tokens": 64,
        "eps": 1e-6,
    }
    return tuple({**values, **others}.values())


def test_arguments_as_declared_give_the_device():
    assert check_arguments(KERNEL, "bf16", arguments()) is None
    assert check_arguments(KERNEL, "bf16", arguments(eps=1)) is None


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"x_ptr": torch.zeros(64, dtype=torch.float16)}, "x_ptr: expected a tensor of torch.bfloat16, got torch.float16"),
        ({"ids_ptr": torch.zeros(64, dtype=torch.int32)}, "ids_ptr: expected a tensor of torch.int64"),
        ({"x_ptr": torch.zeros(65, dtype=torch.bfloat16)[1:]}, "x_ptr: expected an address that is a multiple of 16 bytes, got one with remainder 2"),
        ({"x_ptr": None}, "x_ptr: expected a tensor of torch.bfloat16, got NoneType"),
        ({"num_tokens": 2**63}, "num_tokens: expected a 64-bit integer"),
        ({"num_tokens": True}, "num_tokens: expected a 64-bit integer"),
        ({"num_tokens": 1.0}, "num_tokens: expected a 64-bit integer"),
        ({"eps": "1"}, "eps: expected a number"),
        ({"ids_ptr": torch.zeros(64, dtype=torch.int64, device="meta")}, "ids_ptr: expected device cpu as the other tensors, got meta"),
    ],
)  # fmt: skip
def test_argument_not_as_declared_is_named(others, message):
    with pytest.raises(OperatorArgumentError) as caught:
        check_arguments(KERNEL, "bf16", arguments(**others))
    assert message in str(caught.value)


def test_number_of_arguments_is_checked():
    with pytest.raises(OperatorArgumentError, match="expected 4 arguments, got 3"):
        check_arguments(KERNEL, "bf16", arguments()[:3])
