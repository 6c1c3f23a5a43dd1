"""Call counts, packed: one row a batch and minute, appended, never updated (docs/decisions/0003).

The payload is zstd of five columns, sorted by key and slot: how many keys; then per entry the step from the last
key id (uint32), the slot within the minute (uint8), the count (uint32) and the latency in microseconds (uint64),
each column with its bytes transposed, so that the many zero bytes lie together.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

import numpy as np
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.counted import NO_CALLS, Calls, Ints, by_first
from app.core.model import SLOT_SECONDS, CallCount, CallKey, ListClass
from app.store import codec, codes, partitions
from app.store.copy import copy

MINUTE = 60
COLUMNS = {"cluster_id": "int4", "at": "timestamptz", "total": "int4", "payload": "bytea"}
_LAYOUT = (("key", "<u4"), ("slot", "u1"), ("count", "<u4"), ("latency", "<u8"))
_WIDTHS = tuple(np.dtype(kind).itemsize for _, kind in _LAYOUT)

_KEYS = """
INSERT INTO call_keys (digest, user_id, pod_id, agent_id, namespace_id, verb, api_group, resource, code, list_class,
                       error, waited_for)
SELECT * FROM unnest(CAST(:digest AS bytea[]), CAST(:user AS int[]), CAST(:pod AS int[]), CAST(:agent AS int[]),
                     CAST(:namespace AS int[]), CAST(:verb AS text[]), CAST(:group AS text[]),
                     CAST(:resource AS text[]), CAST(:code AS int[]), CAST(:class AS text[]), CAST(:error AS text[]),
                     CAST(:waited AS text[]))
ON CONFLICT DO NOTHING RETURNING id, digest
"""
_MINUTES = text("SELECT at, payload FROM call_minutes WHERE cluster_id = :cluster AND at > :after AND at < :end")
_CLASSES = {one.value: one for one in ListClass}
_OF_IDS = text("""
SELECT k.id, coalesce(u.word, ''), coalesce(p.word, ''), coalesce(a.word, ''), k.verb, k.api_group, k.resource,
       coalesce(n.word, ''), k.code, k.list_class, k.error, k.waited_for
