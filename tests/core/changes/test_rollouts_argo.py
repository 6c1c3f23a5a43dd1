"""Rollouts of Argo's, as a real controller made them (argo/README.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import TypeVar

import pytest
from msgspec import structs

from app.core.changes.rollouts import Rollouts
from app.core.changes.sightings import Sighting
from app.core.changes.tracker import Tracker
from app.core.model import Change, ObjectState, Outcome, Resource, Rollout, Verb
from app.core.objects.body import read_body, read_whole
from app.core.objects.redact import Redactor, decode
from app.store.merge import merge_rollouts
from tests.core.changes.recorded import STORIES, Did, recorded
from tests.core.factories import FINGERPRINT, NOON
from tests.core.learning import KEY, an_object, seen

T = TypeVar("T")
Ended = tuple[tuple[str, ...], Outcome, str]
DONE, FAILED, BACK = Outcome.COMPLETE, Outcome.FAILED, Outcome.ROLLED_BACK
V1, V2, V3, V4, V5, V6 = ((f"r/web:v{n}",) for n in range(1, 7))
PROMOTED = "until somebody promotes it"
CANNOT_ASK = (
    'RolloutAborted: Step-based analysis phase error/failed: Metric "error-rate" assessed Error due to'
    ' consecutiveErrors (2) > consecutiveErrorLimit (1): "Error Message: Post "http://127.0.0.1:1/api/v1/query": dial'
    ' tcp 127.0.0.1:1: connect: connection refused"'
)
NOT_IN_TIME = "ProgressDeadlineExceeded"
ENDS: dict[str, list[Ended]] = {
    "canary": [
        (V1, DONE, ""),
        (V2, DONE, ""),
        (V3, BACK, "RolloutAborted"),
        (V2, DONE, ""),
        (V4, BACK, ""),
        (V2, DONE, ""),
        (V5, Outcome.SUPERSEDED, ""),
        (V6, BACK, ""),
        (V2, DONE, ""),
    ],
    "paused": [(V1, DONE, ""), (V2, DONE, "")],
    "bluegreen": [(V1, DONE, ""), (V2, DONE, ""), (V3, BACK, "RolloutAborted"), (V2, DONE, "")],
    "stuck": [
        (V1, DONE, ""),
        (("r/web2:missing",), Outcome.SUPERSEDED, NOT_IN_TIME),
        (V3, DONE, ""),
        (("r/web4:missing",), BACK, NOT_IN_TIME),
        (V3, DONE, ""),
    ],
    "aborts": [
        (V1, DONE, ""),
        (("r/web5:missing",), FAILED, 'RolloutAborted: ReplicaSet "aborts-6748ddcbbf" has timed out progressing.'),
    ],
    "analysed": [(V1, DONE, ""), (V2, BACK, CANNOT_ASK), (V1, DONE, "")],
    "invalid": [(V1, DONE, "")],
    "referring": [((), DONE, ""), ((), DONE, ""), ((), FAILED, "RolloutAborted")],
    "traffic": [(V1, DONE, ""), (V2, DONE, "")],
}
"""How each rollout of a recording ended, in their order."""


def as_watched(story: Iterable[Did | Sighting]) -> list[Sighting]:
    """As a watch tells it: of an object whose desired state is as before, only its status."""
    told, before = list[Sighting](), None
    for one in story:
        if isinstance(one, Did):
            continue
        whole = read_whole(one.body or b"")
        assert whole is not None
        is_as_before = one.verb is Verb.UPDATE and whole.desired() == before
        before = whole.desired()
        told.append(structs.replace(one, body=None, as_before=whole.as_before()) if is_as_before else one)
    return told


class Run:
    """What is learned of a story by programs that follow one another; each keeps what the store would."""

    def __init__(self) -> None:
        self.changes: dict[int, Change] = {}
        self.states: dict[Resource, ObjectState] = {}
        self.rollouts: dict[int, Rollout] = {}
        self.told: list[Rollout] = []

    def follow(self, sightings: Sequence[Sighting]) -> None:
        tracker = Tracker("lab", Redactor(KEY), lambda resource, _uid: self.states.get(resource))
        tracker.recall(self.rollouts.values())
        tracker.recall_lately(sorted(self.changes.values(), key=lambda one: one.at), ())
        for sighting in sightings:
            learned = tracker.observe(sighting)
            self.changes.update((change.key, change) for change in learned.changes)
            self.states.update((state.resource, state) for state in learned.states)
            for one in learned.rollouts:
                known = self.rollouts.get(one.generation)
                self.rollouts[one.generation] = merge_rollouts(known, one) if known else one
                self.told.append(one)
            assert learned.symptoms == ()

    @property
    def in_order(self) -> list[Rollout]:
        return sorted(self.rollouts.values(), key=lambda one: one.started_at)

    @property
    def ends(self) -> list[Ended]:
        return [(one.images, one.outcome, one.reason) for one in self.in_order]


def learned(name: str) -> Run:
    run = Run()
    run.follow([one for one in recorded(name) if isinstance(one, Sighting)])
    return run


def steps(rollout: Rollout) -> list[tuple[int, int]]:
    """The pods of the new template, and those available, of each step."""
    return [(one.updated, one.available) for one in rollout.progress]


def reasons(run: Run, generation: int) -> list[str]:
    """Why a rollout went no further, one after the other."""
    return turns(one.reason for one in run.told if one.generation == generation and one.reason)


def turns(told: Iterable[T]) -> list[T]:
    return [one for one, _ in groupby(told)]


def test_every_recording_is_judged() -> None:
    assert set(STORIES) == set(ENDS)


@pytest.mark.parametrize("name", STORIES)
def test_each_edit_of_a_template_is_one_rollout_that_ends_as_its_controller_says(name: str) -> None:
    assert learned(name).ends == ENDS[name]


@pytest.mark.parametrize("name", STORIES)
def test_whoever_is_told_of_statuses_alone_learns_as_much(name: str) -> None:
    run = Run()
    run.follow(as_watched(recorded(name)))
    whole = learned(name)
    assert run.in_order == whole.in_order
    assert run.changes == whole.changes


@pytest.mark.parametrize("name", STORIES)
def test_a_restart_anywhere_changes_nothing_of_that(name: str) -> None:
    told = as_watched(recorded(name))
    whole = [one for one in recorded(name) if isinstance(one, Sighting)]
    for cut in range(1, len(told)):
        run = Run()
        run.follow(told[:cut])
        run.follow([whole[cut], *told[cut + 1 :]])
        assert run.ends == ENDS[name], f"restarted before event {cut}"


@pytest.mark.parametrize("name", STORIES)
def test_what_the_controller_writes_into_the_template_is_no_change_and_begins_nothing(name: str) -> None:
    """``resources: {}`` in each container, a moment after each edit."""
    asked = [one.what for one in recorded(name) if isinstance(one, Did)]
    edits = ("create", "set image r/", "scale", "pause", "resume", "restart", "delete")
    run = learned(name)
    assert len(run.changes) == sum(what.startswith(edits) for what in asked)
    assert [one.change_id for one in run.in_order] == [
        change.id for change in sorted(run.changes.values(), key=lambda one: one.at) if begins(change)
    ] or name == "referring"


def test_what_an_earlier_version_kept_of_one_is_no_change() -> None:
    """It took what the controller writes into the template for somebody's edit."""
    told = [one for one in recorded("canary") if isinstance(one, Sighting)][:11]
    run = Run()
    run.follow(told)
    (known,) = run.states.values()
    whole = decode(told[-1].body or b"")
    assert isinstance(whole, dict)
    assert whole["spec"] != (known.state or {})["spec"]
    run.states = {known.resource: structs.replace(known, state={"metadata": whole["metadata"], "spec": whole["spec"]})}
    run.follow([structs.replace(told[-1], verb=None)])
    assert len(run.changes) == len(run.rollouts) == 1


