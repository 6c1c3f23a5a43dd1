"""What is counted of requests, and how it reads where Prometheus scrapes it."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import exp, sqrt
from typing import NamedTuple

from tests.lab.api import Key
from tests.lab.scraping import labelled

MANY = 30
"""From so many on, chance is told by a bell."""


@dataclass
class Counts:
    """What one process has counted since it started, or what was answered in a moment."""

    started: datetime
    answers: Counter[str] = field(default_factory=Counter)
    """By status."""
    seconds: float = 0.0
    """All of them took together."""

    @property
    def failed(self) -> float:
        """The share of the answers that are errors of the server."""
        return sum(n for code, n in self.answers.items() if code.startswith("5")) / max(1, self.answers.total())

    @property
    def mean(self) -> float:
        """Seconds that an answer took."""
        return self.seconds / max(1, self.answers.total())

    def add(self, other: Counts) -> None:
        """What others counted, too."""
        self.answers.update(other.answers)
        self.seconds += other.seconds

    def text(self, **labels: str) -> str:
        """As its process answers a scrape: a status that was never answered is not there."""
        named, name = labelled(**labels), "http_request_duration_seconds"
        lines = [f'http_requests_total{{{named},code="{code}"}} {n}' for code, n in sorted(self.answers.items())]
        whole = [f"{name}_sum{{{named}}} {self.seconds:.4f}", f"{name}_count{{{named}}} {self.answers.total()}"]
        return "\n".join(["# TYPE http_requests_total counter", *lines, f"# TYPE {name} summary", *whole])


class Door(NamedTuple):
    """An Ingress, and the Service of its namespace that it leads to."""

    namespace: str
    ingress: str
    service: str


def of_doors(doors: Mapping[Door, Counts]) -> str:
    """As the controller of the Ingresses answers a scrape."""
    lines = [
        f"nginx_ingress_controller_requests{{{labelled(**door._asdict(), status=status)},"
        f'controller_class="k8s.io/ingress-nginx"}} {times}'
        for door, counts in sorted(doors.items(), key=lambda one: one[0])
        for status, times in sorted(counts.answers.items())
    ]
    return "\n".join(["# TYPE nginx_ingress_controller_requests counter", *lines])


@dataclass(frozen=True)
class Moment:
    """A moment: what of its calls whoever calls a Service sees fail, how much longer it waits, what was counted."""

    at: datetime
    failing: Mapping[Key, float] = field(default_factory=dict)
    waits: Mapping[Key, float] = field(default_factory=dict)
    counted: dict[tuple[str, ...], Counts] = field(default_factory=dict)

    def count(self, who: tuple[str, ...], counts: Counts) -> None:
        """Somebody, an app or an Ingress, has answered."""
        self.counted.setdefault(who, Counts(self.at)).add(counts)


def chance(rng: random.Random, mean: float) -> int:
    """So many as come where so many are usual: Poisson's."""
    if mean > MANY:
        return max(0, round(rng.gauss(mean, sqrt(mean))))
    number, left = 0, rng.random()
    while left > exp(-mean):
        number, left = number + 1, left * rng.random()
    return number


def so_many(rng: random.Random, number: int, share: float) -> int:
    """How many of a number a share is, where chance takes each by itself."""
    return sum(rng.random() < share for _ in range(number)) if share else 0


Ways = defaultdict[Key, list[Door]]
"""The Ingresses that lead to each Service."""
