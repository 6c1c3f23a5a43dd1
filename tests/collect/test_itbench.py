"""The files of a snapshot: what is read of them, and what is refused with its line."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.collect import itbench
from app.collect.files import Line, UnreadableError
from app.collect.itbench import Row
from app.core.objects.redact import Redactor
from tests.collect.itbench_made import alert, at, config_map, deployment, put, table, warned

KEY = b"k" * 32


DEEP = '{"kind": "ConfigMap", "metadata": {"name": "a"}, "data": ' + '{"a":' * 100_000 + "1" + "}" * 100_001


class Refused(list[str]):
    def __call__(self, path: Path, line: Line, reason: str, column: int) -> None:
        self.append(f"{path.name} {line.number}:{column} {reason}")


def rows(folder: Path, text: str, name: str = itbench.OBJECTS) -> tuple[list[Row], list[str]]:
    path = folder / name
    path.write_text(text)
    refused = Refused()
    return list(itbench.rows(path, refused)), refused


def test_objects_of_lists_and_events_of_watches_are_rows(tmp_path: Path) -> None:
    told = [(0, deployment("web", 5, 'web:"1"')), warned(7, deployment("web", 5, "web:1"), "BackOff", "tab\there")]
    found, refused = rows(tmp_path, table(told))
    assert refused == []
    assert [(row.at, row.line, row.type, row.peek.kind, row.peek.metadata.name) for row in found] == [
        (at(0), 2, "", "Deployment", "web"),
        (at(7), 3, "ADDED", "Event", "web.BackOff"),
    ]
    containers = json.loads(found[0].object)["spec"]["template"]["spec"]["containers"]
    assert containers == [{"name": "web", "image": 'web:"1"'}]


@pytest.mark.parametrize(
    "said",
    [
        "2026-11-21 11:00:00",
        "2026-11-21 11:00:00.000000999",
        "2026-11-21 11:00:00 +0000 UTC",
        "2026-11-21T11:00:00.0Z",
        "2026-11-21 11:00:00+00:00",
    ],
)
def test_a_time_is_read_as_whatever_exported_it_writes_it(tmp_path: Path, said: str) -> None:
    body = json.dumps(config_map("a", 1)).replace('"', '""')
    [row], _ = rows(tmp_path, f'Body\tTimestamp\n"{body}"\t{said}\n')
    assert row.at == datetime(2026, 11, 21, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("yesterday\t{}", "'yesterday' is no time in UTC, as in 2025-12-15 17:30:00.123456789"),
        ("2026-11-21 11:00:00+02:00\t{}", "is no time in UTC"),
        ("2026-13-21 11:00:00\t{}", "month must be in 1..12"),
        ("2026-11-21 11:00:01", "it has 1 columns, and the first line names 2: was it cut?"),
        ('2026-11-21 11:00:01\t"{""kind"": ""Conf', "not JSON"),
        ("2026-11-21 11:00:01\t[]", "Expected `object`, got `array`"),
        ('2026-11-21 11:00:01\t{"kind": "ConfigMap"}', "it says no kind, or no name"),
        ('2026-11-21 11:00:01\t{"kind": "ConfigMap", "metadata": {"name": 7}}', "Expected `str`, got `int`"),
        ('2026-11-21 11:00:01\t{"type": "ERROR", "object": {"kind": "Status"}}', "'ERROR' tells of no object"),
        (f"2026-11-21 11:00:01\t{DEEP}", "nested deeper"),
        ('2026-11-21 10:59:59\t{"kind": "Pod", "metadata": {"name": "a"}}', "older than the row before it"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_with_its_line_and_the_others_are_read(
    tmp_path: Path, row: str, problem: str
) -> None:
    good = '2026-11-21 11:00:00\t{"kind": "Pod", "metadata": {"name": "a"}}'
    found, refused = rows(tmp_path, f"Timestamp\tBody\n{good}\n{row}\n{good.replace('00:00', '00:02')}\n")
    assert [one.line for one in found] == [2, 4]
    [said] = refused
    assert said.startswith("k8s_objects_raw.tsv 3:")
    assert problem in said


@pytest.mark.parametrize("text", ["", "timestamp\tobject_kind\tbody\n", '{"kind": "List"}\n'])
def test_a_file_without_the_columns_is_none_of_these(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnreadableError, match=r"k8s_objects_raw.tsv, line 1: it names no column Body and Timestamp"):
        rows(tmp_path, text)


def test_a_packed_file_that_is_broken_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / f"{itbench.OBJECTS}.gz"
    whole = gzip.compress(table([(second, config_map(f"c{second}", second)) for second in range(2000)]).encode())
    path.write_bytes(whole[: len(whole) // 2])
    refused = Refused()
    found = list(itbench.rows(path, refused))
    assert itbench.find(tmp_path, itbench.OBJECTS) == path
    assert 0 < len(found) < 2000
    assert len(refused) == 1


LATE = {"state": "pending"}
RULE = alert("HighRequestErrorRate", 60)


@pytest.mark.parametrize(
    "form", [lambda told: told, lambda told: {"data": {"alerts": told}}, lambda told: {"alerts": told}]
)
def test_alerts_are_told_once_and_end_when_they_are_not_told_any_more(tmp_path: Path, form) -> None:  # type: ignore[no-untyped-def]
    asked = {
        "2026-11-21T11-01-30.5": form([RULE, alert("Slow", 80) | LATE]),
        "2026-11-21T11-02-30.5": form([RULE, alert("Slow", 80)]),
        "2026-11-21T110230.9Z": form([RULE]),
        "2026-11-21T11-03-30.5": form([alert("Slow", 80)]),
        "2026-11-21T11-04-30.5": form([alert("Slow", 80), alert("HighRequestErrorRate", 250)]),
    }
    put(tmp_path / "s", objects=None, alerts=asked)
    (tmp_path / "s" / "alerts_at_2026-11-21T11-02-00.json").write_text("<html>")
    refused = Refused()
    found = itbench.read_alerts(tmp_path / "s", Redactor(KEY), end=at(300), refuse=refused)
    assert [(one.reason, one.at, one.ended_at) for one in sorted(found, key=lambda one: one.at)] == [
        ("HighRequestErrorRate", at(60), at(210.5)),
        ("Slow", at(80), None),
        ("HighRequestErrorRate", at(250), None),
    ]
    assert len(refused) == 1, "a file that cannot be read ends nothing"


def test_alerts_that_cannot_be_read_are_refused_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path / "s", objects=None, alerts={"one": [RULE, {"labels": {}}, RULE | {"activeAt": "noon"}]})
    (tmp_path / "s" / "alerts.json").write_text('[\n{"labels": }]')
    refused = Refused()
    found = itbench.read_alerts(tmp_path / "s", Redactor(KEY), end=at(300), refuse=refused)
    assert [one.reason for one in found] == ["HighRequestErrorRate"]
    broken, no_time, noon = sorted(refused)
    assert broken.startswith("alerts.json 1:")
    assert "alerts_at_one.json 1:1 alert 2 of 3: Object missing required field `activeAt`" in no_time
    assert "alert 3 of 3: Invalid RFC3339" in noon


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("groups: [", "did not find expected node content"),
        ("groups: {a: 3}", r"Expected `array | null`, got `object`"),
        ("groups: [{kind: Pod, filter: ['a-.*']}]", "it names no root cause"),
        ("fault: []", "it names no root cause"),
        (
            "spec: {groups: [{id: h, kind: HorizontalPodAutoscaler, filter: ['*.*'], root_cause: true}]}",
            "the root cause \"h\": '*.*' is no regular expression",
        ),
        ("groups: [{id: h, kind: Pod, root_cause: true}]", 'the root cause "h" names no object'),
        ("spec: {entities: [{kind: Pod}]}", "missing required field `metadata`"),
    ],
)
def test_a_ground_truth_that_cannot_be_used_says_what_of_it(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / itbench.GROUND_TRUTH
    path.write_text(text)
    with pytest.raises(UnreadableError) as raised:
        itbench.read_ground_truth(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert problem in str(raised.value)
