"""Rules of selection, one by one, and token ranges."""

from __future__ import annotations

import pytest

from rltune.core.shapes import ShapeKey, TokenRange
from rltune.errors import JournalError
from rltune.sweep.ranges import RangeDecision, decide_ranges, share_served
from rltune.sweep.select import (
    KeptBaseline,
    PointSamples,
    Selected,
    decide_point,
    finalist_to_replicate,
    gain_ppm,
    is_not_slower,
    noise_band_ppm,
    required_gain_ppm,
)

KEY = ShapeKey.of("bf16", {"width": 4096})
BASE = "w4"
QUALIFIED = frozenset({"fast", "faster", "same", "slow"})
BASE_PS = (1000_000, 1001_000, 1002_000, 1003_000, 1004_000)


def times(median_ps: int) -> tuple[int, ...]:
    """Five medians 1000 ps apart around one."""
    return tuple(median_ps + step for step in (-2000, -1000, 0, 1000, 2000))


def point(
    tokens: int = 16,
    *,
    control_ps: tuple[int, ...] = BASE_PS,
    replication: bool = True,
    **medians_ps: int,
) -> PointSamples:
    samples_ps = {name: times(median_ps) for name, median_ps in medians_ps.items()}
    return PointSamples(
        kernel="rms_norm/forward",
        key=KEY,
        tokens=tokens,
        baseline_id=BASE,
        samples_ps={BASE: BASE_PS, **samples_ps},
        control_ps=control_ps,
        replication_ps={BASE: BASE_PS, **samples_ps} if replication else {},
    )


def test_a_clear_gain_is_selected() -> None:
    decision = decide_point(point(fast=901_800), QUALIFIED)

    assert decision == Selected(
        candidate_id="fast", gain_ppm=100_000, required_ppm=20_000, band_ppm=0
    )
    assert finalist_to_replicate(point(fast=901_800, replication=False), QUALIFIED) == "fast"


def test_the_larger_gain_is_selected_and_of_equal_ones_the_smaller_id() -> None:
    assert decide_point(point(fast=900_000, faster=800_000), QUALIFIED) == Selected(
        candidate_id="faster", gain_ppm=201_596, required_ppm=20_000, band_ppm=0
    )
    tied = decide_point(point(faster=900_000, fast=900_000), QUALIFIED)
    assert isinstance(tied, Selected)
    assert tied.candidate_id == "fast"


def reason(samples: PointSamples, qualified: frozenset[str] = QUALIFIED) -> str:
    decision = decide_point(samples, qualified)
    assert isinstance(decision, KeptBaseline)
    return decision.reason


def test_an_unqualified_candidate_is_never_selected() -> None:
    assert reason(point(fast=500_000), frozenset()) == "no qualified finalist"
    assert reason(point(), QUALIFIED) == "no qualified finalist"
    # an unqualified finalist does not hide a qualified one
    decision = decide_point(point(fast=500_000, slow=900_000), frozenset({"slow"}))
    assert isinstance(decision, Selected)
    assert decision.candidate_id == "slow"


def test_overlapping_process_medians_keep_the_baseline() -> None:
    samples = point(fast=900_000)
    one_slow = (*times(900_000)[:4], BASE_PS[0])

    kept = PointSamples(
        kernel=samples.kernel,
        key=KEY,
        tokens=16,
        baseline_id=BASE,
        samples_ps={BASE: BASE_PS, "fast": one_slow},
        control_ps=BASE_PS,
        replication_ps=samples.replication_ps,
    )

    assert reason(kept) == "no finalist without overlap"
    assert reason(point(same=1002_000)) == "no finalist without overlap"


def test_two_percent_or_less_keeps_the_baseline() -> None:
    assert reason(point(fast=981_960)) == "gain within the noise band or 2%"  # exactly 2%
    assert isinstance(decide_point(point(fast=981_950), QUALIFIED), Selected)


def test_a_gain_within_the_noise_band_keeps_the_baseline() -> None:
    noisy = (*BASE_PS[:4], 1104_400)  # A/A: 10% off in one process
    samples = point(fast=910_000, control_ps=noisy)

    assert noise_band_ppm(samples) == 100_000
    assert reason(samples) == "gain within the noise band or 2%"
    assert isinstance(decide_point(point(fast=901_000, control_ps=noisy), QUALIFIED), Selected)


