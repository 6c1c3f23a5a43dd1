"""Field managers -> the accounts of the programs that write under these names; and who deletes Nodes.

What a watch alone tells of who wrote is the field manager, and that is the name of the program unless it says
otherwise (https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers). Of a deletion it tells nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from app.core.grants import Grant
from app.core.model import NOBODY, ActorSource, Change, Verb
from app.core.permitted import rights
from app.core.topology import Topology


def with_accounts(changes: Iterable[Change], top: Topology) -> list[Change]:
    """The changes; those of which only a field manager is known have the account of the one program called so, and
    Nodes that nobody is known to have deleted go by the one program whose rights name that."""
    users: dict[str, set[str]] = defaultdict(set)
    for home in top.accounts:
        users[home[1]].update(user for _, user in top.users_of(home))
    told = list(changes)
    takers = _takers(top) if any(_went(change) for change in told) else set[str]()
    return [_by_account(change, takers if _went(change) else _called(change, users)) for change in told]


def _called(change: Change, users: Mapping[str, set[str]]) -> set[str]:
    return users.get(change.actor.name, set()) if change.actor.source is ActorSource.MANAGED_FIELDS else set()


def _went(change: Change) -> bool:
    return change.resource.kind == "Node" and change.verb is Verb.DELETE and change.actor == NOBODY


def _takers(top: Topology) -> set[str]:
    deletes: set[Grant] = {("", "nodes", "delete"), ("", "nodes", "*")}
    return {user for user, grants in rights(top, reacting=True).items() if deletes & grants}


def _by_account(change: Change, users: set[str]) -> Change:
    return replace(change, actor=replace(change.actor, name=next(iter(users)))) if len(users) == 1 else change
