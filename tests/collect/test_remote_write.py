"""What Prometheus sends: read, named, bounded; stored once however it is repeated."""

from __future__ import annotations

import asyncio
import struct
from datetime import timedelta
from unittest.mock import AsyncMock
from uuid import uuid4

import cramjam
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from app.collect import remote_write
from app.collect.remote_write import Receiver, RefusedError, TooLargeError, UnreadableError
from app.core.model import MetricSeries
from app.core.stale import STALE
from app.store import codes, reach, series, series_keys
from app.store.database import Database
from app.store.tables import clusters, remarks
from tests.samples import plain
from tests.store.factories import NOON

NOW = NOON + timedelta(minutes=1)
AT = int(NOON.timestamp() * 1000)
REQUESTS = {"__name__": "apiserver_request_total", "code": "200", "job": "apiserver"}
Told = tuple[dict[str, str], list[tuple[int, float]]]


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def part(number: int, body: bytes) -> bytes:
    """A field of protobuf that says its length."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def message(*told: Told, more: bytes = b"") -> bytes:
    """A WriteRequest, written by hand: prometheus/prompb/remote.proto and types.proto."""
    out = b""
    for labels, samples in told:
        body = b"".join(part(1, part(1, name.encode()) + part(2, value.encode())) for name, value in labels.items())
        for time, value in samples:
            body += part(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(time))
        out += part(1, body + more)
    return out


def packed(*told: Told, more: bytes = b"") -> bytes:
    return bytes(cramjam.snappy.compress_raw(message(*told, more=more)))


async def remarked(database: Database, cluster: str) -> dict[str, str]:
    """What is to be said of a cluster, and why."""
    async with database.read.connect() as conn:
        query = select(remarks.c.about, remarks.c.why).join(clusters).where(clusters.c.name == cluster)
        return {row.about: row.why for row in await conn.execute(query)}


async def kept(database: Database, cluster: str) -> list[MetricSeries]:
    async with database.read.connect() as conn:
        return plain(await series.read(conn, cluster, NOON - timedelta(days=2), NOON + timedelta(days=2)))


@pytest.fixture
def shop() -> str:
    """A cluster of which nothing is known."""
    return f"shop {uuid4()}"


@pytest.fixture
def receiver(database: Database) -> Receiver:
    return Receiver(database.write, lambda: NOW, most_series=3)


async def test_samples_are_stored_with_their_labels(receiver: Receiver, database: Database, shop: str) -> None:
    await receiver.take(shop, packed((REQUESTS, [(AT, 1.0), (AT + 15_001, 2.5)])))
    labels = (("code", "200"), ("job", "apiserver"))
    start = NOON.timestamp()
    told = MetricSeries("apiserver_request_total", labels, "unknown", (start, start + 15.001), (1.0, 2.5))
    assert await kept(database, shop) == [told]
    assert await kept(database, "nobody") == []
    async with database.read.connect() as conn:
        assert (await reach.read(conn, shop))["metrics"] == NOON + timedelta(milliseconds=15_001)


async def test_what_is_repeated_or_out_of_order_is_kept_once(receiver: Receiver, database: Database, shop: str) -> None:
    for samples in ([(AT + 5, 2.0)], [(AT, 1.0), (AT + 5, 2.0)], [(AT + 5, 3.0)]):
        await receiver.take(shop, packed((REQUESTS, samples)))
    [one] = await kept(database, shop)
    assert one.values == (1.0, 3.0)


async def test_what_comes_at_once_is_all_stored(receiver: Receiver, database: Database, shop: str) -> None:
    bodies = [packed((REQUESTS, [(AT + n, float(n))])) for n in range(12)]
    await asyncio.gather(*(receiver.take(shop, body) for body in bodies))
    [one] = await kept(database, shop)
    assert one.values == tuple(map(float, range(12)))


async def test_another_process_knows_the_same_series(receiver: Receiver, database: Database, shop: str) -> None:
    await receiver.take(shop, packed((REQUESTS, [(AT, 1.0)])))
    await Receiver(database.write, lambda: NOW, most_series=1).take(shop, packed((REQUESTS, [(AT + 1, 2.0)])))
    [one] = await kept(database, shop)
    assert one.values == (1.0, 2.0)


async def test_the_mark_of_a_stale_series_is_kept_as_it_is(receiver: Receiver, database: Database, shop: str) -> None:
    await receiver.take(shop, packed((REQUESTS, [(AT, STALE)])))
    [one] = await kept(database, shop)
    assert struct.pack("<d", one.values[0]) == (0x7FF0000000000002).to_bytes(8, "little")


async def test_secrets_in_labels_are_taken_out(receiver: Receiver, database: Database, shop: str) -> None:
    await receiver.take(shop, packed(({"__name__": "up", "password": "correct horse"}, [(AT, 1.0)])))
    [one] = await kept(database, shop)
    assert "correct horse" not in str(one)


async def test_series_beyond_the_bound_are_refused_and_the_others_are_kept(
    receiver: Receiver, database: Database, shop: str
) -> None:
    many: list[Told] = [({"__name__": f"m{n}"}, [(AT, 1.0)]) for n in range(5)]
    with pytest.raises(RefusedError, match=r"2 series are new.*at most 3.*write_relabel_configs"):
        await receiver.take(shop, packed(*many))
    assert [one.name for one in await kept(database, shop)] == ["m0", "m1", "m2"]
    with pytest.raises(RefusedError, match="1 series are new, and the cluster has 3"):
        await receiver.take(shop, packed(({"__name__": "m2"}, [(AT + 5, 2.0)]), ({"__name__": "m7"}, [(AT, 1.0)])))
    assert [len(one.times) for one in await kept(database, shop)] == [1, 1, 2]
    await receiver.take(f"{shop} south", packed(*many[:3]))
    assert "2 series are new, and the cluster has 0 of at most 3" in (await remarked(database, shop))["samples"]
    assert await remarked(database, f"{shop} south") == {}


async def test_series_that_are_gone_make_room_for_others(receiver: Receiver, database: Database, shop: str) -> None:
    await receiver.take(shop, packed(*[({"__name__": f"m{n}"}, [(AT, 1.0)]) for n in range(3)]))
    async with database.write.begin() as conn:
        await conn.execute(text("UPDATE series_keys SET seen_at = :at"), {"at": NOW - timedelta(days=3)})
    later = Receiver(database.write, lambda: NOW, most_series=3)
    await later.take(shop, packed(({"__name__": "m9"}, [(AT, 1.0)])))


async def test_what_could_not_be_stored_does_not_count_against_the_bound(
    receiver: Receiver, database: Database, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = packed((REQUESTS, [(AT, 1.0)]))
    with monkeypatch.context() as away:
        away.setattr(series, "append", AsyncMock(side_effect=OperationalError("COPY", None, Exception("away"))))
        for _ in range(4):  # as often as the Prometheus sends it again
            with pytest.raises(OperationalError):
                await receiver.take(shop, body)
    await receiver.take(shop, body)
    assert len(await kept(database, shop)) == 1
    async with database.read.connect() as conn:
        assert (await reach.read(conn, shop))["metrics"] == NOON


async def test_series_that_came_and_went_are_not_remembered_for_ever(database: Database, shop: str) -> None:
    now = NOW
    receiver = Receiver(database.write, lambda: now, most_series=3)
    for pod in range(12):
        now += 2 * remote_write.ACTIVE
        at = AT + 1000 * int((now - NOW).total_seconds())
        await receiver.take(shop, packed((REQUESTS, [(at, 1.0)]), ({"__name__": "up", "pod": f"{pod}"}, [(at, 1.0)])))
        assert len(receiver._clusters[shop].ids) <= 2 * 3
    async with database.read.connect() as conn:
        found = plain(await series.read(conn, shop, NOON, now))
    assert sum(len(one.values) for one in found) == 2 * 12


async def test_a_series_was_first_told_of_when_it_came(receiver: Receiver, database: Database, shop: str) -> None:
    await receiver.take(shop, packed((REQUESTS, [(AT, 1.0)])))
    async with database.read.connect() as conn:
        number = await codes.cluster(conn, shop)
        since = [
            await series_keys.count(conn, number, since=NOW + late) for late in (timedelta(0), timedelta(seconds=1))
        ]
    assert since == [1, 0]


async def test_times_that_cannot_be_stored_are_left_out(receiver: Receiver, database: Database, shop: str) -> None:
    odd = [(0, 1.0), (-(2**63), 1.0), (AT + 9 * 86_400_000, 1.0), (2**63 - 1, 1.0), (AT, 7.0)]
    with pytest.raises(RefusedError, match="4 samples are more than 400 days old or to come"):
        await receiver.take(shop, packed((REQUESTS, odd)))
    [one] = await kept(database, shop)
    assert one.values == (7.0,)
    assert list(await remarked(database, shop)) == ["samples"]


async def test_samples_of_times_to_come_are_remarked_upon(receiver: Receiver, database: Database, shop: str) -> None:
    minute = 60_000
    await receiver.take(shop, packed((REQUESTS, [(AT + minute + 30_000, 1.0)])))
    assert await remarked(database, shop) == {}
    later = Receiver(database.write, lambda: NOW, most_series=3)
    await later.take(shop, packed((REQUESTS, [(AT + 61 * minute, 1.0)])))
    ahead = "up to 60 min ahead of the clock here: which of them is right?"
    assert await remarked(database, shop) == {"samples ahead": ahead}
    async with database.read.connect() as conn:
        assert (await reach.read(conn, shop))["metrics"] == NOW


async def test_what_has_no_name_or_endless_labels_is_not(receiver: Receiver, database: Database, shop: str) -> None:
    endless = {"__name__": "up", "x": "y" * 20_000}
    body = message(({"job": "a"}, [(AT, 1.0)]), (endless, [(AT, 1.0)]), (REQUESTS, [(AT, 1.0)]))
    named = [("__name__", "up"), ("job", "a"), ("job", "b")]
    twice = b"".join(part(1, part(1, name.encode()) + part(2, value.encode())) for name, value in named)
    body += part(1, twice + part(2, b"\x09" + struct.pack("<d", 1.0) + b"\x10" + varint(AT)))
    with pytest.raises(RefusedError, match="3 series have no __name__, a label twice, or labels of more than 16 kB"):
        await receiver.take(shop, bytes(cramjam.snappy.compress_raw(body)))
    assert [one.name for one in await kept(database, shop)] == ["apiserver_request_total"]


async def test_histograms_and_metadata_are_passed_over(receiver: Receiver, database: Database, shop: str) -> None:
    exemplar, histogram = part(3, part(1, b"")), part(4, b"\x0a\x02hi")
    body = message((REQUESTS, []), more=exemplar + histogram) + part(3, b"\x08\x01")
    await receiver.take(shop, bytes(cramjam.snappy.compress_raw(body)))
    await receiver.take(shop, bytes(cramjam.snappy.compress_raw(b"")))
    assert await kept(database, shop) == []


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b"", "not one block of snappy"),
        (b"nonsense", "snappy"),
        (bytes(cramjam.snappy.compress_raw(b"nonsense")), "no prometheus.WriteRequest"),
        (bytes(cramjam.snappy.compress_raw(message((REQUESTS, [(AT, 1.0)]))[:-3])), "no prometheus.WriteRequest"),
    ],
)
async def test_what_cannot_be_read_is_refused_in_words(receiver: Receiver, shop: str, body: bytes, wrong: str) -> None:
    with pytest.raises(UnreadableError, match=wrong):
        await receiver.take(shop, body)


async def test_a_bomb_is_refused_by_what_it_says_of_itself(receiver: Receiver, database: Database, shop: str) -> None:
    bomb = bytes(cramjam.snappy.compress_raw(b"\0" * (remote_write.MOST_BYTES + 1)))
    with pytest.raises(TooLargeError, match="10,000,001 bytes unpacked"):
        await receiver.take(shop, bomb)
    assert "lower max_samples_per_send" in (await remarked(database, shop))["samples"]
