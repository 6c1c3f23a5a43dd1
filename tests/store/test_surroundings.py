"""What surrounds the changes of a window, of one cluster of two that have the same names."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Batch, Outcome, Resource, Rollout, Symptom
from app.store import surroundings, symptoms
from app.store.record import record
from tests.store.factories import CLUSTER, NOON, a_resource, a_rollout, a_symptom

LATER = NOON + timedelta(hours=1)


async def problems(conn: AsyncConnection, namespace: str | None = None) -> list[tuple[str, str | None, str, int]]:
    found = await surroundings.list_problems(conn, CLUSTER, namespace=namespace, from_at=NOON, to_at=LATER, limit=10)
    return [(one.kind, one.namespace, one.name, one.count) for one in found]


async def test_what_no_workload_owns_is_a_problem_by_its_own_name(conn: AsyncConnection) -> None:
    node, other = (Resource(CLUSTER, "", "Node", None, name) for name in ("n1", "n2"))
    pod, alike = (a_resource("debug", kind="Pod", namespace=space) for space in ("payments", "shop"))
    told = (
        a_symptom("f1", resource=node, count=4),
        a_symptom("f2", resource=other, count=3),
        a_symptom("f3", resource=pod, count=2),
        a_symptom("f4", resource=alike, count=1),
    )
    await record(conn, Batch(CLUSTER, symptoms=told))
    await record(conn, Batch("south", symptoms=tuple(replace(one, count=100) for one in told)))
    found = [
        ("Node", None, "n1", 4),
        ("Node", None, "n2", 3),
        ("Pod", "payments", "debug", 2),
        ("Pod", "shop", "debug", 1),
    ]
    assert await problems(conn) == found
    assert await problems(conn, "shop") == found[3:]


async def test_the_workload_of_a_symptom_that_is_known_later_is_kept(conn: AsyncConnection) -> None:
    """What was not known of it when it was told first is not taken for an answer."""
    pod, owner = a_resource("payments-api-1", kind="Pod"), a_resource()

    async def stored() -> list[Symptom]:
        return await symptoms.read_window(conn, CLUSTER, NOON, LATER)

    for workload in (None, owner, None):
        await record(conn, Batch(CLUSTER, symptoms=(a_symptom(resource=pod, workload=workload),)))
    assert [(one.resource, one.workload) for one in await stored()] == [(pod, owner)]
    assert await problems(conn) == [("Deployment", "payments", "payments-api", 1)]


async def test_a_rollout_that_began_before_the_window_and_was_not_over_is_of_it(conn: AsyncConnection) -> None:
    """In REST it is not: who asks for one window after the other is to be told of each once."""

    def began(generation: int, before: timedelta, after: timedelta | None) -> Rollout:
        ended = {} if after is None else {"outcome": Outcome.COMPLETE, "ended_at": NOON - before + after}
        return a_rollout(generation, seconds=-before.total_seconds(), **ended)

    minute, day = timedelta(minutes=1), timedelta(days=1)
    rollouts = (
        began(5, -minute, None),
        began(4, 5 * minute, 10 * minute),
        began(3, 10 * minute, 4 * minute),
        began(2, 6 * day, None),
        began(1, 8 * day, None),
    )
    await record(conn, Batch(CLUSTER, rollouts=rollouts))
    around = await surroundings.read_surroundings(conn, CLUSTER, from_at=NOON, to_at=LATER)
    assert [one.generation for one in around.rollouts] == [5, 4, 2]
    listed, _ = await surroundings.list_rollouts(conn, CLUSTER, from_at=NOON, to_at=LATER)
    assert [one.generation for one in listed] == [5]
