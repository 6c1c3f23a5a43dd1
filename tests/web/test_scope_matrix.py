"""Every route, asked by every role and scope of every place: who does not reach it is answered as if it was not there,
and nothing that anybody is answered holds the word of a place beyond their scope."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
from fastapi.routing import iter_route_contexts
from msgspec.structs import replace as changed
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.findings import Said
from app.core.findings import Scope as About
from app.core.roles import Role, Scope
from app.correlate import ByHand
from app.main import alert_taker, page_taker
from app.store import incidents, tables, tokens
from app.store.database import Database
from app.store.scope import SCHEMA, VISIBLE, limit, view
from app.store.tokens import Purpose
from app.web.numbered import HEADER
from app.web.routes import create_app
from tests.web import scoped
from tests.web.conftest import HOST, NOW, deps
from tests.web.scope_cases import CASES, WITHOUT_SCOPE, Asked, Case, Takes
from tests.web.scoped import CANARY, PLACES, Place, nowhere, place, reached

SCOPES = {
    "all": None,
    "a": Scope.parse(["canaryca"]),
    "a1": Scope.parse(["canaryca/canarya1"]),
    "a1 and a0": Scope.parse(["canaryca/canarya1", "canaryca/-"]),
    "a2 and b": Scope.parse(["canaryca/canarya2", "canarycb"]),
    "b1": Scope.parse(["canarycb/canaryb1"]),
    "nothing": Scope.parse(["gone/canarya1"]),
}
ROLES = tuple(Role)


@dataclass(slots=True)
class Matrix:
    """The application, and a client for each role and scope."""

    database: Database
    clients: dict[tuple[Role, str], httpx2.AsyncClient]
    counted: Counter[str] = field(default_factory=Counter)

    async def ask(self, client: httpx2.AsyncClient, case: Case, asked: Asked) -> httpx2.Response:
        self.counted["requests"] += 1
        return await client.request(
            case.method, asked.path, json=asked.json, data=asked.form, headers=asked.headers, follow_redirects=False
        )


@pytest.fixture(scope="module")
async def matrix(database: Database) -> AsyncIterator[Matrix]:
    await scoped.fill(database)
    made = replace(
        deps(database),
        scoped=database.scoped,
        by_hand=ByHand(database.write),
        take_alerts=alert_taker(database),
        take_page=page_taker(database),
        replay_demo=_replay,
    )
    app = create_app(made)
    app.state.followers.stopping = lambda: True  # who follows changes is told what is there, and no more
    found = Matrix(database, {})
    for role in ROLES:
        for name, scope in SCOPES.items():
            async with database.write.begin() as conn:
                token = await tokens.create(conn, role, purpose=Purpose.API, now=NOW, scope=scope)
            found.clients[role, name] = httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app=app, raise_app_exceptions=False),
                base_url=HOST,
                headers={"Authorization": f"Bearer {token}"},
            )
    yield found
    for client in found.clients.values():
        await client.aclose()


async def _replay() -> str:
    return "/"


def level(scope: Scope | None, of: Place) -> str:
    """How far a scope reaches: all of the place's cluster, the place, the cluster's name alone, or nothing of it."""
    if scope is None or scope.is_whole(of.cluster):
        return "whole"
    if of.cluster not in scope.clusters:
        return "nothing"
    return "place" if of.name in reached(scope) else "name"


def answered(takes: Takes, scope: Scope | None, of: Place) -> str:
    """How who has a scope is to be answered: "yes"; "no": as of what is not there; "refused": with 403."""
    found = level(scope, of)
    reaches = found == "whole" or (found == "place" and of.namespace is not None)
    match takes:
        case Takes.PLACE:
            return "yes" if found in ("whole", "place") else "no"
        case Takes.INCIDENT:
            return "yes" if reaches else "no"
        case Takes.CLUSTER:
            return "no" if found == "nothing" else "yes"
        case Takes.WHOLE:
            return {"whole": "yes", "nothing": "no"}.get(found, "refused")
        case Takes.WHOLE_INCIDENT:
            return "yes" if found == "whole" else "refused" if reaches else "no"
        case Takes.SENDING:
            return "yes" if found == "whole" else "refused"
        case Takes.UNLIMITED:
            return "yes" if scope is None else "refused"


def told(answer: httpx2.Response, of: Place) -> tuple[int, dict[str, str], str]:
    """An answer without the names that its own request told."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", HEADER)}
    body = re.sub("[0-9a-f]{32}", "once", answer.text)  # what makes a form harmless to send again
    body = body.replace(answer.headers[HEADER], "request")
    for name in of.names:
        body = body.replace(name, "…")
        headers = {key: value.replace(name, "…") for key, value in headers.items()}
    return answer.status_code, headers, body


