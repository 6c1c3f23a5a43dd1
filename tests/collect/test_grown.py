"""A file that has grown since its import is read on from where it ended, and leaves what one import of all leaves."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from app.collect.files import Identity, identity
from app.collect.importer import Import, Report
from app.collect.inputs import survey
from app.collect.strict import InvalidInputError, check
from app.commands.importing import summary
from app.store import calls, changes, requests, rollouts, series, symptoms
from app.store.database import Database
from app.store.positions import read_positions, read_sizes
from tests.collect.test_importer import NOW, T0, UID, Lab, audited, lab, read, stamp, watched

__all__ = ["lab"]
END = T0 + timedelta(hours=1)


def followed(second: float, version: int) -> str:
    """What an operator writes of its own when the Deployment was written."""
    owner = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "web", "uid": UID, "controller": True}
    metadata = {"name": f"web-{version}", "namespace": "shop", "uid": f"u-{version}", "resourceVersion": str(version)}
    made = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata | {"ownerReferences": [owner]}}
    told = {
        "auditID": f"followed-{version}",
        "verb": "create",
        "user": {"username": "system:serviceaccount:ops:web-operator"},
        "objectRef": {"resource": "configmaps", "namespace": "shop", "name": f"web-{version}"},
        "responseStatus": {"code": 201},
        "responseObject": made | {"data": {"version": str(version)}},
    }
    return json.dumps(json.loads(read(second)) | told)


def warned(second: float) -> str:
    event = {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": f"e-{second}", "namespace": "shop", "uid": f"e-{second}"},
        "type": "Warning",
        "reason": "BackOff",
        "count": 1,
        "lastTimestamp": stamp(second),
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": "web-1"},
    }
    ref = {"resource": "events", "namespace": "shop", "name": f"e-{second}"}
    told = {"verb": "create", "objectRef": ref, "responseStatus": {"code": 201}, "responseObject": event}
    return json.dumps(json.loads(read(second)) | {"auditID": f"e-{second}"} | told)


def pod_seen(second: float, version: int, state: dict[str, Any]) -> str:
    """What the kubelet says of a pod."""
    ready = {"type": "Ready", "status": "True" if "running" in state else "False", "lastTransitionTime": stamp(2)}
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "pod", "resourceVersion": str(version)},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
        "status": {"phase": "Running", "conditions": [ready], "containerStatuses": [{"name": "web", "state": state}]},
    }
    ref = {"resource": "pods", "subresource": "status", "namespace": "shop", "name": "web-1"}
    told = {"auditID": f"pod-{version}", "verb": "patch", "objectRef": ref, "responseObject": pod}
    return json.dumps(json.loads(read(second)) | told)


CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
LINES = [
    read(1),
    audited(10, 12, "web:2"),
    followed(10.5, 13),
    "{broken password=hunter2secret",
    read(11),
    warned(12),
    "",
    pod_seen(12.5, 20, CRASHED),
    read(13).replace("2026-11-21", "1970-01-01"),
    audited(20, 14, "web:3"),
    followed(20.5, 15),
    pod_seen(20.7, 21, CRASHED),
    pod_seen(20.8, 22, {"running": {}}),
    read(21),
    warned(24),
    warned(31),
    audited(31, 16, "web:2"),
    read(61),
]
AUDIT = "\n".join(LINES) + "\n"
WATCH = "".join(
    watched(*seen) + "\n"
    for seen in ((0, 11, "web:1", "ADDED"), (10.1, 12, "web:2"), (20.1, 14, "web:3"), (31.1, 16, "web:2"))
)


async def everything(lab: Lab) -> dict[str, Any]:
    """What is recorded of a cluster, without its name."""
    async with lab.database.read.connect() as conn:
        changed = await changes.read_window(conn, lab.cluster, T0, END, limit=1000)
        ids = {change.id: f"{change.resource.name} at {change.at}" for change in changed}
        return {
            "changes": [
                (c.at, c.resource.name, c.summary, c.diffs, c.actor, c.sources, ids.get(c.begun_by or ""))
                for c in changed
            ],
            "calls": [repr(count) for count in await calls.read(conn, lab.cluster, T0, END)],
            "requests": [
                (one.at, one.key, one.name) for one in await requests.read(conn, lab.cluster, T0, END, limit=1000)
            ],
            "symptoms": [
                (one.at, one.ended_at, one.reason, one.count)
                for one in await symptoms.read_window(conn, lab.cluster, T0, END)
            ],
            "rollouts": [
                (one.started_at, one.outcome, one.images, ids.get(one.change_id or ""))
                for one in await rollouts.read_window(conn, lab.cluster, T0, END)
            ],
            "quarantine": sorted(tuple(row) for row in await lab.rows("quarantine", '"line", "column", reason, again')),
        }


async def imported(lab: Lab, *paths: Path, strict: bool = False) -> Report:
    """As the command does it: with what is known of earlier imports."""
    async with lab.database.read.connect() as conn:
        found = survey([str(path) for path in paths], await read_sizes(conn, lab.cluster))
        known = await read_positions(conn, lab.cluster)
    if strict:
        check(found.inputs, now=NOW, known=known)
    return await Import(lab.database.write, lab.cluster, now=NOW, progress=lambda *_: None).run(list(found.inputs))


@pytest.fixture
async def at_once(database: Database, tmp_path: Path) -> dict[str, Any]:
    """What one import of the whole log leaves."""
    lab = Lab(database, f"at-once-{uuid4().hex[:8]}")
    log = tmp_path / "at-once.jsonl"
    log.write_text(AUDIT)
    await imported(lab, log)
    found = await everything(lab)
    assert [len(found[name]) for name in ("changes", "symptoms", "quarantine")] == [5, 2, 2]
    assert [T0 + timedelta(seconds=12), T0 + timedelta(seconds=31), "BackOff", 3] in map(list, found["symptoms"])
    assert found["changes"][1][-1].startswith("web at"), "one follows from the other"
    return found


BEHIND = [len("\n".join(LINES[:number])) + 1 for number in range(1, len(LINES))]
CUTS = {
    "between a write and what follows from it": [BEHIND[1]],
    "behind a line without its newline": [BEHIND[1] - 1],
    "in the midst of a write": [BEHIND[1] + 700],
    "in the first line": [50],
    "behind a bad line": [BEHIND[3]],
    "in a bad line": [BEHIND[3] - 9],
    "in an empty line": [BEHIND[5], BEHIND[5] + 1],
    "in a minute": [BEHIND[11]],
    "while a pod crashes": [BEHIND[7], BEHIND[11]],
    "again and again": [70, BEHIND[1] - 1, BEHIND[4] + 400, BEHIND[4] + 500, BEHIND[9], BEHIND[9] + 20],
    "behind each line": BEHIND,
}


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
async def test_a_log_that_grew_leaves_what_one_import_leaves(
    lab: Lab, tmp_path: Path, at_once: dict[str, Any], cuts: list[int]
) -> None:
    log = tmp_path / "audit.jsonl"
    for cut in (*cuts, len(AUDIT)):
        log.write_text(AUDIT[:cut])
        await imported(lab, log)
    found = await everything(lab)
    for name, expected in at_once.items():
        assert found[name] == expected, name
    assert (await imported(lab, log)).skipped == [str(log)]


async def test_a_log_and_its_watch_grow_together(lab: Lab, database: Database, tmp_path: Path) -> None:
    log, watch = tmp_path / "audit.jsonl", tmp_path / "watch.jsonl"
    log.write_text(AUDIT)
    watch.write_text(WATCH)
    whole = Lab(database, f"whole-{uuid4().hex[:8]}")
    await imported(whole, log, watch)
    for lines, events in ((2, 1), (2, 2), (9, 2), (10, 3), (11, 3), (len(LINES), 4)):
        log.write_text("".join(AUDIT.splitlines(keepends=True)[:lines]))
        watch.write_text("".join(WATCH.splitlines(keepends=True)[:events]))
        await imported(lab, log, watch)
    expected = await everything(whole)
    for name, found in (await everything(lab)).items():
        assert found == expected[name], name


async def test_a_log_that_grew_says_so(lab: Lab, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(AUDIT[: BEHIND[4] + 100])
    first = await imported(lab, log)
    assert "was it still being written? Import it again" in " ".join(first.problems)
    log = log.rename(tmp_path / "audit-rotated.jsonl")
    log.write_text(AUDIT)
    report = await imported(lab, log)
    assert report.tally.lines == 12
    assert f"{log}: read on from line 6, where it ended at the last import" in summary(report, [])


async def test_the_longest_known_beginning_counts_also_where_its_import_was_killed(
    lab: Lab, tmp_path: Path, at_once: dict[str, Any]
) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(AUDIT[: BEHIND[1]])
    await imported(lab, log)
    log.write_text(AUDIT[: BEHIND[10]])
    async with lab.database.read.connect() as conn:
        found = survey([str(log)], await read_sizes(conn, lab.cluster))
    until = T0 + timedelta(seconds=15)
    await Import(lab.database.write, lab.cluster, now=NOW, progress=lambda *_: None, until=until).run(
        list(found.inputs)
    )
    log.write_text(AUDIT)
    report = await imported(lab, log)
    assert report.read_on == [f"{log}: read on from line 10, where it ended at the last import"]
    assert await everything(lab) == at_once


@pytest.mark.parametrize("beginning", [read(2), "", read(1) + "\n"])
async def test_a_log_that_was_rewritten_or_shrank_is_another(lab: Lab, tmp_path: Path, beginning: str) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(AUDIT)
    await imported(lab, log)
    log.write_text(f"{beginning}\n{read(71)}\n")
    report = await imported(lab, log)
    assert (report.read_on, report.skipped) == ([], [])
    assert report.tally.calls == 1 + bool(beginning)


async def test_strict_asks_for_what_is_to_be_read_alone(lab: Lab, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(AUDIT[: BEHIND[3]])
    await imported(lab, log)
    log.write_text(AUDIT[: BEHIND[5]])
    assert (await imported(lab, log, strict=True)).tally.calls == 2
    log.write_text(AUDIT[: BEHIND[5]] + read(14)[:100])
    with pytest.raises(InvalidInputError, match="line 7, "):
        await imported(lab, log, strict=True)
    log.write_text(AUDIT)
    with pytest.raises(InvalidInputError, match="line 9, column 1: the time"):
        await imported(lab, log, strict=True)
    assert len(await lab.rows("import_positions")) == 1


async def test_what_is_appended_to_an_archive_is_read_alone(lab: Lab, tmp_path: Path, at_once: dict[str, Any]) -> None:
    archive, cut = tmp_path / "audit.jsonl.gz", BEHIND[8] + 30
    first, second = (gzip.compress(part.encode(), mtime=0) for part in (AUDIT[:cut], AUDIT[cut:]))
    for data in (first, first + second[:-4], first + second):
        archive.write_bytes(data)
        report = await imported(lab, archive)
        assert (report.read_on == []) == (data == first)
    assert await everything(lab) == at_once


FAMILY = '# TYPE {0} gauge\n{0}{{a="b"}} 1 {1}\n{0}{{a="c"}} 2 {1}\n'
METRICS = "".join(FAMILY.format(f"apiserver_{n}", T0.timestamp() + n) for n in range(6)) + "apiserver_5 no number\n"


async def test_metrics_are_read_on_from_their_last_family(lab: Lab, database: Database, tmp_path: Path) -> None:
    file, whole = tmp_path / "metrics.om", Lab(database, f"whole-{uuid4().hex[:8]}")

    async def recorded(of: Lab) -> tuple[object, ...]:
        async with database.read.connect() as conn:
            found = await series.read(conn, of.cluster, T0, END)
        rejects = await of.rows("quarantine", '"line", reason')
        return sorted((one.name, one.kind, one.labels, one.times, one.values) for one in found), rejects

    file.write_text(METRICS)
    await imported(whole, file)
    for cut in (len(METRICS) // 5, len(METRICS) // 2, len(METRICS) - 10, len(METRICS)):
        file.write_text(METRICS[:cut])
        report = await imported(lab, file)
    assert report.read_on == [f"{file}: read on from line 16, where it ended at the last import"]
    assert await recorded(lab) == await recorded(whole)


async def test_payloads_that_became_more_are_each_told_once(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "alerts.json"
    payloads = [
        json.dumps({"version": "4", "alerts": [{"startsAt": stamp(n), "labels": {"alertname": "A"}}]}) for n in (1, 2)
    ]
    file.write_text(payloads[0] + "\n" + payloads[1][:40])
    await imported(lab, file)
    file.write_text("\n".join(payloads))
    report = await imported(lab, file)
    assert (len(report.alerts), report.read_on) == (2, [])
    found = await everything(lab)
    assert (len(found["symptoms"]), found["quarantine"]) == (2, [])


async def test_what_is_written_during_an_import_is_left_for_the_next(lab: Lab, tmp_path: Path, at_once: Any) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(AUDIT[: BEHIND[2]])
    found = survey([str(log)])
    log.write_text(AUDIT)
    await Import(lab.database.write, lab.cluster, now=NOW, progress=lambda *_: None).run(list(found.inputs))
    assert [row[0] for row in await lab.rows("import_positions", '"offset"')] == [BEHIND[2]]
    await imported(lab, log)
    assert await everything(lab) == at_once


def test_every_known_beginning_is_found_by_reading_once(tmp_path: Path) -> None:
    file, data = tmp_path / "file", bytes(range(256)) * (3 << 12)
    known: dict[int, list[str]] = {}
    ends = [1, 70_000, 1 << 20, (1 << 20) + 1, 2 << 20]
    for size in ends:
        file.write_bytes(data[:size])
        known[size] = ["another", identity(str(file)).file_hash]
    file.write_bytes(data)
    whole = identity(str(file))
    stat = file.stat()
    assert whole == Identity(whole.file_hash, len(data), inode=(stat.st_dev, stat.st_ino))
    assert identity(str(file), known) == replace(whole, grew_from=known[2 << 20][1])
    known.pop(2 << 20)
    assert identity(str(file), known).grew_from == known[(1 << 20) + 1][1]
    assert identity(str(file), {size: ["another"] for size in ends}) == whole
