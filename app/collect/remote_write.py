"""Prometheus remote-write, 1.0 of its protocol (0.1.0 in its header) -> samples of series.

https://prometheus.io/docs/specs/prw/remote_write_spec/ : one snappy block of one protobuf WriteRequest. Metadata,
exemplars and native histograms are passed over. A series is known by the bytes of its labels, of which a request
repeats thousands: only those that were not seen before are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

import cramjam
import numpy as np
import structlog
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.clusters import About
from app.core.model import Batch
from app.core.objects.redact import Redactor
from app.store import codes, incidents, partitions, reach, remarks, series, series_keys
from app.store.chunks import Columns
from app.store.redaction import read_redactor
from app.store.series_keys import Key

MOST_BYTES = 10_000_000
"""Of a request, unpacked; Prometheus sends 2,000 samples at a time, some 300 kB."""
MOST_OF_LABELS = 16_384
"""Bytes that the labels of one series may take together."""
AT_ONCE = 2
"""Requests that are unpacked and written at a time: others need the pool's connections, too, and memory has an end."""
NOTED_EVERY = timedelta(seconds=10)
"""How often it is noted up to when a cluster's metrics reach, and said what was refused."""
AHEAD = timedelta(minutes=1)
"""Further ahead of the clock here than this a sample is remarked upon."""
COUNTED_EVERY = timedelta(minutes=5)
ACTIVE = timedelta(days=2)
"""Series that were last told of longer ago do not count against the bound: pods come and go."""

log = structlog.get_logger()


class UnreadableError(ValueError):
    """The body is no WriteRequest in snappy; the message says what is wrong with it."""


class TooLargeError(ValueError):
    """The body is larger than it may be, once unpacked; the message says how large it is."""


class RefusedError(ValueError):
    """Some of a request was left out for good, all else is stored; the message says what and why."""


def _messages() -> dict[str, Any]:
    """The messages of prometheus/prompb/remote.proto and types.proto, as far as they are read.

    A label is a message there; on the wire that is the same as bytes, which need not be taken apart.
    """
    field_ = descriptor_pb2.FieldDescriptorProto
    told = {
        "Sample": [("value", 1, field_.TYPE_DOUBLE, ""), ("timestamp", 2, field_.TYPE_INT64, "")],
        "Series": [("labels", 1, field_.TYPE_BYTES, "*"), ("samples", 2, field_.TYPE_MESSAGE, "Sample")],
        "Request": [("timeseries", 1, field_.TYPE_MESSAGE, "Series")],
        "Label": [("name", 1, field_.TYPE_BYTES, ""), ("value", 2, field_.TYPE_BYTES, "")],
    }
    file = descriptor_pb2.FileDescriptorProto(name="foreshock_remote_write.proto", package="foreshock", syntax="proto3")
    for name, fields in told.items():
        message = file.message_type.add(name=name)
        for called, number, kind, of in fields:
            label = field_.LABEL_REPEATED if of else field_.LABEL_OPTIONAL
            type_name = f".foreshock.{of}" if kind == field_.TYPE_MESSAGE else None
            message.field.add(name=called, number=number, type=kind, label=label, type_name=type_name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"foreshock.{name}")) for name in told}


MESSAGES = _messages()
Digest = bytes


@dataclass(frozen=True, slots=True)
class Request:
    """What a request tells: of each series its digest and how many samples; these, one after the other."""

    series: list[Digest]
    lengths: list[int]
    times: list[int]
    values: list[float]
    labels: dict[Digest, list[bytes]]
    """Of the series that were not known."""


def unpacked(body: bytes) -> bytes:
    """What snappy packed. Raises UnreadableError, or TooLargeError before anything is unpacked."""
    try:
        size = cramjam.snappy.decompress_raw_len(body)
        if size > MOST_BYTES:
            raise TooLargeError(
                f"{size:,} bytes unpacked, at most {MOST_BYTES:,} are taken: lower max_samples_per_send"
            )
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise UnreadableError(f"the body is not one block of snappy: {error}") from None