def begins(change: Change) -> bool:
    return change.verb is Verb.CREATE or any(diff.path[:2] == ("spec", "template") for diff in change.diffs)


def test_a_canary_goes_by_its_steps_and_is_not_done_while_it_waits() -> None:
    run = learned("canary")
    second = run.in_order[1]
    assert turns(one.percent for one in run.told if one.generation == second.generation)[:6] == [0, 20, 60, 80, 99, 100]
    assert steps(second)[-1] == (5, 5)
    assert reasons(run, second.generation) == [
        f"is paused at a weight of 20 in step 2 of 4, {PROMOTED}",
        "is paused at a weight of 60 in step 4 of 4, for 4s",
    ]


def test_an_abort_has_failed_until_somebody_tries_again() -> None:
    run = learned("canary")
    third = run.in_order[2]
    assert turns(one.outcome for one in run.told if one.generation == third.generation) == [
        *(Outcome.RUNNING, FAILED, Outcome.RUNNING, FAILED, BACK)
    ]
    assert third.ended_at == datetime.fromisoformat("2026-11-30T03:00:58Z"), "when it was aborted, not undone"
    assert run.in_order[3].images == V2


def test_one_that_failed_before_it_was_seen_is_none_until_it_is_tried_again() -> None:
    story = list(recorded("canary"))
    aborted = next(n for n, one in enumerate(story) if isinstance(one, Did) and one.what == "abort")
    retried = next(n for n, one in enumerate(story) if isinstance(one, Did) and one.what == "retry")
    seen_first, *later = [one for one in story[aborted + 3 :] if isinstance(one, Sighting)]
    before = [one for one in later if one.at < story[retried].at]
    run = Run()
    run.follow([structs.replace(seen_first, verb=None), *before])
    assert run.told == []
    run = Run()
    run.follow([structs.replace(seen_first, verb=None), *later])
    first = run.in_order[0]
    assert (first.images, first.outcome) == (V3, Outcome.SUPERSEDED), "that v2 was before it was not seen"


