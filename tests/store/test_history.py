"""A write that a cluster remembers and the same write told by somebody are one change, whichever comes first."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import Actor, ActorSource, Batch, Change, DiffSource, FieldDiff, version_key
from app.store import changes
from app.store.record import record
from tests.store.factories import CLUSTER, NOON, a_change

TAG = ("spec", "template", "spec", "containers", (("name", "app"),), "image")
HOUR = timedelta(hours=1)
ALICE = Actor("alice", ActorSource.AUDIT)


def wrote(version: str, *, seconds: float, source: str = "watch", tag: str = "v2", actor: Actor = ALICE) -> Change:
    diffs = (FieldDiff(TAG, "replace", "v1", tag),)
    return a_change(version, seconds=seconds, diffs=diffs, sources=frozenset({source}), actor=actor)


def remembered(name: str, *, seconds: float, tag: str = "v2", within: float = 0) -> Change:
    change = wrote("", seconds=seconds, source="history", tag=tag, actor=Actor(""))
    since = change.at - timedelta(seconds=within) if within else None
    key = version_key(CLUSTER, change.uid, name)
    return replace(change, key=key, resource_version="", found_in="ReplicaSet web-1", since=since)


async def stored(conn: AsyncConnection) -> list[Change]:
    return await changes.read_window(conn, CLUSTER, NOON - HOUR, NOON + HOUR, limit=100)


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_a_write_that_three_tell_of_is_one_change(conn: AsyncConnection, order: tuple[int, ...]) -> None:
    told = (
        remembered("revision 2", seconds=0),
        replace(wrote("7", seconds=0.8), actor=Actor("")),
        replace(wrote("7", seconds=0.7, source="audit"), key=wrote("7", seconds=0).key),
    )
    for number in (*order, *order):
        await record(conn, Batch(CLUSTER, changes=(told[number],)))
    (found,) = await stored(conn)
    assert found.sources == {"audit", "watch", "history"}
    assert (found.actor.name, found.resource_version, found.at) == ("alice", "7", told[order[0]].at)


async def test_writes_within_one_second_each_meet_their_own(conn: AsyncConnection) -> None:
    kept = [remembered(f"revision {number}", seconds=0, tag=f"v{number}") for number in (2, 3, 4)]
    await record(conn, Batch(CLUSTER, changes=tuple(kept)))
    seen = [wrote(str(number), seconds=number / 10, tag=f"v{number}") for number in (4, 3, 2)]
    recorded = await record(conn, Batch(CLUSTER, changes=tuple(seen)))
    found = await stored(conn)
    assert (recorded.changes, recorded.improved) == (0, 3)
    assert sorted((one.resource_version, one.diffs[0].new) for one in found) == [("2", "v2"), ("3", "v3"), ("4", "v4")]


async def test_what_lies_within_the_time_that_a_memory_leaves_open_is_that(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, changes=(remembered("revision 2", seconds=600, within=600.5),)))
    await record(conn, Batch(CLUSTER, changes=(wrote("7", seconds=30), wrote("8", seconds=700, tag="v3"))))
    first, second = sorted(await stored(conn), key=lambda one: one.resource_version)
    assert [set(one.sources) for one in (first, second)] == [{"history", "watch"}, {"watch"}]
    assert (first.since, first.found_in) == (first.at - timedelta(seconds=601), "ReplicaSet web-1")


async def test_another_write_is_another_change(conn: AsyncConnection) -> None:
    scaled = replace(wrote("9", seconds=1), diffs=(FieldDiff(("spec", "replicas"), "replace", 1, 2),))
    await record(conn, Batch(CLUSTER, changes=(remembered("revision 2", seconds=0),)))
    await record(conn, Batch(CLUSTER, changes=(scaled,)))
    assert len(await stored(conn)) == 2


async def test_a_write_of_which_only_its_time_was_remembered_gets_its_diff(conn: AsyncConnection) -> None:
    bare = replace(remembered("alice", seconds=0), diffs=(), diff_source=DiffSource.NONE, summary="web written")
    await record(conn, Batch(CLUSTER, changes=(bare,)))
    await record(conn, Batch(CLUSTER, changes=(wrote("7", seconds=0.4),)))
    (found,) = await stored(conn)
    assert (found.diffs[0].new, found.diff_source, found.found_in) == ("v2", DiffSource.STATES, "ReplicaSet web-1")
