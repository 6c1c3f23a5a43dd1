"""Lines made to hurt: each is refused or cleaned, in words, and the good ones around it are stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from app.collect.importer import Import
from app.collect.inputs import find_inputs
from app.store import changes
from app.store.database import Database

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BASE = {
    "kind": "Event",
    "apiVersion": "audit.k8s.io/v1",
    "auditID": "x",
    "stage": "ResponseComplete",
    "requestURI": "/api/v1/namespaces/a/configmaps/b",
    "verb": "update",
    "user": {"username": "u"},
    "objectRef": {"resource": "configmaps", "namespace": "a", "name": "b"},
    "responseStatus": {"code": 200},
    "requestReceivedTimestamp": "2026-11-21T11:00:00Z",
    "stageTimestamp": "2026-11-21T11:00:00Z",
}


def write(version: int, data: str) -> bytes:
    meta = f'{{"name":"b","namespace":"a","uid":"u1","resourceVersion":"{version}"}}'
    body = f'{{"kind":"ConfigMap","apiVersion":"v1","metadata":{meta},"data":{data}}}'
    event = json.dumps(BASE | {"auditID": f"x-{version}"})
    return (event[:-1] + f',"responseObject":{body}}}').encode()


def column(line: bytes, before: bytes) -> str:
    return f", line 2, column {line.index(before) + 1}: "


NAN = write(5, '{"a":NaN}')
ARRAY = json.dumps({**BASE, "responseObject": [1]}).encode()
STRING = json.dumps({**BASE, "responseObject": "s"}).encode()
VERB = json.dumps({**BASE, "verb": 7}).encode()
PODS = {"authentication.kubernetes.io/pod-name": ["é", 3]}
POD = json.dumps({**BASE, "user": {"username": "é", "extra": PODS}}, ensure_ascii=False).encode()
NO_EVENT = "no audit event (audit.k8s.io/v1)"
DEEP = b"[" * 100_000 + b"]" * 100_000
HOSTILE = {
    "nan": (NAN, column(NAN, b"NaN") + "not JSON: JSON is malformed"),
    "deep in what is read": (write(5, DEEP.decode()), ", column 1: nested deeper than the 900 levels that are read"),
    "deep in what is not": (b'{"a":' + DEEP + b"}", ", column 1: nested deeper than the 900 levels"),
    "not utf-8": (b'{"kind":"Event","verb":"\xff"}', ", line 2, column 25: the byte 0xff is not UTF-8"),
    "not utf-8 in another object": (b'{"level":"\xfe"}', ", line 2, column 11: the byte 0xfe is not UTF-8"),
    "no json": (b"what", ", line 2, column 1: not JSON: JSON is malformed"),
    "another object": (b' {"kind":"Pod"}', f", column 2: {NO_EVENT}: Object missing required field `stage`"),
    "a number for a verb": (VERB, column(VERB, b'7, "user"') + NO_EVENT),
    "a number for a pod": (POD, column(POD, b'{"authentication') + NO_EVENT),
    "an array for an object": (ARRAY, column(ARRAY, b"[1]") + "the object in it cannot be read: no object: Expected"),
    "a string for an object": (STRING, column(STRING, b'"s"}') + "the object in it cannot be read: no object: Exp"),
    "the year one": (json.dumps({**BASE, "requestReceivedTimestamp": "0001-01-01T00:00:00Z"}).encode(), "days ago"),
    "too long": (b"x" * (17 << 20), "16 MiB"),
    "cut": (b'{"trunc', ", line 2, column 7: not JSON: Input data was truncated; was it still being written?"),
}
ODD = {
    "a number without end": write(5, '{"a":1e100000}'),
    "nul": write(5, '{"a":"\\u0000x"}'),
    "a key twice": write(5, '{"a":"1","a":"2"}'),
    "four hundred digits": write(5, '{"a":' + "1" * 400 + "}"),
    "an id of 7 kB": json.dumps({**BASE, "auditID": "y" * 7000}).encode(),
    "no id": json.dumps({**BASE, "auditID": ""}).encode(),
    "nobody": json.dumps({**BASE, "user": {}}).encode(),
    "windows": write(5, '{"a":"5"}') + b"\r",
}


async def imported(database: Database, folder: Path, line: bytes) -> tuple[list[str], list[str]]:
    """What was said of the lines, and the last value of the object that the good lines write around the bad one."""
    cluster = f"h-{uuid4().hex[:8]}"
    path = folder / "audit.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join([write(1, '{"a":"1"}'), line, write(9, '{"a":"good"}')]) + b"\n")
    run = Import(database.write, cluster, now=NOW, progress=lambda *_: None)
    report = await run.run(find_inputs([str(path)]))
    async with database.read.connect() as conn:
        found = await changes.read_window(conn, cluster, NOW.replace(hour=10), NOW, limit=10)
    return report.problems, [str(d.new) for change in found for d in change.diffs]


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_hurts_is_refused_and_the_rest_is_stored(database: Database, tmp_path: Path, name: str) -> None:
    line, said = HOSTILE[name]
    problems, values = await imported(database, tmp_path, line)
    assert len(problems) == 1
    assert ", line 2, " in problems[0]
    assert said in problems[0]
    assert "good" in values


@pytest.mark.parametrize("name", ODD)
async def test_what_is_odd_is_stored_clean(database: Database, tmp_path: Path, name: str) -> None:
    problems, values = await imported(database, tmp_path, ODD[name])
    assert problems == []
    assert "good" in values
