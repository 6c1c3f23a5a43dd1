"""Whose calls flow control refuses (429): what such calls are about, and whom a FlowSchema reaches.

FlowSchemas name callers by user, ServiceAccount or group, "*" for all
(https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#flowschema). The name of a ServiceAccount or
of a node tells which groups it is in (https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/ ,
https://kubernetes.io/docs/reference/access-authn-authz/node/ ), of others only the authenticator knows.
"""

from __future__ import annotations

from app.core.entities import Entity
from app.core.objects.actors import ANONYMOUS, service_account

EVERYBODY: Entity = ("throttle", "*")
_ACCOUNTS = "system:serviceaccounts"
_TOLD = (_ACCOUNTS, "system:nodes", "system:authenticated", "system:unauthenticated")
"""Groups of which a user's name tells whether he is in them; so are those of the accounts of a namespace."""
_OTHERS: Entity = ("throttle", "group:?")
"""Whoever may be in a group that only the authenticator knows."""


def matched(user: str) -> Entity:
    """What a schema reaches that names this user, or this group ("group:NAME")."""
    name = user.removeprefix("group:")
    if name == "*":
        return EVERYBODY
    is_told = name == user or name in _TOLD or name.startswith(f"{_ACCOUNTS}:")
    return ("throttle", user) if is_told else _OTHERS


def throttled(user: str) -> tuple[Entity, ...]:
    """What refused calls of this user are about: him, and the groups that he is in, or may be in."""
    if user == ANONYMOUS:
        groups: tuple[str, ...] = ("system:unauthenticated",)
    elif account := service_account(user):
        groups = (_ACCOUNTS, f"{_ACCOUNTS}:{account[0]}", "system:authenticated")
    elif user.startswith("system:node:"):
        groups = ("system:nodes", "system:authenticated")
    else:
        return ("throttle", user), _OTHERS, ("throttle", "group:system:authenticated")
    return ("throttle", user), *(("throttle", f"group:{group}") for group in groups)
