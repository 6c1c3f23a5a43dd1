"""Who may do what, as docs/access.md says. Alone in a file: the command line names them without a database."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from app.core.clusters import cluster_name

NOT_NAMESPACED = "-"
"""In the place of a namespace, as in addresses: what is in none."""
_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label (https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/)."""


class Role(StrEnum):
    """What the bearer may do, each more than the one before."""

    VIEWER = "viewer"
    RESPONDER = "responder"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def somebody(self) -> str:
        """What one of whom no more is known is called: "an admin"."""
        return f"{'an' if self.value[0] in 'ao' else 'a'} {self.value}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a token is limited to. ``places`` are pairs of a cluster and a namespace of it; None: the whole cluster."""

    places: frozenset[tuple[str, str | None]]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Scope:
        """Of ``CLUSTER`` and ``CLUSTER/NAMESPACE``, with ``-`` for what is in no namespace. Raises ValueError."""
        return cls(frozenset(_place(text) for text in texts))

    @property
    def texts(self) -> list[str]:
        """The inverse of ``parse``, sorted."""
        return sorted(cluster if namespace is None else f"{cluster}/{namespace}" for cluster, namespace in self.places)

    @property
    def clusters(self) -> frozenset[str]:
        """Those of which it reaches anything."""
        return frozenset(cluster for cluster, _ in self.places)

    def is_whole(self, cluster: str) -> bool:
        """Whether it reaches all of a cluster."""
        return (cluster, None) in self.places

    def is_partial(self, cluster: str) -> bool:
        """Whether it reaches some namespaces of a cluster, but not all of it."""
        return cluster in self.clusters and not self.is_whole(cluster)

    def holds(self, cluster: str, namespace: str) -> bool:
        """Whether it reaches a namespace of a cluster."""
        return self.is_whole(cluster) or (cluster, namespace) in self.places


def _place(text: str) -> tuple[str, str | None]:
    cluster, slash, namespace = text.partition("/")
    cluster_name(cluster)
    if not slash:
        return cluster, None
    if namespace != NOT_NAMESPACED and not _NAMESPACE.fullmatch(namespace):
        raise ValueError(f"{text!r} is no CLUSTER or CLUSTER/NAMESPACE: {namespace!r} cannot be a namespace")
    return cluster, namespace
