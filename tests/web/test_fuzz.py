"""The whole REST interface, asked what its description allows and what it does not: no answer may be outside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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

from app.core.roles import Role
from app.correlate import ByHand
from app.main import alert_taker
from app.store import incidents, tokens
from app.store.database import Database, sqlalchemy_url
from app.store.partitions import ensure
from app.store.record import record
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import UNLIMITED

HOST = "http://foreshock.test"
EXAMPLES = 40
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
        "series",
        "promql",
        "audit",
        "problems",
        "routing",
        "clusters/{cluster}/control-plane",
    )
}
BEYOND_SCHEMAS |= {"/api/v1/what-changed"}
BEYOND_SCHEMAS |= {"/intake/alertmanager/{cluster}"}
BEYOND_SCHEMAS |= {f"/api/v1/incidents{rest}" for rest in ("", "/{incident_id}", "/{incident_id}/merge")}
"""Where what is valid by the description may still be refused: no schema says that from is before to, or that every
character of a name can be printed."""


@pytest.fixture(scope="module")
def site(dsn: str) -> tuple[FastAPI, dict[Role, str]]:
    """The site of world.py without pools, since each call brings an event loop of its own; a token of each role."""
    url = sqlalchemy_url(dsn)
    write = create_async_engine(url, poolclass=NullPool)
    read = create_async_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    async def fill() -> dict[Role, str]:
        async with write.begin() as conn:
            await record(conn, world.batch())
            await incidents.save_incident(conn, world.incident())
            await ensure(conn, "rankings", [world.ranking().ranked_at])
            await incidents.save_ranking(conn, world.ranking())
            return {role: await tokens.create(conn, role, purpose=Purpose.API, now=world.END) for role in Role}

    bearers = asyncio.run(fill())
    taker = alert_taker(Database(read=read, scoped=read, write=write, turns=write))
    hands = ByHand(write)
    app = create_app(
        Deps(read=read, write=write, public_url=HOST, clock=lambda: world.END, take_alerts=taker, by_hand=hands),
        limits=UNLIMITED,
    )
    app.state.followers.stopping = lambda: True  # who follows changes is told what is there, and no more
    return app, bearers


def operations() -> list[tuple[str, str]]:
    """Method and path of all that the description lists."""
    nowhere = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    app = create_app(Deps(read=nowhere, write=nowhere, public_url=HOST, clock=lambda: world.END))
    return [(method, path) for path, methods in app.openapi()["paths"].items() for method in methods]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.RESPONDER, pytest.param(Role.ADMIN, marks=pytest.mark.security)])
@pytest.mark.parametrize(("method", "path"), operations())
def test_no_answer_is_outside_the_description(
    site: tuple[FastAPI, dict[Role, str]],
    role: Role,
    method: str,
    path: str,
    record_property: Callable[[str, object], None],
) -> None:
    app, bearers = site
    headers = {"Authorization": f"Bearer {bearers[role]}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    operation = schema[path][method]
    cases = 0
    beyond: list[CheckFunction] = [positive_data_acceptance] if path in BEYOND_SCHEMAS else []

    @given(case=st.one_of(operation.as_strategy(), operation.as_strategy(generation_mode=_invalid())))
    @settings(
        max_examples=EXAMPLES,
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
