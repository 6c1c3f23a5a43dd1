"""`foreshock serve` follows what its file, or kubectl's, names: at the start, and when the file changes meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
import structlog
from aiohttp import web
from structlog.testing import capture_logs

from app.clusters import RECONCILE_EVERY, Clusters
from app.collect.alerts import Alertmanager
from app.collect.contexts import WantedCluster
from app.collect.outbound import MOST_BYTES
from app.collect.prometheus import Prometheus
from app.store.database import Database
from app.store.incidents import list_incidents
from app.store.seen import read_seen
from app.supervise import Pulses
from app.web.deps import Deps, QueryError
from app.web.routes import create_app
from tests.listening import listening
from tests.programs import free_address
from tests.serving import program

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: {name}
contexts: [{{name: {name}, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:1"}}}}]
users: [{{name: u, user: {{token: secret-token}}}}]
"""


def kubeconfig(folder: Path, name: str) -> Path:
    path = folder / f"{name}.kubeconfig"
    path.write_text(KUBECONFIG.format(name=name))
    return path


def environment(dsn: str, data_dir: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": dsn, "FORESHOCK_DATA_DIR": str(data_dir), **more}


async def until_followed(database: Database, *names: str, of: str) -> None:
    """Wait until these, and no others, are followed of the clusters whose names begin with ``of``."""
    async with asyncio.timeout(60):
        while True:
            async with database.read.connect() as conn:
                seen = await read_seen(conn, None, from_at=None, to_at=None)
            found = [one.cluster for one in seen.followed if one.cluster.startswith(of)]
            if found == sorted(names):
                return
            await asyncio.sleep(0.2)


async def test_kubectls_cluster_is_followed_instead_of_the_demo(dsn: str, database: Database, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "kubectl-1")
    with program(dsn, tmp_path, "--demo", "--port", "0", KUBECONFIG=str(path)):
        await until_followed(database, "kubectl-1", of="kubectl")
    async with database.read.connect() as conn:
        assert await list_incidents(conn, limit=1) == []


async def test_a_cluster_that_is_added_or_taken_out_needs_no_restart(
    dsn: str, database: Database, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    wanted = data / "clusters.yaml"
    entry = "- {{name: {name}, kubeconfig: {path}}}\n"
    one, two = (entry.format(name=name, path=kubeconfig(tmp_path, name)) for name in ("file-1", "file-2"))
    wanted.write_text(f"clusters:\n{one}")
    with program(dsn, data, "--port", "0"):
        await until_followed(database, "file-1", of="file")
        wanted.write_text(f"clusters:\n{one}{two}")
        await until_followed(database, "file-1", "file-2", of="file")
        wanted.write_text("clusters: [")  # somebody is writing it: nothing changes
        await asyncio.sleep(12)
        await until_followed(database, "file-1", "file-2", of="file")
        wanted.write_text(f"clusters:\n{two}")
        await until_followed(database, "file-2", of="file")


def test_a_file_that_cannot_be_used_is_said_before_anything_starts(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text("clusters:\n- {name: a, kubeconfg: /x}\n")
    done = subprocess.run(
        [sys.executable, "-m", "app", "serve", "--port", "0"],
        env=environment(dsn, tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown field `kubeconfg` - at `$.clusters[0]`" in done.stderr
    assert done.stdout == ""


async def test_an_alertmanager_that_is_away_is_a_remark_and_keeps_nobody_from_the_pages(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.clusters.NOTE_EVERY", timedelta(seconds=5))  # each worker has a round while this waits
    later = timedelta(0)

    def clock() -> datetime:
        return datetime.now(UTC) + later

    url = f"http://{free_address()}"
    wanted = WantedCluster("deaf", str(kubeconfig(tmp_path, "deaf")), alertmanager=Alertmanager(url))
    pulses = Pulses(clock)
    clusters = Clusters(
        database,
        pulses,
        wanted=lambda: (wanted,),
        folder=tmp_path / "spool",
        spool_bytes=1_000_000,
        clock=clock,
    )

    async def remarks() -> list[str]:
        async with database.read.connect() as conn:
            seen = await read_seen(conn, "deaf", from_at=None, to_at=None)
        return [remark for one in seen.followed for remark in one.watching.remarks]

    app = create_app(Deps(database.read, database.write, "http://foreshock.test", clock, pulses.not_ready))
    transport = httpx2.ASGITransport(app=app)
    async with (
        asyncio.timeout(60),
        httpx2.AsyncClient(transport=transport, base_url="http://foreshock.test") as probe,
        clusters.running(),
    ):
        await until_followed(database, "deaf", of="deaf")
        while True:
            if found := await remarks():
                break
            await asyncio.sleep(0.2)
        ((watch,), warnings) = clusters.watches(), clusters.warnings()
        assert (watch.remarks, warnings) == (1, {"deaf": 0}), "it fails"
        later = 4 * RECONCILE_EVERY  # so long nobody has heard of what fires; the others go on as they did
        while True:
            if (await probe.get("/readyz")).status_code == 200:
                break
            assert not any("fires" in reason for reason in pulses.not_ready())
            await asyncio.sleep(0.2)
    [remark] = found
    assert remark.startswith(f"{url} does not say which alerts fire since ")


async def test_that_an_alertmanager_does_not_answer_is_said_once_each_time(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a Prometheus: a warning, however often it is asked, and one more where it had answered in between."""
    asked, answers = 0, False

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += "alerts" in request.path
        return web.json_response([]) if answers else web.Response(status=503)

    async def until(number: int) -> None:
        async with asyncio.timeout(30):
            while asked < number:  # noqa: ASYNC110 - of others' count
                await asyncio.sleep(0.02)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    for name, value in (
        ("clusters.log", structlog.get_logger()),
        ("supervise.log", structlog.get_logger()),
        ("supervise.FIRST_PAUSE", timedelta(milliseconds=1)),
        ("clusters.RECONCILE_EVERY", timedelta(milliseconds=1)),
    ):
        monkeypatch.setattr(f"app.{name}", value)
    async with listening(app) as url:
        wanted = WantedCluster("away", str(kubeconfig(tmp_path, "away")), alertmanager=Alertmanager(url))
        running = Clusters(
            database,
            Pulses(lambda: datetime.now(UTC)),
            wanted=lambda: (wanted,),
            folder=tmp_path / "spool",
            spool_bytes=1_000_000,
            clock=lambda: datetime.now(UTC),
        )
        with capture_logs() as lines:
            async with running.running():
                await until(4)
                answers = True
                await until(asked + 3)
                answers = False
                await until(asked + 4)
    said = [line for line in lines if line["log_level"] in {"warning", "error"}]
    assert [(line["event"], line["log_level"]) for line in said] == [
        ("alerts are not listed for now, trying on", "warning")
    ] * 2
    assert {(line["cluster"], line["source"]) for line in said} == {("away", url)}
    assert "503" in said[0]["why"]


async def test_a_query_whose_answer_is_too_large_is_to_be_another_one(database: Database, tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b" " * (MOST_BYTES + 1))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with listening(app) as url:
        wanted = WantedCluster("large", str(kubeconfig(tmp_path, "large")), prometheus=Prometheus(url))
        clusters = Clusters(
            database,
            Pulses(lambda: datetime.now(UTC)),
            wanted=lambda: (wanted,),
            folder=tmp_path / "spool",
            spool_bytes=1_000_000,
            clock=lambda: datetime.now(UTC),
        )
        now = datetime.now(UTC)
        async with clusters.running():
            with pytest.raises(QueryError, match="more than 10 MiB: aggregate it, or ask of a shorter time") as error:
                await clusters.evaluate("large", "up", now - timedelta(hours=1), now, timedelta(minutes=1))
    assert error.value.refused
