"""What 200 pods of apps count of their requests in the hours before an incident, as a Prometheus is asked for it.

They are scraped twice a minute and asked for once; an hour that has ended is packed by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import numpy as np
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import codes, compaction, series, series_keys
from app.store.chunks import Columns
from app.store.series_keys import Key

PODS, PODS_OF_ONE = 200, 5
CODES = ("200", "201", "204", "304", "400", "404", "429", "503")
SERIES = PODS * (len(CODES) + 2)
SCRAPED = 30
"""Seconds between two scrapes."""
AT_ONCE = 2
"""Scrapes that are told of together."""


def _keys() -> Iterator[Key]:
    """The series of each pod: requests by code, and how long answers took."""
    for number in range(PODS):
        app = number // PODS_OF_ONE
        labels = {"namespace": f"team-{app}", "pod": f"app-{app}-6f7c9d4b8-x{number % PODS_OF_ONE + 4}k2p"}
        for code in CODES:
            yield Key("http_requests_total", tuple(sorted((labels | {"code": code}).items())), "counter")
        for part in ("sum", "count"):
            yield Key(f"http_request_duration_seconds_{part}", tuple(sorted(labels.items())), "counter")


async def fill(conn: AsyncConnection, cluster: str, start: datetime, end: datetime) -> int:
    """SERIES series between two times, in which nothing turns bad; how many samples."""
    keys, random = list(_keys()), np.random.default_rng(23)
    number = await codes.cluster(conn, cluster)
    ids = np.array(await series_keys.ids(conn, number, keys))
    times = np.arange(int(start.timestamp()), int(end.timestamp()), SCRAPED) * 1000
    pace = random.lognormal(0, 1.5, len(keys))
    values = np.cumsum(random.poisson(pace[:, None] * SCRAPED, (len(keys), len(times))), axis=1).astype(np.float64)
    for first in range(0, len(times), AT_ONCE):
        told = times[first : first + AT_ONCE]
        rows = Columns(
            np.repeat(ids, len(told)), np.tile(told, len(ids)), values[:, first : first + AT_ONCE].reshape(-1)
        )
        await series.append(conn, number, rows)
    while await compaction.compact(conn, now=end):
        pass
    return values.size
