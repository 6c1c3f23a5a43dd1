"""Where GET /api/v1/routing says that something would go is where it goes, whatever the routes, mutes and hours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import structs
from sqlalchemy import select, text

from app.core.model import Batch, Change, ObjectState, Resource, Verb
from app.core.roles import Role
from app.core.routes import Quiet, Route, Routes, What
from app.core.targets import Webhook
from app.notify.sender import Sender
from app.store import incidents, notices, outbox, slack_tables, tokens
from app.store.database import Database
from app.store.notices import Mute
from app.store.record import record
from app.store.tokens import Purpose
from app.web.deps import Slack
from app.web.routes import create_app
from tests.notify.test_sender import Clock
from tests.web import world
from tests.web.conftest import HOST, UNLIMITED, deps

HOME, SHARED, TARGET = "C0000000001", "C0000000002", "pipeline"
CLUSTERS, NAMESPACES, SEVERITIES = ("prod", "staging"), ("shop", "pay", "other"), ("critical", "warning", "Page")
KINDS = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "CronJob": "batch",
    "ConfigMap": "",
    "NetworkPolicy": "networking.k8s.io",
}
HOOK = Webhook(url="https://hooks.example/x", secret_file="/none")
MOMENTS = tuple(
    datetime.fromisoformat(at).replace(tzinfo=UTC)
    for at in ("2026-03-29T00:30", "2026-03-29T01:15", "2026-10-25T00:30", "2026-10-25T01:30", "2026-11-20T14:00")
)
"""Around the two nights in which clocks move in Berlin, and one on which they do not."""
TABLES = ("slack_mutes", "slack_notices", "slack_routed", "slack_messages", "slack_channels", "incidents", "arrivals")
_EXAMPLES = count()


def some(names: Sequence[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Patterns: mostly none, or one or two of these."""
    return st.just(()) | st.just(()) | st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).map(tuple)


CLOCKS = st.sampled_from([f"{hour:02}:{minute}" for hour in (0, 1, 2, 3, 14, 22) for minute in ("00", "30")])
QUIET = st.builds(Quiet, CLOCKS, CLOCKS, st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]))


@st.composite
def some_route(draw: st.DrawFn) -> Route:
    place = draw(st.sampled_from([HOME, SHARED, SHARED, TARGET]))
    tell = draw(st.sampled_from([(What.CHANGES,), (What.CHANGES,), (What.INCIDENTS,), tuple(What)]))
    return Route(
        None if place == TARGET else place,
        tell=tell,
        clusters=draw(some(("prod", "stag*", "nowhere"))),
        namespaces=draw(some((*NAMESPACES[:2], "s*", "?ay"))),
        kinds=draw(some(("deployments", "Deployment", "statefulset", "*job", "networkpolicies"))),
        labels=draw(st.sampled_from([{}, {}, {"team": "blue"}, {"team": "*"}])),
        severities=draw(some(SEVERITIES)),
        quiet=draw(st.none() | QUIET),
        target=TARGET if place == TARGET else None,
    )


WRITES = st.tuples(
    st.sampled_from(CLUSTERS),
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(NAMESPACES),
    st.sampled_from([Verb.CREATE, Verb.UPDATE]),
)
ROUTES = st.lists(some_route(), max_size=5).map(lambda found: Routes(tuple(found), {TARGET: HOOK}))
MUTES = st.lists(
    st.tuples(st.sampled_from([HOME, SHARED]), st.sampled_from(["", *CLUSTERS]), st.sampled_from(["", *NAMESPACES])),
    max_size=2,
)


SHOP_WAITS = Routes(
    (Route(SHARED, namespaces=("shop",), quiet=Quiet("14:00", "22:00")), Route(SHARED, namespaces=("pay",)))
)


@dataclass
class Office:
    """A sender, and the page that says what it would do."""

    database: Database
    clock: Clock
    client: httpx2.AsyncClient
    routes: Routes = field(default_factory=Routes)

    @property
    def sender(self) -> Sender:
        return Sender(self.database.write, None, HOME, HOST, self.clock, routes=lambda: self.routes)

    async def routing(self, **asked: str) -> dict[str, Any]:
        answer = await self.client.get("/api/v1/routing", params=asked)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def begin(self, at: datetime, routes: Routes, mutes: Sequence[tuple[str, str, str]]) -> None:
        """Nothing was told until now; all places are named."""
        self.clock.now, self.routes = at, routes
        async with self.database.write.begin() as conn:
            for table in TABLES:
                await conn.execute(text(f"DELETE FROM {table}"))
            for channel, cluster, namespace in mutes:
                mute = Mute(channel, cluster, namespace, "", at + timedelta(hours=1), "alice")
                await notices.mute(conn, mute, now=at)
        await self.sender.find()

    async def told(self, change: Change) -> dict[str, datetime | None]:
        """In which places it was told of, and until when each holds it back."""
        n, d = slack_tables.notices.c, slack_tables.noticed.c
        async with self.database.read.connect() as conn:
            rows = await conn.execute(
                select(d.channel, n.look_at).join(slack_tables.notices, n.id == d.notice_id).where(d.at == change.at)
            )
            soon = self.clock() + notices.BURST
            return {channel: look_at if look_at and look_at > soon else None for channel, look_at in rows}


