"""Requests that apps served -> signals: a workload began to fail, or to be slow, by what is counted of its answers.

Pods may be ready and answer wrongly all the same: no Event, no condition says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import numpy as np

from app.core.dependencies import Named
from app.core.entities import Entity, pods_in
from app.core.findings import Scope, Spark
from app.core.lines import Grid, Laid, added
from app.core.onset import Floats, Step, level_begun, level_step
from app.core.phrases import measure, percent
from app.core.served import DURATIONS, FAILS, REFUSES, REQUESTS, SLOW, Outcome, is_server, outcome, pod, server
from app.core.signals import Signal, SignalKind, moment
from app.core.topology import Topology

LEAST = {Outcome.FAILED: 0.03, Outcome.REFUSED: 0.1}
"""The smallest rise of a share of all requests that counts: of clients' mistakes there are always some."""
SHARP = 0.25
"""A rise of the share of failures by so much is as clear as it gets."""
STRENGTH = {FAILS: 0.9, REFUSES: 0.6, SLOW: 0.6}
FEW, ENOUGH, WIDEST = 5, 20, 8
"""Of fewer than FEW requests no share is known. So many bins are looked at together that there are ENOUGH in them,
mostly, but no more than WIDEST: who gets a request a minute fails in no single one of them."""
SLOWER = 2.0
"""So many times as long, and LONGER seconds more, answers have to take."""
LONGER = 0.05
AT_ONCE = timedelta(minutes=1)
"""Those that began within this time of one another may have one cause."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Requests of one server that ended alike: so many a second in each bin, with what code and in which pod."""

    rates: Floats
    code: str
    pod: str


@dataclass(slots=True)
class _Served:
    """The requests of one server under one name."""

    all: list[Floats] = field(default_factory=list)
    ended: dict[Outcome, list[_Part]] = field(default_factory=lambda: defaultdict(list))


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


def rises(told: Laid, top: Topology) -> list[Rise]:
    """What began in the window and goes on; of one workload, and of one sort, the clearest."""
    behind = _behind(top)
    best: dict[tuple[Entity, str], Rise] = {}
    for rise in (*_failing(told, behind), *_slow(told, behind)):
        key = rise.home, rise.reason
        if key not in best or best[key].signal.strength < rise.signal.strength:
            best[key] = rise
    return list(best.values())


def serving_signals(found: Sequence[Rise]) -> list[Signal]:
    """Each with the workloads that began with the same at about the same time."""
    return [
        replace(
            one.signal,
            others=frozenset(
                other.home
                for other in found
                if other.reason == one.reason and abs(other.signal.low - one.signal.low) <= AT_ONCE
            )
            - {one.home},
        )
        for one in found
    ]


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


def _behind(top: Topology) -> dict[Named, list[Named]]:
    """By Service: the workloads behind it."""
    found: dict[Named, list[Named]] = defaultdict(list)
    for home, services in top.fronts.items():
        for service in services:
            found[service].append(home)
    return found


def _homes(entity: Entity | None, behind: dict[Named, list[Named]]) -> list[Entity]:
    if entity is None or entity[0] == "workload":
        return [entity] if entity else []
    return [("workload", *home) for home in behind.get((entity[1], entity[2]), ())]


def _failing(told: Laid, behind: dict[Named, list[Named]]) -> Iterator[Rise]:
    for name in REQUESTS:
        for entity, served in _servers(told, name).items():
            if not served.ended:
                continue
            total = added(served.all)
            width = _width(total, told.axis)
            enough = _enough(total, width, told.axis)
            for ended, parts in served.ended.items():
                share = _lately(np.nan_to_num(added([part.rates for part in parts])), width) / enough
                floor = LEAST[ended] / 3
                step = level_step(share, floor=floor) or level_begun(share, floor=floor)
                if step is None or step.after - step.before < LEAST[ended]:
                    continue
                for home in _homes(entity, behind):
                    signal = _fails(home, ended, step, parts, told.axis, width=width)
                    title = f"{'Failing' if ended is Outcome.FAILED else 'Refused'}: {home[2]}"
                    yield Rise(home, signal.facts["reason"], signal, step, title, "%", 100.0 * share)


