"""The lives of servers that are scraped by ourselves: each has a name of its own, as several may stand behind one
address. Which of them followed which is told by their scrapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.core.metrics.lines import SINCE, TARGET, Target
from app.core.metrics.scraped import Rows, Split

INSTANCE = TARGET.index("instance")


@dataclass(frozen=True, slots=True, order=True)
class Life:
    """Of one process: its first and last scrape, and when it says that it started (seconds since the epoch)."""

    first: float
    last: float
    start: float
    name: str


def address(instance: str) -> str:
    """Where it was scraped: its name without which life it was."""
    return instance.partition(SINCE)[0]


def followed(lives: Iterable[Life]) -> Iterator[tuple[Life, Life]]:
    """Of the lives at one address those that ended, each once, and the next that began then: of several servers behind
    it the others go on."""
    ended = sorted(lives, key=lambda life: life.last)
    for life in sorted(ended):
        before = [one for one in ended if one.last < life.first and one.start < life.start]
        if before:
            ended.remove(before[-1])
            yield before[-1], life


def one_after_another(rows: Sequence[Rows], by: Split) -> list[Rows]:
    """When processes started, as tables of which each is all lives of one server, called by its address; those of
    processes that keep their name are left as they are."""
    apart: dict[Target, dict[str, Rows]] = defaultdict(dict)
    kept = []
    for one in rows:
        instance = one.target[INSTANCE]
        if SINCE in instance and len(one.asked) == 1:
            apart[tuple(map(address, one.target))][instance] = one
        else:
            kept.append(one)
    return [*kept, *(told for target, lives in apart.items() for told in _of_servers(target, lives, by))]


def _of_servers(target: Target, lives: Mapping[str, Rows], by: Split) -> Iterator[Rows]:
    known = {name: ~np.isnan(one.values[0]) for name, one in lives.items()}
    told = [
        Life(times[0], times[-1], float(lives[name].values[0, known[name]][0]), name)
        for name in lives
        if (times := lives[name].times[known[name]].tolist())
    ]
    following = dict(followed(told))
    for life in sorted(set(told) - set(following.values())):
        of_one = [life]
        while of_one[-1] in following:
            of_one.append(following[of_one[-1]])
        parts = [lives[one.name] for one in of_one]
        ((split, bound),) = parts[0].asked
        named = tuple(address(value) if label == "instance" else value for label, value in zip(by, split, strict=True))
        times = np.concatenate([part.times for part in parts])
        values = np.concatenate([part.values for part in parts], axis=1)
        yield Rows(parts[0].name, target, ((named, bound),), times, values)
