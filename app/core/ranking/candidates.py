"""Which changes compete for an incident: roots only, with what each reaches and how much it moves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.core.edges.carried import nobody_has, without
from app.core.edges.heaps import outgrows
from app.core.edges.mechanism import halts, is_cosmetic, is_for_next_rollout, is_inert
from app.core.edges.ports import missed
from app.core.edges.reach import Reach, reach
from app.core.edges.topology import Named, Topology, behind, pod_template
from app.core.entities import READ, WORKLOADS, workload
from app.core.findings import WriteFight
from app.core.model import Change, Resource, Rollout, Verb
from app.core.objects.actors import acts_by_itself
from app.core.objects.selectors import selects
from app.core.objects.stalls import DEADLINE, patience
from app.core.objects.untyped import fields, part
from app.core.ranking.apart import is_apart
from app.core.ranking.managers import with_accounts
from app.core.ranking.moves import pods_added, pods_moved
from app.core.ranking.same_edit import installed, nodes_deleted, same_edits
from app.core.ranking.steering import set_off
from app.core.ranking.undone import undone
from app.core.signals.fights import fight_members
from app.core.traits import Trait, traits

SAME_EDIT = timedelta(seconds=120)
"""What touches up an object so soon after an edit by the same actor, and does nothing itself, belongs to that edit."""

CROWD = 5
"""So many pods more of one workload are felt by whoever calls the same."""


class Candidate(Struct, frozen=True, gc=False):
    """A change that may have preceded the incident. ``derived`` are the ids of the edits folded into it, ``also`` is
    the same edit of other objects, or the other parts of what was installed (same_edit.py).

    ``pods`` is how many pods it makes or replaces, ``added`` how many more there are then; ``empties``: that it leaves
    nothing that answers for a Service, for a person ("" where it does not); ``outgrows``: that a heap may take more
    than its container since, likewise; ``stops``: nothing of it runs since;
    ``crowds``: what its new pods crowd, and how many they are ("" for nothing); ``alike`` how many changes of the same
    kind and field there were in the window before it, of ``earlier`` rivals in all, ``routine`` how many of those by
    the same actor on the same object, ``unread`` how many writes of the same object by the same actor were not looked
    at; ``inert``: nothing acts upon it; ``cosmetic``: only labels or annotations changed, and nothing followed;
    ``fleeting``: it deletes what was only made in the window; ``undone_at`` is when it was undone (undone.py),
    ``acts_at`` when it acted first, where that was later (latent.py), and ``acts_as`` how that is said. ``lacking`` are
    the revisions of its workload whose pods do not have it in them (carried.py). ``user`` is who wrote, by the account
    of the program where only a field manager was told (managers.py). ``patience`` is how long its rollout may rest
    before it hangs (stalls.py).
    ``set_off`` are the changes that a program made because of it (steering.py); what they touch is in the reach.
    ``edit`` is one number for all edits of one field of one object by one actor. ``apart``: it is of an app that does
    nothing for others (apart.py).
    """

    change: Change
    reach: Reach
    rollout: Rollout | None
    derived: tuple[str, ...]
    pods: int
    added: int
    empties: str
    stops: bool
    crowds: str
    alike: int
    earlier: int
    routine: int
    inert: bool
    cosmetic: bool
    fleeting: bool = False
    outgrows: str = ""
    undone_at: datetime | None = None
    acts_at: datetime | None = None
    acts_as: str = ""
    lacking: frozenset[Named] = frozenset()
    user: str = ""
    patience: timedelta = DEADLINE / 2
    set_off: tuple[Change, ...] = ()
    also: tuple[Change, ...] = ()
    edit: int = 0
    unread: int = 0
    apart: bool = False

    @property
    def ids(self) -> tuple[str, ...]:
        """Of all changes that it stands for, its own first."""
        return self.change.id, *(one.id for one in self.also)


def candidates(
    changes: Iterable[Change],
    rollouts: Iterable[Rollout],
    fights: Iterable[WriteFight],
    *,
    topology: Topology,
    until: datetime,
    unread: Mapping[int, int] | None = None,
) -> list[Candidate]:
    """The roots among the changes up to ``until``, newest last.

    ``unread`` says of changes, by key, how often their actor had written their object before in changes that were not
    read (shortlist.py).

    Left out: edits that another change began (they are that change's ``derived``), repeats of the same edit on other
    objects (``also``), and the rewrites that make up a write fight (they are the symptom).
    """
    ordered = sorted((c for c in changes if c.at <= until), key=lambda c: (c.at, c.key))
    rewrites = {change.key for change in fight_members(ordered, fights)}
    children: dict[str, list[str]] = defaultdict(list)
    for change in ordered:
        if change.begun_by:
            children[change.begun_by].append(change.id)
    by_change = {rollout.change_id: rollout for rollout in rollouts if rollout.change_id}
    seen: Counter[Trait] = Counter()
    own: Counter[tuple[str, Resource, Trait | None]] = Counter()
    edits: dict[tuple[str, Resource, Trait], int] = {}
    made = {change.resource for change in ordered if change.verb is Verb.CREATE}
    found: list[Candidate] = []
    last: dict[tuple[str, Resource], int] = {}
    places: dict[str, int] = {}
    followers: dict[int, list[Change]] = defaultdict(list)
    telling = _without_further(ordered, rewrites)
    told = with_accounts(telling, topology)
    causes, users = set_off(told, topology), {change.id: change.actor.name for change in told}
    repeats, taken_back = same_edits(telling) | nodes_deleted(telling), undone(ordered)
    parts = {part: app for part, app in installed(telling).items() if app not in causes and app not in repeats}
    others: dict[str, list[Change]] = defaultdict(list)
    for change in ordered:
        number = change.id
        place = places.get(change.begun_by) if change.begun_by else _root(number, causes, places, repeats)
        if place is not None:  # who had a writer begin with a fight is behind that, too
            followers[place].append(change)
            places[number] = place
        if place is not None or change.begun_by or change.key in rewrites:
            continue
        if number in parts or repeats.get(number) in places:
            others[parts.get(number) or repeats[number]].append(change)
            continue
        inert, cosmetic = (
            topology.ignores(change) or (fits(change) and not topology.heeds(change))
            for fits in (is_inert, is_cosmetic)
        )
        for sort in (sorts := traits(change)):
            seen[sort] += 1
        mine, rollout = (change.actor.name, change.resource, min(sorts)), by_change.get(number)
        own[mine] += 1
        if acts_by_itself(change.actor.name) and change.verb is not Verb.DELETE:
            own[change.actor.name, change.resource, None] += 1  # of one sort, whichever field it is
        edited = last.get((change.actor.name, change.resource))
        absent, added = without(change, topology), pods_added(change, topology)
        crowds, shares = _crowded(change, added, topology)
        fills = {("fills", change.resource.namespace or ""): 0.0} if added else {}
        reached = reach(change, topology) | shares | fills
        touches_up = (inert or cosmetic) and own[mine] == 1 and not rollout
        if touches_up and edited is not None and change.at - found[edited].change.at <= SAME_EDIT:
            children[found[edited].change.id].append(number)
            places[number] = edited
            continue
        found.append(
            Candidate(
                change=change,
                user=users.get(number, change.actor.name),
                reach=reached,
                rollout=rollout,
                derived=(),
                pods=pods_moved(change, rollout, topology),
                added=added,
                empties=empties(change, topology),
                outgrows=outgrows(change, topology),
                stops=halts(change) and _stands_still(topology.states.get(change.resource)),
                crowds=crowds,
                alike=min(seen[sort] for sort in sorts) - 1,
                earlier=len(found),
                routine=max(own[mine], own[change.actor.name, change.resource, None]) - 1,
                unread=(unread or {}).get(change.key, 0),
                inert=inert or nobody_has(change, absent, topology),
                cosmetic=cosmetic,
                fleeting=change.verb is Verb.DELETE and change.resource in made,
                undone_at=taken_back.get(number),
                lacking=absent,
                patience=patience(topology.states.get(change.resource)),
                edit=edits.setdefault(mine, len(edits)),
                apart=is_apart(change, reached, topology),
            )
        )
        places[number] = last[(change.actor.name, change.resource)] = len(found) - 1
    beside = _by_place(others, places)
    return [
        _with_followers(
            _with_others(candidate, beside[place], rollouts=by_change, topology=topology),
            followers.get(place, []),
            derived=tuple(children.get(candidate.change.id, ())),
            rollouts=by_change,
            topology=topology,
        )
        for place, candidate in enumerate(found)
    ]


def _by_place(others: dict[str, list[Change]], places: dict[str, int]) -> dict[int, list[Change]]:
    """What stands beside the candidate in each place, of what stands beside a change."""
    found: dict[int, list[Change]] = defaultdict(list)
    for first, some in others.items():
        found[places[first]] += some
    return found


def _without_further(ordered: list[Change], blows: set[int]) -> list[Change]:
    """The changes less the blows of a fight after each writer's first to each object: they tell nothing further."""
    told = set[tuple[str, Resource]]()
    found = []
    for change in ordered:
        if change.key in blows:
            blow = (change.actor.name, change.resource)
            if blow in told:
                continue
            told.add(blow)
        found.append(change)
    return found


def _root(number: str, causes: dict[str, Change], places: dict[str, int], repeats: dict[str, str]) -> int | None:
    """The place of the candidate that set off the change with this id, over as many programs as it takes; a repeat of
    an edit stands where that does."""
    cause = causes.get(number)
    while cause is not None and repeats.get(cause.id, cause.id) not in places:
        cause = causes.get(cause.id)
    return places[repeats.get(cause.id, cause.id)] if cause else None


def _with_others(
    candidate: Candidate, others: list[Change], *, rollouts: dict[str, Rollout], topology: Topology
) -> Candidate:
    """A candidate with the same edit of other objects: it reaches what all of them reach."""
    if not others:
        return candidate
    reached, apart = dict(candidate.reach), candidate.apart
    for change in others:
        also = reach(change, topology)
        apart = apart and is_apart(change, also, topology)
        for entity, hops in also.items():
            reached[entity] = min(hops, reached.get(entity, 99))
    moved = sum(pods_moved(change, rollouts.get(change.id), topology) for change in others)
    return replace(
        candidate,
        reach=reached,
        rollout=candidate.rollout or next((rollouts[c.id] for c in others if c.id in rollouts), None),
        pods=candidate.pods + moved,
        added=candidate.added + sum(pods_added(change, topology) for change in others),
        empties=candidate.empties or next(filter(None, (empties(change, topology) for change in others)), ""),
        lacking=candidate.lacking.union(*(without(change, topology) for change in others)),
        also=tuple(others),
        apart=apart,
    )


def _with_followers(
    candidate: Candidate,
    followers: list[Change],
    *,
    derived: tuple[str, ...],
    rollouts: dict[str, Rollout],
    topology: Topology,
) -> Candidate:
    """A candidate with what was done because of it, by whoever: that reaches on, and moves pods too."""
    acts = tuple(change for change in followers if not change.begun_by)
    derived = (*derived, *(change.id for change in acts))
    if not followers:
        return replace(candidate, derived=derived) if derived else candidate
    reached = dict(candidate.reach)
    for change in followers:
        for entity, hops in reach(change, topology).items():
            reached[entity] = min(hops + READ, reached.get(entity, 99))
    moved = sum(pods_moved(change, rollouts.get(change.id), topology) for change in followers)
    return replace(
        candidate,
        reach=reached,
        rollout=candidate.rollout or next((rollouts[c.id] for c in followers if c.id in rollouts), None),
        derived=derived,
        pods=candidate.pods + moved,
        added=candidate.added + sum(pods_added(change, topology) for change in followers),
        empties=candidate.empties or next(filter(None, (empties(change, topology) for change in followers)), ""),
        inert=candidate.inert and not acts and is_for_next_rollout(candidate.change),  # Jobs come, whatever is kept
        cosmetic=False,
        set_off=acts,
        apart=False,
    )


def _stands_still(state: dict[str, Any] | None) -> bool:
    """Whether a workload is still suspended, or still scaled to zero."""
    spec = fields((state or {}).get("spec"))
    return spec.get("suspend") is True or spec.get("replicas") == 0


def _crowded(change: Change, added: int, topology: Topology) -> tuple[str, Reach]:
    """Of the servers that a workload's new pods call, one whose clients have not more pods than those: its name and how
    many are new, for a person, and the clients, from whom so many take."""
    here = (change.resource.namespace or "", change.resource.name)
    for server in sorted(topology.upstream.get(here, ())) if added >= CROWD else ():
        services = topology.fronts.get(server, set())
        others = {client for service in services for client in topology.clients.get(service, ())} - {here}
        if others and sum(topology.wanted.get(client, 0) for client in others) <= added:
            found: Reach = {workload(*server): 1, **{("shares", *client): 1.0 for client in others}}
            return f"{server[1]}, as {added} new pods of {here[1]} do", found
    return "", {}


def empties(change: Change, topology: Topology) -> str:
    """That this leaves nothing that answers for a Service, for a person, without a full stop; "" where it does not."""
    if service := _emptied(change, topology):
        return f"No workload stands behind Service {service} now"
    return missed(change, topology)


def _emptied(change: Change, topology: Topology) -> str:
    """The Service behind which this leaves no workload: by its new selector, a scale to zero, or a deletion, of the
    Service itself too."""
    resource = change.resource
    namespace = resource.namespace or ""
    if resource.kind == "Service" and change.verb is Verb.DELETE:
        return resource.name
    if resource.kind == "Service" and any("selector" in diff.path for diff in change.diffs):
        state = topology.states.get(resource) or {}
        is_left = _selector(state) and topology.in_namespace.get(namespace) and not behind(state, namespace, topology)
        return resource.name if is_left else ""
    if resource.kind not in WORKLOADS or not (halts(change) or change.verb is Verb.DELETE):
        return ""
    key = (namespace, resource.name)
    gone = topology.labels.get(key) or _old_labels(change)
    for service, state in topology.states.items():
        selector = _selector(state) if service.kind == "Service" and service.namespace == resource.namespace else {}
        if selector and gone and selects(selector, gone) and not set(behind(state, namespace, topology)) - {key}:
            return service.name
    return ""


def _selector(service: dict[str, Any]) -> dict[str, Any]:
    return fields(part(service, "spec", "selector"))


def _old_labels(change: Change) -> dict[str, str]:
    """The pod labels of a workload that was deleted."""
    old = next((diff.old for diff in change.diffs if not diff.path), None)
    return dict(fields(part(pod_template(fields(old)), "metadata", "labels")))
