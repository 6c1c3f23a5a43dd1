"""What the program asks an API server for when nothing happens there, and what pages add to that."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

import httpx2

from tests.faults.network import PER_KIND
from tests.faults.stand import Stand
from tests.faults.trial import Found

VIEWS = 10
"""Of each page."""
PAGES = (
    "/",
    "/changes",
    "/clusters",
    "/api/v1/changes",
    "/api/v1/gaps",
    "/api/v1/clusters",
    "/api/v1/what-changed?minus=30m",
    "/readyz",
)


def idle(stand: Stand, found: Found, *, seconds: float) -> None:
    """Requests by verb and kind of a time in which nothing but the oracle's writes happens."""
    mark = stand.mark()
    time.sleep(seconds)
    calls = stand.asked(mark)
    verbs = Counter(call.verb for call in calls)
    said = ", ".join(f"{verb} {count / seconds:.3f}/s" for verb, count in sorted(verbs.items())) or "none"
    found.notes.append(f"requests in {seconds:.0f} s: {said}")
    most = max(Counter(call.resource for call in calls).values(), default=0) / seconds
    found.promise(f"{most:.3f}/s of one kind at most", holds=most <= PER_KIND)


def page_views(stand: Stand, found: Found) -> None:
    """Pages and REST are looked at, and the API server is asked for nothing."""
    command = [sys.executable, "-m", "app", "token", "create", "--role", "viewer"]
    made = subprocess.run(
        command, env=stand.program.environment, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    headers = {"Authorization": f"Bearer {made.stdout.split()[-1]}"}
    mark, seen = stand.mark(), Counter[int]()
    with httpx2.Client(base_url=stand.program.address, headers=headers, trust_env=False, timeout=30) as client:
        for page in PAGES * VIEWS:
            seen[client.get(page).status_code] += 1
    time.sleep(1)  # the audit log is written a moment after an answer
    calls = stand.asked(mark)
    watches = sum(call.verb == "watch" for call in calls)  # those that ended just then
    found.notes.append(f"{sum(seen.values())} views, answered {dict(seen)}; {watches} watches begun meanwhile")
    found.promise(f"{len(calls) - watches} requests", holds=len(calls) == watches)
