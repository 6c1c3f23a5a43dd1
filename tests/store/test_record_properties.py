"""However a stream is cut, repeated or reordered, the rows that it leaves are the same."""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import (
    Actor,
    ActorSource,
    Batch,
    Change,
    DiffSource,
    Gap,
    MetricSeries,
    ObjectState,
    Outcome,
    Progress,
    Rollout,
    Symptom,
    change_id,
)
from app.store import changes, gaps, objects, rollouts, series, symptoms
from app.store.merge import merge_changes, merge_rollouts
from app.store.record import record
from tests.store.factories import (
    CLUSTER,
    NOON,
    a_change,
    a_diff,
    a_resource,
    a_rollout,
    a_state,
    a_symptom,
)

DAY = timedelta(days=1)
Told = TypeVar("Told")
text = st.text(max_size=4)
seconds = st.integers(0, 30)
versions = st.sampled_from(["7", "8", "9", "10", "11"])


@st.composite
def some_change(draw: st.DrawFn) -> Change:
    """One of five writes, told by audit or watch with more or less known; always at its own second."""
    version = draw(versions)
    source = draw(st.sampled_from(list(ActorSource)))
    diff = draw(st.sampled_from(list(DiffSource)))
    return a_change(
        version,
        seconds=int(version),
        actor=Actor(draw(text), source, draw(text), draw(st.none() | st.just("pod-1"))),
        diffs=() if diff is DiffSource.NONE else (a_diff(new=draw(text)),),
        diff_source=diff,
        summary=draw(text),
        sources=frozenset({draw(st.sampled_from(["audit", "watch", "state"]))}),
        audit_id=draw(st.sampled_from(["", "a"])),
        begun_by=draw(st.sampled_from([None, "1" * 28, "2" * 28])),
        generation=draw(st.none() | st.integers(1, 3)),
    )


@st.composite
def some_state(draw: st.DrawFn) -> ObjectState:
    """A version of one of two objects; what a version holds is the same whoever tells it."""
    version = draw(versions)
    deleted = NOON + DAY if draw(st.booleans()) else None
    return replace(
        a_state(version, uid="u-1", resource=a_resource(draw(st.sampled_from(["a", "b"])))),
        seen_at=NOON + timedelta(seconds=int(version)),
        deleted_at=deleted,
        generation=int(version) // 2,
    )


@st.composite
def some_rollout(draw: st.DrawFn) -> Rollout:
    steps = draw(st.lists(st.builds(Progress, seconds.map(lambda s: NOON + timedelta(seconds=s)), *[seconds] * 3)))
    ended = draw(st.none() | seconds)
    return a_rollout(
        draw(st.integers(1, 2)),
        outcome=draw(st.sampled_from(list(Outcome))),
        ended_at=None if ended is None else NOON + timedelta(seconds=ended),
        progress=tuple(sorted(set(steps), key=lambda p: (p.at, p.updated, p.available, p.desired))),
        change_id=draw(st.sampled_from([None, change_id(NOON, 7)])),
        images=draw(st.sampled_from([(), ("app:1",), ("app:2",)])),
        images_before=draw(st.sampled_from([(), ("app:0",), ("app:1",)])),
        reason=draw(st.sampled_from(["", "ProgressDeadlineExceeded"])),
        templates=draw(st.sampled_from([(), ("7d9f",), ("7d9f", "8c1a")])),
    )


@st.composite
def some_symptom(draw: st.DrawFn) -> Symptom:
    return a_symptom(
        draw(st.sampled_from(["f1", "f2"])),
        count=draw(st.integers(1, 9)),
        ended_at=draw(st.none() | seconds.map(lambda s: NOON + timedelta(seconds=s))),
        message=draw(st.sampled_from(["", "a", "b"])),
        severity=draw(st.sampled_from(["warning", "info"])),
    )


def some_series(first: int, length: int) -> MetricSeries:
    times = tuple(NOON.timestamp() + 5 * n for n in range(first, first + length))
    return MetricSeries("up", (("job", "x"),), "gauge", times, tuple(t % 7 for t in times))


