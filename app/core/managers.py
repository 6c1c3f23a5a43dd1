"""Field managers -> the accounts of the programs that write under these names.

What a watch alone tells of who wrote is the field manager, and that is the name of the program unless it says
otherwise (https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from app.core.model import ActorSource, Change
from app.core.topology import Topology


def with_accounts(changes: Iterable[Change], top: Topology) -> list[Change]:
    """The changes; those of which only a field manager is known have the account of the one program called so."""
    users: dict[str, set[str]] = defaultdict(set)
    for home in top.accounts:
        users[home[1]].update(user for _, user in top.users_of(home))
    return [_by_account(change, users.get(change.actor.name, set())) for change in changes]


def _by_account(change: Change, users: set[str]) -> Change:
    if change.actor.source is not ActorSource.MANAGED_FIELDS or len(users) != 1:
        return change
    return replace(change, actor=replace(change.actor, name=next(iter(users))))
