"""Field managers -> the accounts of the programs that write under these names; and who did what few may do.

What a watch alone tells of who wrote is the field manager, and that is the name of the program unless it says
otherwise (https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers). Of a deletion it tells nobody,
nor of a field that was taken away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from app.core.edges.references import is_custom
from app.core.edges.topology import Topology
from app.core.model import NOBODY, ActorSource, Change, Verb
from app.core.objects.grants import Grant
from app.core.objects.kinds import plural_of
from app.core.ranking.permitted import Rights, rights


def with_accounts(changes: Iterable[Change], top: Topology) -> list[Change]:
    """The changes; those of which only a field manager is known have the account of the one program called so. Nodes
    that nobody is known to have deleted, and custom resources that nobody is known to have updated, as who takes a
    field away leaves no trace, go by the one program whose rights name that."""
    users: dict[str, set[str]] = defaultdict(set)
    for home in top.accounts:
        users[home[1]].update(user for _, user in top.users_of(home))
    told = list(changes)
    able = rights(top, reacting=True) if any(map(_call, told)) else {}
    return [_by_account(one, _able(one, able) if _call(one) else _called(one, users)) for one in told]


def _called(change: Change, users: Mapping[str, set[str]]) -> set[str]:
    return users.get(change.actor.name, set()) if change.actor.source is ActorSource.MANAGED_FIELDS else set()


def _call(change: Change) -> tuple[str, str, tuple[str, ...]] | None:
    """What somebody may do who made a change that few may make, where nobody is known to have: the API group, the
    resource and the verbs."""
    resource = change.resource
    if change.actor != NOBODY:
        return None
    if resource.kind == "Node" and change.verb is Verb.DELETE:
        return "", "nodes", ("delete",)
    if is_custom(resource) and change.verb is Verb.UPDATE:
        return resource.api_group, plural_of(resource.api_group, resource.kind), ("update", "patch")
    return None


def _able(change: Change, able: Rights) -> set[str]:
    """Whose rights name it; who may do anything does nothing in particular."""
    group, plural, verbs = _call(change) or ("", "", ())
    wanted: set[Grant] = {(group, plural, verb) for verb in (*verbs, "*")}
    return {user for user, grants in able.items() if wanted & grants}


def _by_account(change: Change, users: set[str]) -> Change:
    return replace(change, actor=replace(change.actor, name=next(iter(users)))) if len(users) == 1 else change
