"""What REST answers look like: the nouns as JSON, with the names that docs/api.md promises."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from app.core import findings, model
from app.core.objects.actors import short
from app.core.screen.talkers import Talker
from app.core.screen.told_apart import BY
from app.core.watching import Watching
from app.store.audit import Entry
from app.store.incidents import FirstSuspect as Leading
from app.store.seen import Seen

CALLED = tuple(part for parts in BY.values() for part in parts)


class Shape(BaseModel):
    """Base of every answer."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Resource(Shape):
    """One named object; ``namespace`` is null for cluster-scoped kinds, ``api_group`` "" is core."""

    cluster: str
    api_group: str
    kind: str
    namespace: str | None
    name: str


class Diff(Shape):
    """One field before and after; ``op`` is add, remove or replace."""

    path: str
    op: str
    old: Any
    new: Any

    @classmethod
    def of(cls, diff: model.FieldDiff) -> Self:
        return cls(path=diff.path_text, op=diff.op, old=diff.old, new=diff.new)


class Change(Shape):
    """One write that altered the desired state of one object."""

    id: str
    at: datetime
    verb: model.Verb
    actor: str = Field(description="the name; how we know it is in actor_source")
    actor_source: model.ActorSource
    user_agent: str
    pod: str | None
    impersonator: str | None
    summary: str
    resource: Resource
    generation: int | None
    diff_source: model.DiffSource
    diffs: list[Diff]
    sources: list[str]
    begun_by: str | None
    since: datetime | None = Field(
        description="when exactly is not known: it was written after this, and not after at; null: at is when"
    )
    found_in: str = Field(description="what the cluster remembers it by, where nobody told of the write itself")
    url: str = Field(description="where more of an external change can be read, else empty")
    workload: str = Field(description="the workload of its namespace that an external change concerns, else empty")

    @classmethod
    def of(cls, change: model.Change) -> Self:
        return cls(
            id=change.id,
            at=change.at,
            verb=change.verb,
            actor=change.actor.name,
            actor_source=change.actor.source,
            user_agent=change.actor.user_agent,
            pod=change.actor.pod,
            impersonator=change.actor.impersonator,
            summary=f"{change.summary}, by {short(change.actor)}" if change.actor.name else change.summary,
            resource=Resource.model_validate(change.resource),
            generation=change.generation,
            diff_source=change.diff_source,
            diffs=[Diff.of(diff) for diff in change.diffs],
            sources=sorted(change.sources),
            begun_by=change.begun_by,
            since=change.since,
            found_in=change.found_in,
            url=change.url,
            workload=change.workload,
        )


class Step(Shape):
    """One step of undoing a change."""

    purpose: str
    command: str = Field(description="for a shell; empty where it is no command")


class Warned(Shape):
    """What to mind before a change is undone."""

    text: str
    change_id: str | None = Field(description="the change that it speaks of")


class Remembered(Shape):
    """What a cluster remembered of its past: `foreshock history --output json`."""

    cluster: str
    items: list[Change] = Field(description="newest first")
    new: int = Field(description="how many of them were not recorded yet")
    unread: list[str] = Field(description="what could not be read, and why")


class ToldChanges(Shape):
    """What was made of an external change: one change in each cluster that it touches."""

    items: list[Change]


class Progress(Shape):
    """Replica counts at one moment."""

    at: datetime
    desired: int
    updated: int
    available: int


class Rollout(Shape):
    """A workload moving from one pod template to another."""

    resource: Resource
    generation: int
    started_at: datetime
    ended_at: datetime | None
    seconds: float | None = Field(description="from start to end; null while it runs")
    outcome: model.Outcome
    reason: str
    change_id: str | None
    images: list[str]
    images_before: list[str]
    progress: list[Progress]

    @classmethod
    def of(cls, rollout: model.Rollout) -> Self:
        return cls(
            resource=Resource.model_validate(rollout.resource),
            generation=rollout.generation,
            started_at=rollout.started_at,
            ended_at=rollout.ended_at,
            seconds=None if rollout.ended_at is None else (rollout.ended_at - rollout.started_at).total_seconds(),
            outcome=rollout.outcome,
            reason=rollout.reason,
            change_id=rollout.change_id,
            images=list(rollout.images),
            images_before=list(rollout.images_before),
            progress=[Progress.model_validate(step) for step in rollout.progress],
        )


class Alert(Shape):
    """An alert of an incident."""

    reason: str
    at: datetime
    ended_at: datetime | None
    severity: str
    message: str
    annotations: dict[str, str] = Field(description="description, message and runbook_url, where they say more")
    labels: dict[str, str]