def beyond(answer: httpx2.Response, asked: Asked, scope: Scope | None) -> set[str]:
    """The words in an answer that neither the scope reaches nor the request told."""
    whole = "\n".join((answer.text, *answer.headers.values()))
    said = {one.lower() for one in CANARY.findall(f"{asked.path} {asked.json} {asked.form}")}
    return {one.lower() for one in CANARY.findall(whole)} - reached(scope) - said


async def wrong(matrix: Matrix, case: Case, role: Role, name: str) -> list[str]:
    """What is wrong with the answers to one route, role and scope."""
    return [
        f"{role.value} of {name}: {case.method} {asked.path}: {fault}"
        for of in map(place, PLACES)
        if (asked := case.ask(of)) is not None
        for fault in await faults(matrix, case, role, name, of, asked)
    ]


async def faults(matrix: Matrix, case: Case, role: Role, name: str, of: Place, asked: Asked) -> list[str]:
    """What is wrong with the answer to one request."""
    scope, client = SCOPES[name], matrix.clients[role, name]
    answer = await matrix.ask(client, case, asked)
    found = [f"tells of {sorted(leaked)}"] if (leaked := beyond(answer, asked, scope)) else []
    if ROLES.index(role) < ROLES.index(case.role):
        return found if answer.status_code == 403 else [*found, f"{answer.status_code}: the role is not enough"]
    expected, within = answered(case.takes, scope, of), level(scope, of)
    matrix.counted[expected] += 1
    if expected == "yes":
        if answer.status_code not in case.statuses:
            found.append(f"{answer.status_code} {answer.text[:200]}")
        elif of.name in case.shows & reached(scope) and of.word not in answer.text:
            found.append("does not show what is theirs")
        return found
    if (answer.status_code == 403) != (expected == "refused") and not case.writes:
        found.append(f"{answer.status_code}: is {expected!r}")
    absent = nowhere(of, known=within in ("place", "name"))
    instead = case.ask(absent)
    if instead is not None and not (expected == "refused" and within == "place"):
        other = await matrix.ask(client, case, instead)
        if told(answer, of) != told(other, absent):
            found.append(f"is not answered as {instead.path} is")
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method} {case.route}")
async def test_what_is_beyond_a_scope_is_not_there(matrix: Matrix, case: Case) -> None:
    found = [line for role in ROLES for name in SCOPES for line in await wrong(matrix, case, role, name)]
    assert found == []


async def test_every_route_is_asked(matrix: Matrix) -> None:
    app = create_app(deps(matrix.database))
    real = set()
    for route in iter_route_contexts(app.routes):
        real |= {(method, str(route.path)) for method in route.methods or {"GET"}}
    assert real == {(case.method, case.route) for case in CASES} | set(WITHOUT_SCOPE)
    print(f"\n{len(CASES)} cases x {len(ROLES)} roles x {len(SCOPES)} scopes: {dict(matrix.counted)}")


async def test_a_view_that_shows_more_is_noticed(matrix: Matrix) -> None:
    """So that the tests above would fail where a predicate is forgotten."""
    case = next(one for one in CASES if one.route == "/api/v1/changes/{change_id}")

    async def show(**where: str) -> None:
        async with matrix.database.write.begin() as conn:
            for name, condition in where.items():
                made = view(tables.changes.metadata.tables[name], condition)
                await conn.exec_driver_sql(made.replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))

    await show(changes="true", objects="true")
    try:
        leaks = await wrong(matrix, case, Role.VIEWER, "a1")
    finally:
        await show(**{name: VISIBLE[name] for name in ("changes", "objects")})
    assert any("is not answered as" in one for one in leaks)
    assert await wrong(matrix, case, Role.VIEWER, "a1") == []


