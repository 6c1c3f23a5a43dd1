"""Alerts and people -> incidents, and incidents -> rankings: gather what was recorded, decide in core, save.

Ranking the same data twice gives the same answer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace
from sqlalchemy import Pool
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.changes.external import AHEAD
from app.core.counted import Calls
from app.core.findings import Incident, Ranking, Said, WriteFight
from app.core.incidents import hands
from app.core.incidents.bundles import FIRES_ON, LOOKS_AHEAD, LOOKS_BACK, REOPENS_FOR, REOPENS_WITHIN, bundle, gone
from app.core.incidents.pagers import Paged, as_known
from app.core.metrics.lines import laid
from app.core.model import Batch, Change, MetricSeries, Reject, Symptom
from app.core.ranking.precedents import remembered
from app.core.ranking.suspected import (
    USUAL,
    USUAL_STEP,
    WINDOW,
    follow_up,
    metrics_of,
    rises,
    still_suspected,
    suspected,
    usual,
)
from app.core.ranking.suspects import rank
from app.core.signals.calls import axis
from app.core.signals.collected import RANKED
from app.core.signals.fights import FIRST_BLOW, MIN_WRITES, fight_members, write_fights
from app.core.signals.relists import relist_signals
from app.core.signals.series import metric_signals
from app.core.signals.signal import Signal, SignalKind
from app.store import audit, calls, changes, idempotency, incidents, precedents, series
from app.store.audit import Action
from app.store.external import list_clusters
from app.store.gathering import LARGE, MOST_FOUGHT, gather
from app.store.noise import mark_noise
from app.store.partitions import storable
from app.store.record import lock, record
from app.store.redaction import read_redactor

RERANK_AFTER = (timedelta(0), timedelta(minutes=3), timedelta(minutes=10))
"""A ranking at once, and again when new pods and callers have had time to show themselves."""
QUIET = timedelta(minutes=1)
"""What is recorded of an older incident, by an import mostly, is ranked once nothing of it came for so long."""


class _Turn:
    """One ranks at a time: rankings share a processor, and a storm of alerts does not hold all connections then."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting: dict[str, dict[object, datetime]] = defaultdict(dict)
        """By incident: who waits for a ranking of it, and as of when."""


_turns: WeakKeyDictionary[Pool, _Turn] = WeakKeyDictionary()


async def open_incidents(conn: AsyncConnection, cluster: str, alerts: Iterable[Symptom]) -> list[Incident]:
    """Open, extend or resolve incidents with these alerts, and save them. Alerts seen before change nothing.

    In the transaction that records the alerts: it is the only one of its cluster until it ends.
    """
    found = list(alerts)
    if not found:
        return []
    start, end = min(alert.at for alert in found), max(alert.ended_at or alert.at for alert in found)
    known = await incidents.list_during(conn, cluster, start=start - REOPENS_WITHIN, end=end + FIRES_ON)
    touched = await asyncio.to_thread(bundle, found, known, cluster=cluster)  # of thousands it takes a while
    for incident in touched:
        await incidents.save_incident(conn, incident)
    return touched


async def rank_incident(engine: AsyncEngine, known: Incident, now: datetime) -> Ranking | None:
    """Rank an incident's suspects as of ``now`` and save the ranking beside the earlier ones.

    It is read again first: what people and alerts made of it since it was ``known`` counts, and where it was ranked
    meanwhile, this ranking is the newer one. None where it is gone, or a part of another by now. No connection is held
    while it is computed.
    """
    async with engine.connect() as conn:
        news_at = await incidents.read_news(conn, known.id)
        found = await incidents.read_incident(conn, known.id)
    if found is None or found[0].merged_into is not None:
        return None
    incident = found[0]
    now = max(now, incident.started_at)
    if incident.ranked_at is not None and incident.ranked_at != known.ranked_at:
        now = max(now, incident.ranked_at + timedelta(milliseconds=1))
    gathered = await gather(engine, incident, now)
    ranking = await asyncio.to_thread(rank, gathered)  # computing must not hold up the pages
    async with engine.begin() as conn:
        memory = await precedents.read_memory(
            conn,
            incident.id,
            [one.change for one in ranking.suspects],
            cluster=incident.cluster,
            before=incident.started_at - LOOKS_BACK,
            now=now,
            most_bytes=LARGE,
        )
        ranking = remembered(ranking, memory)
        await incidents.save_ranking(conn, ranking, news_at=news_at)
    return ranking


