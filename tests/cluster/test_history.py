"""What a real cluster remembers of its past: real templates, told once, and not again by the watches after it."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from app.collect.contexts import WantedCluster
from app.collect.history import Report, rebuild
from app.core.model import Change, DiffSource, Verb
from app.store import changes
from app.store.database import Database
from tests.cluster.control_plane import ControlPlane, running
from tests.cluster.test_live import followed
from tests.cluster.test_watch import BRISK, api_of
from tests.test_cli import foreshock

DAY = timedelta(days=1)
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def name() -> str:
    return f"history-{uuid4().hex[:8]}"


def make(admin: httpx2.Client, kind: str, name: str) -> None:
    container = {"name": "app", "image": "r/app:v1", "env": [{"name": "DB_PASSWORD", "value": SECRET}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": name}}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    body = {"metadata": {"name": name}, "spec": spec}
    path = f"/apis/apps/v1/namespaces/default/{PLURALS[kind]}"
    made = admin.post(path, json=body, params={"fieldManager": "maker"})
    assert made.is_success, made.text


def image(admin: httpx2.Client, kind: str, name: str, tag: str) -> None:
    containers = [{"name": "app", "image": f"r/app:{tag}"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    path = f"/apis/apps/v1/namespaces/default/{PLURALS[kind]}/{name}"
    done = admin.patch(path, content=json.dumps(body), headers=STRATEGIC, params={"fieldManager": f"m-{tag}"})
    assert done.is_success, done.text
    seen(admin, kind, name, done.json()["metadata"]["generation"])


def seen(admin: httpx2.Client, kind: str, name: str, generation: int) -> None:
    """Wait until the controller has taken notice: it keeps what it was told only then. Then for another second, which
    is what times in metadata are told apart by."""
    for _ in range(300):
        found = admin.get(f"/apis/apps/v1/namespaces/default/{PLURALS[kind]}/{name}").json()
        if found.get("status", {}).get("observedGeneration", 0) >= generation:
            time.sleep(1.1)
            return
        time.sleep(0.1)
    raise AssertionError(f"{kind} {name} is not taken notice of")


def lived(admin: httpx2.Client) -> None:
    """The past: each kind of workload with three templates, the Deployment gone back to its first; and an edit."""
    for kind in PLURALS:
        make(admin, kind, kind.lower())
        seen(admin, kind, kind.lower(), 1)
    for tag in ("v2", "v3"):
        for kind in PLURALS:
            image(admin, kind, kind.lower(), tag)
    image(admin, "Deployment", "deployment", "v1")
    path = "/api/v1/namespaces/default/configmaps"
    assert admin.post(path, json={"metadata": {"name": "settings"}, "data": {"a": "1"}}).is_success
    time.sleep(3.1)
    edit = json.dumps({"data": {"a": "2"}})
    assert admin.patch(
        f"{path}/settings", content=edit, headers=STRATEGIC, params={"fieldManager": "editor"}
    ).is_success


async def remembered(plane: ControlPlane, database: Database, name: str, *, user: str = "admin") -> Report:
    now = datetime.now(UTC)
    async with api_of(plane, user) as api:
        return await rebuild(
            database.write, api, WantedCluster(name), since=now - DAY, now=now + timedelta(seconds=1), pace=BRISK
        )


async def stored(database: Database, name: str) -> list[Change]:
    now = datetime.now(UTC)
    async with database.read.connect() as conn:
        return await changes.read_window(conn, name, now - DAY, now + DAY, limit=10_000)


async def until_stored(database: Database, name: str, tag: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if any(tag in one.summary for one in await stored(database, name)):
                return
            await asyncio.sleep(0.1)


def of(found: list[Change], kind: str) -> list[Change]:
    own = [one for one in found if (one.resource.kind, one.resource.namespace) == (kind, "default")]
    return sorted((one for one in own if one.resource.name in (kind.lower(), "settings")), key=lambda one: one.at)


async def test_a_cluster_tells_its_past_once(database: Database, tmp_path: Path, name: str) -> None:
    with running(controllers=True) as plane, plane.client() as admin:
        lived(admin)
        first = await remembered(plane, database, name)
        found = await stored(database, name)
        second = await remembered(plane, database, name)
        again = await stored(database, name)
        async with followed(plane, database, tmp_path / "spool", name, after=0) as live:
            await live.synced()
            await asyncio.to_thread(image, admin, "Deployment", "deployment", "v4")
            await until_stored(database, name, "v4")
        third = await remembered(plane, database, name)
        last = await stored(database, name)
    assert (first.unread, first.new) == ((), len(found))
    for kind in PLURALS:
        made, *rest = of(found, kind)
        assert (made.verb, made.actor.name) == (Verb.CREATE, "maker")
        tags = ["r/app:v2", "r/app:v3", *(["r/app:v1"] if kind == "Deployment" else [])]
        assert [one.diffs[0].new for one in rest] == tags
        assert all(one.diff_source is DiffSource.STATES and one.since is None for one in rest)
        assert rest[-1].actor.name == ("m-v1" if kind == "Deployment" else "m-v3")
        assert rest[0].found_in.startswith("ReplicaSet" if kind == "Deployment" else "ControllerRevision")
    _, edit = of(found, "ConfigMap")
    assert (edit.actor.name, edit.diff_source, edit.found_in) == ("editor", DiffSource.NONE, "managedFields")
    assert SECRET not in repr(found)
    assert (second.new, again) == (0, found)
    assert third.new == 0
    told = [one for one in last if one.key not in {one.key for one in found}]
    assert [(one.summary, one.actor.name) for one in told] == [("image (app) of deployment: v1 → v4", "m-v4")]
    assert [one.diffs for one in of(last, "Deployment")][:-1] == [one.diffs for one in of(found, "Deployment")]


async def test_what_may_not_be_read_is_said_and_the_rest_is_read(
    control_plane: ControlPlane, database: Database, name: str
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": "carol", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    with control_plane.client() as admin:
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        assert admin.post(f"{rbac}/clusterroles", json={"metadata": {"name": name}, "rules": rules}).is_success
        assert admin.post(f"{rbac}/clusterrolebindings", json=binding).is_success
        made = {"metadata": {"name": name}, "data": {"password": SECRET}}
        assert admin.post("/api/v1/namespaces/default/configmaps", json=made).is_success
    report = await remembered(control_plane, database, name, user="carol")
    assert name in {one.resource.name for one in report.found}
    assert {one.resource.kind for one in report.found} == {"ConfigMap"}
    assert any(line.startswith("/apis/apps/v1/replicasets: 403 ") for line in report.unread), report.unread
    asked = [one for one in control_plane.audited() if one["user"].get("username") == "carol"]
    assert {one["verb"] for one in asked} <= {"get", "list"}
    assert not [one for one in asked if one.get("objectRef", {}).get("resource") == "secrets"]
    assert SECRET not in repr(await stored(database, name))


def test_the_command_prints_what_a_cluster_remembers(control_plane: ControlPlane, dsn: str, name: str) -> None:
    with control_plane.client() as admin:
        path = "/api/v1/namespaces/default/configmaps"
        made = {"metadata": {"name": name}, "data": {"a": "1"}}
        assert admin.post(path, json=made, params={"fieldManager": "maker"}).is_success
    where = {"KUBECONFIG": str(control_plane.kubeconfig()), "DATABASE_URL": dsn}
    done = foreshock("history", "--since", "2h", "--cluster", "north", **where)
    assert done.returncode == 0, done.stderr
    head, title, *rows = done.stdout.splitlines()
    assert " UTC: north remembers " in head
    assert title.split() == ["TIME", "NAMESPACE", "CHANGE", "WHO", "FOUND", "IN"]
    (row,) = [row for row in rows if name in row]
    assert row.split()[2:] == ["default", "ConfigMap", name, "created:", "a", "maker", "creationTimestamp"]
    again = foreshock("history", "--cluster", "north", "--output", "json", **where)
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert (found["cluster"], found["new"], found["unread"]) == ("north", 0, [])
    assert name in {one["resource"]["name"] for one in found["items"]}


def test_of_several_clusters_one_is_to_be_named(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text("clusters: [{name: north, kubeconfig: /nosuch}, {name: south, kubeconfig: /nosuch}]")
    where = {"FORESHOCK_CLUSTERS_FILE": str(file), "DATABASE_URL": dsn}
    done = foreshock("history", **where)
    assert (done.returncode, "--cluster names one of north, south" in done.stderr) == (2, True)
    done = foreshock("history", "--cluster", "south", **where)
    assert (done.returncode, "/nosuch: there is no such kubeconfig" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no kubeconfig with a current context"),
        (("--context", "nosuch"), "there is no such kubeconfig"),
        (("--kubeconfig", "/nosuch/config"), "no kubeconfig with a current context"),
    ],
    ids=["no cluster", "no such context", "no such file"],
)
def test_without_a_cluster_it_says_what_to_do(dsn: str, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = foreshock(
        "history", *options, KUBECONFIG=str(tmp_path / "none"), DATABASE_URL=dsn, FORESHOCK_CLUSTERS_FILE=""
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
