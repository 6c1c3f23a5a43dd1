"""`foreshock evaluate`: rank recorded incidents whose answer is known, and say honestly how good that was.

Each recording goes into a database of its own. What happened after the moment of ranking is not even imported, and
the label is read only when the ranking is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import msgspec
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from app.collect.files import DamagedError, UnreadableError
from app.collect.importer import Import
from app.collect.inputs import LABEL, InputKind, survey
from app.core.accuracy import Accuracy, Comparison, Rank, Reliability, accuracy, auroc, compare, reliability
from app.core.baselines import BASELINES, rank_among
from app.core.candidates import Candidate, candidates
from app.core.evidence import RULES
from app.core.fights import write_fights
from app.core.findings import Incident, Ranking, Suspect
from app.core.suspects import Gathered, rank
from app.core.topology import topology
from app.correlate import gather, open_incidents
from app.failures import Expected
from app.store.database import open_database
from app.store.migrate import migrate
from app.store.scratch import create_database, drop_database

LATER = timedelta(minutes=3)
SAME_MOMENT = timedelta(seconds=3)
"""A label's time is when the writer sent it; ours when the API server took or told it."""


class NotJudgedError(Expected):
    """A recording cannot be judged; the message names the file, what is wrong with it and what to do."""


class RawCulprit(msgspec.Struct):
    kind: str
    name: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    namespace: str | None = None


class RawLabel(msgspec.Struct):
    """``culprit`` is None where no change preceded the incident: then "none of these" should win. ``accepted`` are
    other changes that are as right an answer, as a second write of the same hand for the same purpose."""

    culprit: RawCulprit | None = None
    accepted: tuple[RawCulprit, ...] = ()

    @property
    def answers(self) -> tuple[RawCulprit, ...]:
        """What is right; nothing where it was no change."""
        return (self.culprit, *self.accepted) if self.culprit else ()


