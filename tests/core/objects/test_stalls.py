"""A rollout hangs when nothing of it moves for half its deadline, however long it takes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.model import Object, Outcome, Progress, Rollout
from app.core.objects.stalls import DEADLINE, lacks, patience, rests
from app.core.signals.complaints import rollout_signals
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, after, an_alert, an_incident

HOME = a_resource("Deployment", "web", "shop")
STEPS = tuple(Progress(after(second), 8, 2 + n, 6) for n, second in enumerate(range(0, 600, 60)))


def running(*progress: Progress) -> Rollout:
    return Rollout(HOME, "u", 2, after(-5), Outcome.RUNNING, change_id="c", progress=progress)


def test_a_rollout_rests_since_the_last_pod_moved() -> None:
    assert rests(running(), after(55)) == timedelta(seconds=60)
    moved = Progress(after(20), 8, 3, 6)
    assert rests(running(Progress(after(0), 8, 2, 6), moved), after(55)) == timedelta(seconds=35)
    again = Progress(after(40), 8, 3, 6)  # told once more
    assert rests(running(Progress(after(0), 8, 2, 6), moved, again), after(55)) == timedelta(seconds=35)
    ended = Rollout(HOME, "u", 2, after(-5), Outcome.COMPLETE, after(1))
    assert rests(ended, after(55)) == timedelta()


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [({}, 300), ({"progressDeadlineSeconds": 40}, 20), ({"progressDeadlineSeconds": 2**31 - 1}, 300)],
)
def test_patience_is_half_the_deadline(spec: Object, seconds: int) -> None:
    assert patience({"spec": spec}) == timedelta(seconds=seconds)
    assert patience(None) == DEADLINE / 2


def test_a_rollout_that_takes_its_time_does_not_hang() -> None:
    states = [a_state(HOME, {"spec": {}})]
    assert lacks(running(*STEPS))
    assert rollout_signals([running(*STEPS)], (), states=states, now=after(600)) == []
    [signal] = rollout_signals([running(*STEPS)], (), states=states, now=after(900))
    assert signal.sentence == "the rollout of web hangs: 6 of 8 pods are available"
    whole = Progress(after(540), 8, 8, 8)
    assert rollout_signals([running(*STEPS, whole)], (), states=states, now=after(900)) == []


def test_an_ordinary_rollout_under_way_is_nobodys_cause() -> None:
    change = a_change(HOME, at=after(-5))
    rollout = Rollout(HOME, "u", 2, after(-5), Outcome.RUNNING, change_id=change.id, progress=STEPS[:1])
    ranking = ranked(
        change,
        incident=an_incident(an_alert(after(40), name="CertificateExpires", namespace="billing", service="invoices")),
        states=[a_state(HOME, {"spec": {}})],
        rollouts=[rollout],
    )
    assert ranking.none_of_these > ranking.suspects[0].probability
    assert first(ranking) != ("Deployment", "web")
