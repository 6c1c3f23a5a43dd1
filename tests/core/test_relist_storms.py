"""Clients that lost their watches list anew at once: a burst that may be over before the alert, and what set it off."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from app.core.calls import axis
from app.core.counted import Calls
from app.core.model import CallCount, ListClass
from app.core.onset import count_burst
from app.core.relists import relist_signals
from app.core.signals import Signal
from tests.core.factories import after, calls

AGENT = "system:serviceaccount:monitoring:agent"
STEADY = calls("steady", "get", "pods", rate=4)


def relists(counts: list[CallCount]) -> list[Signal]:
    together = Calls.of(counts)
    slots = axis(together, until=after(60).timestamp())
    assert slots is not None
    return relist_signals(together, slots)


def fleet(verb: str, *, size: int = 60, kind: ListClass = ListClass.NOT_A_LIST, **more: float) -> list[CallCount]:
    """Each of so many kubelets makes the calls."""
    made = [c for node in range(size) for c in calls(f"system:node:n{node}", verb, "pods", **more)]  # type: ignore[arg-type]
    return [structs.replace(c, key=structs.replace(c.key, user_agent="kubelet", list_class=kind)) for c in made]


def storm() -> list[CallCount]:
    """Ten seconds of LISTs by a fleet, in the middle of the window, each with a new watch."""
    at_work = STEADY + fleet("get", rate=0.2)
    return at_work + fleet("list", rate=0.6, start=-10, end=0) + fleet("watch", rate=0.2, start=-5, end=0)


def agents(*verbs: str, start: float) -> list[CallCount]:
    """Six pods make the calls, as one user."""
    made = [
        c
        for pod in range(6)
        for verb in verbs
        for c in calls(AGENT, verb, "pods", rate=1, start=start, pod=f"agent-{pod}")
    ]
    return [structs.replace(c, key=structs.replace(c.key, user_agent="agent")) for c in made]


def test_a_fleet_that_lists_and_watches_anew_lost_its_watches() -> None:
    counts = STEADY + [c for verb in ("list", "watch") for c in fleet(verb, size=6, rate=1, start=-30)]
    (signal,) = relists(counts + fleet("get", size=6, rate=0.2))
    assert signal.sentence == (
        "relist storm: 6 kubelet clients went from 0 to 6 LIST pods/s, each with a new watch: they had lost theirs"
    )


def test_the_pods_of_an_agent_are_a_fleet_though_they_are_one_user() -> None:
    (signal,) = relists(STEADY + agents("get", start=-120) + agents("list", "watch", start=-30))
    assert signal.sentence.startswith("relist storm: 6 agent clients went from 0 to 6 LIST pods/s, each with a new")
    assert signal.users == (AGENT,)


def test_pods_that_a_rollout_made_lost_no_watch() -> None:
    assert relists(STEADY + agents("get", "list", "watch", start=-30)) == []


def test_a_burst_that_is_over_is_told_with_its_length() -> None:
    (signal,) = relists(storm())
    assert signal.sentence.startswith("relist storm: 60 kubelet clients went from 0 to 36 LIST pods/s for 10 s, each")
    assert signal.low == after(-10)
    assert signal.strength > 0.5


def test_tokens_watches_and_timeouts_are_told_apart() -> None:
    tokens = fleet("list", kind=ListClass.CONTINUE, rate=0.2, start=-15, end=-10, code=410)
    (signal,) = relists(storm() + tokens)
    assert signal.sentence.endswith("for 10 s, 60 LIST tokens expired (410 Gone)")
    gone = fleet("watch", rate=0.2, start=-15, end=-10, code=410)
    (signal,) = relists(storm() + gone)
    assert signal.sentence.endswith("for 10 s, 60 watches expired (410 Gone)")
    late = fleet("list", size=1, kind=ListClass.QUORUM, rate=0.2, start=-10, end=-5, code=504)
    (signal,) = relists(storm() + late)
    assert signal.sentence.endswith("they had lost theirs, one LIST timed out (504)")


def test_what_timed_out_lost_no_watch() -> None:
    assert relists(STEADY + fleet("list", rate=0.6, start=-10) + fleet("list", rate=0.2, start=-10, code=504)) == []


def test_one_clients_expired_token_is_its_own() -> None:
    token = calls(AGENT, "list", "pods", rate=0.2, start=-30, end=-25, code=410)
    token = [structs.replace(c, key=structs.replace(c.key, list_class=ListClass.CONTINUE)) for c in token]
    (signal,) = relists(STEADY + calls(AGENT, "list", "pods", rate=5, start=-30) + token)
    assert signal.sentence == (
        "lists anew: one agent client went from 0 to 5 LIST pods/s, one LIST token expired (410 Gone)"
    )
    assert signal.strength < 0.5


def test_another_groups_expired_watch_is_not_theirs() -> None:
    gone = calls("other", "watch", "pods", group="metrics.k8s.io", rate=1, start=-30, code=410)
    assert relists(STEADY + calls(AGENT, "list", "pods", rate=5, start=-30) + gone) == []


def test_one_client_that_lists_more_is_no_relist_storm() -> None:
    assert relists(STEADY + calls(AGENT, "list", "pods", rate=30, start=-30)) == []


def test_a_fleet_that_polls_and_watches_as_ever_lost_nothing() -> None:
    polls = fleet("list", size=6, rate=1, start=-30) + fleet("watch", size=6, rate=0.2)
    assert relists(STEADY + polls) == []


@pytest.mark.parametrize(("start", "end"), [(30, 31), (30, 33), (0, 4), (57, 60), (20, 60)])
def test_a_burst_has_a_start_and_an_end(start: int, end: int) -> None:
    counts = np.random.default_rng(5).poisson(2, 60).astype(float)
    counts[start:end] += 60
    burst = count_burst(counts)
    assert burst is not None
    assert (burst.start, burst.end) == (start, end)
    assert burst.during > 40


def test_steady_counts_have_no_burst() -> None:
    found = [count_burst(np.random.default_rng(seed).poisson(5, 60).astype(float)) for seed in range(50)]
    assert sum(burst is not None for burst in found) <= 1
