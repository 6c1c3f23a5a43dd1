"""Canaries through the real program: imported, served, asked for in every way. None comes out; what should, does."""

from __future__ import annotations

import html
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
import zstandard
from psycopg import sql

from app.failures import Exit
from app.notify import message
from app.store import incidents
from app.store.database import open_database
from tests import canaries
from tests.benign import BENIGN
from tests.test_cli import FORESHOCK, PATIENCE, Serving, environment, serving

ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass
class Told:
    """What went in, what the program said while it worked, and where it serves."""

    field: canaries.Field
    search: canaries.Search
    dsn: str
    said: dict[str, str]
    site: Serving
    token: str
    log: Path

    def get(self, path: str) -> tuple[int, str]:
        """Status and body, with a credential."""
        request = urllib.request.Request(self.site.url + path, headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        assert status == 200, path
        return json.loads(body)


def run(*arguments: str, dsn: str, code: int = 0, **settings: str) -> str:
    """All that one command writes; it must end with ``code``."""
    done = subprocess.run(
        [*FORESHOCK, *arguments],
        env=environment(DATABASE_URL=dsn, FORESHOCK_LOG_LEVEL="debug", **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def told(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Everything imported by the real program, which then serves it."""
    field = canaries.sow(datetime.now(UTC) - timedelta(minutes=30))
    folder = tmp_path_factory.mktemp("canaries")
    canaries.write(field, folder)
    dsn = dsn.replace("postgres@", f"postgres:{field.canary('the password of the database')}@")
    rules = canaries.redaction_file(tmp_path_factory.mktemp("rules"))  # of the first command: the others have them then
    strict = ("import", str(folder), "--cluster", "lab", "--strict")
    said = {"strict import": run(*strict, dsn=dsn, code=Exit.WRONG_USE, FORESHOCK_REDACTION_FILE=rules)}
    said |= {"import": run("import", str(folder), "--cluster", "lab", dsn=dsn)}
    said["import again"] = run("import", str(folder), "--cluster", "lab", dsn=dsn)
    for form in ("table", "wide", "json", "yaml"):
        said[f"what-changed, {form}"] = run("what-changed", "2h", "--output", form, dsn=dsn)
    token = run("token", "create", "--role", "admin", dsn=dsn).split()[-1]
    log = tmp_path_factory.mktemp("log") / "stderr"
    with log.open("w") as stream, serving(stream, DATABASE_URL=dsn, FORESHOCK_LOG_LEVEL="debug") as site:
        yield Told(field, canaries.Search(field.canaries), dsn, said, site, token, log)


def test_enough_is_planted_and_the_search_finds_it(told: Told, record_property: Callable[[str, object], None]) -> None:
    assert len(told.field.canaries) >= 500
    record_property("canaries planted, in what is imported", len(told.field.canaries))
    for canary in told.field.canaries:
        for line in canary.splitlines():
            assert told.search.leaks(f"a {line[-13:]} b") or line.startswith("-----"), canary
    assert told.search.leaks(" ".join(told.field.audit)) > {"exec", "a refusal", "a cut secret"}


def test_the_program_says_none(told: Told) -> None:
    for command, said in told.said.items():
        assert told.search.leaks(said) == set(), command
    assert "31 lines could not be used" in told.said["import"]
    assert "31 lines cannot be used" in told.said["strict import"]
    assert "already imported" in told.said["import again"]


def rows(dsn: str) -> Iterator[tuple[str, str]]:
    """Every table's rows as text; bytes decompressed where they are compressed."""
    with psycopg.connect(dsn) as conn:
        tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        for (table,) in conn.execute(tables).fetchall():
            found = conn.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()
            yield table, "\n".join(readable(value) for row in found for value in row)


def readable(value: object) -> str:
    if isinstance(value, bytes | memoryview):
        raw = bytes(value)
        if raw.startswith(ZSTD):
            raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=1 << 24)
        return raw.decode("utf-8", "replace")
    return json.dumps(value, default=str, ensure_ascii=False)


def test_no_table_holds_one(told: Told) -> None:
    found = dict(rows(told.dsn))
    assert [f"{leak} in {table}" for table, text in found.items() for leak in told.search.leaks(text)] == []
    filled = {re.sub(r"_\d{8}$", "", table) for table, text in found.items() if text}
    assert filled >= {
        "changes",
        "objects",
        "symptoms",
        "series_keys",
        "incidents",
        "quarantine",
        "call_keys",
        "requests",
    }


def addresses(told: Told) -> list[str]:
    """Every page and every answer about what was imported."""
    asked = [
        *("/", "/changes", "/changes?derived=shown", "/openapi.json", "/nothing", "/api/v1/nothing"),
        *("/api/v1/rollouts?limit=1000", "/api/v1/calls?cluster=lab&minus=1h&limit=1000", "/api/v1/gaps"),
        *("/api/v1/what-changed?minus=2h", "/api/v1/what-changed?minus=2h&format=json"),
    ]
    versions: dict[str, list[str]] = {}
    after = ""
    while True:
        page = f"/api/v1/changes?derived=shown&limit=1000{after}"
        asked.append(page)
        found = told.json(page)
        for change in found["items"]:
            asked += [f"/changes/{change['id']}", f"/api/v1/changes/{change['id']}"]
            asked += [f"/api/v1/changes/{change['id']}/{what}" for what in ("revert", "manifest")]
            r = change["resource"]
            path = f"/objects/{r['cluster']}/{r['api_group'] or 'core'}/{r['kind']}/{r['namespace'] or '-'}/{r['name']}"
            versions.setdefault(path, []).append(change["id"])
        if found["next"] is None:
            break
        after = f"&after={found['next']}"
    for path, ids in versions.items():
        asked += [path, f"/api/v1{path}", f"{path}?old={ids[-1]}&new={ids[0]}"]
        cluster, group, kind, space, name = path.removeprefix("/objects/").split("/", 4)
        named = f"{kind}/{name}" if group == "core" else f"{kind}.{group}/{name}"
        query = {"cluster": cluster, "object": named, "from": "2020-01-01T00:00:00Z"} | (
            {} if space == "-" else {"namespace": space}
        )
        asked += [] if group.startswith("external:") else [f"/api/v1/diff?{urlencode(query)}"]
    incidents = told.json("/api/v1/incidents?limit=1000")
    asked.append("/api/v1/incidents?limit=1000")
    for incident in incidents["items"]:
        path = f"/incidents/{incident['id']}"
        asked += [
            path,
            f"{path}?rows=all&derived=shown",
            f"/_{path}?rows=all",
            f"/api/v1{path}",
            f"/api/v1{path}/suspects",
        ]
    assert len(versions) >= 50
    assert len(asked) >= 1000
    assert sum(incident["alert_count"] for incident in incidents["items"]) == len(told.field.alerts)
    return asked


def test_no_page_and_no_answer_shows_one(told: Told) -> None:
    def shown(path: str) -> tuple[str, str, set[str]]:
        status, body = told.get(path)
        refused = "" if status == 200 else f"{status}: {body[-2000:]}"
        return path, refused, told.search.leaks(html.unescape(body))

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(shown, addresses(told)))
    assert [f"{leak} in {path}" for path, _, leaks in answers for leak in leaks] == []
    refused = {path: answer for path, answer, _ in answers if answer and "/manifest" not in path}
    assert sum("/manifest" in path and not answer for path, answer, _ in answers) >= 50, "most are known"
    assert refused.keys() == {"/nothing", "/api/v1/nothing"}, refused
    assert all(answer.startswith("404") for answer in refused.values())


async def test_no_message_in_slack_shows_one(told: Told) -> None:
    texts = []
    database = open_database(told.dsn)
    async with database.read.connect() as conn:
        for incident in await incidents.list_incidents(conn):
            found = await incidents.read_incident(conn, incident.id)
            assert found
            whole = message.message(message.Told(*found, first=found[1], gaps=(), url=told.site.url))
            texts.append(f"{whole.text} {json.dumps(whole.blocks, ensure_ascii=False)}")
    await database.close()
    assert any("This was it" in text for text in texts), "a suspect is told"
    assert [leak for text in texts for leak in told.search.leaks(text)] == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("acme.io/Widget/shop/benign", "spec"),
        ("apps/Deployment/shop/benign", "annotations"),
        ("core/ConfigMap/shop/benign", "data"),
    ],
)
def test_what_is_harmless_is_told_as_it_is(told: Told, path: str, field: str) -> None:
    state = told.json(f"/api/v1/objects/lab/{path}")["state"]
    found = state["metadata"][field] if field == "annotations" else state[field]
    assert len(BENIGN) >= 60
    for key, text in BENIGN.items():
        name = f"shop.example/{key}" if field == "annotations" and "/" not in key else key
        assert found[name] == text
    _, page = told.get(f"/objects/lab/{path}")
    assert "&lt;redacted:" not in page


