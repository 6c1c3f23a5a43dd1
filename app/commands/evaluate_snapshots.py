"""Snapshots of ITBench as cases (collect/itbench.py): ranked at the alert, and when all was listed once more."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from app.collect import itbench
from app.collect.snapshot import Snapshot
from app.collect.strict import SHOWN_PROBLEMS
from app.commands.evaluate_cases import CLUSTER, LATER, Answer, Case, scratch
from app.commands.labels import NotJudgedError
from app.core.evaluation.ground_truth import GroundTruth
from app.core.incidents.bundles import HEARTBEATS
from app.core.model import Symptom
from app.core.ranking.suspects import rank
from app.correlate import open_incidents
from app.store.gathering import gather


async def snapshot(dsn: str, folder: Path, *, now: datetime) -> tuple[Case, Answer]:
    """A snapshot, ranked, and only then its root cause: of the ground truth nothing but which alerts are the incident's
    is used before.

    It has no culprit where no change that was recorded is one of a root cause. Raises NotJudgedError, UnreadableError.
    """
    path = folder / itbench.GROUND_TRUTH
    if not path.is_file():
        raise NotJudgedError(f"{folder}: is not labelled: it has no {itbench.GROUND_TRUTH}")
    truth = itbench.read_ground_truth(path)
    async with scratch(dsn) as engine:
        told = await Snapshot.open(engine, CLUSTER, folder, now=now)
        calling = _calling(told, truth)
        if not calling:
            none = "no alert in it began while objects were recorded, so there is no incident"
            raise NotJudgedError(f"{folder}: {none}{told.lacks}")
        started = min(alert.at for alert in calling)
        end = min(told.contents.end, max(started + LATER, told.contents.listed_again(started)))
        found = []
        for until in (started, max(end, started)):
            alerts = [_as_of(until, alert) for alert in told.alerts if alert.at <= until]
            await told.read(until, alerts)
            async with engine.begin() as conn:
                opened = await open_incidents(conn, CLUSTER, [one for one in alerts if _is_of(one, calling)])
            incident = min(opened, key=lambda one: one.started_at)
            found.append(await gather(engine, incident, until))
    at_alert, later = found
    first, second = rank(at_alert), rank(later)
    states = (*at_alert.states, *at_alert.gone, *later.states, *later.gone)
    right = truth.right((*at_alert.changes, *later.changes), states, before=started)
    remarks = _refused(told.problems)
    if not right:
        causes = ", ".join(map(str, truth.causes))
        remarks.append(f"no change of its root cause ({causes}) was recorded: without a culprit, as far as is known")
    return Case(folder.name, at_alert, later, first, second, tuple(remarks)), Answer(bool(right), right)


def _calling(told: Snapshot, truth: GroundTruth) -> list[Symptom]:
    """The alerts that call somebody: those that the ground truth names, or where it names none of them, all that began
    since objects were recorded."""
    begun = [one for one in told.alerts if one.at >= told.contents.begin and one.reason not in HEARTBEATS]
    begun = [one for one in begun if one.severity.lower() != "none"]
    return [one for one in begun if one.reason in truth.alerts] or begun


def _is_of(alert: Symptom, calling: list[Symptom]) -> bool:
    return any((alert.fingerprint, alert.at) == (one.fingerprint, one.at) for one in calling)


def _as_of(at: datetime, alert: Symptom) -> Symptom:
    """An alert as it was known at a time."""
    return replace(alert, ended_at=None) if alert.ended_at and alert.ended_at > at else alert


def _refused(problems: list[str]) -> list[str]:
    more = len(problems) - SHOWN_PROBLEMS
    shown = [f"refused: {one}" for one in problems[:SHOWN_PROBLEMS]]
    return [*shown, f"refused: {more:,} more"] if more > 0 else shown
