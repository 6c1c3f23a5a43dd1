"""The explorer: any stored series and any call rates as a graph and a table, complete in its address."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BeforeValidator, Field, ValidationError
from starlette.responses import HTMLResponse, JSONResponse, Response

from app.core.clusters import unknown
from app.core.metrics.callers import CallsQuery
from app.core.metrics.measures import Graph, Measure, SeriesQuery
from app.core.metrics.promql import PromQuery
from app.core.metrics.questions import MOST_LINES, asked_for, calls_query, series_query, unit
from app.core.metrics.views import SHIPPED
from app.core.roles import Role
from app.core.screen.axis import Axis, Tick, ticks
from app.core.screen.lanes import Mark
from app.core.screen.plots import Marker, markers, plot, remark
from app.store import lines, surroundings
from app.store.reach import AUDIT_LOG, METRICS
from app.store.seen import Seen, UnknownClusterError, read_seen
from app.store.views import list_views
from app.web import curves, params, templates, windows
from app.web.auth import Needs
from app.web.deps import deps_of
from app.web.graphs import LARGE, DrawnGraph, draw
from app.web.problems import Problem, mistyped
from app.web.reading import check_whole, reading, scope_of

router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    dependencies=[Depends(Needs(Role.VIEWER, limited=True))],
)
Blank = BeforeValidator(params.blank)


class ExploreAsked(windows.Range):
    """A question as the form asks it: what is left empty is as usual. Without a metric, or ``of`` calls, there is only
    the form.
    """

    of: str = Field("series", pattern="^(series|calls|promql)$")
    cluster: Annotated[params.Text | None, Blank] = None
    metric: Annotated[str | None, Blank] = Field(None, max_length=1000)
    measure: Measure = Measure.RATE
    by: params.Text = ""
    where: params.Text = ""
    quantile: Annotated[float | None, Blank] = Field(None, gt=0, lt=1)
    most: Annotated[int | None, Blank] = Field(None, ge=1, le=MOST_LINES)
    promql: Annotated[str | None, Blank] = Field(None, max_length=4000)
    format: str = Field("html", pattern="^(html|csv|json)$")

    @property
    def is_promql(self) -> bool:
        """PromQL that is filled in also counts where no metric is."""
        return self.of == "promql" or (self.of == "series" and self.metric is None and self.promql is not None)

    def query(self) -> SeriesQuery | CallsQuery | PromQuery | None:
        """The question, None while none is asked. Raises Problem."""
        most = self.most or 10
        if self.is_promql:
            return PromQuery(self.promql) if self.promql else None
        if self.of == "calls":
            return curves.checked(lambda: calls_query(self.measure, by=self.by, where=self.where, most=most))
        if self.metric is None:
            return None
        if not re.fullmatch(curves.METRIC, self.metric):
            raise Problem(
                422, f"{self.metric!r} is no name of a metric: conditions have a field of their own", "metric"
            )
        metric, asked = self.metric, {"by": self.by, "where": self.where}
        return curves.checked(
            lambda: series_query(metric, self.measure, **asked, most=most, quantile=self.quantile or 0.99)
        )


@dataclass(frozen=True, slots=True)
class ExplorePage:
    """``drawn`` None: nothing is asked yet. ``names`` are the metrics of which something is stored, ``warnings`` what a
    Prometheus said beside its answer, ``of`` what is asked for where that is stored here, ``recorded_to`` up to when
    (None: never)."""

    asked: dict[str, Any]
    cluster: str | None
    axis: Axis
    ticks: tuple[Tick, ...]
    markers: tuple[Marker, ...]
    beside: dict[str, dict[str, datetime] | None]
    drawn: DrawnGraph | None
    title: str
    rows: tuple[tuple[datetime, tuple[str, ...]], ...]
    warnings: tuple[str, ...]
    seen: Seen
    names: tuple[str, ...]
    of: str | None
    recorded_to: datetime | None

    @property
    def ended_before(self) -> bool:
        """Whether nothing of this time can have been recorded."""
        return self.of is not None and (self.recorded_to is None or self.recorded_to < self.axis.from_at)

    @property
    def last_end(self) -> datetime | None:
        """The end of a time that holds what was recorded last."""
        return self.recorded_to and windows.whole_second(self.recorded_to)


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A name that a view is not given, as it was typed, and why; ``view_id`` None: a new view's."""

    name: str
    refused: Problem
    view_id: int | None = None


