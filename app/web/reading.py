"""The connection that a request reads with. There is no other way from a route to what is recorded (tests/web/
test_reading.py): who is limited to a scope gets one on which only that is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.roles import NOT_NAMESPACED, Scope
from app.store import scope as scopes
from app.store.timeline import ChangeFilter
from app.web.deps import Deps, deps_of
from app.web.problems import Problem

Limits = Scope | None
"""What who asks is limited to; None: to nothing."""


@asynccontextmanager
async def reading(request: Request) -> AsyncIterator[AsyncConnection]:
    """A connection to read with, for who asks. Raises Problem where their scope cannot be held."""
    async with reading_within(deps_of(request), scope_of(request)) as conn:
        yield conn


def scope_of(request: Request) -> Limits:
    """What who asks is limited to."""
    scope: Limits = request.state.scope
    return scope


@asynccontextmanager
async def reading_within(deps: Deps, scope: Limits, *, snapshot: bool = False) -> AsyncIterator[AsyncConnection]:
    """The same for a scope that is known. ``snapshot``: all that is read is as of one moment; with a scope it always
    is. Raises Problem 503 where the process or the database has no views for scopes."""
    if scope is None:
        engine = deps.read.execution_options(isolation_level="REPEATABLE READ") if snapshot else deps.read
        async with engine.connect() as conn:
            yield conn
        return
    if deps.scoped is None:
        raise Problem(503, "this process answers nobody whose token is limited to clusters or namespaces")
    async with deps.scoped.connect() as conn:
        try:
            await scopes.limit(conn, scope)
        except scopes.NoViewsError as error:
            raise Problem(503, str(error)) from None
        yield conn


def narrowed(request: Request, wanted: ChangeFilter) -> ChangeFilter:
    """The same changes for who asks, with the namespace in the filter where their scope is one alone: an index leads
    to those of it, however little happens there."""
    scope = scope_of(request)
    if scope is None or len(scope.places) != 1 or wanted.namespace is not None:
        return wanted
    [(cluster, namespace)] = scope.places
    if namespace is None or wanted.cluster not in (None, cluster):
        return wanted
    return replace(wanted, namespace="" if namespace == NOT_NAMESPACED else namespace)


def partial_clusters(request: Request) -> frozenset[str]:
    """The clusters of which who asks reaches some namespaces alone."""
    scope = scope_of(request)
    return frozenset(one for one in scope.clusters if scope.is_partial(one)) if scope else frozenset()


def check_whole(request: Request, cluster: str | None) -> None:
    """Raises Problem 403 where who asks reaches some namespaces of a cluster (None: of any of theirs) alone, of what is
    told of whole clusters. Of a cluster that they reach nothing of it raises nothing: that is not there for them."""
    partial = sorted(one for one in partial_clusters(request) if cluster in (None, one))
    if partial:
        raise Problem(
            403, f"this is told of whole clusters: of {partial[0]} your token reaches some namespaces alone", "cluster"
        )
