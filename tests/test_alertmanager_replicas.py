"""Two real Alertmanagers behind one address, as in most clusters: each lists only what it was told itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from app import correlate
from app.clusters import Clusters
from app.collect.alerts import SETTLES, Alertmanager, list_firing
from app.collect.contexts import WantedCluster
from app.core.findings import Incident
from app.core.incidents import tellings
from app.core.objects.redact import Redactor
from app.core.roles import Role
from app.store import tokens
from app.store.database import Database
from app.store.incidents import list_incidents
from app.store.tokens import Purpose
from app.supervise import Pulses
from tests.core.factories import an_alert
from tests.e2e.conftest import Program, serving
from tests.listening import stop
from tests.programs import WITHIN, found, free_address, running
from tests.test_alertmanager import DEPLOY
from tests.test_clusters_wanted import kubeconfig
from tests.web.world import END


@pytest.fixture(scope="module")
def program(dsn: str, database: Database) -> Iterator[Program]:
    with serving(dsn, database) as started:
        yield started


@pytest.fixture(params=["joined", "apart"])
def cluster(request: pytest.FixtureRequest) -> str:
    """Whether the two know each other; and so the name of the Kubernetes cluster whose alerts they have."""
    return str(request.param)


@pytest.fixture
async def replicas(cluster: str, program: Program, tmp_path: Path) -> AsyncIterator[list[str]]:
    """Their addresses. What they fire for is told to Foreshock at once."""
    executable = found("prometheus-alertmanager", "alertmanager", package="prometheus-alertmanager")
    async with program.database.write.begin() as conn:
        (tmp_path / "token").write_text(await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=END))
    config = tmp_path / "alertmanager.yml"
    config.write_text(
        (DEPLOY / "alertmanager.yml")
        .read_text()
        .replace(
            "http://foreshock:8000/intake/alertmanager/default", f"{program.address}/intake/alertmanager/{cluster}"
        )
        .replace("/run/secrets/alertmanager_token", str(tmp_path / "token"))
        .replace("group_wait: 10s", "group_wait: 0s")
        .replace("group_interval: 1m", "group_interval: 1s")
    )
    peers = [free_address(), free_address()]
    with ExitStack() as both:
        urls = []
        for number, mine in enumerate(peers):
            folder = tmp_path / f"replica{number}"
            folder.mkdir()
            options = [
                f"--config.file={config}",
                f"--storage.path={folder / 'data'}",
                f"--cluster.listen-address={mine if cluster == 'joined' else ''}",
                f"--cluster.advertise-address={mine}",
                f"--cluster.peer={peers[1 - number]}",
                "--cluster.settle-timeout=2s",
                "--cluster.peer-timeout=2s",
            ]
            urls.append(both.enter_context(running(executable, *options, address=free_address(), folder=folder)))
        yield urls


@asynccontextmanager
async def by_turns(urls: Iterable[str]) -> AsyncIterator[str]:
    """One address at which each of these takes the next connection, as at a Service."""
    turns = cycle([url.removeprefix("http://").split(":") for url in urls])

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while part := await reader.read(1 << 16):
                writer.write(part)
                await writer.drain()
        writer.close()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = next(turns)
        its_reader, its_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pass_on(reader, its_writer), pass_on(its_reader, writer))

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
    finally:
        await stop(server)


def tell(url: str, name: str, **more: str) -> None:
    """As a Prometheus tells it to one of them."""
    labels = {"alertname": name, "severity": "critical", "namespace": name.lower()}
    httpx2.post(f"{url}/api/v2/alerts", json=[{"labels": labels} | more]).raise_for_status()


def notified(url: str) -> int:
    """How many requests it has sent here."""
    counted = 'alertmanager_notification_requests_total{integration="webhook"'
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(counted))


async def read(database: Database, cluster: str) -> dict[str, Incident]:
    """The incidents, by the names of their only alerts."""
    async with database.read.connect() as conn:
        incidents = await list_incidents(conn, cluster=cluster)
    assert all(len(one.alerts) == 1 for one in incidents)
    found = {one.alerts[0].reason: one for one in incidents}
    assert len(found) == len(incidents)
    return found


async def until(database: Database, cluster: str, **wanted: str) -> dict[str, Incident]:
    """Until these alerts' incidents stand so."""
    async with asyncio.timeout(WITHIN):
        while True:
            incidents = await read(database, cluster)
            if wanted.items() <= {name: one.status for name, one in incidents.items()}.items():
                return incidents
            await asyncio.sleep(0.2)


