"""Canaries end to end: planted in every input, imported for real, and looked for in every table, page and answer."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import zstandard
from sqlalchemy import text

from app.commands.importing import import_paths, summary
from app.core.model import Object
from app.core.roles import Role
from app.store import tokens
from app.store.database import Database
from app.store.tokens import Purpose
from app.web.deps import Deps
from app.web.routes import create_app
from tests.core.test_canaries import ANYWHERE, PLAIN, SHAPES, _merge

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
T0 = NOW - timedelta(minutes=30)
PLURALS = {"Secret": "secrets", "ConfigMap": "configmaps", "Deployment": "deployments", "CronJob": "cronjobs"}


@dataclass
class Planted:
    """The canaries, and the files that hold them."""

    canaries: list[str]
    audit: list[str]
    watch: list[str]


def stamp(second: float) -> str:
    return (T0 + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")


def planted() -> Planted:
    draw = random.Random(11)
    found = Planted([], [], [])
    places = [(*kind, place, None) for kind, some in PLAIN.items() for place in some for _ in range(5)]
    places += [
        (group, kind, place, shape)
        for group, kind in (("acme.io", "Widget"), ("", "ConfigMap"), ("apps", "Deployment"))
        for place in ANYWHERE
        for shape in SHAPES * 3
    ]
    for number, (group, kind, place, shape) in enumerate(places, start=1):
        canary = shape(draw) if shape else f"z{''.join(draw.choices('bcdfghjklmnpqrstvwxz', k=16))}9"
        found.canaries.append(canary)
        tell(found, number, group, kind, place(canary))
    said = [f"password={canary}" for canary in (make(draw) for make in SHAPES * 2)]
    for line in said:
        found.canaries.append(line.removeprefix("password="))
        found.audit.append(json.dumps({"kind": "Event", "stage": 7, "note": line}))  # a bad line
    return found


def tell(found: Planted, number: int, group: str, kind: str, part: Object) -> None:
    """One object's life: created clean and seen by the watch, changed with the canary (audit and watch), deleted."""
    name, uid, version = f"o{number}", f"uid-{number}", number * 10
    at = number / 10

    def body(step: int, more: Object) -> dict[str, Any]:
        meta = {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": str(version + step)}
        whole: Object = {"apiVersion": f"{group}/v1".lstrip("/"), "kind": kind, "metadata": meta}  # type: ignore[dict-item]
        return _merge(whole, more)

    def event(step: int, verb: str, request: object, response: object, *, level: str = "RequestResponse") -> str:
        plural = PLURALS.get(kind, kind.lower() + "s")
        return json.dumps(
            {
                "kind": "Event",
                "apiVersion": "audit.k8s.io/v1",
                "level": level,
                "auditID": f"a{number}-{step}",
                "stage": "ResponseComplete",
                "requestURI": f"/apis/{group}/v1/namespaces/shop/{plural}/{name}?token=abc",
                "verb": verb,
                "user": {"username": "alice"},
                "objectRef": {"resource": plural, "namespace": "shop", "name": name, "apiGroup": group},
                "responseStatus": {"code": 201 if verb == "create" else 200},
                "requestObject": request,
                "responseObject": response,
                "requestReceivedTimestamp": stamp(at + step / 100),
                "stageTimestamp": stamp(at + step / 100 + 0.001),
            }
        )

    def seen(step: int, kind_of_event: str, whole: dict[str, Any]) -> str:
        return json.dumps({"at": stamp(at + step / 100 + 0.002), "type": kind_of_event, "object": whole})

    clean, dirty, dirtier = body(1, {}), body(2, part), body(3, _merge(part, {"metadata": {"labels": {"x": "y"}}}))
    found.audit += [
        event(1, "create", clean, clean),
        event(2, "patch", part, dirty),
        event(3, "update", dirtier, dirtier if number % 2 else None),
        event(4, "delete", None, dirtier),
    ]
    found.watch += [seen(2, "MODIFIED", dirty), seen(3, "MODIFIED", dirtier), seen(4, "DELETED", dirtier)]


@pytest.fixture(scope="module")
async def told(database: Database, tmp_path_factory: pytest.TempPathFactory) -> tuple[Planted, str]:
    """Everything imported; what the import said about it."""
    folder: Path = tmp_path_factory.mktemp("canaries")
    found = planted()
    draw = random.Random(12)
    alert_secret, event_secret = SHAPES[0](draw), SHAPES[2](draw)
    found.canaries += [alert_secret, event_secret]
    warning = {
        "apiVersion": "v1",
        "kind": "Event",
        "type": "Warning",
        "metadata": {"name": "w", "namespace": "shop", "uid": "uid-w", "resourceVersion": "1"},
        "reason": "FailedMount",
        "message": f"cannot log in with {event_secret}",
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1"},
        "lastTimestamp": stamp(5),
        "count": 3,
    }
    found.watch.append(json.dumps({"at": stamp(99_0 / 10), "type": "ADDED", "object": warning}))
    (folder / "audit.jsonl").write_text("\n".join(found.audit) + "\n")
    (folder / "watch.jsonl").write_text("\n".join(found.watch) + "\n")
    alert = {
        "status": "firing",
        "labels": {"alertname": "Broken", "namespace": "shop", "token": alert_secret},
        "annotations": {"summary": f"login failed, password={alert_secret}"},
        "startsAt": stamp(60),
        "fingerprint": "f",
    }
    (folder / "alerts.json").write_text(json.dumps({"version": "4", "alerts": [alert]}))
    report, incidents = await import_paths(database.write, [str(folder)], "canaries", now=NOW)
    assert report.tally.changes > 1000
    assert report.tally.rejects >= 14
    assert incidents
    return found, "\n".join(summary(report, incidents))


def parts(canary: str) -> list[str]:
    lines = [line for line in canary.splitlines() if line and not line.startswith("-----")]
    return [*lines, b64encode(canary.encode()).decode()]


def leaks(found: Planted, where: str, text_of_it: str) -> list[str]:
    return [f"{part[:20]}… in {where}" for canary in found.canaries for part in parts(canary) if part in text_of_it]


def readable(value: object) -> str:
    """A column as text; bytes decompressed where they are compressed."""
    if isinstance(value, bytes | memoryview):
        raw = bytes(value)
        if raw.startswith(b"\x28\xb5\x2f\xfd"):
            raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=1 << 24)
        return raw.decode("utf-8", "replace")
    return json.dumps(value, default=str, ensure_ascii=False)


