"""Events however they are printed: over several lines, several on one, in lists; an import goes on behind any."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.collect import logs
from app.collect.entries import Reading, decoded
from app.collect.files import Line
from app.collect.inputs import Input, InputKind
from app.collect.intake import Intake, Place
from app.core.model import Reject
from app.core.objects.redact import Redactor

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEY = b"a key that only the tests know.."
REDACTOR = Redactor(KEY)
Event = dict[str, Any]
Where = tuple[int, int, str, bool]
"""Line, column and reason of what was refused, and whether it is to be read again."""


def event(number: int) -> Event:
    at = f"2026-11-21T11:00:{number:02d}Z"
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "auditID": f"id-{number}",
        "stage": "ResponseComplete",
        "verb": "update",
        "user": {"username": 'bob "the builder" {[', "groups": []},
        "objectRef": {"resource": "configmaps", "namespace": "a", "name": "b"},
        "requestReceivedTimestamp": at,
        "stageTimestamp": at,
        "responseObject": {"kind": "PodList", "items": [{"metadata": {}}, {"a": ["}", "]", "\\"]}]},
    }


def listed(kind: str, events: list[Event], **beside: object) -> Event:
    """A list as Go writes it: EventList with the kind first, kubectl's List in the order of the alphabet."""
    whole = {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": ""}, "items": events} | beside
    return dict(sorted(whole.items())) if kind == "List" else whole


def lines(*documents: object, indent: int | None = None) -> str:
    return "".join(json.dumps(one, indent=indent) + "\n" for one in documents)


FORMS: dict[str, Callable[[list[Event]], str]] = {
    "one a line": lambda events: lines(*events),
    "pretty": lambda events: lines(*events, indent=4),
    "pretty, by tabs and carriage returns": lambda events: "".join(
        json.dumps(one, indent="\t").replace("\n", "\r\n") + "\r\n" for one in events
    ),
    "pretty, one behind the other": lambda events: lines(*events, indent=2).replace("}\n{", "}{"),
    "several a line": lambda events: (
        lines(*events[:3]).replace("\n", " ") + "\n" + lines(*events[3:]).replace("\n", "")
    ),
    "an array": json.dumps,
    "an array, pretty": lambda events: lines(events, indent=2),
    "an array, one a line": lambda events: "[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n",
    "an EventList": lambda events: lines(listed("EventList", events[:2]), listed("EventList", events[2:])),
    "an EventList, pretty": lambda events: lines(
        listed("EventList", events[:2]), listed("EventList", events[2:]), indent=1
    ),
    "a List": lambda events: lines(listed("List", events)),
    "a List, pretty": lambda events: lines(listed("List", events[:1]), listed("List", events[1:]), indent=4),
    "empty lists between": lambda events: "[]\n" + lines(*events, listed("EventList", []), []),
    "mixed": lambda events: (
        lines(events[0], events[1], indent=4) + lines(events[2:4], events[4]) + "\n\n" + lines(*events[5:])
    ),
    "pretty, without a last newline": lambda events: lines(*events, indent=4).rstrip("\n"),
}
EVENTS = [event(number) for number in range(8)]


def read(path: Path, *, offset: int = 0, passed: int = 0) -> tuple[list[tuple[str, Line]], list[Reject]]:
    """The events of a file by their ids, each with its line; and what was refused."""
    intake = Intake("c", REDACTOR, now=NOW)
    reading = Reading(Input(str(path), InputKind.AUDIT, "hash"), offset, passed)
    found = []
    for entry in decoded(reading, intake, 0):
        if entry.refused:
            problem, column = entry.refused
            intake.reject(str(path), entry.line, problem, column=column)
        elif entry.audit:
            found.append((entry.audit.auditID, entry.line))
    return found, intake.take({}).rejects


@pytest.mark.parametrize("form", FORMS)
def test_events_are_read_however_they_are_printed(tmp_path: Path, form: str) -> None:
    (tmp_path / "log").write_text(FORMS[form](EVENTS), newline="")
    found, refused = read(tmp_path / "log")
    assert refused == []
    assert [name for name, _ in found] == [one["auditID"] for one in EVENTS]
    assert [json.loads(line.data) for _, line in found] == EVENTS


@pytest.mark.parametrize("form", FORMS)
def test_behind_each_event_reading_goes_on_as_if_it_had_not_stopped(tmp_path: Path, form: str) -> None:
    text = FORMS[form](EVENTS)
    (tmp_path / "log").write_text(text + "no json\n", newline="")
    found, [last] = read(tmp_path / "log")
    for number, (_, line) in enumerate(found, start=1):
        rest, refused = read(tmp_path / "log", offset=line.end, passed=line.number + line.further)
        assert [name for name, _ in rest] == [name for name, _ in found[number:]]
        assert [(one.number, one.end, one.further) for _, one in rest] == [
            (one.number, one.end, one.further) for _, one in found[number:]
        ]
        assert [(one.line, one.excerpt) for one in refused] == [(last.line, last.excerpt)]


@pytest.mark.parametrize("form", FORMS)
def test_a_cut_takes_no_whole_event_with_it(tmp_path: Path, form: str) -> None:
    whole = FORMS[form](EVENTS)
    good = [one["auditID"] for one in EVENTS]
    for cut in range(1, len(whole), 13):
        (tmp_path / "log").write_text(whole[:cut], newline="")
        found, refused = read(tmp_path / "log")
        assert [name for name, _ in found] == good[: len(found)]
        assert len(found) >= whole[:cut].count('"id-') - 1
        assert len(refused) <= 1
        (tmp_path / "log").write_text(whole[cut:], newline="")
        found, refused = read(tmp_path / "log")
        assert [name for name, _ in found] == good[len(good) - len(found) :]
        begun_on_later_lines = whole[cut:].partition("\n")[2].count('"audit.k8s.io/v1"')
        assert len(found) >= begun_on_later_lines - (1 if "pretty" in form or form == "mixed" else 0), cut


@pytest.mark.parametrize("form", FORMS)
def test_a_log_cut_anywhere_is_read_on_from_there(tmp_path: Path, form: str) -> None:
    """In two parts as at once: what it ended within is refused by the first, and read again by the second."""
    log, whole = tmp_path / "log", FORMS[form]([*EVENTS[:3], {**EVENTS[3], "verb": 7}, *EVENTS[4:]])

    def part(text: str, *, offset: int = 0, passed: int = 0) -> tuple[list[int], list[Where], Place]:
        log.write_text(text, newline="")
        one = Input(str(log), InputKind.AUDIT, "hash")
        [piece] = logs.pieces(logs.Job("c", KEY, NOW, [logs.Log(one, offset, passed)]))
        told = [(one.line, one.column, one.reason, one.again) for one in piece.rejects]
        return [request.at.second for request in piece.requests], told, piece.places[0]

    events, refused, _ = part(whole)
    assert (events, len(refused)) == ([0, 1, 2, 4, 5, 6, 7], 1)
    for cut in range(1, len(whole), 17):
        first, kept, place = part(whole[:cut])
        rest, more, _ = part(whole, offset=place.offset, passed=place.lines)
        assert first + rest == events, cut
        assert [one for one in kept if not one[-1]] + more == refused, cut


def test_a_line_that_is_cut_takes_no_other_with_it(tmp_path: Path) -> None:
    first, second = map(json.dumps, EVENTS[:2])
    for cut in range(1, len(first)):
        (tmp_path / "log").write_text(f"{first[:cut]}\n{second}\n")
        found, refused = read(tmp_path / "log")
        assert [name for name, _ in found] == ["id-1"]
        assert [one.line for one in refused] == [1]
        assert "truncated" in refused[0].reason or "JSON" in refused[0].reason


def test_what_is_wrong_in_a_printed_event_is_told_where_it_stands(tmp_path: Path) -> None:
    text = lines(EVENTS[0], {**EVENTS[1], "verb": 7}, EVENTS[2], indent=4)
    (tmp_path / "log").write_text(text)
    found, [refused] = read(tmp_path / "log")
    assert [name for name, _ in found] == ["id-0", "id-2"]
    number = text.splitlines().index('    "verb": 7,') + 1
    assert (refused.line, refused.column) == (number, len('    "verb": ') + 1)
    second = lines(*EVENTS[:2]).replace("\n", " ")
    (tmp_path / "log").write_text(second + '{"verb": 7}\n')
    _, [refused] = read(tmp_path / "log")
    assert (refused.line, refused.column) == (1, len(second) + len('{"verb": ') + 1) or "stage" in refused.reason


def test_a_long_run_of_rubbish_is_told_as_one_and_stops_nothing(tmp_path: Path) -> None:
    rest = "".join(f'    "key-{n}": "value",\n' for n in range(500)) + "}\n"
    (tmp_path / "log").write_text(rest + lines(*EVENTS, indent=4))
    found, refused = read(tmp_path / "log")
    assert len(found) == len(EVENTS)
    assert [(one.line, one.reason) for one in refused] == [
        (1, "the rest of an event whose beginning is missing, 501 lines")
    ]


@pytest.mark.parametrize(
    "line", ["[1, 2]", "{}", '{"a": [', "[" * 2000, '{"a":' * 2000, "]" * 9, '{"items": [', "],", '],"']
)
def test_odd_brackets_take_no_event_with_them(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(lines(EVENTS[0]) + line + "\n" + lines(*EVENTS[1:]))
    found, _ = read(tmp_path / "log")
    assert [name for name, _ in found] == [one["auditID"] for one in EVENTS]


def test_a_piece_of_a_log_says_where_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LINES", 3)
    (tmp_path / "log").write_text(FORMS["a List, pretty"](EVENTS))
    one = Input(str(tmp_path / "log"), InputKind.AUDIT, "hash")
    whole = list(logs.pieces(logs.Job("c", b"k" * 32, NOW, [logs.Log(one, 0, 0)])))
    told = [s.audit_id for piece in whole for s in piece.sightings]
    for number, piece in enumerate(whole[:-1], start=1):
        place = piece.places[0]
        rest = logs.pieces(logs.Job("c", b"k" * 32, NOW, [logs.Log(one, place.offset, place.lines)]))
        assert [s.audit_id for piece in rest for s in piece.sightings] == told[3 * number :]


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_a_log_that_is_not_read_to_its_end_still_says_where_it_is(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    size = (tmp_path / "log").write_bytes(pack(lines(*EVENTS).encode()))
    reading = Reading(Input(str(tmp_path / "log"), InputKind.AUDIT, "hash", size=size))
    found = decoded(reading, Intake("c", REDACTOR, now=NOW), 0)
    next(found)
    found.close()  # type: ignore[attr-defined] # a generator
    assert reading.place().stored_bytes == size
