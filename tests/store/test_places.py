"""Where an incident is told, by the labels of what it is about."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Batch, ObjectState, Resource
from app.core.routes import Route, Routes, What
from app.store.outbox import New
from app.store.places import places_of
from app.store.record import record
from tests.store.factories import CLUSTER, NOON

ROUTES = Routes(
    (
        Route("C0PAYMENTS", (What.INCIDENTS,), labels={"team": "payments"}),
        Route("C0CARTS", (What.CHANGES, What.INCIDENTS), labels={"team": "carts", "tier": "1"}),
    )
)


def labelled(kind: str, namespace: str | None, name: str, **labels: str) -> ObjectState:
    group = "" if kind == "Namespace" else "apps"
    resource = Resource(CLUSTER, group, kind, namespace, name)
    return ObjectState(resource, f"uid-{name}", "1", NOON, {"metadata": {"labels": dict(labels)}})


@pytest.mark.parametrize(
    ("namespaces", "workloads", "place"),
    [
        (("shop",), (), "C0PAYMENTS"),
        (("web",), (), "C0DEFAULT"),
        (("web",), ("web/cart",), "C0CARTS"),
        (("web",), ("web/front",), "C0DEFAULT"),
        (("web", "shop"), (), "C0PAYMENTS"),
        ((), (), "C0DEFAULT"),
    ],
)
async def test_a_team_is_told_of_incidents_of_what_has_its_label(
    conn: AsyncConnection, namespaces: tuple[str, ...], workloads: tuple[str, ...], place: str
) -> None:
    objects = (
        labelled("Namespace", None, "shop", team="payments"),
        labelled("Namespace", None, "web", tier="1"),
        labelled("StatefulSet", "web", "cart", team="carts"),
        labelled("Deployment", "web", "front", app="front"),
    )
    await record(conn, Batch(CLUSTER, objects=objects))
    new = New("5f0a1c22d3e4", CLUSTER, "critical", namespaces, workloads, NOON)
    assert await places_of(ROUTES, otherwise="C0DEFAULT")(conn, new) == [place]
