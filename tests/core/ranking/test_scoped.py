"""How much it is worth that a change touches what alerts name."""

from __future__ import annotations

import pytest

from app.core.findings import Ranking
from app.core.model import Change, Json
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_workload, after, an_alert, an_incident

RATINGS, LIBRARY, STORE = (a_resource("Deployment", name, "media") for name in ("ratings", "library", "titles-store"))


def named(change: Change, *services: str) -> Ranking:
    calls: Json = [{"name": "app", "env": [{"name": "STORE", "value": "http://titles-store.media:80"}]}]
    alerts = [an_alert(after(30), name="HighErrorRate", namespace="media", service=one) for one in services]
    return ranked(
        change,
        incident=an_incident(*alerts),
        states=[*(a_workload(one, containers=calls) for one in (RATINGS, LIBRARY)), a_workload(STORE)],
    )


def scope(ranking: Ranking, change: Change) -> float:
    return next(e.weight for s in ranking.suspects if s.change == change for e in s.evidence if e.rule == "scope")


def test_one_of_two_that_are_named_together_says_less_than_one_alone() -> None:
    release = a_change(RATINGS, at=after(-8))
    alone, both = scope(named(release, "ratings"), release), scope(named(release, "ratings", "library"), release)
    assert both == pytest.approx(alone * 0.5**0.5, abs=0.01)


def test_whom_both_call_says_as_much() -> None:
    release = a_change(STORE, at=after(-8))
    alone, both = scope(named(release, "ratings"), release), scope(named(release, "ratings", "library"), release)
    assert 0 < both == alone


def test_the_same_edit_in_several_namespaces_is_not_said_to_be_where_it_only_reaches() -> None:
    """It stands at the first of them: here at one that the alert does not name."""
    edits = [
        a_change(
            a_resource("ConfigMap", "ca-bundle", home), at=after(-8 + second), path=("data", "ca"), old="a", new="b"
        )
        for second, home in enumerate(("search", "media"))
    ]
    ranking = ranked(*edits, incident=an_incident(an_alert(after(30), name="HighErrorRate", namespace="media")))
    (said,) = (e.sentence for s in ranking.suspects if s.change == edits[0] for e in s.evidence if e.rule == "scope")
    assert said == "It reaches namespace media, which the alert names."