def said_of(incident: findings.Incident) -> list[str]:
    """Which fields of an incident people said."""
    names = ("title", "severity", "started_at", "namespaces", "workloads", "nodes", "control_plane", "status")
    return [name for name in names if getattr(incident.said, name) is not None]


class FirstSuspect(Shape):
    """The change that the newest ranking puts first."""

    kind: str
    name: str
    probability: float


class Verdict(Shape):
    """What somebody said of a suspect; ``change_id`` is ``none`` where it is said of none of these."""

    change_id: str
    opinion: findings.Opinion
    by: str
    at: datetime


MOST_LISTED = 20
"""Alerts of an incident in a list: one may have thousands."""


class Incident(Shape):
    """Symptoms that somebody was called for. ``onset`` lies within [onset_low, onset_high]."""

    id: str
    cluster: str
    title: str
    status: str
    severity: str
    started_at: datetime
    resolved_at: datetime | None
    onset: datetime | None
    onset_low: datetime | None
    onset_high: datetime | None
    found_in: str | None
    ranked_at: datetime | None
    namespaces: list[str]
    workloads: list[str]
    nodes: list[str]
    control_plane: bool
    origin: findings.Origin = Field(description="what opened it")
    opened_by: str = Field(description="who opened it by hand, else empty")
    said: list[str] = Field(description="what of it people said: alerts do not change it")
    merged_into: str | None = Field(description="the incident that it is a part of since they were merged")
    verdicts: list[Verdict] = Field(description="what people said of its suspects")
    first_suspect: FirstSuspect | None = Field(description="null while nothing is ranked")
    none_of_these: float | None = Field(description="it leads where it is more than the first suspect's probability")
    alert_count: int = Field(description="how many alerts it has")
    alerts: list[Alert] = Field(description="the earliest 20 in a list, all in one incident's answer")

    @classmethod
    def listed(cls, incident: findings.Incident, first: Leading | None) -> Self:
        """As one of many: of its alerts the first MOST_LISTED."""
        return cls.of(incident, first, most_alerts=MOST_LISTED)

    @classmethod
    def of(cls, incident: findings.Incident, first: Leading | None, *, most_alerts: int | None = None) -> Self:
        onset = incident.onset
        return cls(
            id=incident.id,
            cluster=incident.cluster,
            title=incident.title,
            status=incident.status,
            severity=incident.severity,
            started_at=incident.started_at,
            resolved_at=incident.resolved_at,
            onset=onset.at if onset else None,
            onset_low=onset.low if onset else None,
            onset_high=onset.high if onset else None,
            found_in=onset.found_in if onset else None,
            ranked_at=incident.ranked_at,
            namespaces=list(incident.scope.namespaces),
            workloads=list(incident.scope.workloads),
            nodes=list(incident.scope.nodes),
            control_plane=incident.scope.control_plane,
            origin=incident.origin,
            opened_by=incident.opened_by,
            said=said_of(incident),
            merged_into=incident.merged_into,
            verdicts=[Verdict.model_validate(one) for one in incident.verdicts],
            first_suspect=FirstSuspect.model_validate(first) if first else None,
            none_of_these=first.none_of_these if first else None,
            alert_count=len(incident.alerts),
            alerts=[
                Alert(
                    reason=alert.reason,
                    at=alert.at,
                    ended_at=alert.ended_at,
                    severity=alert.severity,
                    message=alert.message,
                    annotations=dict(alert.annotations),
                    labels=dict(alert.labels),
                )
                for alert in incident.alerts[:most_alerts]
            ],
        )


class Evidence(Shape):
    """One reason: weight above 0 is for, below is against; ``measured`` false says it could not be looked at."""

    rule: str
    weight: float
    sentence: str
    measured: bool


class Also(Shape):
    """The same edit of another object, another part of what was installed, or what was written with it."""

    change_id: str
    at: datetime
    resource: Resource


class Suspect(Shape):
    """A change ranked against an incident."""

    rank: int
    probability: float
    score: float
    t_minus_seconds: float = Field(description="how long before the onset; negative is after it")
    change: Change
    evidence: list[Evidence]
    derived: list[str] = Field(description="ids of the edits that followed from it")
    also: list[Also] = Field(
        description="the same edit of other objects, or other parts of an app, made in one go with it"
    )
    beside: list[Also] = Field(description="what the same hand wrote in one go with it, each of which explains less")
    would_flip: str = Field(
        description="the rule of the weakest evidence for it without which the next one, or for the first "
        '"none of these", would come before it; "" where no single one would'
    )

    @classmethod
    def of(cls, suspect: findings.Suspect) -> Self:
        return cls(
            rank=suspect.rank,
            probability=suspect.probability,
            score=suspect.score,
            t_minus_seconds=suspect.t_minus.total_seconds(),
            change=Change.of(suspect.change),
            evidence=[Evidence.model_validate(reason) for reason in suspect.evidence],
            derived=list(suspect.derived),
            also=[Also.model_validate(one) for one in suspect.also],
            beside=[Also.model_validate(one) for one in suspect.beside],
            would_flip=suspect.would_flip,
        )


