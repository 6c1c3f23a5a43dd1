"""What managed clusters export says the same as the audit log that it was made of, or says what it leaves out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.collect.entries import Entry, Reading, decoded
from app.collect.exports import Export, Parted
from app.collect.files import UnreadableError
from app.collect.inputs import InputKind, find_inputs
from app.collect.intake import Intake, Piece
from app.collect.logs import Job, Log, pieces
from app.core import audit
from app.core.model import ListClass
from app.core.redact import Redactor
from app.core.sightings import Sighting
from tests.collect.exported import SAME, Event, compact, gotten, logged, plain, record, s3_export
from tests.collect.test_batches import imported
from tests.collect.test_importer import AUDIT, NOW, Lab, audited, lab, read, stamp, write

__all__ = ["lab"]

EVENTS: list[Event] = [json.loads(line) for line in AUDIT.splitlines()]
KEY = b"k" * 32


def told(path: Path) -> list[Piece]:
    [one] = find_inputs([str(path)])
    assert one.kind is InputKind.AUDIT
    return list(pieces(Job("c", KEY, NOW, [Log(one, 0, 0)])))


def meaning(found: list[Piece]) -> list[object]:
    """What was learned, without where it stood."""
    return [
        (p.sightings, p.keys, p.calls, p.requests, p.gaps, p.tally.calls, p.tally.used, p.tally.rejects) for p in found
    ]


def put(folder: Path, body: bytes) -> Path:
    path = folder / "export"
    path.write_bytes(body)
    return path


def gke(folder: Path, *entries: Event) -> list[Piece]:
    return told(put(folder, plain(entries)))


@pytest.mark.parametrize("form", SAME)
def test_an_export_of_the_events_says_what_the_log_says(form: str, tmp_path: Path) -> None:
    expected = meaning(told(put(tmp_path, plain(EVENTS))))
    found = told(put(tmp_path, SAME[form](EVENTS)))
    assert meaning(found) == expected
    assert found[-1].tally.used == len(EVENTS)


texts = st.text(max_size=40) | st.sampled_from(
    ["]}{", '"]}', '],"items":[', "\\", "\n", "} {", "2026-01-01T00:00:00Z {"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(texts, min_size=1, max_size=7), st.sampled_from(sorted(SAME)))
def test_no_text_in_an_event_changes_how_its_export_is_read(texts: list[str], form: str) -> None:
    events = [
        json.loads(audited(number + 1, number + 1, "web:1")) | {"userAgent": text, "auditID": f"{number}"}
        for number, text in enumerate(texts)
    ]
    for number, text in enumerate(texts):
        events[number]["responseObject"]["metadata"]["annotations"] = {"note": text}
    with TemporaryDirectory() as folder:
        expected = meaning(told(put(Path(folder), plain(events))))
        assert meaning(told(put(Path(folder), SAME[form](events)))) == expected


@given(st.lists(st.sampled_from([b"]", b"}", b"{", b'"', b"x", b']}{"']), max_size=30), st.integers(1, 9))
def test_records_are_parted_wherever_the_stream_is_cut(parts: list[bytes], size: int) -> None:
    body = b"".join(parts)

    class Source:
        at = 0

        def read(self, size: int, /) -> bytes:
            self.at += size
            return body[self.at - size : self.at]

    parted, found = Parted(Source()), []
    while chunk := parted.read(size):
        assert len(chunk) <= size
        found.append(chunk)
    assert b"".join(found) == body.replace(b']}{"', b']}\n{"')


@pytest.mark.parametrize("form", SAME)
def test_it_can_be_read_on_behind_any_of_its_entries(form: str, tmp_path: Path) -> None:
    [one] = find_inputs([str(put(tmp_path, SAME[form](EVENTS)))])

    def entries(read: Reading) -> list[Entry]:
        return list(decoded(read, Intake("c", Redactor(KEY), now=NOW), 0))

    whole = entries(Reading(one))
    assert len(whole) == len(EVENTS)
    for number, entry in enumerate(whole, start=1):
        line = entry.line
        rest = entries(Reading(one, line.end, line.number + line.further - (not line.whole)))
        assert [e.audit for e in rest] == [e.audit for e in whole[number:]]


@pytest.mark.parametrize("form", [*SAME, "Cloud Logging"])
async def test_an_import_of_it_goes_on_where_it_was_and_twice_adds_nothing(form: str, lab: Lab, tmp_path: Path) -> None:
    body = plain([logged(one) for one in EVENTS]) if form == "Cloud Logging" else SAME[form](EVENTS)
    path = put(tmp_path, body)
    [half] = find_inputs([str(path)])
    until = audit.decode(compact(EVENTS[2]).encode()).stageTimestamp
    await lab.imported(path, until=until)
    assert len(await lab.rows("requests", "at")) == 1
    report = await lab.imported(path)
    assert (report.tally.rejects, half.export is not None) == (0, True)
    again = await lab.imported(path)
    assert again.skipped == [str(path)]
    assert len(await lab.rows("requests", "at")) == 2
    assert [(one.actor.name, one.diffs[0].new) for one in await lab.stored() if one.diffs] == [
        ("alice", "web:2"),
        ("alice", "web:3"),
    ]


async def test_secrets_in_an_export_are_told_to_nobody(lab: Lab, tmp_path: Path) -> None:
    event = json.loads(audited(10, 12, "web:2"))
    container = event["responseObject"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "DB_PASSWORD", "value": "canary-1"}]
    event["requestObject"]["spec"]["template"]["spec"]["containers"][0]["env"] = container["env"]
    cut, odd = compact(event)[:-200].replace("canary-1", "canary-2"), {**event, "verb": 5}
    bodies: dict[str, bytes] = {form: make([event, odd]) for form, make in SAME.items()} | {
        "cut": gzip.decompress(s3_export([event])) + f"2026-11-21T11:00:10Z {cut}\n".encode(),
        "broken message": plain([{"timestamp": 1, "message": one} for one in (compact(event), cut)]),
        "Cloud Logging": plain([logged(event), {**logged(event), "timestamp": 5}]),
    }
    for form, body in bodies.items():
        batches = await imported(lab, put(tmp_path, body))
        rejects = [reject for batch in batches for reject in batch.rejects]
        assert len(rejects) == 1, form
        assert "canary" not in repr(batches), form


@pytest.mark.parametrize(
    ("body", "said", "line"),
    [
        (gzip.decompress(s3_export(EVENTS)) + b"2026-11-21T11:00:10Z I1121 trace.go:236\n", "is no JSON object", 6),
        (gzip.decompress(s3_export(EVENTS)) + b'2026-11-21T11:00:10Z {"kind":"Eve\n', "truncated", 6),
        (plain([{"timestamp": 1, "message": m} for m in (compact(EVENTS[0]), "{}")]), "missing required field", 2),
        (record([compact(EVENTS[0])]) + record(["CWL CONTROL MESSAGE: ..."], "CONTROL_MESSAGE"), "no JSON object", 2),
        (plain([logged(EVENTS[0]), logged(EVENTS[1], serviceName="container.googleapis.com")]), "another service", 2),
        (SAME["storage account"](EVENTS) + b'{"category":"guard","properties":{"log":"x"}}\n', "another category", 6),
    ],
    ids=["other log", "cut", "message", "control", "service", "category"],
)
def test_an_entry_that_is_no_audit_event_is_refused_in_words(body: bytes, said: str, line: int, tmp_path: Path) -> None:
    [reject] = [one for piece in told(put(tmp_path, body)) for one in piece.rejects]
    assert said in reject.reason
    assert reject.line == line


INSIGHTS = {"results": [[{"field": "@message", "value": "{}"}]], "statistics": {}, "status": "Complete"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"@timestamp,@message\n2026-11-21,{}\n", "CloudWatch Logs Insights, which leaves events out"),
        (json.dumps(INSIGHTS, indent=4).encode(), "CloudWatch Logs Insights, which leaves events out"),
        (b'[{"@timestamp":"2026-11-21 11:00:00.000","@message":{}}]', "CloudWatch Logs Insights"),
        (b"2026-11-21T11:00:10.123Z I1121 trace.go:236\n", "an export of CloudWatch Logs, but of no audit log"),
        (gotten([{"stageTimestamp": stamp(1), "level": "info"}]), "an export of CloudWatch Logs, but of no audit log"),
        (plain([logged(EVENTS[0], serviceName="container.googleapis.com")]), "Google Cloud Logging, but of no audit"),
        (b'{"resourceId":"/S","category":"guard","properties":{"log":"x"}}', "Azure Monitor, but of no audit log"),
    ],
)
def test_what_holds_no_audit_log_is_refused_before_anything_is_read(body: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=said):
        find_inputs([str(put(tmp_path, body))])


def test_an_export_is_told_by_its_content_though_it_begins_with_a_large_entry(tmp_path: Path) -> None:
    large = json.loads(audited(10, 12, "web:2")) | {"userAgent": "x" * 100_000}
    forms: dict[str, tuple[Callable[[list[Event]], bytes], Export]] = {
        "S3": (s3_export, Export.CLOUDWATCH_LINE),
        "filter-log-events": (SAME["filter-log-events"], Export.CLOUDWATCH_EVENT),
        "subscription": (SAME["subscription"], Export.CLOUDWATCH_EVENT),
        "event hub": (SAME["event hub"], Export.AZURE_RECORD),
        "sink": (lambda events: plain([logged(one) for one in events]), Export.CLOUD_LOGGING),
        "gcloud": (lambda events: json.dumps([logged(one) for one in events], indent=2).encode(), Export.CLOUD_LOGGING),
    }
    for make, export in forms.values():
        [one] = find_inputs([str(put(tmp_path, make([large])))])
        assert (one.kind, one.export) == (InputKind.AUDIT, export)


# -- GKE


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


def test_an_object_that_aks_left_out_is_missing_and_said_to_be(tmp_path: Path) -> None:
    large: Any = json.loads(audited(10, 12, "web:2")) | {
        "requestObject": "skipped-too-big-size-object",
        "responseObject": "skipped-too-big-size-object",
        "annotations": {"authorization.k8s.io/decision": "allow"},
    }
    [piece] = told(put(tmp_path, SAME["storage account"]([large])))
    [sighting] = piece.sightings
    assert (sighting.body, sighting.patch, sighting.truncated, piece.rejects) == (None, None, True, [])


def test_in_a_folder_each_is_known_by_itself(tmp_path: Path) -> None:
    (tmp_path / "one.gz").write_bytes(s3_export(EVENTS))
    (tmp_path / "two.json").write_bytes(SAME["filter-log-events"](EVENTS))
    write(tmp_path, three=AUDIT)
    found = find_inputs([str(tmp_path)])
    assert {one.export for one in found} == {Export.CLOUDWATCH_LINE, Export.CLOUDWATCH_EVENT, None}
