"""What the store remembers of the suspects' objects."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app import correlate
from app.core.findings import Opinion, Verdict
from app.core.model import Batch, Change
from app.core.ranking.precedents import ELSEWHERE, HARM, Memory, Precedent
from app.store import tables, verdicts
from app.store.precedents import read_memory
from app.store.record import record
from tests.core.factories import an_alert
from tests.store.factories import CLUSTER, NOON, a_change, a_diff, a_resource

DAY = timedelta(days=1)
SUSPECT = a_change("9", seconds=-60)


async def told(conn: AsyncConnection, *changes: Change, cluster: str = CLUSTER) -> None:
    there = tuple(replace(one, resource=replace(one.resource, cluster=cluster)) for one in changes)
    await record(conn, Batch(cluster, changes=there))


async def alerted(conn: AsyncConnection, at: datetime, *, cluster: str = CLUSTER) -> str:
    alert = an_alert(at, name=f"Alert{at:%d%H%M%S}", namespace=f"of-{at:%d%H%M%S}")
    await record(conn, Batch(cluster, symptoms=(alert,)))
    (incident,) = await correlate.open_incidents(conn, cluster, [alert])
    return incident.id


async def memory(conn: AsyncConnection, *suspects: Change, incident: str = "", **more: Any) -> Memory:
    asked: dict[str, Any] = {"cluster": CLUSTER, "before": NOON - DAY / 2, "now": NOON, "most_bytes": 64 << 10} | more
    return await read_memory(conn, incident, suspects or (SUSPECT,), **asked)


def by_version(found: Memory) -> dict[str, Precedent]:
    return {one.change.resource_version: one for one in found.precedents}


async def test_earlier_changes_of_the_object_and_of_its_like_elsewhere_are_found(conn: AsyncConnection) -> None:
    earlier = a_change("5", seconds=-2 * 86_400)
    within = a_change("8", seconds=-3600)
    other = a_change("6", seconds=-2 * 86_400, resource=a_resource("ledger"), uid="u-2")
    made_again = a_change("4", seconds=-3 * 86_400, uid="u-0")
    node = a_change("3", seconds=-4 * 86_400, resource=a_resource("n-1", kind="Node", namespace=None), uid="u-3")
    await told(conn, earlier, within, other, made_again, node, SUSPECT)
    await told(conn, a_change("105", seconds=-1800), cluster="south")
    await told(conn, a_change("106", seconds=-1800, resource=a_resource(namespace="else"), uid="u-4"), cluster="south")
    found = await memory(conn)
    assert by_version(found).keys() == {"4", "5", "105"}
    assert {one.change.resource.cluster for one in found.precedents} == {CLUSTER, "south"}
    assert by_version(await memory(conn, node)).keys() == {"3"}


async def test_many_clusters_do_not_crowd_out_its_own(conn: AsyncConnection) -> None:
    """Of an object of its name elsewhere the newest few tell whether the same was done there."""
    for cluster in (CLUSTER, "east", "south"):
        await told(conn, *(a_change(str(n), seconds=-86_400 - n) for n in range(ELSEWHERE + 5)), cluster=cluster)
    found = await memory(conn)
    counted = Counter(one.change.resource.cluster for one in found.precedents)
    assert counted == {CLUSTER: ELSEWHERE + 5, "east": ELSEWHERE, "south": ELSEWHERE}
    newest = {one.change.resource_version for one in found.precedents if one.change.resource.cluster == "south"}
    assert newest == {str(n) for n in range(ELSEWHERE)}


async def test_without_suspects_there_is_nothing_to_remember(conn: AsyncConnection) -> None:
    nothing = await read_memory(conn, "", (), cluster=CLUSTER, before=NOON, now=NOON, most_bytes=1)
    assert nothing == Memory()


async def test_what_controllers_derived_and_what_is_too_old_is_left_out(conn: AsyncConnection) -> None:
    await told(
        conn,
        a_change("1", seconds=-91 * 86_400),
        a_change("2", seconds=-2 * 86_400, begun_by="0" * 28),
        a_change("3", seconds=-89 * 86_400),
    )
    assert by_version(await memory(conn)).keys() == {"3"}


@pytest.mark.parametrize(
    ("later", "harmed"), [(HARM - timedelta(seconds=1), True), (HARM + timedelta(seconds=1), False)]
)
async def test_an_incident_soon_after_counts_against_it(
    conn: AsyncConnection, *, later: timedelta, harmed: bool
) -> None:
    at = NOON - 2 * DAY
    await told(conn, a_change("5", seconds=-2 * 86_400))
    await told(conn, a_change("105", seconds=-2 * 86_400), cluster="south")
    own = await alerted(conn, at + later)
    await record(conn, Batch(CLUSTER, read_to=(("watch", NOON),)))
    found = by_version(await memory(conn))
    assert bool(found["5"].incident) is harmed
    assert (found["5"].alerted, found["105"].alerted, found["105"].incident) == (True, False, "")
    assert by_version(await memory(conn, incident=own))["5"].incident == "", "an incident is none of its own precedents"


@pytest.mark.parametrize(("recorded_for", "known"), [(HARM, True), (HARM - timedelta(minutes=1), False)])
async def test_a_cluster_that_is_not_recorded_after_it_says_nothing(
    conn: AsyncConnection, recorded_for: timedelta, *, known: bool
) -> None:
    at = NOON - 2 * DAY
    await told(conn, a_change("105", seconds=-2 * 86_400), cluster="south")
    await alerted(conn, at - DAY, cluster="south")
    await record(conn, Batch("south", read_to=(("watch", at + recorded_for), ("external", NOON))))
    assert by_version(await memory(conn))["105"].alerted is known


async def test_what_people_said_is_found_but_for_the_incident_itself(conn: AsyncConnection) -> None:
    earlier = a_change("5", seconds=-2 * 86_400)
    await told(conn, earlier, SUSPECT)
    one, other = await alerted(conn, NOON - DAY), await alerted(conn, NOON)
    await verdicts.say(conn, one, Verdict(earlier.id, Opinion.IT, "alice", NOON))
    await verdicts.say(conn, one, Verdict(SUSPECT.id, Opinion.NOT_IT, "alice", NOON))
    await verdicts.say(conn, other, Verdict(SUSPECT.id, Opinion.IT, "alice", NOON))
    found = await memory(conn, incident=other)
    assert by_version(found)["5"].said == (Opinion.IT,)
    assert found.said == ((SUSPECT.id, Opinion.NOT_IT),)


async def test_what_is_merged_is_one_incident_of_which_the_last_counts(conn: AsyncConnection) -> None:
    earlier = a_change("5", seconds=-2 * 86_400)
    await told(conn, earlier, SUSPECT)
    part, whole, other = [await alerted(conn, NOON - days * DAY) for days in (1.2, 1, 0)]
    await conn.execute(tables.incidents.update().where(tables.incidents.c.id == part).values(merged_into=whole))
    for minutes, one, opinion in ((0, part, Opinion.IT), (1, whole, Opinion.NOT_IT)):
        await verdicts.say(conn, one, Verdict(earlier.id, opinion, "alice", NOON + timedelta(minutes=minutes)))
    assert by_version(await memory(conn, incident=other))["5"].said == (Opinion.NOT_IT,)
    assert by_version(await memory(conn, incident=whole))["5"].said == (), "what was said of its part was said of it"


async def test_the_record_begins_with_what_was_seen_not_with_what_is_remembered(
    conn: AsyncConnection,
) -> None:
    await told(
        conn,
        a_change("1", seconds=-30 * 86_400, sources=frozenset({"history"})),
        a_change("2", seconds=-20 * 86_400),
        a_change("3", seconds=-10 * 86_400),
    )
    assert (await memory(conn)).since == NOON - 20 * DAY
    assert (await memory(conn, cluster="nowhere")).since is None


async def test_of_large_values_the_fields_are_told(conn: AsyncConnection) -> None:
    await told(conn, a_change("5", seconds=-2 * 86_400, diffs=(a_diff("new" * 100, "old" * 100),)))
    (diff,) = by_version(await memory(conn, most_bytes=20))["5"].change.diffs
    assert (diff.path, diff.old, diff.new) == (a_diff().path, None, None)
