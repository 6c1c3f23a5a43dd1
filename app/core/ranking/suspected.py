"""Incidents that nobody told of: what is measured turned bad, and stays so. Suspected, quiet, and seldom."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import blake2b

import numpy as np
from msgspec.structs import replace

from app.core.findings import Incident, Origin, Scope, WriteFight
from app.core.incidents.bundles import FIRES_ON
from app.core.metrics.families import FAMILIES, Family
from app.core.metrics.lines import Laid, lines
from app.core.onset import Floats
from app.core.signals.fight_signals import fight_signal
from app.core.signals.series import OF_PROCESS
from app.core.signals.signal import Signal, SignalKind

WINDOW = timedelta(minutes=30)
"""What is looked at: how it was before must be in it, too."""
FIGHT_WRITES = 100
FIGHT_PER_SECOND = 0.5
FIGHT_RESTS = timedelta(minutes=2)
"""A field that was not rewritten for so long is at peace."""
STORM_PER_SECOND = 5.0
STORM_LASTS = timedelta(minutes=10)
"""A storm's end is not told: it counts as over so long after it began, unless it begins anew."""
RISE = 0.6
"""The strength of a line of what fails or is refused, which core/metrics/families.py weighs 0.8 or 0.9."""
HURTS = frozenset({"Latency", "In flight", "Rejected", "etcd latency", "Memory"})
"""Lines that weigh less in a ranking, where many move together, and are as little usual: two thirds of what they can
reach is enough, as of the others. Queues, retries and watches move with each large rollout."""
HURTS_RISE = 0.33
RISE_FACTOR = 3.0
RISE_HOLDS = timedelta(minutes=5)
"""A line that rose this long ago, and is up still, did not only twitch."""
USUAL = timedelta(hours=25)
"""A line that was as high in the time before, so long, does what it does every hour or every night."""
USUAL_STEP = timedelta(minutes=5)
"""Of that time it is looked at in bins of this size: what is there for a minute is no load."""
USUAL_SHARE = 0.5
"""As high is half as high: no two nights are alike, and a few minutes of work may lie in two bins."""


def suspected(
    cluster: str, *, fights: Iterable[WriteFight], signals: Iterable[Signal], now: datetime
) -> Incident | None:
    """The incident that what turned bad in the last WINDOW points to, or None.

    Each of these is enough, and none of them is usual in a cluster that is well: a write fight of at least 100 writes,
    one every two seconds, still going on; a relist storm of three clients or more with five LISTs a second more than
    before, in its first ten minutes; a control-plane line of what fails or hurts that rose to three times what it was
    and holds that for five minutes. Restarts alone are not: rollouts of the control plane restart it.
    """
    fought = [fight for fight in fights if _is_fierce(fight, now)]
    bad = [fight_signal(fight, ()) for fight in fought] + [signal for signal in signals if _is_bad(signal, now)]
    if not bad:
        return None
    bad.sort(key=lambda signal: (signal.low, signal.sentence))
    started, first = bad[0].low, bad[0].sentence.split(":")[0]
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    namespaces = {one.namespace for fight in fought for one in fight.objects if one.namespace}
    digest = blake2b(f"{cluster}\0by itself\0{started.isoformat()}".encode(), digest_size=6)
    return Incident(
        id=digest.hexdigest(),
        cluster=cluster,
        title=f"{first[:1].upper()}{first[1:]}{more}",
        status="suspected",
        severity="info",
        started_at=started,
        scope=Scope(tuple(sorted(namespaces)), control_plane=any(s.kind is not SignalKind.FIGHT for s in bad)),
        origin=Origin.ITSELF,
    )


def rises(signals: Iterable[Signal], told: Laid, *, now: datetime) -> list[Signal]:
    """The lines among what turned bad of which each is enough to suspect something, and that are up still."""
    return [one for one in signals if one.kind is SignalKind.METRIC and _is_bad(one, now) and _is_up(one, told)]


def _is_up(signal: Signal, told: Laid) -> bool:
    """Whether the line is in the upper half of its rise for the last RISE_HOLDS in which it was measured at all.

    Memory is let go when its process ends: that it rose before is what is told.
    """
    family, line = _line(signal, told)
    if line is None or (family.measure == "level" and family.by == OF_PROCESS):
        return True
    last = line[-max(1, round(RISE_HOLDS.total_seconds() / told.axis.step)) :]
    return bool(np.isnan(last).all() or np.nanmean(last) >= (signal.rate_before + signal.rate_after) / 2)


