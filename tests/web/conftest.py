"""The whole site over ASGI, on a real database that holds the made-up incident of world.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import httpx2
import pytest
from fastapi import FastAPI

from app.core.model import SLOT_SECONDS, Batch, CallCount, CallKey
from app.core.roles import Role
from app.store import incidents, tokens
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.rates import Limits, Rate
from app.web.routes import create_app
from tests.web import world

NOW = world.END
HOST = "http://foreshock.test"
UNLIMITED = Limits(credential=Rate(1e9, 1e9), stranger=Rate(1e9, 1e9))
"""Tests ask more of one address than anybody may; test_rates.py holds the limits."""


@dataclass(slots=True)
class Site:
    """The application, its database, and a token of every role."""

    app: FastAPI
    database: Database
    bearer: dict[str, str] = field(default_factory=dict)

    def client(self, role: str | None = "viewer", *, host: str = HOST) -> httpx2.AsyncClient:
        """A client that sends the token of ``role``; None sends none."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.bearer[role]}"}
        # a bug must answer 500 as it would in the field, not end the test at the client
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url=host, headers=headers)

    async def token(self, purpose: Purpose, *, role: Role = Role.VIEWER, now: datetime = NOW) -> str:
        """A fresh token."""
        async with self.database.write.begin() as conn:
            return await tokens.create(conn, role, purpose=purpose, now=now)


def deps(database: Database, *, public_url: str = HOST) -> Deps:
    return Deps(read=database.read, write=database.write, public_url=public_url, clock=lambda: NOW)


def calls() -> tuple[CallCount, ...]:
    """A minute in which checkout sends 40 calls a second, a tenth of them refused, after one in which it sent none."""
    now, before = (int((world.END - timedelta(seconds=back)).timestamp()) for back in (60, 120))
    user = "system:serviceaccount:payments:checkout"
    loud, refused = (CallKey(user, "", "checkout", "patch", "", "serviceaccounts", "payments", c) for c in (200, 409))
    steady = CallKey("system:kube-scheduler", "", "kube-scheduler", "create", "", "pods/binding", "", 201)
    found = []
    for slot in range(0, 60, SLOT_SECONDS):
        found += [CallCount(loud, now + slot, 180, 360_000), CallCount(refused, now + slot, 20, 40_000)]
        found += [CallCount(steady, start + slot, 40, 40_000) for start in (before, now)]
    return tuple(found)


@pytest.fixture(scope="module")
async def site(database: Database) -> Site:
    """The site with the whole world recorded."""
    made = Site(create_app(deps(database), limits=UNLIMITED), database)
    async with database.write.begin() as conn:
        await record(conn, world.batch())
        await record(conn, Batch(cluster=world.CLUSTER, calls=calls()))
        await incidents.save_incident(conn, world.incident())
        await ensure(conn, "rankings", [world.ranking().ranked_at])
        await incidents.save_ranking(conn, world.ranking())
    for role in Role:
        made.bearer[role.value] = await made.token(Purpose.API, role=role)
    return made


@pytest.fixture(scope="module")
async def empty_site(database: Database) -> Site:
    """The site before anything was recorded; not to be used in one module with ``site``."""
    made = Site(create_app(deps(database)), database)
    made.bearer["viewer"] = await made.token(Purpose.API)
    return made
