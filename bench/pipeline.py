"""What a watch tells, from the bytes of its lines through the spool to what is learned, beside decoding the same lines.

Without the database: what recording costs is of each change, not of each event. Statuses are gated from their bytes to
what is learned of them, changes until they are kept (docs/decisions/0021).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
from kubernetes.client import ApiClient
from kubernetes.watch import Watch

from app.collect import told
from app.collect.desired import KindDesired
from app.collect.garbage import garbage_rarely
from app.collect.intake import Intake, Tally
from app.collect.learner import Learner
from app.collect.spool import Spool
from app.collect.watch import read_events
from app.collect.watched import Watches
from app.collect.words import Served
from app.core.changes.tracker import Tracker
from app.core.objects.redact import Redactor
from bench import objects
from bench.gates import Gate

OBJECTS = 300
ROUNDS = 25
FEW = 60
"""Lines that the official Watch gets: it takes a millisecond of each."""
CHUNK = 16
"""Lines that come together: 64 KiB."""
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DEPLOYMENTS = Served("apps", "v1", "Deployment", "deployments")
PODS = Served("", "v1", "Pod", "pods")
TYPED = {DEPLOYMENTS: "V1Deployment", PODS: "V1Pod"}
Make = Callable[[int, int], dict[str, Any]]
CASES: tuple[tuple[str, Served, Callable[[int], Make]], ...] = (
    ("statuses of deployments", DEPLOYMENTS, lambda turn: partial(objects.deployment, beat=turn)),
    ("statuses of pods", PODS, lambda turn: partial(objects.pod, beat=turn)),
    ("statuses amid rollouts", DEPLOYMENTS, lambda turn: partial(objects.deployment, beat=turn, amid=True)),
    ("changes of deployments", DEPLOYMENTS, lambda turn: partial(objects.deployment, beat=turn, release=turn)),
)
"""What is told of which kind, and what makes an object of each turn."""
LEARNED = {"statuses of deployments": 1.0, "statuses of pods": 1.0}
"""The least beside orjson.loads, from the bytes to what is learned."""
KEPT = {"changes of deployments": 0.55}
"""The same, from the bytes to the spool."""


class Pipeline:
    """Reads lines, keeps them in a spool, and learns from what is there."""

    def __init__(self, spool: Spool, served: Served) -> None:
        self.spool, self.position = spool, 0
        self.desired = KindDesired(served)
        self.stages: list[tuple[float, ...]] = []
        redactor = Redactor(b"k" * 32)
        tally = Tally()
        self.intake = Intake("bench", redactor, now=NOW)
        self.learner = Learner("bench", Tracker("bench", redactor, lambda _resource, _uid: None), tally)
        since = self.learner.tracker.watched_since
        self.watches = Watches(
            self.intake, {}, live=lambda _served: (), again=lambda _served: None, watched_since=since
        )

    def run(self, served: Served, lines: list[bytes]) -> None:
        moments = [time.thread_time()]
        chunks = [lines[first : first + CHUNK] for first in range(0, len(lines), CHUNK)]
        words = [list(read_events(chunk, NOW, first=False, desired=self.desired)) for chunk in chunks]
        moments.append(time.thread_time())
        for part in words:
            self.spool.append_all(map(told.encode, told.joined([told.Watched(served, word, 1) for word in part])))
        moments.append(time.thread_time())
        for frame in self.spool.read(self.position):
            assert frame.payload is not None
            record = told.decode(frame.payload)
            assert isinstance(record, told.Watched)
            self.watches.tell(record.served, record.word)
            self.position = frame.after
        piece = self.intake.take({})
        self.learner.add(piece)
        for sighting in piece.sightings:
            self.learner.observe(sighting)
        moments.append(time.thread_time())
        self.stages.append(tuple((then - now) / len(lines) for now, then in pairwise(moments)))

    def forget(self) -> int:
        """What was learned would be recorded now: how many changes."""
        self.spool.trim(self.position)
        return len(self.learner.take(()).changes)


@contextmanager
def pipeline(served: Served) -> Iterator[Pipeline]:
    with (
        tempfile.TemporaryDirectory(prefix="fb") as folder,
        Spool(Path(folder), most_bytes=1 << 30, key=b"k" * 32) as one,
    ):
        yield Pipeline(one, served)


def _decoded(lines: list[bytes]) -> float:
    """Seconds of the processor that the limit takes: others may use the machine, too."""
    began = time.thread_time()
    for line in lines:
        orjson.loads(line)
    return time.thread_time() - began


def _typed(served: Served, lines: list[bytes]) -> float:
    """Seconds of the official Watch, whose stream reads text."""
    watch: Any = Watch(TYPED[served])  # type: ignore[no-untyped-call]
    watch._api_client = ApiClient()  # noqa: SLF001 - as its stream sets it
    texts = [line.decode() for line in lines]
    began = time.thread_time()
    for one in texts:
        watch.unmarshal_event(one, TYPED[served])
    return time.thread_time() - began


def _lines(kind: str, make: Make, turn: int) -> list[bytes]:
    version = turn * 1_000_000
    return [objects.line(kind, make(n, version + n)) for n in range(1, OBJECTS + 1)]


@dataclass(slots=True)
class Measured:
    """What each turn gave: the limits' time / our time."""

    kept: list[float] = field(default_factory=list)
    learned: list[float] = field(default_factory=list)
    typed_kept: list[float] = field(default_factory=list)
    typed_learned: list[float] = field(default_factory=list)

    def add(self, stages: tuple[float, ...], decoded: float, typed: float) -> None:
        """Takes seconds of the processor an event."""
        reading, keeping, learning = stages
        until_kept, all_of_it = reading + keeping, reading + keeping + learning
        self.kept.append(decoded / until_kept)
        self.learned.append(decoded / all_of_it)
        self.typed_kept.append(typed / until_kept)
        self.typed_learned.append(typed / all_of_it)

    def gates(self, what: str) -> Iterator[Gate]:
        for least, until, beside, faster in (
            (LEARNED.get(what), "learned", self.learned, self.typed_learned),
            (KEPT.get(what), "kept", self.kept, self.typed_kept),
        ):
            if least is None:
                continue
            name = f"{what} until they are {until}, beside"
            yield Gate(f"{name} orjson.loads", statistics.median(beside), "", at_least=least)
            yield Gate(f"{name} the official typed Watch", statistics.median(faster), "x", at_least=10)


