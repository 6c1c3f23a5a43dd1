"""What managed clusters export says the same as the audit log that it was made of, or says what it leaves out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.collect.entries import UNUSABLE, Entry, Reading, decoded
from app.collect.exports import EVENT_IN, Export, Parted
from app.collect.files import UnreadableError
from app.collect.inputs import InputKind, find_inputs
from app.collect.intake import Intake, Piece
from app.core.changes import audit
from app.core.objects.redact import Redactor
from tests.collect.exported import KEY, SAME, Event, compact, gotten, logged, plain, put, record, s3_export, told
from tests.collect.test_batches import imported
from tests.collect.test_importer import AUDIT, NOW, Lab, audited, lab, stamp, write

__all__ = ["lab"]

EVENTS: list[Event] = [json.loads(line) for line in AUDIT.splitlines()]


def meaning(found: list[Piece]) -> list[object]:
    """What was learned, without where it stood."""
    return [
        (p.sightings, p.keys, p.calls, p.requests, p.gaps, p.tally.calls, p.tally.used, p.tally.rejects) for p in found
    ]


@pytest.mark.parametrize("form", SAME)
def test_an_export_of_the_events_says_what_the_log_says(form: str, tmp_path: Path) -> None:
    expected = meaning(told(put(tmp_path, plain(EVENTS))))
    found = told(put(tmp_path, SAME[form](EVENTS)))
    assert meaning(found) == expected
    assert found[-1].tally.used == len(EVENTS)


texts = st.text(max_size=40) | st.sampled_from(
    ["]}{", '"]}', '],"items":[', "\\", "\n", "} {", "2026-01-01T00:00:00Z {"]
)


@settings(max_examples=60)
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


@given(st.sampled_from(Export), st.data())
def test_nothing_that_an_entry_holds_ends_an_import(export: Export, data: st.DataObject) -> None:
    whole = {
        Export.CLOUDWATCH_LINE: b"2026-11-21T11:00:10Z " + compact(EVENTS[1]).encode(),
        Export.CLOUDWATCH_EVENT: compact({"message": compact(EVENTS[1])}).encode(),
        Export.AZURE_RECORD: SAME["storage account"](EVENTS[1:2]),
        Export.CLOUD_LOGGING: compact(logged(EVENTS[1], status={"code": 7})).encode(),
    }[export]
    at, size = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, 40))
    odd = data.draw(st.binary(max_size=8) | st.sampled_from([b"null", b"{}", b"[[", b"1e999", b'"\\ud800"', b"true"]))
    with suppress(*UNUSABLE):
        EVENT_IN[export](whole[:at] + odd + whole[at + size :])


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