pieces = st.lists(
    st.one_of(
        some_change().map(lambda one: Batch(CLUSTER, changes=(one,))),
        some_state().map(lambda one: Batch(CLUSTER, objects=(one,))),
        some_rollout().map(lambda one: Batch(CLUSTER, rollouts=(one,))),
        some_symptom().map(lambda one: Batch(CLUSTER, symptoms=(one,))),
        st.builds(some_series, st.integers(0, 9), st.integers(1, 5)).map(lambda one: Batch(CLUSTER, series=(one,))),
        seconds.map(lambda s: Batch(CLUSTER, gaps=(Gap(CLUSTER, "", NOON, NOON + timedelta(seconds=s), "410"),))),
    ),
    min_size=1,
    max_size=12,
)


def shuffled(told: list[Told]) -> st.SearchStrategy[list[Told]]:
    """The tellings in any order, some of them told twice."""
    return st.lists(st.sampled_from(told), max_size=2).flatmap(lambda again: st.permutations(told + again))


def together(batches: list[Batch]) -> Batch:
    return Batch(
        CLUSTER,
        changes=tuple(one for b in batches for one in b.changes),
        objects=tuple(one for b in batches for one in b.objects),
        rollouts=tuple(one for b in batches for one in b.rollouts),
        symptoms=tuple(one for b in batches for one in b.symptoms),
        series=tuple(one for b in batches for one in b.series),
        gaps=tuple(one for b in batches for one in b.gaps),
    )


async def rows(conn: AsyncConnection, batches: list[Batch]) -> list[object]:
    """What the database holds after these batches, and nothing of it afterwards."""
    savepoint = await conn.begin_nested()
    for batch in batches:
        await record(conn, batch)
    window = (NOON - DAY, NOON + DAY)
    held: list[object] = [
        await changes.read_window(conn, CLUSTER, *window, limit=100),
        # An object that was only mentioned is known since its first mention: that much depends on the order.
        sorted((s for s in await objects.load_cluster(conn, CLUSTER) if s.state), key=lambda s: s.resource),
        await objects.load_states(conn, CLUSTER, [a_resource("a"), a_resource("b")]),
        await rollouts.read_window(conn, CLUSTER, *window),
        await symptoms.read_window(conn, CLUSTER, *window),
        await series.read(conn, CLUSTER, *window),
        await gaps.read_window(conn, CLUSTER, *window),
    ]
    await savepoint.rollback()
    return held


@settings(max_examples=300)
@given(st.lists(some_rollout(), min_size=1, max_size=4).flatmap(lambda told: st.tuples(st.just(told), shuffled(told))))
def test_tellings_of_one_rollout_make_the_same_one_in_any_order(orders: tuple[list[Rollout], list[Rollout]]) -> None:
    one, other = (reduce(merge_rollouts, [replace(told, generation=1) for told in order]) for order in orders)
    assert one == other


@settings(max_examples=300)
@given(st.lists(some_change(), min_size=1, max_size=4).flatmap(lambda told: st.tuples(st.just(told), shuffled(told))))
def test_tellings_of_one_write_make_the_same_one_in_any_order(orders: tuple[list[Change], list[Change]]) -> None:
    one, other = (
        reduce(merge_changes, [replace(told, at=NOON, key=1, resource_version="7") for told in order])
        for order in orders
    )
    assert one == other


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
async def test_any_split_order_and_repetition_gives_the_same_rows(conn: AsyncConnection, data: st.DataObject) -> None:
    batches = data.draw(pieces)
    again = data.draw(st.permutations(batches + data.draw(st.lists(st.sampled_from(batches), max_size=4))))
    cut = data.draw(st.integers(0, len(again)))
    parts = [part for part in (again[:cut], again[cut:]) if part]
    assert await rows(conn, [together(part) for part in parts]) == await rows(conn, batches)
