"""What is told is kept once, and the better telling wins."""

from __future__ import annotations

import random
import string
from datetime import timedelta

import pytest
from msgspec import structs
from psycopg import Cursor
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.model import (
    ActorSource,
    Batch,
    DiffSource,
    Gap,
    MetricSeries,
    Outcome,
    Position,
    Progress,
    Reject,
)
from app.store import calls, changes, gaps, objects, positions, requests, rollouts, series, symptoms
from app.store.record import record
from app.store.seen import read_seen
from tests.samples import plain
from tests.store.factories import (
    CLUSTER,
    NOON,
    a_change,
    a_count,
    a_diff,
    a_request,
    a_resource,
    a_rollout,
    a_state,
    a_symptom,
    an_actor,
)

HOUR = timedelta(hours=1)


async def all_changes(conn: AsyncConnection) -> list[object]:
    return list(await changes.read_window(conn, CLUSTER, NOON - HOUR, NOON + HOUR, limit=1000))


async def test_a_change_comes_back_as_it_was_told(conn: AsyncConnection) -> None:
    told = a_change(begun_by="0" * 28, audit_id="a-1", diffs=(a_diff(), a_diff(new={"a": [1, None]}, old=None)))
    recorded = await record(conn, Batch(CLUSTER, changes=(told,)))
    assert recorded.changes == 1
    assert await all_changes(conn) == [told]


async def test_the_same_batch_twice_adds_nothing(conn: AsyncConnection) -> None:
    batch = Batch(CLUSTER, changes=(a_change(), a_change("8")), objects=(a_state("8"),))
    await record(conn, batch)
    again = await record(conn, batch)
    assert (again.changes, again.improved) == (0, 0)
    assert len(await all_changes(conn)) == 2


async def test_audit_improves_what_a_watch_saw_and_its_time_stays(conn: AsyncConnection) -> None:
    seen = a_change(seconds=0)
    audited = a_change(
        seconds=-0.4,
        actor=an_actor("system:serviceaccount:argocd:argocd", ActorSource.AUDIT, pod="argocd-0"),
        diffs=(),
        diff_source=DiffSource.NONE,
        summary="payments-api was written",
        sources=frozenset({"audit"}),
        audit_id="a-1",
    )
    await record(conn, Batch(CLUSTER, changes=(seen,)))
    recorded = await record(conn, Batch(CLUSTER, changes=(audited,)))
    assert (recorded.changes, recorded.improved) == (0, 1)
    [kept] = await changes.read_window(conn, CLUSTER, NOON - HOUR, NOON + HOUR, limit=10)
    assert (kept.at, kept.id, kept.diffs) == (seen.at, seen.id, seen.diffs)
    assert (kept.actor, kept.audit_id, kept.sources) == (audited.actor, "a-1", frozenset({"audit", "watch"}))
    assert kept.summary == "image of payments-api: v1 → v2"


@pytest.mark.parametrize("named_first", [True, False])
async def test_a_name_that_the_server_made_up_is_kept_once_it_is_told(
    conn: AsyncConnection, *, named_first: bool
) -> None:
    named = a_change(resource=a_resource("build-x7k2p", kind="Job"))
    asked = structs.replace(
        named, resource=a_resource("build-*", kind="Job"), diff_source=DiffSource.NONE, diffs=(), uid=""
    )
    for change in (named, asked) if named_first else (asked, named):
        await record(conn, Batch(CLUSTER, changes=(change,)))
    [kept] = await changes.read_window(conn, CLUSTER, NOON - HOUR, NOON + HOUR, limit=10)
    assert (kept.resource, kept.uid, kept.diffs) == (named.resource, named.uid, named.diffs)


async def test_a_derived_change_is_noise(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, changes=(a_change(), a_change("8", begun_by=a_change().id))))
    rows = await conn.execute(text("SELECT resource_version, noise FROM changes ORDER BY 1"))
    assert rows.all() == [("7", False), ("8", True)]


async def test_the_newest_version_of_an_object_is_kept(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, objects=(a_state("10"),)))
    await record(conn, Batch(CLUSTER, objects=(a_state("9"),)))
    found = await objects.load_states(conn, CLUSTER, [a_resource(), a_resource("other")])
    assert {key: state.resource_version for key, state in found.items()} == {a_resource(): "10"}


