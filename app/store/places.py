"""Where incidents are told, by the routes of now and the labels of what they are about."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.routes import OfIncident, Routes, What, incident_places
from app.store.labels import labels_about
from app.store.outbox import New, Places


def places_of(routes: Routes, *, otherwise: str) -> Places:
    """``otherwise``: the channel that is told of what no route tells in another one."""

    async def of(conn: AsyncConnection, new: New) -> Collection[str]:
        about = new.cluster, new.namespaces, new.workloads
        labels = await labels_about(conn, *about) if routes.ask_labels(What.INCIDENTS) else ()
        told = OfIncident(new.cluster, new.severity, new.namespaces, labels)
        return incident_places(routes, told, otherwise=otherwise)

    return of
