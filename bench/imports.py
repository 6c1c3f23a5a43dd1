"""Imports end to end: a log of 95 % reads, and the demo's audit log many times over (most of it writes with bodies).

Beside the reads: what raw COPY makes of the same events, one row each, as a table of audit events would hold them.
"""

from __future__ import annotations

import gzip
import random
import re
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from app.collect.importer import Import
from app.collect.inputs import Input, find_inputs
from app.collect.shift import shift_times
from app.commands.demo import FOLDER
from app.store.database import Database
from bench.gates import Gate
from bench.raw import RawEvents

LINES = 1_000_000
CALLERS = 160
COPIES = 12
"""Of the demo's log, which alone is read in a second: what it takes to start would be measured too."""
APART = timedelta(seconds=150)
"""Between the starts of two copies; the demo is shorter."""
_RESOURCES = (("", "pods"), ("", "services"), ("", "configmaps"), ("apps", "deployments"), ("", "nodes"))


def write_log(path: Path, lines: int, *, now: datetime) -> None:
    """``lines`` audit events at level Metadata, 400 a second up to ``now``: each caller makes six sorts of calls."""
    rand = random.Random(1)
    sorts = []
    for number in range(CALLERS):
        for _ in range(6):
            group, plural = rand.choice(_RESOURCES)
            sorts.append((number, group, plural, "get" if rand.random() < 0.6 else "list"))
    began = now - timedelta(seconds=lines / 400)
    with path.open("wb") as file:
        for line in range(lines):
            number, group, plural, verb = rand.choice(sorts)
            name, namespace = f"x-{line % 500}", f"team-{number % 30}"
            written = rand.random() < 0.05
            at = began + timedelta(seconds=line / 400)
            file.write(
                orjson.dumps(
                    {
                        "kind": "Event",
                        "apiVersion": "audit.k8s.io/v1",
                        "level": "Metadata",
                        "auditID": f"{rand.getrandbits(128):032x}",
                        "stage": "ResponseComplete",
                        "requestURI": f"/api/v1/namespaces/{namespace}/{plural}/{name}?resourceVersion=0",
                        "verb": "patch" if written else verb,
                        "user": {
                            "username": f"system:serviceaccount:{namespace}:app-{number}",
                            "groups": ["system:serviceaccounts", "system:authenticated"],
                            "extra": {"authentication.kubernetes.io/pod-name": [f"app-{number}-7d9f-abcde"]},
                        },
                        "sourceIPs": ["10.0.0.1"],
                        "userAgent": "app/v1.2.3 (linux/amd64) kubernetes/98b3519",
                        "objectRef": {
                            "resource": "pods" if written else plural,
                            "namespace": namespace,
                            "name": name,
                            "apiGroup": "" if written else group,
                            "apiVersion": "v1",
                            **({"subresource": "status"} if written else {}),
                        },
                        "responseStatus": {"code": 200},
                        "requestReceivedTimestamp": at.isoformat(),
                        "stageTimestamp": (at + timedelta(milliseconds=3)).isoformat(),
                        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
                    }
                )
                + b"\n"
            )


def write_mix(path: Path, copies: int, *, now: datetime) -> None:
    """The demo's audit log several times, one after the other up to ``now``: other namespaces, uids and versions."""
    recorded = gzip.decompress((FOLDER / "audit.jsonl.gz").read_bytes()).splitlines()
    first = re.search(rb'"requestReceivedTimestamp":"([^"]+)"', recorded[0])
    assert first
    began = int((now - datetime.fromisoformat(first[1].decode()) - copies * APART).total_seconds())
    with path.open("wb") as file:
        for copy in range(copies):
            for recorded_line in recorded:
                line = re.sub(rb'("namespace":"[^"]+)"', rb'\1-%d"' % copy, recorded_line)
                line = re.sub(rb"\b[0-9a-f]{2}([0-9a-f]{6}-[0-9a-f]{4}-)", rb"%02x\1" % copy, line)
                line = re.sub(rb'("resourceVersion":")(\d{1,9}")', rb"\g<1>%d\2" % (copy + 1), line)
                file.write(shift_times(line, seconds=began + copy * int(APART.total_seconds())) + b"\n")


async def rate(database: Database, inputs: list[Input], cluster: str, *, now: datetime) -> float:
    """Calls a second, from opening the file to the last commit."""
    began = time.perf_counter()
    report = await Import(database.write, cluster, now=now, progress=lambda *_: None).run(inputs)
    return report.tally.calls / (time.perf_counter() - began)


async def imports(database: Database, dsn: str, folder: Path) -> list[Gate]:
    """Both logs, the best of some runs: the others on this machine only ever slow it down."""
    now = datetime.now(UTC)
    log = folder / "reads.jsonl"
    write_log(log, LINES, now=now)
    reads, raw = [], []
    limit = RawEvents(dsn, log)
    for turn in range(5):
        reads.append(await rate(database, find_inputs([str(log)]), f"reads-{turn}", now=now))
        raw.append(limit.rate())
    limit.close()
    write_mix(folder / "mix.jsonl", COPIES, now=now)
    mixed = find_inputs([str(folder / "mix.jsonl")])
    mix = [await rate(database, mixed, f"mix-{n}", now=now) for n in range(3)]
    ratios = [ours / theirs for ours, theirs in zip(reads, raw, strict=True)]
    print(
        f"      95 % reads, {len(reads)} pairs: raw COPY of events {statistics.median(raw):,.0f} rows/s,"
        f" import {statistics.median(ratios):.2f} of it ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    return [
        Gate("import of 95 % reads, beside raw COPY of events", statistics.median(ratios), "", at_least=0.6),
        Gate("import of 95 % reads", max(reads), "events/s", at_least=60_000),
        Gate("import of writes with bodies", max(mix), "events/s", at_least=15_000),
    ]