async def _rank(engine: AsyncEngine, incident: Incident, now: datetime) -> None:
    """Ranks, and once that is saved marks every blow of the write fights that it found, to be drawn as one thing.

    Who waits for the same incident is served by one ranking, which is begun after all they said was committed.
    """
    turn, me, ranking = _turns.setdefault(engine.sync_engine.pool, _Turn()), object(), None
    waiting = turn.waiting[incident.id]
    waiting[me] = now
    try:
        async with turn.lock:
            if served := dict(waiting) if me in waiting else {}:
                ranking = await rank_incident(engine, incident, max(served.values()))
                for one in served:
                    waiting.pop(one, None)
    finally:
        waiting.pop(me, None)
        if not waiting:
            turn.waiting.pop(incident.id, None)
    for fight in ranking.fights if ranking else ():
        await _mark_blows(engine, incident.cluster, fight)


async def _mark_blows(engine: AsyncEngine, cluster: str, fight: WriteFight) -> None:
    """The newest first, so many in a transaction."""
    start, marked = fight.began_at - FIRST_BLOW, MOST_FOUGHT
    while marked:
        async with engine.begin() as conn:
            made = await changes.read_rewritten(
                conn, cluster, start, fight.ended_at, least=MIN_WRITES, limit=MOST_FOUGHT, with_noise=False
            )
            marked = await mark_noise(conn, cluster, fight_members(made, [fight]))


async def take_alerts(engine: AsyncEngine, cluster: str, alerts: Iterable[Symptom], now: datetime) -> list[Incident]:
    """Record alerts as they come in, open or extend their incidents, and rank those at once.

    Alerts whose start cannot be stored (more than 400 days ago, or to come) are left out. Told again, nothing changes.
    """
    found = [alert for alert in alerts if storable(alert.at, now)]
    async with engine.begin() as conn:
        await record(conn, Batch(cluster, symptoms=tuple(found), read_at=now))
        touched = await open_incidents(conn, cluster, found)
    await _rank_all(engine, touched, now)
    return touched


async def read_firing(engine: AsyncEngine, cluster: str, *, asked: datetime) -> frozenset[str]:
    """The fingerprints of what fires at Alertmanager as far as we know: ``reconcile`` ends what is not listed of it."""
    async with engine.connect() as conn:
        known = await incidents.list_during(conn, cluster, start=asked, end=asked)
    return frozenset(alert.fingerprint for alert in gone((), known, asked=asked))


async def reconcile(
    engine: AsyncEngine,
    cluster: str,
    firing: Iterable[Symptom],
    *,
    fingerprints: Collection[str] | None,
    asked: datetime,
) -> list[Incident]:
    """As ``take_alerts``, of what an Alertmanager says that fires: what it told while nobody listened comes in, and
    what ended meanwhile ends. The incidents that it changed.

    ``fingerprints`` are those of all that fires there, silenced or not, None where it does not know of all: then
    nothing ends. ``asked`` is when it was asked, before it answered: it ranks as of then.
    """
    async with engine.begin() as conn:
        await lock(conn, cluster)
        found = [alert for alert in firing if storable(alert.at, asked)]
        # as told: an end that is inferred may be taken back
        await record(conn, Batch(cluster, symptoms=tuple(found), read_at=asked))
        if fingerprints is not None:
            going_on = await incidents.list_during(conn, cluster, start=asked, end=asked)
            found += gone(fingerprints, going_on, asked=asked)
        first = min((alert.at for alert in found), default=asked)
        before = await incidents.list_during(conn, cluster, start=first - REOPENS_WITHIN, end=asked)
        known = {one.id: one for one in before}  # those that a person resolved while their alerts fire, too
        touched = [one for one in await open_incidents(conn, cluster, found) if _differ(known.get(one.id), one)]
    await _rank_all(engine, touched, asked)
    return touched


