"""The audit webhook of the real program: killed after 200, or with PostgreSQL stopped, it loses and doubles nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from app.store import embedded
from app.store.migrate import migrate
from tests.serving import program

WITHIN = 60
COUNTS = """
    SELECT (SELECT coalesce(sum(total), 0) FROM call_minutes), (SELECT count(*) FROM requests),
           (SELECT count(*) FROM changes), (SELECT count(*) FROM quarantine)
"""


@pytest.fixture
def postgres() -> Iterator[embedded.Server]:
    """A migrated PostgreSQL of the test's own, which may be stopped."""
    folder = Path(tempfile.mkdtemp(prefix="fs"))
    folder.chmod(0o711)
    server = embedded.start(folder)
    migrate(server.dsn)
    yield server
    server.stop()
    shutil.rmtree(folder)


def token_for(dsn: str, cluster: str) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "app", "token", "create", "--role", "audit", "--cluster", cluster]
    made = subprocess.run(command, env={**os.environ, "DATABASE_URL": dsn}, capture_output=True, text=True, check=True)
    return made.stdout.split()[-1]


def events(first: int, count: int) -> list[dict[str, Any]]:
    """Deployments that somebody makes."""
    found = []
    for number in range(first, first + count):
        at = (datetime.now(UTC) - timedelta(minutes=5) + timedelta(milliseconds=number)).isoformat()
        found.append(
            {
                "auditID": f"id-{number}",
                "level": "RequestResponse",
                "stage": "ResponseComplete",
                "requestURI": "/apis/apps/v1/namespaces/shop/deployments",
                "verb": "create",
                "user": {"username": "alice"},
                "objectRef": {"resource": "deployments", "namespace": "shop", "name": f"a{number}", "apiGroup": "apps"},
                "responseStatus": {"code": 201},
                "responseObject": {
                    "kind": "Deployment",
                    "apiVersion": "apps/v1",
                    "metadata": {
                        "name": f"a{number}",
                        "namespace": "shop",
                        "uid": f"u-{number}",
                        "resourceVersion": str(1000 + number),
                    },
                    "spec": {"replicas": 1},
                },
                "requestReceivedTimestamp": at,
                "stageTimestamp": at,
            }
        )
    return found


def body(first: int, count: int, *more: object) -> bytes:
    listed = {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [*events(first, count), *more]}
    return json.dumps(listed).encode()


def send(address: str, token: str, content: bytes, cluster: str = "shop") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return httpx2.post(f"{address}/intake/audit/{cluster}", content=content, headers=headers, timeout=WITHIN)


def counts(dsn: str) -> tuple[int, ...]:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(COUNTS).fetchone()
    assert row is not None
    return tuple(map(int, row))


def wait_for(dsn: str, expected: tuple[int, ...]) -> None:
    """Until that is recorded."""
    ends = time.monotonic() + WITHIN
    while (found := counts(dsn)) != expected:
        assert time.monotonic() < ends, found
        time.sleep(0.1)


def test_killed_between_the_answer_and_the_record_nothing_is_lost_and_nothing_counted_twice(
    postgres: embedded.Server, tmp_path: Path
) -> None:
    token = token_for(postgres.dsn, "shop")
    sent = [body(number * 50, 50, {"kind": "poison"}) for number in range(4)]
    with program(postgres.dsn, tmp_path, "--port", "0") as (process, address):
        for content in sent[:3]:
            assert send(address, token, content).status_code == 200
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert counts(postgres.dsn)[0] < 150, "killed before all of it was recorded"
    with program(postgres.dsn, tmp_path, "--port", "0") as (process, address):
        for content in sent:  # as an API server does that got no answer
            assert send(address, token, content).status_code == 200
        wait_for(postgres.dsn, (200, 200, 200, 4))
        process.send_signal(signal.SIGKILL)
        process.wait()
    with program(postgres.dsn, tmp_path, "--port", "0") as (_, address):
        assert send(address, token, sent[0]).status_code == 200
        assert send(address, token, body(200, 1)).status_code == 200
        wait_for(postgres.dsn, (201, 201, 201, 4))


def test_with_postgresql_stopped_it_answers_200_at_once_and_records_later(
    postgres: embedded.Server, tmp_path: Path
) -> None:
    token = token_for(postgres.dsn, "shop")
    with program(postgres.dsn, tmp_path, "--port", "0") as (_, address):
        assert send(address, token, body(0, 10)).status_code == 200
        wait_for(postgres.dsn, (10, 10, 10, 0))
        folder = postgres.folder
        postgres.stop()
        longest = 0.0
        for number in range(1, 11):
            began = time.monotonic()
            assert send(address, token, body(number * 10, 10)).status_code == 200
            longest = max(longest, time.monotonic() - began)
        assert send(address, token, body(0, 1), cluster="prod").status_code == 403
        again = embedded.start(folder)
        assert again.dsn == postgres.dsn
        wait_for(again.dsn, (110, 110, 110, 0))
        again.stop()
    assert longest < 1
