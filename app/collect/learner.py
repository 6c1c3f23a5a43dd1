"""What lines say -> what is learned from it, one Batch at a time; between them, what is known of one cluster."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from app.collect.intake import Piece, Tally
from app.core.changes.sightings import NOTHING, Learned, Sighting
from app.core.changes.tracker import Tracker
from app.core.model import (
    Batch,
    CallCount,
    CallKey,
    Change,
    Gap,
    ObjectState,
    Position,
    Reject,
    Request,
    Resource,
    Rollout,
    Symptom,
)


@dataclass(slots=True)
class Learner:
    """Collects until ``take``. ``latest`` is the last time observed."""

    cluster: str
    tracker: Tracker
    tally: Tally
    latest: datetime | None = None
    _changes: list[Change] = field(default_factory=list)
    _improvements: list[Change] = field(default_factory=list)
    _states: dict[Resource, ObjectState] = field(default_factory=dict)
    _ended: dict[tuple[Resource, str], ObjectState] = field(default_factory=dict)  # before another took the name
    _rollouts: dict[tuple[Resource, datetime], Rollout] = field(default_factory=dict)
    _symptoms: dict[tuple[str, datetime], Symptom] = field(default_factory=dict)
    _keys: list[CallKey] = field(default_factory=list)
    _calls: list[CallCount] = field(default_factory=list)
    _requests: list[Request] = field(default_factory=list)
    _gaps: list[Gap] = field(default_factory=list)
    _rejects: list[Reject] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """How many rows ``take`` would give, gaps and rejects among them."""
        held: tuple[Sized, ...] = (
            self._changes, self._improvements, self._states, self._ended, self._rollouts, self._symptoms,
            self._calls, self._requests, self._gaps, self._rejects,
        )  # fmt: skip
        return sum(map(len, held))

    def add(self, piece: Piece) -> None:
        """Take over what a piece refuses. Its sightings are to be observed, each by itself."""
        self.tally.add(piece.tally)
        self._gaps += piece.gaps
        self._rejects += piece.rejects

    def count(self, piece: Piece) -> None:
        """Take over the calls that a piece of the logs counts."""
        keys = self._keys
        keys[piece.first_key :] = piece.keys
        self._calls += [CallCount(keys[one.key], one.slot, one.count, one.latency_us) for one in piece.calls]
        self._requests += [
            Request(keys[one.key], one.at, one.event_key, one.name, one.latency_us) for one in piece.requests
        ]

    def held_back(self, resource: Resource) -> ObjectState | None:
        """What was learned of an object since the last ``take``: newer than what the store has."""
        return self._states.get(resource)

    def is_gone(self, resource: Resource, uid: str) -> bool:
        """Whether an object's end was learned of since the last ``take``."""
        state = self._states.get(resource)
        return (resource, uid) in self._ended or bool(state and state.uid == uid and state.deleted_at)

    def live(self, api_group: str, kind: str) -> list[tuple[Resource, str]]:
        """The objects of a kind that were learned of since the last ``take`` and are there, each with its uid."""
        return [
            (resource, state.uid)
            for resource, state in self._states.items()
            if (resource.api_group, resource.kind) == (api_group, kind) and state.deleted_at is None
        ]

    def observe(self, sighting: Sighting) -> None:
        """Learn from one sighting, in the order of what happened."""
        self._keep(self.tracker.observe(sighting), sighting.at)

    def pass_time(self, at: datetime) -> None:
        """Learn from nothing having happened since what was observed last."""
        if self.latest is None or at > self.latest:
            self._keep(self.tracker.pass_time(at), at)

    def _keep(self, learned: Learned, at: datetime) -> None:
        self.latest = max(self.latest, at) if self.latest else at
        if learned is NOTHING:
            return
        if learned.no_op:
            self.tally.no_ops += 1
        self._changes += learned.changes
        self._improvements += learned.improvements
        for state in learned.states:
            before = self._states.get(state.resource)
            if before and before.deleted_at and before.uid and before.uid != state.uid:
                self._ended[before.resource, before.uid] = before
            self._states[state.resource] = _with_last(state, before)
        for state in learned.ended:
            self._ended[state.resource, state.uid] = state
        for rollout in learned.rollouts:
            self._rollouts[(rollout.resource, rollout.started_at)] = rollout
        for symptom in learned.symptoms:
            self._symptoms[(symptom.fingerprint, symptom.at)] = symptom

    def take(self, positions: tuple[Position, ...], *, extra: tuple[Symptom, ...] = ()) -> Batch:
        """Everything learned since the last take, and forget it."""
        batch = Batch(
            cluster=self.cluster,
            changes=tuple(self._changes),
            improvements=tuple(self._improvements),
            objects=(*self._ended.values(), *self._states.values()),
            rollouts=tuple(self._rollouts.values()),
            calls=tuple(self._calls),
            requests=tuple(self._requests),
            symptoms=(*self._symptoms.values(), *extra),
            gaps=tuple(self._gaps),
            rejects=tuple(self._rejects),
            positions=positions,
        )
        for held in (self._changes, self._improvements, self._calls, self._requests, self._gaps, self._rejects):
            held.clear()
        for table in (self._states, self._ended, self._rollouts, self._symptoms):
            table.clear()
        return batch


def _with_last(state: ObjectState, before: ObjectState | None) -> ObjectState:
    """What is told of an object; who tells its end, or only its name, does not say what it was."""
    if state.state is None and before is not None and before.uid == state.uid:
        return replace(state, state=before.state)
    return state
