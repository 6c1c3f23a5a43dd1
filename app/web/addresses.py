"""What addresses of pages ask for, read as the pages do: for who is given one to show what it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.metrics.promql import PromQuery
from app.core.metrics.questions import unit
from app.core.screen.asked import AddressError
from app.core.screen.axis import Axis
from app.core.screen.graph_table import graph_table
from app.store.seen import read_seen
from app.store.timeline import ChangeFilter
from app.web import curves, params
from app.web.explorer import ExploreAsked, question
from app.web.incident_pages import IncidentsAsked
from app.web.problems import Problem
from app.web.windows import Range


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of lists it is the same whichever page of them is meant. Raises AddressError for what a page would refuse, and
    seen.UnknownClusterError."""

    clock: Callable[[], datetime]

    def changes(self, address: str) -> ChangeFilter:
        """Of a list of changes."""
        with _refusing():
            return params.ChangesAsked.model_validate(_named(address)).filter(self.clock())

    def cluster(self, address: str) -> str | None:
        """Of the list of incidents."""
        with _refusing():
            return IncidentsAsked.model_validate(_named(address)).cluster

    async def graph(self, conn: AsyncConnection, address: str) -> str:
        """What the explorer shows there, as a table; of what a Prometheus would be asked what it is and of when, and no
        value: not everybody who reads a chat may ask one, and Slack waits for three seconds."""
        with _refusing():
            asked = ExploreAsked.model_validate(_named(address))
            query, axis = asked.query(), asked.axis(self.clock())
            if query is None:
                raise AddressError("nothing is asked there")
            seen = await read_seen(conn, asked.cluster, from_at=axis.from_at, to_at=axis.to_at)
            cluster = next((one.cluster for one in seen.freshness), None)
            if cluster is None:
                raise AddressError("no cluster is known")
            if isinstance(query, PromQuery):
                return _to_be_asked(cluster, query, axis)
            found = await curves.ask(conn, cluster, query, axis=axis)
        title = f"{cluster}: {question(query, found.measure)}, to {axis.to_at:%Y-%m-%d %H:%M:%S} UTC"
        return graph_table(title, found, unit=unit(query))

    def window(self, address: str) -> Axis:
        """Of a page about a time."""
        with _refusing():
            return Range.model_validate(_named(address)).axis(self.clock())


def _to_be_asked(cluster: str, query: PromQuery, axis: Axis) -> str:
    """The query stands whole in a line of its own, to be copied."""
    over = "" if axis.from_at.date() == axis.to_at.date() else f"{axis.to_at:%Y-%m-%d} "
    when = f"{axis.from_at:%Y-%m-%d %H:%M:%S} to {over}{axis.to_at:%H:%M:%S} UTC"
    return f"{cluster}: what its Prometheus answers, {when}, to\n{query.text}\nthe page asks it, for responders"


def _named(address: str) -> dict[str, Any]:
    named = dict(parse_qsl(urlsplit(address).query))
    named.pop("after", None)
    return named


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (Problem, ValidationError) as refused:
        raise AddressError(str(refused)) from None
