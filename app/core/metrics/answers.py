"""What apps answered, as lines by who served: how many requests a second, the share of a bad end, the mean time.

A line is of one server under one name of metrics, and of what it stands for nothing is decided here: the ranking
looks for what began (serving.py), a change's page for what moved after it (aftermath.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from app.core.counted import Ints
from app.core.edges.served import DURATIONS, REQUESTS, Outcome, is_door, is_server, outcome, pod, server
from app.core.edges.topology import Named, Topology
from app.core.entities import Entity
from app.core.metrics.lines import Grid, Laid, added, summed
from app.core.onset import Floats

LEAST = {Outcome.FAILED: 0.03, Outcome.REFUSED: 0.1}
"""The smallest rise of a share of all requests that counts: of clients' mistakes there are always some."""
FEW, ENOUGH, WIDEST = 5, 20, 8
"""Of fewer than FEW requests no share is known. So many bins are looked at together that there are ENOUGH in them,
mostly, but no more than WIDEST: who gets a request a minute fails in no single one of them."""
SLOWER = 2.0
"""So many times as long, and LONGER seconds more, answers have to take."""
LONGER = 0.05


class Part(NamedTuple):
    """Requests of one server that ended alike: so many a second in each bin, with what code and in which pod."""

    rates: Floats
    code: str
    pod: str


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The share of all requests that ended so, as ``width`` bins up to each tell together."""

    server: Entity
    ended: Outcome
    values: Floats
    parts: list[Part]
    width: int
    by_door: bool
    """Whether an ingress controller counted them."""


@dataclass(frozen=True, slots=True, eq=False)
class Mean:
    """How many seconds an answer took, as ``width`` bins up to each tell together."""

    server: Entity
    values: Floats
    width: int


@dataclass(slots=True)
class _Served:
    """The requests of one server under one name: the places of all its series, and those that ended badly."""

    places: list[int] = field(default_factory=list)
    ended: dict[Outcome, list[Part]] = field(default_factory=lambda: defaultdict(list))
    total: Floats = field(default_factory=lambda: np.empty(0))
    """So many a second in each bin."""


Requests = dict[str, dict[Entity, _Served]]
"""Who served what, by the name under which it was counted."""


def requests(told: Laid) -> Requests:
    """What was counted of all requests: what else is asked of them begins with it."""
    return {name: _servers(told, name) for name in REQUESTS}


def shares(told: Laid, counted: Requests) -> Iterator[Share]:
    """Of each server, for each bad end that any of its requests had."""
    for name, servers in counted.items():
        failing = [(entity, served) for entity, served in servers.items() if served.ended]
        if not failing:
            continue
        total = np.array([served.total for _, served in failing])
        widths = _widths(total, told.axis)
        enough = _enough(total, widths, told.axis)
        of = np.repeat(np.arange(len(failing)), [len(served.ended) for _, served in failing])
        ended = [(entity, *one) for entity, served in failing for one in served.ended.items()]
        bad = np.nan_to_num(np.array([added([part.rates for part in parts]) for _, _, parts in ended]))
        share = _lately(bad, widths[of]) / enough[of]
        for row, place, (entity, how, parts) in zip(share, of.tolist(), ended, strict=True):
            yield Share(entity, how, row, parts, int(widths[place]), is_door(name))


def means(told: Laid) -> Iterator[Mean]:
    """Of each server of which it is told."""
    for name, unit in DURATIONS.items():
        parts: dict[Entity, tuple[list[Floats], list[Floats]]] = defaultdict(lambda: ([], []))
        for which, part in enumerate(("sum", "count")):
            for place in told.named.get(f"{name}_{part}", ()):
                entity = server(f"{name}_{part}", told.labels[place])
                if entity is not None and is_server(told.labels[place]):
                    parts[entity][which].append(told.rows[place])
        both = {entity: (added(sums), added(counts)) for entity, (sums, counts) in parts.items() if sums and counts}
        if not both:
            continue
        took, observed = (np.array(rows) for rows in zip(*both.values(), strict=True))
        widths = _widths(observed, told.axis)
        mean = unit * _lately(took, widths) / _enough(observed, widths, told.axis)
        for entity, row, width in zip(both, mean, widths.tolist(), strict=True):
            yield Mean(entity, row, width)


def rates(counted: Requests) -> Iterator[tuple[Entity, Floats]]:
    """How many requests a second each server answered, however they ended."""
    for servers in counted.values():
        for entity, served in servers.items():
            yield entity, served.total.copy()


def counting(counted: Requests) -> set[Entity]:
    """Those that count what they answer themselves, or whose mesh does."""
    return {entity for name, servers in counted.items() if not is_door(name) for entity in servers}


def homes(top: Topology) -> Callable[[Entity], list[Entity]]:
    """Which workloads a server is: itself or, of a Service, those behind it."""
    behind: dict[Named, list[Entity]] = defaultdict(list)
    for home, services in top.fronts.items():
        for service in services:
            behind[service].append(("workload", *home))
    return lambda entity: [entity] if entity[0] == "workload" else behind.get((entity[1], entity[2]), [])


def _servers(told: Laid, name: str) -> dict[Entity, _Served]:
    found: dict[Entity, _Served] = defaultdict(_Served)
    for place in told.named.get(name, ()):
        labels = told.labels[place]
        if not is_server(labels) or (entity := server(name, labels)) is None:
            continue
        served, (ended, code) = found[entity], outcome(name, labels)
        served.places.append(place)
        if ended is not Outcome.ANSWERED:
            served.ended[ended].append(Part(told.rows[place], code, pod(name, labels)))
    for served in found.values():
        served.total = summed(told.rows[served.places])
    return found


def _widths(total: Floats, axis: Grid) -> Ints:
    """For each row, of how many bins together there are ENOUGH requests, mostly."""
    some = total > 0
    many = some.sum(axis=1)
    asked = np.sort(np.where(some, total, np.inf))
    rows = np.arange(len(total))
    usual = (asked[rows, (many - 1) // 2] + asked[rows, many // 2]) / 2  # the median; where nobody asked, infinite
    return np.asarray(np.ceil(np.clip(ENOUGH / (usual * axis.step), 1.0, WIDEST)), dtype=np.int64)


def _lately(rates: Floats, widths: Ints) -> Floats:
    """For each bin, what there was in it and those before it, as many as are looked at together in a row."""
    rows, bins = rates.shape
    sums = np.zeros((rows, WIDEST + bins))
    np.cumsum(np.nan_to_num(rates), axis=1, out=sums[:, WIDEST:])
    before = np.arange(WIDEST, WIDEST + bins) - widths[:, np.newaxis]
    return np.where(np.isnan(rates), np.nan, sums[:, WIDEST:] - np.take_along_axis(sums, before, axis=1))


def _enough(total: Floats, widths: Ints, axis: Grid) -> Floats:
    asked = _lately(total, widths)
    return np.where(asked * axis.step >= FEW, asked, np.nan)
