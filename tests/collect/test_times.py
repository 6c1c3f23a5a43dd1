"""Times of watch events: what a clock of whole seconds leaves out is not made up, and no order is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from app.collect.importer import Import
from app.collect.inputs import find_inputs
from app.store.database import Database
from app.store.timeline import ChangeFilter, list_changes

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = "2026-11-21T11:00:10Z"


def stored(version: int, image: str) -> dict[str, object]:
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u1",
            "resourceVersion": str(version),
            "creationTimestamp": SECOND,
        },
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}},
    }


def watched(version: int, image: str) -> str:
    kind = "ADDED" if version == 1 else "MODIFIED"
    return json.dumps({"at": SECOND, "type": kind, "object": stored(version, image)})


def audited(version: int, image: str) -> str:
    at = f"2026-11-21T11:00:10.{version}50000Z"
    event = {
        "stage": "ResponseComplete",
        "auditID": f"a{version}",
        "verb": "create" if version == 1 else "update",
        "requestURI": "/apis/apps/v1/namespaces/shop/deployments/web",
        "user": {"username": "bob"},
        "objectRef": {"resource": "deployments", "namespace": "shop", "name": "web", "apiGroup": "apps"},
        "responseStatus": {"code": 201 if version == 1 else 200},
        "requestReceivedTimestamp": at,
        "stageTimestamp": at,
    }
    return json.dumps(event | {"responseObject": stored(version, image)})


VERSIONS = [(number, f"web:v{number}") for number in range(1, 10)]


async def imported(database: Database, cluster: str, folder: Path) -> list[tuple[str, datetime, set[str]]]:
    await Import(database.write, cluster, now=NOW, progress=lambda *_: None).run(find_inputs([str(folder)]))
    async with database.read.connect() as conn:
        found = await list_changes(conn, ChangeFilter(cluster))
    return [(change.summary, change.at, set(change.sources)) for change in reversed(found)]


async def test_events_of_one_second_keep_the_order_in_which_they_came(database: Database, tmp_path: Path) -> None:
    (tmp_path / "watch.jsonl").write_text("\n".join(watched(*one) for one in VERSIONS))
    found = await imported(database, "watch alone", tmp_path)
    assert [summary.split("web: ")[-1] for summary, _, _ in found[1:]] == [f"v{n - 1} → v{n}" for n in range(2, 10)]
    assert {at.replace(microsecond=0) for _, at, _ in found} == {datetime.fromisoformat(SECOND)}


async def test_the_audit_event_says_when_a_write_was(database: Database, tmp_path: Path) -> None:
    (tmp_path / "watch.jsonl").write_text("\n".join(watched(*one) for one in VERSIONS))
    (tmp_path / "audit.jsonl").write_text("\n".join(audited(*one) for one in VERSIONS))
    found = await imported(database, "both", tmp_path)
    assert [at.microsecond for _, at, _ in found] == [n * 100_000 + 50_000 for n in range(1, 10)]
    assert all(sources == {"audit", "watch"} for _, _, sources in found)