async def test_enough_is_planted(told: tuple[Planted, str]) -> None:
    assert len(set(told[0].canaries)) >= 500


async def test_no_table_holds_one(told: tuple[Planted, str], database: Database) -> None:
    found, said = told
    assert leaks(found, "the import's own words", said) == []
    async with database.read.connect() as conn:
        tables = (
            await conn.execute(
                text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
            )
        ).scalars()
        for table in tables:
            rows = (await conn.execute(text(f"SELECT * FROM {table}"))).all()
            whole = "\n".join(readable(value) for row in rows for value in row)
            assert leaks(found, table, whole) == []


async def test_no_page_and_no_answer_shows_one(told: tuple[Planted, str], database: Database) -> None:
    found, _ = told
    async with database.write.begin() as conn:
        token = await tokens.create(conn, Role.ADMIN, purpose=Purpose.API, now=NOW)
    app = create_app(Deps(read=database.read, write=database.write, public_url="http://c", clock=lambda: NOW))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://c", headers={"Authorization": f"Bearer {token}"}
    ) as client:
        since = "from=2026-11-21T10:00:00Z&to=2026-11-21T12:00:00Z"
        listed = (await client.get(f"/api/v1/changes?{since}&limit=1000")).json()["items"]
        incident = (await client.get("/api/v1/incidents")).json()["items"][0]["id"]
        paths = [
            "/",
            f"/incidents/{incident}",
            f"/changes?{since}",
            f"/api/v1/changes?{since}&limit=1000",
            f"/api/v1/incidents/{incident}",
            f"/api/v1/incidents/{incident}/suspects",
            "/api/v1/what-changed?minus=2h",
            f"/api/v1/calls?{since}",
        ]
        picked = listed[::12]
        paths += [f"/changes/{one['id']}" for one in picked]
        for one in picked:
            r = one["resource"]
            paths.append(
                f"/objects/{r['cluster']}/{r['api_group'] or 'core'}/{r['kind']}/{r['namespace'] or '-'}/{r['name']}"
            )
        answered = 0
        for path in paths:
            answer = await client.get(path)
            answered += answer.status_code == 200
            assert leaks(found, path, answer.text) == []
        assert answered > 0.9 * len(paths)
