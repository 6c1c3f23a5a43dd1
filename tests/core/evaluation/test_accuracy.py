import math

import pytest

from app.core.evaluation.accuracy import LEAST, Rank, accuracy, auroc, compare, reliability, surprise, wilson
from app.core.evaluation.baselines import rank_among


def test_a_clear_rank_is_in_or_out() -> None:
    assert [Rank(2).within(k) for k in (1, 2, 3)] == [0.0, 0.0, 1.0]
    assert Rank(2).mean == 3


def test_a_tie_is_broken_by_chance() -> None:
    tied = Rank(0, 5)
    assert (tied.within(1), tied.within(3), tied.mean) == (0.2, 0.6, 3)
    assert tied.reciprocal == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 5)


def test_figures_over_incidents() -> None:
    figures = accuracy([Rank(0), Rank(2), None, Rank(0)])
    assert (figures.ac1, figures.ac3, figures.cases) == (0.5, 0.75, 4)
    assert figures.mrr == pytest.approx((1 + 1 / 3 + 0 + 1) / 4)
    assert figures.mrr_interval[0] <= figures.mrr <= figures.mrr_interval[1]


def test_few_cases_are_said_to_be_few() -> None:
    low, high = wilson(6, 6)
    assert high == 1.0
    assert low == pytest.approx(0.61, abs=0.01)
    assert wilson(44, 51) == pytest.approx((0.74, 0.93), abs=0.01)


def test_what_a_baseline_rules_out_has_no_rank() -> None:
    scores = {"a": 1.0, "b": 1.0, "c": float("-inf")}
    assert rank_among(scores, "a") == Rank(0, 2)
    assert rank_among(scores, "c") is None
    assert rank_among(scores, "missing") is None


def test_odds_hold_where_what_was_said_is_as_often_right() -> None:
    leaders = [(0.9, True)] * 9 + [(0.9, False), (1.0, True)] + [(0.3, False)] * 2
    low, high = reliability(leaders)
    assert (low.low, low.cases, low.right) == (0.2, 2, 0.0)
    assert low.said == pytest.approx(0.3)
    assert (high.high, high.cases) == (1.0, 11)
    assert high.right == pytest.approx(10 / 11)
    assert high.right_interval[0] < high.said < high.right_interval[1]
    assert low.right_interval[1] > 0.5  # two cases prove little


def test_none_of_these_is_told_apart_as_often_as_it_is_higher_where_there_is_no_culprit() -> None:
    assert auroc([0.1, 0.2], [0.3, 0.4]) == 1.0
    assert auroc([0.1, 0.4], [0.1, 0.3]) == pytest.approx((0.5 + 0 + 1 + 0) / 4)
    assert auroc([], [0.3]) is None
    assert auroc([0.3], []) is None


def test_two_methods_differ_by_who_is_first_where_the_other_is_not() -> None:
    first, second, tied = Rank(0), Rank(1), Rank(0, 2)
    told = compare([first] * 10 + [second, None], [second] * 9 + [tied, first, first])
    assert (told.won, told.lost) == (10, 2)
    assert told.p == pytest.approx(2 * (1 + 12 + 66) / 2**12)  # 0.039, by the binomial
    assert compare([first], [first]).p == 1.0


def test_the_surer_of_what_is_right_the_less_it_surprises() -> None:
    assert surprise([1.0, 1.0]) == 0.0
    assert surprise([0.5, 0.5]) == pytest.approx(math.log(2))
    assert surprise([0.9, 0.2]) == pytest.approx(-(math.log(0.9) + math.log(0.2)) / 2)
    assert surprise([0.0]) == pytest.approx(-math.log(LEAST))
