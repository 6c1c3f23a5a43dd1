"""What somebody asks of a rollout of Argo's that is under way, as the audit log tells it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.core.changes import audit
from app.core.changes.promotions import with_asked
from app.core.changes.recipe import Known
from app.core.changes.revert import revert_recipe
from app.core.changes.revert_write import NoWriteError, write_of
from app.core.changes.sightings import NOTHING, Sighting
from app.core.changes.told import is_told
from app.core.model import Change, DiffSource, Resource, Verb
from app.core.objects.versions import versions
from tests.core.changes.recorded import FOLDER, STORIES
from tests.core.learning import ALICE, a_tracker, an_object, at, seen, told

Json = dict[str, Any]
ABORT, RETRY, PROMOTE = {"abort": True}, {"abort": False}, {"pauseConditions": None}
DEGRADED = {"phase": "Degraded", **ABORT}
SAID = {"promote": "promoted", "abort": "aborted", "retry": "retried"}
WEB = Resource("c", "argoproj.io", "Rollout", "shop", "web")


def asked(status: Any, seconds: float = 10, **more: Any) -> Sighting:
    """As the API server logs it at level Request."""
    return told("Rollout", "web", seconds, group="argoproj.io", patch={"status": status}, subresource="status", **more)


def a_rollout(version: int, image: str = "v1", status: Json | None = None) -> Json:
    template = {"spec": {"containers": [{"name": "web", "image": f"r/web:{image}"}]}}
    spec = {"replicas": 2, "template": template}
    found: Json = an_object("Rollout", "web", version=version, api="argoproj.io/v1alpha1", spec=spec, status=status)
    return found


def change_of(sighting: Sighting) -> Change | None:
    [*found] = with_asked(sighting, NOTHING).changes
    return found[0] if found else None


@pytest.mark.parametrize(
    ("status", "summary"),
    [
        (ABORT, "rollout of web aborted"),
        (RETRY, "rollout of web retried"),
        ({"abort": None}, "rollout of web retried"),
        (PROMOTE, "rollout of web promoted"),
        ({"pauseConditions": None, "currentStepIndex": 3}, "rollout of web promoted"),
        ({"promoteFull": True}, "rollout of web promoted in full"),
    ],
)
def test_it_is_a_change_by_who_asked(status: Json, summary: str) -> None:
    found = change_of(asked(status, audit_id="a-1"))
    assert found is not None
    assert (found.resource, found.verb, found.summary, found.actor) == (WEB, Verb.UPDATE, summary, ALICE)
    assert (found.at, found.audit_id, found.sources) == (at(10), "a-1", frozenset({"audit"}))
    assert found.diff_source is DiffSource.PATCH
    assert {one.path for one in found.diffs} == {("status", field) for field in status}
    assert not is_told(found), "chat is told how the rollout goes"


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {**ABORT, "abortedAt": "2026-11-30T03:00:46Z"}},
        {"status": {**PROMOTE, "controllerPause": None}},
        {"status": {"currentStepIndex": 3}},
        {"status": {"promoteFull": None}},
        {"status": {"abort": "yes"}},
        {"status": {}},
        {"status": None},
        {"status": ABORT, "spec": {"paused": False}},
        [{"op": "add", "path": "/status/abort", "value": True}],
        None,
    ],
)
def test_what_a_controller_writes_or_is_no_such_request_is_none(patch: Any) -> None:
    sighting = told("Rollout", "web", 10, group="argoproj.io", patch=patch, subresource="status")
    assert change_of(sighting) is None


def test_another_kind_another_part_or_nothing_readable_is_none() -> None:
    kinds = (("rollouts.kruise.io", "Rollout"), ("apps", "Deployment"), ("argoproj.io", "Experiment"))
    others = [
        told(kind, "web", 10, group=group, patch={"status": ABORT}, subresource="status") for group, kind in kinds
    ]
    own = told("Rollout", "web", 10, group="argoproj.io", patch={"status": ABORT})
    broken = Sighting(WEB, at(10), "audit", Verb.UPDATE, patch=b'{"status": {', subresource="status")
    watched = Sighting(WEB, at(10), "watch", Verb.UPDATE, body=orjson.dumps(a_rollout(5, status=ABORT)))
    assert [change_of(one) for one in (*others, own, broken, watched)] == [None] * 6


@pytest.mark.parametrize("story", STORIES)
def test_of_all_that_a_real_controller_wrote_only_what_was_done_by_hand_is_one(story: str) -> None:
    """Each change of a recorded status, as if it had been sent so."""
    did, found, done = "", [], []
    for line in map(orjson.loads, (FOLDER / f"{story}.jsonl").read_bytes().splitlines()):
        if "did" in line:
            did = line["did"]
            done += [SAID[did]] if did in SAID else []
        elif change := change_of(
            told("Rollout", story, 1, group="argoproj.io", patch=line.get("patch"), subresource="status")
        ):
            found.append(change.summary.rpartition(" ")[2])
            assert SAID[did] == found[-1]
    assert found == done


def logged(level: str, **more: Any) -> bytes:
    """An abort, as the API server logs what `kubectl argo rollouts abort` asks for."""
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": level,
        "auditID": "a-1",
        "stage": "ResponseComplete",
        "requestURI": "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/web/status",
        "verb": "patch",
        "user": {"username": "alice"},
        "userAgent": "kubectl-argo-rollouts/v1.10.2",
        "objectRef": {
            "resource": "rollouts", "namespace": "shop", "name": "web", "apiGroup": "argoproj.io",
            "apiVersion": "v1alpha1", "subresource": "status",
        },
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": at(10).isoformat(),
        "stageTimestamp": at(10).isoformat(),
        **more,
    }  # fmt: skip
    return orjson.dumps(event)


@pytest.mark.parametrize("response", [None, a_rollout(8, status=DEGRADED)], ids=["Request", "RequestResponse"])
def test_it_is_told_once_among_what_a_watch_shows(response: Json | None) -> None:
    """Also by a log that is imported after it was sent, and beside an edit of the same moment."""
    tracker = a_tracker()
    more = {"responseObject": response} if response else {}
    line = logged("RequestResponse" if response else "Request", requestObject={"status": ABORT}, **more)
    [one] = audit.sightings("c", audit.decode(line))
    edited = seen(a_rollout(9, "v2", status=DEGRADED), 10.5)
    aborted = seen(a_rollout(8, status=DEGRADED), 10)
    found: dict[int, Change] = {}
    for sighting in (seen(a_rollout(7), 1, verb=Verb.CREATE), one, aborted, edited, one):
        learned = tracker.observe(sighting)
        assert not learned.no_op
        found.update((change.key, change) for change in learned.changes)
    assert [(change.summary, change.actor.name) for change in found.values()] == [
        ("Rollout web created", ""),
        ("rollout of web aborted", "alice"),
        ("image of web: v1 → v2", ""),
    ]


def test_without_the_body_of_the_request_nothing_is_told() -> None:
    [one] = audit.sightings("c", audit.decode(logged("Metadata")))
    assert a_tracker().observe(one).changes == ()


def test_what_the_object_was_before_is_known_all_the_same() -> None:
    tracker = a_tracker()
    tracker.observe(seen(a_rollout(7), 1, verb=Verb.CREATE))
    [edit] = tracker.observe(seen(a_rollout(8, "v2"), 5)).changes
    [abort] = tracker.observe(asked(ABORT)).changes
    [again] = tracker.observe(seen(a_rollout(9, "v3"), 15)).changes
    state: Any = {"spec": {"replicas": 2, "template": a_rollout(9, "v3")["spec"]["template"]}}
    images = [
        one.state and one.state["spec"]["template"]["spec"]["containers"][0]["image"]  # type: ignore[call-overload, index]
        for one in versions(state, (again, abort, edit))
    ]
    assert images == ["r/web:v3", "r/web:v2", "r/web:v2"]


@pytest.mark.parametrize(
    ("status", "command", "minded"),
    [
        (ABORT, "kubectl argo rollouts retry rollout web -n shop", "rolls out the template"),
        (RETRY, "kubectl argo rollouts abort web -n shop", "the pods of before take over"),
        (PROMOTE, "kubectl argo rollouts abort web -n shop", "the pods of before take over"),
    ],
)
def test_it_is_undone_by_asking_for_the_contrary(status: Json, command: str, minded: str) -> None:
    change = change_of(asked(status))
    assert change is not None
    recipe = revert_recipe(change)
    assert (recipe.command, recipe.dry_run) == (command, "")
    assert minded in recipe.warning
    with pytest.raises(NoWriteError, match="by its own command"):
        write_of(change, Known())
