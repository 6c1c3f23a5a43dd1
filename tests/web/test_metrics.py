"""Foreshock's own metrics: what they say, to whom, and that they are said while the database is away."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx2
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import delete, insert, update
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.core.roles import Role
from app.core.vitals import Listening, Recording, Vitals, Watch, Work
from app.store import codes, collectors, incidents, outbox, slack_tables, tokens
from app.store.collectors import Standing
from app.store.database import Database
from app.store.tables import incidents as incidents_table
from app.store.tables import recorded
from app.store.tables import tokens as tokens_table
from app.store.tokens import Purpose
from app.web import metrics
from app.web.deps import Deps, TooLargeError
from app.web.known_tokens import KnownTokens
from app.web.routes import create_app
from tests.listening import stop
from tests.programs import found
from tests.web import world
from tests.web.conftest import HOST, NOW, Site

VITALS = Vitals(
    work=(
        Work("partitions", NOW - timedelta(minutes=3), timedelta(seconds=2.5), 4),
        Work("recording shop", NOW, None, 0),
    ),
    recordings=(Recording("shop", 700, 1000, 300, changes=12, calls=3400, quarantined=2),),
    watches=(Watch("shop", NOW - timedelta(seconds=5), 31, 2, 1), Watch('odd"\n\\', None, 0, 1, 0)),
)
Samples = dict[tuple[str, tuple[str, ...]], float]


async def take_audit(_cluster: str, _chunks: AsyncIterator[bytes], declared: int) -> None:
    if declared > 10:
        raise TooLargeError("too large")


@pytest.fixture
async def client(database: Database) -> AsyncIterator[httpx2.AsyncClient]:
    """A Prometheus with a token to scrape with."""
    async with database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, "", purpose=Purpose.SCRAPE, now=NOW)
    async with scraper(await known(database), database.read, token) as made:
        yield made


async def known(database: Database) -> KnownTokens:
    found = KnownTokens(database.write, lambda: NOW)
    await found.refresh()
    return found


def scraper(known: KnownTokens, engine: AsyncEngine, token: str) -> httpx2.AsyncClient:
    made = Deps(
        engine,
        engine,
        HOST,
        lambda: NOW,
        vitals=lambda: VITALS,
        warnings=lambda: {"shop": 3},
        cluster_of=known.cluster_of,
        is_expired=known.is_expired,
        take_audit=take_audit,
    )
    transport = httpx2.ASGITransport(app=create_app(made), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=HOST, headers={"Authorization": f"Bearer {token}"})


async def scraped(client: httpx2.AsyncClient) -> Samples:
    """Every sample, by its name and the values of its labels, in the order of the labels' names."""
    answer = (await client.get("/metrics")).raise_for_status()
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_what_the_process_knows_of_itself_is_told(client: httpx2.AsyncClient) -> None:
    told = await scraped(client)
    assert told["foreshock_database_up", ()] == 1
    assert told["foreshock_worker_failures_total", ("partitions",)] == 4
    assert told["foreshock_worker_last_duration_seconds", ("partitions",)] == 2.5
    assert ("foreshock_worker_last_duration_seconds", ("recording shop",)) not in told  # it has not ended once
    assert told["foreshock_worker_last_success_timestamp_seconds", ("recording shop",)] == NOW.timestamp()
    assert told["foreshock_spool_bytes", ("shop",)] / told["foreshock_spool_capacity_bytes", ("shop",)] == 0.7
    assert told["foreshock_spool_unrecorded_bytes", ("shop",)] == 300
    assert told["foreshock_changes_recorded_total", ("shop",)] == 12
    assert told["foreshock_quarantined_total", ("shop",)] == 2
    assert told["foreshock_watch_last_heard_timestamp_seconds", ("shop",)] == NOW.timestamp() - 5
    assert told["foreshock_open_gaps", ('odd"\n\\',)] == 1
    severities = ("error", "warning")
    assert [told["foreshock_remarks", ("shop", severity)] for severity in severities] == [1, 3]
    assert ("foreshock_watch_last_heard_timestamp_seconds", ('odd"\n\\',)) not in told
    assert told["process_resident_memory_bytes", ()] > 1e6
    assert [which for (name, which) in told if name == "foreshock_build_info"] != [("",)]


