"""An import that is killed again and again, by the real program, ends as one that nobody disturbed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.collect.importer import Import
from app.collect.inputs import find_inputs
from app.core.model import Outcome
from app.store import calls, changes, embedded, requests, rollouts, symptoms
from app.store.database import Database, open_database
from tests.conftest import dsn_of

CLUSTER = "killed"
WRITES = 6_000
APPS = 60
START = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
END = START + timedelta(hours=1, minutes=59)
SHARES = (0.0, 0.15, 0.4, 0.6, 0.8)
"""How much of the audit log is recorded when the program is killed."""


def stamp(second: float) -> str:
    return (START + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")


def deployment(app: int, generation: int, version: int, **status: int) -> dict[str, Any]:
    name = f"app-{app}"
    container = {"name": name, "image": f"registry/{name}:v{generation}"}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"u-{app}",
            "resourceVersion": str(version),
            "generation": generation,
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
        "status": {"replicas": 2, **status},
    }


def audited(second: float, verb: str, resource: str, *, name: str = "", **more: Any) -> dict[str, Any]:
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "auditID": f"{verb}-{resource}-{second}",
        "stage": "ResponseComplete",
        "requestURI": f"/{resource}/{name}",
        "verb": verb,
        "user": {"username": "alice"},
        "objectRef": {"resource": resource, "namespace": "shop", "name": name},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": stamp(second),
        "stageTimestamp": stamp(second),
    } | more


def printed(events: list[dict[str, Any]], number: int) -> str:
    """Events in one of the ways in which they come: one a line, in one list, several on a line, over several lines."""
    match number % 5:
        case 0:
            return json.dumps({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": events}) + "\n"
        case 1:
            return " ".join(json.dumps(event) for event in events) + "\n"
        case 2:
            return "".join(json.dumps(event, indent=4) + "\n" for event in events)
    return "".join(json.dumps(event) + "\n" for event in events)


def write_logs(folder: Path) -> tuple[Path, Path]:
    """An audit log of writes, reads and warnings, and a watch that tells of the same writes and of their rollouts."""
    version = 1000
    with (folder / "audit.jsonl").open("w") as audit, (folder / "watch.jsonl").open("w") as watch:
        for app in range(APPS):
            version += 1
            obj = deployment(app, 1, version, observedGeneration=1, updatedReplicas=2, availableReplicas=2)
            watch.write(json.dumps({"at": stamp(0), "type": "ADDED", "object": obj}) + "\n")
        for number in range(WRITES):
            app, second = number % APPS, 1.0 + number
            generation = 2 + number // APPS
            version += 10
            ref = {"resource": "deployments", "namespace": "shop", "name": f"app-{app}", "apiGroup": "apps"}
            body = deployment(app, generation, version, observedGeneration=generation - 1, updatedReplicas=2)
            image = body["spec"]["template"]
            patched = {"requestObject": {"spec": {"template": image}}, "responseObject": body, "objectRef": ref}
            events = [audited(second, "patch", "deployments", name=f"app-{app}", **patched)]
            events += [audited(second + n / 10, "get", "pods", name="p") for n in range(1, 5)]
            if number % 7 == 0:
                warning = {
                    "kind": "Event",
                    "apiVersion": "v1",
                    "metadata": {"name": f"e-{number}", "namespace": "shop", "uid": f"e-{number}"},
                    "type": "Warning",
                    "reason": "BackOff",
                    "count": 1,
                    "lastTimestamp": stamp(second + 0.5),
                    "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": f"app-{app}-x"},
                }
                made = {"responseStatus": {"code": 201}, "responseObject": warning}
                events.append(audited(second + 0.5, "create", "events", name=f"e-{number}", **made))
            audit.write(printed(events, number))
            seen: list[tuple[float, dict[str, Any]]] = [(0.05, body)]
            for after, updated in ((6.0, 1), (12.0, 2)):
                status = {"observedGeneration": generation, "updatedReplicas": updated, "availableReplicas": updated}
                seen.append((after, deployment(app, generation, version + updated, **status)))
            for after, obj in seen:
                watch.write(json.dumps({"at": stamp(second + after), "type": "MODIFIED", "object": obj}) + "\n")
    return folder / "audit.jsonl", folder / "watch.jsonl"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    audit, watch = write_logs(tmp_path_factory.mktemp("logs"))
    told = sorted(watch.read_text().splitlines(), key=lambda line: json.loads(line)["at"])
    watch.write_text("\n".join(told) + "\n")
    return audit, watch


@pytest.fixture(scope="module")
def undisturbed_dsn(server: embedded.Server, template: str) -> Iterator[str]:
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE undisturbed TEMPLATE {template}")
        yield dsn_of(server, "undisturbed")
        conn.execute("DROP DATABASE undisturbed WITH (FORCE)")


@pytest.fixture(scope="module")
async def undisturbed(undisturbed_dsn: str, logs: tuple[Path, Path]) -> AsyncIterator[dict[str, Any]]:
    database = open_database(undisturbed_dsn)
    run = Import(database.write, CLUSTER, now=datetime.now(UTC), progress=lambda *_: None)
    await run.run(find_inputs([str(path) for path in logs]))
    yield await everything(database)
    await database.close()


async def everything(database: Database) -> dict[str, Any]:
    """What a cluster's import left, in an order of its own."""
    async with database.read.connect() as conn:
        counted = await calls.read(conn, CLUSTER, START, END)
        wrote = await requests.read(conn, CLUSTER, START, END, limit=10 * WRITES)
        changed = await changes.read_window(conn, CLUSTER, START, END, limit=10 * WRITES)
        rolled = await rollouts.read_window(conn, CLUSTER, START, END)
        hurt = await symptoms.read_window(conn, CLUSTER, START, END)
    return {
        "calls": sum(count.count for count in counted),
        "calls by key and slot": sorted(repr(count) for count in counted),
        "requests": sorted(request.event_key for request in wrote),
        "changes": sorted((c.id, c.summary, c.actor.name, c.begun_by or "") for c in changed),
        "diffs": sorted((c.id, repr(c.diffs), c.diff_source) for c in changed),
        "rollouts": sorted((str(r.resource), r.generation, r.started_at, r.outcome, r.ended_at) for r in rolled),
        "symptoms": sorted((s.at, s.fingerprint, s.reason, s.count) for s in hurt),
    }


