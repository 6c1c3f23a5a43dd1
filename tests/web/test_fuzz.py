"""The whole REST interface, asked what its description allows and what it does not: no answer may be outside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import positive_data_acceptance
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.roles import Role, Scope
from app.correlate import ByHand
from app.main import alert_taker
from app.store import incidents, tokens
from app.store.database import Database, sqlalchemy_url
from app.store.partitions import ensure
from app.store.record import record
from app.store.scope import SCHEMA
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import UNLIMITED

HOST = "http://foreshock.test"
EXAMPLES = 40
FEWER = 10
"""Of an operator, who may do one thing that a responder may not, and of who is limited to a namespace: what they send
is judged as others' is, and what they are answered may be another thing. Both together take 40 s of a core."""
BEYOND_SCHEMAS = {
    f"/api/v1/{name}"
    for name in (
        "annotations",
        "changes",
        "diff",
        "rollouts",
        "gaps",
        "calls",
        "calls/rates",
        "metrics",
        "series",
        "promql",
        "audit",
        "problems",
        "routing",
        "clusters/{cluster}/control-plane",
    )
}
BEYOND_SCHEMAS |= {"/api/v1/what-changed", "/api/v1/objects/{cluster}/{api_group}/{kind}/{namespace}/{name}"}
BEYOND_SCHEMAS |= {"/intake/alertmanager/{cluster}"}
OF_INCIDENTS = ("", "/{incident_id}", "/{incident_id}/merge", "/{incident_id}/verdicts/{change_id}")
BEYOND_SCHEMAS |= {f"/api/v1/incidents{rest}" for rest in OF_INCIDENTS}
"""Where what is valid by the description may still be refused: no schema says that from is before to, that every
character of a name can be printed, of which list a cursor is, or of what an ETag."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and how often of each operation."""

    role: Role
    scope: Scope | None = None
    examples: int = EXAMPLES

    def __str__(self) -> str:
        return f"limited {self.role}" if self.scope else self.role


ALWAYS = (Asker(Role.VIEWER), Asker(Role.RESPONDER))
OF_SECURITY = (
    Asker(Role.ADMIN),
    Asker(Role.OPERATOR, examples=FEWER),
    Asker(Role.VIEWER, Scope.parse([f"{world.CLUSTER}/payments"]), FEWER),
)
ASKERS = [*ALWAYS, *(pytest.param(one, marks=pytest.mark.security) for one in OF_SECURITY)]


@pytest.fixture(scope="module")
def site(dsn: str) -> tuple[FastAPI, dict[Asker, str]]:
    """The site of world.py without pools, since each call brings an event loop of its own; a token of each asker."""
    url = sqlalchemy_url(dsn)
    write = create_async_engine(url, poolclass=NullPool)
    read = create_async_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    seen = {"options": f"-c search_path={SCHEMA} -c default_transaction_read_only=on"}
    scoped = create_async_engine(url, poolclass=NullPool, isolation_level="REPEATABLE READ", connect_args=seen)

    async def fill() -> dict[Asker, str]:
        async with write.begin() as conn:
            await record(conn, world.batch())
            await incidents.save_incident(conn, world.incident())
            await ensure(conn, "rankings", [world.ranking().ranked_at])
            await incidents.save_ranking(conn, world.ranking())
            return {
                one: await tokens.create(conn, one.role, purpose=Purpose.API, scope=one.scope, now=world.END)
                for one in (*ALWAYS, *OF_SECURITY)
            }

    bearers = asyncio.run(fill())
    taker = alert_taker(Database(read=read, scoped=scoped, write=write, turns=write))
    hands = ByHand(write)
    app = create_app(
        Deps(
            read=read,
            scoped=scoped,
            write=write,
            public_url=HOST,
            clock=lambda: world.END,
            take_alerts=taker,
            by_hand=hands,
        ),
        limits=UNLIMITED,
    )
    app.state.followers.stopping = lambda: True  # who follows changes is told what is there, and no more
    return app, bearers


def operations() -> list[tuple[str, str]]:
    """Method and path of all that the description lists."""
    nowhere = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    app = create_app(Deps(read=nowhere, write=nowhere, public_url=HOST, clock=lambda: world.END))
    return [(method, path) for path, methods in app.openapi()["paths"].items() for method in methods]


@pytest.mark.parametrize("asker", ASKERS, ids=str)
@pytest.mark.parametrize(("method", "path"), operations())
def test_no_answer_is_outside_the_description(
    site: tuple[FastAPI, dict[Asker, str]],
    asker: Asker,
    method: str,
    path: str,
    record_property: Callable[[str, object], None],
) -> None:
    app, bearers = site
    headers = {"Authorization": f"Bearer {bearers[asker]}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    operation = schema[path][method]
    cases = 0
    beyond: list[CheckFunction] = [positive_data_acceptance] if path in BEYOND_SCHEMAS else []

    @given(case=st.one_of(operation.as_strategy(), operation.as_strategy(generation_mode=_invalid())))
    @settings(
        max_examples=asker.examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def fuzz(case: schemathesis.Case[Any]) -> None:
        nonlocal cases
        cases += 1
        case.call_and_validate(headers=headers, excluded_checks=beyond)

    fuzz()
    record_property("schemathesis: cases, none outside the description", cases)


def _invalid() -> schemathesis.GenerationMode:
    return schemathesis.GenerationMode.NEGATIVE
