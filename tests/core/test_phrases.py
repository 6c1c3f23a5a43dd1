from __future__ import annotations

import pytest

from app.core.phrases import first_of, many, names, rate, refusal, rise, times


@pytest.mark.parametrize(
    ("per_second", "said"), [(0, "0 writes/s"), (0.4, "24 writes/min"), (1, "1 writes/s"), (41.26, "41.3 writes/s")]
)
def test_rates_are_told_by_the_second_or_the_minute(per_second: float, said: str) -> None:
    assert rate(per_second, "writes") == said


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(0, 40, "from 0 to 40/s"), (0.1, 2.7, "from 0.1 to 2.7/s"), (0.05, 0.5, "from 3 to 30/min")],
)
def test_a_rise_is_told_in_one_unit(before: float, after: float, said: str) -> None:
    assert rise(before, after) == said


def test_a_short_name_is_said_where_it_stands_in_quotes_behind_a_kind() -> None:
    assert names('failed to provision volume with StorageClass "fast": too high', "fast")
    assert not names('the volume is "fast"', "fast")
    assert not names('StorageClass "faster"', "fast")
    assert names("orders is late", "orders")


def test_one_is_said_in_words() -> None:
    assert [times(1), times(2), times(1200)] == ["once", "twice", "1,200 times"]
    assert [many(1, "watch"), many(2, "client"), many(2, "watch", "watches")] == ["one watch", "2 clients", "2 watches"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Input should be less than 1", "must be less than 1"),
        ("String should have at most 64 characters", "must have at most 64 characters"),
        ("Value error, names no cluster", "names no cluster"),
        ("Extra inputs are not permitted", "there is no such field"),
    ],
)
def test_a_refusal_is_told_of_its_field(said: str, told: str) -> None:
    assert refusal(said) == told


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], ""),
        (["a", "b", "c"], "a, b, c"),
        (["a", "b", "c", "d"], "a, b and 2 more"),
        ([f"ns{number}" for number in range(1300)], "ns0, ns1 and 1,298 more"),
    ],
)
def test_of_many_names_the_first_stand_on_a_line(names: list[str], said: str) -> None:
    assert first_of(names) == said
