"""Churn takes a control plane down in an order, which is evidence by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.candidates import Candidate
from app.core.case import Case, Facts
from app.core.evidence import chain
from app.core.explain import Match
from app.core.findings import Evidence
from app.core.signals import Signal, SignalKind
from tests.core.factories import after

LINKS: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
    ("kube-scheduler went from 1 to 90 CREATE pods/binding/s", {}, ("system:kube-scheduler",)),
    ("watches ended (410) rose", {"family": "Watches ended"}, ()),
    ("relist storm: 60 kubelet clients", {"relist": "pods"}, ("system:node:a",)),
    ("memory rose", {"family": "Memory"}, ()),
    ("an API server was restarted", {"family": "Restarts"}, ()),
]
NO_CASE = cast("Case", None)


def a_match(stage: int, at: datetime, *, score: float = 0.5) -> Match:
    sentence, facts, users = LINKS[stage]
    kind = SignalKind.METRIC if "family" in facts else SignalKind.LOAD
    signal = Signal(
        kind, at, at + timedelta(seconds=5), strength=1.0, about={}, sentence=sentence, facts=facts, users=users
    )
    return Match(signal, score, ("churn", "web"), timedelta())


def told(*matches: Match) -> Evidence | None:
    return chain(NO_CASE, Facts(cast("Candidate", None), matches, 0))


@given(st.sets(st.integers(0, 4)))
def test_three_links_make_a_chain_with_the_churn_and_what_followed_of_watches(stages: set[int]) -> None:
    is_chain = len(stages) >= 3 and 0 in stages and bool(stages & {1, 2})
    found = told(*(a_match(stage, after(20 * stage)) for stage in sorted(stages)))
    assert (found is not None) is is_chain
    if found is not None:
        places = [found.sentence.index(LINKS[stage][0].split(":")[0]) for stage in sorted(stages)]
        assert places == sorted(places)
        assert found.weight == 1.0


@pytest.mark.parametrize(("stage", "moved"), [(0, 60), (2, -60), (3, -60)])
def test_what_began_before_its_cause_is_no_link(stage: int, moved: float) -> None:
    times = {0: after(0), 2: after(20), 3: after(40)}
    assert told(*(a_match(link, at) for link, at in times.items()))
    assert told(*(a_match(link, at) for link, at in (times | {stage: after(moved)}).items())) is None


def test_what_hardly_matches_is_no_link() -> None:
    assert told(a_match(0, after(0)), a_match(1, after(20)), a_match(3, after(40), score=0.1)) is None