async def test_a_deleted_object_stays_deleted_and_its_successor_is_found_by_name(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, objects=(a_state("10", deleted_at=NOON),)))
    await record(conn, Batch(CLUSTER, objects=(a_state("11"),)))
    assert await objects.load_cluster(conn, CLUSTER) == []
    await record(conn, Batch(CLUSTER, objects=(a_state("12", uid="u-2"),)))
    [alive] = await objects.load_cluster(conn, CLUSTER, {("apps", "Deployment")})
    found = await objects.load_states(conn, CLUSTER, [a_resource()])
    assert (alive.uid, found[a_resource()].uid) == ("u-2", "u-2")


async def test_what_stands_beside_an_object_is_of_its_namespace_and_there(conn: AsyncConnection) -> None:
    config = a_resource("settings", kind="ConfigMap")
    here = [a_resource("web"), a_resource("web", kind="Service")]
    others = [a_resource("web", namespace="else"), a_resource("settings-2", kind="ConfigMap")]
    gone = [a_state("9", resource=one, deleted_at=NOON) for one in (config, a_resource("old"))]
    await record(conn, Batch(CLUSTER, objects=(*gone, *(a_state("10", resource=one) for one in (*here, *others)))))
    kinds = {(one.api_group, one.kind) for one in here}
    found = await objects.load_beside(conn, config, kinds, most=2)
    assert set(found.states) == {config, *here}, "its own state is wanted, too, whatever became of it"
    assert not found.is_cut
    fewer = await objects.load_beside(conn, config, kinds, most=1)
    assert len(fewer.states) == 2
    assert fewer.is_cut
    itself = await objects.load_beside(conn, here[0], kinds, most=1)
    assert set(itself.states) == set(here)
    assert not itself.is_cut, "it does not count among those beside it"
    node = a_resource("any", kind="Node", namespace=None)
    assert await objects.load_beside(conn, node, kinds, most=10) == objects.Beside({}, is_cut=False)


async def test_pods_that_went_lately_are_known_for_where_they_ran(conn: AsyncConnection) -> None:
    times = {"early": NOON, "late": NOON + timedelta(minutes=1), "alive": None}
    pods = [a_state("10", resource=a_resource(name, kind="Pod"), uid=name, deleted_at=at) for name, at in times.items()]
    await record(conn, Batch(CLUSTER, objects=(*pods, a_state("11", deleted_at=NOON + timedelta(minutes=1)))))
    [found] = await objects.load_gone_pods(conn, CLUSTER, since=NOON + timedelta(seconds=1))
    assert found.resource.name == "late"


async def test_knowing_only_the_name_does_not_lose_the_state(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, objects=(a_state("10"), a_state("11", state=None))))
    [kept] = await objects.load_cluster(conn, CLUSTER)
    assert (kept.resource_version, kept.state) == ("11", a_state("10").state)


async def test_a_rollout_is_one_row_however_many_saw_it_start(conn: AsyncConnection) -> None:
    step = Progress(NOON + timedelta(seconds=30), 4, 2, 1)
    first = a_rollout(images=("app:v2",), images_before=("app:v1",), change_id="c" * 28)
    await record(conn, Batch(CLUSTER, rollouts=(first,)))
    done = a_rollout(seconds=0.5, outcome=Outcome.COMPLETE, ended_at=NOON + HOUR, progress=(step,))
    await record(conn, Batch(CLUSTER, rollouts=(done,)))
    [kept] = await rollouts.read_window(conn, CLUSTER, NOON - HOUR, NOON + HOUR)
    assert (kept.started_at, kept.outcome, kept.progress) == (NOON, Outcome.COMPLETE, (step,))
    assert (kept.images, kept.change_id) == (("app:v2",), "c" * 28)


async def test_a_repeated_symptom_raises_its_count(conn: AsyncConnection) -> None:
    labelled = a_symptom(resource=a_resource(), labels=(("alertname", "Down"),))
    await record(conn, Batch(CLUSTER, symptoms=(labelled, a_symptom(count=5))))
    await record(conn, Batch(CLUSTER, symptoms=(a_symptom(count=3, ended_at=NOON + HOUR),)))
    [kept] = await symptoms.read_window(conn, CLUSTER, NOON, NOON)
    assert (kept.count, kept.ended_at, kept.resource) == (5, NOON + HOUR, a_resource())
    assert kept.labels == (("alertname", "Down"),)


