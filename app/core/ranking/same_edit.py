"""One edit of many objects, by one hand in one go: a label of twenty nodes, a switch in ten Deployments. So is an app
that is installed: its Deployment, its Service, its account and its rights.

It is one suspect, not twenty rivals of which each explains a twentieth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from datetime import timedelta

import msgspec

from app.core.entities import WORKLOADS
from app.core.model import Change, Resource, Verb
from app.core.objects.actors import service_account

SEVERAL = 5
IN_ONE_GO = timedelta(seconds=120)
"""From the first to the last: a loop over nodes with a pause in between, no rollout over days."""
NEXT = timedelta(seconds=5)
"""So soon after one Node the next one is deleted by a command that deletes several."""
AT_ONCE = timedelta(seconds=0.5)
"""So soon after one object a command or a sync writes the next: client-go's own limit is five a second."""


def same_edits(ordered: Iterable[Change]) -> dict[str, str]:
    """For each change that repeats the edit of another object, the id of the first change that made it.

    ``ordered`` by time. The same edit is the same new value of the same fields of a kind by the same actor. A change
    whose values are not known (no body was recorded, or it is too large to be read) repeats none.
    """
    firsts: dict[tuple[str, str, str, bytes], Change] = {}
    found: dict[str, str] = {}
    for change in ordered:
        values = wrote(change)
        if not values:
            continue
        edit = (change.actor.name, change.resource.api_group, change.resource.kind, values)
        first = firsts.get(edit)
        if first is None or change.at - first.at > IN_ONE_GO:
            firsts[edit] = change
        elif change.resource != first.resource:
            found[change.id] = first.id
    return found


def nodes_deleted(ordered: Iterable[Change]) -> dict[str, str]:
    """For each change that deletes one more Node, the id of the first that its actor deleted in the same go.

    ``ordered`` by time. Programs delete Nodes for what they see, each for a reason of its own, and so may those do of
    whom nobody knows.
    """

    def who(change: Change) -> Hashable:
        by = change.actor.name
        is_meant = change.resource.kind == "Node" and change.verb is Verb.DELETE and not service_account(by)
        return by if is_meant else None

    return _in_turn(ordered, who, pause=NEXT)


def installed(changes: Iterable[Change]) -> dict[str, str]:
    """For each object that was made as a part of an app, the id of the change that made the app's workload: by the same
    actor, in one go, with the same name, in its namespace or in none. So are the workloads of a release that brings
    several."""
    made = [change for change in changes if change.verb is Verb.CREATE]
    workloads = {
        (one.actor.name, one.resource.namespace, one.resource.name): one
        for one in made
        if one.resource.kind in WORKLOADS and not one.begun_by
    }
    spaces = defaultdict(list)
    for actor, namespace, name in workloads:
        spaces[actor, name].append(namespace)
    found = _several(workloads.values())
    for change in made:
        resource = change.resource
        homes = [resource.namespace] if resource.namespace else spaces.get((change.actor.name, resource.name), ())
        for home in homes:
            app = workloads.get((change.actor.name, home, resource.name))
            if app is not None and app.id != change.id and abs(app.at - change.at) <= IN_ONE_GO:
                found[change.id] = found.get(app.id, app.id)
    return found


def releases(changes: Iterable[Change]) -> dict[str, str]:
    """For each change that its actor made in a namespace right after others, the id of the first of them: what one
    command applies, or one sync of a GitOps controller. An object that is made anew, as what cannot be changed is, goes
    with its deletion.

    What nobody is known to have made belongs to none.
    """

    def where(change: Change) -> Hashable:
        return (change.actor.name, change.resource.namespace) if change.actor.name else None

    ordered = sorted(changes, key=lambda one: (one.at, one.key))
    found = _in_turn(ordered, where, pause=AT_ONCE, whole=IN_ONE_GO)
    return found | {
        made: found.get(gone, gone) for made, gone in _made_anew(ordered).items() if found.get(made) != gone
    }


def _made_anew(ordered: Iterable[Change]) -> dict[str, str]:
    """For each object that whoever deleted it makes anew in the same go, the id of the deletion."""
    gone: dict[tuple[str, Resource], Change] = {}
    found: dict[str, str] = {}
    for change in ordered:
        of = change.actor.name, change.resource
        if change.verb is Verb.DELETE:
            gone[of] = change
        elif change.verb is Verb.CREATE and of in gone and change.at - gone[of].at <= IN_ONE_GO:
            found[change.id] = gone[of].id
    return found


def _in_turn(
    ordered: Iterable[Change],
    of: Callable[[Change], Hashable],
    *,
    pause: timedelta,
    whole: timedelta = timedelta.max,
) -> dict[str, str]:
    """For each change that comes no more than a ``pause`` after the last one that is of the same, the id of the first
    of these; from which no more than ``whole`` has passed. Falsy is of nothing."""
    gos: dict[Hashable, tuple[Change, Change]] = {}
    found: dict[str, str] = {}
    for change in ordered:
        if not (go := of(change)):
            continue
        first, last = gos.get(go, (change, change))
        if change.at - last.at > pause or change.at - first.at > whole:
            first = change
        elif change is not first:
            found[change.id] = first.id
        gos[go] = first, change
    return found


def _several(workloads: Iterable[Change]) -> dict[str, str]:
    """For each workload of several that somebody made in one namespace in one go, the id of the first."""
    together = defaultdict(list)
    for one in sorted(workloads, key=lambda one: one.at):
        together[one.actor.name, one.resource.namespace].append(one)
    found: dict[str, str] = {}
    for made in together.values():
        go = [one for one in made if one.at - made[0].at <= IN_ONE_GO]
        if len(go) >= SEVERAL:
            found |= {one.id: go[0].id for one in go[1:]}
    return found


def wrote(change: Change) -> bytes:
    """The new values of an update's fields; nothing where one is not known."""
    if change.verb is not Verb.UPDATE or any(diff.old is None and diff.new is None for diff in change.diffs):
        return b""
    return msgspec.json.encode([(diff.path, diff.new) for diff in change.diffs]) if change.diffs else b""
