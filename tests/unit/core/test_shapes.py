"""Lookup keys and token ranges."""

from __future__ import annotations

import pytest

from rltune.core.shapes import ShapeKey, TokenRange, first_overlap
from rltune.errors import BundleError

KEY = ShapeKey.of("bf16", {"width": 4096, "heads": 8})


def test_shape_key_ignores_the_order_of_axes() -> None:
    assert ShapeKey.of("bf16", {"heads": 8, "width": 4096}) == KEY
    assert str(KEY) == "bf16,heads=8,width=4096"
    assert ShapeKey.of("fp16", {"heads": 8, "width": 4096}) != KEY


def test_shape_key_json_gives_the_key_back() -> None:
    assert ShapeKey.from_json(KEY.to_json(), "$") == KEY


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"\$\.key: expected an object with dtype, axes"),
        ({"dtype": "bf16"}, "expected an object with dtype, axes"),
        ({"dtype": "bf16", "axes": {}, "more": 1}, "expected an object"),
        ({"dtype": "int4", "axes": {}}, r"\$\.key\.dtype: expected one of bf16.*got 'int4'"),
        ({"dtype": ["bf16"], "axes": {}}, "dtype: expected one of"),
        ({"dtype": "bf16", "axes": []}, r"\$\.key\.axes: expected an object"),
        ({"dtype": "bf16", "axes": {"width": 0}}, r"axes\.width: expected a positive integer"),
        ({"dtype": "bf16", "axes": {"width": True}}, "expected a positive integer, got True"),
    ],
)
def test_shape_key_from_json_is_strict(value: object, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        ShapeKey.from_json(value, "$.key")


def test_token_range_holds_both_ends_and_integers_only() -> None:
    tokens = TokenRange(2, 4)

    assert [count for count in range(7) if count in tokens] == [2, 3, 4]
    assert "3" not in tokens
    assert 3.0 not in tokens


@pytest.mark.parametrize(
    ("left", "right", "overlap"),
    [
        ((1, 3), (4, 5), False),
        ((1, 4), (4, 5), True),
        ((1, 9), (3, 4), True),
        ((3, 3), (3, 3), True),
    ],
)
def test_token_ranges_overlap(left: tuple[int, int], right: tuple[int, int], overlap: bool) -> None:
    assert TokenRange(*left).overlaps(TokenRange(*right)) is overlap
    assert TokenRange(*right).overlaps(TokenRange(*left)) is overlap


def test_first_overlap_finds_it_in_any_order() -> None:
    disjoint = [TokenRange(9, 9), TokenRange(1, 3), TokenRange(4, 8)]

    assert first_overlap(disjoint) is None
    assert first_overlap([*disjoint, TokenRange(3, 3)]) == (TokenRange(1, 3), TokenRange(3, 3))
    assert first_overlap([]) is None
