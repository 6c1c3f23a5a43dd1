"""The words of watches into a real database: changes, what went unseen, gaps, and how far each kind is watched."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.collect import told
from app.collect.follow import Follower
from app.collect.spool import Spool
from app.collect.words import Begun, Lost, Reached, Resumed, Saw, Served, Synced, Unreadable, Word
from app.core.model import ActorSource, Verb
from app.store import collectors, objects, watches
from app.store.collectors import Standing
from tests.collect.test_follow import follower, send, spool
from tests.collect.test_importer import T0, Lab, audited, deployment, lab

__all__ = ["lab", "spool"]
DEPLOYMENTS = Served("apps", "v1", "Deployment", "deployments")
CONFIG_MAPS = Served("", "v1", "ConfigMap", "configmaps")
EVENTS = Served("", "v1", "Event", "events")
EPOCH = 1


def at(second: float) -> datetime:
    return T0 + timedelta(seconds=second)


def seen(second: float, body: dict[str, Any], *, kind: str = "MODIFIED", first: bool = False) -> Saw:
    return Saw(at(second), kind, json.dumps(body).encode(), body["metadata"]["resourceVersion"], first=first)


def listed(second: float, *bodies: dict[str, Any], version: int) -> list[Word]:
    """What there is, from beginning to end."""
    found = [seen(second, body, kind="ADDED", first=True) for body in bodies]
    return [Begun(at(second)), *found, Synced(at(second), str(version))]


def config_map(name: str, version: int, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)}
    metadata["creationTimestamp"] = "2026-11-20T00:00:00Z"
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}


def a_deep_object(name: str) -> bytes:
    """As an API server tells of one that is 100,000 maps deep, its managedFields too, which stand before its name."""
    owners = b'"ownerReferences":[{"kind":"Widget","name":"w","uid":"uid-w"}]'
    managed = b'[{"fieldsV1":{"f:data":%s}}]' % (b'{"f:a":' * 100_000 + b"{}" + b"}" * 100_000)
    named = b'"name":"%s","namespace":"shop",%s,"resourceVersion":"8","uid":"uid-%s"' % (
        name.encode(),
        owners,
        name.encode(),
    )
    noted = b'"annotations":{"name":"not me","note":"\\"}{\\\\"}'
    return b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s,"managedFields":%s,%s},"data":%s}' % (
        noted,
        managed,
        named,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    )


def say(spool: Spool, served: Served, *words: Word) -> None:
    for word in words:
        spool.append(told.encode(told.Watched(served, word, EPOCH)), durable=False)


async def drained(lab: Lab, spool: Spool, one: Follower | None = None) -> list[Served]:
    """Record all that lies in the spool, as after a start of the program; the kinds that are asked for again.

    With ``one`` as the same program goes on.
    """
    asked = list[Served]()
    if one is None:
        async with lab.database.write.begin() as conn:
            await collectors.take(conn, lab.cluster, spool.identity)
    one = one or follower(lab, spool)
    one.on_unsynced = asked.append
    while spool.size:
        await one.round()
    return asked


async def positions(lab: Lab) -> dict[tuple[str, str], watches.WatchPosition]:
    async with lab.database.read.connect() as conn:
        return await watches.read(conn, lab.cluster)


async def summaries(lab: Lab) -> list[str]:
    return [change.summary for change in await lab.stored()]


async def test_what_a_watch_sees_are_changes_and_how_far_it_came_is_kept(lab: Lab, spool: Spool) -> None:
    say(spool, DEPLOYMENTS, *listed(0, deployment(11, "web:1"), version=11), seen(10, deployment(12, "web:2")))
    say(spool, DEPLOYMENTS, Reached(at(60), "20"))
    await drained(lab, spool)
    [change] = await lab.stored()
    assert change.summary.startswith("image of web: 1 → 2")
    assert change.actor.source is ActorSource.MANAGED_FIELDS
    assert await positions(lab) == {("apps", "deployments"): watches.WatchPosition("20", at(60))}
    assert [tuple(row) for row in await lab.rows("recorded", "source, to_at")] == [("watch", at(60))]


async def test_the_audit_event_and_the_watch_event_of_a_write_are_one_change(lab: Lab, spool: Spool) -> None:
    say(spool, DEPLOYMENTS, *listed(0, deployment(11, "web:1"), version=11), seen(10.1, deployment(12, "web:2")))
    send(spool, [audited(10, 12, "web:2")])
    await drained(lab, spool)
    [change] = await lab.stored()
    assert (change.actor.name, change.sources) == ("alice", frozenset({"audit", "watch"}))


async def test_after_a_loss_what_changed_and_went_is_told_with_the_gap(lab: Lab, spool: Spool) -> None:
    before = [config_map("changed", 5, a="1"), config_map("gone", 6), config_map("same", 7)]
    say(spool, CONFIG_MAPS, *listed(0, *before, version=9), Reached(at(60), "12"))
    await drained(lab, spool)
    say(spool, CONFIG_MAPS, Lost(at(300), "the watch cannot go on: too old resource version"))
    after = [config_map("changed", 15, a="2"), config_map("same", 7)]
    say(spool, CONFIG_MAPS, *listed(310, *after, version=20))
    await drained(lab, spool)
    changed, gone = sorted(await lab.stored(), key=lambda one: one.resource.name)
    assert (changed.verb, changed.resource.name, changed.diffs[0].new) == (Verb.UPDATE, "changed", "2")
    assert (gone.verb, gone.resource.name, gone.at) == (Verb.DELETE, "gone", at(310))
    assert "between" in changed.summary
    assert "between" in gone.summary
    assert {changed.since, gone.since} == {at(60)}, "until then all was known, whoever had said something last"
    [gap] = await lab.rows("gaps", "kind, from_at, to_at, why")
    assert tuple(gap) == ("ConfigMap", at(60), at(310), "the watch cannot go on: too old resource version")
    assert (await positions(lab))["", "configmaps"] == watches.WatchPosition("20", at(310))


def stamped(body: dict[str, Any], *, wrote: float | None = None, created: float | None = None) -> dict[str, Any]:
    """An object whose metadata says when it was created, and when it was last written, in whole seconds."""
    if created is not None:
        body["metadata"]["creationTimestamp"] = f"{at(created):%Y-%m-%dT%H:%M:%SZ}"
    if wrote is not None:
        fields: dict[str, Any] = {"f:data": {"f:a": {}}}
        entry = {"manager": "kubectl", "operation": "Update", "time": f"{at(wrote):%Y-%m-%dT%H:%M:%SZ}"}
        body["metadata"]["managedFields"] = [
            {**entry, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
        ]
    return body


async def test_what_is_told_after_a_break_is_dated_by_its_own_times(lab: Lab, spool: Spool) -> None:
    say(
        spool,
        CONFIG_MAPS,
        *listed(0, config_map("a", 5, a="1"), config_map("gone", 6), version=9),
        Reached(at(60), "10"),
    )
    await drained(lab, spool)
    say(
        spool,
        CONFIG_MAPS,
        Resumed(at(600)),
        seen(600, stamped(config_map("a", 11, a="2"), wrote=200)),
        seen(600, stamped(config_map("a", 12, a="3"), wrote=200)),
        seen(601, stamped(config_map("made", 13, a="1"), created=300, wrote=300), kind="ADDED"),
        seen(601, config_map("gone", 14), kind="DELETED"),
        Reached(at(660), "20"),
        seen(700, stamped(config_map("a", 21, a="4"), wrote=650)),
    )
    await drained(lab, spool)
    found = sorted(await lab.stored(), key=lambda one: int(one.resource_version))
    micro = timedelta(microseconds=1)
    assert [(one.verb.value, one.resource.name, one.at, one.since) for one in found] == [
        ("update", "a", at(200), None),
        ("update", "a", at(200) + micro, None),
        ("create", "made", at(300), None),
        ("delete", "gone", at(601), at(300)),
        ("update", "a", at(700), None),
    ]
    assert await lab.rows("gaps") == [(0,)]


async def test_what_was_created_unseen_is_found_in_the_next_set_by_another_process(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0, stamped(config_map("old", 5), created=-9000), version=9))
    await drained(lab, spool)
    young, older = stamped(config_map("young", 15), created=120), stamped(config_map("older", 3), created=-60)
    say(
        spool,
        CONFIG_MAPS,
        Lost(at(300), "410"),
        *listed(310, stamped(config_map("old", 5), created=-9000), young, older, version=20),
    )
    await drained(lab, spool)
    [made] = await lab.stored()
    assert (made.verb, made.resource.name, made.at) == (Verb.CREATE, "young", at(120))


@pytest.mark.parametrize(("minutes", "gaps"), [(29, 0), (31, 1)])
async def test_events_that_are_still_there_were_not_missed(lab: Lab, spool: Spool, minutes: int, gaps: int) -> None:
    end = 60 * minutes
    say(spool, EVENTS, *listed(0, version=9), Lost(at(end), "410"), *listed(end, version=20))
    await drained(lab, spool)
    assert await lab.rows("gaps") == [(gaps,)]


async def test_a_loss_is_remembered_until_all_is_known_again(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 5), version=9), Lost(at(300), "410"))
    await drained(lab, spool)
    assert (await positions(lab))["", "configmaps"] == watches.WatchPosition("", at(0), "410")
    say(spool, CONFIG_MAPS, *listed(320, config_map("a", 5), version=20))
    await drained(lab, spool)
    [gap] = await lab.rows("gaps", "from_at, to_at")
    assert tuple(gap) == (at(0), at(320))


async def test_what_came_and_went_within_one_batch_is_told_too(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0, version=9), seen(5, config_map("brief", 10), kind="ADDED"))
    say(spool, CONFIG_MAPS, Lost(at(60), "410"), *listed(70, version=20))
    await drained(lab, spool)
    [gone] = [change for change in await lab.stored() if change.verb is Verb.DELETE]
    assert gone.resource.name == "brief"


async def test_a_set_whose_beginning_is_forgotten_takes_nothing_away_and_is_asked_for_again(
    lab: Lab, spool: Spool
) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 5), config_map("b", 6), version=9), Lost(at(60), "410"))
    begun, first, second, synced = listed(70, config_map("a", 5), config_map("b", 6), version=20)
    say(spool, CONFIG_MAPS, begun, first)
    await drained(lab, spool)
    say(spool, CONFIG_MAPS, second, synced)
    assert await drained(lab, spool) == [CONFIG_MAPS]
    assert await lab.stored() == []
    assert await lab.rows("gaps") == [(0,)]
    assert (await positions(lab))["", "configmaps"].lost == "410"


@pytest.mark.parametrize("poison", [b'{"metadata":{"name":7}}', b"<html>"])
async def test_what_cannot_be_read_in_a_set_is_not_taken_for_gone(lab: Lab, spool: Spool, poison: bytes) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 5), config_map("b", 6), version=9))
    begun, first, synced = listed(70, config_map("a", 5), version=20)
    is_object = poison.startswith(b"{")
    word = Saw(at(70), "ADDED", poison, "6", first=True) if is_object else Unreadable(at(70), poison, "not JSON")
    say(spool, CONFIG_MAPS, begun, first, word, synced)
    await drained(lab, spool)
    assert await lab.stored() == []
    assert await lab.rows("quarantine") == [(1,)]


@pytest.mark.parametrize("is_event", [True, False])
async def test_beside_an_object_that_is_too_deep_to_be_read_the_others_are_found_gone(
    lab: Lab, spool: Spool, *, is_event: bool
) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 5), config_map("b", 6), config_map("c", 7), version=9))
    begun, first, synced = listed(70, config_map("a", 5), version=20)
    now_deep = a_deep_object("b")
    line = b'{"type":"ADDED","object":%s}' % now_deep if is_event else now_deep
    say(spool, CONFIG_MAPS, begun, first, Unreadable(at(70), line, "too deep"), synced)
    await drained(lab, spool)
    assert [(one.verb, one.resource.name) for one in await lab.stored()] == [(Verb.DELETE, "c")]
    assert await lab.rows("quarantine") == [(1,)]


async def test_what_took_a_name_within_a_second_of_the_break_came_after_it(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0.9, config_map("a", 5), version=9), Lost(at(1), "410"))
    remade = config_map("a", 15)
    remade["metadata"] |= {"uid": "uid-other", "creationTimestamp": f"{T0:%Y-%m-%dT%H:%M:%SZ}"}
    say(spool, CONFIG_MAPS, *listed(70, remade, version=20))
    await drained(lab, spool)
    found = await lab.stored()
    assert [one.verb for one in found] == [Verb.DELETE, Verb.CREATE]
    assert [one.at for one in found] == [at(0.9), at(0.9) + timedelta(microseconds=1)]


async def test_a_set_that_begins_anew_counts_from_there(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 5), config_map("b", 6), version=9))
    begun, first, _, _ = listed(70, config_map("a", 5), config_map("b", 6), version=20)
    say(spool, CONFIG_MAPS, begun, first, *listed(80, config_map("b", 6), version=21))
    await drained(lab, spool)
    assert [(one.verb, one.resource.name) for one in await lab.stored()] == [(Verb.DELETE, "a")]


async def test_a_relist_that_finds_all_as_it_was_makes_no_change(lab: Lab, spool: Spool) -> None:
    same = listed(0, config_map("a", 5, x="1"), version=9)
    say(spool, CONFIG_MAPS, *same, *same)
    await drained(lab, spool)
    say(spool, CONFIG_MAPS, *listed(100, config_map("a", 5, x="1"), version=30))
    await drained(lab, spool)
    assert await lab.stored() == []
    assert await lab.rows("gaps") == [(0,)]


@pytest.mark.parametrize(
    "poison",
    [
        Unreadable(T0, b"<html>", "not JSON"),
        Saw(T0, "MODIFIED", b'{"kind":"ConfigMap","metadata":{"name":7}}', "8"),
        Saw(T0, "MODIFIED", b'{"metadata":{"name":"x"}}', "8"),
        Saw(T0, "MODIFIED", b"7", "8"),
    ],
)
async def test_a_poison_object_is_kept_aside_and_the_next_is_recorded(lab: Lab, spool: Spool, poison: Word) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 5, x="1"), version=9), poison)
    say(spool, CONFIG_MAPS, seen(10, config_map("a", 12, x="2")))
    await drained(lab, spool)
    assert len(await lab.stored()) == 1
    assert await lab.rows("quarantine") == [(1,)]


async def test_a_kind_that_was_added_makes_changes_and_an_excluded_one_none(lab: Lab, spool: Spool) -> None:
    stats = Served("shop.example", "v1", "StatMetrics", "statmetrics")
    kind = {"kind": "StatMetrics", "apiVersion": "shop.example/v1"}
    first, then = ({**config_map("daily", 10 + n, a=str(n)), **kind} for n in (1, 2))
    say(spool, stats, *listed(0, first, version=11), seen(10, then))
    say(spool, CONFIG_MAPS, *listed(0, config_map("flags", 11, a="1"), version=11), seen(10, config_map("flags", 13)))
    async with lab.database.write.begin() as conn:
        await collectors.take(conn, lab.cluster, spool.identity)
    one = follower(lab, spool)
    one.want(add=("statmetrics.shop.example",), exclude=("configmaps",))
    await drained(lab, spool, one)
    assert [change.resource.name for change in await lab.stored()] == ["daily"]


async def test_kinds_that_are_wanted_later_make_changes_from_then_on(lab: Lab, spool: Spool) -> None:
    async with lab.database.write.begin() as conn:
        await collectors.take(conn, lab.cluster, spool.identity)
    one = follower(lab, spool)
    say(spool, CONFIG_MAPS, *listed(0, config_map("flags", 11, a="1"), version=11))
    say(spool, CONFIG_MAPS, seen(10, config_map("flags", 12, a="2")))
    await drained(lab, spool, one)
    one.want(add=(), exclude=("configmaps",))
    say(spool, CONFIG_MAPS, seen(20, config_map("flags", 13, a="3")))
    await drained(lab, spool, one)
    one.want(add=(), exclude=())
    say(spool, CONFIG_MAPS, seen(30, config_map("flags", 14, a="4")))
    await drained(lab, spool, one)
    assert sorted(str(change.diffs[0].new) for change in await lab.stored()) == ["2", "4"]


async def lose_turn(lab: Lab) -> None:
    """Another process follows the cluster from now on."""
    async with lab.database.write.begin() as conn:
        await collectors.leave(conn, lab.cluster, EPOCH, standing=Standing.LEFT)
        assert await collectors.take(conn, lab.cluster, "another") == EPOCH + 1


async def test_what_was_heard_in_a_turn_that_is_over_is_left_to_the_next(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 5, a="1"), version=9))
    await drained(lab, spool)
    say(spool, CONFIG_MAPS, seen(10, config_map("a", 10, a="2")), Reached(at(60), "20"))
    send(spool, [audited(10, 12, "web:2")])
    await lose_turn(lab)
    while spool.size:
        await follower(lab, spool).round()
    assert [change.resource.kind for change in await lab.stored()] == ["Deployment"]
    assert await positions(lab) == {("", "configmaps"): watches.WatchPosition("9", at(0))}


async def test_a_batch_that_outlasts_its_turn_is_not_recorded(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 5, a="1"), version=9))
    await drained(lab, spool)
    say(spool, CONFIG_MAPS, seen(10, config_map("a", 10, a="2")))
    slow = Follower(lab.database.write, lab.cluster, spool, held=timedelta(seconds=3), idle=timedelta(0))
    learning = asyncio.create_task(slow.round())
    await asyncio.sleep(1)
    await lose_turn(lab)
    await learning
    assert await lab.stored() == []
    while spool.size:
        await slow.round()
    assert await lab.stored() == []
    assert await positions(lab) == {("", "configmaps"): watches.WatchPosition("9", at(0))}


async def test_an_object_that_made_room_for_another_of_its_name_is_known_to_be_gone(lab: Lab, spool: Spool) -> None:
    first, second = config_map("prices", 11, a="1"), config_map("prices", 14, a="2")
    second["metadata"]["uid"] = "uid-again"
    first_end = config_map("prices", 12, a="1")
    words = [seen(3, first_end, kind="DELETED"), seen(4, second, kind="ADDED")]
    say(spool, CONFIG_MAPS, *listed(0, first, version=11), *words)
    await drained(lab, spool)
    async with lab.database.read.connect() as conn:
        assert [one.uid for one in await objects.load_cluster(conn, lab.cluster)] == ["uid-again"]
    say(spool, CONFIG_MAPS, Lost(at(5), "compacted"), *listed(6, second, version=20))
    await drained(lab, spool)
    assert [one.verb for one in await lab.stored() if one.uid == "uid-prices"] == [Verb.DELETE], "not gone twice"


async def test_an_object_that_another_one_replaced_unseen_is_gone_and_was_gone_before(lab: Lab, spool: Spool) -> None:
    first, second = config_map("prices", 11, a="1"), config_map("prices", 14, a="2")
    second["metadata"] |= {"uid": "uid-again", "creationTimestamp": f"{at(30):%Y-%m-%dT%H:%M:%SZ}"}
    say(spool, CONFIG_MAPS, *listed(0, first, version=11), Lost(at(5), "compacted"), *listed(60, second, version=20))
    await drained(lab, spool)
    async with lab.database.read.connect() as conn:
        assert [one.uid for one in await objects.load_cluster(conn, lab.cluster)] == ["uid-again"]
    found = await lab.stored()
    assert [(one.verb, one.uid) for one in found] == [(Verb.DELETE, "uid-prices"), (Verb.CREATE, "uid-again")]
    assert found[0].at < found[1].at <= at(30)


async def test_what_is_late_and_says_no_time_was_before_what_is_told_after_it(lab: Lab, spool: Spool) -> None:
    first, second = config_map("prices", 11, a="1"), config_map("prices", 14, a="2")
    second["metadata"] |= {"uid": "uid-again", "creationTimestamp": f"{at(30):%Y-%m-%dT%H:%M:%SZ}"}
    end = config_map("prices", 12, a="1")
    told_late: list[Word] = [
        Resumed(at(60)),
        seen(60, end, kind="DELETED"),
        seen(60, second, kind="ADDED"),
        Reached(at(61), "14"),
    ]
    say(spool, CONFIG_MAPS, *listed(0, first, version=11), *told_late)
    await drained(lab, spool)
    found = await lab.stored()
    assert [(one.verb, one.uid) for one in found] == [(Verb.DELETE, "uid-prices"), (Verb.CREATE, "uid-again")]
    assert at(29) < found[0].at < found[1].at < at(31)
    assert found[0].since is not None


async def test_what_comes_at_once_keeps_its_order(lab: Lab, spool: Spool) -> None:
    first = config_map("prices", 11, a="0")
    many = [seen(3, config_map("prices", 12 + turn, a=str(turn + 1))) for turn in range(20)]
    say(spool, CONFIG_MAPS, *listed(0, first, version=11), *many)
    await drained(lab, spool)
    assert [one.diffs[0].new for one in await lab.stored()] == [str(turn + 1) for turn in range(20)]


async def test_who_takes_over_goes_on_from_what_the_other_one_recorded(lab: Lab, spool: Spool, tmp_path: Path) -> None:
    first = config_map("prices", 11, a="1")
    waits = follower(lab, spool)
    with Spool(tmp_path / "another", most_bytes=1 << 20, key=b"k" * 32) as another:
        say(another, CONFIG_MAPS, *listed(0, first, version=11))
        await drained(lab, another)
        await waits.round()  # it has looked what is known
        say(another, CONFIG_MAPS, seen(30.5, config_map("prices", 12, a="2")))
        await drained(lab, another)
        async with lab.database.write.begin() as conn:
            await collectors.leave(conn, lab.cluster, EPOCH, standing=Standing.LEFT)
            epoch = await collectors.take(conn, lab.cluster, spool.identity)
    assert epoch == EPOCH + 1
    late = config_map("prices", 13, a="3")
    late["metadata"]["managedFields"] = [{"manager": "m", "time": f"{at(30):%Y-%m-%dT%H:%M:%SZ}"}]
    for word in (Resumed(at(60)), seen(60, late), Reached(at(61), "13")):
        spool.append(told.encode(told.Watched(CONFIG_MAPS, word, epoch)), durable=False)
    while spool.size:
        await waits.round()
    assert [one.diffs[0].new for one in await lab.stored()] == ["2", "3"], "in the order in which it was done"
