"""GET /metrics: how this process of Foreshock does, for a Prometheus. It answers without the database, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from time import perf_counter

from fastapi import APIRouter, Depends, Request
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.core.vitals import Listening, Recording, Vitals, Watch, Work
from app.store.vitals import Stored, read_stored
from app.web.auth import NeedsScraper
from app.web.deps import Deps, deps_of
from app.web.guard import METRICS, has_expired

WITHIN_SECONDS = 3
"""So long a scrape waits for the database: Prometheus gives a scrape up after ten seconds, by default."""
INTAKE = "/intake/"
INTAKES = frozenset({"alertmanager", "audit", "flux", "launchdarkly", "opsgenie", "pagerduty", "prometheus"})
"""What is counted by its name: anybody may ask for another, and each would be a series of its own."""
BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
"""Seconds. An audit webhook is to be answered within 0.25, an alert ranked within 2."""
router = APIRouter(include_in_schema=False)


class Answers:
    """The answers that senders got from this process, since it was started."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.codes = Counter(
            "foreshock_intake_answers",
            "Requests of who sends to Foreshock, by what they were answered.",
            ["intake", "code"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "foreshock_intake_duration_seconds",
            "Until they were answered: for an alert until its incident is ranked.",
            ["intake"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.expired = Counter(
            "foreshock_intake_expired",
            "Requests that were refused for a token that was good once, and has run out.",
            ["intake"],
            registry=self.registry,
        )
        self.left_out = Counter(
            "foreshock_alerts_left_out",
            "Alerts that were sent, or should have been, and could not be taken.",
            ["intake", "reason"],
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)


class Counted:
    """Counts what senders are answered, refusals included."""

    def __init__(self, app: ASGIApp, *, answers: Answers, deps: Deps) -> None:
        self._app, self._answers, self._deps = app, answers, deps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        intake = _intake_of(scope)
        if intake is None:
            await self._app(scope, receive, send)
            return
        began = perf_counter()

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answers.codes.labels(intake, message["status"]).inc()
                self._answers.seconds.labels(intake).observe(perf_counter() - began)
                if message["status"] == 401 and has_expired(scope, self._deps):
                    self._answers.expired.labels(intake).inc()
            await send(message)

        await self._app(scope, receive, count)


def _intake_of(scope: Scope) -> str | None:
    if scope["type"] != "http" or not scope["path"].startswith(INTAKE):
        return None
    name = scope["path"].removeprefix(INTAKE).split("/", 1)[0]
    return name if name in INTAKES else None


@dataclass(frozen=True, slots=True)
class Exposed:
    """One answer, as prometheus_client writes it: what was counted, and what is known at this moment. ``stored`` is
    None where the database does not answer."""

    answers: Answers
    vitals: Vitals
    stored: Stored | None
    now: datetime
    warnings: Mapping[str, int] = field(default_factory=dict)
    """By cluster: those of its remarks that name nothing that fails."""
    listening: Listening | None = None
    """Whether Slack's connection is open; None where none is wanted."""

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client's collectors."""
        yield _gauge("foreshock_build_info", "Which Foreshock this is.", {"version": version("foreshock")}, 1)
        yield _gauge("foreshock_database_up", "Whether the database answers.", {}, int(self.stored is not None))
        for name, what, of_worker in WORKERS:
            yield _family(name, what, ("worker",), (((one.worker,), of_worker(one)) for one in self.vitals.work))
        for name, what, of_cluster in RECORDINGS:
            yield _family(
                name, what, ("cluster",), (((one.cluster,), of_cluster(one)) for one in self.vitals.recordings)
            )
        for name, what, of_watch in WATCHES:
            yield _family(name, what, ("cluster",), (((one.cluster,), of_watch(one)) for one in self.vitals.watches))
        failing = {one.cluster: one.remarks for one in self.vitals.watches}
        remarks = (
            ((cluster, severity), many)
            for severity, told in (("error", failing), ("warning", self.warnings))
            for cluster, many in told.items()
        )
        what = "What the page of clusters remarks on it: what fails (error), and what does not (warning)."
        yield _family("foreshock_remarks", what, ("cluster", "severity"), remarks)
        if self.listening is not None:
            what = "Whether the connection by which Slack says what people do there is open."
            yield _gauge("foreshock_slack_connected", what, {}, int(self.listening.is_open))
        if self.stored is not None:
            yield from _known_to_the_database(self.stored, self.now)
        yield from self.answers.registry.collect()


WORKERS: tuple[tuple[str, str, Callable[[Work], float | None]], ...] = (
    (
        "foreshock_worker_last_success_timestamp_seconds",
        "When the worker last succeeded, or began.",
        lambda one: one.succeeded_at.timestamp(),
    ),
    (
        "foreshock_worker_last_duration_seconds",
        "How long its last round took.",
        lambda one: None if one.took is None else one.took.total_seconds(),
    ),
    ("foreshock_worker_failures_total", "Rounds that failed.", lambda one: one.failures),
)
RECORDINGS: tuple[tuple[str, str, Callable[[Recording], float | None]], ...] = (
    ("foreshock_spool_bytes", "What lies in the spool.", lambda one: one.spool_bytes),
    ("foreshock_spool_capacity_bytes", "What it may hold.", lambda one: one.capacity_bytes),
    (
        "foreshock_spool_unrecorded_bytes",
        "What waits there to be brought into the database.",
        lambda one: one.unrecorded_bytes,
    ),
    ("foreshock_changes_recorded_total", "Changes brought into the database.", lambda one: one.changes),
    ("foreshock_calls_read_total", "API calls that the audit log told of.", lambda one: one.calls),
    (
        "foreshock_quarantined_total",
        "Events and objects of watches and of the audit webhook that cannot be read, and stand in quarantine.",
        lambda one: one.quarantined,
    ),
)
WATCHES: tuple[tuple[str, str, Callable[[Watch], float | None]], ...] = (
    (
        "foreshock_watch_last_heard_timestamp_seconds",
        "The last sign of life of any watch.",
        lambda one: None if one.heard_at is None else one.heard_at.timestamp(),
    ),
    ("foreshock_watched_kinds", "Kinds of objects that are watched.", lambda one: one.kinds),
    ("foreshock_open_gaps", "Kinds of which nothing is seen now; all of them count as one.", lambda one: one.unseen),
)


def _known_to_the_database(stored: Stored, now: datetime) -> Iterator[Metric]:
    yield _family(
        "foreshock_collector_renewed_timestamp_seconds",
        "When any process last said that it follows the cluster.",
        ("cluster",),
        (((cluster,), at.timestamp()) for cluster, at in stored.renewed.items()),
    )
    yield _family(
        "foreshock_recorded_timestamp_seconds",
        "Up to when the cluster is recorded, by source.",
        ("cluster", "source"),
        ((which, at.timestamp()) for which, at in stored.reached.items()),
    )
    yield _gauge("foreshock_unranked_incidents", "Open incidents that were never ranked.", {}, stored.unranked)
    yield _gauge("foreshock_slack_refused", "Messages that Slack did not take.", {}, stored.refused)
    yield _family(
        "foreshock_token_expires_in_seconds",
        "Until the first token expires that a program sends with; below 0 it has.",
        ("role", "cluster"),
        ((which, (at - now).total_seconds()) for which, at in stored.expires.items()),
    )
    waits = (now - stored.in_vain_since).total_seconds() if stored.in_vain_since else 0.0
    what = "For how long the oldest message that waits has been tried in vain; 0 where none is."
    yield _gauge("foreshock_slack_in_vain_seconds", what, {}, waits)


def _gauge(name: str, what: str, labels: Mapping[str, str], value: float) -> Metric:
    return _family(name, what, tuple(labels), [(tuple(labels.values()), value)])


def _family(
    name: str, what: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float | None]]
) -> Metric:
    """A counter where its name says so, else a gauge; None is not told."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, what, labels=labels)
    for which, value in values:
        if value is not None:
            family.add_metric(which, value)
    return family


@router.get(METRICS, dependencies=[Depends(NeedsScraper())])
async def metrics(request: Request) -> Response:
    """In the text format that who asks prefers."""
    deps = deps_of(request)
    answers: Answers = request.app.state.answers
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    stored, listening = await _stored(deps), deps.slack.listening()
    exposed = Exposed(answers, deps.vitals(), stored, deps.clock(), deps.warnings(), listening)
    return Response(encode(exposed), headers={"content-type": content_type})


async def _stored(deps: Deps) -> Stored | None:
    """None where the database does not answer in time; a driver may take longer yet to be cancelled."""
    reading = asyncio.create_task(_read(deps))
    done, _ = await asyncio.wait([reading], timeout=WITHIN_SECONDS)
    if not done:
        reading.cancel()
    return reading.result() if done else None


async def _read(deps: Deps) -> Stored | None:
    try:
        async with deps.read.connect() as conn:
            return await read_stored(conn, suspected=deps.slack.suspected, now=deps.clock())
    except (SQLAlchemyError, OSError):
        return None
