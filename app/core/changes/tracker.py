"""Sightings of objects, in almost any order -> changes, each write once, whoever tells of it.

Pure but with memory: it holds the last known state of the objects it has seen, compressed and bounded, and asks
``lookup`` for those it does not hold. A raw hash of the desired state is the negative filter that makes status
writes cheap; only when it differs are two states decoded, redacted, normalised and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from msgspec import structs

from app.core.bounded import put
from app.core.changes import guesses, made
from app.core.changes.derived import Derivation
from app.core.changes.late import Late, unchanged
from app.core.changes.lateness import TICK
from app.core.changes.life import Life
from app.core.changes.promotions import with_asked
from app.core.changes.quiet import Quiet
from app.core.changes.recent import SAME_WRITE, Recent
from app.core.changes.requested import Requested
from app.core.changes.requests import Requests
from app.core.changes.sight import Sight, moved_on, note, unseen
from app.core.changes.sightings import GENERATED, NOTHING, Learned, Sighting
from app.core.changes.telling import Telling
from app.core.model import (
    Change,
    Json,
    Object,
    ObjectState,
    Resource,
    Rollout,
    Symptom,
    Verb,
)
from app.core.objects import kinds
from app.core.objects.body import AsBefore, Body, read_body
from app.core.objects.diff import diff
from app.core.objects.kinds import Policy
from app.core.objects.memory import UNMEASURED, Entry, Memory
from app.core.objects.normalise import as_kept_now
from app.core.objects.parts import Parts
from app.core.objects.redact import Redactor
from app.core.objects.redact_rules import opened_parts

Lookup = Callable[[Resource, str], ObjectState | None]
_DOUBT_SECONDS = 10.0
"""How long a write may be told after a status write that followed it."""
_REPLACED = 1_000
"""Objects whose name another has taken before anybody told that they are gone."""
_OWN = ("", "scale", "status")
"""Subresources that show the object; others (binding, eviction, token, exec ...) change no desired state."""


class Tracker:
    """Turns one cluster's sightings into what they teach. One instance a cluster; not thread-safe."""

    def __init__(
        self,
        cluster: str,
        redactor: Redactor,
        lookup: Lookup,
        *,
        memory_bytes: int = 64 << 20,
        recent_changes: int = 20_000,
        own_kinds: kinds.Kinds | None = None,
    ) -> None:
        """``own_kinds`` are the cluster's, where they are others than those of the table."""
        self.cluster = cluster
        self._requests = Requests(redactor)
        self._state = Parts(redactor).state
        self._lookup = lookup
        self._memory = Memory(memory_bytes)
        self._recent = Recent(recent_changes, self._memory.packing)
        self._derived = Derivation(self._memory, self._recent)
        self._telling = Telling(self._memory, self._recent, self._derived)
        self._life = Life(self._recent, self._derived.workload_of, redactor)
        self._kinds = own_kinds or kinds.Kinds()
        self._sight = Sight()
        self._replaced: dict[tuple[Resource, str], Entry] = {}
        self._quiet = Quiet()
        self._late = Late(self._memory, self._recent, self._telling, self._requests, self._quiet, state_of=self._state)
        self._requested = Requested(self._memory, self._recent, self._telling, self._requests)
        self.wanted = set[str]()
        """The uids of objects that are to be told as a whole; who sees to it forgets them."""

    def recall(self, last: Iterable[Rollout]) -> None:
        """The last rollout of each workload, as an earlier run left it: one under way goes on."""
        self._life.recall(last)

    def recall_lately(self, lately: Iterable[Change], hurts: Iterable[Symptom]) -> None:
        """The changes before what is told first, the oldest first: it may follow from them, or tell them again; and
        what hurt then, which may end, or hurt more."""
        for change in lately:
            self._recent.add(change)
        self._life.recall_symptoms(hurts)

    def watched_since(self, api_group: str, kind: str, at: datetime) -> None:
        """A kind was watched before, and all of it was known ``at``: what is younger was created unseen."""
        self._sight.watched_since(api_group, kind, at)

    def lacks(self, resource: Resource) -> bool:
        """Whether ``lookup`` will be asked for the resource: it is of a kind that is followed, and not in memory.

        To ask counts as a use: what is in memory is not forgotten before the next sightings, which are of it.
        """
        followed = self._kinds.policy(resource.api_group, resource.kind) is not Policy.NEVER
        return followed and self._memory.get(resource) is None

    def observe(self, sighting: Sighting) -> Learned:
        """What this sighting teaches. Never raises on what a body holds: an unreadable body counts as not recorded."""
        learned = self._moved(sighting, now) if (now := sighting.as_before) else self._learn(sighting)
        self._sight.saw(sighting)
        return self._life.overdue(with_asked(sighting, learned), sighting.at)

    def pass_time(self, at: datetime) -> Learned:
        """What only the passing of time shows, where nothing has been seen up to then."""
        return self._life.overdue(NOTHING, at)

    def _learn(self, sighting: Sighting) -> Learned:
        resource = sighting.resource
        is_built_in = (resource.api_group, resource.kind) in kinds.BUILT_IN
        if not is_built_in:
            sighting = self._spelled(sighting)
            resource = sighting.resource
        if sighting.verb is Verb.CREATE and resource.name.endswith(GENERATED):
            resource = self._recent.made_by(sighting) or resource
            sighting = structs.replace(sighting, resource=resource)
        policy = self._kinds.policy(resource.api_group, resource.kind)
        if resource.kind == "Event" and sighting.body is not None and sighting.verb is not Verb.DELETE:
            return self._life.event(sighting)
        if resource.kind == "Namespace" and sighting.subresource == "finalize":
            return self._finalized(sighting)
        if policy is Policy.NEVER or sighting.subresource not in _OWN:
            return NOTHING
        body = read_body(sighting.body) if sighting.body is not None and sighting.subresource != "scale" else None
        if sighting.verb is Verb.DELETE:
            return self._deleted(sighting, body)
        if body is None or (sighting.source == "audit" and not body.version) or self._sight.is_apart(sighting, body):
            if sighting.subresource == "status":
                return NOTHING
            return self._requested.told(sighting, self._known(resource, sighting.uid))
        known = self._memory.peek(resource)
        before = known.version if known and known.uid == body.uid else -1
        learned = self._seen(sighting, body)
        known = self._memory.peek(resource)
        if known is None or known.deleted or known.version != body.version or known.uid != body.uid:
            return learned
        moved = body.version > before
        is_written = policy is not Policy.STATE and (learned is not NOTHING or not is_built_in)
        note(known, sighting, body, fields=moved and is_written)
        return self._life.moved(sighting, body, learned) if moved else learned

    def _spelled(self, sighting: Sighting) -> Sighting:
        """An audit event without a body guesses a custom kind from its plural: use the capitals that were seen."""
        resource = sighting.resource
        if sighting.body is not None and not sighting.subresource:
            self._kinds.seen(resource.api_group, resource.kind)
            return sighting
        kind = self._kinds.spelled(resource.api_group, resource.kind)
        if kind == resource.kind:
            return sighting
        return structs.replace(sighting, resource=structs.replace(resource, kind=kind))

    # -- whole objects

    def _seen(self, sighting: Sighting, body: Body) -> Learned:
        resource = sighting.resource
        entry = self._known(resource, body.uid)
        if entry is None or (entry.uid and body.uid and entry.uid != body.uid and body.version > entry.version):
            if entry is not None and not entry.deleted:  # its end will be told when all of a LIST is
                put(self._replaced, (resource, entry.uid), entry, limit=_REPLACED)
            return self._first(sighting, body)
        if entry.deleted and not entry.uid and sighting.source != "audit":  # another that took the name
            return self._first(sighting, body)
        if entry.uid and body.uid and entry.uid != body.uid:
            return self._late.after_end(sighting, body, entry)
        return self._ending(sighting, body, entry) if entry.deleted else self._followed(sighting, body, entry)

    def _ending(self, sighting: Sighting, body: Body, entry: Entry) -> Learned:
        """The audit log told that an object is gone; a watch, which tells all in its order, may be behind it."""
        is_watched = sighting.source == "watch" and sighting.verb is not None
        if is_watched and sighting.verb is Verb.CREATE and not entry.is_known:
            learned = self._first(sighting, body)
            if (again := self._memory.peek(sighting.resource)) is not None:
                again.deleted = again.deleting = True
        elif entry.is_known and (is_watched or (sighting.source == "audit" and not entry.recalled)):
            learned = self._followed(sighting, body, entry)
        else:
            return self._late.after_end(sighting, body, entry)
        told = self._recent.by_key(made.deletion_key(sighting, body.uid))
        gone_at = told.at if told else sighting.at
        return structs.replace(
            learned, states=tuple(structs.replace(one, deleted_at=gone_at) for one in learned.states)
        )

    def _followed(self, sighting: Sighting, body: Body, entry: Entry) -> Learned:
        resource = sighting.resource
        late = body.version <= entry.version
        if sighting.source == "watch":
            if sighting.verb is None and body.version > entry.watched_to:
                entry.watched_from = body.version  # a LIST: what was written since the watch before it, nobody saw
            entry.watched_from = entry.watched_from or body.version
            entry.watched_to = max(entry.watched_to, body.version)
        if late:
            return self._late.version(sighting, body, entry)
        if sighting.source == "watch" and sighting.verb is None:
            entry.listed = sighting.at
        if not entry.is_known:
            return self._first(sighting, body)
        if body.hash == entry.raw:
            self._hush(sighting, body, entry)
            entry.version = body.version
            return unchanged(sighting)
        if sighting.subresource == "status" and kinds.policy(resource.api_group, resource.kind) is not Policy.STATE:
            return self._refreshed(sighting, body, entry)
        return self._compared(sighting, body, entry)

    def _moved(self, sighting: Sighting, now: AsBefore) -> Learned:
        """A watch tells that an object's desired state is as it told before. Where that is not for sure what is known
        of it, all of it is wanted with the next version."""
        resource = sighting.resource
        if self._kinds.policy(resource.api_group, resource.kind) is Policy.NEVER:
            return NOTHING
        entry = self._memory.peek(resource) or self._known(resource, now.uid)
        if entry is None or entry.uid != now.uid or not entry.is_known or entry.guessed:
            self.wanted.add(now.uid)
        if entry is None or entry.uid != now.uid or entry.deleted:
            return NOTHING
        if not moved_on(entry, now, sighting.at):
            return NOTHING
        return self._life.moved(sighting, now, NOTHING, spec_known=partial(self._spec, entry))

    def _spec(self, entry: Entry) -> Json:
        return (self._memory.state(entry) or {}).get("spec")

    def _refreshed(self, sighting: Sighting, body: Body, entry: Entry) -> Learned:
        """A status write whose object is not as known: somebody's write has not been told yet, or never will be.

        What is known stays for a while, so that the write, when it is told, is compared with the state before it.
        """
        old, new = self._memory.state(entry), self._state(sighting.resource, body)
        now = sighting.at.timestamp()
        if diff(old, new):
            entry.doubted = entry.doubted or now
            if now - entry.doubted < _DOUBT_SECONDS:
                return NOTHING
        entry.version, entry.raw, entry.generation, entry.doubted = body.version, body.hash, body.generation, 0.0
        self._keep(sighting.resource, entry, body, new)
        return Learned(states=(made.state(sighting, entry, new),))

    def _hush(self, sighting: Sighting, body: Body, entry: Entry) -> None:
        self._quiet.note(sighting, body, partial(self._sight.since, sighting.resource, entry))

    def _compared(self, sighting: Sighting, body: Body, entry: Entry) -> Learned:
        old, new = self._memory.state(entry), self._state(sighting.resource, body)
        opened = opened_parts(old, new) if body.generation and body.generation == entry.generation else {}
        old = {**(old or {}), **opened} if opened else old
        before, was_guessed = entry.version, entry.guessed
        found, asked = guesses.found_out(entry, old, new, source=sighting.source)
        began_deleting = body.deleting and not entry.deleting
        entry.version, entry.raw, entry.generation, entry.doubted = body.version, body.hash, body.generation, 0.0
        if not found and not began_deleting:
            self._hush(sighting, body, entry)
            if was_guessed or opened:
                self._keep(sighting.resource, entry, body, new)
            return Learned(states=(made.state(sighting, entry, new),)) if opened else unchanged(sighting)
        entry.before, entry.changed = before, body.version
        self._keep(sighting.resource, entry, body, new)
        states = (made.state(sighting, entry, new),)
        if kinds.policy(sighting.resource.api_group, sighting.resource.kind) is Policy.STATE:
            return Learned(states=states)
        goes = began_deleting and sighting.source == "watch"
        told: tuple[Change, ...] = ()
        if found and not (sighting.verb is None and sighting.source == "watch" and was_guessed):
            edit = structs.replace(sighting, at=sighting.at - TICK) if goes else sighting
            change = made.update(edit, body, found, old=old, new=new)
            if sighting.verb is None:
                told = self._listed(sighting, change, body, entry, new)
            elif known := self._asked(asked, edit, body, change):
                told = self._telling.again(known, edit, richer=change).changes
            else:
                told = self._telling.new(edit, change, body, new)
        if goes:
            entry.deleting = True
            told += self._telling.new(sighting, made.whole(sighting, Verb.DELETE, new, body=body), body, new)
        return Learned(told, states)

    def _listed(self, sighting: Sighting, change: Change, body: Body, entry: Entry, new: Object) -> tuple[Change, ...]:
        """What a LIST, or a dump, shows that nobody saw written: the last of it when managedFields say."""
        at = body.written_at() if sighting.source == "watch" else None
        if at is not None:
            asked = structs.replace(sighting, verb=Verb.UPDATE, at=at)
            if known := self._recent.near(asked, body, told=change):
                return self._telling.again(known, sighting, richer=change).changes
            self._recent.shown(change.key, at)
        return self._telling.new(sighting, unseen(change, self._sight.since(sighting.resource, entry)), body, new)

    def _asked(self, key: int, sighting: Sighting, body: Body, change: Change) -> Change | None:
        """The request of which a watch shows what came: that of this ``key``, or one before it that was not shown."""
        guessed = self._recent.by_key(key) if key else None
        if guessed is None or guessed.at > sighting.at + SAME_WRITE:
            return None
        first = self._recent.near(sighting, body, told=change)
        fits = first is not None and {one.path for one in first.diffs} <= {one.path for one in change.diffs}
        return first if first is not None and fits and first.at < guessed.at else guessed

    def _first(self, sighting: Sighting, body: Body) -> Learned:
        """An object, or a life of it, of which nothing is known yet."""
        resource = sighting.resource
        new = self._state(resource, body)
        entry = Entry(uid=body.uid, version=body.version, changed=body.version)
        if sighting.source == "watch":
            entry.watched_from = entry.watched_to = body.version
        entry.raw, entry.generation = body.hash, body.generation
        self._keep(resource, entry, body, new)
        states = (made.state(sighting, entry, new),)
        if kinds.policy(resource.api_group, resource.kind) is Policy.STATE:
            return Learned(states=states)
        if sighting.verb is Verb.CREATE:
            whole = made.whole(sighting, Verb.CREATE, new, body=body)
            return Learned(self._telling.new(sighting, whole, body, new), states)
        if sighting.verb is Verb.UPDATE and sighting.subresource == "":
            told = self._requests.as_diff(sighting, body, new=new)
            return Learned(self._telling.new(sighting, told, body, new) if told else (), states)
        made_unseen = self._sight.created(sighting, body)
        if made_unseen is not None and not self._recent.created(resource, body.uid):
            whole = made.whole(made_unseen, Verb.CREATE, new, body=body)
            return Learned(self._telling.new(made_unseen, whole, body, new), states)
        return Learned(states=states)

    # -- deletions

    def _deleted(self, sighting: Sighting, body: Body | None) -> Learned:
        resource = sighting.resource
        entry = self._known(resource, body.uid if body else sighting.uid)
        uid = (body.uid if body else "") or sighting.uid or self._recent.uid_of(sighting, entry.uid if entry else "")
        known = self._recent.by_key(made.deletion_key(sighting, uid))
        is_told = known is None and not made.is_state(sighting)
        gone = entry if entry and entry.uid in ("", uid) else self._replaced.pop((resource, uid), None)
        old = self._last(sighting, body, gone) if is_told else None
        entry = entry or Entry(uid=uid)
        since = self._sight.since(resource, gone or entry)
        learned = self._end(sighting, body, entry, uid)
        if known is not None:
            last = self._state(resource, body) if body is not None and sighting.source == "watch" else None
            richer = made.whole(sighting, Verb.DELETE, last, body=body, uid=uid) if last is not None else None
            return structs.replace(learned, changes=self._telling.again(known, sighting, richer=richer).changes)
        if not is_told:
            return learned
        change = made.whole(sighting, Verb.DELETE, old, body=body, uid=uid)
        if sighting.source == "watch" and body is None:
            change = unseen(change, since)
        return structs.replace(learned, changes=self._telling.new(sighting, change, body, old))

    def _last(self, sighting: Sighting, body: Body | None, entry: Entry | None) -> Object | None:
        """The last state of an object that was deleted, None where nobody told it."""
        known = self._memory.state(entry) if entry else None
        is_newer = body is not None and entry is not None and body.version > entry.version and body.hash != entry.raw
        return self._state(sighting.resource, body) if body is not None and (is_newer or known is None) else known

    def _end(self, sighting: Sighting, body: Body | None, entry: Entry, uid: str) -> Learned:
        """What is known of an object that was deleted, and that it is gone, unless it lingers."""
        lingers = made.lingers(sighting, body, is_watched=entry.watched_to > 0)
        if entry.uid and uid and entry.uid != uid and not lingers:
            return Learned(ended=(made.gone(sighting, uid),))
        if entry.uid not in ("", uid) or (entry.deleted and sighting.source != "watch"):
            return NOTHING
        learned = NOTHING
        if entry.deleted:
            self._memory.forget(entry)  # a watch has told all that was written to it
        elif lingers:
            entry.deleting = True
        else:
            learned = self._ended(sighting, entry)
            if uid and not entry.uid:  # what was written to it was told by its name alone
                learned = structs.replace(learned, ended=(made.gone(sighting, uid),))
        if not (entry.deleted and entry.is_known):
            entry.version = max(entry.version, body.version if body else 0)
        self._memory.put(sighting.resource, entry)
        return learned

    def _finalized(self, sighting: Sighting) -> Learned:
        """The last write to a Namespace that is being deleted, by which it goes."""
        body = read_body(sighting.body) if sighting.body is not None else None
        entry = self._known(sighting.resource, body.uid) if body else None
        if body is None or not body.deleting or body.finalizers:
            return NOTHING
        return self._ended(sighting, entry) if entry and not entry.deleted and entry.uid == body.uid else NOTHING

    def _ended(self, sighting: Sighting, entry: Entry) -> Learned:
        """The object is gone, and what hurt or was under way with it."""
        entry.deleted = entry.deleting = True
        entry.seen = max(entry.seen or sighting.at, sighting.at)
        is_awaited = sighting.source == "audit" and (entry.watched_to or entry.recalled) and not made.is_state(sighting)
        if not is_awaited:
            entry.raw = 0
            self._memory.forget(entry)
        gone = structs.replace(made.state(sighting, entry, None), deleted_at=sighting.at)
        return structs.replace(self._life.ended(sighting.resource, sighting.at), states=(gone,))

    # -- states

    def _known(self, resource: Resource, uid: str) -> Entry | None:
        entry = self._memory.get(resource)
        if entry is not None:
            return entry
        found = self._lookup(resource, uid)
        if found is None:
            return None
        version = int(found.resource_version) if found.resource_version.isdigit() else 0
        entry = Entry(found.uid, version, found.generation, deleted=found.deleted_at is not None, changed=version)
        entry.recalled, entry.seen = True, found.seen_at
        self._memory.store(entry, as_kept_now(found), size=UNMEASURED)
        self._memory.put(resource, entry)
        for change in self._recent.asked_for(resource):
            guesses.guessed(entry, change)
        return entry

    def _keep(self, resource: Resource, entry: Entry, body: Body, state: Object) -> None:
        entry.owner, entry.guessed, entry.guesses = body.owner(resource), False, ()
        self._memory.store(entry, state, size=body.size)
        self._memory.put(resource, entry)
        self._derived.learn(resource, state)
        if resource.kind == "CustomResourceDefinition":
            self._kinds.learn(state)
