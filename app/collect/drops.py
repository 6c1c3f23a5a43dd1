"""What an API server drops of its audit events before it sends them: told by its own counter, and by nothing else.

``apiserver_audit_error_total`` grows where the audit webhook's buffer is full, or nobody took a batch in five tries
(https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/). Each look that finds more is a gap since the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

import msgspec
import structlog
from prometheus_client.parser import text_string_to_metric_families

from app.collect import told
from app.collect.openmetrics import MILLISECONDS
from app.collect.scrape import UnreadableError
from app.collect.segments import SpoolFullError
from app.collect.spool import Spool
from app.collect.threads import in_thread

ERRORS = "apiserver_audit_error_total"
STARTED = "process_start_time_seconds"
"""Which API server answered, where several share an address, and whether it was started since."""
LOG_FILE = "log"
"""The plugin that writes --audit-log-path: what it cannot write is no loss to who gets the webhook."""
KEPT = "audit-drops.json"
"""The file beside the spool with what was counted last: while nobody takes batches, most of them are dropped."""
MOST_SERVERS = 16

log = structlog.get_logger()


class Count(msgspec.Struct, frozen=True):
    """What one API server said last, and when: ``started`` names it, in seconds since 1970."""

    started: float
    dropped: int
    at: datetime


def read(metrics: bytes, at: datetime) -> Count:
    """What the text of /metrics says. Raises UnreadableError."""
    wanted = (ERRORS.encode(), STARTED.encode())
    lines = [line for line in metrics.split(b"\n") if line.startswith(wanted)]  # of 30,000
    try:
        text = b"\n".join(lines).decode() + "\n"
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as error:
        raise UnreadableError(f"not Prometheus' text: {error}") from None
    dropped = sum(one.value for one in samples if one.name == ERRORS and one.labels.get("plugin") != LOG_FILE)
    started = next((one.value for one in samples if one.name == STARTED), 0.0)
    if not isfinite(dropped):
        raise UnreadableError(f"{ERRORS} counts {dropped}")
    if not 0 <= started < MILLISECONDS:
        raise UnreadableError(f"{STARTED} is {started}")
    return Count(started, int(dropped), at)


def lost(known: list[Count], now: Count) -> tuple[int, datetime]:
    """How many events were dropped, and since when. ``known`` are earlier counts, one of each API server.

    Of an API server that is not known, all were dropped since it was started, if that was after the last look; else
    nobody knows when, and only what comes to them counts.
    """
    before = next((one for one in known if one.started == now.started), None)
    if before is not None:
        return max(0, now.dropped - before.dropped), before.at
    last = max((one.at for one in known), default=now.at)
    return (now.dropped if datetime.fromtimestamp(now.started, UTC) > last else 0), last


class Drops:
    """Notes what an API server says that it dropped, where this process gets the cluster's audit webhook."""

    def __init__(self, spool: Spool, *, is_told: Callable[[], bool]) -> None:
        """``is_told`` says whether it does."""
        self._spool, self._is_told = spool, is_told
        self._file: Path = spool.folder / KEPT

    @property
    def is_wanted(self) -> bool:
        """As api_metrics.Reader."""
        return self._is_told()

    async def take(self, text: bytes, _address: str, at: datetime) -> None:
        """As api_metrics.Reader."""
        now = await asyncio.to_thread(read, text, at)
        try:
            await in_thread(lambda: self._note(now))
        except (SpoolFullError, OSError) as error:
            # Nothing is forgotten: the next look finds the same, and more.
            log.warning("dropped audit events cannot be noted yet", why=str(error))

    async def miss(self, _at: datetime) -> None:
        """As api_metrics.Reader. The next count tells since the last."""

    def _note(self, now: Count) -> None:
        known = self._known()
        count, since = lost(known, now)
        if count:
            why = f"audit log: the API server dropped {count:,} events before they were sent ({ERRORS})"
            self._spool.append(told.encode(told.AuditLost(now.at, why, since)), durable=True)
        others = [one for one in known if one.started != now.started]
        new = self._file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode([*others, now][-MOST_SERVERS:]))
        new.replace(self._file)

    def _known(self) -> list[Count]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Count])
        except (FileNotFoundError, msgspec.MsgspecError):  # after a power loss it may be empty
            return []
