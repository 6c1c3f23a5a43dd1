"""Who may do what where somebody else says who they are: from a person and their groups to a role and a scope.

Pure. The file that holds it is read by app/identities.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Annotated

from msgspec import Meta, Struct

from app.core.roles import Role, Scope

Name = Annotated[str, Meta(min_length=1, max_length=200)]
_ORDER = tuple(Role)


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """A role, within ``scopes`` as ``--scope`` writes them; None: everywhere."""

    role: Role
    scopes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for what is no scope."""
        if self.scopes is not None:
            if not self.scopes:
                raise ValueError("scopes is empty: leave it out where the role holds everywhere")
            Scope.parse(self.scopes)


class Granted(Struct, frozen=True):
    """What somebody may do; ``scope`` None: everywhere."""

    role: Role
    scope: Scope | None


class Access(Struct, frozen=True, forbid_unknown_fields=True):
    """All grants: by group, and by person. Who has none is not let in."""

    groups: Mapping[Name, Grant] = {}
    users: Mapping[Name, Grant] = {}

    def of(self, user: str, groups: Iterable[str]) -> Granted | None:
        """What a person in these groups may do: the highest role that any of their grants gives, where any grant of
        that role reaches. None: nothing."""
        found = [self.groups[one] for one in groups if one in self.groups]
        if user in self.users:
            found.append(self.users[user])
        if not found:
            return None
        role = max((one.role for one in found), key=_ORDER.index)
        scopes = [one.scopes for one in found if one.role is role]
        if None in scopes:
            return Granted(role, None)
        return Granted(role, Scope.parse(text for texts in scopes for text in texts or ()))


NO_ACCESS = Access()


@dataclass(frozen=True, slots=True)
class Proxy:
    """Which headers say who asks, and from where they are believed. ``groups`` None: none are told."""

    user: str
    groups: str | None
    trusted: tuple[IPv4Network | IPv6Network, ...]

    def is_trusted(self, peer: str | None) -> bool:
        """Whether a connection from there is a trusted proxy's. Who is not known to be is none."""
        try:
            address = ip_address(peer or "")
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.trusted)


@dataclass(frozen=True, slots=True)
class Identity:
    """A person, as a proxy names them, with their groups."""

    name: str
    groups: tuple[str, ...]


OF_KUBERNETES = "system:"
"""How the names begin that Kubernetes keeps for its own parts and for groups of all rights (system:masters):
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects"""


class Impersonation(Struct, frozen=True, forbid_unknown_fields=True):
    """How people act in a cluster as themselves: with a credential that may impersonate them, in a ``kubeconfig`` (""
    as ``context``: its current one), and under the names that the API server has for them.

    ``groups`` are those, as the provider says them, that are told of anybody; None: all of theirs.
    """

    kubeconfig: Annotated[str, Meta(pattern="^/")]
    context: str = ""
    user_prefix: str = ""
    groups_prefix: str = ""
    groups: tuple[Name, ...] | None = None

    def of(self, person: Identity) -> Identity:
        """Who a person is there. Raises ValueError for who cannot be anybody's there."""
        told = [one for one in person.groups if self.groups is None or one in self.groups]
        found = Identity(self.user_prefix + person.name, tuple(self.groups_prefix + one for one in told))
        for name in (found.name, *found.groups):
            if name.startswith(OF_KUBERNETES):
                raise ValueError(
                    f"{name} is a name that Kubernetes keeps for itself, and nobody acts as that from here"
                )
            if name != name.strip() or not name.isprintable():
                raise ValueError(f"{name!r} cannot be said to an API server")
        return found