async def test_calls_of_one_slot_add_up(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, calls=(a_count(count=2), a_count(1), a_count(0, user="bob"))))
    recorded = await record(conn, Batch(CLUSTER, calls=(a_count(count=3, latency_us=100),)))
    assert recorded.calls == 3
    read = await calls.read(conn, CLUSTER, NOON, NOON + timedelta(minutes=1))
    assert sorted(read, key=lambda c: (c.slot, c.key.user)) == [
        a_count(0, user="bob"),
        a_count(0, count=5, latency_us=1000),
        a_count(1),
    ]
    later = await calls.read(conn, CLUSTER, NOON + timedelta(seconds=5), NOON + timedelta(seconds=10))
    assert list(later) == [a_count(1)]


async def test_calls_are_told_apart_by_what_they_waited_for(conn: AsyncConnection) -> None:
    waited = a_count(count=2)
    waited = structs.replace(waited, key=structs.replace(waited.key, waited_for="etcd"))
    await record(conn, Batch(CLUSTER, calls=(a_count(), waited)))
    read = await calls.read(conn, CLUSTER, NOON, NOON + timedelta(minutes=1))
    assert {count.key.waited_for: count.count for count in read} == {"": 1, "etcd": 2}


async def test_what_only_adds_up_is_counted_once_for_its_position(conn: AsyncConnection) -> None:
    reject = Reject("audit.jsonl", 3, 1, "not JSON", "{")
    batch = Batch(
        CLUSTER, calls=(a_count(),), requests=(a_request(),), rejects=(reject,), positions=(Position("h", "p", 10, 1),)
    )
    first = await record(conn, batch)
    again = await record(conn, batch)
    assert (first.calls, first.requests, first.rejects, first.repeated) == (1, 1, 1, False)
    assert (again.calls, again.requests, again.rejects, again.repeated) == (0, 0, 0, True)
    assert await requests.read(conn, CLUSTER, NOON, NOON, limit=10) == [a_request()]


async def test_that_something_cannot_be_read_is_said_of_its_cluster(conn: AsyncConnection) -> None:
    async def said() -> list[str]:
        return (await read_seen(conn, CLUSTER, from_at=None, to_at=None)).remarks(CLUSTER)

    cut = Reject("audit.jsonl", 3, 1, "it ends within an event", "{", again=True)
    await record(conn, Batch(CLUSTER, rejects=(cut,)))
    assert await said() == [], "it goes on with the file"
    await record(conn, Batch(CLUSTER, rejects=(Reject("audit webhook", 1, 1, "not JSON", "x"), cut)))
    [remark] = await said()
    assert remark.startswith("some of what was told cannot be read, and stands in quarantine, since ")
    assert remark.endswith(": audit webhook, line 1: not JSON")


async def test_positions_only_move_forward(conn: AsyncConnection) -> None:
    await record(conn, Batch(CLUSTER, positions=(Position("h", "p", 10, 1),)))
    await record(conn, Batch(CLUSTER, positions=(Position("h", "p", 20, 2, done=True),)))
    await record(conn, Batch(CLUSTER, positions=(Position("h", "p", 15, 1),)))
    assert await positions.read_positions(conn, CLUSTER) == {"h": Position("h", "p", 20, 2, done=True)}
    assert await positions.read_positions(conn, "south") == {}


async def test_a_batch_asks_for_its_own_positions_alone(conn: AsyncConnection) -> None:
    many = tuple(Position(f"old {n}", "p", n, 1, done=True, size=n) for n in range(1, 301))
    await record(conn, Batch(CLUSTER, positions=many))
    fetched: list[int] = []

    def executed(_conn: object, cursor: Cursor[object], statement: str, *_: object) -> None:
        if statement.startswith("SELECT") and "import_positions" in statement:
            fetched.append(cursor.rowcount)

    event.listen(conn.sync_connection, "after_cursor_execute", executed)
    batch = Batch(CLUSTER, calls=(a_count(),), positions=(Position("old 7", "p", 7, 1, done=True),))
    assert (await record(conn, batch)).repeated
    assert await positions.read_positions(conn, CLUSTER, {"old 9", "new"}) == {"old 9": many[8]}
    assert fetched == [1, 1]
    assert len(await positions.read_positions(conn, CLUSTER)) == 300
    assert await positions.read_sizes(conn, CLUSTER) == {n: {f"old {n}"} for n in range(1, 301)}


