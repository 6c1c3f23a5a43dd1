"""REST: lines of stored series and of counted calls over a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import isnan
from typing import Annotated, Literal, NamedTuple, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.blocks import block_graph
from app.core.metrics.callers import CallsQuery, call_graph
from app.core.metrics.lines import STARTED
from app.core.metrics.measures import Graph, Measure, SeriesQuery, window_grid
from app.core.metrics.promql import evaluated
from app.core.metrics.questions import (
    BINS,
    MOST_LINES,
    asked_for,
    calls_query,
    series_query,
    unit,
    unknown,
    unknown_label,
)
from app.core.roles import Role
from app.core.screen.axis import Axis
from app.store import lines
from app.store.seen import read_seen
from app.store.series import TooMuchError
from app.web import answers, params, problems, shapes, windows
from app.web.api import Conn
from app.web.auth import Needs
from app.web.control_plane import CALLS_LONGEST
from app.web.deps import QueryError, deps_of
from app.web.problems import Problem
from app.web.reading import check_whole, reading, scope_of
from app.web.representations import Negotiated

router = APIRouter(
    prefix="/api/v1",
    dependencies=[Depends(Needs(Role.VIEWER, limited=True)), Depends(params.once)],
    responses=problems.described(401, 404, 406, 422, 429, 503),
    route_class=Negotiated,
)
METRIC = r"^[a-zA-Z_:][a-zA-Z0-9_:]*(\|[a-zA-Z_:][a-zA-Z0-9_:]*){0,4}$"
PROMQL = "sum by (code) (rate(apiserver_request_total[5m]))"
Promql = Annotated[str, Field(min_length=1, max_length=4000, description="in PromQL", examples=[PROMQL])]
_Q = TypeVar("_Q", SeriesQuery, CallsQuery)

Cluster = Annotated[params.Text, Field(examples=["demo"])]
By = Annotated[params.Text, Field(description="what to split by, with commas between", examples=["verb"])]
Where = Annotated[params.Text, Field(description="label=value, label=a|b, label=4*, label!=value, with commas between")]
Most = Annotated[int, Field(ge=1, le=MOST_LINES, description="lines; the others are one")]


class SeriesAsked(windows.Range):
    """Lines of stored series."""

    cluster: Cluster
    metric: Annotated[
        str,
        Field(
            pattern=METRIC,
            max_length=1000,
            description="its name, of a histogram without _bucket, _sum and _count; several names of one thing with |",
            examples=["apiserver_request_total"],
        ),
    ]
    measure: Measure = Field(Measure.RATE, description="how a line comes from its series")
    by: By = ""
    where: Where = ""
    quantile: float = Field(0.99, gt=0, lt=1, description="which one, with measure=quantile")
    most: Most = 10

    def query(self) -> SeriesQuery:
        """The question. Raises Problem."""
        asked = {"by": self.by, "where": self.where}
        return checked(lambda: series_query(self.metric, self.measure, **asked, most=self.most, quantile=self.quantile))


class MetricsAsked(params.Asked):
    """What is stored of one cluster."""

    cluster: Cluster


class RatesAsked(windows.Range):
    """Lines of counted calls."""

    cluster: Cluster
    measure: Literal["rate", "mean"] = Field("rate", description="calls a second, or their mean latency")
    by: By = "user"
    where: Where = ""
    most: Most = 10

    def query(self) -> CallsQuery:
        """The question. Raises Problem."""
        return checked(lambda: calls_query(Measure(self.measure), by=self.by, where=self.where, most=self.most))


class QueryAsked(windows.Range):
    """A query in PromQL."""

    cluster: Cluster
    query: Promql


def checked(make: Callable[[], _Q]) -> _Q:
    """A question, or the Problem that it is."""
    try:
        return make()
    except ValueError as error:
        raise Problem(422, str(error), "where" if "condition" in str(error) else "by") from None


async def ask(conn: AsyncConnection, cluster: str, query: SeriesQuery | CallsQuery, *, axis: Axis) -> Graph:
    """The answer to a question. Raises Problem where it is too much to ask, and for a metric that was never stored:
    what was mistyped must not read as nothing measured."""
    grid = window_grid(axis.from_at.timestamp(), axis.to_at.timestamp(), most=BINS - 1)
    if isinstance(query, CallsQuery):
        if axis.to_at - axis.from_at > CALLS_LONGEST:
            raise Problem(422, "calls can be shown of at most a day at once", "from")
        return call_graph(await lines.read_calls(conn, cluster, grid, end=axis.to_at), grid, query)
    try:
        names = (*query.names, STARTED)
        blocks = await lines.read_series(conn, cluster, names, grid, end=axis.to_at)
    except TooMuchError as error:
        raise Problem(422, str(error), "from") from None
    found = block_graph(blocks, grid, query)
    if not found.curves and (said := unknown(query, cluster, await lines.list_names(conn, cluster))):
        raise Problem(404, said, "metric")
    part, said = unknown_label(query, blocks)
    if part:
        raise Problem(422, said, part)
    return found


class Answered(NamedTuple):
    """A Prometheus' answer, the labels that tell its lines apart, and what it warned of."""

    graph: Graph
    by: tuple[str, ...]
    warnings: tuple[str, ...]