async def test_what_the_database_knows_is_told_too(client: httpx2.AsyncClient, database: Database) -> None:
    async with database.write.begin() as conn:
        assert await collectors.take(conn, "shop", "one") == 1
        assert await collectors.take(conn, "ended", "one") == 1
        await collectors.leave(conn, "ended", 1, standing=Standing.ENDED)
        number = await codes.find_cluster(conn, "shop")
        await conn.execute(insert(recorded).values(cluster_id=number, source="watch", from_at=NOW, to_at=NOW))
    told = await scraped(client)
    assert told["foreshock_recorded_timestamp_seconds", ("shop", "watch")] == NOW.timestamp()
    followed = [which for (name, which) in told if name == "foreshock_collector_renewed_timestamp_seconds"]
    assert followed == [("shop",)]
    assert told["foreshock_unranked_incidents", ()] == 0
    assert told["foreshock_slack_refused", ()] == 0
    assert told["foreshock_slack_in_vain_seconds", ()] == 0


@pytest.mark.parametrize(
    ("listening", "says"),
    [(None, []), (Listening(is_open=True, since=NOW), [1]), (Listening(is_open=False, since=NOW, why="why"), [0])],
)
async def test_whether_slack_s_connection_is_open_is_told(
    database: Database, listening: Listening | None, says: list[int]
) -> None:
    exposed = metrics.Exposed(metrics.Answers(), Vitals(), None, NOW, listening=listening)
    told = [one for family in exposed.collect() if family.name == "foreshock_slack_connected" for one in family.samples]
    assert [sample.value for sample in told] == says


async def test_for_how_long_slack_is_told_in_vain_is_told(client: httpx2.AsyncClient, database: Database) -> None:
    """By the oldest that waits, whichever place it is for."""
    async with database.write.begin() as conn:
        await codes.cluster(conn, world.CLUSTER)
        for n, channel in enumerate(("C0123456789", "ops")):
            incident = replace(world.incident(), id=f"{n}" * 12, started_at=NOW - timedelta(hours=1))
            await incidents.save_incident(conn, incident)
            await outbox.name_channel(conn, channel, now=NOW)
            await outbox.owe(conn, channel, incident_id=incident.id, now=NOW)
        m = slack_tables.messages
        for channel, minutes in (("C0123456789", 2), ("ops", 7)):
            since = {"put_off": "why", "put_off_since": NOW - timedelta(minutes=minutes)}
            await conn.execute(update(m).where(m.c.channel == channel).values(since))
    assert (await scraped(client))["foreshock_slack_in_vain_seconds", ()] == 420
    async with database.write.begin() as conn:
        await conn.execute(update(m).where(m.c.channel == "ops").values(error="it is given up"))
    told = await scraped(client)
    assert (told["foreshock_slack_in_vain_seconds", ()], told["foreshock_slack_refused", ()]) == (120, 1)
    async with database.write.begin() as conn:
        await conn.execute(delete(m))
        await conn.execute(delete(incidents_table))


async def test_answers_to_senders_are_counted_refusals_included(database: Database) -> None:
    async with database.write.begin() as conn:
        sends = await tokens.create_for_cluster(conn, "shop", now=NOW)
        scrapes = await tokens.create_for_cluster(conn, "", purpose=Purpose.SCRAPE, now=NOW)
    async with scraper(await known(database), database.read, scrapes) as client:
        url, sender = "/intake/audit/shop", {"Authorization": f"Bearer {sends}"}
        assert (await client.post(url, headers=sender, content=b"{}")).status_code == 200
        assert (await client.post(url, headers=sender, content=b"x" * 11)).status_code == 413
        assert (await client.post(url, headers={"Authorization": "Bearer fs_wrong"})).status_code == 401
        assert (await client.post("/intake/made-up/x", headers=sender)).status_code == 401
        told = await scraped(client)
    answers = {which: value for (name, which), value in told.items() if name == "foreshock_intake_answers_total"}
    assert answers == {("200", "audit"): 1, ("413", "audit"): 1, ("401", "audit"): 1}
    assert told["foreshock_intake_duration_seconds_count", ("audit",)] == 3