def metrics_of(signals: Iterable[Signal]) -> set[str]:
    """The names of the series that their lines are drawn from."""
    families = (_FAMILY[str(one.facts["family"])] for one in signals)
    return {name for family in families for name in _series_of(family)}


def usual(signals: Iterable[Signal], day: Laid) -> list[Signal]:
    """Those of the lines that reached USUAL_SHARE of what they are at, in the time that ``day`` holds before the WINDOW
    in which they rose: for USUAL_STEP at a time."""
    return [one for one in signals if _highest_before(one, day) >= USUAL_SHARE * one.rate_after]


_FAMILY = {family.title: family for family in FAMILIES}


def _series_of(family: Family) -> Iterable[str]:
    return [
        f"{name}{part}"
        for name in family.metrics
        for part in (("_sum", "_count") if family.measure == "mean" else ("",))
    ]


def _line(signal: Signal, told: Laid) -> tuple[Family, Floats | None]:
    """What rose, of the series ``told``; None where there are none of it."""
    family = _FAMILY[str(signal.facts["family"])]
    return family, lines(told, family).get(tuple(str(signal.facts[name]) for name in family.by))


def _highest_before(signal: Signal, day: Laid) -> float:
    """The highest mean over USUAL_STEP, 0 where nothing was measured."""
    _, line = _line(signal, day)
    until = int(((signal.low - WINDOW).timestamp() - day.axis.start) // day.axis.step)
    if line is None or until <= 0:
        return 0.0
    means = _means(line[:until], bins=max(1, round(USUAL_STEP.total_seconds() / day.axis.step)))
    return float(np.fmax.reduce(means, initial=0.0))


def _means(line: Floats, *, bins: int) -> Floats:
    """The mean of each so many bins, one after another; NaN where none of them was measured."""
    whole = np.pad(line, (0, -len(line) % bins), constant_values=np.nan).reshape(-1, bins)
    measured = (~np.isnan(whole)).sum(axis=1)
    return np.where(measured > 0, np.nansum(whole, axis=1) / np.maximum(measured, 1), np.nan)


def _is_fierce(fight: WriteFight, now: datetime) -> bool:
    return fight.writes >= FIGHT_WRITES and fight.per_second >= FIGHT_PER_SECOND and fight.ended_at >= now - FIGHT_RESTS


def _is_bad(signal: Signal, now: datetime) -> bool:
    if signal.kind is SignalKind.METRIC:
        rose = signal.rate_after >= RISE_FACTOR * signal.rate_before and signal.rate_after > 0
        enough = HURTS_RISE if signal.facts.get("family") in HURTS else RISE
        return rose and signal.strength >= enough and signal.high <= now - RISE_HOLDS
    return (
        "relist" in signal.facts
        and signal.rate_after - signal.rate_before >= STORM_PER_SECOND
        and signal.low >= now - STORM_LASTS
    )


def still_suspected(known: Iterable[Incident]) -> Incident | None:
    """What was suspected last, and is not over."""
    before = _last(known)
    return before if before and before.resolved_at is None else None


def _last(known: Iterable[Incident]) -> Incident | None:
    return max((one for one in known if one.status == "suspected"), key=lambda one: one.started_at, default=None)


def follow_up(found: Incident | None, known: Iterable[Incident], *, now: datetime) -> Incident | None:
    """What is to be saved of what is ``found`` now, beside the incidents ``known`` of the last WINDOW; None: nothing.

    What is suspected already stays as it is while something is found, is over when nothing is, and goes on when
    something is again. Where an incident began lately that somebody was called for, or a person resolved one that had
    been suspected, nothing is suspected beside it.
    """
    there = list(known)
    before = _last(there)
    if before is not None and before.resolved_at is None:
        return None if found is not None else replace(before, resolved_at=max(now, before.started_at))
    called = any(one.status == "open" and now - one.started_at <= FIRES_ON for one in there)
    dismissed = any(one.status == "resolved" and one.origin is Origin.ITSELF for one in there)
    if found is None or called or dismissed:
        return None
    return found if before is None else replace(before, resolved_at=None)