async def test_samples_come_back_once_and_only_from_the_window(conn: AsyncConnection) -> None:
    start = NOON.timestamp() + 3590  # across an hour
    whole = MetricSeries("up", (("job", "api"),), "gauge", (start, start + 5, start + 15), (1.0, 0.5, 0.0))
    part = MetricSeries("up", (("job", "api"),), "gauge", (start + 5, start + 15), (0.5, 0.0))
    await record(conn, Batch(CLUSTER, series=(whole,)))
    await record(conn, Batch(CLUSTER, series=(part, whole)))
    assert plain(await series.read(conn, CLUSTER, NOON, NOON + 2 * HOUR)) == [whole]
    assert plain(await series.read(conn, CLUSTER, NOON + timedelta(seconds=3594), NOON + 2 * HOUR)) == [part]


async def test_a_gap_told_again_grows(conn: AsyncConnection) -> None:
    short = Gap(CLUSTER, "", NOON, NOON + timedelta(seconds=5), "410")
    long = Gap(CLUSTER, "", NOON, NOON + HOUR, "410")
    for gap in (short, long, short):
        await record(conn, Batch(CLUSTER, gaps=(gap,)))
    assert await gaps.read_window(conn, CLUSTER, NOON + timedelta(minutes=1), NOON + HOUR) == [long]


async def test_hostile_text_is_stored_and_stops_nothing(conn: AsyncConnection) -> None:
    nasty = "a\x00b\ud800"
    diff = a_diff(new={nasty: nasty, "n": 10**40, "f": 1e300})
    told = a_change(diffs=(diff,), summary=nasty, resource=a_resource(nasty))
    state = a_state(state={"metadata": {"annotations": {nasty: nasty}}})
    await record(conn, Batch(CLUSTER, changes=(told,), objects=(state,), calls=(a_count(user=nasty),)))
    [kept] = await changes.read_window(conn, CLUSTER, NOON, NOON, limit=1)
    assert kept.summary == "a\ufffdb\ufffd"
    assert kept.resource.name == "a\ufffdb\ufffd"
    [read] = await calls.read(conn, CLUSTER, NOON, NOON + HOUR)
    assert read.key.user == "a\ufffdb\ufffd"


async def test_what_is_large_is_read_without_its_values_where_that_is_asked_for(conn: AsyncConnection) -> None:
    noise = "".join(random.Random(1).choices(string.printable, k=20_000))
    large = a_change("9", diffs=(a_diff(old=noise, new=noise + "!"), a_diff()))
    small = a_change("8")
    states = (a_state("8"), a_state("9", resource=a_resource("large"), uid="u-2", state={"data": noise}))
    await record(conn, Batch(CLUSTER, changes=(large, small), objects=states))
    window = (CLUSTER, NOON - HOUR, NOON + HOUR)
    found = {c.resource_version: c for c in await changes.read_window(conn, *window, limit=9, most_bytes=10_000)}
    assert found["8"] == small
    assert [(d.path, d.op, d.old, d.new) for d in found["9"].diffs] == [(d.path, d.op, None, None) for d in large.diffs]
    assert {c.resource_version: c.diffs for c in await changes.read_window(conn, *window, limit=9)}["9"] == large.diffs
    ranked = await objects.load_ranked(conn, CLUSTER, changed=(), most_bytes=10_000)
    names = [one.resource.name for one in ranked]
    assert "large" not in names
    assert len(names) + 1 == len(await objects.load_cluster(conn, CLUSTER))


async def test_of_revisions_those_are_read_to_rank_of_which_something_changed(conn: AsyncConnection) -> None:
    owned = {"cart-7d4": "cart", "cart-9c1": "cart", "login-5f2": "login"}
    states = [
        a_state(resource=structs.replace(a_resource(one), kind="ReplicaSet"), uid=one, owner_name=owner)
        for one, owner in owned.items()
    ]
    await record(conn, Batch(CLUSTER, objects=(a_state("2"), *states)))

    async def ranked(*changed: str) -> set[str]:
        found = await objects.load_ranked(conn, CLUSTER, changed=changed, most_bytes=10_000)
        return {one.resource.name for one in found if one.resource.kind == "ReplicaSet"}

    assert await ranked() == set()
    assert await ranked("cart") == {"cart-7d4", "cart-9c1"}
    assert await ranked("login-5f2", "cart-7d4") == {"login-5f2", "cart-7d4"}
    assert len(await objects.load_ranked(conn, CLUSTER, changed=(), most_bytes=10_000)) == 1
