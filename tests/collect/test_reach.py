"""A log that is read says up to when its cluster is recorded, though it tells of nothing that is kept."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from app.store.seen import read_seen
from tests.collect.test_importer import AUDIT, NOW, T0, WATCH, Lab, lab, read, stamp, watched, write

__all__ = ["lab"]


async def test_a_quiet_cluster_is_recorded_to_the_last_line_of_each_log(lab: Lab, tmp_path: Path) -> None:
    bookmark = {"at": stamp(190), "type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {}}}
    watch = WATCH + watched(180, 13, "web:3") + "\n" + json.dumps(bookmark) + "\n"
    await lab.imported(*write(tmp_path, audit=AUDIT + read(150.25) + "\n{broken\n", watch=watch))
    async with lab.database.read.connect() as conn:
        (fresh,) = (await read_seen(conn, lab.cluster, from_at=None, to_at=None)).freshness
    told = {source: at.replace(microsecond=at.microsecond // 1000 * 1000) for source, at in fresh.sources.items()}
    assert told == {
        "watch": T0 + timedelta(seconds=190),
        "audit log": T0 + timedelta(seconds=150.25),
    }


async def test_a_log_that_is_read_to_a_moment_is_recorded_to_there(lab: Lab, tmp_path: Path) -> None:
    await lab.imported(*write(tmp_path, audit=AUDIT), until=T0 + timedelta(seconds=16))
    async with lab.database.read.connect() as conn:
        (fresh,) = (await read_seen(conn, lab.cluster, from_at=None, to_at=None)).freshness
    assert fresh.sources == {"audit log": T0 + timedelta(seconds=15)}


async def test_a_clock_that_is_ahead_is_believed_until_now_alone(lab: Lab, tmp_path: Path) -> None:
    tomorrow = read(26).replace("2026-11-21", "2026-11-22")
    await lab.imported(*write(tmp_path, audit=AUDIT + tomorrow + "\n" + read(27) + "\n"))
    async with lab.database.read.connect() as conn:
        (fresh,) = (await read_seen(conn, lab.cluster, from_at=None, to_at=None)).freshness
    assert fresh.sources == {"audit log": NOW}


async def test_a_dump_does_not_say_that_nothing_changed_before_it(lab: Lab, tmp_path: Path) -> None:
    obj = json.loads(watched(0, 11, "web:1"))["object"]
    obj["metadata"]["managedFields"][0]["time"] = stamp(55 * 60)
    await lab.imported(*write(tmp_path, audit=AUDIT), *write(tmp_path, dump=json.dumps(obj)))
    async with lab.database.read.connect() as conn:
        seen = await read_seen(conn, lab.cluster, from_at=None, to_at=None)
    assert max(seen.freshness[0].sources.values()) == T0 + timedelta(minutes=55)
    assert seen.recorded[lab.cluster] < T0 + timedelta(minutes=1)