def test_a_control_that_is_faster_widens_the_band_too() -> None:
    assert noise_band_ppm(point(control_ps=(900_000, *BASE_PS[1:]))) == 100_000


@pytest.mark.parametrize(
    ("finalists", "required_ppm"),
    [(0, 50_000), (1, 50_000), (2, 65_000), (3, 80_000), (4, 80_000), (8, 95_000), (16, 110_000)],
)
def test_required_gain_grows_with_the_finalists(finalists: int, required_ppm: int) -> None:
    assert required_gain_ppm(50_000, finalists) == required_ppm


def test_required_gain_is_at_least_two_percent() -> None:
    assert required_gain_ppm(100, 1000) == 20_000


def test_more_finalists_may_keep_the_baseline() -> None:
    noisy = (*BASE_PS[:4], 1104_400)

    assert isinstance(decide_point(point(fast=890_000, control_ps=noisy), QUALIFIED), Selected)
    several = point(fast=890_000, slow=1100_000, control_ps=noisy)
    assert reason(several) == "gain within the noise band or 2%"


def test_fewer_than_five_processes_confirm_nothing() -> None:
    samples = point(fast=900_000)
    short = {name: value[:4] for name, value in samples.samples_ps.items()}
    fields = {"kernel": "k/f", "key": KEY, "tokens": 1, "baseline_id": BASE}
    replication_ps = samples.replication_ps

    def made(samples_ps: dict[str, tuple[int, ...]], control_ps: tuple[int, ...]) -> PointSamples:
        return PointSamples(
            **fields,  # type: ignore[arg-type]
            samples_ps=samples_ps,
            control_ps=control_ps,
            replication_ps=replication_ps,
        )

    assert reason(made(short, BASE_PS[:4])) == "baseline not confirmed"
    assert reason(made(dict(samples.samples_ps), ())) == "baseline not confirmed"
    assert reason(made({}, ())) == "baseline not confirmed"
    uneven = {BASE: BASE_PS, "fast": short["fast"]}
    assert reason(made(uneven, BASE_PS)) == "no qualified finalist"
    assert not is_not_slower(made(short, BASE_PS[:4]), "fast", QUALIFIED)


def replicated(**medians_ps: int) -> PointSamples:
    samples = point(fast=900_000)
    return PointSamples(
        kernel=samples.kernel,
        key=KEY,
        tokens=16,
        baseline_id=BASE,
        samples_ps=samples.samples_ps,
        control_ps=BASE_PS,
        replication_ps={name: times(value) for name, value in medians_ps.items()},
    )


def test_a_replication_must_agree() -> None:
    assert reason(point(fast=900_000, replication=False)) == "not replicated"
    assert reason(replicated(w4=1000_000)) == "not replicated"
    assert reason(replicated(w4=1000_000, fast=1000_000)) == "replication disagrees"
    assert reason(replicated(w4=1000_000, fast=985_000)) == "replication disagrees"
    assert isinstance(decide_point(replicated(w4=1000_000, fast=970_000), QUALIFIED), Selected)


def test_samples_without_a_baseline_or_with_times_of_zero_are_refused() -> None:
    with pytest.raises(JournalError, match="16 tokens: no times of the baseline w4"):
        replicated(fast=1000_000)
    with pytest.raises(JournalError, match=r"width=4096 16 tokens: a time is not positive"):
        point(fast=2000)


def test_gain_and_not_slower_compare_medians() -> None:
    samples = point(same=1002_000, slow=1003_000, control_ps=(1000_500, *BASE_PS[1:]))

    assert noise_band_ppm(samples) == 500
    assert gain_ppm(samples, "slow") == -999
    assert is_not_slower(samples, "same", QUALIFIED)
    assert not is_not_slower(samples, "slow", QUALIFIED)
    assert not is_not_slower(samples, "same", frozenset())
    assert not is_not_slower(samples, "fast", QUALIFIED)


