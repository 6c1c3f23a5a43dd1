"""Rollouts of a real cluster that begin, end, fail, or lose their workload while `foreshock serve` is stopped, and what
real controllers make of a pause, of a template that is taken back, and of a pod that goes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import httpx2
import pytest

from app.core.changes.standing import PAUSED
from tests.cluster.control_plane import ControlPlane, running
from tests.cluster.nodes import MISSING, Nodes, nodes
from tests.cluster.programs import wait_until
from tests.cluster.test_rollouts import MERGE, PLURALS, Json, World, signed_in
from tests.serving import program

PATHS = "/apis/apps/v1/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
STUCK = f"r/stuck{MISSING}"


@dataclass(frozen=True)
class Cluster:
    """A cluster that has nodes, and is followed, while somebody asks."""

    plane: ControlPlane
    admin: httpx2.Client
    dsn: str
    folder: Path

    @contextmanager
    def followed(self, kubelets: Nodes) -> Iterator[World]:
        where = {"KUBECONFIG": str(self.plane.kubeconfig()), "FORESHOCK_CLUSTERS_FILE": ""}
        with (
            program(self.dsn, self.folder, "--port", "0", **where) as (_, address),
            httpx2.Client(base_url=address, headers=signed_in(self.dsn), timeout=30, trust_env=False) as rest,
        ):
            yield World(self.plane, kubelets, rest, self.admin, self.dsn)

    def patch(self, path: str, body: Json) -> None:
        done = self.admin.patch(path, content=json.dumps(body), headers=MERGE)
        assert done.is_success, done.text

    def delete(self, path: str) -> None:
        assert self.admin.delete(path).is_success

    def status(self, kind: str, name: str) -> Json:
        found: Json = self.admin.get(f"{PATHS}/{PLURALS[kind]}/{name}").json()["status"]
        return found

    def is_available(self, name: str) -> bool:
        return self.progressing(name) == "NewReplicaSetAvailable"

    def progressing(self, name: str) -> str:
        found = self.status("Deployment", name).get("conditions", [])
        return next((one["reason"] for one in found if one["type"] == "Progressing"), "")


@pytest.fixture(scope="module")
def cluster(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(controllers=True) as plane, plane.client() as admin:
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until(lambda: admin.get(account).is_success, "pods may be made")
        yield Cluster(plane, admin, dsn, tmp_path_factory.mktemp("serve"))


def last(world: World, name: str, outcome: str, *, image: str) -> Json:
    def is_so() -> Json | None:
        found = world.rollout(name)
        return found if found and (found["outcome"], found["images"]) == (outcome, [image]) else None

    found: Json = world.until(f"the last rollout of {name}, of {image}, is {outcome}", is_so)
    return found


def all_of(world: World, name: str) -> list[tuple[str, str]]:
    """The image and the outcome of each, oldest first."""
    own = [one for one in world.told("rollouts") if one["resource"]["name"] == name]
    return [(one["images"][0], one["outcome"]) for one in own[::-1]]


def of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_pause_is_said_and_a_template_that_is_taken_back_was_rolled_back(cluster: Cluster) -> None:
    with nodes(cluster.plane) as kubelets, cluster.followed(kubelets) as world:
        for name in ("paused", "fails"):
            world.make("Deployment", name, "r/app:v1", replicas=3, progressDeadlineSeconds=5)
            last(world, name, "complete", image="r/app:v1")
        cluster.patch(f"{PATHS}/deployments/paused", {"spec": {"paused": True}})
        world.set_image("Deployment", "paused", "r/app:v2")
        world.until("it is paused", lambda: (world.rollout("paused") or {}).get("reason") == PAUSED)
        world.set_image("Deployment", "fails", STUCK)
        failed = last(world, "fails", "failed", image=STUCK)
        assert last(world, "paused", "running", image="r/app:v2")["reason"] == PAUSED, "no deadline counts"
        world.set_image("Deployment", "fails", "r/app:v1")
        last(world, "fails", "complete", image="r/app:v1")
        assert all_of(world, "fails") == [
            ("r/app:v1", "complete"),
            (STUCK, "rolled back"),
            ("r/app:v1", "complete"),
        ]
        back = next(one for one in world.told("rollouts") if one["images"] == [STUCK])
        assert (back["ended_at"], back["reason"]) == (failed["ended_at"], "ProgressDeadlineExceeded")
        cluster.patch(f"{PATHS}/deployments/paused", {"spec": {"paused": None}})
        assert last(world, "paused", "complete", image="r/app:v2")["reason"] == ""


def test_a_pod_of_a_stateful_set_that_goes_is_no_rollout_before_or_after_a_restart(cluster: Cluster) -> None:
    def db() -> Json:
        return cluster.status("StatefulSet", "db")

    with nodes(cluster.plane) as kubelets:
        with cluster.followed(kubelets) as world:
            world.make("StatefulSet", "db", "r/db:v1", replicas=3)
            last(world, "db", "complete", image="r/db:v1")
            told = world.told("rollouts")
        cluster.patch(f"{PODS}/db-2", {"metadata": {"finalizers": ["tests.example/stays"]}})
        cluster.delete(f"{PODS}/db-2")
        wait_until(lambda: db().get("updatedReplicas") == 2, "one of three is going")
        assert db()["replicas"] == 3, "and counts to all of them"
        with cluster.followed(kubelets) as world:
            cluster.patch(f"{PODS}/db-2", {"metadata": {"finalizers": None}})
            wait_until(lambda: db().get("availableReplicas") == 3, "it is back")
            world.make("Deployment", "after", "r/app:v1", replicas=1)
            last(world, "after", "complete", image="r/app:v1")
            assert [one for one in world.told("rollouts") if one["resource"]["name"] != "after"] == told


@pytest.mark.parametrize("lost", [False, True], ids=["told later", "lost"])
def test_what_happens_while_nobody_looks_is_told_as_it_ended(cluster: Cluster, lost: bool) -> None:
    """``lost``: the API server has forgotten what was written meanwhile, so a list has to tell it."""
    names = gone, anew, quick, late, stuck, fresh = [
        f"{name}-{lost}".lower() for name in ("gone", "anew", "quick", "late", "stuck", "fresh")
    ]
    with nodes(cluster.plane) as kubelets:
        with cluster.followed(kubelets) as world:
            for name in names[:-1]:
                world.make("Deployment", name, "r/app:v1", replicas=2, progressDeadlineSeconds=5)
                last(world, name, "complete", image="r/app:v1")
            for name in (gone, anew, late):
                cluster.patch(f"{PATHS}/deployments/{name}", {"spec": {"progressDeadlineSeconds": 600}})
                kubelets.allow(f"r/{name}:v2", 0)
                world.set_image("Deployment", name, f"r/{name}:v2")
                last(world, name, "running", image=f"r/{name}:v2")
        cluster.delete(f"{PATHS}/deployments/{gone}")
        cluster.delete(f"{PATHS}/deployments/{anew}")
        world.make("Deployment", anew, f"r/{anew}:v3", replicas=2)
        kubelets.allow(f"r/{late}:v2", 9)
        world.set_image("Deployment", quick, f"r/{quick}:v2")
        world.set_image("Deployment", stuck, STUCK)
        world.make("Deployment", fresh, f"r/{fresh}:v2", replicas=2)
        for name in (anew, late, quick, fresh):
            wait_until(partial(cluster.is_available, name), f"{name} is through")
        wait_until(lambda: cluster.progressing(stuck) == "ProgressDeadlineExceeded", "it is stuck")
    ended = datetime.now().astimezone()
    time.sleep(11)  # what was so for ten seconds was not seen as it happened
    if lost:
        cluster.plane.compact()
        cluster.plane.apiserver.stop()
        cluster.plane.apiserver.start()
    with cluster.followed(kubelets) as world:
        assert last(world, gone, "superseded", image=f"r/{gone}:v2")["reason"] == "Deployment deleted"
        last(world, stuck, "failed", image=STUCK)
        unseen = last(world, quick, "complete", image=f"r/{quick}:v2")
        assert (of(unseen["ended_at"]) > ended) == lost
        assert lost == bool(next(one for one in world.changes(quick) if one["id"] == unseen["change_id"])["since"])
        begun = last(world, fresh, "complete", image=f"r/{fresh}:v2")
        assert begun["change_id"] == world.changes(fresh)[0]["id"]
        assert of(begun["started_at"]) <= of(begun["ended_at"]) < ended + timedelta(seconds=1)
        assert of(last(world, late, "complete", image=f"r/{late}:v2")["ended_at"]) < ended + timedelta(seconds=1)
        world.until("the old one is over", lambda: (f"r/{anew}:v2", "superseded") in all_of(world, anew))
        assert "running" not in {outcome for name in names for _, outcome in all_of(world, name)}
