"""Reductions read from TTGIR: what counts as the same order."""

from rltune.sweep.layouts import reductions

TTGIR = """
#blocked = #ttg.blocked<{{sizePerThread = [1, {per_thread}], threadsPerWarp = [1, 32], \
warpsPerCTA = [{row_warps}, {warps}], order = [1, 0]}}>
#blocked1 = #ttg.blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}}>
    %15 = "tt.reduce"(%14) <{{axis = 1 : i32}}> ({{
    ^bb0(%arg3: f32, %arg4: f32):
      %20 = {combine} %arg3, %arg4 : f32
      tt.reduce.return %20 : f32
    }}) : (tensor<{rows}x{extent}xf32, #blocked>) -> tensor<{rows}xf32, #ttg.slice<{{dim = 1, parent = #blocked}}>>
"""


def text(**changes):
    fields = {
        "per_thread": 8,
        "row_warps": 1,
        "warps": 4,
        "rows": 1,
        "combine": "arith.addf",
        "extent": 4096,
    }
    return TTGIR.format(**{**fields, **changes})


def test_reduction_is_projected_on_its_axis():
    (found,) = reductions(text())
    assert found == "4096xf32 thread=8 lanes=32 warps=4 stride=1 arith.addf"


def test_rows_of_a_program_do_not_matter():
    assert reductions(text(rows=4)) == reductions(text())
    assert reductions(text(rows=4, row_warps=2)) == reductions(text())


def test_warps_elements_per_thread_and_operation_matter():
    assert len({reductions(text(**c)) for c in CHANGES}) == len(CHANGES)


CHANGES: tuple[dict[str, object], ...] = (
    {},
    {"warps": 8},
    {"per_thread": 1},
    {"combine": "arith.maximumf"},
)


def test_program_without_reductions_has_none():
    assert reductions("module { tt.func @k() { tt.return } }") == ()


def test_layout_of_another_kind_stands_for_itself():
    other = text().replace("xf32, #blocked>) ->", "xf32, #linear>) ->")
    assert reductions(other) == ("4096xf32 #linear arith.addf",)


def test_reductions_with_one_result_are_left_out():
    """Two elements are added in no order but one, and the largest is the largest in any."""
    assert reductions(text(extent=2)) == ()
    assert reductions(text(combine="arith.maxnumf")) == ()
    assert reductions(text(extent=3)) != ()
    assert reductions(text(extent=2, combine="arith.subf")) != ()
    assert reductions(text(extent=2).replace("tt.reduce", "tt.scan", 1)) != ()