def check_prometheus(request: Request) -> None:
    """Only responders who are limited to no scope ask a Prometheus: it may know of more than Foreshock does, and of
    other clusters. Raises Problem 403."""
    role: Role = request.state.role
    if role is Role.VIEWER:
        raise Problem(403, "to ask a Prometheus takes the role responder", "promql")
    if scope_of(request) is not None:
        raise Problem(403, "to ask a Prometheus takes a token that is not limited to clusters or namespaces", "promql")


async def ask_prometheus(request: Request, cluster: str, query: str, *, axis: Axis) -> Answered:
    """What the cluster's Prometheus answers. Raises Problem."""
    check_prometheus(request)
    grid = window_grid(axis.from_at.timestamp(), axis.to_at.timestamp(), most=BINS - 1)
    first, last = (datetime.fromtimestamp(grid.epoch(number), UTC) for number in (1, grid.size))
    try:
        found = await deps_of(request).evaluate(cluster, query, first, last, timedelta(seconds=grid.step))
        return Answered(*evaluated(found.series, grid), found.warnings)
    except QueryError as error:
        raise Problem(422 if error.refused else 503, str(error), "promql") from None
    except ValueError as error:
        raise Problem(422, str(error), "promql") from None


def told(found: Graph, by: Sequence[str]) -> list[shapes.Line]:
    """The lines of an answer that is split ``by`` these labels."""
    return [
        shapes.Line(
            of=dict(zip(by, curve.of, strict=True)) if not curve.others else {},
            others=curve.others,
            values=[None if isnan(value) else float(f"{value:.10g}") for value in curve.values.tolist()],
        )
        for curve in found.curves
    ]


async def _answer(
    request: Request, conn: AsyncConnection, asked: SeriesAsked | RatesAsked, query: SeriesQuery | CallsQuery
) -> answers.Lines:
    check_whole(request, asked.cluster)
    axis = asked.axis(deps_of(request).clock())
    seen = await read_seen(conn, asked.cluster, from_at=axis.from_at, to_at=axis.to_at)
    found = await ask(conn, asked.cluster, query, axis=axis)
    return answers.Lines(
        items=told(found, query.by),
        start=datetime.fromtimestamp(found.axis.start, UTC),
        step_seconds=found.axis.step,
        measure=found.measure,
        unit=unit(query),
        **answers.context(seen),
    )


@router.get("/promql", summary="What the cluster's Prometheus answers to a query", responses=problems.described(403))
async def evaluate_query(request: Request, asked: Annotated[QueryAsked, Query()]) -> answers.Evaluated:
    """At most 110 values of each of at most 100 lines, evaluated at the end of each step. Takes the role responder."""
    check_prometheus(request)
    axis = asked.axis(deps_of(request).clock())
    async with reading(request) as conn:  # and not while the Prometheus is waited for
        seen = await read_seen(conn, asked.cluster, from_at=axis.from_at, to_at=axis.to_at)
    found, by, warnings = await ask_prometheus(request, asked.cluster, asked.query, axis=axis)
    return answers.Evaluated(
        items=told(found, by),
        start=datetime.fromtimestamp(found.axis.start, UTC),
        step_seconds=found.axis.step,
        measure=found.measure,
        unit="",
        warnings=list(warnings),
        **answers.context(seen),
    )


@router.get("/metrics", summary="The names of stored series")
async def list_metrics(request: Request, asked: Annotated[MetricsAsked, Query()], conn: Conn) -> answers.Metrics:
    """What ``/series`` can be asked for, by name; of a histogram or a summary without _bucket, _sum and _count."""
    check_whole(request, asked.cluster)
    seen = await read_seen(conn, asked.cluster, from_at=None, to_at=None)
    names = asked_for(await lines.list_names(conn, asked.cluster))
    return answers.Metrics(items=[shapes.Metric(name=name) for name in names], **answers.context(seen))


@router.get("/series", summary="Lines of stored series")
async def list_series(request: Request, asked: Annotated[SeriesAsked, Query()], conn: Conn) -> answers.Lines:
    """At most 110 values of each of at most 100 lines. 404 for a ``metric`` that was never stored, with the nearest."""
    return await _answer(request, conn, asked, asked.query())


@router.get("/calls/rates", summary="Calls over time, by whatever they are told apart by")
async def list_call_rates(request: Request, asked: Annotated[RatesAsked, Query()], conn: Conn) -> answers.Lines:
    """At most 110 values of each of at most 100 lines, of at most a day."""
    return await _answer(request, conn, asked, asked.query())
