"""Memory of `foreshock import` while it reads 5 GB of an audit log from its standard input."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from bench import objects
from bench.gates import Gate

BYTES = 5 << 30
EVENTS = 400
"""A second of the log."""
BODIES = 20
"""Of these, writes with bodies: one in twenty."""
SECONDS = 20
"""So many seconds of the log are alike but for times, ids, versions and images."""
EVERY = 0.25
"""Seconds between two looks at the memory."""
AT, ID, VERSION, RELEASE = "2000-01-01T00:00:00", "feedfacecafe", "4200000000", 4_200_001
"""What differs from one second to the next: as it stands in the model."""


def _event(number: int) -> dict[str, Any]:
    """One of a second's events: most are reads, at level Metadata."""
    is_write = number % EVENTS < BODIES
    plural, group = ("deployments", "apps") if is_write else (("pods", "services")[number % 2], "")
    name, namespace = f"{plural}-{number}", f"team-{number % 50}"
    at = f"{AT}.{number % EVENTS * 2500:06}Z"
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse" if is_write else "Metadata",
        "auditID": f"{ID}{number:020}",
        "stage": "ResponseComplete",
        "requestURI": f"/apis/{group}/v1/namespaces/{namespace}/{plural}/{name}",
        "verb": "update" if is_write else ("get", "list", "watch")[number % 3],
        "user": {
            "username": f"system:serviceaccount:{namespace}:app-{number % 160}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/pod-name": [f"app-{number % 160}-7d9f-abcde"]},
        },
        "sourceIPs": ["10.0.0.1"],
        "userAgent": "app/v1.2.3 (linux/amd64) kubernetes/98b3519",
        "objectRef": {"resource": plural, "namespace": namespace, "name": name, "apiGroup": group, "apiVersion": "v1"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": at,
        "stageTimestamp": at,
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    }
    if is_write:
        event["responseObject"] = objects.deployment(number, int(VERSION), release=RELEASE)
    return event


def log(size: int, *, end: datetime) -> Iterator[bytes]:
    """About ``size`` bytes of an audit log that ends then, a second at a time."""
    models = [
        b"".join(orjson.dumps(_event(second * EVENTS + n)) + b"\n" for n in range(EVENTS)) for second in range(SECONDS)
    ]
    count = size // (sum(map(len, models)) // SECONDS)
    for second in range(count):
        at = end - timedelta(seconds=count - second)
        yield (
            models[second % SECONDS]
            .replace(AT.encode(), f"{at:%Y-%m-%dT%H:%M:%S}".encode())
            .replace(ID.encode(), f"{second:012}".encode())
            .replace(VERSION.encode(), f"{second + 1:010}".encode())
            .replace(str(RELEASE).encode(), f"{second + 1}".encode())
        )


def _resident(pid: int) -> int:
    """Bytes in memory of a process and of those that it started (proc_pid_statm(5)); none of what has ended."""
    total = 0
    for one in (pid, *_children(pid)):
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        except OSError:
            continue
    return total


def _children(pid: int) -> list[int]:
    try:
        tasks = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for children in tasks for child in children]


def memory(dsn: str) -> list[Gate]:
    """What the import has at most, and what it has of that in the last third beside the one before."""
    command = [sys.executable, "-m", "app", "import", "--cluster", "large", "-"]
    began, fed, looks = time.monotonic(), 0, list[tuple[int, int]]()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, "DATABASE_URL": dsn}
    ) as process:
        assert process.stdin
        done = threading.Event()

        def look() -> None:
            while not done.wait(EVERY):
                looks.append((fed, _resident(process.pid)))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            for chunk in log(BYTES, end=datetime.now(UTC)):
                process.stdin.write(chunk)
                fed += len(chunk)
            process.stdin.close()
            status = process.wait()
        finally:
            done.set()
            looking.join()
    if status:
        raise RuntimeError(f"the import ended with {status}")
    third = fed // 3
    most = max(size for _, size in looks)
    middle = max(size for at, size in looks if third <= at < 2 * third)
    last = max(size for at, size in looks if at >= 2 * third)
    print(
        f"      import of {fed / 1e9:.1f} GB in {time.monotonic() - began:.0f} s:"
        f" {middle >> 20} MB at most in the second third, {last >> 20} MB in the last"
    )
    return [
        Gate("memory of an import of 5 GB, with its reader, at most", most / (1 << 20), "MB", at_most=400),
        Gate("the same in its last third, beside the second", last / middle, "×", at_most=1.1),
    ]
