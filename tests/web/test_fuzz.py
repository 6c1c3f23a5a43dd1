"""The whole REST interface, asked what its description allows and what it does not: no answer may be outside it."""

from __future__ import annotations

import asyncio

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.core.roles import Role
from app.store import incidents, tokens
from app.store.database import sqlalchemy_url
from app.store.partitions import ensure
from app.store.record import record
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app
from tests.web import world

HOST = "http://foreshock.test"
EXAMPLES = 30


@pytest.fixture(scope="module")
def site(dsn: str) -> tuple[FastAPI, dict[str, str]]:
    """The site of world.py without pools, since each call brings an event loop of its own."""
    url = sqlalchemy_url(dsn)
    write = create_async_engine(url, poolclass=NullPool)
    read = create_async_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    async def fill() -> str:
        async with write.begin() as conn:
            await record(conn, world.batch())
            await incidents.save_incident(conn, world.incident())
            await ensure(conn, "rankings", [world.ranking().ranked_at])
            await incidents.save_ranking(conn, world.ranking())
            return await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=world.END)

    token = asyncio.run(fill())
    app = create_app(Deps(read=read, write=write, public_url=HOST, clock=lambda: world.END))
    return app, {"Authorization": f"Bearer {token}"}


def test_no_answer_is_outside_the_description(site: tuple[FastAPI, dict[str, str]]) -> None:
    app, headers = site
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 11

    for operation in operations:

        @given(case=st.one_of(operation.as_strategy(), operation.as_strategy(generation_mode=_invalid())))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def fuzz(case: schemathesis.Case) -> None:
            # A cursor that was never given is valid by its description and still nobody's; an empty parameter is
            # as good as none, as forms send it. test_api.py says what is refused.
            case.call_and_validate(headers=headers, excluded_checks=[positive_data_acceptance, negative_data_rejection])

        fuzz()


def _invalid() -> schemathesis.GenerationMode:
    return schemathesis.GenerationMode.NEGATIVE
