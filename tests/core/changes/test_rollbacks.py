"""Rollouts over several imports, stale conditions, partitions and updates that wait for deletions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import orjson
import pytest

from app.core.changes.rollouts import Rollouts
from app.core.changes.standing import PAUSED, WAITS
from app.core.model import Json, Object, Outcome, Resource, Rollout
from app.core.objects.body import Body, read_body
from app.store.merge import merge_rollouts
from tests.core.factories import FINGERPRINT, a_resource, after

WEB = a_resource()
DB = a_resource("StatefulSet", "db")
CHANGED = "c" * 28


def version(image: str, generation: int, *, status: Object, resource: Resource = WEB, **spec: Json) -> Body:
    template: Object = {"spec": {"containers": [{"name": "app", "image": image}]}}
    obj: Object = {
        "kind": resource.kind,
        "metadata": {"name": resource.name, "namespace": "shop", "uid": "u", "generation": generation},
        "spec": {"replicas": 3, "template": template, **spec},
        "status": status,
    }
    body = read_body(orjson.dumps(obj))
    assert body is not None
    return body


def counts(observed: int, updated: int = 3, available: int = 3, *, replicas: int = 3) -> Object:
    """Of a Deployment, and with its revisions of a StatefulSet whose other pods are of one template."""
    return {
        "currentReplicas": replicas - updated or replicas,
        "currentRevision": "2" if updated == replicas else "1",
        "updateRevision": "2",
        "observedGeneration": observed,
        "replicas": replicas,
        "updatedReplicas": updated,
        "availableReplicas": available,
    }


def progressing(reason: str, at: datetime, status: str = "True") -> Object:
    found: Object = {"type": "Progressing", "status": status, "reason": reason, "lastTransitionTime": at.isoformat()}
    return {"conditions": [found]}


class Imports:
    """Tells versions of one workload over several imports, and keeps what a store would."""

    def __init__(self, resource: Resource = WEB) -> None:
        self.resource = resource
        self.stored: dict[int, Rollout] = {}
        self.again()

    def again(self) -> None:
        """Another import begins."""
        self.rollouts = Rollouts(FINGERPRINT)
        if self.stored:
            self.rollouts.recall([self.stored[max(self.stored)]])

    def see(self, at: float, body: Body, change_id: str | None = None) -> None:
        found = self.rollouts.observe(self.resource, body, at=after(at), created=False, begun_by=lambda: change_id)
        for one in found:
            known = self.stored.get(one.generation)
            self.stored[one.generation] = merge_rollouts(known, one) if known else one

    @property
    def told(self) -> Sequence[tuple[Outcome, float | None]]:
        found = [self.stored[generation] for generation in sorted(self.stored)]
        return [(one.outcome, (one.ended_at - after(0)).total_seconds() if one.ended_at else None) for one in found]


FAILED = {**counts(2, 1, replicas=4), **progressing("ProgressDeadlineExceeded", after(601), "False")}


@pytest.mark.parametrize("imports", [1, 2])
def test_a_rollback_is_one_whatever_the_import_that_tells_it(imports: int) -> None:
    story = Imports()
    story.see(-100, version("web:1", 1, status=counts(1)))
    story.see(0, version("web:bad", 2, status=counts(1)), CHANGED)
    story.see(1, version("web:bad", 2, status=counts(2, 1, replicas=4)))
    story.see(601, version("web:bad", 2, status=FAILED))
    if imports == 2:
        story.again()
    story.see(700, version("web:1", 3, status=FAILED), CHANGED)
    story.see(701, version("web:1", 3, status=counts(3)))
    assert story.told == [(Outcome.ROLLED_BACK, 601), (Outcome.COMPLETE, 701)]
    assert story.stored[3].reason == ""
    assert story.stored[3].images_before == ("web:bad",)


def test_a_rollback_by_two_versions_is_known_in_a_later_import() -> None:
    story = Imports()
    for generation, image in enumerate(("web:1", "web:2", "web:3"), 1):
        story.see(generation, version(image, generation, status=counts(generation)))
    story.again()
    story.see(10, version("web:1", 4, status=counts(3)), CHANGED)
    assert story.told[-2:] == [(Outcome.ROLLED_BACK, 3), (Outcome.RUNNING, None)]
    assert story.stored[4].reason == "back to an earlier template"


def test_a_later_import_of_older_versions_ends_nothing() -> None:
    story = Imports()
    story.see(0, version("web:2", 2, status=counts(2)))
    story.see(10, version("web:3", 3, status=counts(2)), CHANGED)
    story.again()
    story.see(0, version("web:2", 2, status=counts(2)))
    assert story.told == [(Outcome.RUNNING, None)]


def test_a_scaling_between_imports_is_no_rollout() -> None:
    story = Imports()
    story.see(0, version("web:1", 1, status=counts(1)))
    story.see(10, version("web:2", 2, status=counts(2)), CHANGED)
    story.again()
    story.see(20, version("web:2", 3, status=counts(2), replicas=9), CHANGED)
    assert story.told == [(Outcome.COMPLETE, 10)]


def test_a_template_tells_nothing_of_what_is_in_it_and_is_the_same_in_every_run() -> None:
    story, other = Imports(), Imports()
    for one in (story, other):
        one.see(0, version("web:1", 1, status=counts(1)))
        one.see(1, version("web:2", 2, status=counts(1)), CHANGED)
    assert story.stored[2].templates == other.stored[2].templates
    assert len(set(story.stored[2].templates)) == 2
    assert "web" not in repr(story.stored[2].templates)


# -- conditions


def test_a_condition_from_before_the_rollout_does_not_fail_it() -> None:
    story = Imports()
    story.see(-100, version("web:1", 1, status=counts(1)))
    story.see(0, version("web:bad", 2, status=counts(1)), CHANGED)
    story.see(601, version("web:bad", 2, status=FAILED))
    story.see(700, version("web:3", 3, status=FAILED), CHANGED)
    story.see(701, version("web:3", 3, status={**FAILED, **counts(3, 0, replicas=4)}))
    assert story.told[-1][0] is Outcome.RUNNING
    later = progressing("ProgressDeadlineExceeded", after(1400), "False")
    story.see(1400, version("web:3", 3, status={**counts(3, 0, replicas=4), **later}))
    assert story.told[-1] == (Outcome.FAILED, 1400)


def test_a_rollout_that_goes_on_after_its_deadline_runs_again() -> None:
    story = Imports()
    story.see(-100, version("web:1", 1, status=counts(1)))
    story.see(0, version("web:2", 2, status=counts(1)), CHANGED)
    story.see(1, version("web:2", 2, status=counts(2, 1, replicas=4)))
    story.see(601, version("web:2", 2, status=FAILED))
    story.see(640, version("web:2", 2, status={**FAILED, **progressing("ReplicaSetUpdated", after(640))}))
    assert story.told == [(Outcome.RUNNING, None)]
    assert story.stored[2].reason == ""


# -- partitions


def partition(count: int) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"partition": count}}


def db(generation: int, status: Object, image: str = "db:2", strategy: Object | None = None) -> Body:
    strategy = strategy if strategy is not None else partition(0)
    return version(image, generation, status=status, resource=DB, updateStrategy=strategy)


def test_a_partition_that_lets_go_begins_another_rollout() -> None:
    story = Imports(DB)
    story.see(-100, db(1, counts(1), "db:1", partition(2)))
    story.see(0, db(2, counts(1), "db:2", partition(2)), CHANGED)
    story.see(9, db(2, counts(2, 1), "db:2", partition(2)))
    assert story.told == [(Outcome.COMPLETE, 9)]
    story.see(100, db(3, counts(2, 1)), "d" * 28)
    story.see(101, db(3, counts(3, 1, 2)))
    assert story.told[1:] == [(Outcome.RUNNING, None)]
    assert (story.stored[3].change_id, story.stored[3].started_at) == ("d" * 28, after(100))
    assert (story.stored[3].images_before, story.stored[3].images) == (("db:1",), ("db:2",))
    story.see(140, db(3, counts(3)))
    assert story.told[1:] == [(Outcome.COMPLETE, 140)]


def test_a_partition_that_lets_go_in_a_later_import_begins_another_rollout() -> None:
    story = Imports(DB)
    story.see(-100, db(1, counts(1), "db:1", partition(2)))
    story.see(0, db(2, counts(2, 1), "db:2", partition(2)), CHANGED)
    story.again()
    story.see(100, db(3, counts(2, 1)), CHANGED)
    assert story.told == [(Outcome.COMPLETE, 0), (Outcome.RUNNING, None)]


def test_a_partition_that_lets_go_of_nothing_rolls_nothing_out() -> None:
    story = Imports(DB)
    story.see(0, db(1, counts(1), strategy=partition(2)))
    story.see(1, db(2, counts(1)), CHANGED)
    story.see(2, db(2, counts(2)))
    assert story.told == []


@pytest.mark.parametrize("updated", [0, 1])
def test_a_stateful_set_first_seen_in_the_middle_is_rolling_out(updated: int) -> None:
    story = Imports(DB)
    story.see(0, db(7, counts(7, updated, 2)))
    story.see(9, db(7, counts(7, 3, 2)))
    story.see(19, db(7, counts(7)))
    assert story.told == [(Outcome.COMPLETE, 19)]
    assert [step.updated for step in story.stored[7].progress] == [updated, 3, 3]


def test_what_is_under_way_is_seen_later_too() -> None:
    """The first version seen is from before the controller looked at the template."""
    story = Imports()
    story.see(0, version("web:7", 7, status={**counts(6), **progressing("NewReplicaSetAvailable", after(-9999))}))
    story.see(2, version("web:7", 7, status={**counts(7, 1, replicas=4), **progressing("ReplicaSetUpdated", after(2))}))
    assert story.told == [(Outcome.RUNNING, None)]


def test_a_stateful_set_that_is_scaled_rolls_nothing_out() -> None:
    story = Imports(DB)
    story.see(0, db(1, counts(1, 2, 2, replicas=2)))
    story.see(1, db(1, counts(1)))
    assert story.told == []


def test_a_daemon_set_on_a_new_node_rolls_nothing_out() -> None:
    story = Imports(a_resource("DaemonSet", "agent"))
    more: Object = {"desiredNumberScheduled": 3, "currentNumberScheduled": 2, "updatedNumberScheduled": 2}
    story.see(0, version("a:1", 1, status={"observedGeneration": 1, **more}, resource=story.resource))
    assert story.told == []
    older: Object = {**more, "currentNumberScheduled": 3}
    story.see(1, version("a:1", 1, status={"observedGeneration": 1, **older}, resource=story.resource))
    assert story.told == [(Outcome.RUNNING, None)]


# -- deletions


def test_an_update_that_waits_for_deletions_says_so_until_the_last_pod_is_gone() -> None:
    story = Imports(DB)
    by_hand: Object = {"type": "OnDelete"}
    story.see(-100, db(1, counts(1), "db:1", by_hand))
    story.see(0, db(2, counts(1), "db:2", by_hand), CHANGED)
    story.see(1, db(2, counts(2, 0), "db:2", by_hand))
    assert (story.told, story.stored[2].reason) == ([(Outcome.RUNNING, None)], WAITS)
    story.see(5, db(3, counts(3, 0), "db:2", partition(0)))
    assert (story.told, story.stored[2].reason) == ([(Outcome.RUNNING, None)], "")
    story.see(6, db(4, counts(4, 0), "db:2", by_hand))
    story.see(60, db(4, counts(4), "db:2", by_hand))
    assert (story.told, story.stored[2].reason) == ([(Outcome.COMPLETE, 60)], "")


def test_pods_that_wait_for_deletions_at_first_sight_are_no_rollout() -> None:
    story = Imports(DB)
    story.see(0, db(2, counts(2, 1), "db:2", {"type": "OnDelete"}))
    assert story.told == []


def going(updated: int, current: int, revisions: tuple[str, str]) -> Object:
    """A StatefulSet of three, one of whose pods is going: that counts to ``replicas``, and to no template."""
    now, to_be = revisions
    of_templates: Object = {"currentReplicas": current, "currentRevision": now, "updateRevision": to_be}
    return {**counts(1, updated, 2), **of_templates}


@pytest.mark.parametrize("imports", [1, 2])
def test_a_pod_of_a_stateful_set_that_goes_begins_no_rollout(imports: int) -> None:
    story = Imports(DB)
    story.see(0, db(1, going(2, 2, ("1", "1"))))
    assert story.told == [], "of none it was seen that it ever rolled out"
    story.see(10, db(1, counts(1)))
    story.see(20, db(2, counts(1), "db:3"), CHANGED)
    story.see(30, db(2, counts(2), "db:3"))
    if imports == 2:
        story.again()
    story.see(9000, db(2, {**going(2, 2, ("2", "2")), "observedGeneration": 2}, "db:3"))
    assert story.told == [(Outcome.COMPLETE, 30)]


def test_a_pod_that_goes_while_a_partition_keeps_others_begins_no_rollout() -> None:
    story = Imports(DB)
    story.see(0, db(1, going(0, 2, ("1", "2")), strategy=partition(2)))
    assert story.told == []


@pytest.mark.parametrize(("held", "updated"), [(1, 2), (3, 0), (9, 0)])
def test_what_a_partition_keeps_is_said(held: int, updated: int) -> None:
    story = Imports(DB)
    story.see(0, db(1, counts(1), "db:1", partition(held)))
    story.see(1, db(2, counts(1), "db:2", partition(held)), CHANGED)
    story.see(9, db(2, counts(2, updated), "db:2", partition(held)))
    assert story.told == [(Outcome.COMPLETE, 9)]
    assert story.stored[2].reason == f"its partition keeps {3 - updated} of 3 pods as they were"


# -- pauses


def test_a_rollout_that_is_paused_says_so_until_it_goes_on() -> None:
    story = Imports()
    story.see(-100, version("web:1", 1, status=counts(1)))
    story.see(0, version("web:2", 2, status=counts(1)), CHANGED)
    story.see(1, version("web:2", 2, status=counts(2, 1, replicas=4)))
    paused: Object = progressing("DeploymentPaused", after(2), "Unknown")
    story.see(2, version("web:2", 3, status=counts(2, 1, replicas=4), paused=True))
    story.see(3, version("web:2", 3, status={**counts(3, 1, replicas=4), **paused}, paused=True))
    assert (story.told, story.stored[2].reason) == ([(Outcome.RUNNING, None)], PAUSED)
    story.see(60, version("web:2", 4, status={**counts(3, 1, replicas=4), **paused}))
    assert (story.told, story.stored[2].reason) == ([(Outcome.RUNNING, None)], "")
    story.see(70, version("web:2", 4, status=counts(4)))
    assert story.told == [(Outcome.COMPLETE, 70)]


def test_a_template_that_is_taken_back_while_paused_was_rolled_back() -> None:
    story = Imports()
    story.see(-100, version("web:1", 1, status=counts(1)))
    story.see(0, version("web:2", 2, status=counts(1), paused=True), CHANGED)
    story.see(1, version("web:2", 2, status=counts(2, 0), paused=True))
    assert story.stored[2].reason == PAUSED
    story.see(30, version("web:1", 3, status=counts(2, 0), paused=True), CHANGED)
    story.see(31, version("web:1", 3, status=counts(3), paused=True))
    assert story.told == [(Outcome.ROLLED_BACK, 30), (Outcome.COMPLETE, 31)]
    assert story.stored[2].reason == "", "it waits for nothing any more"