@router.get("/explore")
async def explore(request: Request) -> Response:
    """A graph of what is asked, with the changes that may matter, and the form that asks: who mistypes one field keeps
    them all."""
    return await explored(request, dict(request.query_params))


async def explored(request: Request, told: dict[str, str], *, unnamed: Unnamed | None = None) -> Response:
    """The explorer's answer to ``told``, the fields of its address. Raises Problem."""
    now = deps_of(request).clock()
    asked, axis, refused = _read(told, now)
    query: Asked | None = None
    answer: curves.Answered | None = None
    async with reading(request) as conn:
        seen = await read_seen(conn, None, from_at=axis.from_at, to_at=axis.to_at)
        cluster = asked.cluster or _first(request, seen)
        if asked.cluster is not None and asked.cluster not in (known := {one.cluster for one in seen.freshness}):
            raise UnknownClusterError(unknown(asked.cluster, known))
        check_whole(request, cluster)
        saved = await list_views(conn)
        names = tuple(asked_for(await lines.list_names(conn, cluster))) if cluster is not None else ()
    try:
        query = asked.query() if refused is None else None
        if query is not None and cluster is not None:
            answer = await _ask(request, cluster, query, axis=axis)
    except Problem as problem:
        refused = problem
    marks: tuple[Mark, ...] = ()
    if cluster is not None and answer is not None and asked.format == "html":
        async with reading(request) as conn:
            around = await surroundings.read_surroundings(conn, cluster, from_at=axis.from_at, to_at=axis.to_at)
        marks = around.marks
    if asked.format != "html":
        if refused is not None:
            raise refused
        if answer is None or query is None:
            raise Problem(422, "ask for a metric, or of=calls, of a cluster that is recorded", "metric")
        return _csv(answer, of=query) if asked.format == "csv" else JSONResponse(_json(answer, of=query))
    title, drawn = question(query, (answer.graph if answer else query).measure) if query else "", None
    if answer and query:
        shown = plot("answer", title, _unit(query), graph=answer.graph, axis=axis, asked=query.measure)
        drawn = draw(shown, height=LARGE)
    page = ExplorePage(
        asked=named(told),
        cluster=cluster,
        axis=axis,
        ticks=ticks(axis),
        markers=markers(axis, marks),
        beside=windows.beside(axis, now),
        drawn=drawn,
        title=title,
        rows=_rows(answer.graph) if answer else (),
        warnings=answer.warnings if answer else (),
        seen=seen,
        names=names,
        of=_STORED.get(type(query)),
        recorded_to=_recorded_to(seen, cluster, query),
    )
    role: Role = request.state.role
    around_it = {"ranges": windows.RANGES, "measures": tuple(Measure), "now": now}
    may_save = role is not Role.VIEWER and scope_of(request) is None
    views = {"views": (*SHIPPED, *saved), "may_save": may_save, "unnamed": unnamed}
    wrong = unnamed.refused if unnamed else refused
    status = wrong.status if wrong else 200
    return templates.page("explore.html", status, page=page, form=asked, refused=refused, **around_it, **views)


_STORED: dict[type, str] = {CallsQuery: "calls", SeriesQuery: "metrics"}


def _recorded_to(seen: Seen, cluster: str | None, query: Asked | None) -> datetime | None:
    """Up to when of the cluster is recorded what a question asks for."""
    source = AUDIT_LOG if isinstance(query, CallsQuery) else METRICS
    return next((one.sources.get(source) for one in seen.freshness if one.cluster == cluster), None)


def _first(request: Request, seen: Seen) -> str | None:
    """The cluster of who names none: the first that they reach as a whole."""
    scope = scope_of(request)
    whole = (one.cluster for one in seen.freshness if scope is None or scope.is_whole(one.cluster))
    return next(whole, None)


