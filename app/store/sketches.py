"""What is known of changes before they are read, for those who choose which to read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from functools import reduce

import numpy as np
from sqlalchemy import ColumnElement, Select, Text, any_, bindparam, func, literal, or_, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.counted import Ints
from app.core.ranking.shortlist import Sketches
from app.store import codes
from app.store.tables import changes, words

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
"""PostgreSQL sends a timestamptz as the microseconds since then."""
_ROW = np.dtype([("at", ">i8"), ("key", ">i8"), ("object", ">i8"), ("actor", ">i4"), ("near", "?")])


async def read_sketches(
    conn: AsyncConnection, cluster: str, start: datetime, end: datetime, *, near: Collection[str], limit: int
) -> tuple[Sketches, Ints]:
    """The newest ``limit`` changes in [start, end] in outline, newest first, and their version keys.

    ``near`` are the namespaces of the alert. All rows come as one value, as each of its own takes thirty times the
    processor's time.
    """
    number = await codes.find_cluster(conn, cluster)
    asked = {"cluster": number, "start": start, "end": end, "near": list(near), "most": limit}
    raw: bytes = (await conn.execute(_NEWEST, asked)).scalar_one() or b""
    rows = np.frombuffer(raw, dtype=_ROW)
    key, object_, actor = (rows[name].astype(np.int64) for name in ("key", "object", "actor"))
    return Sketches(rows["at"] / 1e6 + _EPOCH, object_, actor, rows["near"].copy()), key


def _newest() -> Select[bytes]:
    c = changes.c
    of_alert = select(words.c.id).where(words.c.word == any_(bindparam("near", type_=ARRAY(Text))))
    here = or_(c.namespace_id == 0, c.namespace_id.in_(of_alert))
    page = (
        select(c.at, c.version_key, c.object_id, c.actor_id, here.label("near"))
        .where(c.cluster_id == bindparam("cluster"), c.at.between(bindparam("start"), bindparam("end")))
        .order_by(c.at.desc(), c.version_key.desc())
        .limit(bindparam("most"))
        .subquery("page")
    )
    p = page.c
    sent: tuple[ColumnElement[bytes], ...] = (
        func.timestamptz_send(p.at),
        func.int8send(p.version_key),
        func.int8send(p.object_id),
        func.int4send(p.actor_id),
        func.boolsend(p.near),
    )
    row = reduce(lambda before, column: before.op("||")(column), sent)
    return select(func.string_agg(row, literal(b"")))


_NEWEST = _newest()
"""Made once: that takes as long as to read what it sends."""
