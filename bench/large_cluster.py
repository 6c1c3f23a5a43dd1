"""A large cluster around an incident: what a ranking takes where there are 40,000 objects.

Deployments, each with the revisions, pods and ConfigMaps that it may have, and a Service.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import ObjectState, Resource
from app.core.objects.normalise import normalise
from app.store import codes, objects
from bench.objects import config_map, deployment, pod, service

OBJECTS = 40_000
REVISIONS, PODS, CONFIG_MAPS = 5, 3, 2
EACH = REVISIONS + PODS + CONFIG_MAPS + 2
"""Objects of a Deployment, with it itself and its Service."""
AT_A_TIME = 200
"""Deployments."""


async def fill(conn: AsyncConnection, cluster: str, at: datetime) -> None:
    """Objects that were last seen ``at``."""
    number, apps = await codes.cluster(conn, cluster), range(OBJECTS // EACH)
    for first in apps[::AT_A_TIME]:
        made = (one for app in apps[first : first + AT_A_TIME] for one in _objects_of(app))
        await objects.upsert(conn, number, [_state(cluster, one, at) for one in made])


def _objects_of(app: int) -> Iterator[dict[str, Any]]:
    own = deployment(app, 1)
    here, name = own["metadata"]["namespace"], own["metadata"]["name"]
    yield own
    yield service(app, 1)
    for release in range(REVISIONS):
        revision = deployment(app, 1, release=release) | {"kind": "ReplicaSet"}
        yield _placed(revision, here, f"{name}-{release:010x}", owner=("Deployment", name))
    for number in range(PODS):
        one, last = pod(app * PODS + number, 1), f"{name}-{REVISIONS - 1:010x}"
        one["metadata"]["labels"]["app"] = f"app-{app}"
        yield _placed(one, here, f"{last}-{number:05x}", owner=("ReplicaSet", last))
    for number in range(CONFIG_MAPS):
        yield _placed(config_map(app * CONFIG_MAPS + number, 1), here, f"{name}-{number}")


def _placed(one: dict[str, Any], namespace: str, name: str, *, owner: tuple[str, str] | None = None) -> dict[str, Any]:
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    meta = {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}", "ownerReferences": owners}
    return one | {"metadata": one["metadata"] | meta}


def _state(cluster: str, one: dict[str, Any], at: datetime) -> ObjectState:
    meta, kind = one["metadata"], one["kind"]
    group = "apps" if kind in ("Deployment", "ReplicaSet") else ""
    owner = (meta.get("ownerReferences") or [{}])[0]
    return ObjectState(
        Resource(cluster, group, kind, meta["namespace"], meta["name"]),
        meta["uid"],
        meta["resourceVersion"],
        at,
        normalise(one, group, kind=kind),
        owner_kind=owner.get("kind", ""),
        owner_name=owner.get("name", ""),
    )
