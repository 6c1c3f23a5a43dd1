"""Clients that lost their watches list anew at once: a burst that may be over before the alert, and what set it off."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from app.core.counted import Calls
from app.core.model import CallCount, ListClass
from app.core.onset import count_burst
from app.core.signals.calls import axis
from app.core.signals.relists import relist_signals
from app.core.signals.signal import Signal
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


def watching(*, size: int = 60) -> list[CallCount]:
    """A fleet that watches, as ever: each opened its watch long ago."""
    return STEADY + fleet("watch", size=size, rate=0.2, start=-100, end=-95)


def storm(kind: ListClass = ListClass.QUORUM) -> list[CallCount]:
    """Ten seconds of LISTs by a fleet, in the middle of the window, each with a new watch."""
    lists = fleet("list", kind=kind, rate=0.6, start=-10, end=0)
    return watching() + lists + fleet("watch", rate=0.6, start=-5, end=5)


def agents(*verbs: str, start: float) -> list[CallCount]:
    """Six pods make the calls, as one user."""
    made = [
        c
        for pod in range(6)
        for verb in verbs
        for c in calls(AGENT, verb, "pods", rate=1, start=start, pod=f"agent-{pod}")
    ]
    return [structs.replace(c, key=structs.replace(c.key, user_agent="agent")) for c in made]


def test_a_fleet_that_lists_what_it_had_watched_lost_its_watches() -> None:
    counts = [c for verb in ("list", "watch") for c in fleet(verb, size=6, rate=1, start=-30)]
    (signal,) = relists(watching(size=6) + counts)
    assert signal.sentence == (
        "relist storm of 6 kubelet clients: from 0 to 6 LIST pods/s, each with a new watch: they had lost theirs"
    )


def test_a_stream_of_all_there_is_stands_for_a_list() -> None:
    streams = fleet("watch", size=6, kind=ListClass.STREAM, rate=1, start=-30)
    (signal,) = relists(watching(size=6) + streams)
    assert signal.sentence.startswith("relist storm of 6 kubelet clients: from 0 to 6 WATCH of all pods/s")
    assert relists(STEADY + fleet("watch", size=6, kind=ListClass.STREAM, rate=0.2, start=-30, end=-25)) == [], (
        "a start"
    )


def test_watches_that_are_opened_again_and_again_as_ever_hide_no_storm() -> None:
    reopened = STEADY + fleet("watch", rate=0.2)
    (signal,) = relists(reopened + fleet("list", kind=ListClass.QUORUM, rate=0.2, start=-30))
    assert signal.sentence.startswith("relist storm of 60 kubelet clients: from 0 to 12 LIST pods/s, each with a new")


def test_a_fleet_that_is_cut_off_one_by_one_is_found_too() -> None:
    counts = watching()
    for node in range(60):
        began = -60 + 5 * (node % 12)
        lists = calls(f"system:node:n{node}", "list", "pods", rate=0.2, start=began, end=began + 5)
        watches = calls(f"system:node:n{node}", "watch", "pods", rate=0.2, start=began, end=began + 5)
        counts += [structs.replace(c, key=structs.replace(c.key, user_agent="kubelet")) for c in lists + watches]
    (signal,) = relists(counts)
    assert signal.sentence.startswith("relist storm of 60 kubelet clients: from 0 to 1 LIST pods/s for 1 min, each")


def test_the_pods_of_an_agent_are_a_fleet_though_they_are_one_user() -> None:
    (signal,) = relists(STEADY + agents("watch", start=-120) + agents("list", start=-30))
    assert signal.sentence.startswith("relist storm of 6 agent clients: from 0 to 6 LIST pods/s, each with a new")
    assert signal.users == (AGENT,)


@pytest.mark.parametrize("earlier", ["get", "list"])
def test_who_had_watched_nothing_lost_no_watch(earlier: str) -> None:
    assert relists(STEADY + agents(earlier, start=-120) + agents("list", "watch", start=-30)) == []


def test_pods_that_a_rollout_made_lost_no_watch() -> None:
    assert relists(watching() + agents("get", "list", "watch", start=-30)) == []


def test_another_resource_was_not_watched() -> None:
    counts = [c for verb in ("list", "watch") for c in fleet(verb, size=6, rate=1, start=-30)]
    other = [structs.replace(c, key=structs.replace(c.key, resource="nodes")) for c in watching(size=6)]
    assert relists(other + counts) == []


def test_a_program_that_starts_lists_from_the_cache() -> None:
    assert relists(storm(ListClass.CACHE)) == []
    assert relists(storm(ListClass.EXACT)) != []


def test_two_clients_are_no_fleet() -> None:
    counts = [c for verb in ("list", "watch") for c in fleet(verb, size=2, rate=5, start=-30)]
    assert relists(watching(size=2) + counts) == []


def test_a_burst_that_is_over_is_told_with_its_length() -> None:
    (signal,) = relists(storm())
    assert signal.sentence.startswith("relist storm of 60 kubelet clients: from 0 to 36 LIST pods/s for 10 s, each")
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


def test_the_pages_of_a_list_are_one_list() -> None:
    (signal,) = relists(storm() + fleet("list", kind=ListClass.CONTINUE, rate=5, start=-10, end=0))
    assert ": from 0 to 36 LIST pods/s" in signal.sentence


def test_what_timed_out_lost_no_watch() -> None:
    assert relists(watching() + fleet("list", rate=0.6, start=-10, code=504) + fleet("watch", start=-10, rate=1)) == []


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