def started(dsn: str, logs: tuple[Path, Path]) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FORESHOCK_")}
    command = [sys.executable, "-m", "app", "import", "--cluster", CLUSTER, *(str(path) for path in logs)]
    return subprocess.Popen(command, env=environment | {"DATABASE_URL": dsn}, stdout=subprocess.DEVNULL)


def recorded(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT coalesce(max(\"offset\"), 0) FROM import_positions WHERE path LIKE '%audit%'").fetchone()
    return int(row[0]) if row else 0


def killed_again_and_again(dsn: str, logs: tuple[Path, Path]) -> list[int]:
    """Kill an import once at each of SHARES, then let it end; how far it was recorded when it was killed."""
    draw, size, kills = random.Random(3), logs[0].stat().st_size, []
    with psycopg.connect(dsn, autocommit=True) as conn:
        for share in SHARES:
            running = started(dsn, logs)
            while running.poll() is None and recorded(conn) <= share * size:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.1))
            running.send_signal(signal.SIGKILL)
            if running.wait() == -signal.SIGKILL:
                kills.append(recorded(conn))
        running = started(dsn, logs)
        assert running.wait(120) == 0
    return kills


async def test_killed_at_any_moment_nothing_is_lost_or_told_twice(
    database: Database, dsn: str, logs: tuple[Path, Path], undisturbed: dict[str, Any]
) -> None:
    kills = killed_again_and_again(dsn, logs)
    assert len(set(kills)) >= 3, "killed at several places"
    found = await everything(database)
    assert len(found["changes"]) == WRITES
    assert len(found["symptoms"]) > 100
    assert {row[3] for row in found["rollouts"]} >= {Outcome.COMPLETE}
    for name, expected in undisturbed.items():
        assert found[name] == expected, name
