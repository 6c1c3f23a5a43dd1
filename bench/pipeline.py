"""What a watch tells, from the bytes of its lines through the spool to what is learned, beside decoding the same lines.

Without the database: what recording costs is of each change, not of each event.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from app.core.redact import Redactor
from app.core.tracker import Tracker
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
CASES: tuple[tuple[str, Served, Callable[[int], Make], float | None], ...] = (
    ("statuses of deployments", DEPLOYMENTS, lambda turn: partial(objects.deployment, beat=turn), 1.0),
    ("statuses of pods", PODS, lambda turn: partial(objects.pod, beat=turn), 1.0),
    ("statuses amid rollouts", DEPLOYMENTS, lambda turn: partial(objects.deployment, beat=turn, amid=True), None),
    ("changes of deployments", DEPLOYMENTS, lambda turn: partial(objects.deployment, beat=turn, release=turn), 0.55),
)
"""What is told of which kind, what makes an object of each turn, and the gate beside orjson.loads."""


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


def _piped(ours: Pipeline, served: Served, lines: list[bytes]) -> float:
    began = time.thread_time()
    ours.run(served, lines)
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


def throughput() -> list[Gate]:
    """The medians over ROUNDS of the limit's time / our time; the two, and the official Watch, take turns."""
    gates = []
    for what, served, made, least in CASES:
        ratios, faster, took, limits = list[float](), list[float](), list[float](), list[float]()
        with pipeline(served) as ours, garbage_rarely():
            ours.run(served, _lines("ADDED", made(0), 0))
            ours.forget()
            for turn in range(1, ROUNDS + 1):
                lines = _lines("MODIFIED", made(turn), turn)
                limit, own, typed = _decoded(lines), _piped(ours, served, lines), _typed(served, lines[:FEW])
                assert ours.forget() == (OBJECTS if what.startswith("changes") else 0)
                ratios.append(limit / own)
                faster.append(typed / FEW / (own / OBJECTS))
                took.append(own / OBJECTS * 1e6)
                limits.append(limit / OBJECTS * 1e6)
        reading, keeping, learning = (statistics.median(stage) * 1e6 for stage in zip(*ours.stages, strict=True))
        print(
            f"      {what}, {len(lines[0]):,} B each: {statistics.median(took):.0f} µs an event"
            f" (to read it {reading:.1f}, to keep it {keeping:.1f}, to learn from it {learning:.1f}),"
            f" {statistics.median(ratios):.2f} of orjson.loads ({min(ratios):.2f} to {max(ratios):.2f};"
            f" {statistics.median(limits) / (reading + keeping):.2f} until it is kept),"
            f" {statistics.median(faster):.0f} x the official Watch"
        )
        if least is not None:
            gates.append(Gate(f"{what}, beside orjson.loads", statistics.median(ratios), "", at_least=least))
            gates.append(Gate(f"{what}, beside the official typed Watch", statistics.median(faster), "x", at_least=10))
    return gates


if __name__ == "__main__":
    for gate in throughput():
        print(gate)
