"""Files into a real database: both tellings of a write meet, a killed import goes on, the same file adds nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import zstandard
from sqlalchemy import Row, text

from app.collect.dumps import made_at
from app.collect.files import UnreadableError
from app.collect.importer import Import, Report
from app.collect.inputs import find_inputs, survey
from app.collect.logs import LINES
from app.collect.strict import InvalidInputError, check
from app.commands.importing import expired
from app.core.model import ActorSource, Change
from app.store import changes, retention
from app.store.database import Database

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
T0 = datetime(2026, 11, 21, 11, tzinfo=UTC)
UID = "11111111-2222-3333-4444-555555555555"


def stamp(second: float) -> str:
    return (T0 + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")


def deployment(version: int, image: str) -> dict[str, object]:
    container = {"name": "web", "image": image}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": UID,
            "resourceVersion": str(version),
            "generation": version,
            "creationTimestamp": "2026-11-20T00:00:00Z",
            "managedFields": [
                {"manager": "kubectl-set", "operation": "Update", "time": stamp(version), "apiVersion": "apps/v1"}
            ],
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
    }


def audited(second: float, version: int, image: str) -> str:
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": f"id-{version}",
        "stage": "ResponseComplete",
        "requestURI": "/apis/apps/v1/namespaces/shop/deployments/web",
        "verb": "patch",
        "user": {"username": "alice"},
        "userAgent": "kubectl/v1.34",
        "objectRef": {"resource": "deployments", "namespace": "shop", "name": "web", "apiGroup": "apps"},
        "responseStatus": {"code": 200},
        "requestObject": {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}}},
        "responseObject": deployment(version, image),
        "requestReceivedTimestamp": stamp(second),
        "stageTimestamp": stamp(second + 0.01),
    }
    return json.dumps(event)


def watched(second: float, version: int, image: str, kind: str = "MODIFIED") -> str:
    return json.dumps({"at": stamp(second), "type": kind, "object": deployment(version, image)})


def read(second: float, user: str = "agent") -> str:
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "auditID": f"r-{second}",
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/pods",
        "verb": "list",
        "user": {"username": user},
        "objectRef": {"resource": "pods"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": stamp(second),
        "stageTimestamp": stamp(second),
    }
    return json.dumps(event)


AUDIT = "\n".join([read(1), audited(10, 12, "web:2"), read(15), audited(20, 13, "web:3"), read(25)]) + "\n"
WATCH = "\n".join([watched(0, 11, "web:1", "ADDED"), watched(10.1, 12, "web:2"), watched(20.1, 13, "web:3")]) + "\n"


@dataclass(frozen=True)
class Lab:
    """One cluster that nothing else writes to."""

    database: Database
    cluster: str

    async def imported(self, *paths: Path, until: datetime | None = None) -> Report:
        found = survey([str(path) for path in paths])
        run = Import(self.database.write, self.cluster, now=NOW, progress=lambda *_: None, until=until)
        report = await run.run(list(found.inputs))
        report.passed_over += [*found.damaged, *found.unknown]
        return report

    async def stored(self) -> list[Change]:
        async with self.database.read.connect() as conn:
            found = await changes.read_window(conn, self.cluster, T0 - timedelta(hours=1), NOW, limit=100)
        return sorted(found, key=lambda c: c.at)

    async def rows(self, table: str, columns: str = "count(*)") -> list[Row[Any]]:
        query = f"SELECT {columns} FROM {table} WHERE cluster_id = (SELECT id FROM clusters WHERE name = :name)"
        async with self.database.read.connect() as conn:
            return list((await conn.execute(text(query), {"name": self.cluster})).all())


@pytest.fixture
def lab(database: Database) -> Lab:
    return Lab(database, f"lab-{uuid4().hex[:8]}")


def dated(path: Path) -> Path:
    """The file as one that was written NOW: a dump is no younger than its file."""
    os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    return path


def write(folder: Path, **files: str) -> list[Path]:
    paths = []
    for name, body in files.items():
        path = folder / f"{name}.jsonl"
        path.write_text(body)
        paths.append(dated(path))
    return paths


async def test_a_write_told_twice_is_one_change(lab: Lab, tmp_path: Path) -> None:
    await lab.imported(*write(tmp_path, audit=AUDIT, watch=WATCH))
    first, second = await lab.stored()
    assert [d.new for d in first.diffs] == ["web:2"]
    assert (first.actor.name, first.actor.source) == ("alice", ActorSource.AUDIT)
    assert first.sources == second.sources == {"audit", "watch"}


@pytest.mark.parametrize("order", [("audit", "watch"), ("watch", "audit")])
async def test_the_files_may_come_one_after_the_other(lab: Lab, tmp_path: Path, order: tuple[str, str]) -> None:
    audit, watch = write(tmp_path, audit=AUDIT, watch=WATCH)
    for name in order:
        await lab.imported(audit if name == "audit" else watch)
    found = await lab.stored()
    assert len(found) == 2
    assert {c.actor.name for c in found} == {"alice"}


async def test_without_an_audit_log_the_field_manager_is_the_actor(lab: Lab, tmp_path: Path) -> None:
    await lab.imported(*write(tmp_path, watch=WATCH))
    found = await lab.stored()
    assert {(c.actor.name, c.actor.source) for c in found} == {("kubectl-set", ActorSource.MANAGED_FIELDS)}


async def test_the_same_file_twice_adds_nothing(lab: Lab, tmp_path: Path) -> None:
    paths = write(tmp_path, audit=AUDIT, watch=WATCH)
    await lab.imported(*paths)
    before = [await lab.rows(table) for table in ("changes", "call_minutes", "requests")]
    report = await lab.imported(*paths)
    after = [await lab.rows(table) for table in ("changes", "call_minutes", "requests")]
    assert before == after
    assert sorted(report.skipped) == sorted(str(p) for p in paths)


async def test_a_log_rotated_with_overlap_counts_each_request_once(lab: Lab, tmp_path: Path) -> None:
    earlier, later = AUDIT.splitlines()[:4], AUDIT.splitlines()[1:]
    paths = write(tmp_path, one="\n".join(earlier) + "\n", two="\n".join(later) + "\n")
    report = await lab.imported(*paths)
    assert report.tally.calls == 5
    assert report.tally.repeated == 3
    assert [row[0] for row in await lab.rows("call_minutes", "sum(total)")] == [5]
    assert [row[0] for row in await lab.rows("requests")] == [2]
    assert len(await lab.stored()) == 2


async def test_an_overlap_told_by_a_later_import_makes_no_second_change(lab: Lab, tmp_path: Path) -> None:
    one, two = write(tmp_path, one=AUDIT, two="\n".join(AUDIT.splitlines()[1:]) + "\n")
    await lab.imported(one)
    before = await lab.stored()
    await lab.imported(two)
    assert await lab.stored() == before
    assert [row[0] for row in await lab.rows("call_minutes", "sum(total)")] == [9], "calls add up: docs/import.md"


async def test_a_log_shipped_twice_counts_each_request_once(lab: Lab, tmp_path: Path) -> None:
    lines = [read(n / 10) for n in range(9_000)]
    told = [line for n in range(0, 9_000, 1_000) for line in lines[n : n + 1_000] * 2]
    (path,) = write(tmp_path, audit="\n".join(told) + "\n")
    report = await lab.imported(path)
    assert (report.tally.calls, report.tally.repeated) == (9_000, 9_000)


async def test_one_audit_id_chosen_for_two_requests_is_two_calls(lab: Lab, tmp_path: Path) -> None:
    (path,) = write(tmp_path, audit=read(1) + "\n" + read(3).replace("r-3", "r-1") + "\n")
    report = await lab.imported(path)
    assert (report.tally.calls, report.tally.repeated) == (2, 0)


async def test_an_import_that_ended_early_goes_on_where_it_was(lab: Lab, tmp_path: Path) -> None:
    paths = write(tmp_path, audit=AUDIT, watch=WATCH)
    await lab.imported(*paths, until=T0 + timedelta(seconds=16))
    assert len(await lab.stored()) == 1
    rest = await lab.imported(*paths)
    assert len(await lab.stored()) == 2
    assert rest.tally.calls == 2  # not again what the first run counted


async def test_bad_lines_stand_in_quarantine_and_stop_nothing(lab: Lab, tmp_path: Path) -> None:
    bad = '{"kind": "Event", "stage": 7}\nnot json password=hunter2secret\n'
    (path,) = write(tmp_path, audit=read(1) + "\n" + bad + audited(10, 12, "web:2"))
    report = await lab.imported(path)
    assert report.tally.rejects == 2
    assert [problem.split(": ")[0].split(", ", 1)[1] for problem in report.problems] == [
        "line 2, column 28",
        "line 3, column 5",
    ]
    rows = sorted(await lab.rows("quarantine", "line, excerpt"), key=lambda row: row.line)
    assert [row.line for row in rows] == [2, 3]
    assert "hunter2secret" not in rows[1].excerpt
    assert len(await lab.stored()) == 1


async def test_times_that_cannot_be_are_refused(lab: Lab, tmp_path: Path) -> None:
    old = read(1).replace("2026-11-21", "1970-01-01")
    (path,) = write(tmp_path, audit=old + "\n" + read(2))
    report = await lab.imported(path)
    assert report.tally.rejects == 1
    assert "days ago" in report.problems[0]


async def test_what_is_older_than_its_retention_is_told(lab: Lab, tmp_path: Path) -> None:
    old = [line.replace("2026-11-21T", "2026-11-01T") for line in AUDIT.splitlines()]
    (path,) = write(tmp_path, audit="\n".join(old) + "\n")
    report = await lab.imported(path)
    days = [timedelta(days=n) for n in (90, 30, 14, 7)]
    of_samples = retention.SampleAges(each=days[3], minutes=days[1], hours=days[0])
    ages = retention.ages(changes=days[0], calls=days[1], requests=days[2], samples=of_samples)
    (told,) = expired(report, ages, now=NOW)
    assert told.startswith("requests from 2026-11-01 on were imported; `serve` drops those older than 14 days")
    assert expired(report, dict.fromkeys(ages, timedelta(days=21)), now=NOW) == []


def test_strict_refuses_before_anything_is_written(tmp_path: Path) -> None:
    (path,) = write(tmp_path, audit=read(1) + "\n{broken\n")
    with pytest.raises(InvalidInputError, match="line 2"):
        check(find_inputs([str(path)]), now=NOW)


BAD_OBJECT = {"at": stamp(1), "type": "MODIFIED", "object": "x"}
BAD_VERSION = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "resourceVersion": 7}}
BAD_VERSIONED = json.dumps({**BAD_OBJECT, "object": BAD_VERSION})
BAD_DUMP = json.dumps({"items": [BAD_VERSION]})
LIST = json.dumps({"kind": "List", "apiVersion": "v1", "items": [deployment(n, "web:1") for n in range(3)]}, indent=1)
UNUSABLE = {
    "half a List": (LIST[: LIST.index("spec")], f"line {LIST[: LIST.index('spec')].count(chr(10)) + 1}, "),
    "half a List behind a whole one": (
        f"{LIST}\n{LIST[:200]}",
        f"line {LIST.count(chr(10)) + 2 + LIST[:200].count(chr(10))}, ",
    ),
    "a string for an object": (watched(0, 1, "web:1") + "\n" + json.dumps(BAD_OBJECT), "line 2, column 62: the object"),
    "a number for a version": (BAD_VERSIONED, f"line 1, column {BAD_VERSIONED.index('7}') + 1}: the object"),
    "such a number in a dump": (BAD_DUMP, f"line 1, column {BAD_DUMP.index('7}') + 1}: no dump"),
    "a string in a dump": (json.dumps({"items": [deployment(1, "web:1"), "web"]}), "no dump of objects"),
    "an object without a name": (json.dumps({"items": [{"kind": "Pod", "metadata": {}}]}), "no kind, or no name"),
    "a Table in a dump": (
        json.dumps({"items": [deployment(1, "web:1"), {"kind": "Table", "rows": []}]}),
        "a Table leaves",
    ),
    "a Table that is watched": (json.dumps({**BAD_OBJECT, "object": {"kind": "Table"}}), "a Table leaves"),
    "a string for an answer": (json.dumps(json.loads(audited(0, 1, "w")) | {"responseObject": "x"}), "the object"),
    "an alert without a start": ('{"version": "4", "alerts": [{"labels": {}}]}', "startsAt"),
    "a payload that is cut": ('{"version": "4", "alerts": [{"labels": {}}', "not an Alertmanager"),
    "a sample without a time": ("# TYPE apiserver_request counter\napiserver_request_total 5\n", "no timestamp"),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_what_an_import_refuses_strict_refuses_before(lab: Lab, tmp_path: Path, name: str) -> None:
    text, said = UNUSABLE[name]
    (path,) = write(tmp_path, input=text)
    with pytest.raises(InvalidInputError, match="nothing was written") as refused:
        check(find_inputs([str(path)]), now=NOW)
    [told] = refused.value.problems
    assert said in told
    assert (await lab.imported(path)).problems == [told]


def test_strict_finds_nothing_in_what_an_import_takes(tmp_path: Path) -> None:
    payload = json.dumps({"version": "4", "alerts": [{"startsAt": stamp(1)}]}, indent=1)
    samples = "# TYPE apiserver_request counter\napiserver_request_total 5 1795258801.5\n# EOF\n"
    write(tmp_path, audit=AUDIT, watch=WATCH, dump=LIST + LIST, alerts=payload + payload, metrics=samples)
    check(find_inputs([str(tmp_path)]), now=NOW)


async def test_several_dumps_in_one_file_are_all_read(lab: Lab, tmp_path: Path) -> None:
    def pods(*names: str) -> str:
        items = [{"metadata": {"name": name, "uid": name, "resourceVersion": "5"}} for name in names]
        return json.dumps({"kind": "PodList", "apiVersion": "v1", "items": items})

    (path,) = write(
        tmp_path, dumps=f"{pods('a', 'b')}\n{pods('c')}{json.dumps({'pods': json.loads(pods('d'))}, indent=2)}"
    )
    report = await lab.imported(path)
    assert (report.problems, report.tally.objects) == ([], 4)
    assert [row[0] for row in await lab.rows("objects")] == [4]


async def test_a_cut_file_gives_what_it_has(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(read(n / 100) for n in range(1000)).encode() + b"\n")[:-8])
    report = await lab.imported(path)
    assert report.tally.calls == 1000
    (problem,) = report.problems
    assert "line 1001, " in problem
    with pytest.raises(InvalidInputError, match="line 1001, column 1: the compressed data is damaged or cut short"):
        check(find_inputs([str(path)]), now=NOW)
    assert "damaged" in problem


@pytest.mark.parametrize("until", [-1, 5, 3000])
async def test_a_cut_file_that_is_read_until_a_moment_goes_on_from_there(
    lab: Lab, tmp_path: Path, until: float
) -> None:
    path = tmp_path / "audit.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(read(n / 100) for n in range(1000)).encode() + b"\n")[:-8])
    write(tmp_path, watch=WATCH)
    first = await lab.imported(tmp_path, until=T0 + timedelta(seconds=until))
    last = await lab.imported(tmp_path)
    assert first.tally.calls + last.tally.calls == 1000
    assert [problem.split(", ")[1] for problem in first.problems + last.problems] == ["line 1001"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("name", ["audit", "metrics", "alerts", "state"])
async def test_a_damaged_archive_of_any_kind_stops_nothing(
    lab: Lab, tmp_path: Path, pack: Callable[[bytes], bytes], name: str
) -> None:
    whole = {
        "audit": AUDIT.encode() * 50,
        "metrics": b"# TYPE apiserver_request counter\n" + b"apiserver_request_total 5 1795238501\n" * 900,
        "alerts": json.dumps({"version": "4", "groupKey": "x" * 3000, "alerts": []}).encode(),
        "state": json.dumps({"kind": "List", "items": [deployment(n, "web:1") for n in range(50)]}).encode(),
    }[name]
    (tmp_path / name).write_bytes(pack(whole)[:-1])
    dated(tmp_path / name)
    write(tmp_path, good=audited(10, 12, "web:2") + "\n")
    report = await lab.imported(tmp_path)
    assert len(report.problems) + len(report.passed_over) == 1
    assert "damaged" in (report.problems + report.passed_over)[0]
    assert "web:2" in [d.new for change in await lab.stored() for d in change.diffs]


@pytest.mark.parametrize("head", [b"\x1f\x8b\x08\x00" + b"\xff" * 40, b"\x28\xb5\x2f\xfd" + b"\xff" * 40, b"\x1f\x8b"])
def test_an_archive_of_which_nothing_can_be_read_is_told_and_the_rest_found(tmp_path: Path, head: bytes) -> None:
    (broken,) = write(tmp_path, broken="")
    broken.write_bytes(head)
    with pytest.raises(UnreadableError, match="damaged"):
        survey([str(broken)])
    (good,) = write(tmp_path, good=AUDIT)
    found = survey([str(broken), str(good)])
    assert [one.path for one in found.inputs] == [str(good)]
    assert str(broken) in found.damaged[0]
    with pytest.raises(InvalidInputError, match="damaged"):
        check(found.inputs, now=NOW, damaged=found.damaged)


async def test_an_alert_of_another_age_is_refused(lab: Lab, tmp_path: Path) -> None:
    alerts = [{"startsAt": at, "labels": {"alertname": "Down"}} for at in ("1970-01-01T00:00:00Z", stamp(5))]
    (path,) = write(tmp_path, alerts=json.dumps({"version": "4", "alerts": alerts}))
    report = await lab.imported(path)
    assert len(report.alerts) == 1
    assert "startsAt of Down" in report.problems[0]


async def test_a_dump_alone_teaches_state_and_no_change(lab: Lab, tmp_path: Path) -> None:
    dump = tmp_path / "state.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [deployment(13, "web:3")]}))
    await lab.imported(dump)
    assert await lab.stored() == []
    assert [row[0] for row in await lab.rows("objects")] == [1]


async def test_a_dump_that_is_newer_tells_of_what_was_missed(lab: Lab, tmp_path: Path) -> None:
    (watch,) = write(tmp_path, watch=watched(0, 11, "web:1", "ADDED") + "\n")
    await lab.imported(watch)
    dump = tmp_path / "state.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [deployment(13, "web:3")]}))
    os.utime(dump, (T0.timestamp() + 60, T0.timestamp() + 60))
    await lab.imported(dump)
    (missed,) = await lab.stored()
    assert missed.sources == {"state"}
    assert missed.summary.endswith("(between 11:00:00 and 11:00:13)")


async def test_a_dump_of_an_impossible_age_is_refused(lab: Lab, tmp_path: Path) -> None:
    dump = tmp_path / "state.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [deployment(13, "web:3")]}))
    os.utime(dump, (0, 0))
    (problem,) = (await lab.imported(dump)).problems
    assert "touch the file" in problem
    assert [row[0] for row in await lab.rows("objects")] == [0]
    os.utime(dump, (T0.timestamp(), T0.timestamp()))
    assert (await lab.imported(dump)).skipped == []
    assert [row[0] for row in await lab.rows("objects")] == [1]


async def test_an_import_that_is_cancelled_counts_nothing_whose_place_it_does_not_note(
    lab: Lab, tmp_path: Path
) -> None:
    count = 3 * LINES
    (audit,) = write(tmp_path, audit="".join(read(n / 10) + "\n" for n in range(count)))
    metrics = tmp_path / "metrics.om"
    metrics.write_text(f"# TYPE node_load1 gauge\nnode_load1 1 {T0.timestamp()}\n# EOF\n")
    loop, read_of = asyncio.get_running_loop(), list[str]()

    def ctrl_c(path: str, _lines: int, _bytes: int) -> None:
        read_of.append(path)
        if len(read_of) == 1:
            loop.call_soon_threadsafe(running.cancel)
            time.sleep(0.1)

    found = find_inputs([str(audit), str(metrics)])
    running = asyncio.ensure_future(Import(lab.database.write, lab.cluster, now=NOW, progress=ctrl_c).run(found))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert read_of == [str(audit)]
    await lab.imported(audit, metrics)
    assert [row[0] for row in await lab.rows("call_minutes", "sum(total)")] == [count]


def test_what_is_no_time_does_not_date_a_dump() -> None:
    body = f'{{"time": "{stamp(1)}", "startTime": "2026-11-21T11:30:60Z", "eventTime": "2026-02-30T11:00:00Z"}}'
    assert made_at(body.encode(), written=NOW) == T0 + timedelta(seconds=1)
    assert made_at(b'{"time": "2026-02-30T11:00:00Z"}', written=NOW) == NOW