FAST, FASTER, EQUAL, SLOW = 900_000, 800_000, 1002_000, 1100_000


def ranges(*points: PointSamples) -> list[tuple[int, int, str]]:
    return [
        (item.tokens.first, item.tokens.last, item.candidate_id)
        for item in decide_ranges(points, QUALIFIED)
    ]


def test_one_confirmed_point_serves_its_own_count_only() -> None:
    assert ranges(point(8, fast=FAST)) == [(8, 8, "fast")]
    assert ranges(point(8, fast=SLOW)) == []
    assert ranges() == []


def test_neighbours_with_the_same_winner_join() -> None:
    assert ranges(point(1, fast=FAST), point(2, fast=FAST), point(8, fast=FAST)) == [(1, 8, "fast")]


def test_a_winner_bridges_points_where_it_is_not_slower() -> None:
    ends = (point(1, fast=FAST), point(16, fast=FAST))

    assert ranges(*ends, point(4, fast=EQUAL)) == [(1, 16, "fast")]
    assert ranges(*ends, point(4, fast=SLOW)) == [(1, 1, "fast"), (16, 16, "fast")]
    # not measured in between: nothing is known
    assert ranges(*ends, point(4)) == [(1, 1, "fast"), (16, 16, "fast")]
    # one slow point in between ends the run, its neighbour still follows the end beside it
    assert ranges(*ends, point(4, fast=EQUAL), point(8, fast=SLOW)) == [
        (1, 3, "fast"),
        (16, 16, "fast"),
    ]


def test_a_point_keeps_its_own_winner_between_others() -> None:
    assert ranges(
        point(1, fast=FAST, faster=EQUAL),
        point(4, fast=FAST, faster=FASTER),
        point(8, fast=FAST, faster=SLOW),
    ) == [(1, 3, "fast"), (4, 4, "faster"), (5, 8, "fast")]


def test_the_gap_goes_to_the_winner_that_is_not_slower_at_both_ends() -> None:
    assert ranges(point(4, fast=FAST, slow=SLOW), point(8, fast=SLOW, slow=FAST)) == [
        (4, 4, "fast"),
        (8, 8, "slow"),
    ]
    assert ranges(point(4, fast=FAST, faster=SLOW), point(8, fast=EQUAL, faster=FASTER)) == [
        (4, 7, "fast"),
        (8, 8, "faster"),
    ]
    # both fit: the one that saves more at its worse end
    assert ranges(point(4, fast=FAST, faster=950_000), point(8, fast=EQUAL, faster=FASTER)) == [
        (4, 4, "fast"),
        (5, 8, "faster"),
    ]


def test_the_gap_beside_a_baseline_point_follows_the_same_rule() -> None:
    assert ranges(point(4, fast=FAST), point(8, fast=EQUAL)) == [(4, 7, "fast")]
    assert ranges(point(4, fast=FAST), point(8, fast=SLOW)) == [(4, 4, "fast")]
    assert ranges(point(4, fast=FAST), point(5, fast=EQUAL)) == [(4, 4, "fast")]


def test_ranges_refuse_points_that_do_not_belong_together() -> None:
    other = PointSamples(
        kernel="rms_norm/dx",
        key=KEY,
        tokens=32,
        baseline_id=BASE,
        samples_ps={},
        control_ps=(),
        replication_ps={},
    )
    with pytest.raises(JournalError, match="several kernels"):
        decide_ranges([point(16), other], QUALIFIED)
    with pytest.raises(JournalError, match="16 tokens were confirmed twice"):
        decide_ranges([point(16), point(16)], QUALIFIED)


def served(*spans: tuple[int, int]) -> list[RangeDecision]:
    return [RangeDecision(tokens=TokenRange(*span), candidate_id="fast") for span in spans]


def test_share_served_weighs_counts_by_their_logarithm() -> None:
    assert share_served([], 1, 1023) == 0
    assert share_served(served((1, 1023)), 1, 1023) == 1_000_000
    assert share_served(served((32, 1023)), 1, 1023) == 500_000
    assert share_served(served((1, 1), (512, 5000)), 1, 1023) == 200_000
    assert share_served(served((2000, 3000)), 1, 1023) == 0
