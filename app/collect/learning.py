"""Pieces of what was told of one cluster -> the store: what is known of its objects is brought in, and what is learned
recorded, one batch after the other.

Learning keeps one core busy, so it runs in a thread of its own; what was learned is recorded on the event loop
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from datetime import datetime, timedelta
from weakref import WeakMethod

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.collect.entries import UNUSABLE
from app.collect.files import Line
from app.collect.intake import Intake, Piece, Tally
from app.collect.learner import Learner
from app.core.changes.sightings import Sighting
from app.core.changes.tracker import Tracker
from app.core.model import Batch, ObjectState, Position, Resource, Rollout, Symptom
from app.core.objects.kinds import Kinds
from app.store import changes, objects
from app.store import symptoms as hurts
from app.store.record import Recorded, record

Known = tuple[dict[Resource, ObjectState], Future[dict[Resource, ObjectState]] | None]
"""What is known of some objects: what was learned and is not committed yet, and what the store is being asked for."""

BATCH = 10_000
"""Rows and states that make a transaction: large enough for COPY, small enough to lose little to a kill."""
BATCH_BYTES = 16 << 20
"""Bytes of objects that make one, however few rows they are: what is learned from large objects does not add up."""
OUT_OF_TURN = timedelta(seconds=10)
"""How far the beginning of a log may reach back before the end of the one before it: writes are logged at their end."""
LATELY = timedelta(minutes=3)
"""What happened so shortly before may go on in the rest of a file: another's edits follow from it, or tell it again."""
MOST_LATELY = 5_000

Also = Callable[[AsyncConnection, Batch], Awaitable[object]]
"""Called in the transaction that records a batch: what it does is done once, like that."""


async def nothing_else(_conn: AsyncConnection, _batch: Batch) -> None:
    """Nothing but the batch is recorded."""