class Gap(Shape):
    """An interval in which something was not seen; ``kind`` "" means every kind."""

    cluster: str
    kind: str
    from_at: datetime
    to_at: datetime
    why: str


class Freshness(Shape):
    """From when to when changes of a cluster are recorded (null where none ever were), and up to when each source tells
    of it: audit log, watch, dump, history, metrics, alerts, external."""

    cluster: str
    since: datetime | None
    at: datetime | None
    sources: dict[str, datetime]


class Call(Shape):
    """Calls that are alike in what was asked for (the rest is null), now against before.

    ``list_class`` says of a LIST what it asked of the API server (0, none, exact, continue), or that a watch begins
    with all there is (stream), ``waited_for`` what took most of calls of over half a second. Latencies are from
    request to answer; watches have none.
    """

    user: str | None
    pod: str | None
    user_agent: str | None
    verb: str | None
    api_group: str | None
    resource: str | None
    namespace: str | None
    code: int | None
    list_class: model.ListClass | None
    waited_for: str | None
    count: int
    before_count: int
    per_second: float
    before_per_second: float
    errors_per_second: float
    before_errors_per_second: float
    latency_seconds: float = Field(description="summed over all calls of the time that counts as now")
    before_latency_seconds: float
    mean_latency_ms: float
    before_mean_latency_ms: float

    @classmethod
    def of(cls, talker: Talker) -> Self:
        now, before, seconds = talker.now, talker.before, talker.seconds
        return cls(
            **{name: talker.of.get(name) for name in CALLED},
            count=now.calls,
            before_count=before.calls,
            per_second=now.calls / seconds,
            before_per_second=before.calls / seconds,
            errors_per_second=now.failed / seconds,
            before_errors_per_second=before.failed / seconds,
            latency_seconds=now.latency_seconds,
            before_latency_seconds=before.latency_seconds,
            mean_latency_ms=now.mean_latency_ms,
            before_mean_latency_ms=before.mean_latency_ms,
        )


class Metric(Shape):
    """What series are asked for by."""

    name: str


class Line(Shape):
    """One line: what it is ``of``, by what was asked to split; ``others`` is how many lines it adds up, 0 for one of
    its own. ``values`` begin at ``start`` of the answer, null where nothing was measured.
    """

    of: dict[str, str]
    others: int
    values: list[float | None]


class Cluster(Shape):
    """A cluster. Where it is ``followed``, ``server`` is its API server's version, ``kinds`` how many are watched,
    and ``unseen`` what is not seen of it right now."""

    name: str
    followed: bool
    server: str
    kinds: int
    unseen: list[Gap]
    remarks: list[str]

    @classmethod
    def of(cls, name: str, seen: Seen) -> Self:
        found = next((one for one in seen.followed if one.cluster == name), None)
        watching = found.watching if found else Watching()
        return cls(
            name=name,
            followed=found is not None,
            server=watching.server,
            kinds=watching.kinds,
            unseen=[Gap.model_validate(gap) for gap in seen.unseen if gap.cluster == name],
            remarks=[*watching.remarks, *seen.remarks(name)],
        )


class Annotation(Shape):
    """A mark on a dashboard's time axis; one with a ``time_end`` is a region."""

    time: datetime
    time_end: datetime | None = Field(description="null: it is a moment; of what goes on it is now, or `to`")
    title: str = Field(description="HTML, as text is")
    text: str = Field(description="HTML, in which everything of a cluster is escaped")
    tags: str = Field(description="change, incident or gap; then where; with commas between")


class Link(Shape):
    """A page elsewhere."""

    words: str
    url: str


class AuditEntry(Shape):
    """Something that was done in Foreshock itself, or refused."""

    at: datetime
    action: str = Field(description="one that can be asked for, or one that only a newer version knows")
    who: str = Field(description="what a token is for, else its role; empty where nobody is known")
    token: int | None = Field(description="the number of the credential, as `foreshock token list` has it")
    address: str = Field(description="where the request came from; empty is the command line")
    about: str
    times: int = Field(description="more than 1 where it was counted, from `at` on")

    @classmethod
    def of(cls, entry: Entry) -> Self:
        return cls.model_validate(entry)
