"""The limit beside which an import of reads is measured: raw COPY of the same events, one row each.

So would a table of audit events hold them: thirteen columns, and an index by time and one by caller.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from uuid import UUID

import orjson
import psycopg

BATCH = 10_000
_EVENTS = {
    "at": "timestamptz",
    "audit_id": "uuid",
    "username": "text",
    "groups": "text",
    "pod": "text",
    "user_agent": "text",
    "verb": "text",
    "api_group": "text",
    "resource": "text",
    "namespace": "text",
    "name": "text",
    "code": "int4",
    "latency_us": "int4",
}


def _event(line: bytes) -> tuple[object, ...]:
    event = orjson.loads(line)
    user, ref = event["user"], event["objectRef"]
    at, end = (datetime.fromisoformat(event[f"{name}Timestamp"]) for name in ("requestReceived", "stage"))
    return (
        at,
        UUID(event["auditID"]),
        user["username"],
        ",".join(user["groups"]),
        user["extra"]["authentication.kubernetes.io/pod-name"][0],
        event["userAgent"],
        event["verb"],
        *(ref[name] for name in ("apiGroup", "resource", "namespace", "name")),
        event["responseStatus"]["code"],
        (end - at) // timedelta(microseconds=1),
    )


class RawEvents:
    """A table of audit events with two indexes, by time and by caller, and a log's events encoded for COPY."""

    def __init__(self, dsn: str, log: Path) -> None:
        self._rows = 0
        self._conn = psycopg.connect(dsn)
        columns = ", ".join(map(" ".join, _EVENTS.items()))
        self._conn.execute(f"CREATE TEMP TABLE encoded ({columns})")
        self._conn.execute(f"CREATE TABLE raw_events ({columns})")
        self._conn.execute("CREATE INDEX ON raw_events (at)")
        self._conn.execute("CREATE INDEX ON raw_events (username, at)")
        self._conn.commit()
        with log.open("rb") as lines:
            events = map(_event, lines)
            self._batches = [self._encoded(batch) for batch in iter(lambda: tuple(islice(events, BATCH)), ())]

    def _encoded(self, rows: tuple[tuple[object, ...], ...]) -> bytes:
        self._rows += len(rows)
        cursor = self._conn.cursor()
        cursor.execute("TRUNCATE encoded")
        with cursor.copy("COPY encoded FROM STDIN (FORMAT binary)") as stream:
            stream.set_types(list(_EVENTS.values()))
            for row in rows:
                stream.write_row(row)
        with cursor.copy("COPY encoded TO STDOUT (FORMAT binary)") as stream:
            return b"".join(bytes(block) for block in stream)

    def rate(self) -> float:
        """Rows a second, a transaction for each BATCH, into the emptied table."""
        self._conn.execute("TRUNCATE raw_events")
        self._conn.commit()
        began = time.perf_counter()
        for batch in self._batches:
            with self._conn.cursor().copy("COPY raw_events FROM STDIN (FORMAT binary)") as stream:
                stream.write(batch)
            self._conn.commit()
        return self._rows / (time.perf_counter() - began)

    def close(self) -> None:
        self._conn.execute("DROP TABLE raw_events")
        self._conn.commit()
        self._conn.close()