def throughput() -> list[Gate]:
    """The medians over ROUNDS of what a limit takes / what we take; the two limits and we take turns."""
    gates = list[Gate]()
    for what, served, made in CASES:
        measured = Measured()
        with pipeline(served) as ours, garbage_rarely():
            ours.run(served, _lines("ADDED", made(0), 0))
            ours.forget()
            ours.stages.clear()
            for turn in range(1, ROUNDS + 1):
                lines = _lines("MODIFIED", made(turn), turn)
                decoded = _decoded(lines) / OBJECTS
                ours.run(served, lines)
                measured.add(ours.stages[-1], decoded, _typed(served, lines[:FEW]) / FEW)
                assert ours.forget() == (OBJECTS if what.startswith("changes") else 0)
        reading, keeping, learning = (statistics.median(stage) * 1e6 for stage in zip(*ours.stages, strict=True))
        print(
            f"      {what}, {len(lines[0]):,} B each: to read one {reading:.1f} µs, to keep it {keeping:.1f},"
            f" to learn from it {learning:.1f}; of orjson.loads {statistics.median(measured.kept):.2f} until kept,"
            f" {statistics.median(measured.learned):.2f} in all; x the official Watch"
            f" {statistics.median(measured.typed_kept):.1f} and {statistics.median(measured.typed_learned):.1f}"
        )
        gates.extend(measured.gates(what))
    return gates


if __name__ == "__main__":
    for gate in throughput():
        print(gate)
