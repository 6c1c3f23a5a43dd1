"""What the audit webhook sends -> the spool of its cluster, on the disk before it is answered, and never read here."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from app.collect import told
from app.collect.segments import put
from app.collect.spool import Incoming, Spool
from app.collect.threads import in_thread
from app.failures import Exit, Expected

LIMIT = 64 << 20
"""Bytes of a body at most. kube-apiserver bounds its requests only where --audit-webhook-truncate-enabled is set."""
IN_MEMORY = 1 << 20
"""Bytes of a body that are held in memory at most: more of it goes to a file of its own."""
THREADS = 8
"""Appends that may wait for the disk at once: those that wait together share a sync."""
_CLUSTER = "cluster"
"""The file that says whose spool it is: the folder's name may not hold it."""

T = TypeVar("T")


class KeyUnknownError(Expected):
    """Spools cannot be opened before the database has been reached once."""

    code = Exit.NOT_NOW


class BodyTooLargeError(ValueError):
    """A body of more than LIMIT."""


def folder_of(root: Path, cluster: str) -> Path:
    """Where the spool of a cluster lies: a name of its own for each, and safe whatever the cluster's."""
    readable = re.sub(r"[^A-Za-z0-9-]", "_", cluster)[:40]
    return root / f"{readable}-{blake2b(cluster.encode(), digest_size=8).hexdigest()}"


class Spools:
    """The spools of this process, one a cluster, in a folder that they share."""

    def __init__(self, root: Path, *, most_bytes: int) -> None:
        """``most_bytes`` bounds each of them. ``key`` seals what is in them: until it is known, none is opened."""
        self.root, self.most_bytes = root, most_bytes
        self.key = b""
        self._threads = ThreadPoolExecutor(THREADS, "spool")
        self._lock = threading.Lock()
        self._open: dict[str, Spool] = {}

    def known(self) -> list[str]:
        """The clusters that have a spool."""
        return sorted(filter(None, (path.read_text() for path in self.root.glob(f"*/{_CLUSTER}"))))

    def open(self, cluster: str) -> Spool:
        """The spool of a cluster, made at its first use. Raises KeyUnknownError, SpoolTakenError and OSError."""
        if not self.key:
            raise KeyUnknownError("the database, which has the spool's key, has not been reached yet")
        with self._lock:
            if cluster not in self._open:
                folder = folder_of(self.root, cluster)
                spool = Spool(folder, most_bytes=self.most_bytes, key=self.key)
                _name(folder, cluster)
                self._open[cluster] = spool
            return self._open[cluster]

    def close(self) -> None:
        """Wait for appends that are under way, and give the folders up."""
        self._threads.shutdown()
        for spool in self._open.values():
            spool.close()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do what waits for the disk in a thread."""
        return await in_thread(work, self._threads)

    async def take_audit(
        self, cluster: str, chunks: AsyncIterator[bytes], *, received_at: datetime, declared: int = 0
    ) -> None:
        """Put the body of a request into the cluster's spool; it is on the disk when this returns.

        ``declared`` is how many bytes it says to have, 0 where it does not say. Raises SpoolFullError before anything
        is read of a body for which there is no room, BodyTooLargeError, OSError and what ``open`` raises. Of a body
        that is too large the loss is noted: its events are a gap.
        """
        spool = await self.in_thread(lambda: self.open(cluster))
        spool.check_room(min(declared, LIMIT))
        try:
            _check_size(declared)
            await self._stream(spool, chunks, received_at)
        except BodyTooLargeError as error:
            lost = told.AuditLost(received_at, f"a request of the audit webhook was refused: {error}")
            await self.in_thread(lambda: spool.append(told.encode(lost), durable=True))
            raise

    async def _stream(self, spool: Spool, chunks: AsyncIterator[bytes], received_at: datetime) -> None:
        held, size = bytearray(), 0
        incoming: Incoming | None = None
        try:
            async for chunk in chunks:
                size += len(chunk)
                _check_size(size)
                held += chunk
                if len(held) > IN_MEMORY:
                    if incoming is None:
                        incoming = spool.incoming()
                        incoming.write(told.head_of(received_at, 0))
                    await self._add(incoming, held)
                    held.clear()
            if incoming is None:
                record = told.encode(told.AuditBody(received_at, bytes(held)))
                await self.in_thread(lambda: spool.append(record, durable=True))
            else:
                streamed, head = incoming, told.head_of(received_at, size)
                await self._add(streamed, held)
                await self.in_thread(lambda: streamed.finish(head))
        finally:
            if incoming is not None:
                incoming.discard()

    async def _add(self, incoming: Incoming, held: bytearray) -> None:
        part = bytes(held)
        await self.in_thread(lambda: incoming.write(part))


def _name(folder: Path, cluster: str) -> None:
    """Says whose spool it is, where nothing says so yet: a disk that is full is no matter then."""
    path = folder / _CLUSTER
    if not path.exists() or path.read_text() != cluster:
        put(path, cluster)


def _check_size(size: int) -> None:
    if size > LIMIT:
        raise BodyTooLargeError(f"the body has more than the {LIMIT:,} bytes that are taken")
