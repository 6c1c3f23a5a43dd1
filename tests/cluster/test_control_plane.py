"""The control plane of these tests is a real one: it serves, audits, forgets, restarts and controls like any."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.model import Verb
from app.store import changes
from app.store.database import Database
from tests.cluster.control_plane import ControlPlane, running
from tests.cluster.programs import NotReadyError, wait_until
from tests.processes import runs
from tests.test_cli import FORESHOCK, PATIENCE, environment

CONTROLLER = "system:serviceaccount:kube-system:"
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "registry.example/web:1"}]},
        },
    },
}


@pytest.fixture(scope="module")
def own() -> Iterator[ControlPlane]:
    """A control plane that these tests may break, with its controllers."""
    with running(controllers=True) as plane:
        yield plane


def imported(dsn: str, log: Path, cluster: str) -> None:
    command = [*FORESHOCK, "import", str(log), "--cluster", cluster]
    subprocess.run(command, env=environment(DATABASE_URL=dsn), check=True, timeout=PATIENCE)


def config_map(data: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "data": data}


def test_it_is_the_version_that_was_built(control_plane: ControlPlane) -> None:
    tools = (Path(__file__).parent / "tools" / "go.mod").read_text().split()
    with control_plane.client() as admin:
        told = admin.get("/version").json()
    assert told["gitVersion"] == tools[tools.index("k8s.io/kubernetes") + 1]
    assert (told["major"], told["minor"]) == ("1", told["gitVersion"].split(".")[1])


def test_users_may_what_rbac_says(control_plane: ControlPlane, namespace: str) -> None:
    with control_plane.client("foreshock") as foreshock:
        refused = foreshock.get(f"/api/v1/namespaces/{namespace}/pods")
    assert refused.status_code == 403
    assert refused.json()["message"].startswith('pods is forbidden: User "foreshock" cannot list resource "pods"')


async def test_three_writes_are_three_audit_events_and_three_changes(
    control_plane: ControlPlane, namespace: str, dsn: str, database: Database, tmp_path: Path
) -> None:
    began = datetime.now(UTC)
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with control_plane.client() as admin:
        answers = [
            admin.post(maps, json=config_map({"level": "info"})),
            admin.patch(
                f"{maps}/web",
                content=json.dumps(config_map({"level": "debug"})),
                headers={"Content-Type": "application/merge-patch+json"},
            ),
            admin.delete(f"{maps}/web"),
        ]
    assert [answer.status_code for answer in answers] == [201, 200, 200]

    def ours() -> list[dict[str, Any]]:
        """In the order of the requests: an event is written when its answer is, and answers may overtake."""
        about = {"resource": "configmaps", "namespace": namespace}
        found = [e for e in control_plane.audited() if about.items() <= e.get("objectRef", {}).items()]
        return sorted(found, key=lambda e: str(e["requestReceivedTimestamp"]))

    wait_until(lambda: len(ours()) == 3, "three events in the audit log", seconds=30)
    assert [(e["verb"], e["user"]["username"], e["responseStatus"]["code"]) for e in ours()] == [
        ("create", "admin", 201),
        ("patch", "admin", 200),
        ("delete", "admin", 200),
    ]

    log = tmp_path / "audit.log"
    log.write_text("".join(json.dumps(event) + "\n" for event in ours()))
    imported(dsn, log, namespace)
    async with database.read.connect() as conn:
        until = datetime.now(UTC) + timedelta(seconds=1)
        told = await changes.read_window(conn, namespace, began - timedelta(seconds=1), until, limit=100)
    assert [(c.verb, c.actor.name, c.resource.name) for c in told] == [
        (Verb.CREATE, "admin", "web"),
        (Verb.UPDATE, "admin", "web"),
        (Verb.DELETE, "admin", "web"),
    ]
    assert [(d.path, d.old, d.new) for d in told[1].diffs] == [(("data", "level"), "info", "debug")]


def test_a_deployment_makes_pods_that_wait_for_a_node(own: ControlPlane) -> None:
    apps, core = "/apis/apps/v1/namespaces/default", "/api/v1/namespaces/default"
    with own.client() as admin:
        assert admin.post(f"{apps}/deployments", json=DEPLOYMENT).status_code == 201

        def waiting() -> list[str]:
            pods = admin.get(f"{core}/pods", params={"labelSelector": "app=web"}).json()["items"]
            conditions = [c for pod in pods for c in pod["status"].get("conditions", ())]
            return [c["reason"] for c in conditions if c["type"] == "PodScheduled"]

        wait_until(lambda: waiting() == ["Unschedulable"] * 2, "the scheduler has looked at two pods", seconds=60)
        [replica_set] = admin.get(f"{apps}/replicasets").json()["items"]
    assert replica_set["metadata"]["ownerReferences"][0]["name"] == "web"
    by = {
        e["user"].get("username")
        for e in own.audited()
        if e["verb"] == "create" and e["objectRef"]["resource"] == "pods"
    }
    assert by == {f"{CONTROLLER}replicaset-controller"}


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_restart_keeps_the_state(own: ControlPlane, kill: bool) -> None:
    with own.client() as admin:
        name = f"killed-{kill}".lower()
        body = {"metadata": {"name": name}, "data": {"level": "info"}}
        made = admin.post("/api/v1/namespaces/default/configmaps", json=body).json()
        own.apiserver.stop(kill=kill)
        own.etcd.restart(kill=kill)
        own.apiserver.start()
        assert admin.get(f"/api/v1/namespaces/default/configmaps/{name}").json() == made


def test_compacted_revisions_are_gone(own: ControlPlane) -> None:
    newest = own.compact()
    own.apiserver.restart()  # what it had in its cache it would still tell
    with own.client() as admin:
        exactly = {"resourceVersion": str(newest - 1), "resourceVersionMatch": "Exact"}
        answer = admin.get("/api/v1/configmaps", params=exactly)
        assert int(admin.get("/api/v1/configmaps").json()["metadata"]["resourceVersion"]) >= newest
    assert (answer.status_code, answer.json().get("reason")) == (410, "Expired")


def test_a_store_whose_quota_is_full_takes_no_write() -> None:
    with running(store_flags=["--quota-backend-bytes=8000000"]) as plane, plane.client() as admin:
        for number in range(20):
            body = {"metadata": {"name": f"large-{number}"}, "data": {"all": "x" * 900_000}}
            answer = admin.post("/api/v1/namespaces/default/configmaps", json=body)
            if not answer.is_success:
                break
        assert admin.get("/api/v1/namespaces/default/configmaps").is_success
    assert (answer.status_code, answer.json()["message"]) == (500, "etcdserver: mvcc: database space exceeded")


def test_a_frozen_api_server_does_not_answer_and_goes_on(own: ControlPlane) -> None:
    own.apiserver.pause()
    try:
        assert not own.apiserver.ready
    finally:
        own.apiserver.resume()
    own.apiserver.wait_until_ready()


def test_what_does_not_start_shows_the_end_of_its_log() -> None:
    said = r"kube-apiserver ended with 1\n[^$]*unknown flag: --no-such-flag"
    with pytest.raises(NotReadyError, match=said), running(flags=["--no-such-flag"]):
        pass


STARTER = """
from tests.cluster.control_plane import running
with running() as plane:
    print(plane.folder, plane.etcd.pid, plane.apiserver.pid, flush=True)
    input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end what it started")
def test_nothing_is_left_of_a_test_run_that_is_killed(control_plane: ControlPlane) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout
        folder, *pids = starter.stdout.readline().split()
        starter.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    wait_until(lambda: not any(runs(int(pid)) for pid in pids), "both programs are gone", seconds=20)
    shutil.rmtree(folder)