def _differ(known: Incident | None, now: Incident) -> bool:
    """Whether more changed than when its alerts were last told to fire."""
    return known is None or _undated(known) != _undated(now)


def _undated(incident: Incident) -> Incident:
    """Without when it was last told, and without what is said with the value that it has just now."""
    alerts = (replace(alert, active_at=None, annotations=()) for alert in incident.alerts)
    return replace(incident, alerts=tuple(alerts))


LIVELY = 2 * WINDOW
"""A cluster is looked at until so long after it told something: then what is suspected of it has ended."""


async def suspect(engine: AsyncEngine, cluster: str, now: datetime) -> Incident | None:
    """Looks whether something turned bad lately that nobody told of; what it saved, mostly None.

    It reads half an hour, of changes those that may be of a write fight, the newest MOST_FOUGHT; of metrics, while
    something is suspected, as long before that began, so that it is still known how it was before. Before a line that
    rose is suspected, the day before is read of its metrics.
    """
    start = now - WINDOW
    async with engine.connect() as conn:
        before = still_suspected(await incidents.list_during(conn, cluster, start=start, end=now))
        since = max(before.started_at - WINDOW, now - FIRES_ON) if before else start
        made = await changes.read_rewritten(conn, cluster, start, now, least=MIN_WRITES, limit=MOST_FOUGHT)
        called = await calls.read(conn, cluster, start, now)
        measured = await series.read(conn, cluster, since, now, names=RANKED)
    fights, signals = await asyncio.to_thread(_turned_bad, made, called, measured=measured, now=now)
    if before is None:
        signals = await _without_usual(engine, cluster, signals, now=now)
    found = suspected(cluster, fights=fights, signals=signals, now=now)
    async with engine.begin() as conn:
        await lock(conn, cluster)
        known = await incidents.list_during(conn, cluster, start=start, end=now)
        incident = follow_up(found, known, now=now)
        if incident is not None:
            await incidents.save_incident(conn, incident)
    if incident is not None:
        await _rank_now(engine, incident, now)
    return incident


def _turned_bad(
    made: list[Change], called: Calls, *, measured: list[MetricSeries], now: datetime
) -> tuple[list[WriteFight], list[Signal]]:
    slots, lines = axis(called, until=now.timestamp()), laid(measured, until=now.timestamp())
    signals = relist_signals(called, slots) if slots and slots.size else []
    signals += rises(metric_signals(lines), lines, now=now) if lines else []
    return write_fights(made), signals


async def _without_usual(engine: AsyncEngine, cluster: str, signals: list[Signal], *, now: datetime) -> list[Signal]:
    """What turned bad, but for lines that were as high in the day before."""
    rose = [one for one in signals if one.kind is SignalKind.METRIC]
    if not rose:
        return signals
    try:
        async with engine.connect() as conn:
            known = await series.read(conn, cluster, now - USUAL, now, names=metrics_of(rose), step=USUAL_STEP)
    except series.TooMuchError:  # of so many series it is not known, and better told once more than hidden
        return signals
    day = await asyncio.to_thread(laid, known, until=now.timestamp())
    if day is None:
        return signals
    daily = await asyncio.to_thread(usual, rose, day)
    return [one for one in signals if one not in daily]


async def _rank_all(engine: AsyncEngine, touched: Iterable[Incident], now: datetime) -> None:
    for incident in touched:
        await _rank(engine, incident, now)