async def test_a_sender_whose_token_has_run_out_is_told_from_a_stranger(database: Database) -> None:
    long_ago, life = NOW - timedelta(days=200), timedelta(days=199)
    async with database.write.begin() as conn:
        audit = await tokens.create_for_cluster(conn, "shop", now=long_ago, life=life)
        alerts = await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=long_ago, life=life)
        scrapes = await tokens.create_for_cluster(conn, "", purpose=Purpose.SCRAPE, now=NOW)
    async with scraper(await known(database), database.read, scrapes) as client:
        for url, token in (("audit", audit), ("alertmanager", alerts), ("alertmanager", "fs_of_a_stranger")):
            sent = await client.post(f"/intake/{url}/shop", headers={"Authorization": f"Bearer {token}"})
            assert sent.status_code == 401
        told = await scraped(client)
    expired = {which: value for (name, which), value in told.items() if name == "foreshock_intake_expired_total"}
    assert expired == {("audit",): 1, ("alertmanager",): 1}


async def test_when_the_first_token_that_is_in_use_expires_is_told(
    client: httpx2.AsyncClient, database: Database
) -> None:
    async def made(days: int, *, used_days_ago: int, lasts: int = 365, role: Role = Role.RESPONDER) -> None:
        async with database.write.begin() as conn:
            life = timedelta(days=lasts)
            begun = NOW + timedelta(days=days) - life
            token = await tokens.create(conn, role, purpose=Purpose.API, now=begun, life=life)
            which = tokens_table.c.digest == tokens.digest(token)
            at = NOW - timedelta(days=used_days_ago)
            await conn.execute(update(tokens_table).where(which).values(last_used_at=at))

    async with database.write.begin() as conn:
        await conn.execute(update(tokens_table).values(last_used_at=None))
    await made(40, used_days_ago=1)
    await made(10, used_days_ago=3)
    await made(5, used_days_ago=9)
    await made(3, used_days_ago=1, lasts=20)
    await made(2, used_days_ago=1, role=Role.VIEWER)
    told = await scraped(client)
    found = {which: value for (name, which), value in told.items() if name == "foreshock_token_expires_in_seconds"}
    assert found == {("", "responder"): 10 * 86400}


async def test_promtool_finds_nothing_wrong_with_them(client: httpx2.AsyncClient) -> None:
    promtool = found("promtool", package="prometheus")
    await client.post("/intake/audit/shop", content=b"{}")
    text = (await client.get("/metrics")).text
    check = [promtool, "check", "metrics"]
    done = await asyncio.to_thread(subprocess.run, check, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


async def test_openmetrics_is_spoken_with_who_asks_for_it(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")


async def test_a_database_that_refuses_or_stalls_is_said_and_the_rest_is_told(
    client: httpx2.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(metrics, "WITHIN_SECONDS", 0.2)
    stalled = await asyncio.start_server(silent, "127.0.0.1", 0)
    tokens_known, token = await known(database), client.headers["authorization"].removeprefix("Bearer ")
    for port in (1, stalled.sockets[0].getsockname()[1]):
        engine = create_async_engine(f"postgresql+psycopg://nobody@127.0.0.1:{port}/none")
        async with asyncio.timeout(10), scraper(tokens_known, engine, token) as scraping:
            told = await scraped(scraping)
        assert told["foreshock_database_up", ()] == 0
        assert told["foreshock_spool_bytes", ("shop",)] == 700
        assert not any(name == "foreshock_recorded_timestamp_seconds" for name, _ in told)
        await engine.dispose()
    await stop(stalled)


async def test_a_token_to_scrape_with_is_good_for_nothing_else(client: httpx2.AsyncClient, site: Site) -> None:
    assert (await client.get("/api/v1/incidents")).status_code == 401
    assert (await client.get("/metricsx")).status_code == 401
    assert (await client.post("/intake/audit/shop")).status_code == 401
    async with site.client() as viewer, site.client(None) as stranger:
        assert (await viewer.get("/metrics")).status_code == 200
        assert (await stranger.get("/metrics")).status_code == 401


async def test_before_tokens_are_known_who_scrapes_is_told_to_come_again(database: Database) -> None:
    nowhere = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    unread = KnownTokens(database.write, lambda: NOW)
    async with scraper(unread, nowhere, "fs_unknown") as scraping:
        assert (await scraping.get("/metrics")).status_code == 503
