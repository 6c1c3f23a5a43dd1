"""Rollouts: begun by a template, done only when the controller says that it has seen it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.core.changes.rollouts import MAX_PROGRESS, Rollouts, thinned
from app.core.model import Json, Object, Outcome, Progress, Resource, Rollout
from app.core.objects.body import Body, read_body
from tests.core.factories import FINGERPRINT, a_resource, after

WEB = a_resource()


def deployment(image: str, generation: int, *, status: Object, desired: int = 3, option: int = 0) -> Body:
    obj: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": generation},
        "spec": {"replicas": desired, "template": {"spec": {"containers": [{"name": "app", "image": image}]}}},
        "status": status,
    }
    body = read_body(orjson.dumps(obj, option=option))
    assert body is not None
    return body


def done(generation: int, *, replicas: int = 3) -> Object:
    counts = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
    return {"observedGeneration": generation, **dict.fromkeys(counts, replicas)}


class Story:
    """Tells versions of one workload second by second and keeps each rollout's last upsert."""

    def __init__(self, resource: Resource = WEB) -> None:
        self.rollouts = Rollouts(FINGERPRINT)
        self.resource = resource
        self.told: dict[Any, Rollout] = {}
        self.seconds = 0

    def see(self, body: Body, *, created: bool = False, change_id: str | None = None) -> tuple[Rollout, ...]:
        self.seconds += 1
        found = self.rollouts.observe(
            self.resource, body, at=after(self.seconds), created=created, begun_by=lambda: change_id
        )
        self.told |= {rollout.started_at: rollout for rollout in found}
        return found

    @property
    def outcomes(self) -> list[Outcome]:
        return [self.told[start].outcome for start in sorted(self.told)]


def begun() -> Story:
    story = Story()
    story.see(deployment("web:1", 1, status=done(1)))
    story.see(deployment("web:2", 2, status=done(1)), change_id="c" * 28)
    return story


def test_a_workload_seen_for_the_first_time_rolls_nothing_out() -> None:
    assert Story().see(deployment("web:1", 7, status=done(7))) == ()


def test_a_new_template_begins_a_rollout() -> None:
    story = begun()
    (rollout,) = story.told.values()
    assert (rollout.outcome, rollout.generation, rollout.change_id) == (Outcome.RUNNING, 2, "c" * 28)
    assert (rollout.images_before, rollout.images) == (("web:1",), ("web:2",))
    assert rollout.started_at == after(2)


def test_an_old_status_does_not_complete_it() -> None:
    story = begun()
    story.see(deployment("web:2", 2, status=done(1)))
    assert story.outcomes == [Outcome.RUNNING]


@pytest.mark.parametrize(
    "short",
    [
        {"updatedReplicas": 2},
        {"availableReplicas": 2},
        {"replicas": 4},
        {"observedGeneration": 1},
    ],
)
def test_complete_only_when_every_count_agrees(short: Object) -> None:
    story = begun()
    story.see(deployment("web:2", 2, status={**done(2), **short}))
    assert story.outcomes == [Outcome.RUNNING]
    story.see(deployment("web:2", 2, status=done(2)))
    assert story.outcomes == [Outcome.COMPLETE]
    assert story.told[after(2)].ended_at == after(story.seconds)


def test_what_is_scaled_to_nothing_amid_a_rollout_is_complete_once_its_pods_are_gone() -> None:
    story = begun()
    pods: Object = {"replicas": 2, "updatedReplicas": 2}
    story.see(deployment("web:2", 3, status={"observedGeneration": 3, **pods}, desired=0))
    assert story.outcomes == [Outcome.RUNNING]
    story.see(deployment("web:2", 3, status=done(3, replicas=0), desired=0))
    assert story.outcomes == [Outcome.COMPLETE]


def test_what_has_no_pods_rolls_out_once_it_is_given_some() -> None:
    story = Story()
    story.see(deployment("web:1", 1, status=done(1), desired=0), created=True)
    story.see(deployment("web:1", 1, status=done(1, replicas=0), desired=0))
    progressing: Object = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetCreated"}
    assert story.see(deployment("web:2", 2, status=done(1, replicas=0), desired=0), change_id="c" * 28) == ()
    new: Object = {**done(2, replicas=0), "conditions": [progressing]}
    assert story.see(deployment("web:2", 2, status=new, desired=0)) == ()
    assert story.see(deployment("web:3", 3, status=done(2, replicas=0), desired=0)) == ()
    (rollout,) = story.see(deployment("web:3", 4, status=done(3, replicas=0)))
    assert (rollout.outcome, rollout.images_before, rollout.images) == (Outcome.RUNNING, ("web:1",), ("web:3",))
    (rollout,) = story.see(deployment("web:3", 4, status=done(4)))
    assert rollout.outcome is Outcome.COMPLETE