async def take_page(engine: AsyncEngine, cluster: str, paged: Paged, *, source: str, now: datetime) -> list[Incident]:
    """As ``take_alerts``, of what a pager tells: nothing for an event that came before, and what is unknown is counted
    among what could not be used (the quarantine of ``source``).
    """
    touched: list[Incident] = []
    async with engine.begin() as conn:
        event = sha256(f"{cluster}\0{paged.event}".encode("utf-8", "replace")).digest()
        if paged.event and await idempotency.claim(conn, event, b"", now=now) is not None:
            return []
        if paged.unknown:
            await record(conn, Batch(cluster, rejects=(Reject(source, 0, 0, paged.left_out, ""),)))
        if paged.alert is not None and storable(paged.alert.at, now):
            await lock(conn, cluster)
            first = min(paged.alert.at, paged.since or paged.alert.at)
            before = REOPENS_WITHIN if paged.dated else REOPENS_FOR  # acknowledged, it may be closed long since
            known = await incidents.list_during(conn, cluster, start=first - before, end=now)
            alert = as_known(paged, known)
            if alert is None:
                return []
            await record(conn, Batch(cluster, symptoms=(alert,), read_at=now))
            touched = await open_incidents(conn, cluster, [alert])
    await _rank_all(engine, touched, now)
    return touched