def post(told: Told, body: str) -> tuple[int, str]:
    request = urllib.request.Request(
        f"{told.site.url}/intake/alertmanager/lab",
        body.encode(),
        {"Authorization": f"Bearer {told.token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_neither_answer_nor_log_repeats_what_a_request_brought(told: Told) -> None:
    for payload in canaries.payloads(told.field.alerts):
        status, body = post(told, payload)
        assert (status, told.search.leaks(body)) == (200, set())
    draw = list(told.field.canaries)
    for bad in (
        f'{{"version": "{draw[0]}", "alerts": []}}',
        f'{{"alerts": "{draw[1]}"}}',
        draw[2],
        f'{{"{draw[3]}": 1}}',
    ):
        status, body = post(told, bad)
        assert (status, told.search.leaks(body)) == (400, set())
    for path, expected in (
        (f"/?token={draw[4]}", 422),
        (f"/login?token={draw[5]}", 200),
        (f"/api/v1/changes?token={draw[6]}", 422),
    ):
        status, body = told.get(path)
        assert status == expected, path
        assert told.search.leaks(body) == set()
    log = told.log.read_text()
    assert log
    assert told.search.leaks(log) == set()
    assert [f"{leak} in {table}" for table, text in rows(told.dsn) for leak in told.search.leaks(text)] == []