def decode(body: bytes, known: Callable[[Digest], bool]) -> Request:
    """Reads a body. Raises UnreadableError or TooLargeError."""
    try:
        told = MESSAGES["Request"].FromString(unpacked(body))
    except DecodeError:
        raise UnreadableError("the body is no prometheus.WriteRequest (protobuf)") from None
    request = Request([], [], [], [], {})
    for one in told.timeseries:
        samples = one.samples
        if not samples:
            continue  # of a histogram or an exemplar
        labels = one.labels
        digest = blake2b(b"".join(labels), digest_size=16).digest()
        if not known(digest):
            request.labels[digest] = list(labels)
        request.series.append(digest)
        request.lengths.append(len(samples))
        for sample in samples:
            request.times.append(sample.timestamp)
            request.values.append(sample.value)
    return request


def key_of(labels: Iterable[bytes], redactor: Redactor) -> Key | None:
    """What a series is called, redacted; None for one that cannot be used: without a name, with a label that is there
    twice, or with endless labels."""
    raw = list(labels)
    if sum(map(len, raw)) > MOST_OF_LABELS:
        return None
    try:
        told = [MESSAGES["Label"].FromString(one) for one in raw]
    except DecodeError:
        return None
    texts = {one.name.decode("utf-8", "replace"): one.value.decode("utf-8", "replace") for one in told}
    name = texts.pop("__name__", "")
    if not name or len(texts) + 1 < len(told):
        return None
    return Key(name, tuple((label, redactor.label(label, texts[label])) for label in sorted(texts)), "unknown")


@dataclass(slots=True)
class _Cluster:
    """What is known of one cluster that sends."""

    ids: dict[Digest, int] = field(default_factory=dict)
    active: int = 0
    counted_at: datetime | None = None
    noted_at: datetime | None = None
    said_at: dict[About, datetime] = field(default_factory=dict)
    told: tuple[datetime, datetime] | None = None
    """Between when the samples are that came since it was noted."""


