"""What really rolls out in a cluster, as `foreshock serve` follows it: workloads, their pods, and who scales them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from tests.cluster.control_plane import ControlPlane, running
from tests.cluster.nodes import CRASHES, MISSING, Nodes, nodes
from tests.serving import program

ALICE = {"fieldManager": "alice"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
WITHIN = 90.0
STATES = {"Pod", "ReplicaSet", "Event", "ControllerRevision"}
Json = dict[str, Any]


@dataclass(frozen=True)
class World:
    """A cluster with nodes, who follows it, and two who work in it."""

    plane: ControlPlane
    nodes: Nodes
    rest: httpx2.Client
    admin: httpx2.Client
    dsn: str

    def told(self, what: str, **asked: str) -> list[Json]:
        """Items of REST, of all that was seen."""
        answer = self.rest.get(f"/api/v1/{what}", params={"limit": "1000", **asked})
        found: list[Json] = answer.raise_for_status().json()["items"]
        return found

    def rollout(self, name: str) -> Json | None:
        """The last one of a workload."""
        return next((one for one in self.told("rollouts") if one["resource"]["name"] == name), None)

    def changes(self, name: str) -> list[Json]:
        """Of an object, oldest first."""
        return [one for one in self.told("changes", derived="shown") if one["resource"]["name"] == name][::-1]

    def hurts(self, name: str) -> set[str]:
        """Why pods of a Deployment hurt, and go on to."""
        query = """
            SELECT DISTINCT reason FROM symptoms
            WHERE source = 'pod' AND ended_at IS NULL AND workload = %s::jsonb AND resource ->> 1 = 'Pod'
        """
        workload = json.dumps(["apps", "Deployment", "default", name])
        with psycopg.connect(self.dsn) as conn:
            return {reason for (reason,) in conn.execute(query, [workload])}

    def until(self, what: str, holds: Callable[[], Any]) -> Any:
        ends = time.monotonic() + WITHIN
        while not (found := holds()):
            assert time.monotonic() < ends, f"{what}: {self.told('rollouts')} {self.told('changes')}"
            time.sleep(0.1)
        return found

    def make(self, kind: str, name: str, image: str, **spec: Any) -> None:
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "app", "image": image}], "terminationGracePeriodSeconds": 1},
        }
        extra = {"serviceName": name} if kind == "StatefulSet" else {}
        body = {
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **extra, **spec},
        }
        made = self.admin.post(f"/apis/apps/v1/namespaces/default/{PLURALS[kind]}", json=body)
        assert made.is_success, made.text

    def set_image(self, kind: str, name: str, image: str) -> None:
        body = {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": image}]}}}}
        path = f"/apis/apps/v1/namespaces/default/{PLURALS[kind]}/{name}"
        done = self.admin.patch(path, content=json.dumps(body), headers=STRATEGIC, params=ALICE)
        assert done.is_success, done.text

    def is_complete(self, name: str, image: str) -> Json | None:
        found = self.rollout(name)
        return found if found and found["images"] == [image] and found["outcome"] == "complete" else None


def signed_in(dsn: str) -> dict[str, str]:
    """The headers of who may read."""
    command = [sys.executable, "-m", "app", "token", "create", "--role", "viewer"]
    made = subprocess.run(command, env={**os.environ, "DATABASE_URL": dsn}, capture_output=True, text=True, check=True)
    return {"Authorization": f"Bearer {made.stdout.split()[-1]}"}


@contextmanager
def world(dsn: str, folder: Path) -> Iterator[World]:
    with running(controllers=True) as plane, nodes(plane) as kubelets, plane.client() as admin:
        where = {"KUBECONFIG": str(plane.kubeconfig()), "FORESHOCK_CLUSTERS_FILE": ""}
        with (
            program(dsn, folder, "--port", "0", **where) as (_, address),
            httpx2.Client(base_url=address, headers=signed_in(dsn), timeout=30, trust_env=False) as rest,
        ):
            found = World(plane, kubelets, rest, admin, dsn)
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            found.until("pods may be made", lambda: admin.get(path).is_success)
            yield found


@pytest.fixture(scope="module")
def lab(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(dsn, tmp_path_factory.mktemp("serve")) as found:
        yield found


def steps(rollout: Json) -> list[tuple[int, int, int]]:
    return [(step["desired"], step["updated"], step["available"]) for step in rollout["progress"]]


def test_a_deployment_is_seen_in_the_middle_of_its_rollout_and_then_complete(lab: World) -> None:
    careful = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    lab.make("Deployment", "web", "r/web:v1", replicas=5, strategy=careful)
    lab.until("the first rollout is complete", lambda: lab.is_complete("web", "r/web:v1"))
    lab.nodes.allow("r/web:v2", 2)
    lab.set_image("Deployment", "web", "r/web:v2")

    def is_halfway() -> Json | None:
        found = lab.rollout("web")
        return found if found and found["images"] == ["r/web:v2"] and (5, 3, 5) in steps(found) else None

    halfway = lab.until("two of five are through, the third starts", is_halfway)
    assert halfway["outcome"] == "running"
    assert halfway["ended_at"] is None
    lab.nodes.allow("r/web:v2", 5)
    done = lab.until("the second rollout is complete", lambda: lab.is_complete("web", "r/web:v2"))
    assert done["started_at"] == halfway["started_at"]
    assert done["images_before"] == ["r/web:v1"]
    assert steps(done)[-1] == (5, 5, 5)
    made, changed = lab.changes("web")
    assert (made["verb"], changed["verb"], changed["summary"]) == (
        "create",
        "update",
        "image (app) of web: v1 → v2, by alice",
    )
    assert done["change_id"] == changed["id"]


@pytest.mark.parametrize(
    ("image", "reason"), [(f"r/bad{CRASHES}", "CrashLoopBackOff"), (f"r/bad{MISSING}", "ImagePullBackOff")]
)
def test_a_rollout_that_gets_nowhere_failed_and_its_pods_say_why(lab: World, image: str, reason: str) -> None:
    name = image.rpartition(":")[2]
    lab.make("Deployment", name, "r/good:v1", replicas=2, progressDeadlineSeconds=5)
    lab.until("the first rollout is complete", lambda: lab.is_complete(name, "r/good:v1"))
    lab.set_image("Deployment", name, image)

    def is_failed() -> Json | None:
        found = lab.rollout(name)
        return found if found and found["images"] == [image] and found["outcome"] == "failed" else None

    failed = lab.until("the second rollout failed", is_failed)
    assert failed["reason"] == "ProgressDeadlineExceeded"
    lab.until("its pods hurt", lambda: reason in lab.hurts(name))


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_other_workloads_roll_out_too(lab: World, kind: str) -> None:
    name = kind.lower()
    replicas = {"replicas": 3} if kind == "StatefulSet" else {}
    lab.make(kind, name, "r/x:v1", **replicas)
    lab.until("the first rollout is complete", lambda: lab.is_complete(name, "r/x:v1"))
    lab.set_image(kind, name, "r/x:v2")
    done = lab.until("the second rollout is complete", lambda: lab.is_complete(name, "r/x:v2"))
    _, changed = lab.changes(name)
    assert done["change_id"] == changed["id"]
    count = 3 if kind == "StatefulSet" else len(lab.nodes.names)
    assert steps(done)[-1] == (count, count, count)


def test_who_scales_is_told_apart(lab: World) -> None:
    """What a person decides is a change of its own; what an autoscaler does follows from who made the autoscaler."""
    lab.make("Deployment", "scaled", "r/scaled:v1", replicas=1)
    lab.until("it is there", lambda: lab.is_complete("scaled", "r/scaled:v1"))
    scale(lab, 2)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}
    scaler = {"metadata": {"name": "scaler"}, "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 9}}
    scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    assert lab.admin.post(scalers, json=scaler).is_success  # too few are there: its controller makes it three
    path = "/apis/apps/v1/namespaces/default/deployments/scaled"
    lab.until("the autoscaler has scaled", lambda: lab.admin.get(path).json()["spec"]["replicas"] == 3)
    scale(lab, 5)
    lab.until("all is told", lambda: [one for one in lab.changes("scaled") if "→ 5" in one["summary"]])
    _, first, by_scaler, last = lab.changes("scaled")
    assert first["summary"] == "replicas of scaled: 1 → 2, by alice"
    assert last["summary"] == "replicas of scaled: 3 → 5, by alice"
    assert [first["begun_by"], last["begun_by"]] == [None, None]
    assert by_scaler["begun_by"] == lab.changes("scaler")[0]["id"]
    own = [one["id"] for one in lab.told("changes") if one["resource"]["name"] == "scaled"]
    assert by_scaler["id"] not in own
    assert last["id"] in own


def scale(lab: World, replicas: int) -> None:
    """As `kubectl scale` does."""
    path = "/apis/apps/v1/namespaces/default/deployments/scaled/scale"
    assert lab.admin.patch(path, json={"spec": {"replicas": replicas}}, headers=MERGE, params=ALICE).is_success


def test_pods_and_events_are_no_changes_and_a_cordon_is_one(lab: World) -> None:
    node = f"/api/v1/nodes/{lab.nodes.names[0]}"
    lab.make("Deployment", "quiet", "r/quiet:v1", replicas=2)
    lab.until("it is there", lambda: lab.is_complete("quiet", "r/quiet:v1"))
    assert lab.admin.patch(node, json={"spec": {"unschedulable": True}}, headers=MERGE).is_success
    cordon = lab.until("the cordon is a change", lambda: [one for one in of_node(lab) if "cordon" in one["summary"]])
    assert len(cordon) == 1
    assert lab.admin.patch(node, json={"spec": {"unschedulable": None}}, headers=MERGE).is_success
    lab.until("and its end", lambda: [one for one in of_node(lab) if "uncordon" in one["summary"]])
    assert not STATES & {one["resource"]["kind"] for one in lab.told("changes", derived="shown")}


def of_node(lab: World) -> list[Json]:
    return [one for one in lab.changes(lab.nodes.names[0]) if one["resource"]["kind"] == "Node"]
