"""The composition root: settings → PostgreSQL → migrations → workers → the web application.

The only file that knows everybody; the command line calls it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import FrameType
from typing import Never

import structlog
import uvicorn
import uvloop
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app import correlate, dumps, identities, logs, setting_files
from app.allocation import give_back, keep_trimmed
from app.allowed import allow_much
from app.clusters import Clusters
from app.clusters_file import wanted_clusters
from app.collect import alerts, remote_write
from app.collect.garbage import loaded_stays
from app.collect.remote_write import Receiver
from app.core.access import Access
from app.core.alerted import TIME, LeftOut
from app.core.clusters import About, alerts_alone
from app.core.incidents import pagers
from app.core.roles import Role
from app.core.screen.elsewhere import Neighbours
from app.core.vitals import Vitals
from app.failures import Expected
from app.installation import Postgres, ages_of, login_link, now, pools, postgres, url_of
from app.notifying import notifier_of, secret
from app.oidc import oidc_of
from app.reverting import Reverts, Ways, ways_of
from app.settings import Settings
from app.store import collectors, compaction, partitions, remarks, retention
from app.store.database import Database, open_database
from app.store.external import list_clusters
from app.store.redaction import read_redactor
from app.supervise import Pulses, Worker, keep, keep_running
from app.tasks import end
from app.tls import Tls
from app.web import deps as web
from app.web.connections import REST_SECONDS, BoundedHeads
from app.web.deps import Deps, Lost, TakeAlerts, Taken, TakePage, TakeSamples, TooLargeError
from app.web.proxied import Peered
from app.web.routes import Lifespan, create_app

BACKLOG = 128

log = structlog.get_logger()


Prepare = Callable[[Database], Awaitable[str]]
"""Does something before the first request, or when asked to; answers the path of the page that shows it."""


class AddressError(Expected):
    """The address cannot be listened on; the message says which and why."""


def workers(settings: Settings, database: Database) -> tuple[Worker, ...]:
    """What runs beside the web application."""
    ages = ages_of(settings)

    async def make_room() -> None:
        async with database.write.begin() as conn:
            await partitions.ensure_ahead(conn, now())
        await retention.drop_expired(database.write, ages, now=now())

    async def pack_samples() -> None:
        while True:
            async with database.write.begin() as conn:
                hour = await compaction.compact(conn, now=now())
            if hour is None:
                return
            log.debug("samples compacted", hour=hour.at.isoformat(), samples=hour.samples)

    async def rank_again() -> None:
        await correlate.rerank(database.write, now())

    files = setting_files.Noted(database.write, setting_files.files_of(settings))

    async def look_at_settings() -> None:
        await files.look(now())

    async def look_for_trouble() -> None:
        async with database.write.connect() as conn:
            lively = await collectors.list_lively(conn, since=now() - correlate.LIVELY)
        for cluster in lively:
            await correlate.suspect(database.write, cluster, now())

    return (
        Worker("partitions", make_room, timedelta(hours=1)),
        Worker("samples", pack_samples, timedelta(minutes=1)),
        Worker("rankings", rank_again, timedelta(seconds=15)),
        Worker("suspicions", look_for_trouble, timedelta(minutes=1)),
        Worker("settings", look_at_settings, timedelta(seconds=15)),
    )


def alert_taker(database: Database) -> TakeAlerts:
    """What the web does with an Alertmanager payload: alerts, redacted, become incidents."""

    async def take(cluster: str, body: bytes) -> tuple[Taken, Lost]:
        async with database.write.begin() as conn:
            redactor, known = await read_redactor(conn), await list_clusters(conn)
        at = now()
        found, left_out = alerts.parse(body, redactor, received=at)
        kept = [one for one in found if partitions.storable(one.at, at)]
        # Of tests alone nothing is recorded: they would make a cluster of whatever stands in the address.
        incidents = await correlate.take_alerts(database.write, cluster, kept, at) if kept else []
        left_out += [
            LeftOut(f"{one.reason}: startsAt {one.at.isoformat()} is {NO_TIME}", TIME)
            for one in found
            if not partitions.storable(one.at, at)
        ]
        lost = await _note_lost(database, cluster, left_out)
        if kept or lost:
            _note_new(cluster, known)
        return Taken([incident.id for incident in incidents], [one.why for one in left_out]), lost

    return take


NO_TIME = "more than 400 days ago or to come; is its clock right?"


async def _note_lost(database: Database, cluster: str, left_out: Sequence[LeftOut]) -> Lost:
    """How many alerts are lost, by reason. It is said where people look: a sender does not read what it is told."""
    lost = [one for one in left_out if one.reason]
    if not lost:
        return {}
    why = [one.why for one in lost]
    log.warning("alerts are left out", cluster=cluster, why=why[:10], alerts=sum(one.many for one in lost))
    more = f" (and {len(why) - 1:,} more)" if len(why) > 1 else ""
    async with database.write.begin() as conn:
        await remarks.note(conn, cluster, About.ALERTS, why[0][:WHY_LONGEST] + more, now=now())
    counts: Counter[str] = Counter()
    for one in lost:
        counts[one.reason] += one.many
    return counts


WHY_LONGEST = 300


def _note_new(cluster: str, known: Collection[str]) -> None:
    """The first alerts of a cluster are taken whatever it is called: nothing of what fires may be lost."""
    if cluster not in known:
        log.warning("alerts have made a cluster", cluster=cluster, why=alerts_alone(cluster, known))


PAGERS = {"pagerduty": pagers.pagerduty, "opsgenie": pagers.opsgenie}


def page_taker(database: Database) -> TakePage:
    """What the web does with what a pager sends: an alert, redacted, becomes an incident."""

    async def take(cluster: str, pager: str, body: bytes) -> tuple[Taken, Lost]:
        async with database.write.begin() as conn:
            redactor, known = await read_redactor(conn), await list_clusters(conn)
        at = now()
        paged = PAGERS[pager](body, redactor, received=at)
        found = await correlate.take_page(database.write, cluster, paged, source=pager, now=at)
        left_out = [LeftOut(paged.left_out, "")] if paged.left_out else []
        if paged.alert is not None and not partitions.storable(paged.alert.at, at):
            left_out = [LeftOut(f"{paged.alert.reason}: it began more than 400 days ago, or is to come", TIME)]
        lost = await _note_lost(database, cluster, left_out)
        if paged.alert is not None:
            _note_new(cluster, known)
        return Taken([incident.id for incident in found], [one.why for one in left_out]), lost

    return take


def sample_taker(settings: Settings, database: Database) -> TakeSamples:
    """What the web does with the body of a remote-write."""
    receiver = Receiver(database.write, now, most_series=settings.series_per_cluster)

    async def take(cluster: str, body: bytes) -> None:
        try:
            await receiver.take(cluster, body)
        except remote_write.TooLargeError as error:
            raise TooLargeError(str(error)) from None

    return take


def build(
    settings: Settings,
    server: Postgres,
    *,
    url: str,
    demo: Prepare,
    access: Callable[[], Access],
    ways: Callable[[], Ways],
) -> FastAPI:
    """The application with its lifespan; ``url`` is where it is reached, ``demo`` replays the recorded incident,
    ``access`` says what people may do of whom a proxy says who they are, ``ways`` how they act in clusters.

    Nothing runs yet.
    """
    database = open_database(server.dsn)
    pulses, notifier = Pulses(now), notifier_of(settings, database, url=url, clock=now)
    heard = notifier.heard
    clusters = Clusters(
        database,
        pulses,
        wanted=lambda: wanted_clusters(settings),
        folder=settings.data_dir / "spool",
        spool_bytes=settings.spool_bytes,
        clock=now,
    )
    deps = Deps(
        read=database.read,
        scoped=database.scoped,
        write=database.write,
        public_url=url,
        clock=now,
        not_ready=pulses.not_ready,
        vitals=lambda: Vitals(pulses.work(), clusters.recordings(), clusters.watches()),
        warnings=clusters.warnings,
        take_alerts=alert_taker(database),
        take_page=page_taker(database),
        cluster_of=clusters.tokens.cluster_of,
        is_good=clusters.tokens.is_good,
        is_expired=clusters.tokens.is_expired,
        note_use=clusters.tokens.note_use,
        used=clusters.tokens.used,
        take_audit=clusters.take,
        by_hand=correlate.ByHand(database.write),
        take_samples=sample_taker(settings, database),
        evaluate=clusters.evaluate,
        replay_demo=lambda: demo(database),
        launchdarkly_secret=secret(settings.launchdarkly_secret),
        pagerduty_secrets=tuple(secret(settings.pagerduty_secrets).split()),
        changes_kept=min(timedelta(days=settings.changes_retention_days), partitions.OLDEST),
        slack=web.Slack(
            settings.slack_channel or "",
            listening=heard.listening if heard else lambda: None,
            signing_secret=secret(settings.slack_signing_secret),
            routes=notifier.routes,
            routes_error=lambda: notifier.routes.error,
            suspected=settings.slack_suspected,
        ),
        take_click=heard.clicks.take if heard else web.refuse_told,
        take_event=heard.hear if heard else web.refuse_told,
        answer_command=heard.commands.answer if heard else web.refuse_command,
        proxy=identities.proxy_of(settings),
        oidc=oidc_of(settings, url=url, clock=now),
        neighbours=Neighbours(*(str(one or "").rstrip("/") for one in (settings.argocd_url, settings.backstage_url))),
        access=access,
        reverts=Reverts(database, ways),
    )
    beside = workers(settings, database) + notifier.workers()
    listening = heard.listen if heard and heard.app_token else None
    lifespan = _lifespan(server, database, pulses=pulses, clusters=clusters, beside=beside, listening=listening)
    return create_app(deps, lifespan=lifespan)


def _lifespan(
    server: Postgres,
    database: Database,
    *,
    pulses: Pulses,
    clusters: Clusters,
    beside: tuple[Worker, ...],
    listening: Callable[[], Awaitable[Never]] | None,
) -> Lifespan:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(database.close)
            jobs: list[asyncio.Task[None]] = [asyncio.create_task(keep_running("giving memory back", keep_trimmed))]
            if server.own:
                jobs.append(asyncio.create_task(keep_running("keeping PostgreSQL", server.keep)))
            for worker in beside:
                jobs.append(asyncio.create_task(keep(worker, database.turns, pulses=pulses)))  # noqa: PERF401 - reads as it runs
            if listening:
                jobs.append(asyncio.create_task(keep_running("what is done in Slack", listening)))
            stack.push_async_callback(end, jobs)
            await stack.enter_async_context(clusters.running())
            yield

    return lifespan


async def _invitation(server: Postgres, database: Database, *, url: str, landing: str) -> str:
    """The one line a person needs. Only who can read our own database's folder is given a key to it."""
    if server.own is None:
        return f"Foreshock is at {url} (a link to log in: foreshock login --role admin)"
    return f"Foreshock is at {await login_link(database, url, role=Role.ADMIN, landing=landing)}"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises AddressError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        raise AddressError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock


