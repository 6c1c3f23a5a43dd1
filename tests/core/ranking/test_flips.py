"""Of each suspect shown, the weakest evidence without which it would be behind what stands after it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from app.core.findings import NONE, Evidence, Onset, Ranking, Suspect
from app.core.ranking.flips import passed_by, with_flips
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, after, an_incident

NAMES = ("leader", "second", "third")


def a_ranking(*found: dict[str, float], none: float) -> Ranking:
    """Suspects with these weights by rule, whose odds are their scores beside "none of these" at ``none``."""
    scores = [sum(one.values()) for one in found]
    total = math.exp(none) + sum(map(math.exp, scores))
    suspects = tuple(
        Suspect(
            rank,
            math.exp(score) / total,
            score,
            a_change(a_resource("Deployment", name)),
            tuple(Evidence(rule, weight, f"{rule}.") for rule, weight in weights.items()),
        )
        for rank, (name, score, weights) in enumerate(zip(NAMES, scores, found, strict=False), start=1)
    )
    onset = Onset(after(5), after(4), after(6), "errors")
    return with_flips(Ranking("i", after(60), onset, suspects, math.exp(none) / total, 3, (after(-60), after(60))))


def flips(ranking: Ranking) -> list[str]:
    return [one.would_flip for one in ranking.suspects]


def passing(ranking: Ranking, place: int) -> str:
    """What would come before the suspect there, by its name."""
    suspect = ranking.suspects[place - 1]
    reason = next(e for e in suspect.evidence if e.rule == suspect.would_flip)
    found = passed_by(suspect, ranking, without=reason)
    return {one.change.id: one.change.resource.name for one in ranking.suspects}.get(found, found)


def test_every_suspect_says_what_its_place_hangs_on() -> None:
    ranking = a_ranking({"load": 4, "time": 1.5, "scope": 0.5}, {"load": 3, "time": 2}, {"load": 3}, none=-9)
    assert flips(ranking) == ["time", "load", ""], "below the last one stands nothing"
    assert [passing(ranking, place) for place in (1, 2)] == ["second", "third"]


def test_where_no_single_piece_decides_none_is_named() -> None:
    assert flips(a_ranking({"load": 2, "time": 2, "scope": 2}, {"time": 3, "risk": -1}, {}, none=-9)) == [
        "",
        "time",
        "",
    ]


@pytest.mark.parametrize(
    ("none", "rule", "behind"),
    [(4.5, "time", NONE), (3.2, "load", NONE), (2.9, "load", "second"), (7.0, "load", "second")],
    ids=["before the next one", "both, it is likelier", "both, the next one is likelier", "it leads already"],
)
def test_the_first_may_be_behind_none_of_these(none: float, rule: str, behind: str) -> None:
    ranking = a_ranking({"load": 4, "time": 2.5}, {"load": 3}, none=none)
    assert flips(ranking) == [rule, ""]
    assert passing(ranking, 1) == behind


def test_the_only_one_is_held_against_none_of_these() -> None:
    assert flips(a_ranking({"load": 2, "time": 1}, none=2.5)) == ["time"]
    assert flips(a_ranking({"load": 2, "time": 1}, none=0)) == [""]


def test_a_ranking_names_for_each_what_would_put_it_behind_the_next() -> None:
    ranking = ranked(incident=an_incident())
    assert len(ranking.suspects) > 3
    for one, behind in pairwise(ranking.suspects):
        enough = {e.rule: e.weight for e in one.evidence if one.score - e.weight < behind.score}
        assert one.would_flip == min(enough, key=enough.__getitem__, default="") or one.rank == 1
    assert any(one.would_flip for one in ranking.suspects[1:])
