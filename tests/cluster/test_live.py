"""A real cluster into a real database: its watches, the spool, what is learned. Nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from app.collect import live as live_cluster
from app.collect.contexts import WantedCluster
from app.collect.follow import Follower
from app.collect.spool import Spool
from app.core.model import Change, MetricSeries, Verb
from app.store import changes, gaps, series, watches
from app.store.database import Database
from tests.cluster.control_plane import ControlPlane, running
from tests.cluster.test_watch import BRISK

MERGE = {"Content-Type": "application/merge-patch+json"}
DAY = timedelta(days=1)


class Live:
    """One cluster that is being followed.

    Writes up to the version ``after`` are not looked at: what is a few seconds old when a watch begins is told as just
    created, and what is older is not.
    """

    def __init__(self, database: Database, name: str, *, after: int) -> None:
        self.database, self.name, self.after = database, name, after

    async def changes(self, kind: str = "ConfigMap") -> list[Change]:
        """Those of a kind in the namespace default, as they happened."""
        now = datetime.now(UTC)
        async with self.database.read.connect() as conn:
            found = await changes.read_window(conn, self.name, now - DAY, now + DAY, limit=1000)
        own = [one for one in found if (one.resource.kind, one.resource.namespace) == (kind, "default")]
        own = [one for one in own if not one.resource_version or int(one.resource_version) > self.after]
        return sorted(own, key=lambda one: (one.at, one.resource_version.zfill(12)))

    async def until(self, hoped: Callable[[list[Change]], bool], *, kind: str = "ConfigMap") -> list[Change]:
        async with asyncio.timeout(60):
            while True:
                if hoped(found := await self.changes(kind)):
                    return found
                await asyncio.sleep(0.1)

    async def synced(self) -> None:
        """Wait until ConfigMaps are watched."""
        async with asyncio.timeout(60):
            while True:
                async with self.database.read.connect() as conn:
                    found = (await watches.read(conn, self.name)).get(("", "configmaps"))
                if found and found.resource_version:
                    return
                await asyncio.sleep(0.1)


@asynccontextmanager
async def followed(
    plane: ControlPlane, database: Database, folder: Path, name: str, *, after: int
) -> AsyncIterator[Live]:
    """Follow a cluster for the length of the block, from where it was before."""
    with Spool(folder, most_bytes=1 << 28, key=b"k" * 32) as spool:
        follower = Follower(database.write, name, spool, held=timedelta(milliseconds=100))
        live = live_cluster.Live(database.write, WantedCluster(name, str(plane.kubeconfig())), follower, pace=BRISK)

        async def record() -> None:
            while True:
                await follower.round()

        tasks = [asyncio.create_task(live.run()), asyncio.create_task(record())]
        try:
            yield Live(database, name, after=after)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
        while spool.size:
            await follower.round()


@pytest.fixture
def name() -> str:
    return f"live-{uuid4().hex[:8]}"


def make(admin: httpx2.Client, one: str, **data: str) -> int:
    """The version that it has."""
    made = admin.post("/api/v1/namespaces/default/configmaps", json={"metadata": {"name": one}, "data": data})
    assert made.is_success, made.text
    return int(made.json()["metadata"]["resourceVersion"])


def change(admin: httpx2.Client, one: str, **data: str) -> None:
    path = f"/api/v1/namespaces/default/configmaps/{one}"
    assert admin.patch(path, content=json.dumps({"data": data}), headers=MERGE).is_success


def remove(admin: httpx2.Client, one: str) -> None:
    assert admin.delete(f"/api/v1/namespaces/default/configmaps/{one}").is_success


def told_of(found: list[Change]) -> list[tuple[str, str]]:
    return [(one.verb.value, one.resource.name) for one in found]


async def test_what_happens_is_recorded_and_a_restart_asks_for_no_list(
    database: Database, tmp_path: Path, name: str
) -> None:
    with running() as plane, plane.client() as admin:
        first = make(admin, "there", a="1")
        async with followed(plane, database, tmp_path / "spool", name, after=first) as live:
            await live.synced()
            make(admin, "new", a="1")
            change(admin, "new", a="2")
            await live.until(lambda found: len(found) == 2)
        change(admin, "new", a="3")
        remove(admin, "there")
        before = len(plane.audited())
        async with followed(plane, database, tmp_path / "spool", name, after=first) as live:
            found = await live.until(lambda found: len(found) == 4)
            asked = Counter(
                (one["verb"], "sendInitialEvents" in one["requestURI"])
                for one in plane.audited()[before:]
                if one["user"].get("username") == "admin" and one.get("objectRef", {}).get("resource") == "configmaps"
            )
    assert told_of(found) == [("create", "new"), ("update", "new"), ("update", "new"), ("delete", "there")]
    assert [one.diffs[0].new for one in found[1:3]] == ["2", "3"]
    assert set(asked) <= {("watch", False)}, asked


async def test_what_the_api_server_tells_of_itself_is_recorded(database: Database, tmp_path: Path, name: str) -> None:
    with running() as plane:
        async with followed(plane, database, tmp_path / "spool", name, after=0):
            found = await measured(database, name)
    assert {
        "apiserver_request_total",
        "apiserver_longrunning_requests",
        "process_resident_memory_bytes",
    } <= found.keys()
    (memory,) = found["process_resident_memory_bytes"]
    assert dict(memory.labels)["job"] == "kube-apiserver"
    assert all(100e6 < value < 4e9 for value in memory.values)
    assert sum(one.values[-1] for one in found["apiserver_request_total"]) > 100


async def measured(database: Database, name: str) -> dict[str, list[MetricSeries]]:
    """The series of a cluster, by their names, once it was scraped."""
    async with asyncio.timeout(60):
        while True:
            now = datetime.now(UTC)
            async with database.read.connect() as conn:
                found = await series.read(conn, name, now - DAY, now)
            if found:
                return {called: [one for one in found if one.name == called] for called in {one.name for one in found}}
            await asyncio.sleep(0.1)


async def test_what_happened_behind_a_compaction_is_found_with_its_gap(
    database: Database, tmp_path: Path, name: str
) -> None:
    with running() as plane, plane.client() as admin:
        first = max(make(admin, one, a="1") for one in ("kept", "changed", "removed", "remade"))
        async with followed(plane, database, tmp_path / "spool", name, after=first) as live:
            await live.synced()
        change(admin, "changed", a="2")
        change(admin, "changed", a="3")
        remove(admin, "removed")
        remove(admin, "remade")
        make(admin, "remade", a="9")
        make(admin, "made", a="1")
        make(admin, "brief", a="1")
        remove(admin, "brief")
        plane.compact()
        plane.apiserver.restart()
        async with followed(plane, database, tmp_path / "spool", name, after=first) as live:
            found = await live.until(lambda found: any(one.resource.name == "removed" for one in found))
            async with database.read.connect() as conn:
                now = datetime.now(UTC)
                lost = [one for one in await gaps.read_window(conn, name, now - DAY, now) if one.kind == "ConfigMap"]
    assert sorted(told_of(found)) == [
        ("create", "made"),
        ("create", "remade"),
        ("delete", "remade"),
        ("delete", "removed"),
        ("update", "changed"),
    ]
    assert len(lost) == 1
    assert "the watch cannot go on" in lost[0].why
    assert all(lost[0].from_at <= one.at <= lost[0].to_at for one in found if one.verb is not Verb.CREATE), found
    assert next(one for one in found if one.verb is Verb.UPDATE).diffs[0].new == "3"


async def test_every_write_is_recorded_once_while_the_api_server_is_killed(
    database: Database, tmp_path: Path, name: str
) -> None:
    rounds, writes = 3, 20
    with running() as plane, plane.client() as admin:
        async with followed(plane, database, tmp_path / "spool", name, after=0) as live:
            await live.synced()
            for turn in range(rounds):
                for number in range(writes):
                    make(admin, f"m-{turn}-{number}", a="1")
                await asyncio.to_thread(plane.apiserver.restart, kill=True)
            found = await live.until(lambda found: len(found) >= rounds * writes)
    expected = [("create", f"m-{turn}-{number}") for turn in range(rounds) for number in range(writes)]
    assert sorted(told_of(found)) == sorted(expected)


async def roll_out(admin: httpx2.Client, image: str) -> None:
    """Make or change the Deployment web, and wait until it has a ReplicaSet of that image."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": image}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    path = "/apis/apps/v1/namespaces/default/deployments"
    made = admin.post(path, json={"metadata": {"name": "web"}, "spec": spec})
    if made.status_code == 409:
        made = admin.patch(f"{path}/web", content=json.dumps({"spec": spec}), headers=MERGE)
    assert made.is_success, made.text
    async with asyncio.timeout(60):
        while True:
            if image in admin.get("/apis/apps/v1/namespaces/default/replicasets").text:
                return
            await asyncio.sleep(0.2)


async def test_on_first_contact_what_the_cluster_remembers_is_recorded_once(
    database: Database, tmp_path: Path, name: str
) -> None:
    with running(controllers=True) as plane, plane.client() as admin:
        for image in ("app:1", "app:2"):
            await roll_out(admin, image)
            await asyncio.sleep(3)  # what happens within two seconds is remembered as one
        async with followed(plane, database, tmp_path / "spool", name, after=0) as live:
            await live.until(lambda found: len(found) >= 2, kind="Deployment")
        before = len(plane.audited())
        async with followed(plane, database, tmp_path / "spool", name, after=0) as live:
            await roll_out(admin, "app:3")
            found = await live.until(lambda found: len(found) >= 3, kind="Deployment")
        asked = [one for one in plane.audited()[before:] if one.get("userAgent", "").startswith("foreshock/")]
    assert [one.verb for one in found] == [Verb.CREATE, Verb.UPDATE, Verb.UPDATE]
    assert [(one.diffs[0].old, one.diffs[0].new) for one in found[1:]] == [("app:1", "app:2"), ("app:2", "app:3")]
    assert asked
    assert [one["requestURI"] for one in asked if one["verb"] == "list"] == []
