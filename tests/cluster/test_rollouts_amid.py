"""What is done to workloads of a real cluster amid their rollouts: each ends as it did, and none is told twice."""

from __future__ import annotations

import json
from functools import partial

from tests.cluster.nodes import nodes
from tests.cluster.test_rollouts import MERGE, PLURALS, Json, World, lab, steps
from tests.cluster.test_rollouts_unseen import all_of, last

__all__ = ["lab"]
CAREFUL = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def patch(lab: World, kind: str, name: str, spec: Json) -> None:
    path = f"/apis/apps/v1/namespaces/default/{PLURALS[kind]}/{name}"
    done = lab.admin.patch(path, content=json.dumps({"spec": spec}), headers=MERGE)
    assert done.is_success, done.text


def begun(lab: World, kind: str, name: str, *, ready: int, replicas: int = 4, **spec: object) -> None:
    """A workload amid its second rollout, of which so many pods are ready."""
    counted = {} if kind == "DaemonSet" else {"replicas": replicas}
    lab.make(kind, name, f"r/{name}:v1", **counted, **spec)
    last(lab, name, "complete", image=f"r/{name}:v1")
    lab.nodes.allow(f"r/{name}:v2", ready)
    lab.set_image(kind, name, f"r/{name}:v2")
    last(lab, name, "running", image=f"r/{name}:v2")


def moved_to(lab: World, name: str, step: tuple[int, int, int]) -> Json:
    def is_there() -> Json | None:
        found = lab.rollout(name)
        return found if found and steps(found)[-1:] == [step] else None

    found: Json = lab.until(f"{name} has come to {step}", is_there)
    return found


def of_two(name: str) -> list[tuple[str, str]]:
    return [(f"r/{name}:v{n}", "complete") for n in (1, 2)]


def test_a_scaling_amid_a_rollout_begins_none_and_moves_what_is_wanted(lab: World) -> None:
    begun(lab, "Deployment", "more", ready=2, strategy=CAREFUL)
    moved_to(lab, "more", (4, 3, 4))
    patch(lab, "Deployment", "more", {"replicas": 8})
    lab.until("eight are wanted", lambda: steps(lab.rollout("more") or {"progress": []})[-1][0] == 8)
    lab.nodes.allow("r/more:v2", 9)
    assert steps(last(lab, "more", "complete", image="r/more:v2"))[-1] == (8, 8, 8)
    assert all_of(lab, "more") == of_two("more")


def test_what_is_scaled_to_nothing_amid_a_rollout_is_complete(lab: World) -> None:
    begun(lab, "Deployment", "none", ready=0)
    patch(lab, "Deployment", "none", {"replicas": 0})
    assert steps(last(lab, "none", "complete", image="r/none:v2"))[-1] == (0, 0, 0)
    patch(lab, "Deployment", "none", {"replicas": 1})
    lab.nodes.allow("r/none:v2", 1)
    lab.make("Deployment", "then", "r/then:v1", replicas=1)
    last(lab, "then", "complete", image="r/then:v1")
    assert all_of(lab, "none") == of_two("none")


def test_a_workload_that_is_recreated_has_one_rollout(lab: World) -> None:
    begun(lab, "Deployment", "anew", ready=1, strategy={"type": "Recreate"})
    found = moved_to(lab, "anew", (4, 4, 1))
    assert all(new <= wanted and there <= wanted for wanted, new, there in steps(found))
    lab.nodes.allow("r/anew:v2", 4)
    last(lab, "anew", "complete", image="r/anew:v2")
    assert all_of(lab, "anew") == of_two("anew")


def test_a_third_template_ends_the_second_and_the_first_again_rolls_the_third_back(lab: World) -> None:
    begun(lab, "Deployment", "third", ready=0, strategy=CAREFUL)
    lab.nodes.allow("r/third:v3", 0)
    lab.set_image("Deployment", "third", "r/third:v3")
    last(lab, "third", "running", image="r/third:v3")
    lab.set_image("Deployment", "third", "r/third:v1")
    last(lab, "third", "complete", image="r/third:v1")
    assert [outcome for _, outcome in all_of(lab, "third")] == ["complete", "superseded", "rolled back", "complete"]


def test_a_partition_is_let_go_in_steps(lab: World) -> None:
    def held(partition: int) -> Json:
        return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}}

    lab.make("StatefulSet", "canary", "r/canary:v1", replicas=3, **held(3))
    last(lab, "canary", "complete", image="r/canary:v1")
    lab.set_image("StatefulSet", "canary", "r/canary:v2")
    first = last(lab, "canary", "complete", image="r/canary:v2")
    assert (steps(first)[-1], first["reason"]) == ((3, 0, 3), "its partition keeps 3 of 3 pods as they were")
    for count, partition, reason in ((3, 2, "its partition keeps 2 of 3 pods as they were"), (4, 0, "")):
        patch(lab, "StatefulSet", "canary", held(partition))
        lab.until(f"it has rolled out {count} times", partial(_are, lab, "canary", count))
        done = last(lab, "canary", "complete", image="r/canary:v2")
        assert (steps(done)[-1], done["reason"]) == ((3, 3 - partition, 3), reason)


def _are(lab: World, name: str, count: int) -> bool:
    """Whether so many rollouts of it are told."""
    return len(all_of(lab, name)) == count


def test_a_node_that_comes_amid_a_rollout_of_a_daemon_set_or_after_it(lab: World) -> None:
    before = len(lab.nodes.names)
    begun(lab, "DaemonSet", "agent", ready=0)
    with nodes(lab.plane, "node-3"):
        lab.until("another node has it", lambda: steps(lab.rollout("agent") or {"progress": []})[-1][0] == before + 1)
        lab.nodes.allow("r/agent:v2", 9)
        assert steps(last(lab, "agent", "complete", image="r/agent:v2"))[-1] == (before + 1,) * 3
        with nodes(lab.plane, "node-4"):
            path = "/apis/apps/v1/namespaces/default/daemonsets/agent"
            lab.until("the next", lambda: lab.admin.get(path).json()["status"]["numberAvailable"] == before + 2)
    assert all_of(lab, "agent") == of_two("agent")
