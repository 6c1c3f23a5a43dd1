"""Each request has an id of ours: its answer, what it was refused with and the log's lines of it have the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from app.web.numbered import HEADER
from tests.web.conftest import Site, site

__all__ = ["site"]
AN_ID = re.compile("[0-9a-f]{16}")
BROKEN = """
import socket
from datetime import UTC, datetime

import uvicorn
from sqlalchemy.ext.asyncio import create_async_engine

from app import logs
from app.web.deps import Deps
from app.web.routes import create_app

def broken():
    raise RuntimeError("a bug")

logs.configure("warning")
nowhere = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
app = create_app(Deps(nowhere, nowhere, "http://127.0.0.1", lambda: datetime.now(UTC), broken))
with socket.create_server(("127.0.0.1", 0)) as sock:
    print(sock.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[sock])
"""
"""A process of ours whose readiness is a bug, with the server and the log that it has."""


async def test_every_answer_has_an_id_of_its_own_and_a_refusal_says_it(site: Site) -> None:
    seen = set()
    async with site.client() as viewer, site.client(None) as stranger:
        for client, path in (
            (viewer, "/"),
            (viewer, "/api/v1/incidents"),
            (viewer, "/api/v1/incidents?limit=0"),
            (viewer, "/nothing"),
            (viewer, "/static/nothing"),
            (stranger, "/api/v1/incidents"),
            (stranger, "/changes"),
            (stranger, "/healthz"),
        ):
            answer = await client.get(path)
            found = answer.headers[HEADER]
            assert AN_ID.fullmatch(found)
            seen.add(found)
            if answer.status_code >= 400:
                is_json = answer.headers["content-type"] == "application/problem+json"
                said = answer.json()["request_id"] if is_json else answer.text
                assert (said == found) if is_json else (f"request {found}" in said)
    assert len(seen) == 8


@pytest.mark.parametrize("sent", ["0123456789abcdef", "x" * 9000, 'a"}{"level":"error', "", "a, b"])
async def test_nobody_chooses_the_id_of_a_request(site: Site, sent: str) -> None:
    async with site.client() as client:
        answer = await client.get("/api/v1/nothing", headers={HEADER: sent})
    assert AN_ID.fullmatch(answer.headers[HEADER])
    assert answer.headers[HEADER] != sent
    assert len(answer.headers.get_list(HEADER)) == 1
    assert answer.json()["request_id"] == answer.headers[HEADER]


@contextmanager
def broken() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", BROKEN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process
    finally:
        process.kill()
        process.communicate()


def test_of_a_bug_the_log_says_in_which_request_it_was() -> None:
    with broken() as (url, process):
        answers = [httpx2.get(f"{url}/readyz") for _ in range(2)]  # the server ends a connection after a bug
        process.terminate()
        _, log = process.communicate(timeout=30)
    assert [one.status_code for one in answers] == [500, 500]
    told: list[dict[str, Any]] = [json.loads(line) for line in log.splitlines()]
    bugs = [line for line in told if "a bug" in str(line.get("exception"))]
    assert [line["request_id"] for line in bugs] == [one.headers[HEADER] for one in answers]
    assert [one.json()["request_id"] for one in answers] == [one.headers[HEADER] for one in answers]
    assert "a bug" not in answers[0].text
