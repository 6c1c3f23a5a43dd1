"""The tools: what each is asked with, which addresses of REST it reads, and what it makes of their answers.

What an argument may be is said here for shape and length alone; whether it is known, REST says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from app.client.times import moment, now

Name = Annotated[str, Field(min_length=1, max_length=253)]
Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]
Time = Annotated[str, Field(min_length=1, max_length=40)]
Length = Annotated[str, Field(pattern=r"^([0-9]{1,6}[smhdw])+$", max_length=40)]
Limit = Annotated[int, Field(ge=1, le=100)]
A_TIME = "ISO 8601 with a zone, as 2026-11-21T14:03:00Z, or how long ago, as 30m"
_TOLD = (
    "id", "at", "since", "verb", "summary", "actor", "actor_source", "resource", "begun_by", "found_in", "url",
)  # fmt: skip
"""What of a change is told in a list."""


class Reads(Protocol):
    """What a tool can do with a Foreshock: ask it. client.server.Server is one."""

    def json(self, *path: str, **asked: object) -> dict[str, Any]:
        """The answer to a GET."""
        ...

    def only_cluster(self, named: str | None, *, called: str = "cluster") -> str:
        """``named``, or the only cluster there is."""
        ...


class Asked(BaseModel):
    """Base of what tools are asked with: what is not listed is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Placed(Asked):
    """Of which cluster and namespace."""

    cluster: Name | None = Field(None, description="only this cluster")
    namespace: Name | None = Field(None, description="only this namespace")


class WhatChanged(Placed):
    """Of what stretch of time."""

    back: Length = Field("30m", description="how far back: 30s, 30m, 2h, 1d")
    at: Time | None = Field(None, description=f"until when; now when left out; {A_TIME}")
    limit: Limit = Field(30, description="how many")


class Changes(Placed):
    """Filters, and the next page."""

    from_at: Time | None = Field(None, alias="from", description=f"since when; {A_TIME}")
    to_at: Time | None = Field(None, alias="to", description=f"until when; {A_TIME}")
    kind: Name | None = Field(None, description="only of this kind, as Deployment")
    actor: Name | None = Field(None, description="only by who is called so")
    verb: Literal["create", "update", "delete"] | None = Field(None, description="only these")
    text: Name | None = Field(None, description="only with this in the summary, which names the object")
    derived: bool = Field(False, description="also what controllers wrote because of another change")
    limit: Limit = Field(30, description="how many")
    after: Annotated[str, Field(max_length=500)] | None = Field(None, description="`next` of the page before")


class OneChange(Asked):
    """Which change."""

    change_id: Id = Field(description="as `id` of a change")


class Incidents(Asked):
    """Filters, and the next page."""

    cluster: Name | None = Field(None, description="only this cluster")
    status: Literal["open", "resolved", "suspected", "merged"] | None = Field(
        None, description="only these; open and resolved when left out"
    )
    limit: Limit = Field(20, description="how many")
    after: Annotated[str, Field(max_length=500)] | None = Field(None, description="`next` of the page before")


class OneIncident(Asked):
    """Which incident."""

    incident_id: Id = Field(description="as `id` of an incident")


class WhoCalls(Asked):
    """Of which calls."""

    cluster: Name | None = Field(None, description="which cluster; may be left out where there is one")
    resource: Name | None = Field(
        None, description="only of this resource, as kubectl names it: pods, deploy, pods/status"
    )
    back: Length = Field("5m", description="how long a time, beside as long a one before it")
    at: Time | None = Field(None, description=f"until when; now when left out; {A_TIME}")
    by: Name | None = Field(
        None, description="told apart by what, with commas: user,verb,resource; also pod, user_agent, namespace, code"
    )
    order: Literal["calls", "latency"] | None = Field(None, description="by what rose most")
    limit: Limit = Field(20, description="how many")


class Diff(Placed):
    """Of which object, between which times."""

    object: Annotated[str, Field(min_length=3, max_length=400)] = Field(
        description="KIND/NAME as kubectl has it, as deployment/web"
    )
    from_at: Time = Field(alias="from", description=f"the earlier time; {A_TIME}")
    to_at: Time | None = Field(None, alias="to", description=f"the later time; now when left out; {A_TIME}")


class Gaps(Asked):
    """Of what stretch of time."""

    cluster: Name | None = Field(None, description="only this cluster")
    from_at: Time = Field("1h", alias="from", description=f"since when; {A_TIME}")
    to_at: Time | None = Field(None, alias="to", description=f"until when; now when left out; {A_TIME}")


@dataclass(frozen=True, slots=True)
class Tool:
    """``ask`` is given a Foreshock and ``asked``; its answer is REST's: with ``freshness`` and ``gaps``."""

    name: str
    title: str
    description: str
    asked: type[Asked]
    ask: Callable[[Reads, Any], dict[str, Any]]


def _what_changed(server: Reads, asked: WhatChanged) -> dict[str, Any]:
    at = now()
    to_at = moment(asked.at, now=at, called="at") if asked.at else at.isoformat()
    return _page(
        server.json(
            "changes", from_=_before(to_at, asked.back), to=to_at, limit=asked.limit,
            cluster=asked.cluster, namespace=asked.namespace,
        )
    )  # fmt: skip


def _changes(server: Reads, asked: Changes) -> dict[str, Any]:
    return _page(
        server.json(
            "changes", **_window(asked.from_at, asked.to_at), kind=asked.kind, actor=asked.actor, verb=asked.verb,
            text=asked.text, derived="shown" if asked.derived else None, limit=asked.limit, after=asked.after,
            cluster=asked.cluster, namespace=asked.namespace,
        )
    )  # fmt: skip


