"""Churn takes a control plane down in an order, which is evidence by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.findings import Evidence
from app.core.ranking.candidates import Candidate
from app.core.ranking.case import Case, Facts
from app.core.ranking.chains import chain
from app.core.ranking.explain import Match
from app.core.signals.signal import Signal, SignalKind
from tests.core.factories import after

SCHEDULER = ("system:kube-scheduler",)
LINKS: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
    ("kube-scheduler went from 1 to 90 CREATE pods/binding/s", {}, SCHEDULER),
    ("watches ended rose", {"family": "Watches ended"}, ()),
    ("relist storm of 60 kubelet clients: from 0 to 12", {"relist": "pods"}, ("system:node:a",)),
    ("memory rose", {"family": "Memory"}, ()),
    ("an API server was restarted", {"family": "Restarts"}, ()),
]
WHOLE = {stage: after(20 * stage) for stage in range(5)}


def a_signal(at: datetime, sentence: str, facts: dict[str, str], users: tuple[str, ...]) -> Signal:
    kind = SignalKind.LOAD if users else SignalKind.METRIC
    return Signal(
        kind, at, at + timedelta(seconds=5), strength=1.0, about={}, sentence=sentence, facts=facts, users=users
    )


def told(
    at: dict[int, datetime], *more: Signal, score: float = 0.8, via: str = "churn", churn: int = 0
) -> Evidence | None:
    """What is made of signals, of which a change explains one, by default the churn."""
    links = {stage: a_signal(began, *LINKS[stage]) for stage, began in at.items()}
    matches = (Match(links[churn], score, (via, "web"), timedelta()),) if churn in links else ()
    case = cast("Case", SimpleNamespace(signals=(*links.values(), *more)))
    return chain(case, Facts(cast("Candidate", None), matches, 0))


@given(st.sets(st.integers(0, 4)))
def test_churn_what_followed_of_watches_and_what_that_led_to_make_a_chain(stages: set[int]) -> None:
    is_chain = 0 in stages and bool(stages & {1, 2}) and bool(stages & {3, 4})
    found = told({stage: WHOLE[stage] for stage in stages})
    assert (found is not None) is is_chain
    if found is not None:
        places = [found.sentence.index(LINKS[stage][0].split(":")[0]) for stage in sorted(stages)]
        assert places == sorted(places)
        assert found.weight == 0.8


@pytest.mark.parametrize(("stage", "moved"), [(0, 60), (2, -60), (3, -60)])
def test_what_began_before_its_cause_is_no_link(stage: int, moved: float) -> None:
    times = {0: after(0), 2: after(20), 3: after(40)}
    assert told(times)
    assert told(times | {stage: after(moved)}) is None


def test_it_is_put_down_to_who_moved_most_of_the_pods() -> None:
    assert told(WHOLE, score=0.45)
    assert told(WHOLE, score=0.44) is None
    assert told(WHOLE, via="cluster") is None
    assert told(WHOLE, churn=3) is None


@pytest.mark.parametrize("facts", [{"family": "CPU"}, {"family": "Queue adds"}, {"family": "etcd latency"}])
def test_what_any_work_makes_rise_is_no_churn(facts: dict[str, str]) -> None:
    busy = a_signal(after(0), "it rose", facts, ())
    case = cast("Case", SimpleNamespace(signals=(busy, *(a_signal(WHOLE[n], *LINKS[n]) for n in (2, 3)))))
    assert chain(case, Facts(cast("Candidate", None), (Match(busy, 0.9, ("churn", "web"), timedelta()),), 0)) is None


def test_of_what_rose_memory_is_told() -> None:
    slow = a_signal(after(50), "latency (LIST) rose", {"family": "Latency"}, ())
    found = told(WHOLE, slow)
    assert found is not None
    assert "memory rose" in found.sentence
    assert "latency" not in found.sentence
    found = told({stage: WHOLE[stage] for stage in (0, 2, 4)}, slow)
    assert found is not None
    assert "then latency (LIST) rose between" in found.sentence
