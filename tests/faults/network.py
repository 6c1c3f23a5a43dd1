"""Faults between the program and the API server, and an API server that no longer knows what happened."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime

from tests.cluster.programs import wait_until
from tests.faults.proxy import Mode
from tests.faults.stand import CLUSTER, Stand
from tests.faults.trial import Found

PER_KIND = 0.25
"""Requests a second of each kind that an API server gets at most while it fails: what is promised."""
MEASURED_SECONDS = 60
"""Over so long at least: the first tries follow each other more quickly."""


def black_hole(stand: Stand, *, seconds: float) -> None:
    """Nothing is carried and nothing is closed, as by a firewall that drops."""
    stand.proxy.turn(Mode.DROPS)
    time.sleep(seconds)
    stand.proxy.turn(Mode.CARRIES)


def failing(stand: Stand, found: Found, *, mode: Mode, seconds: float) -> None:
    """Every connection is reset, or every request answered 500; how often it was asked is counted."""
    kinds = int(stand.ask("SELECT count(*) FROM watch_positions JOIN clusters c ON c.id = cluster_id")[0][0])
    stand.proxy.turn(mode)
    time.sleep(seconds)
    asked, paths = stand.proxy.asked, Counter(path.partition("?")[0] for path in stand.proxy.paths)
    stand.proxy.turn(Mode.CARRIES)
    rate = asked / seconds
    found.notes.append(f"{rate:.2f} connections/s for {kinds} kinds")
    if seconds < MEASURED_SECONDS:
        return
    found.promise(f"{rate / kinds:.3f}/s a kind", holds=rate / kinds <= PER_KIND)
    if paths:
        path, count = paths.most_common(1)[0]
        found.promise(f"most of them {count / seconds:.3f}/s {path}", holds=count / seconds <= PER_KIND)


def gone_at_start(stand: Stand, found: Found) -> None:
    """410 from a watch cache that does not reach back: history was compacted, the API server started anew meanwhile."""
    began = stand.now()
    stand.program.stop()
    time.sleep(3)  # in which is written
    stand.plane.compact()
    stand.plane.apiserver.restart()
    stand.program.start()
    wait_for_gap(stand, found, began=began)


def gone_amid(stand: Stand, found: Found) -> None:
    """410 from etcd itself, as an API server without a watch cache passes it on (--watch-cache=false)."""
    began = stand.now()
    stand.program.stop()
    time.sleep(3)
    stand.plane.compact()
    stand.program.start()
    wait_for_gap(stand, found, began=began)


def wait_for_gap(stand: Stand, found: Found, *, began: datetime) -> None:
    """Until the end of what nobody saw is known, of each of the oracle's kinds, that ended after ``began``."""

    def closed() -> bool:
        query = "SELECT DISTINCT kind FROM gaps JOIN clusters c ON c.id = cluster_id WHERE c.name = %s AND to_at > %s"
        return {row[0] for row in stand.ask(query, CLUSTER, began)} >= {"ConfigMap", "Deployment", "Widget"}

    before = time.monotonic()
    wait_until(closed, "what nobody saw is a gap", seconds=240)
    found.notes.append(f"gaps told after {time.monotonic() - before:.0f} s")