async def test_what_one_of_them_was_not_told_stays_open_whoever_answers(
    replicas: list[str], cluster: str, database: Database, tmp_path: Path
) -> None:
    """At each start, and at each look after it; what ended while nobody listened ends by the first of these."""
    started = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    told, deaf = replicas
    tell(told, "Fires", startsAt=started.isoformat())
    (fires,) = (await until(database, cluster, Fires="open"))["Fires"].alerts

    def stays(incidents: dict[str, Incident]) -> bool:
        (alert,) = incidents["Fires"].alerts
        return replace(alert, active_at=None) == fires

    def clock() -> datetime:
        return datetime.now(UTC) + 2 * SETTLES  # they have run for a while

    async with by_turns([deaf, told]) as url:
        source = Alertmanager(url)
        wanted = WantedCluster(cluster, str(kubeconfig(tmp_path, cluster)), alertmanager=source)
        for number in range(2):
            over = an_alert(
                started - timedelta(hours=3 * (number + 1)), name=f"Over{number}", namespace=f"over{number}"
            )
            await correlate.take_alerts(database.write, cluster, [over], datetime.now(UTC))
            folder = tmp_path / f"spool{number}"
            clusters = Clusters(
                database, Pulses(clock), wanted=lambda: (wanted,), folder=folder, spool_bytes=1_000_000, clock=clock
            )
            async with clusters.running():
                incidents = await until(database, cluster, **{over.reason: "resolved"})
                assert stays(incidents), "at a start"
                for _ in range(3):
                    await clusters._reconcile(cluster, source)
                    assert stays(await read(database, cluster)), "at a later look"
        tell(told, "Fires", startsAt=started.isoformat(), endsAt=datetime.now(UTC).isoformat())
        await until(database, cluster, Fires="resolved")


async def test_what_both_of_them_tell_is_one(replicas: list[str], cluster: str, database: Database) -> None:
    """Those that know each other mostly leave it to one of them, the others both tell; an end counts by the first."""
    started = datetime.now(UTC) - timedelta(hours=9)
    told, late = replicas
    for number, (status, more) in enumerate((("open", {}), ("resolved", {"endsAt": datetime.now(UTC).isoformat()}))):
        tell(told, "Told", startsAt=started.isoformat(), **more)
        incident = (await until(database, cluster, Told=status))["Told"]
        tell(late, "Told", startsAt=started.isoformat(), **more)
        if cluster == "apart":
            while notified(late) <= number:  # noqa: ASYNC110 - another program counts
                await asyncio.sleep(0.2)
        else:
            await asyncio.sleep(4)  # its turn has come, and it has seen that the other told
        after = (await read(database, cluster))["Told"]
        assert (after.id, after.status, after.alerts) == (incident.id, status, incident.alerts)


async def test_what_one_that_is_cut_off_says_is_over_is_open_again_while_the_other_knows_better(
    replicas: list[str], cluster: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so when what it was told last holds no longer: after four minutes, here after some seconds."""
    monkeypatch.setattr(tellings, "ARRIVES_WITHIN", timedelta(seconds=1))  # a minute where its webhook is taken
    started = datetime.now(UTC) - timedelta(hours=27)
    heard, cut_off = replicas

    def resend(url: str, *, holds: timedelta) -> None:
        tell(url, "CutOff", startsAt=started.isoformat(), endsAt=(datetime.now(UTC) + holds).isoformat())

    async def look() -> Incident:
        asked = datetime.now(UTC) + 2 * SETTLES
        held = await correlate.read_firing(database.read, cluster, asked=asked)
        firing = await list_firing(Alertmanager(url), Redactor(b"a key of at least 16 bytes"), now=asked, held=held)
        await correlate.reconcile(database.write, cluster, firing.alerts, fingerprints=firing.fingerprints, asked=asked)
        return (await read(database, cluster))["CutOff"]

    resend(heard, holds=timedelta(minutes=4))
    opened = (await until(database, cluster, CutOff="open"))["CutOff"]
    resend(cut_off, holds=timedelta(seconds=3))
    over = (await until(database, cluster, CutOff="resolved"))["CutOff"]
    async with by_turns([heard]) as url:
        assert (await look()).resolved_at == over.resolved_at, "what it was told last is older than the end"
    await asyncio.sleep(1)
    resend(heard, holds=timedelta(minutes=4))
    async with by_turns([cut_off, heard]) as url:
        looks = [await look() for _ in range(4)]
    assert [one.status for one in looks] == ["resolved", "open", "open", "open"], "the first asked one of them alone"
    assert {one.id for one in looks} == {opened.id}
    resend(heard, holds=timedelta(seconds=-1))
    await until(database, cluster, CutOff="resolved")
