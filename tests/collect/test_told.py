"""Since when the API server was told of a symptom: only a clock that says fractions of a second can tell."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.store import symptoms
from tests.collect.test_importer import NOW, T0, Lab, audited, lab, read, stamp, write

__all__ = ["lab"]
RUNS: dict[str, Any] = {"running": {}}
CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}


def pod(version: int, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "pod", "resourceVersion": str(version)},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
        "status": {"phase": "Running", "conditions": [], "containerStatuses": [{"name": "web", "state": state}]},
    }


def warning(count: int) -> dict[str, Any]:
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": "e", "namespace": "shop", "uid": "e", "resourceVersion": str(count)},
        "type": "Warning",
        "reason": "BackOff",
        "count": count,
        "lastTimestamp": stamp(30),
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": "web-1"},
    }


def seen(second: float, obj: dict[str, Any], *, what: str = "MODIFIED") -> str:
    return json.dumps({"at": stamp(second), "type": what, "object": obj}) + "\n"


def patched(second: float) -> str:
    """The kubelet's write of the crash, in the audit log."""
    ref = {"resource": "pods", "subresource": "status", "namespace": "shop", "name": "web-1"}
    told = {"auditID": "p", "verb": "patch", "objectRef": ref, "responseObject": pod(20, CRASHED)}
    return json.dumps(json.loads(read(second)) | told) + "\n"


async def told(lab: Lab) -> dict[str, datetime | None]:
    async with lab.database.read.connect() as conn:
        return {s.reason: s.told_at for s in await symptoms.read_window(conn, lab.cluster, T0, NOW)}


@pytest.mark.parametrize(
    ("second", "expected"), [(30, None), (30.5, T0 + timedelta(seconds=30.5))], ids=["whole", "fraction"]
)
async def test_a_watch_of_whole_seconds_does_not_know(
    lab: Lab, tmp_path: Path, second: float, expected: datetime | None
) -> None:
    audit = read(1) + "\n" + audited(30.8, 12, "web:2") + "\n" + read(40) + "\n"
    watch = seen(5, pod(10, RUNS), what="ADDED") + seen(second, pod(20, CRASHED)) + seen(second, warning(1))
    await lab.imported(*write(tmp_path, audit=audit, watch=watch + seen(31.5, warning(2))))
    found = await told(lab)
    assert set(found) == {"CrashLoopBackOff", "BackOff"}
    for at in found.values():
        assert (at and at.replace(microsecond=at.microsecond // 1000 * 1000)) == expected


async def test_the_audit_log_knows_better(lab: Lab, tmp_path: Path) -> None:
    watch = seen(5, pod(10, RUNS), what="ADDED") + seen(30, pod(20, CRASHED))
    (first,) = write(tmp_path, watch=watch)
    await lab.imported(first)
    assert await told(lab) == {"CrashLoopBackOff": None}
    (second,) = write(tmp_path, audit=read(1) + "\n" + patched(30.95))
    await lab.imported(second)
    assert await told(lab) == {"CrashLoopBackOff": T0 + timedelta(seconds=30.95)}


async def test_a_dump_is_as_old_as_a_whole_second(lab: Lab, tmp_path: Path) -> None:
    dump = tmp_path / "pods.json"
    made = pod(20, CRASHED)
    made["metadata"]["managedFields"] = [{"manager": "kubelet", "operation": "Update", "time": stamp(30)}]
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [made]}))
    await lab.imported(dump)
    assert await told(lab) == {"CrashLoopBackOff": None}