Answers = tuple[RawCulprit, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One recording, ranked at the alert and later."""

    name: str
    at_alert: Gathered
    later: Gathered
    first: Ranking
    second: Ranking


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one ranking did. ``rank`` None: the culprit was not among the candidates shown."""

    name: str
    when: str
    rank: float | None
    top: str
    why: str
    probability: float
    none_of_these: float
    leader: float
    """The probability of what led, a change or "none of these"."""
    right: bool
    """Whether that was the culprit, or "none of these" where there is none."""
    above: tuple[str, ...]
    candidates: int


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A recording that could not be judged, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ablated:
    """What is left at the alert without one rule."""

    accuracy: Accuracy
    none_told: float | None


@dataclass(frozen=True, slots=True)
class Result:
    verdicts: tuple[Verdict, ...]
    not_judged: tuple[NotJudged, ...]
    accuracy: dict[str, Accuracy]
    """By method: ours at the alert, ours later, and each baseline."""
    compared: dict[str, Comparison]
    """Ours at the alert with each baseline."""
    none_told: float | None
    """AUROC of P("none of these") at the alert."""
    reliability: tuple[Reliability, ...]
    """Of the leaders at the alert, with or without a culprit."""
    ablation: dict[str, Ablated]


def recordings(folder: Path) -> list[Path]:
    """The folders with a label under ``folder`` (or itself). Raises UnreadableError where there is none."""
    found = sorted(path.parent for path in folder.glob(f"**/{LABEL}"))
    if not found:
        raise UnreadableError(f"{folder}: no recording in it (a folder with a {LABEL})")
    return found


async def evaluate(
    dsn: str, folders: list[Path], *, now: datetime, leave_out: frozenset[InputKind] = frozenset(), ablate: bool = False
) -> Result:
    """Import, rank and only then compare. ``leave_out`` imports a recording without some of its inputs.

    A recording that cannot be judged is told among the others' verdicts.
    """
    labelled: list[tuple[Case, Answers]] = []
    not_judged = []
    for folder in folders:
        try:
            case = await _case(dsn, folder, now=now, leave_out=leave_out)
            labelled.append((case, _label(folder).answers))
        except (NotJudgedError, UnreadableError, DamagedError) as error:
            not_judged.append(NotJudged(folder.name, str(error)))
    verdicts = [
        verdict
        for case, answers in labelled
        for verdict in (
            _verdict(case.name, "alert", case.first, answers),
            _verdict(case.name, "later", case.second, answers),
        )
    ]
    with_culprit = [(case, answers) for case, answers in labelled if answers]
    ours = [_rank_of(c.first, answers) for c, answers in with_culprit]
    methods = {
        "foreshock, at the alert": ours,
        f"foreshock, +{LATER.seconds // 60} min or the end": [
            _rank_of(c.second, answers) for c, answers in with_culprit
        ],
    }
    compared = {}
    for name in BASELINES:
        methods[name] = [_baseline_rank(name, c.later, answers) for c, answers in with_culprit]
        compared[name] = compare(ours, methods[name])
    leaders = [(verdict.leader, verdict.right) for verdict in verdicts if verdict.when == "alert"]
    return Result(
        verdicts=tuple(verdicts),
        not_judged=tuple(not_judged),
        accuracy={name: accuracy(ranks) for name, ranks in methods.items()} if with_culprit else {},
        compared=compared if with_culprit else {},
        none_told=_none_told((case.first, answers) for case, answers in labelled),
        reliability=tuple(reliability(leaders)),
        ablation=_ablation(labelled) if ablate and with_culprit else {},
    )


def _ablation(labelled: list[tuple[Case, Answers]]) -> dict[str, Ablated]:
    """At the alert, by the rule that is left out."""
    found = {}
    for rule in RULES:
        kept = tuple(other for other in RULES if other is not rule)
        ranked = [(rank(case.at_alert, rules=kept), answers) for case, answers in labelled]
        ranks = [_rank_of(ranking, answers) for ranking, answers in ranked if answers]
        found[rule.__name__.replace("_", " ")] = Ablated(accuracy(ranks), _none_told(ranked))
    return found


def _none_told(ranked: Iterable[tuple[Ranking, Answers]]) -> float | None:
    by_culprit: dict[bool, list[float]] = {True: [], False: []}
    for ranking, answers in ranked:
        by_culprit[bool(answers)].append(ranking.none_of_these)
    return auroc(by_culprit[True], by_culprit[False])


def _label(folder: Path) -> RawLabel:
    """The answer of a recording. Raises NotJudgedError."""
    path = folder / LABEL
    try:
        return msgspec.json.decode(path.read_bytes(), type=RawLabel)
    except OSError as error:
        raise NotJudgedError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJudgedError(
            f'{path}: {error}; it must say {{"culprit": {{"kind", "namespace", "name", "at"}}}},'
            " or null where no change preceded the incident"
        ) from None


async def _case(dsn: str, folder: Path, *, now: datetime, leave_out: frozenset[InputKind]) -> Case:
    found = survey([str(folder)])
    if found.damaged:
        raise NotJudgedError(f"{'; '.join(found.damaged)}: copy it again, or take it away to judge without it")
    inputs = [one for one in found.inputs if one.kind not in leave_out]
    alerts = [one for one in inputs if one.kind is InputKind.ALERTS]
    if not alerts:
        raise NotJudgedError(f"{folder}: has no alert to rank for: put the Alertmanager payload beside the logs")
    async with _scratch(dsn) as engine:
        cluster = "recording"
        first = await Import(engine, cluster, now=now, progress=_quiet).run(alerts)
        async with engine.begin() as conn:
            opened = await open_incidents(conn, cluster, first.alerts)
        if not opened:
            silent = f"{', '.join(one.path for one in alerts)}: it holds no alert that fired"
            raise NotJudgedError(f"{'; '.join(first.problems) or silent}: put the payload there that called somebody")
        incident = min(opened, key=lambda i: i.started_at)
        started = incident.started_at
        await Import(engine, cluster, now=now, progress=_quiet, until=started).run(inputs)
        at_alert = await _gathered(engine, incident, started)
        last = await Import(engine, cluster, now=now, progress=_quiet, until=started + LATER).run(inputs)
        end = min(last.to_at or started, started + LATER)
        later = await _gathered(engine, incident, max(end, started))
    return Case(folder.name, at_alert, later, rank(at_alert), rank(later))


async def _gathered(engine: AsyncEngine, incident: Incident, at: datetime) -> Gathered:
    async with engine.connect() as conn:
        return await gather(conn, incident, at)


@asynccontextmanager
async def _scratch(dsn: str) -> AsyncIterator[AsyncEngine]:
    """An empty, migrated database beside the one of ``dsn``, dropped at the end."""
    name = f"foreshock_evaluate_{uuid4().hex[:12]}"
    create_database(dsn, name)
    try:
        own = make_url(dsn).set(database=name).render_as_string(hide_password=False)
        migrate(own)
        database = open_database(own)
        try:
            yield database.write
        finally:
            await database.read.dispose()
            await database.write.dispose()
    finally:
        drop_database(dsn, name)


def _quiet(_path: str, _lines: int, _offset: int) -> None:
    """An evaluation shows no progress of its imports."""


def _is(one: Suspect | Candidate, answers: Answers) -> bool:
    """Whether it is an answer, by itself or as one of the same edits."""
    return any(
        (made.resource.kind, made.resource.namespace, made.resource.name)
        == (answer.kind, answer.namespace, answer.name)
        and abs(made.at - answer.at) <= SAME_MOMENT
        for made in (one.change, *one.also)
        for answer in answers
    )


def _rank_of(ranking: Ranking, answers: Answers) -> Rank | None:
    return next((Rank(s.rank - 1) for s in ranking.suspects if _is(s, answers)), None)


def _baseline_rank(name: str, gathered: Gathered, answers: Answers) -> Rank | None:
    found: list[Candidate] = candidates(
        gathered.changes,
        gathered.rollouts,
        write_fights(gathered.changes),
        topology=topology(gathered.states, gone=gathered.gone),
        until=gathered.now,
    )
    score = BASELINES[name]
    scores = {c.change.id: score(c, gathered) for c in found}
    ranks = [rank_among(scores, c.change.id) for c in found if _is(c, answers)]
    return min(filter(None, ranks), key=lambda rank: rank.mean, default=None)


def _verdict(name: str, when: str, ranking: Ranking, answers: Answers) -> Verdict:
    position = _rank_of(ranking, answers)
    top = ranking.suspects[0] if ranking.suspects else None
    mine = next((s for s in ranking.suspects if _is(s, answers)), None)
    none_leads = ranking.none_of_these > (top.probability if top else 0.0)
    above = [str(s.change.resource) for s in ranking.suspects if position is None or s.rank <= position.above][:3]
    return Verdict(
        name=name,
        when=when,
        rank=position.mean if position else None,
        top=f"{top.change.resource}: {top.change.summary}" if top else "",
        why=" ".join(e.sentence for e in (mine or top).evidence[:3]) if mine or top else "",  # type: ignore[union-attr]
        probability=mine.probability if mine else 0.0,
        none_of_these=ranking.none_of_these,
        leader=max(ranking.none_of_these, top.probability if top else 0.0),
        right=not none_leads and mine is not None and mine is top if answers else none_leads,
        above=tuple(above),
        candidates=ranking.candidates,
    )
