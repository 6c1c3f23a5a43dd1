"""What a collector hands to the tracker: one sighting of one object, body still raw."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from app.core.model import NOBODY, Actor, Change, ObjectState, Resource, Rollout, Symptom, Verb
from app.core.objects.body import AsBefore

GENERATED = "*"
"""What the name ends with of an object of which a request does not say it whole: the server makes up the rest
(https://kubernetes.io/docs/reference/using-api/api-concepts/#generated-values)."""


class Sighting(Struct, frozen=True, gc=False):
    """A watch event, a successful audit write, or one entry of a dump.

    ``source`` is "audit", "watch" or "state". ``verb`` None: the object was seen, not written (the initial LIST, a
    dump). ``body`` is the JSON of the whole object after the write (before it, for a delete), ``patch`` the JSON of the
    request body where no whole object was recorded; both None at audit level Metadata. ``subresource`` "status" and the
    like may refresh what is known but never make a change by themselves. ``truncated``: the API server left the bodies
    out because the event was too large (audit.k8s.io/truncated). ``rounded``: the clock that told the time gave whole
    seconds, and what ``at`` has of a fraction only keeps an order. ``since``: nobody knows when exactly it was written,
    but after that and not after ``at``. ``as_before`` stands in place of the body where the desired state is as an
    earlier sighting of the same watch showed it.
    """

    resource: Resource
    at: datetime
    source: str
    verb: Verb | None = None
    body: bytes | None = None
    patch: bytes | None = None
    subresource: str = ""
    uid: str = ""
    resource_version: str = ""
    actor: Actor = NOBODY
    audit_id: str = ""
    truncated: bool = False
    rounded: bool = False
    since: datetime | None = None
    as_before: AsBefore | None = None


class Learned(Struct, frozen=True):
    """What one sighting taught. ``states`` are to be upserted; ``no_op`` counts a write that changed nothing.

    ``ended`` are objects that are gone, of whose names others have been told already.
    ``improvements`` may name the actor of changes that an earlier run stored: they never make a change of their own.
    """

    changes: tuple[Change, ...] = ()
    states: tuple[ObjectState, ...] = ()
    rollouts: tuple[Rollout, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    no_op: bool = False
    improvements: tuple[Change, ...] = ()
    ended: tuple[ObjectState, ...] = ()


NOTHING = Learned()
