from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from app.collect.dumps import items
from app.collect.files import UnreadableError
from app.collect.inputs import InputKind, find_inputs, survey

AUDIT = {"kind": "Event", "apiVersion": "audit.k8s.io/v1", "stage": "ResponseComplete", "verb": "get"}
WATCH = {"at": "2026-11-20T12:00:00Z", "type": "ADDED", "object": {"kind": "Pod", "apiVersion": "v1"}}
ALERTS = {"version": "4", "groupKey": "{}", "alerts": []}
LIST = {"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]}


def recording(folder: Path) -> Path:
    (folder / "audit.jsonl.gz").write_bytes(gzip.compress(json.dumps(AUDIT).encode()))
    (folder / "watch.jsonl").write_text(json.dumps(WATCH))
    (folder / "alerts.json").write_text(json.dumps(ALERTS, indent=1))
    (folder / "metrics.om").write_text("# TYPE up gauge\nup 1 1795238501\n# EOF\n")
    (folder / "state.json").write_text(json.dumps({"pods": LIST}))
    (folder / "label.json").write_text('{"culprit": null}')
    return folder


def test_a_recording_is_its_files_without_the_answer(tmp_path: Path) -> None:
    found = find_inputs([str(recording(tmp_path))])
    assert [one.kind for one in found] == [
        InputKind.AUDIT,
        InputKind.WATCH,
        InputKind.METRICS,
        InputKind.ALERTS,
        InputKind.DUMP,
    ]
    assert not any("label" in one.path for one in found)


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    folder = recording(tmp_path)
    assert len(find_inputs([str(folder), str(folder / "watch.jsonl")])) == 5


@pytest.mark.parametrize(("text", "said"), [("", "empty"), ("binary\n", "neither"), ("   \n", "empty")])
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UnreadableError, match=said):
        find_inputs([str(tmp_path / "x")])


def test_a_file_of_another_kind_in_a_folder_is_passed_over_in_words(tmp_path: Path) -> None:
    folder = recording(tmp_path)
    (folder / "notes.txt").write_text("we saw it at noon\n")
    (folder / "package.json").write_text('{"name": "x", "version": "1"}')
    (folder / "nothing.log").write_text("")
    found = survey([str(folder)])
    assert len(found.inputs) == 5
    assert [told.removeprefix(str(folder)).split(": ")[0] for told in found.unknown] == [
        "/notes.txt",
        "/nothing.log",
        "/package.json",
    ]
    with pytest.raises(UnreadableError, match=r"notes\.txt: is neither"):
        survey([str(folder), str(folder / "notes.txt")])


def test_a_folder_of_nothing_we_know_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("we saw it at noon\n")
    with pytest.raises(UnreadableError, match=r"notes\.txt"):
        survey([str(tmp_path)])


def test_a_log_whose_first_line_is_cut_is_still_a_log(tmp_path: Path) -> None:
    (tmp_path / "rotated").write_text('gs":{}}\n{"kind": "Eve\n' + json.dumps(AUDIT) + "\n")
    (found,) = find_inputs([str(tmp_path / "rotated")])
    assert found.kind is InputKind.AUDIT


def test_the_answer_of_a_recording_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = recording(tmp_path)
    for label in ({"culprit": None}, LIST):
        (folder / "label.json").write_text(json.dumps(label))
        with pytest.raises(UnreadableError, match="answer of a recording"):
            survey([str(folder / "watch.jsonl"), str(folder / "label.json")])


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
LONG = {"apiVersion": "v1", "data": {"a": "x" * 100_000}, "kind": "ConfigMap", "metadata": {"name": "a"}}
EVENTS = {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": [AUDIT]}
DOCUMENTS: dict[str, tuple[object, InputKind | str]] = {
    "an audit event": (AUDIT, InputKind.AUDIT),
    "an EventList": (EVENTS, InputKind.AUDIT),
    "an empty EventList": ({**EVENTS, "items": []}, InputKind.AUDIT),
    "an array of audit events": ([AUDIT, AUDIT], InputKind.AUDIT),
    "a large audit event": ({**AUDIT, "responseObject": LONG}, InputKind.AUDIT),
    "a watch event": (WATCH, InputKind.WATCH),
    "a List of watch events": ({"apiVersion": "v1", "items": [WATCH], "kind": "List"}, InputKind.WATCH),
    "a large watch event": ({**WATCH, "object": LONG}, InputKind.WATCH),
    "a watch event without a time": ({"type": "ADDED", "object": POD}, "have no time"),
    "an array of them": ([{"type": "ADDED", "object": POD}] * 2, "have no time"),
    "alerts": (ALERTS, InputKind.ALERTS),
    "a typed List": (LIST, InputKind.DUMP),
    "Events of the cluster": (
        {"kind": "EventList", "apiVersion": "v1", "items": [{"type": "Warning"}]},
        InputKind.DUMP,
    ),
    "an object": (POD, InputKind.DUMP),
    "an object whose kind comes late": (LONG, InputKind.DUMP),
    "a map of Lists": ({"pods": LIST, "services": LIST}, InputKind.DUMP),
    "a large map of Lists": ({"pods": {**LIST, "items": [LONG]}, "services": LIST}, InputKind.DUMP),
    "a Table": ({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": []}, "Table"),
    "a label": ({"culprit": {"kind": "Pod", "name": "a"}}, "neither"),
    "a kind and no more": ({"kind": "Pod", "name": "a"}, "neither"),
    "a manifest of another sort": ({"name": "x", "metadata": {"kind": "items"}, "scripts": {"items": 1}}, "neither"),
    "a large one": ({"name": "x" * 100_000, "kind": "x"}, "neither"),
    "a text": ("what", "neither"),
    "numbers": ([1, 2], "neither"),
}


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_told_by_its_fields(tmp_path: Path, name: str, indent: int | None) -> None:
    document, expected = DOCUMENTS[name]
    (tmp_path / "x").write_text(json.dumps(document, indent=indent) + "\n")
    if isinstance(expected, InputKind):
        (found,) = find_inputs([str(tmp_path / "x")])
        assert found.kind is expected
    else:
        with pytest.raises(UnreadableError, match=expected):
            find_inputs([str(tmp_path / "x")])


def test_metrics_are_told_with_the_line_ends_of_windows(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"up 1\r\nup 2\r\n")
    assert find_inputs([str(tmp_path / "x")])[0].kind is InputKind.METRICS


@pytest.mark.parametrize(
    "document", [LIST, {"pods": LIST}, {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}]
)
def test_a_dump_has_many_shapes(document: dict[str, object]) -> None:
    (item,) = items(json.dumps(document).encode())
    found = json.loads(bytes(item))
    assert (found["kind"], found["metadata"]["name"]) == ("Pod", "a")