def _change(server: Reads, asked: OneChange) -> dict[str, Any]:
    answer = server.json("changes", asked.change_id)
    return {**answer, "began": [_short(one) for one in answer["began"]]}


def _incidents(server: Reads, asked: Incidents) -> dict[str, Any]:
    answer = server.json("incidents", cluster=asked.cluster, status=asked.status, limit=asked.limit, after=asked.after)
    items = [{name: value for name, value in one.items() if name != "alerts"} for one in answer["items"]]
    return {**answer, "items": items}


def _incident(server: Reads, asked: OneIncident) -> dict[str, Any]:
    incident = server.json("incidents", asked.incident_id)["incident"]
    answer = server.json("incidents", asked.incident_id, "suspects")
    suspects = [
        {
            "rank": one["rank"],
            "probability": one["probability"],
            "t_minus_seconds": one["t_minus_seconds"],
            "change": {**_short(one["change"]), "diffs": one["change"]["diffs"]},
            "evidence_for": [reason for reason in one["evidence"] if reason["weight"] > 0],
            "evidence_against": [reason for reason in one["evidence"] if reason["weight"] < 0],
            "not_measured": [reason for reason in one["evidence"] if not reason["measured"]],
            "also": one["also"],
            "beside": one["beside"],
        }
        for one in answer["items"]
    ]
    rest = {name: value for name, value in answer.items() if name != "items"}
    return {"incident": incident, "suspects": suspects, **rest}


def _who_calls(server: Reads, asked: WhoCalls) -> dict[str, Any]:
    answer = server.json(
        "calls", cluster=server.only_cluster(asked.cluster, called="cluster"), resource=asked.resource,
        minus=asked.back, at=moment(asked.at, now=now(), called="at") if asked.at else None,
        by=asked.by, order=asked.order, limit=asked.limit,
    )  # fmt: skip
    items = [{name: value for name, value in one.items() if value is not None} for one in answer["items"]]
    return {**answer, "items": items}


def _diff(server: Reads, asked: Diff) -> dict[str, Any]:
    answer = server.json(
        "diff", object=asked.object, namespace=asked.namespace,
        cluster=server.only_cluster(asked.cluster, called="cluster"), **_window(asked.from_at, asked.to_at),
    )  # fmt: skip
    return {**answer, "changes": [_short(one) for one in answer["changes"]]}


def _revert(server: Reads, asked: OneChange) -> dict[str, Any]:
    return server.json("changes", asked.change_id, "revert")


def _gaps(server: Reads, asked: Gaps) -> dict[str, Any]:
    answer = server.json("gaps", cluster=asked.cluster, **_window(asked.from_at, asked.to_at))
    clusters = server.json("clusters")["items"]
    known = [one for one in clusters if asked.cluster in (None, one["name"])]
    return {"clusters": known, "freshness": answer["freshness"], "gaps": answer["items"]}


def _page(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {**answer, "items": [_short(one) for one in answer["items"]]}


def _short(change: Mapping[str, Any]) -> dict[str, Any]:
    """A change as a list tells it: which fields differ, and not what they hold."""
    told = {name: change[name] for name in _TOLD if change[name] not in (None, "")}
    return {**told, "fields": [diff["path"] for diff in change["diffs"][:5]]}


def _window(from_at: str | None, to_at: str | None) -> dict[str, str | None]:
    at = now()
    return {
        "from_": moment(from_at, now=at, called="from") if from_at else None,
        "to": moment(to_at, now=at, called="to") if to_at else None,
    }


def _before(at: str, length: str) -> str:
    return moment(length, now=datetime.fromisoformat(at), called="back")


TOOLS = (
    Tool(
        "what_changed",
        "What changed lately",
        "What changed in the clusters in the last half an hour, or another time: the first question of an incident. "
        "Newest first, without the values of fields; `change` tells those of one.",
        WhatChanged,
        _what_changed,
    ),
    Tool(
        "changes",
        "Search changes",
        "Changes of Kubernetes objects, and external ones, by time, kind, actor, verb or text; newest first. "
        "`next` goes on as `after`.",
        Changes,
        _changes,
    ),
    Tool(
        "change",
        "One change",
        "One change with its field diffs, who made it and how that is known, and what controllers wrote because of it.",
        OneChange,
        _change,
    ),
    Tool(
        "incidents",
        "List incidents",
        "Incidents, newest first, each with what leads its ranking; `incident` tells one with all its suspects.",
        Incidents,
        _incidents,
    ),
    Tool(
        "incident",
        "One incident with its suspects",
        "One incident and the changes that may have led to it, ranked, each with the evidence for and against it. "
        "`none_of_these` is the probability that it was none of them: where it leads, say so, and name no culprit.",
        OneIncident,
        _incident,
    ),
    Tool(
        "who_calls",
        "Who calls the API server",
        "Who calls a cluster's API server, now beside as long a time before; those whose calls rose most come first.",
        WhoCalls,
        _who_calls,
    ),
    Tool(
        "diff",
        "One object at two times",
        "Which fields of one object differ between two times, and the changes in between. `diffs` null: not known, and "
        "`unknown` says why.",
        Diff,
        _diff,
    ),
    Tool(
        "revert_recipe",
        "How to undo a change",
        "How a person can undo a change: commands as text, a dry run among them, and what to mind first. Runs nothing; "
        "it is for a person to read and run.",
        OneChange,
        _revert,
    ),
    Tool(
        "gaps",
        "What was not seen",
        "Up to when each cluster is recorded, by which sources, and what was not seen in a stretch of time: ask it "
        "before saying that nothing changed.",
        Gaps,
        _gaps,
    ),
)
