"""How a cluster's memory is read: in pages, patiently, and past what cannot be read."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from app.collect import history
from app.collect.apiserver import ApiServer
from app.collect.contexts import WantedCluster
from app.collect.history import HistoryError, NotAllowedError, Report, rebuild
from app.collect.intake import Intake, Tally
from app.collect.learning import Learning
from app.collect.threads import in_thread
from app.collect.watch import Pace
from app.core.model import SymptomSource
from app.core.objects.redact import Redactor
from app.store import changes, collectors, symptoms
from app.store.collectors import Standing
from app.store.database import Database
from tests.collect.scripted import Answer, serving
from tests.collect.test_discovery import ALL, a_group, a_version, groups

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
MAPS = "/api/v1/configmaps"
NOTHING = Answer([b'{"metadata":{},"items":[]}'])
CORE = groups(a_group("", a_version("v1", ("configmaps", "ConfigMap", ALL), ("secrets", "Secret", ALL))))


def stamp(before: timedelta) -> str:
    return (NOW - before).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_map(name: str, *, before: timedelta = timedelta(hours=1)) -> dict[str, Any]:
    meta = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "5", "creationTimestamp": stamp(before)}
    return {"metadata": meta, "data": {"a": "1"}}


def page(*items: Any, more: str = "") -> Answer:
    return Answer([json.dumps({"metadata": {"continue": more}, "items": items}).encode()])


def refusal(status: int, message: str, **headers: str) -> Answer:
    body = json.dumps({"kind": "Status", "message": message, "code": status}).encode()
    return Answer([body], status, {name.replace("_", "-"): value for name, value in headers.items()})


class Slept:
    """A pace that waits for nothing and says how long it would have."""

    def __init__(self) -> None:
        self.waits: list[timedelta] = []
        self.pace = Pace(sleep=self._sleep, chance=lambda: 0.0, clock=lambda: NOW)

    async def _sleep(self, wait: timedelta) -> None:
        self.waits.append(wait)


def a_cluster(*, add: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> WantedCluster:
    return WantedCluster(f"c-{uuid4().hex[:8]}", add=add, exclude=exclude)


async def read(database: Database, api: ApiServer, slept: Slept | None = None) -> Report:
    pace = (slept or Slept()).pace
    return await rebuild(database.write, api, a_cluster(), since=NOW - DAY, now=NOW, pace=pace)


def names(report: Report) -> list[str]:
    return [one.resource.name for one in report.found]


async def test_pages_are_read_to_the_end_and_secrets_not_at_all(database: Database) -> None:
    first, second = page(a_map("a"), a_map("old", before=2 * DAY), more="next"), page(a_map("b"))
    paths = {"/api": [CORE], "/apis": [groups()], MAPS: [first, second]}
    async with serving(NOTHING, paths=paths) as server:
        report = await read(database, server.api)
    assert sorted(names(report)) == ["a", "b"]  # what is older than was asked for is read, and not told
    assert (report.new, report.objects, report.unread) == (2, 3, ())
    asked = [
        {"limit": one["limit"], "continue": one.get("continue", "")} for one in server.asked if one["path"] == MAPS
    ]
    assert asked == [{"limit": "500", "continue": ""}, {"limit": "500", "continue": "next"}]
    assert {one["path"] for one in server.asked} == {"/api", "/apis", "/apis/apps/v1/controllerrevisions", MAPS}


async def test_how_objects_are_is_left_to_who_follows_the_cluster(database: Database) -> None:
    """A watch that is behind tells by itself of what the list has already, under the version that it has then."""
    cluster, pace = a_cluster(), Slept().pace
    edited = a_map("a", before=2 * DAY)
    edited["metadata"]["resourceVersion"], edited["data"] = "9", {"a": "2"}
    pages = [page(a_map("a", before=2 * DAY)), page(edited), page(edited)]
    paths = {"/api": [CORE] * 3, "/apis": [groups()] * 3, MAPS: pages}
    stored = []
    async with serving(NOTHING, paths=paths) as server:
        for is_followed in (False, True, False):
            async with database.write.begin() as conn:
                epoch = await collectors.take(conn, cluster.name, "a process")
                if not is_followed:
                    await collectors.leave(conn, cluster.name, epoch or 0, standing=Standing.LEFT)
            await rebuild(database.write, server.api, cluster, since=NOW - DAY, now=NOW, pace=pace)
            async with database.read.connect() as conn:
                found = await changes.read_window(conn, cluster.name, NOW - DAY, NOW + DAY, limit=9)
            stored.append([one.summary for one in found])
    unfollowed, followed, left = stored
    assert (unfollowed, followed) == ([], [])
    assert len(left) == 1
    assert "a: 1 → 2" in left[0]


async def test_what_its_operator_adds_is_read_and_what_is_excluded_is_not(database: Database) -> None:
    leases = a_group("coordination.k8s.io", a_version("v1", ("leases", "Lease", ALL)))
    answers = {
        "/api": [CORE],
        "/apis": [groups(leases)],
        "/apis/coordination.k8s.io/v1/leases": [page({"metadata": a_map("leader")["metadata"]})],
    }
    cluster = a_cluster(add=("leases.coordination.k8s.io",), exclude=("configmaps",))
    async with serving(NOTHING, paths=answers) as server:
        report = await rebuild(database.write, server.api, cluster, since=NOW - DAY, now=NOW, pace=Slept().pace)
    assert [one.resource.kind for one in report.found] == ["Lease"]
    assert MAPS not in {one["path"] for one in server.asked}


async def test_of_a_large_cluster_little_is_held_at_a_time(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "BATCH_BYTES", 500_000)
    old = [a_map(f"old-{number}", before=2 * DAY) for number in range(120)]
    for one in old:
        one["data"] = {"text": f"{one['metadata']['name']} says: " + "as before, and again; " * 2_000}
    pages = [page(*old[at : at + 10], more="" if at == 110 else "next") for at in range(0, 120, 10)]
    size = sum(len(part) for one in pages for part in one.parts)
    paths = {"/api": [CORE], "/apis": [groups()], MAPS: pages}
    async with serving(NOTHING, paths=paths) as server:
        tracemalloc.start()
        try:
            report = await read(database, server.api)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (report.objects, report.new) == (120, 0)
    assert most < size  # as Python's objects, all of them take more than twice that


async def test_a_busy_api_server_is_given_the_time_that_it_asks_for(database: Database) -> None:
    busy = refusal(429, "too many requests", Retry_After="7")
    paths = {"/api": [CORE], "/apis": [groups()], MAPS: [busy, busy, page(a_map("a"))]}
    slept = Slept()
    async with serving(NOTHING, paths=paths) as server:
        report = await read(database, server.api, slept)
    assert (names(report), report.unread) == (["a"], ())
    assert slept.waits == [timedelta(seconds=7), timedelta(seconds=7)]


async def test_pages_that_expire_are_read_once_more_from_the_first(database: Database) -> None:
    expired = refusal(410, "the provided continue parameter is too old")
    paths = {"/api": [CORE], "/apis": [groups()], MAPS: [page(a_map("a"), more="x"), expired, page(a_map("a"))]}
    async with serving(NOTHING, paths=paths) as server:
        report = await read(database, server.api)
    assert (names(report), report.new, report.unread) == (["a"], 1, ())


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([refusal(403, "configmaps is forbidden")], f"{MAPS}: 403 configmaps is forbidden"),
        ([refusal(410, "too old"), refusal(410, "too old")], f"{MAPS}: 410 too old"),
        ([Answer([b"<html>"])], f"{MAPS}: a LIST that cannot be read"),
        ([refusal(503, "apiserver is shutting down")] * 5, f"{MAPS}: 503 apiserver is shutting down"),
    ],
    ids=["forbidden", "expires again", "no list", "stays away"],
)
async def test_what_cannot_be_read_is_said(database: Database, answers: list[Answer], said: str) -> None:
    paths = {"/api": [CORE], "/apis": [groups()], MAPS: answers}
    async with serving(NOTHING, paths=paths) as server:
        report = await read(database, server.api)
    assert [line.startswith(said) for line in report.unread] == [True], report.unread
    assert len([one for one in server.asked if one["path"] == MAPS]) == len(answers)


async def test_an_object_that_cannot_be_used_stops_no_other(database: Database) -> None:
    poison = {"metadata": {"name": "bad", "uid": "bad", "managedFields": "none", "creationTimestamp": "yesterday"}}
    paths = {"/api": [CORE], "/apis": [groups()], MAPS: [page(poison, 7, a_map("a"))]}
    async with serving(NOTHING, paths=paths) as server:
        report = await read(database, server.api)
    assert (names(report), report.unread) == (["a"], ())


async def test_warnings_become_symptoms(database: Database) -> None:
    event = {
        "metadata": {"name": "web.1", "namespace": "shop", "uid": "e"}, "type": "Warning", "reason": "BackOff",
        "message": "Back-off restarting", "count": 3, "lastTimestamp": stamp(timedelta(minutes=5)),
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1"},
    }  # fmt: skip
    core = groups(a_group("", a_version("v1", ("events", "Event", ALL))))
    async with serving(NOTHING, paths={"/api": [core], "/apis": [groups()], "/api/v1/events": [page(event)]}) as server:
        report = await read(database, server.api)
    async with database.read.connect() as conn:
        (found,) = await symptoms.read_window(conn, report.cluster, NOW - DAY, NOW)
    assert (found.source, found.reason, found.at) == (SymptomSource.EVENT, "BackOff", NOW - timedelta(minutes=5))


@pytest.mark.parametrize(
    ("answer", "error"),
    [(refusal(401, "Unauthorized"), NotAllowedError), (refusal(503, "not yet"), HistoryError)],
    ids=["not allowed", "not now"],
)
async def test_where_nothing_can_be_asked_it_is_said_why(
    database: Database, answer: Answer, error: type[Exception]
) -> None:
    async with serving(*[answer] * 5) as server:
        with pytest.raises(error, match=r"does not say what it serves: (401|503)"):
            await read(database, server.api)


async def test_what_was_learned_goes_with_who_learned_it(database: Database) -> None:
    learning = Learning(
        database.write, Intake("c", Redactor(b"k" * 32), now=NOW), tally=Tally(), rollouts=[], goes_on=False
    )
    learning.intake.dump_item(msgspec.Raw(json.dumps({"kind": "ConfigMap", **a_map("a")}).encode()), NOW)
    await in_thread(learning.learn_read)
    assert learning.learner.pending == 1
    tracker = weakref.ref(learning.learner.tracker)
    gc.disable()
    try:
        del learning
        for _ in range(100):  # the thread lets go of its work a moment after that is done
            if tracker() is None:
                break
            await asyncio.sleep(0.01)
        assert tracker() is None
    finally:
        gc.enable()