class Learning:
    """What is learned of one cluster from now on. Made on the event loop that its methods then use from a thread.

    ``goes_on`` says that something of what comes was told before: what was learned shortly before is recalled.
    ``kinds`` are the cluster's, where its operator wants other ones than usual. ``memory_bytes`` is what is kept of the
    objects that were learned of.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        intake: Intake,
        *,
        tally: Tally,
        rollouts: list[Rollout],
        goes_on: bool,
        also: Also = nothing_else,
        kinds: Kinds | None = None,
        memory_bytes: int = 64 << 20,
    ) -> None:
        self.engine, self.cluster, self.intake, self._also = engine, intake.cluster, intake, also
        self.tally = tally
        # Held weakly: what was learned is large, and goes with who learned it, before cycles of garbage are looked for.
        lookup = WeakMethod(self._lookup)

        def look(resource: Resource, uid: str) -> ObjectState | None:
            found = lookup()
            return found(resource, uid) if found else None

        tracker = Tracker(intake.cluster, intake.redactor, look, own_kinds=kinds, memory_bytes=memory_bytes)
        tracker.recall(rollouts)
        self.learner = Learner(intake.cluster, tracker, tally)
        self._goes_on = goes_on
        self._found: dict[Resource, ObjectState] = {}
        self._told: Sighting | None = None
        self._began: datetime | None = None
        self._recording: Future[Recorded] | None = None
        self._leaving: dict[Resource, ObjectState] = {}
        self._loop = asyncio.get_running_loop()

    # -- what is known

    def _lookup(self, resource: Resource, _uid: str) -> ObjectState | None:
        """What is known of an object. What the store knows from later than this log is unknown yet to who reads it: the
        log tells by itself what changed, and the store keeps the newer state and the better of two diffs."""
        held = self._held(resource)
        found = held or self._found.get(resource)
        return None if found and not held and self._is_to_come(found) else found

    def _is_to_come(self, state: ObjectState) -> bool:
        told = self._told
        if told is None or self._began is None or state.seen_at <= max(told.at, self._began + OUT_OF_TURN):
            return False
        versions = state.resource_version, told.resource_version
        if state.uid == told.uid and all(version.isdigit() for version in versions):
            return int(versions[0]) > int(versions[1])
        return True

    def _held(self, resource: Resource) -> ObjectState | None:
        """What was learned of an object and is not committed yet."""
        return self.learner.held_back(resource) or self._leaving.get(resource)

    async def _load(self, missing: set[Resource]) -> dict[Resource, ObjectState]:
        async with self.engine.connect() as conn:
            return await objects.load_states(conn, self.cluster, missing)

    async def _recall(self, at: datetime) -> None:
        """What an earlier run learned shortly before the first sighting of this one, which waits for it, and after it:
        of a watch and an audit log one is ahead of the other."""
        async with self.engine.connect() as conn:
            lately = await changes.read_window(conn, self.cluster, at - LATELY, at + LATELY, limit=MOST_LATELY)
            self.learner.tracker.recall_lately(lately, await hurts.read_open(conn, self.cluster, at))

    def ask(self, sightings: list[Sighting]) -> Known:
        """Begin to bring in what is known of these objects and lacks in the tracker, which keeps the others.

        What is learned meanwhile counts first (_lookup), and is too little to make the tracker drop any of them.
        """
        missing = {s.resource for s in sightings if self.learner.tracker.lacks(s.resource)}
        held = {resource: state for resource in missing if (state := self._held(resource)) is not None}
        missing.difference_update(held)
        return held, asyncio.run_coroutine_threadsafe(self._load(missing), self._loop) if missing else None

    def learn(self, sightings: list[Sighting], known: Known) -> None:
        """Observe a chunk, with what ``ask`` brought in for it. Raises the store's errors."""
        held, loading = known
        self._found = held | loading.result() if loading else held
        for sighting in sightings:
            if self._began is None:
                self._began = sighting.at
                if self._goes_on:
                    asyncio.run_coroutine_threadsafe(self._recall(sighting.at), self._loop).result()
            self._told = sighting
            try:
                self.learner.observe(sighting)
            except UNUSABLE as error:
                told = f"{sighting.resource} of {sighting.at.isoformat()}: {type(error).__name__}, {error}"
                self.intake.reject(sighting.source, Line(0, b"", 0), f"the object cannot be read: {told}")
        self._found = {}

    def wanted(self) -> frozenset[str]:
        """The uids of objects that a watch is to tell as a whole, since the last time."""
        found = frozenset(self.learner.tracker.wanted)
        self.learner.tracker.wanted.clear()
        return found

    def learn_read(self) -> Piece:
        """Learn from what the intake was given in this process; the piece that it made."""
        piece = self.intake.take({})
        self.learner.add(piece)
        self.learn(piece.sightings, self.ask(piece.sightings))
        return piece

    def live(self, api_group: str, kind: str) -> set[tuple[Resource, str]]:
        """The objects of a kind that are believed to be there, with their uids. Raises the store's errors."""
        stored = asyncio.run_coroutine_threadsafe(self._live(api_group, kind), self._loop).result()
        gone = {one for one in stored if self.learner.is_gone(*one)}
        return {*stored, *self.learner.live(api_group, kind)} - gone

    async def _live(self, api_group: str, kind: str) -> list[tuple[Resource, str]]:
        async with self.engine.connect() as conn:
            return await objects.load_live(conn, self.cluster, api_group, kind)

    # -- what is recorded

    def taken(self, positions: tuple[Position, ...], *, extra: tuple[Symptom, ...] = ()) -> Batch:
        """Everything learned and refused since the last time."""
        self.learner.add(self.intake.take({}))
        return replace(self.learner.take(positions, extra=extra), read_at=self.intake.now)

    def record(self, batch: Batch) -> None:
        """Hand a batch over to be recorded, after the one before it."""
        self.recorded()
        self._leaving = {state.resource: state for state in batch.objects}
        self._recording = asyncio.run_coroutine_threadsafe(self._commit(batch), self._loop)

    def recorded(self) -> None:
        """Wait until what was handed over is committed. Raises the store's errors."""
        if self._recording is not None:
            self.tally.changes += self._recording.result().changes
            self._recording, self._leaving = None, {}

    async def _commit(self, batch: Batch) -> Recorded:
        async with self.engine.begin() as conn:
            recorded = await record(conn, batch)
            await self._also(conn, batch)
            return recorded
