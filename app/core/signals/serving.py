"""Requests that apps served -> signals: a workload began to fail, or to be slow, by what is counted of its answers.

Pods may be ready and answer wrongly all the same: no Event, no condition says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from app.core.edges.served import ASKED, FAILS, REFUSES, SLOW, Outcome
from app.core.edges.topology import Named, Topology
from app.core.entities import Entity, pods_in
from app.core.findings import Scope, Spark
from app.core.metrics.answers import (
    LEAST,
    LONGER,
    SLOWER,
    Requests,
    Share,
    counting,
    homes,
    means,
    rates,
    requests,
    shares,
)
from app.core.metrics.lines import Grid, Laid
from app.core.onset import Floats, Step, level_begun, level_burst, level_step, moves
from app.core.phrases import measure, percent
from app.core.signals.signal import Signal, SignalKind, moment

SOME = 10
"""So many requests have to have failed where it is over again."""
SHARP = 0.25
"""A rise of the share of failures by so much is as clear as it gets."""
STRENGTH = {FAILS: 0.9, REFUSES: 0.6, SLOW: 0.6}
AT_ONCE = timedelta(minutes=1)
"""Those that began within this time of one another may have one cause."""
UNREACHED = frozenset(f"answers {code}" for code in (502, 503, 504, "Unavailable", "DeadlineExceeded"))
"""What is answered where whoever is asked in turn is not reached, or not in time."""
MORE, BEFORE = 3.0, 40
"""So many times as many requests, than in so many bins before, are more than most clients make that try again."""
ALONE = dict.fromkeys(("answers 504", "answers DeadlineExceeded"), 0.4)
"""What one workload answers by itself as it waits in vain: for who is slow, or for packets that are lost."""
LATELY = 10
SEVERAL, NETWORK = 3, 0.5
"""In so many namespaces at once calls get no answer by the network rather than by chance, and how much they are about
it."""


@dataclass(frozen=True, slots=True, eq=False)
class Rise:
    """What a workload's requests began to do, and how they did all along: ``values`` in ``unit``."""

    home: Entity
    reason: str
    signal: Signal
    step: Step
    title: str
    unit: str
    values: Floats
    by_door: bool = False


def rises(told: Laid, top: Topology) -> list[Rise]:
    """What began in the window, over or not; of one workload, and of one sort, the clearest."""
    of, counted = homes(top), requests(told)
    asked = dict(rates(counted))
    best: dict[tuple[Entity, str], Rise] = {}
    own = set[tuple[Entity, str]]()
    for rise in (*_failing(told, counted, of, asked), *_slow(told, of, asked)):
        key = rise.home, rise.reason
        own |= set() if rise.by_door else {key}
        if key not in best or best[key].signal.strength < rise.signal.strength:
            best[key] = rise
    knows = {home for entity in counting(counted) for home in of(entity)}
    return [
        _at_the_door(rise, denied=rise.home in knows) if rise.by_door and key not in own else rise
        for key, rise in best.items()
    ]


def answering(told: Laid | None, top: Topology) -> set[Entity]:
    """The workloads that count what they answer, and did so in the last LATELY bins."""
    counted, of = requests(told) if told else {}, homes(top)
    counts = counting(counted)
    return {
        home
        for servers in counted.values()
        for entity, served in servers.items()
        if entity in counts and np.nansum(served.total[-LATELY:]) > 0
        for home in of(entity)
    }


def _at_the_door(rise: Rise, *, denied: bool) -> Rise:
    """What only an ingress controller tells: where the workload counts its answers and no such ones (``denied``), the
    controller answers so itself, as that is not reached, or for reasons of its own."""
    own, door = (0.5, 0.9) if denied and rise.signal.text not in UNREACHED else (1.0, 0.4)
    about: dict[Entity, float] = {rise.home: own, ("agent", "doors"): door}
    return replace(rise, signal=replace(rise.signal, about={**rise.signal.about, **about}))


def serving_signals(found: Sequence[Rise]) -> list[Signal]:
    """Each with the workloads that began with the same at about the same time."""
    return [_beside(one, found) for one in found]


def _beside(one: Rise, found: Sequence[Rise]) -> Signal:
    near = [
        other
        for other in found
        if other.reason == one.reason and abs(other.signal.low - one.signal.low) <= AT_ONCE and other.home != one.home
    ]
    spaces = {one.home[1], *(other.home[1] for other in near)}
    network: dict[Entity, float] = {}
    if one.signal.text in UNREACHED:
        weight = NETWORK if len(spaces) >= SEVERAL else ALONE.get(one.signal.text)
        network = {("agent", "cni"): weight} if weight else {}
    return replace(one.signal, others=frozenset(other.home for other in near), about={**one.signal.about, **network})


