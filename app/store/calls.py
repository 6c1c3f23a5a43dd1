"""Call counts, packed: one row a batch and minute, appended, never updated (docs/decisions/0003).

The payload is zstd of five columns, sorted by key and slot: how many keys; then per entry the step from the last
key id (uint32), the slot within the minute (uint8), the count (uint32) and the latency in microseconds (uint64),
each column with its bytes transposed, so that the many zero bytes lie together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Integer, any_, literal, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.counted import NO_CALLS, Calls, Ints, by_first
from app.core.model import SLOT_SECONDS, CallCount, CallKey, ListClass
from app.store import codec, codes, partitions, tables
from app.store.copy import copy

MINUTE = 60
COLUMNS = {"cluster_id": "int4", "at": "timestamptz", "total": "int4", "payload": "bytea"}
_LAYOUT = (("key", "<u4"), ("slot", "u1"), ("count", "<u4"), ("latency", "<u8"))

_KEYS = """
INSERT INTO call_keys (digest, user_id, pod_id, agent_id, namespace_id, verb, api_group, resource, code, list_class,
                       error, waited_for)
SELECT * FROM unnest(CAST(:digest AS bytea[]), CAST(:user AS int[]), CAST(:pod AS int[]), CAST(:agent AS int[]),
                     CAST(:namespace AS int[]), CAST(:verb AS text[]), CAST(:group AS text[]),
                     CAST(:resource AS text[]), CAST(:code AS int[]), CAST(:class AS text[]), CAST(:error AS text[]),
                     CAST(:waited AS text[]))
ON CONFLICT DO NOTHING RETURNING id, digest
"""
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


def unpack(payload: bytes) -> npt.NDArray[np.int64]:
    """The payload -> an array of shape (entries, 4), sorted by key and slot."""
    raw = np.frombuffer(codec.unpack(payload), dtype=np.uint8)
    length = len(raw) // sum(np.dtype(kind).itemsize for _, kind in _LAYOUT)
    columns, at = np.empty((len(_LAYOUT), length), dtype=np.int64), 0
    for place, (_, kind) in enumerate(_LAYOUT):
        width = np.dtype(kind).itemsize
        part = raw[at : at + length * width].reshape(width, length).T
        columns[place] = np.ascontiguousarray(part).view(kind).ravel()
        at += length * width
    np.cumsum(columns[0], out=columns[0])
    return columns.T


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
    k = tables.call_keys
    user, pod, agent, namespace = (tables.words.alias(name) for name in ("u", "p", "a", "n"))
    told = k.c.id, user.c.word, pod.c.word, agent.c.word, k.c.verb, k.c.api_group, k.c.resource, namespace.c.word
    statement = (
        select(*told, k.c.code, k.c.list_class, k.c.error, k.c.waited_for)
        .outerjoin(user, user.c.id == k.c.user_id)
        .outerjoin(pod, pod.c.id == k.c.pod_id)
        .outerjoin(agent, agent.c.id == k.c.agent_id)
        .outerjoin(namespace, namespace.c.id == k.c.namespace_id)
        .where(k.c.id == any_(literal(list(ids), ARRAY(Integer))))
    )
    return {
        number: CallKey(
            user=by or "",
            pod=sender or "",
            user_agent=agent or "",
            verb=verb,
            api_group=group,
            resource=resource,
            namespace=where or "",
            code=code,
            list_class=ListClass(list_class),
            error=error,
            waited_for=waited,
        )
        for number, by, sender, agent, verb, group, resource, where, code, list_class, error, waited in (
            await conn.execute(statement)
        )
    }


async def read(conn: AsyncConnection, cluster: str, start: datetime, end: datetime) -> Calls:
    """The counts of every slot that begins in [start, end), by slot; batches that told of one slot are summed."""
    number = await codes.find_cluster(conn, cluster)
    c = tables.call_minutes.c
    statement = select(c.at, c.payload).where(
        c.cluster_id == number, c.at > start - timedelta(seconds=MINUTE), c.at < end
    )
    minutes = (await conn.execute(statement)).all()
    if not minutes:
        return NO_CALLS
    parts = [unpack(payload) for _, payload in minutes]
    key, slot, count, latency = np.concatenate(parts).T
    slot = slot * SLOT_SECONDS + np.repeat([int(at.timestamp()) for at, _ in minutes], [len(part) for part in parts])
    begins = np.diff(key, prepend=-1) != 0  # each payload is sorted by key: few of many are looked at
    ids, which = np.unique(key[begins], return_inverse=True)
    place = which[np.cumsum(begins) - 1]
    order = np.argsort(slot * len(ids) + place)
    order = order[(slot[order] >= start.timestamp()) & (slot[order] < end.timestamp())]
    if not len(order):
        return NO_CALLS
    place, slot = place[order], slot[order]
    first = np.flatnonzero((np.diff(place, prepend=-1) != 0) | (np.diff(slot, prepend=-1) != 0))
    counts, latencies = (np.add.reduceat(column[order], first) for column in (count, latency))
    numbers, was = by_first(place[first], len(ids))
    told = ids[was].tolist()
    keys = await load_keys(conn, told)
    return Calls(tuple(keys[one] for one in told), numbers, slot[first], counts, latencies)


def as_calls(key: Ints, slot: Ints, count: Ints, latency_us: Ints, *, keys: Mapping[int, CallKey]) -> Calls:
    """Columns of counts whose keys are told by their ids; keys come in the order of their first count."""
    ids, number = np.unique(key, return_inverse=True)
    numbers, was = by_first(number, len(ids))
    return Calls(tuple(keys[one] for one in ids[was].tolist()), numbers, slot, count, latency_us)
