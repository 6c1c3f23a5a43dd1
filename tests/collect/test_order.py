"""Audit log, watch and dump in imports of their own, in any order: the same changes, with the diffs that are known."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.model import DiffSource
from tests.collect.test_importer import NOW, T0, UID, Lab, deployment, lab, stamp

__all__ = ["lab"]

APPS = range(5)
VERSIONS = range(1, 6)


def stored(app: int, version: int) -> dict[str, Any]:
    """The version of an app; it is written every 20 seconds, one app after the other."""
    whole: dict[str, Any] = deployment(100 * version + app, f"web:{version}")
    second = second_of(app, version)
    meta = whole["metadata"] | {"name": f"app-{app}", "uid": f"{UID}-{app}", "creationTimestamp": stamp(-3600)}
    meta["managedFields"] = [{"manager": "kubectl-set", "operation": "Update", "time": stamp(second)}]
    return whole | {"metadata": meta}


def second_of(app: int, version: int) -> int:
    return 20 * version + 3 * app


def watched(app: int, version: int) -> str:
    kind = "ADDED" if version == 1 else "MODIFIED"
    return json.dumps({"at": stamp(second_of(app, version) + 0.2), "type": kind, "object": stored(app, version)})


def audited(app: int, version: int) -> str:
    whole = stored(app, version)
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "auditID": f"id-{app}-{version}",
        "stage": "ResponseComplete",
        "verb": "patch",
        "user": {"username": "alice"},
        "objectRef": {"resource": "deployments", "namespace": "shop", "name": f"app-{app}", "apiGroup": "apps"},
        "responseStatus": {"code": 200},
        "requestObject": {"spec": whole["spec"]},
        "responseObject": whole,
        "requestReceivedTimestamp": stamp(second_of(app, version)),
        "stageTimestamp": stamp(second_of(app, version) + 0.1),
    }
    return json.dumps(event)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The watch begins with the first versions, the audit log with the writes after them, the dump has the last."""
    told = sorted(itertools.product(VERSIONS, APPS))
    texts = {
        "watch": "\n".join(watched(app, version) for version, app in told),
        "audit": "\n".join(audited(app, version) for version, app in told if version > 1),
        "state": json.dumps({"kind": "List", "apiVersion": "v1", "items": [stored(app, VERSIONS[-1]) for app in APPS]}),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: tmp_path / name for name in texts}


ORDERS = [order for size in (1, 2, 3) for order in itertools.permutations(("watch", "audit", "state"), size)]


@pytest.mark.parametrize("order", [order for order in ORDERS if "watch" in order], ids="-".join)
async def test_every_change_has_its_own_diff_in_whatever_order(
    lab: Lab, files: dict[str, Path], order: tuple[str, ...]
) -> None:
    for name in order:
        await lab.imported(files[name])
    found = await lab.stored()
    expected = {(f"app-{app}", f"web:{version - 1}", f"web:{version}") for app in APPS for version in VERSIONS[1:]}
    assert len(found) == len(expected)
    assert {(c.resource.name, c.diffs[0].old, c.diffs[0].new) for c in found} == expected
    assert {(len(c.diffs), c.diff_source) for c in found} == {(1, DiffSource.STATES)}
    assert {c.actor.name for c in found} == {"alice" if "audit" in order else "kubectl-set"}
    states = await lab.rows("objects", "resource_version")
    assert {int(row.resource_version) for row in states} == {100 * VERSIONS[-1] + app for app in APPS}


async def test_where_nobody_knows_the_state_before_the_request_is_the_diff(lab: Lab, files: dict[str, Path]) -> None:
    await lab.imported(files["state"])
    await lab.imported(files["audit"])
    found = await lab.stored()
    assert len(found) == len(APPS) * (len(VERSIONS) - 1)
    first = [c for c in found if c.at < T0 + timedelta(seconds=second_of(0, 3))]
    assert {c.diff_source for c in first} == {DiffSource.PATCH}
    assert {c.diff_source for c in found if c not in first} == {DiffSource.STATES}


async def test_logs_that_were_rotated_go_on_from_one_another(lab: Lab, files: dict[str, Path], tmp_path: Path) -> None:
    lines = files["watch"].read_text().splitlines()
    for number, begins in enumerate(range(0, len(lines), 7)):
        (tmp_path / f"part-{number}").write_text("\n".join(lines[begins : begins + 7]))
        await lab.imported(tmp_path / f"part-{number}")
    found = await lab.stored()
    assert len(found) == len(APPS) * (len(VERSIONS) - 1)
    assert {(c.diffs[0].old, c.diffs[0].new) for c in found} == {(f"web:{v - 1}", f"web:{v}") for v in VERSIONS[1:]}


async def test_a_dump_is_as_old_as_the_last_time_that_its_objects_tell(lab: Lab, files: dict[str, Path]) -> None:
    report = await lab.imported(files["state"])
    assert report.to_at == T0 + timedelta(seconds=second_of(APPS[-1], VERSIONS[-1]))
    assert report.to_at < NOW