@pytest.fixture(scope="module")
async def office(database: Database) -> AsyncIterator[Office]:
    clock = Clock(MOMENTS[-1])
    made = Office(database, clock, httpx2.AsyncClient())
    about = replace(deps(database), clock=clock, slack=Slack(HOME, routes=lambda: made.routes))
    app = create_app(about, limits=UNLIMITED)
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.VIEWER, purpose=Purpose.API, now=clock())
        for cluster in CLUSTERS:
            space = Resource(cluster, "", "Namespace", None, "pay")
            labelled = ObjectState(space, "u", "1", MOMENTS[0], {"metadata": {"labels": {"team": "blue"}}})
            await record(conn, Batch(cluster, objects=(labelled,)))
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(transport=transport, base_url=HOST, headers=headers) as made.client:
        yield made


SETTINGS = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@SETTINGS
@given(st.sampled_from(MOMENTS), ROUTES, MUTES, st.lists(WRITES, min_size=1, max_size=4))
@example(MOMENTS[-1], SHOP_WAITS, [], [("prod", "Deployment", one, Verb.UPDATE) for one in ("shop", "pay")])
async def test_a_change_goes_where_it_is_said_to_go(
    office: Office,
    at: datetime,
    routes: Routes,
    mutes: list[tuple[str, str, str]],
    writes: list[tuple[str, str, str, Verb]],
) -> None:
    own = next(_EXAMPLES)
    at += own * timedelta(seconds=10)
    await office.begin(at, routes, mutes)
    made = []
    for n, (cluster, kind, namespace, verb) in enumerate(writes):
        when = at + timedelta(seconds=n)
        change = world.a_change(
            f"app-{own}-{n}",
            at=when,
            kind=kind,
            api_group=KINDS[kind],
            namespace=namespace,
            verb=verb,
            cluster=cluster,
            version=f"{when.timestamp():.0f}",
        )
        made.append(change)
    said = {}
    for change in made:
        office.clock.forward(1)
        async with office.database.write.begin() as conn:
            await record(conn, Batch(change.resource.cluster, changes=(change,)))
        said[change.id] = await office.routing(change=change.id)
        await office.sender.teller.route()
    for change in made:
        items = said[change.id]["items"]
        goes = {one["place"]: one["quiet_until"] for one in items if one["tells"]}
        held = {place: end and datetime.fromisoformat(end) for place, end in goes.items()}
        assert await office.told(change) == held, msgspec.json.encode(routes)
        assert all(end is None or end > office.clock() for end in held.values())
        of_it = {"cluster": change.resource.cluster, "namespace": change.resource.namespace or ""}
        might = await office.routing(**of_it, kind=change.resource.kind, name=change.resource.name)
        assert might["never"] or [one["why_not"] for one in might["items"]] == [one["why_not"] for one in items]


@SETTINGS
@given(ROUTES, MUTES, st.sampled_from(CLUSTERS), st.sampled_from(["", *NAMESPACES]), st.sampled_from(SEVERITIES))
async def test_an_incident_goes_where_it_is_said_to_go(
    office: Office, routes: Routes, mutes: list[tuple[str, str, str]], cluster: str, namespace: str, severity: str
) -> None:
    at = MOMENTS[-1] + next(_EXAMPLES) * timedelta(seconds=10)
    await office.begin(at, routes, mutes)
    scope = structs.replace(world.incident().scope, namespaces=(namespace,) if namespace else ())
    about = {"cluster": cluster, "severity": severity, "scope": scope, "started_at": at, "alerts": ()}
    incident = structs.replace(world.incident(), id=f"{next(_EXAMPLES):012x}", **about)
    async with office.database.write.begin() as conn:
        await incidents.save_incident(conn, incident)
        await conn.execute(text("UPDATE incidents SET news_at = started_at"))
    said = await office.routing(cluster=cluster, namespace=namespace, severity=severity)
    office.clock.forward(outbox.UNRANKED.total_seconds() + 1)
    await office.sender.find()
    m = slack_tables.messages.c
    async with office.database.read.connect() as conn:
        told = (await conn.execute(select(m.channel).where(m.incident_id == incident.id))).scalars()
        assert sorted(told) == sorted(said["places"])
    tells = {one["place"] for one in said["items"] if one["tells"]}
    assert set(said["places"]) == (tells if tells - {TARGET} else tells | {HOME})