def test_weights_are_told_where_they_are_not_those_of_the_pods() -> None:
    run = learned("traffic")
    assert reasons(run, run.in_order[1].generation) == [
        f"is paused at a weight of 5 in step 2 of 6, {PROMOTED}",
        f"is paused at a weight of 10 in step 4 of 6, {PROMOTED}",
        "is paused at a weight of 50 in step 6 of 6, for 2s",
    ]


def test_new_pods_that_are_sent_nothing_yet_count_once_all_are_available() -> None:
    run = learned("bluegreen")
    second = run.in_order[1]
    assert reasons(run, second.generation) == [f"is paused before its pods are sent requests, {PROMOTED}"]
    assert steps(second) == [(0, 3), (3, 3), (3, 3)]


def test_what_its_controller_refuses_has_failed_until_it_takes_it() -> None:
    run = learned("invalid")
    field, why = "spec.strategy.blueGreen.activeService", 'Invalid value: "nowhere": service "nowhere" not found'
    refused = f"InvalidSpec: {field}: {why}"
    assert reasons(run, 1) == [refused]
    assert [one.outcome for one in run.told][:3] == [Outcome.RUNNING, FAILED, Outcome.RUNNING]


def test_what_an_analysis_failed_with_tells_no_secret() -> None:
    """It quotes what its provider answered."""
    told = [one for one in recorded("analysed") if isinstance(one, Sighting)]
    asked, with_secret = b"http://127.0.0.1:1/api", b"http://prometheus:correct-horse-battery@127.0.0.1:1/api"
    run = Run()
    run.follow([structs.replace(one, body=(one.body or b"").replace(asked, with_secret)) for one in told])
    reason = run.in_order[1].reason
    assert reason.startswith("RolloutAborted: Step-based analysis")
    assert "correct-horse-battery" not in reason


def test_one_that_is_paused_says_so_from_the_start() -> None:
    run = learned("paused")
    assert reasons(run, run.in_order[1].generation) == ["is paused"]


def test_a_status_of_this_generation_may_still_be_of_the_template_before() -> None:
    """As one of the newer template that followed the fifth was: paused, as the fifth had been."""
    sixth = learned("canary").in_order[7]
    assert steps(sixth)[:2] == [(0, 6), (1, 6)], "and not the pod of the fifth"


def test_the_change_of_a_deployment_begins_the_rollout_of_the_one_that_has_its_template() -> None:
    told = [one for one in recorded("referring") if isinstance(one, Sighting)]
    edited = next(one.at for one in recorded("referring") if isinstance(one, Did) and "v3" in one.what)

    def a_deployment(image: str, version: int) -> object:
        spec = {"replicas": 0, "template": {"spec": {"containers": [{"name": "app", "image": image}]}}}
        return an_object(
            "Deployment", "referring", api="apps/v1", namespace="default", version=version, spec=spec,
            meta={"generation": version},
        )  # fmt: skip

    deployment = Resource("lab", "apps", "Deployment", "default", "referring")
    edits = [
        structs.replace(seen(a_deployment(image, version), 0, verb=verb), resource=deployment, at=at)
        for image, version, verb, at in [("r/web:v2", 1, None, told[0].at), ("r/web:v3", 2, Verb.UPDATE, edited)]
    ]
    run = Run()
    run.follow(sorted([*edits, *told], key=lambda one: one.at))
    (change,) = [one for one in run.changes.values() if one.resource == deployment]
    third = max((one for one in run.told if one.resource.kind == "Rollout"), key=lambda one: one.started_at)
    assert third.change_id == change.id
    assert {one.resource.kind for one in run.told} == {"Rollout"}, (
        "the Deployment, which has no pods, rolls nothing out"
    )


def test_a_rollout_of_another_project_is_none() -> None:
    """OpenKruise has a kind of the same name: it goes by the pods of what it refers to."""
    spec = {"workloadRef": {"name": "web"}}
    kruise = an_object("Rollout", "web", api="rollouts.kruise.io/v1beta1", version=1, spec=spec)
    tracker = Tracker("c", Redactor(KEY), lambda *_: None)
    assert tracker.observe(seen(kruise, 1, verb=Verb.CREATE)).rollouts == ()


@pytest.mark.parametrize("odd", [b'{"observedGeneration":"6bd4c8"}', b'{"phase":5}', b'{"conditions":"none"}'])
def test_a_status_that_cannot_be_read_rolls_nothing_out(odd: bytes) -> None:
    """A controller before 1.0 told a hash for its generation."""
    body = read_body(b'{"metadata":{"uid":"u","generation":1},"spec":{"template":{}},"status":%s}' % odd)
    assert body is not None
    argo = Resource("lab", "argoproj.io", "Rollout", "shop", "web")
    assert Rollouts(FINGERPRINT).observe(argo, body, at=NOON, created=True, begun_by=lambda: None) == ()