def test_what_is_given_another_template_and_no_pods_amid_a_rollout_ends_it() -> None:
    story = begun()
    story.see(deployment("web:3", 3, status=done(1), desired=0), change_id="d" * 28)
    assert story.outcomes == [Outcome.SUPERSEDED, Outcome.RUNNING]
    story.see(deployment("web:3", 3, status=done(3, replicas=0), desired=0))
    assert story.outcomes == [Outcome.SUPERSEDED, Outcome.COMPLETE]


def test_scaling_is_no_rollout() -> None:
    story = Story()
    story.see(deployment("web:1", 1, status=done(1)))
    assert story.see(deployment("web:1", 2, status=done(1), desired=9)) == ()


def test_a_deadline_exceeded_is_a_failure_and_a_late_success_still_counts() -> None:
    story = begun()
    condition: Object = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "lastTransitionTime": after(60).isoformat(),
    }
    short: Object = {"observedGeneration": 2, "replicas": 4, "updatedReplicas": 1, "conditions": [condition]}
    story.see(deployment("web:2", 2, status=short))
    failed = story.told[after(2)]
    assert (failed.outcome, failed.ended_at, failed.reason) == (Outcome.FAILED, after(60), "ProgressDeadlineExceeded")
    story.see(deployment("web:2", 2, status=done(2)))
    assert story.outcomes == [Outcome.COMPLETE]


def test_a_template_written_in_another_way_is_the_same_template() -> None:
    story = begun()
    story.see(deployment("web:2", 2, status=done(1), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    assert story.outcomes == [Outcome.RUNNING]
    story.see(deployment("web:2", 2, status=done(2)))
    assert story.outcomes == [Outcome.COMPLETE]


def test_a_newer_template_supersedes_and_an_older_one_rolls_back() -> None:
    story = begun()
    story.see(deployment("web:3", 3, status=done(1)))
    assert story.outcomes == [Outcome.SUPERSEDED, Outcome.RUNNING]
    story.see(deployment("web:1", 4, status=done(1)))
    assert story.outcomes == [Outcome.SUPERSEDED, Outcome.ROLLED_BACK, Outcome.RUNNING]
    story.see(deployment("web:1", 4, status=done(4)))
    assert story.outcomes[-1] is Outcome.COMPLETE


def test_progress_is_thinned_and_keeps_its_ends() -> None:
    story = begun()
    for available in range(100):
        status: Object = {"observedGeneration": 2, "updatedReplicas": 100, "availableReplicas": available}
        story.see(deployment("web:2", 2, status=status, desired=100))
    story.see(deployment("web:2", 2, status=done(2, replicas=100), desired=100))
    progress = story.told[after(2)].progress
    assert len(progress) <= MAX_PROGRESS
    assert progress[-1].available == 100
    assert progress[0].available == 0
    assert [point.at for point in progress] == sorted(point.at for point in progress)


def test_however_many_points_there_are_no_more_than_the_most_are_kept() -> None:
    many = tuple(Progress(after(n), 1000, n, n) for n in range(1000))
    kept = thinned(many, most=200)
    assert len(kept) <= 200
    assert (kept[0], kept[-1]) == (many[0], many[-1])


def test_a_status_that_says_nothing_new_is_not_told_again() -> None:
    story = begun()
    status: Object = {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1}
    assert len(story.see(deployment("web:2", 2, status=status))) == 1
    assert story.see(deployment("web:2", 2, status=status)) == ()


def test_a_deleted_workload_ends_its_rollout() -> None:
    story = begun()
    (ended,) = story.rollouts.forget(WEB, after(9))
    assert (ended.outcome, ended.ended_at) == (Outcome.SUPERSEDED, after(9))
    assert "deleted" in ended.reason
    assert story.rollouts.forget(WEB, after(10)) == ()


def test_daemon_sets_count_nodes() -> None:
    story = Story(a_resource("DaemonSet", "agent"))

    def agent(image: str, generation: int, **status: Json) -> Body:
        template: Object = {"spec": {"containers": [{"name": "a", "image": image}]}}
        meta: Object = {"name": "agent", "uid": "d", "generation": generation}
        body = read_body(orjson.dumps({"metadata": meta, "spec": {"template": template}, "status": status}))
        assert body is not None
        return body

    full: Object = {"desiredNumberScheduled": 5, "updatedNumberScheduled": 5, "numberAvailable": 5}
    story.see(agent("a:1", 1, observedGeneration=1, **full))
    story.see(agent("a:2", 2, observedGeneration=2, **{**full, "numberAvailable": 4}))
    assert story.outcomes == [Outcome.RUNNING]
    story.see(agent("a:2", 2, observedGeneration=2, **full))
    assert story.outcomes == [Outcome.COMPLETE]
    assert story.told[after(2)].progress[-1].desired == 5


@pytest.mark.parametrize(
    "raw", [b'{"metadata":{},"spec":{"replicas":"three"}}', b'{"metadata":{},"spec":{"template":5}}']
)
def test_an_odd_body_rolls_nothing_out(raw: bytes) -> None:
    body = read_body(raw)
    assert body is not None
    assert Story().see(body, created=True) == ()
