"""Labels of objects and of their namespaces: by a team's label, what is told to whom."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Object, Resource
from app.core.routes import Labels
from app.store.objects import load_states

_WORKLOADS = (
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "CronJob"),
    ("batch", "Job"),
)


async def labels_of(conn: AsyncConnection, wanted: Sequence[Resource]) -> dict[Resource, Labels]:
    """The labels of objects and of their namespaces, as last known. A query for each cluster."""
    found: dict[Resource, Labels] = {}
    for cluster in {one.cluster for one in wanted}:
        own = {one for one in wanted if one.cluster == cluster}
        spaces = {one: Resource(cluster, "", "Namespace", None, one.namespace) for one in own if one.namespace}
        states = await load_states(conn, cluster, {*own, *spaces.values()})
        known = {one: _labels(state.state) for one, state in states.items()}
        found |= {one: Labels(known.get(one), known.get(spaces[one]) if one in spaces else None) for one in own}
    return found


async def labels_about(
    conn: AsyncConnection, cluster: str, namespaces: Sequence[str], workloads: Sequence[str]
) -> tuple[Labels, ...]:
    """Those of each namespace, and of each workload (``namespace/name``), that an incident is about. One query."""
    spaces = [Resource(cluster, "", "Namespace", None, one) for one in namespaces]
    named = [one.partition("/") for one in workloads]
    runs = [Resource(cluster, *kind, home, name) for home, _, name in named for kind in _WORKLOADS]
    found = await labels_of(conn, [*spaces, *runs])
    return tuple(labels for labels in found.values() if labels.own or labels.of_namespace)


def _labels(state: Object | None) -> dict[str, str] | None:
    about = (state or {}).get("metadata")
    labels = about.get("labels") if isinstance(about, dict) else None
    return {name: str(value) for name, value in labels.items()} if isinstance(labels, dict) else None