def serving_sparks(found: Iterable[Rise], scope: Scope, axis: Grid, *, most: int = 2) -> list[Spark]:
    """The lines for the page: of what the alert is about first, then the clearest."""

    def nearness(one: Rise) -> tuple[bool, bool, float]:
        _, namespace, name = one.home
        return f"{namespace}/{name}" not in scope.workloads, namespace not in scope.namespaces, -one.signal.strength

    return [
        Spark(
            title=one.title,
            unit=one.unit,
            start=axis.start,
            step=axis.step,
            values=tuple(None if np.isnan(value) else float(value) for value in one.values),
            bad_from=axis.epoch(one.step.index),
        )
        for one in sorted(found, key=nearness)[:most]
    ]


def _failing(
    told: Laid, counted: Requests, of: Callable[[Entity], list[Entity]], asked: dict[Entity, Floats]
) -> Iterator[Rise]:
    for one in shares(told, counted):
        floor = LEAST[one.ended] / 3
        if not moves(one.values, floor=floor):
            continue
        step = level_step(one.values, floor=floor) or level_begun(one.values, floor=floor) or _over(one, told.axis)
        if step is None or step.after - step.before < LEAST[one.ended]:
            continue
        for home in of(one.server):
            signal = _more_asked(_fails(home, one, step, told.axis), asked.get(one.server), step, told.axis)
            title = f"{'Failing' if one.ended is Outcome.FAILED else 'Refused'}: {home[2]}"
            yield Rise(home, signal.facts["reason"], signal, step, title, "%", 100.0 * one.values, one.by_door)


def _over(share: Share, axis: Grid) -> Step | None:
    """A rise that is over: of some requests, where a few that fail are much of what there is."""
    found = level_burst(share.values, floor=LEAST[share.ended] / 3)
    if found is None:
        return None
    counted = sum(float(np.nansum(part.rates[found.start : found.end])) for part in share.parts) * axis.step
    return Step(found.start, found.before, found.during, 0.0, 0.0) if counted >= SOME else None


def _fails(home: Entity, share: Share, step: Step, axis: Grid) -> Signal:
    reason, verb = (FAILS, "fail") if share.ended is Outcome.FAILED else (REFUSES, "are refused")
    codes, by_pod = defaultdict[str, float](float), defaultdict[Named, float](float)
    for part in share.parts:
        count = float(np.nansum(part.rates[step.index :]))
        codes[part.code] += count
        if part.pod:
            by_pod[home[1], part.pod] += count
    code, total = max(codes, key=lambda one: codes[one]), sum(by_pod.values())
    return replace(
        _signal(home, reason, step, axis, width=share.width),
        strength=STRENGTH[reason] * min(1.0, 0.4 + 0.6 * (step.after - step.before) / SHARP),
        sentence=f"requests to {home[2]} {verb} ({code}): {percent(step.after)} of them, {percent(step.before)} before",
        by_pod={pod: count / total for pod, count in by_pod.items() if count},
        text=f"answers {code}",
    )


def _slow(told: Laid, of: Callable[[Entity], list[Entity]], asked: dict[Entity, Floats]) -> Iterator[Rise]:
    for one in means(told):
        step = level_step(np.log(np.maximum(one.values, 1e-4)), floor=np.log(SLOWER) / 3)
        if step is None:
            continue
        before, after = float(np.exp(step.before)), float(np.exp(step.after))
        if after < SLOWER * before or after - before < LONGER:
            continue
        for home in of(one.server):
            signal = replace(
                _signal(home, SLOW, step, told.axis, width=one.width),
                strength=STRENGTH[SLOW] * min(1.0, 0.4 + 0.3 * float(np.log10(after / before))),
                sentence=f"{home[2]} is slow to answer: {measure(after, 's')}, {measure(before, 's')} before",
                text="is slow",
            )
            signal = _more_asked(signal, asked.get(one.server), step, told.axis)
            yield Rise(home, SLOW, signal, step, f"Slow: {home[2]}", "s", one.values)


def _more_asked(signal: Signal, asked: Floats | None, step: Step, axis: Grid) -> Signal:
    """The signal, with how many times as many requests as before came as it began, where these are MORE."""
    if asked is None:
        return signal
    parts = asked[max(0, step.index - BEFORE) : max(0, step.index - 1)], asked[step.index : step.index + 3]
    before, at = (float(np.median(part[known])) if (known := ~np.isnan(part)).any() else 0.0 for part in parts)
    if before <= 0 or at < MORE * before or at * axis.step < SOME:
        return signal
    told = f"{signal.sentence}, as {at / before:.1f} times as many came"
    return replace(signal, sentence=told, facts={**signal.facts, ASKED: f"{at / before:.1f}"})


def _signal(home: Entity, reason: str, step: Step, axis: Grid, *, width: int) -> Signal:
    at = axis.epoch(step.index)
    return Signal(
        kind=SignalKind.SYMPTOM,
        low=moment(at - width * axis.step),
        high=moment(at + axis.step),
        strength=0.0,
        about={home: 1.0, ("ns", home[1]): 0.4, pods_in(home[1]): 0.3},
        sentence="",
        facts={"reason": reason, "chronic": "False", "refused": ""},
    )