async def test_nobody_reaches_further_by_what_is_theirs(matrix: Matrix) -> None:
    """An incident of theirs is made neither a part of one of others nor about others."""
    own, other = place("a1"), place("a2")
    client = matrix.clients[Role.RESPONDER, "a1"]
    merged = await client.post(f"/api/v1/incidents/{own.part}/merge", json={"into": other.incident})
    absent = await client.post(f"/api/v1/incidents/{own.part}/merge", json={"into": "0" * 12})
    assert merged.status_code == 404
    assert merged.json() | {"request_id": ""} == absent.json() | {"request_id": ""}
    beyond: tuple[dict[str, Any], ...] = (
        {"namespaces": ["canarya1", "canarya2"]},
        {"namespaces": []},
        {"workloads": ["canarya2/canarya2-app"]},
        {"nodes": ["canarya0"]},
        {"control_plane": True},
    )
    for said in beyond:
        answer = await client.patch(f"/api/v1/incidents/{own.incident}", json=said)
        assert (answer.status_code, answer.json()["field"]) == (403, "namespaces"), said
        opened = {"cluster": own.cluster, "title": "slow", "namespaces": ["canarya1"]} | said
        assert (await client.post("/api/v1/incidents", json=opened)).status_code == 403, said
    for cluster in (place("b1").cluster, "nowhere"):
        answer = await client.post("/api/v1/incidents", json={"cluster": cluster, "title": "slow"})
        assert answer.json()["detail"] == f"cluster: there is no cluster {cluster!r}: known are {own.cluster}"
    kept = {"namespaces": ["canarya1"], "workloads": ["canarya1/canarya1-app"]}
    answer = await client.patch(f"/api/v1/incidents/{own.incident}", json=kept)
    assert answer.status_code == 200, answer.text


async def test_what_an_incident_is_about_counts_and_each_of_its_alerts(matrix: Matrix) -> None:
    async with matrix.database.write.connect() as conn:
        found = await incidents.read_incident(conn, place("a1").incident)
        assert found is not None
        known = changed(found[0], said=Said())
        await limit(conn, Scope.parse(["canaryca/canarya1"]))
        for labels, there in (
            ({"namespace": "canarya1", "node": "node-7"}, True),
            ({"exported_namespace": "canarya1"}, True),
            ({"namespace": "canarya2"}, False),
            ({"node": "node-7"}, False),
            ({"namespace": "canarya1", "destination_namespace": "canarya2"}, False),
        ):
            joined = changed(known.alerts[0], fingerprint="joined", labels=tuple(labels.items()))
            await incidents.save_incident(conn, changed(known, alerts=(*known.alerts, joined)))
            assert await _shown(conn, known.id) == there, labels
        for about, there in (
            (About(("canarya1",), ("canarya1/app",), ("node-7",)), True),
            (About(("canarya1", "canarya2")), False),
            (About(), False),
            (About(("canarya1",), ("canarya2/app",)), False),
            (About(("canarya1",), control_plane=True), False),
        ):
            await incidents.save_incident(conn, changed(known, scope=about))
            assert await _shown(conn, known.id) == there, about
        hurt = changed(known.alerts[0], resource=place("a2").resource)
        await incidents.save_incident(conn, changed(known, alerts=(hurt,)))
        assert not await _shown(conn, known.id)
        await conn.rollback()


async def _shown(conn: AsyncConnection, incident_id: str) -> bool:
    """Whether the scope of a transaction reaches an incident."""
    shown = text(f"SELECT count(*) FROM {SCHEMA}.incidents WHERE id = :id")
    return bool(await conn.scalar(shown, {"id": incident_id}))
