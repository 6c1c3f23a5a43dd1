"""Labels of objects and of their namespaces: by a team's label, what is told to whom."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Object, Resource
from app.core.routes import Labels
from app.store.objects import load_states


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


def _labels(state: Object | None) -> dict[str, str] | None:
    about = (state or {}).get("metadata")
    labels = about.get("labels") if isinstance(about, dict) else None
    return {name: str(value) for name, value in labels.items()} if isinstance(labels, dict) else None
