"""Which kinds an API server serves, in two calls, and which of them are followed.

Aggregated discovery, which Kubernetes has since 1.27:
https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from app.collect.apiserver import ApiServer
from app.collect.words import Served
from app.core.objects.kinds import Policy, named, policy
from app.failures import Expected

ACCEPT = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")
)
NEEDED = {"list", "watch"}
SYMPTOMS = frozenset({("", "Event")})
"""No changes, but followed: Warnings are what hurts. Told once, though events.k8s.io serves the same objects."""

NOT_UNASKED = frozenset({("", "Secret")})
"""Changes when somebody tells of them, but who asks for them may read all there are: followed where they are added."""


class DiscoveryError(Expected):
    """What an API server serves cannot be found out; the message says why."""


class Discovered(msgspec.Struct, frozen=True):
    """The kinds that are followed, and the groups of which nothing is known for now: their server does not answer.

    ``unserved`` are names that were added or excluded, of which nothing is served that could be watched.
    """

    kinds: tuple[Served, ...]
    stale: tuple[str, ...]
    unserved: tuple[str, ...] = ()


class _Kind(msgspec.Struct):
    kind: str = ""


class _Resource(msgspec.Struct):
    resource: str
    verbs: list[str] = []
    responseKind: _Kind | None = None  # noqa: N815 - the wire's name


class _Version(msgspec.Struct):
    version: str
    freshness: str = "Current"
    resources: list[_Resource] = []


class _Name(msgspec.Struct):
    name: str = ""


class _Group(msgspec.Struct):
    metadata: _Name = msgspec.field(default_factory=_Name)
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    kind: str = ""
    items: list[_Group] = []


_groups = msgspec.json.Decoder(_Groups)


async def discover(api: ApiServer, *, add: Collection[str] = (), exclude: Collection[str] = ()) -> Discovered:
    """What is followed; beside the usual kinds those named in ``add``, and none of ``exclude`` (core.kinds.named).

    Raises DiscoveryError, RefusedError, UnreachableError.
    """
    groups: list[_Group] = []
    for path in ("/api", "/apis"):
        try:
            found = _groups.decode(await api.get(path, {}, accept=ACCEPT))
        except msgspec.MsgspecError as error:
            raise DiscoveryError(f"{path}: no list of the kinds that are served: {error}") from None
        if found.kind != "APIGroupDiscoveryList":
            raise DiscoveryError(f"{path}: no aggregated discovery: Kubernetes 1.27 or newer is needed")
        groups += found.items
    kinds: dict[tuple[str, str], Served] = {}
    for group in groups:
        for version in group.versions:  # the preferred one is the first
            for served in _served(group.metadata.name, version):
                kinds.setdefault((served.api_group, served.plural), served)
    stale = {group.metadata.name for group in groups for version in group.versions if version.freshness != "Current"}
    names = {named(*name) for name in kinds}
    unserved = {one for one in (*add, *exclude) if one not in names and one.partition(".")[2] not in stale}
    followed = [
        served
        for name, served in sorted(kinds.items())
        if named(*name) not in exclude and (named(*name) in add or is_followed(served.api_group, served.kind))
    ]
    return Discovered(tuple(followed), tuple(sorted(stale)), tuple(sorted(unserved)))


def _served(api_group: str, version: _Version) -> list[Served]:
    found = []
    for resource in version.resources:
        kind = resource.responseKind.kind if resource.responseKind else ""
        if kind and NEEDED.issubset(resource.verbs):
            found.append(Served(api_group, version.version, kind, resource.resource))
    return found


def is_followed(api_group: str, kind: str) -> bool:
    """Whether a kind is followed where nobody says otherwise: something is learned from its objects."""
    if (api_group, kind) in NOT_UNASKED:
        return False
    return policy(api_group, kind) is not Policy.NEVER or (api_group, kind) in SYMPTOMS