def serve(
    settings: Settings, *, host: str, port: int, demo: Prepare, demo_first: bool = False, tls: Tls | None = None
) -> None:
    """Serves until SIGTERM or SIGINT, then ends cleanly: workers, pools and our own PostgreSQL, in that order.

    ``demo`` replays the recorded incident and answers its path: with ``demo_first`` before the first request, unless
    there is a cluster to follow. Raises AddressError, TlsError, ContextsError, AccessError,
    SettingsError, RevertsError and what ``postgres`` raises.
    """
    logs.configure(settings.log_level)
    dumps.leave_none()
    give_back()
    allow_much()
    if tls:
        tls.check()
    access, ways = identities.access_of(settings), ways_of(settings)
    believed = identities.forwarders(os.environ.get("FORWARDED_ALLOW_IPS", ""))
    live = wanted_clusters(settings)  # what is wrong there ends the program in words; later it is only logged
    prepare = forgetful(demo, settings) if demo_first and not live else None
    signal.signal(signal.SIGTERM, _leave)
    with listen(host, port) as sock, postgres(settings) as server:
        url = url_of(settings, host, sock.getsockname()[1], scheme="https" if tls else "http")
        # Printed here, where what goes wrong ends the program in words. Who is quick waits in the socket's backlog.
        print(uvloop.run(_prepared(server, prepare, url=url)), flush=True)  # noqa: T201
        app = build(settings, server, url=url, demo=demo, access=access, ways=ways)
        # No access log: a login link has its token in the URL.
        config = uvicorn.Config(
            app,
            http=BoundedHeads,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=10,
            timeout_keep_alive=REST_SECONDS,
            # Without it uvicorn believes whoever is on this machine: a tunnel's end, a sidecar, kubectl port-forward.
            forwarded_allow_ips=believed,
            ssl_certfile=tls.cert if tls else None,
            ssl_keyfile=tls.key if tls else None,
        )
        # Whose word counts of who people are is seen at the connection, before X-Forwarded-For says whose it is.
        config.app = Peered(ProxyHeadersMiddleware(app, trusted_hosts=config.forwarded_allow_ips))  # type: ignore[arg-type]
        web_server = uvicorn.Server(config)
        app.state.followers.stopping = lambda: web_server.should_exit  # else it would wait for who follows changes
        with loaded_stays():
            web_server.run(sockets=[sock])


def forgetful(demo: Prepare, settings: Settings) -> Prepare:
    """The demo once what is too old is forgotten, as it would be a moment later: else it may lead to that."""

    async def prepare(database: Database) -> str:
        await retention.drop_expired(database.write, ages_of(settings), now=now())
        return await demo(database)

    return prepare


async def _prepared(server: Postgres, prepare: Prepare | None, *, url: str) -> str:
    async with pools(server) as database:
        landing = await prepare(database) if prepare else "/"
        return await _invitation(server, database, url=url, landing=landing)


def _leave(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM as an exit: the default would end us before our PostgreSQL is stopped."""
    sys.exit(0)