def _servers(told: Laid, name: str) -> dict[Entity, _Served]:
    found: dict[Entity, _Served] = defaultdict(_Served)
    for place in told.named.get(name, ()):
        labels, row = told.labels[place], told.rows[place]
        entity = server(name, labels)
        if entity is None or not is_server(labels):
            continue
        served, (ended, code) = found[entity], outcome(name, labels)
        served.all.append(row)
        if ended is not Outcome.ANSWERED:
            served.ended[ended].append(_Part(row, code, pod(name, labels)))
    return found


def _width(total: Floats, axis: Grid) -> int:
    """Of how many bins together there are ENOUGH requests, mostly."""
    asked = total[total > 0]
    return int(np.clip(np.ceil(ENOUGH / (float(np.median(asked)) * axis.step)), 1, WIDEST)) if len(asked) else 1


def _lately(rates: Floats, width: int) -> Floats:
    """For each bin, what there was in it and those before it, as many as are looked at together."""
    sums = np.concatenate((np.zeros(width), np.cumsum(np.nan_to_num(rates))))
    return np.where(np.isnan(rates), np.nan, sums[width:] - sums[:-width])


def _enough(total: Floats, width: int, axis: Grid) -> Floats:
    asked = _lately(total, width)
    return np.where(asked * axis.step >= FEW, asked, np.nan)


def _fails(home: Entity, ended: Outcome, step: Step, parts: list[_Part], axis: Grid, *, width: int) -> Signal:
    reason, verb = (FAILS, "fail") if ended is Outcome.FAILED else (REFUSES, "are refused")
    codes, revisions = defaultdict[str, float](float), defaultdict[Named, float](float)
    for part in parts:
        count = float(np.nansum(part.rates[step.index :]))
        codes[part.code] += count
        if part.pod:
            revisions[home[1], part.pod.rpartition("-")[0]] += count
    code, total = max(codes, key=lambda one: codes[one]), sum(revisions.values())
    return replace(
        _signal(home, reason, step, axis, width=width),
        strength=STRENGTH[reason] * min(1.0, 0.4 + 0.6 * (step.after - step.before) / SHARP),
        sentence=f"requests to {home[2]} {verb} ({code}): {percent(step.after)} of them, {percent(step.before)} before",
        revisions={revision: count / total for revision, count in revisions.items() if count},
        text=f"answers {code}",
    )


def _slow(told: Laid, behind: dict[Named, list[Named]]) -> Iterator[Rise]:
    for name, unit in DURATIONS.items():
        parts: dict[Entity, tuple[list[Floats], list[Floats]]] = defaultdict(lambda: ([], []))
        for which, part in enumerate(("sum", "count")):
            for place in told.named.get(f"{name}_{part}", ()):
                entity = server(f"{name}_{part}", told.labels[place])
                if entity is not None and is_server(told.labels[place]):
                    parts[entity][which].append(told.rows[place])
        for entity, (sums, counts) in parts.items():
            if not sums or not counts:
                continue
            observed = added(counts)
            width = _width(observed, told.axis)
            mean = unit * _lately(added(sums), width) / _enough(observed, width, told.axis)
            step = level_step(np.log(np.maximum(mean, 1e-4)), floor=np.log(SLOWER) / 3)
            if step is None:
                continue
            before, after = float(np.exp(step.before)), float(np.exp(step.after))
            if after < SLOWER * before or after - before < LONGER:
                continue
            for home in _homes(entity, behind):
                signal = replace(
                    _signal(home, SLOW, step, told.axis, width=width),
                    strength=STRENGTH[SLOW] * min(1.0, 0.4 + 0.3 * float(np.log10(after / before))),
                    sentence=f"{home[2]} is slow to answer: {measure(after, 's')}, {measure(before, 's')} before",
                    text="is slow",
                )
                yield Rise(home, SLOW, signal, step, f"Slow: {home[2]}", "s", mean)


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
