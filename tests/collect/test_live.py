"""One live cluster against an API server that answers by a script: a watch goes on behind what is kept."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from app.collect import live, told
from app.collect.contexts import WantedCluster
from app.collect.follow import Follower
from app.collect.spool import Spool
from app.collect.watch import Pace
from app.collect.words import Saw
from app.store import changes
from app.store.database import Database
from tests.collect.scripted import SILENCE, Answer, Server, serving
from tests.collect.test_cluster import PODS
from tests.collect.test_discovery import ALL, a_group, a_version, groups
from tests.collect.test_watch import bookmark, event

PATH = "/api/v1/pods"
DAY = timedelta(days=1)


def kept(spool: Spool) -> list[str]:
    """Versions of the objects in a spool."""
    records = [told.decode(frame.payload) for frame in spool.read(0) if frame.payload is not None]
    words = [record.word for record in records if isinstance(record, told.Watched)]
    return [word.resource_version for word in words if isinstance(word, Saw)]


def wanted(server: Server, folder: Path) -> WantedCluster:
    user = {"clusters": [{"name": "c", "cluster": {"server": server.api.url}}], "users": [{"name": "u", "user": {}}]}
    context = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
    path = folder / "kubeconfig"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **user, **context}))
    return WantedCluster(f"live-{uuid4().hex[:8]}", str(path))


async def _sleep(wait: timedelta) -> None:
    await (asyncio.sleep(0.01) if wait < timedelta(minutes=5) else asyncio.Event().wait())


async def until(spool: Spool, versions: list[str]) -> None:
    async with asyncio.timeout(20):
        while kept(spool) != versions:  # noqa: ASYNC110 - nobody tells what lies in a spool
            await asyncio.sleep(0.01)


async def test_behind_a_full_spool_a_watch_begins_where_it_was_kept(database: Database, tmp_path: Path) -> None:
    script = {
        "/version": [Answer([b'{"gitVersion":"v1.36.3"}'])] * 9,
        "/api": [groups(a_group("", a_version("v1", PODS)))] * 9,
        "/apis": [groups()] * 9,
        PATH: [
            Answer([bookmark(5, all_told=True)]),
            Answer([event("MODIFIED", "a", 6) + event("MODIFIED", "b" * 4000, 7), SILENCE]),
            Answer([event("MODIFIED", "a", 6) + event("MODIFIED", "b", 7), SILENCE]),
        ],
    }
    async with serving(paths=script) as server:
        with Spool(tmp_path / "spool", most_bytes=4000, key=b"k" * 32) as spool:
            cluster = wanted(server, tmp_path)
            follower = Follower(database.write, cluster.name, spool)
            one = live.Live(database.write, cluster, follower, pace=Pace(sleep=_sleep, chance=lambda: 0.5))
            running = asyncio.create_task(one.run())
            await until(spool, ["6", "7"])
            vitals = one.vitals()
            running.cancel()
            await asyncio.wait([running])
            assert one.vitals() is None  # nobody follows it any more
    assert vitals is not None
    assert (vitals.cluster, vitals.kinds, vitals.unseen) == (cluster.name, 1, 0)
    assert vitals.heard_at is not None
    asked = [one.get("resourceVersion") for one in server.asked if one["path"] == PATH and "watch" in one]
    assert asked == [None, "5", "5"]


@pytest.mark.parametrize(("context", "place"), [("", "its current context"), ("x", "context x")])
async def test_of_a_credential_that_is_refused_it_is_said_which_it_is(
    context: str, place: str, database: Database, tmp_path: Path
) -> None:
    async with serving(*[Answer([b'{"message":"Unauthorized"}'], status=401)] * 99) as server:
        with Spool(tmp_path / "spool", most_bytes=4000, key=b"k" * 32) as spool:
            cluster = replace(wanted(server, tmp_path), context=context)
            follower = Follower(database.write, cluster.name, spool)
            one = live.Live(database.write, cluster, follower, pace=Pace(sleep=_sleep, chance=lambda: 0.5))
            running = asyncio.create_task(one.run())
            async with asyncio.timeout(20):
                while not one.watching().unseen:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
            (unseen,) = one.watching().unseen
            running.cancel()
            await asyncio.wait([running])
    assert unseen.why == (
        f"401 Unauthorized: the API server refuses the credential of kubeconfig {cluster.kubeconfig}, {place}: renew it"
    )


async def test_what_was_written_until_a_kind_is_watched_is_a_change(database: Database, tmp_path: Path) -> None:
    """The watch begins with what it came to, tells of no write before that, and of each one after it."""
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)

    def wrote(manager: str, seconds: int, fields: object) -> dict[str, object]:
        at = f"{began + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
        return {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": at, "fieldsV1": fields}

    path = "/api/v1/configmaps"
    meta = {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "4"}
    meta["creationTimestamp"] = f"{began - DAY:%Y-%m-%dT%H:%M:%SZ}"
    old = [wrote("maker", -86400, {"f:data": {"f:b": {}}}), wrote("editor", 4, {"f:data": {"f:a": {}}})]
    late = wrote("latecomer", 14, {"f:data": {"f:c": {}}})
    edited = {"metadata": {**meta, "managedFields": old}, "data": {"a": "2", "b": "1"}}
    again = {
        "metadata": {**meta, "resourceVersion": "6", "managedFields": [*old, late]},
        "data": {"a": "2", "b": "1", "c": "1"},
    }
    added = {"type": "ADDED", "object": {"kind": "ConfigMap", "apiVersion": "v1", **edited}}
    script = {
        "/version": [Answer([b'{"gitVersion":"v1.36.3"}'])],
        "/api": [groups(a_group("", a_version("v1", ("configmaps", "ConfigMap", ALL))))] * 2,
        "/apis": [groups()] * 2,
        path: [
            Answer([json.dumps(added).encode() + b"\n" + bookmark(5, all_told=True), SILENCE]),
            Answer([json.dumps({"metadata": {}, "items": [again]}).encode()]),
        ],
    }

    def clock() -> datetime:
        """It is later when the cluster has said what it serves, and later still once the kind was asked for."""
        asked = [one["path"] for one in server.asked]
        return began + timedelta(seconds=9 * ("/apis" in asked) + 9 * (path in asked))

    async def stored(cluster: str) -> list[tuple[str, datetime]]:
        async with database.read.connect() as conn:
            found = await changes.read_window(conn, cluster, began - DAY, began + DAY, limit=9)
        return [(one.actor.name, one.at) for one in found if one.at > began]

    async with serving(Answer([b'{"metadata":{},"items":[]}']), paths=script) as server:
        with Spool(tmp_path / "spool", most_bytes=1 << 20, key=b"k" * 32) as spool:
            cluster = wanted(server, tmp_path)
            follower = Follower(database.write, cluster.name, spool, idle=timedelta(milliseconds=10))
            pace = Pace(sleep=_sleep, chance=lambda: 0.5, clock=clock)
            one = live.Live(database.write, cluster, follower, pace=pace)
            running = asyncio.create_task(one.run())
            async with asyncio.timeout(20):
                while not one._past_known:
                    await follower.round()
            running.cancel()
            await asyncio.wait([running])
    assert await stored(cluster.name) == [("editor", began + timedelta(seconds=4))]


async def test_what_a_cluster_remembers_is_asked_for_when_what_there_is_was_recorded(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FIRST_SETS", timedelta(days=1))
    looks = 0

    async def sleep(wait: timedelta) -> None:
        nonlocal looks
        looks += wait == live.RENEW
        await _sleep(wait)

    script = {
        "/version": [Answer([b'{"gitVersion":"v1.36.3"}'])],
        "/api": [groups(a_group("", a_version("v1", PODS)))] * 2,
        "/apis": [groups()] * 2,
        PATH: [
            Answer([event("ADDED", "a", 4) + bookmark(5, all_told=True), SILENCE]),
            Answer([b'{"metadata":{},"items":[]}']),
        ],
    }

    def listed() -> bool:
        return any(one["path"] == PATH and "watch" not in one for one in server.asked)

    async with serving(Answer([b'{"metadata":{},"items":[]}']), paths=script) as server:
        with Spool(tmp_path / "spool", most_bytes=1 << 20, key=b"k" * 32) as spool:
            cluster = wanted(server, tmp_path)
            follower = Follower(database.write, cluster.name, spool, idle=timedelta(milliseconds=10))
            one = live.Live(database.write, cluster, follower, pace=Pace(sleep=sleep, chance=lambda: 0.5))
            running = asyncio.create_task(one.run())
            await until(spool, ["4"])
            async with asyncio.timeout(20):
                enough = looks + 20
                while looks < enough:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)
                assert not listed()
                while not listed():
                    await follower.round()
            running.cancel()
            await asyncio.wait([running])


async def test_who_has_lost_the_cluster_leaves_it_though_a_driver_swallowed_a_cancellation(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As psycopg may. Until then its watches went on beside those of the process that has the cluster now."""
    asked = 0

    async def deaf() -> None:
        nonlocal asked
        while asked < 2:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                asked += 1

    async def lost(_epoch: int) -> None:
        await asyncio.sleep(0.01)

    with Spool(tmp_path / "spool", most_bytes=4000, key=b"k" * 32) as spool:
        cluster = WantedCluster("live-lost", str(tmp_path / "nothing"))
        one = live.Live(database.write, cluster, Follower(database.write, cluster.name, spool), pace=Pace(sleep=_sleep))
        monkeypatch.setattr(one._measuring, "run", deaf)
        monkeypatch.setattr(one, "_renew", lost)
        await asyncio.wait_for(one._while_ours(1), 10)
    assert asked == 2