class Receiver:
    """Takes requests. What it answers to is committed."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], datetime], *, most_series: int) -> None:
        """``most_series``: so many of a cluster are taken; of those beyond it none."""
        self._engine, self._clock, self._most = engine, clock, most_series
        self._clusters: dict[str, _Cluster] = {}
        self._redactor: Redactor | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def take(self, cluster: str, body: bytes) -> None:
        """Stores what a request tells of a cluster.

        Raises UnreadableError or TooLargeError, and nothing of it is stored; RefusedError, and the rest of it is; or
        SQLAlchemyError, and it is to be sent again.
        """
        now = self._clock()
        async with self._turns:
            try:
                refused = await self._take(cluster, body, now=now)
            except TooLargeError as error:
                async with self._engine.begin() as conn:
                    await self._say(conn, cluster, About.SAMPLES, str(error), now=now)
                raise
        if refused:
            raise RefusedError("; ".join(refused))

    async def _take(self, cluster: str, body: bytes, *, now: datetime) -> list[str]:
        """Stores it, and answers in words what was left out."""
        known = self._clusters.setdefault(cluster, _Cluster())
        ids = known.ids
        request = await asyncio.to_thread(decode, body, ids.__contains__)
        if not request.series:
            return []
        try:
            new, refused = await self._store(cluster, known, ids, request=request, now=now)
        except BaseException:
            # neither what was counted nor what was noted nor what was said is there
            known.counted_at, known.noted_at, known.said_at = None, None, {}
            raise
        ids.update(new)
        if len(ids) > 2 * self._most:
            known.ids = {}  # of those that are gone: who still sends is asked for its labels once more
        return refused

    async def _store(
        self, cluster: str, known: _Cluster, ids: dict[Digest, int], *, request: Request, now: datetime
    ) -> tuple[dict[Digest, int], list[str]]:
        """In one transaction; the ids of series that were not known, and in words what was left out."""
        async with self._engine.begin() as conn:
            number = await codes.cluster(conn, cluster)
            new, refused = await self._name(conn, number, known, labels=request.labels, now=now)
            whose = np.array([ids.get(one) or new.get(one) or 0 for one in request.series], np.int64)
            rows = Columns(
                np.repeat(whose, request.lengths),
                np.array(request.times, np.int64),
                np.array(request.values, np.float64),
            )
            low, high = (series.milliseconds(at) for at in (now - partitions.OLDEST, now + partitions.NEWEST))
            stored = (rows.times >= low) & (rows.times <= high)
            if len(rows.times) > stored.sum():
                odd = len(rows.times) - int(stored.sum())
                refused.append(f"{odd:,} samples are more than 400 days old or to come: is the clock right?")
            rows = rows.where(stored & (rows.series > 0))
            if len(rows.times):
                await series.append(conn, number, rows)
                await self._note(conn, cluster, number, rows=rows, now=now)
            if refused:
                await self._say(conn, cluster, About.SAMPLES, "; ".join(refused), now=now)
        return new, refused

    async def _name(
        self,
        conn: AsyncConnection,
        cluster_id: int,
        known: _Cluster,
        *,
        labels: dict[Digest, list[bytes]],
        now: datetime,
    ) -> tuple[dict[Digest, int], list[str]]:
        """The ids of series that were not known, and in words why others have none."""
        if not labels:
            return {}, []
        if self._redactor is None:
            self._redactor = await read_redactor(conn)
        keys = {digest: key_of(of, self._redactor) for digest, of in labels.items()}
        usable = {digest: key for digest, key in keys.items() if key is not None}
        refused = []
        if len(usable) < len(keys):
            odd = len(keys) - len(usable)
            refused.append(f"{odd:,} series have no __name__, a label twice, or labels of more than 16 kB")
        if known.counted_at is None or now - known.counted_at > COUNTED_EVERY:
            known.active = await series_keys.count(conn, cluster_id, since=now - ACTIVE)
            known.counted_at = now
        old = await series_keys.known(conn, cluster_id, usable.values())
        fresh = [digest for digest, key in usable.items() if key not in old]
        beyond = fresh[max(0, self._most - known.active) :]
        if beyond:
            refused.append(
                f"{len(beyond):,} series are new, and the cluster has {known.active:,} of at most {self._most:,}:"
                " keep fewer with write_relabel_configs, or raise FORESHOCK_SERIES_PER_CLUSTER"
            )
        for digest in beyond:
            del usable[digest]
        known.active += len(fresh) - len(beyond)
        ids = await series_keys.ids(conn, cluster_id, list(usable.values()), at=now)
        return dict(zip(usable, ids, strict=True)), refused

    async def _note(
        self, conn: AsyncConnection, cluster: str, cluster_id: int, *, rows: Columns, now: datetime
    ) -> None:
        """Now and then: up to when the cluster's metrics reach, and that an incident has more to be ranked by."""
        known = self._clusters[cluster]
        first, last = (series.moment(int(end)) for end in (rows.times.min(), rows.times.max()))
        if known.told is not None:
            first, last = min(first, known.told[0]), max(last, known.told[1])
        known.told = first, last
        if known.noted_at is not None and now - known.noted_at < NOTED_EVERY:
            return
        batch = Batch(cluster, read_to=((reach.METRICS, last),), read_at=now)
        await reach.write(conn, cluster_id, batch)
        await incidents.note_news(conn, cluster_id, from_at=first, to_at=last)
        known.noted_at, known.told = now, None
        if last - now > AHEAD:
            minutes = (last - now) / timedelta(minutes=1)
            why = f"up to {minutes:,.0f} min ahead of the clock here: which of them is right?"
            await self._say(conn, cluster, About.AHEAD, why, now=now)

    async def _say(self, conn: AsyncConnection, cluster: str, about: About, why: str, *, now: datetime) -> None:
        """Now and then: to who looks at the cluster, and in the log."""
        said = self._clusters.setdefault(cluster, _Cluster()).said_at
        if about in said and now - said[about] < NOTED_EVERY:
            return
        await remarks.note(conn, cluster, about, why, now=now)
        log.warning("samples are not as they should be", cluster=cluster, about=about.value, why=why)
        said[about] = now