Check = Callable[[AsyncConnection], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ByHand:
    """What people do to incidents, in this database; each that is changed is ranked at once.

    All raise core.hands.CannotError for what cannot be, LookupError for an id that is not known.
    """

    engine: AsyncEngine

    async def open(
        self, cluster: str, said: Said, *, by: str, key: bytes | None, now: datetime
    ) -> tuple[Incident, bool]:
        """Opens an incident, once for each ``key`` (None: each time); the incident, and whether it was there.

        Raises OtherRequestError for a key that came with something else, CannotError for an unknown cluster.
        """
        async with self.engine.begin() as conn:
            clean = await _clean(conn, said, now=now)
            told = sha256(msgspec.json.encode((cluster, clean))).digest()
            if cluster not in (known := await list_clusters(conn)):
                raise hands.unknown_cluster(cluster, known)
            if key is not None and (made := await idempotency.claim(conn, key, told, now=now)) is not None:
                return (await _known(conn, made[0])), True
            request = secrets.token_hex(16) if key is None else key.hex()
            incident = hands.opened(cluster, clean, by=by, request=request, now=now)
            await lock(conn, cluster)
            await incidents.save_incident(conn, incident)
            if key is not None:
                await idempotency.keep(conn, key, [incident.id])
            await audit.note(conn, Action.INCIDENT_OPENED, incident.id, by=by, now=now)
        await _rank_now(self.engine, incident, now)
        return incident, False

    async def amend(self, incident_id: str, told: Said, *, now: datetime, check: Check | None = None) -> Incident:
        """Changes what is named of an incident, or resolves or reopens it. ``check`` is called when nobody else writes
        of it, with the connection that this holds, and raises where this is not to be done."""
        async with self.engine.begin() as conn:
            await lock(conn, (await _known(conn, incident_id)).cluster)
            if check is not None:
                await check(conn)
            known = await _known(conn, incident_id)  # as it is now that nobody else writes of it
            incident = hands.amended(known, await _clean(conn, told, now=now), now=now)
            if incident != known:
                await incidents.save_incident(conn, incident)
                await audit.note(conn, Action.INCIDENT_CHANGED, incident.id, now=now)
        if incident != known:
            await _rank_now(self.engine, incident, now)
        return incident

    async def merge(self, incident_id: str, into: str, *, now: datetime, check: Check | None = None) -> Incident:
        """Makes an incident a part of another, which it answers. ``check`` as of ``amend``."""
        async with self.engine.begin() as conn:
            await lock(conn, (await _known(conn, incident_id)).cluster)
            if check is not None:
                await check(conn)
            known = await _known(conn, incident_id)
            part, whole = hands.merged(known, await _known(conn, into), now=now)
            if part != known:
                for one in (part, whole):
                    await incidents.save_incident(conn, one)
                await incidents.move_parts(conn, part.id, into=whole.id)
                await audit.note(conn, Action.INCIDENT_MERGED, f"{part.id} into {whole.id}", now=now)
        if part != known:
            await _rank_now(self.engine, whole, now)
        return whole


async def _clean(conn: AsyncConnection, said: Said, *, now: datetime) -> Said:
    """What is said, without secrets. Raises CannotError for a time that is not kept."""
    if said.started_at is not None and not (storable(said.started_at, now) and said.started_at <= now + AHEAD):
        raise hands.CannotError("started_at", "it is more than 400 days ago, or to come: is the sender's clock right?")
    if said.title is None:
        return said
    return replace(said, title=(await read_redactor(conn)).text(said.title))


async def _known(conn: AsyncConnection, incident_id: str) -> Incident:
    found = await incidents.read_incident(conn, incident_id)
    if found is None:
        raise LookupError(incident_id)
    return found[0]


async def _rank_now(engine: AsyncEngine, incident: Incident, now: datetime) -> None:
    """Ranks as of now, or of the last moment that tells of how it began; once more, not again as of the same moment."""
    as_of = max(min(now, incident.started_at + LOOKS_AHEAD), incident.started_at)
    if incident.ranked_at is not None:
        as_of = max(as_of, incident.ranked_at + timedelta(milliseconds=1))
    await _rank(engine, incident, as_of)


async def rank_news(engine: AsyncEngine, cluster: str, now: datetime) -> list[Incident]:
    """Rank the incidents of a cluster of which something was recorded since, as of the end of the record."""
    async with engine.connect() as conn:
        found = await incidents.list_unranked(conn, cluster=cluster)
    await _rank_as_recorded(engine, found, now)
    return found


async def _rank_as_recorded(engine: AsyncEngine, found: Iterable[Incident], now: datetime) -> None:
    for incident in found:
        async with engine.begin() as conn:
            until = min(now, incident.started_at + LOOKS_AHEAD)
            end = await incidents.recorded_to(conn, incident.cluster, until=until)
        as_of = max(incident.started_at, end or incident.started_at)
        if incident.ranked_at is not None:  # one more ranking, not another of the same moment
            as_of = max(as_of, incident.ranked_at + timedelta(milliseconds=1))
        await _rank(engine, incident, as_of)


async def rerank(engine: AsyncEngine, now: datetime) -> list[str]:
    """Rank again the incidents whose next ranking is due (RERANK_AFTER), and older ones with news; their ids."""
    async with engine.connect() as conn:
        recent = await incidents.list_near(conn, start=now - LOOKS_AHEAD, end=now)
        told = await incidents.first_ranked(conn, [one.id for one in recent], since=now - LOOKS_AHEAD)
        unranked = await incidents.list_unranked(conn, quiet=QUIET)
    unmerged = (incident for incident in recent if incident.status != "merged")
    due = {incident.id: incident for incident in unmerged if is_due(incident, now, told=told.get(incident.id))}
    late = [one for one in unranked if one.id not in due and now - one.started_at > RERANK_AFTER[-1]]
    for incident in due.values():
        await _rank(engine, incident, now)
    await _rank_as_recorded(engine, late, now)
    return [*due, *(incident.id for incident in late)]


def is_due(incident: Incident, now: datetime, *, told: datetime | None = None) -> bool:
    """Whether a moment of RERANK_AFTER has passed since the incident began without a ranking after it; since it was
    first ranked (``told``), where that was so late that the first of them had passed: its start may be wrong."""
    is_late = told is not None and told - incident.started_at >= RERANK_AFTER[1]
    began = told if told is not None and is_late else incident.started_at
    passed = [began + after for after in RERANK_AFTER if began + after <= now]
    if not passed or now - incident.started_at > LOOKS_AHEAD:
        return False
    return incident.ranked_at is None or incident.ranked_at < passed[-1]
