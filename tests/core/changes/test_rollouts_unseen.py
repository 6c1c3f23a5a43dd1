"""Rollouts that begin, go on or end while nobody looks, and workloads that go meanwhile."""

from __future__ import annotations

from datetime import datetime

import orjson
import pytest

from app.core.changes.rollouts import Rollouts
from app.core.model import Object, Outcome, Rollout
from app.core.objects.body import Body, read_body
from tests.core.changes.test_rollbacks import CHANGED, WEB, counts
from tests.core.factories import FINGERPRINT, after


def of(uid: str, image: str, generation: int, status: Object, created: float | None = None) -> Body:
    """A Deployment of that uid."""
    template: Object = {"spec": {"containers": [{"name": "app", "image": image}]}}
    meta: Object = {"name": "web", "namespace": "shop", "uid": uid, "generation": generation}
    if created is not None:
        meta["creationTimestamp"] = after(created).isoformat()
    body = read_body(orjson.dumps({"metadata": meta, "spec": {"replicas": 3, "template": template}, "status": status}))
    assert body is not None
    return body


def under_way() -> tuple[Rollouts, Rollout]:
    """The rollout of a workload of uid u, which began at 0."""
    seen = Rollouts(FINGERPRINT)
    seen.observe(WEB, of("u", "web:1", 1, counts(1)), at=after(-9), created=False, begun_by=lambda: None)
    (last,) = seen.observe(WEB, of("u", "web:2", 2, counts(1)), at=after(0), created=False, begun_by=lambda: CHANGED)
    return seen, last


def recalled(last: Rollout) -> Rollouts:
    again = Rollouts(FINGERPRINT)
    again.recall([last])
    return again


def ends(told: tuple[Rollout, ...]) -> list[tuple[str, Outcome, datetime | None, str]]:
    return [(one.uid, one.outcome, one.ended_at, one.reason) for one in told]


# -- workloads that go


def test_what_was_under_way_ends_with_its_workload_though_an_earlier_run_saw_it_begin() -> None:
    _, last = under_way()
    again = recalled(last)
    assert ends(again.forget(WEB, after(60))) == [("u", Outcome.SUPERSEDED, after(60), "Deployment deleted")]
    assert again.forget(WEB, after(61)) == ()


def test_the_end_of_one_that_had_the_name_before_ends_nothing_of_the_next() -> None:
    """An older log is read after a newer one."""
    _, last = under_way()
    again = recalled(last)
    assert again.forget(WEB, after(-60)) == ()
    assert ends(again.forget(WEB, after(60))) == [("u", Outcome.SUPERSEDED, after(60), "Deployment deleted")]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("image", ["web:2", "web:3"])
def test_another_of_its_name_has_rollouts_of_its_own(image: str, restarted: bool) -> None:
    seen, last = under_way()
    if restarted:
        seen = recalled(last)
    another = of("v", image, 1, counts(1, 1, 0, replicas=1), created=30)
    ended, begun = seen.observe(WEB, another, at=after(40), created=True, begun_by=lambda: "d" * 28)
    assert ends((ended,)) == [("u", Outcome.SUPERSEDED, after(30), "Deployment deleted")]
    assert (ended.started_at, ended.images) == (last.started_at, ("web:2",))
    assert (begun.uid, begun.outcome, begun.generation, begun.change_id) == ("v", Outcome.RUNNING, 1, "d" * 28)
    assert (begun.images, begun.images_before) == ((image,), ())
    (done,) = seen.observe(WEB, of("v", image, 1, counts(1)), at=after(50), created=False, begun_by=lambda: None)
    assert (done.uid, done.outcome) == ("v", Outcome.COMPLETE)


def test_one_that_had_the_name_long_before_ends_nothing() -> None:
    """An older log is read after a newer one."""
    _, last = under_way()
    again = recalled(last)
    older = of("t", "web:0", 4, counts(4), created=-900)
    assert again.observe(WEB, older, at=after(-600), created=False, begun_by=lambda: None) == ()


# -- what began or ended in a gap

LATE = 5000.0


def condition(reason: str, at: float, status: str = "True") -> Object:
    when = after(at).isoformat()
    found: Object = {"type": "Progressing", "status": status, "reason": reason}
    return {"conditions": [{**found, "lastUpdateTime": when, "lastTransitionTime": when}]}


def seen_late(status: Object, *, since: float | None = 0) -> Rollout:
    """The rollout of a template that a LIST shows, made by who knows whom ``since`` then."""
    seen = Rollouts(FINGERPRINT)
    seen.observe(WEB, of("u", "web:1", 1, counts(1)), at=after(-9), created=False, begun_by=lambda: None)
    (found,) = seen.observe(
        WEB, of("u", "web:2", 2, status), at=after(LATE), created=False, begun_by=lambda: CHANGED,
        since=None if since is None else after(since),
    )  # fmt: skip
    return found


def test_a_rollout_that_began_and_failed_unseen_failed() -> None:
    stuck = {**counts(2, 1, replicas=4), **condition("ProgressDeadlineExceeded", 700, "False")}
    found = seen_late(stuck)
    assert (found.outcome, found.reason) == (Outcome.FAILED, "ProgressDeadlineExceeded")
    assert (found.started_at, found.ended_at) == (after(LATE), after(LATE)), "it did not end before it was seen"
    assert seen_late(stuck, since=800).outcome is Outcome.RUNNING, "the one before it failed"
    assert seen_late(stuck, since=None).outcome is Outcome.RUNNING, "it was seen to begin"


def test_a_rollout_that_ended_unseen_ended_when_its_controller_says_so() -> None:
    _, last = under_way()
    status = {**counts(2), **condition("NewReplicaSetAvailable", 41)}
    (found,) = recalled(last).observe(
        WEB, of("u", "web:2", 2, status), at=after(LATE), created=False, begun_by=lambda: None
    )
    assert (found.outcome, found.ended_at) == (Outcome.COMPLETE, after(41))
    assert seen_late(status).ended_at == after(LATE), "that is before it was seen to begin"


@pytest.mark.parametrize("said", [-30, 36])
def test_one_that_is_seen_to_end_ends_then(said: float) -> None:
    """Conditions hold whole seconds, of another clock; and one is of the rollout before."""
    seen, _ = under_way()
    status = {**counts(2), **condition("NewReplicaSetAvailable", said)}
    (found,) = seen.observe(WEB, of("u", "web:2", 2, status), at=after(41.5), created=False, begun_by=lambda: None)
    assert (found.outcome, found.ended_at) == (Outcome.COMPLETE, after(41.5))


def test_one_that_ended_unseen_is_complete_whatever_became_of_its_pods_since() -> None:
    _, last = under_way()
    status = {**counts(2, available=1), **condition("NewReplicaSetAvailable", 41)}
    (found,) = recalled(last).observe(
        WEB, of("u", "web:2", 2, status), at=after(LATE), created=False, begun_by=lambda: None
    )
    assert (found.outcome, found.ended_at) == (Outcome.COMPLETE, after(41))


def test_no_rollout_ends_before_it_began() -> None:
    """An audit log tells of the start by the clock of an API server, a watch of the end by one's own."""
    seen, last = under_way()
    (found,) = seen.observe(WEB, of("u", "web:2", 2, counts(2)), at=after(-3), created=False, begun_by=lambda: None)
    assert (found.outcome, found.ended_at) == (Outcome.COMPLETE, last.started_at)