FROM call_keys k
LEFT JOIN words u ON u.id = k.user_id
LEFT JOIN words p ON p.id = k.pod_id
LEFT JOIN words a ON a.id = k.agent_id
LEFT JOIN words n ON n.id = k.namespace_id
WHERE k.id = ANY(CAST(:ids AS int[]))
""")
_KNOWN_KEYS = "SELECT id, digest FROM call_keys WHERE digest = ANY(CAST(:digest AS bytea[]))"


def digest(key: CallKey) -> bytes:
    """16 bytes that stand for a key: its texts would not fit an index."""
    parts = (key.user, key.pod, key.user_agent, key.verb, key.api_group, key.resource, key.namespace)
    told = (key.error, key.waited_for) if key.waited_for else (key.error,)  # as it was before that was known
    whole = "\0".join((*parts, str(key.code), key.list_class.value, *told))
    return blake2b(whole.encode(errors="surrogatepass"), digest_size=16).digest()


async def key_ids(conn: AsyncConnection, wanted: Iterable[CallKey]) -> dict[CallKey, int]:
    """Ids of call keys, made where new."""
    cache = codes.codes_of(conn)
    ids: dict[CallKey, int] = {}
    unknown: dict[bytes, CallKey] = {}
    for key in dict.fromkeys(wanted):
        known = cache.get(("call", key))
        if known is None:
            unknown[digest(key)] = key
        else:
            ids[key] = known
    if unknown:
        columns = await _columns(conn, unknown)
        for step in (_KNOWN_KEYS, _KEYS, _KNOWN_KEYS):
            left = [number for number, name in enumerate(columns["digest"]) if unknown[name] not in ids]
            if not left:
                break
            part = {name: [values[number] for number in left] for name, values in columns.items()}
            if step is _KNOWN_KEYS:
                part = {"digest": part["digest"]}
            for found, name in (await conn.execute(text(step), part)).all():
                ids[unknown[bytes(name)]] = found
                cache.learn(("call", unknown[bytes(name)]), found)
    return ids


async def _columns(conn: AsyncConnection, keys: dict[bytes, CallKey]) -> dict[str, list[Any]]:
    texts = {text for key in keys.values() for text in (key.user, key.pod, key.user_agent, key.namespace)}
    word = await codes.words(conn, texts)
    rows = sorted(keys.items())
    return {
        "digest": [name for name, _ in rows],
        "user": [word[key.user] for _, key in rows],
        "pod": [word[key.pod] for _, key in rows],
        "agent": [word[key.user_agent] for _, key in rows],
        "namespace": [word[key.namespace] for _, key in rows],
        "verb": [codec.clean(key.verb) for _, key in rows],
        "group": [codec.clean(key.api_group) for _, key in rows],
        "resource": [codec.clean(key.resource) for _, key in rows],
        "code": [key.code for _, key in rows],
        "class": [key.list_class.value for _, key in rows],
        "error": [codec.clean(key.error) for _, key in rows],
        "waited": [key.waited_for for _, key in rows],
    }


def pack(entries: list[tuple[int, int, int, int]]) -> bytes:
    """(key id, slot in the minute, count, latency_us) of one minute -> the payload."""
    key, slot, count, latency = np.array(sorted(entries), dtype=np.uint64).T
    columns = (np.diff(key, prepend=np.uint64(0)), slot, count, latency)
    raw = b"".join(
        column.astype(kind).view(np.uint8).reshape(len(column), -1).T.tobytes()
        for column, (_, kind) in zip(columns, _LAYOUT, strict=True)
    )
    return codec.pack(raw)


def unpack(payload: bytes) -> Ints:
    """The payload -> an array of shape (entries, 4), sorted by key and slot."""
    return unpack_all([payload])[0].T


def unpack_all(payloads: Iterable[bytes]) -> tuple[Ints, Ints]:
    """The columns of all payloads, one behind the other, of shape (4, entries); and how many entries each has.

    All at once: a minute's are so few that to look at each payload alone takes longer than its numbers.
    """
    raws = [codec.unpack(payload) for payload in payloads]
    lengths = np.array([len(raw) // sum(_WIDTHS) for raw in raws], dtype=np.int64)
    ends = np.cumsum(lengths)
    columns, before = np.empty((len(_LAYOUT), lengths.sum()), dtype=np.int64), 0
    for column, (_, kind), width in zip(columns, _LAYOUT, _WIDTHS, strict=True):
        numbers = np.empty((len(column), width), dtype=np.uint8)
        for place in range(width):
            at = (before + place) * lengths
            plane = (raw[i:j] for raw, i, j in zip(raws, at.tolist(), (at + lengths).tolist(), strict=True))
            numbers[:, place] = np.frombuffer(b"".join(plane), dtype=np.uint8)
        column[:] = numbers.view(kind).ravel()
        before += width
    sums = np.append(0, np.cumsum(columns[0]))
    columns[0] = sums[1:] - np.repeat(sums[ends - lengths], lengths)
    return columns, lengths


async def write(conn: AsyncConnection, cluster_id: int, counts: Iterable[CallCount]) -> int:
    """Appends call counts; returns how many calls they tell of. Told twice, they count twice: see record()."""
    batch = list(counts)
    if not batch:
        return 0
    ids = await key_ids(conn, (count.key for count in batch))
    cells: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(dict)
    for one in batch:
        minute, second = divmod(one.slot, MINUTE)
        cell = cells[minute].setdefault((ids[one.key], second // SLOT_SECONDS), [0, 0])
        cell[0] += one.count
        cell[1] += one.latency_us
    rows = []
    for minute, found in sorted(cells.items()):
        entries = [(key, slot, count, latency) for (key, slot), (count, latency) in found.items()]
        rows.append((cluster_id, codec.utc(minute * MINUTE), sum(entry[2] for entry in entries), pack(entries)))
    await partitions.ensure(conn, "call_minutes", (row[1] for row in rows))
    await copy(conn, "call_minutes", COLUMNS, rows)
    return sum(one.count for one in batch)


async def load_keys(conn: AsyncConnection, ids: Iterable[int]) -> dict[int, CallKey]:
    """The call keys behind ids."""
    found = (await conn.execute(_OF_IDS, {"ids": codec.int_array(ids)})).all()
    return {
        number: CallKey(user, pod, agent, verb, group, resource, namespace, code, _CLASSES[list_class], error, waited)
        for number, user, pod, agent, verb, group, resource, namespace, code, list_class, error, waited in found
    }


async def read(conn: AsyncConnection, cluster: str, start: datetime, end: datetime) -> Calls:
    """The counts of every slot that begins in [start, end), by slot; batches that told of one slot are summed."""
    number = await codes.find_cluster(conn, cluster)
    asked = {"cluster": number, "after": start - timedelta(seconds=MINUTE), "end": end}
    minutes = (await conn.execute(_MINUTES, asked)).all()
    ids, numbers, slots, counts, latencies = await asyncio.to_thread(_added, minutes, start, end)
    if not ids:
        return NO_CALLS
    keys = await load_keys(conn, ids)
    return Calls(tuple(keys[one] for one in ids), numbers, slots, counts, latencies)


def _added(
    minutes: Sequence[tuple[datetime, bytes]], start: datetime, end: datetime
) -> tuple[list[int], Ints, Ints, Ints, Ints]:
    """The counts of the slots in [start, end), by slot: the ids of their keys, and the columns of ``Calls``."""
    (key, slot, count, latency), lengths = unpack_all(payload for _, payload in minutes)
    slot = slot * SLOT_SECONDS + np.repeat([int(at.timestamp()) for at, _ in minutes], lengths)
    begins = np.diff(key, prepend=-1) != 0  # each payload is sorted by key: few of many are looked at
    ids, which = np.unique(key[begins], return_inverse=True)
    place = which[np.cumsum(begins) - 1]
    order = np.argsort(slot * len(ids) + place)
    order = order[(slot[order] >= start.timestamp()) & (slot[order] < end.timestamp())]
    place, slot = place[order], slot[order]
    first = np.flatnonzero((np.diff(place, prepend=-1) != 0) | (np.diff(slot, prepend=-1) != 0))
    counts, latencies = (np.add.reduceat(column[order], first) for column in (count, latency))
    numbers, was = by_first(place[first], len(ids))
    return ids[was].tolist(), numbers, slot[first], counts, latencies


def as_calls(key: Ints, slot: Ints, count: Ints, latency_us: Ints, *, keys: Mapping[int, CallKey]) -> Calls:
    """Columns of counts whose keys are told by their ids; keys come in the order of their first count."""
    ids, number = np.unique(key, return_inverse=True)
    numbers, was = by_first(number, len(ids))
    return Calls(tuple(keys[one] for one in ids[was].tolist()), numbers, slot, count, latency_us)