def _read(told: dict[str, str], now: datetime) -> tuple[ExploreAsked, Axis, Problem | None]:
    """What is asked, and of which time, without what cannot be; and what is wrong with that."""
    refused: Problem | None = None
    try:
        asked = ExploreAsked.model_validate(told)
    except ValidationError as error:
        wrong = error.errors()
        refused = mistyped(wrong[0], str(wrong[0]["loc"][0]))
        names = {one["loc"][0] for one in wrong}
        asked = ExploreAsked.model_validate({name: text for name, text in told.items() if name not in names})
    try:
        return asked, asked.axis(now), refused
    except Problem as problem:
        return asked, windows.Range().axis(now), refused or problem


async def _ask(request: Request, cluster: str, query: Asked, *, axis: Axis) -> curves.Answered:
    """The answer, whoever gives it. Raises Problem. No connection is held while a Prometheus is waited for."""
    if isinstance(query, PromQuery):
        return await curves.ask_prometheus(request, cluster, query.text, axis=axis)
    async with reading(request) as conn:
        return curves.Answered(await curves.ask(conn, cluster, query, axis=axis), query.by, ())


def named(told: dict[str, str]) -> dict[str, Any]:
    """What an address asks, as it was written; None is what it leaves out."""
    fields = (one.alias or name for name, one in ExploreAsked.model_fields.items())
    found: dict[str, Any] = dict.fromkeys(fields) | told
    found.pop("format")
    return found


Asked = SeriesQuery | CallsQuery | PromQuery


def _unit(query: Asked) -> str:
    """That of PromQL nobody says."""
    return "" if isinstance(query, PromQuery) else unit(query)


def question(query: Asked, measure: Measure) -> str:
    """A question in one line, by how it was answered: ``rate of apiserver_request_total by verb where code=4*``."""
    if isinstance(query, PromQuery):
        return query.text
    what = "calls" if isinstance(query, CallsQuery) else query.metrics[0]
    how = measure.value
    if isinstance(query, SeriesQuery) and measure is Measure.QUANTILE:
        how = f"{query.quantile:g} quantile"
    by = f" by {', '.join(query.by)}" if query.by else ""
    where = f" where {', '.join(map(str, query.where))}" if query.where else ""
    return f"{how} of {what}{by}{where}"


def _times(found: Graph) -> list[datetime]:
    return [datetime.fromtimestamp(found.axis.epoch(number), UTC) for number in range(found.axis.size)]


def _rows(found: Graph) -> tuple[tuple[datetime, tuple[str, ...]], ...]:
    """The values as a table, the newest first; "" where nothing was measured."""
    columns = [["" if isnan(value) else f"{value:.4g}" for value in curve.values.tolist()] for curve in found.curves]
    rows = zip(_times(found), zip(*columns, strict=True), strict=True) if columns else ()
    return tuple(reversed([(at, row) for at, row in rows if any(row)]))


WARNINGS = "Foreshock-Warnings"
"""The header of a CSV with what is to be known of it, as what a Prometheus warned of, as JSON in ASCII; without any it
is left out."""


def _csv(answer: curves.Answered, *, of: Asked) -> Response:
    """A row a bin, a column a line; a field that a spreadsheet would take for a formula begins with '.

    A row or a column of words would break what reads the figures: warnings, and that it is a mean where a quantile was
    asked for, are in a header, and the file's name says that there are some, which a person still sees a week later.
    """
    found = answer.graph
    warnings = (*answer.warnings, *filter(None, [remark(found, asked=of.measure)]))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["time", *(_harmless(curve.name) for curve in found.curves)])
    for number, at in enumerate(_times(found)):
        values = [curve.values[number] for curve in found.curves]
        writer.writerow([at.isoformat(), *("" if isnan(value) else f"{value:.10g}" for value in values)])
    name = "lines-with-warnings.csv" if warnings else "lines.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if warnings:
        headers[WARNINGS] = json.dumps([one.encode("ascii", "replace").decode() for one in warnings])
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _harmless(name: str) -> str:
    return f"'{name}" if name[:1] in "=+-@\t\r" else name


def _json(answer: curves.Answered, *, of: Asked) -> dict[str, Any]:
    found, by, warnings = answer
    return {
        "items": [one.model_dump() for one in curves.told(found, by)],
        "start": datetime.fromtimestamp(found.axis.start, UTC).isoformat(),
        "step_seconds": found.axis.step,
        "measure": found.measure.value,
        "unit": _unit(of),
        "warnings": warnings,
    }
