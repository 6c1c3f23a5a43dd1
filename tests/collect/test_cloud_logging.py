"""A GKE cluster's audit log as Cloud Logging has it: what it says is told, what it leaves out stays unknown."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from app.collect.exports import Export
from app.collect.files import UnreadableError
from app.collect.inputs import find_inputs
from app.collect.intake import Piece
from app.core.changes.sightings import Sighting
from app.core.model import ListClass
from tests.collect.exported import Event, compact, logged, plain, put, told
from tests.collect.test_importer import AUDIT, audited, read, stamp

EVENTS: list[Event] = [json.loads(line) for line in AUDIT.splitlines()]


def gke(folder: Path, *entries: Event) -> list[Piece]:
    return told(put(folder, plain(entries)))


def test_what_gcloud_tells_newest_first_is_refused(tmp_path: Path) -> None:
    entries = [logged(one) for one in EVENTS]
    large = [one | {"labels": {"x": "y" * 100_000}} for one in entries]
    for newest in (entries[::-1], large[::-1]):
        with pytest.raises(UnreadableError, match="--order=asc"):
            find_inputs([str(put(tmp_path, json.dumps(newest, indent=2).encode()))])
    for fine in (entries, entries[:1], [entries[1], entries[0], entries[2]], large):
        assert find_inputs([str(put(tmp_path, json.dumps(fine, indent=2).encode()))])[0].export is Export.CLOUD_LOGGING


def seen(sighting: Sighting) -> Sighting:
    """Its objects without the spaces in them."""
    body, patch = (compact(json.loads(one or b"null")).encode() for one in (sighting.body, sighting.patch))
    return replace(sighting, body=body, patch=patch)


def test_a_gke_entry_says_what_the_event_says_but_for_times_and_queries(tmp_path: Path) -> None:
    [expected] = told(put(tmp_path, plain(EVENTS)))
    listed = json.dumps([logged(one) for one in EVENTS], indent=2).encode()
    for body in (plain([logged(one) for one in EVENTS]), listed):
        [found] = told(put(tmp_path, body))
        assert list(map(seen, found.sightings)) == list(map(seen, expected.sightings))
        assert [(k.user, k.verb, k.resource, k.code) for k in found.keys] == [
            (k.user, k.verb, k.resource, k.code) for k in expected.keys
        ]
        assert {k.list_class for k in found.keys} == {ListClass.NOT_A_LIST}, "its query is not told"
        assert {count.latency_us for count in found.calls} == {0}


def ref(path: str, method: str) -> dict[str, str]:
    event = json.loads(read(1)) | {"verb": method.rpartition(".")[2]}
    with TemporaryDirectory() as folder:
        [piece] = gke(Path(folder), logged(event, resourceName=path, methodName=method))
    [key] = piece.keys
    [request] = piece.requests
    return {"group": key.api_group, "resource": key.resource, "namespace": key.namespace, "name": request.name}


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("core/v1/namespaces/a/pods/x/binding", "io.k8s.core.v1.pods.binding.create", ("", "pods/binding", "a", "x")),
        ("core/v1/nodes/n/status", "io.k8s.core.v1.nodes.status.patch", None),
        ("core/v1/namespaces/a", "io.k8s.core.v1.namespaces.delete", ("", "namespaces", "a", "a")),
        (
            "core/v1/namespaces/a/status",
            "io.k8s.core.v1.namespaces.status.update",
            ("", "namespaces/status", "a", "a"),
        ),
        ("core/v1/namespaces/a/pods", "io.k8s.core.v1.pods.deletecollection", ("", "pods", "a", "")),
        (
            "rbac.authorization.k8s.io/v1/clusterroles/admin",
            "io.k8s.authorization.rbac.v1.clusterroles.update",
            ("rbac.authorization.k8s.io", "clusterroles", "", "admin"),
        ),
        ("example.com/v1/namespaces/a/widgets/w", "com.example.v1.widgets.patch", ("example.com", "widgets", "a", "w")),
    ],
)
def test_a_resource_name_is_an_object_reference(path: str, method: str, expected: tuple[str, ...] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="not enough values"):
            ref(path, method)  # a heartbeat: counted, and kept as no request
    else:
        assert tuple(ref(path, method).values()) == expected


def test_a_refusal_has_the_status_of_its_answer_or_the_one_that_its_code_stands_for(tmp_path: Path) -> None:
    event = json.loads(audited(10, 12, "web:2"))
    denied = {"@type": "core.k8s.io/v1.Status", "kind": "Status", "code": 422, "status": "Failure"}
    status = {"code": 3, "message": "denied by a webhook"}
    entries = [
        logged(event, status=status, response=denied),
        logged(event | {"auditID": "b"}, status={"code": 7, "message": "Forbidden"}, response=None),
        logged(event | {"auditID": "c"}, status={"code": 99}, response=None),
        logged(event | {"auditID": "d"}, status={}),
    ]
    [piece] = gke(tmp_path, *entries)
    assert [key.code for key in piece.keys] == [422, 403, 500, 200]
    assert len(piece.sightings) == 1, "of the success"


def test_nobody_is_made_up_where_no_principal_is_told(tmp_path: Path) -> None:
    event = json.loads(read(1))
    people: list[dict[str, str]] = [
        {},
        {"principalSubject": "principal://iam.googleapis.com/x"},
        {"principalEmail": "system:anonymous"},
    ]
    entries = [logged(event | {"auditID": str(n)}, authenticationInfo=who) for n, who in enumerate(people)]
    [piece] = gke(tmp_path, *entries)
    assert [key.user for key in piece.keys] == ["(not told)", "principal://iam.googleapis.com/x", "system:anonymous"]


def test_a_long_running_request_is_counted_once(tmp_path: Path) -> None:
    def entries(verb: str, resource: str) -> list[Event]:
        one = logged(json.loads(read(1)) | {"verb": verb}, methodName=f"io.k8s.core.v1.{resource}.{verb}")
        last = {"first": False, "last": True, "id": "op", "producer": "k8s.io"}
        first = {"first": True, "last": False, "id": "op", "producer": "k8s.io"}
        return [one | {"operation": first}, one | {"operation": last, "timestamp": stamp(9), "insertId": "other"}]

    for verb, resource in (("watch", "pods"), ("create", "pods.exec")):
        [piece] = gke(tmp_path, *entries(verb, resource))
        assert piece.tally.calls == 1
    [piece] = gke(tmp_path, logged(json.loads(read(1)) | {"verb": "watch"}))
    assert piece.tally.calls == 1, "with one entry alone too"


def test_a_split_entry_is_one_write_without_its_objects(tmp_path: Path) -> None:
    one = logged(json.loads(audited(10, 12, "web:2")))
    parts = [one | {"split": {"uid": "u", "index": n, "totalSplits": 2}, "insertId": f"i-{n}"} for n in (0, 1)]
    [piece] = gke(tmp_path, *parts)
    assert (piece.tally.calls, piece.tally.repeated) == (1, 1)
    [sighting] = piece.sightings
    assert (sighting.body, sighting.patch, sighting.truncated) == (None, None, True)


def test_a_dry_run_is_no_change(tmp_path: Path) -> None:
    one = logged(json.loads(audited(10, 12, "web:2")))
    one["labels"]["command.gke.io/dryRun"] = "true"
    [piece] = gke(tmp_path, one)
    assert (piece.sightings, piece.tally.calls) == ([], 1)
