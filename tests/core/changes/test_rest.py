"""What rests: its next status teaches nothing, and one that could is never called so."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.changes.rest import is_well, rests, rests_for_good
from app.core.changes.rollouts import Rollouts
from app.core.changes.symptoms import Symptoms
from app.core.model import Json, Object
from app.core.objects.body import AsBefore, Body, read_body, read_whole
from app.core.objects.pod_states import EVICTED
from tests.core.factories import FINGERPRINT, NOON, a_resource, after

POD = a_resource("Pod", "web-1")
READY: Object = {"type": "Ready", "status": "True", "lastTransitionTime": NOON.isoformat()}
RUNNING: Object = {"running": {"startedAt": NOON.isoformat()}}
DONE: Object = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": NOON.isoformat()}}
KILLED: Object = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": NOON.isoformat()}}
WAITING: Object = {"waiting": {"reason": "CrashLoopBackOff"}}


def status_of(*conditions: Json, phase: str = "Running", **more: Json) -> bytes:
    return orjson.dumps({"phase": phase, "conditions": list(conditions), **more})


def containers(state: Json, last: Json = None) -> list[Json]:
    return [{"name": "app", "state": state, "lastState": last or {}, "restartCount": 1}]


WELL = status_of(READY, containerStatuses=containers(RUNNING))


@pytest.mark.parametrize(
    "status",
    [
        WELL,
        WELL.replace(b":", b": "),
        status_of(READY),
        status_of(READY, containerStatuses=None, initContainerStatuses=containers(DONE)),
    ],
)
def test_a_pod_that_runs_and_is_ready_is_well(status: bytes) -> None:
    assert is_well(status)


@pytest.mark.parametrize(
    "status",
    [
        b"",
        b"{}",
        status_of(READY, phase="Pending"),
        status_of(READY, phase="Failed"),
        status_of(),
        status_of(READY | {"status": "False"}),
        status_of(READY | {"status": "Unknown"}),
        status_of(READY, {"type": "PodScheduled", "status": "False"}),
        status_of(READY, {"type": "DisruptionTarget", "status": "True"}),
        status_of(READY, containerStatuses=containers(WAITING)),
        status_of(READY, containerStatuses=containers(KILLED)),
        status_of(READY, containerStatuses=containers(RUNNING, KILLED)),
        status_of(READY, initContainerStatuses=containers(DONE), containerStatuses=containers(RUNNING, KILLED)),
        WELL.replace(b"True", b"\\u0046alse"),
        WELL[:-1],
    ],
)
def test_a_pod_of_which_more_may_be_said_is_not_called_well(status: bytes) -> None:
    assert not is_well(status)


conditions = st.builds(
    lambda kind, status: {**READY, "type": kind, "status": status, "message": "said", "reason": EVICTED},
    st.sampled_from(["Ready", "PodScheduled", "ContainersReady", "DisruptionTarget"]),
    st.sampled_from(["True", "True", "True", "False", "Unknown"]),
)
states = st.sampled_from([RUNNING, RUNNING, RUNNING, DONE, KILLED, WAITING])
statuses = st.builds(
    lambda found, state, last, phase, beat: status_of(
        *found, phase=phase, containerStatuses=containers(state, last), podIP=f"10.0.0.{beat}"
    ),
    st.lists(conditions, min_size=1, max_size=3, unique_by=lambda one: str(one["type"])),
    states,
    st.sampled_from([None, None, DONE, KILLED]),
    st.sampled_from(["Running", "Running", "Running", "Pending", "Failed", "Succeeded"]),
    st.integers(0, 9),
)


@given(st.lists(statuses, min_size=2, max_size=12))
def test_who_hears_nothing_of_a_pod_that_stays_well_learns_as_much(told: list[bytes]) -> None:
    every, fewer = (Symptoms(lambda _: None, str) for _ in range(2))
    rested = False
    for second, status in enumerate(told, 1):
        body = AsBefore("shop", "web-1", "u", second, 1, NOON, False, status)
        learned = every.pod(POD, body, at=after(second))
        rests_now = is_well(status)
        assert not (rested and rests_now and learned)
        if not (rested and rests_now):
            assert fewer.pod(POD, body, at=after(second)) == learned
        rested = rests_now


def workload(kind: str, *, updated: int, available: int, generation: int = 2, **more: Any) -> bytes:
    counts: dict[str, Any] = {"observedGeneration": generation, "replicas": 3}
    if kind == "DaemonSet":
        counts |= {"desiredNumberScheduled": 3, "currentNumberScheduled": 3}
        counts |= {"updatedNumberScheduled": updated, "numberAvailable": available}
    else:
        counts |= {"updatedReplicas": updated, "availableReplicas": available}
    condition = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
    meta = {"name": "web", "namespace": "shop", "uid": "u", "generation": 2, "resourceVersion": "7"}
    spec = {"replicas": 3, "template": {"spec": {"containers": [{"image": "web:1"}]}}}
    whole = {"kind": kind, "apiVersion": "apps/v1", "metadata": meta, "spec": spec}
    return orjson.dumps({**whole, "status": {**counts, "conditions": [condition]}, **more})


def _body(kind: str, updated: int, available: int) -> Body:
    found = read_body(workload(kind, updated=min(updated, 3), available=available))
    assert found is not None
    return found


def at_rest(kind: str, raw: bytes, *, api_group: str = "apps") -> bool:
    whole = read_whole(raw)
    assert whole is not None
    return rests(api_group, kind, whole)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_workload_rests_for_good_once_it_has_rolled_out(kind: str) -> None:
    assert rests_for_good("apps", kind)
    assert at_rest(kind, workload(kind, updated=3, available=3))
    assert not at_rest(kind, workload(kind, updated=2, available=3))
    assert not at_rest(kind, workload(kind, updated=3, available=2))
    assert not at_rest(kind, workload(kind, updated=3, available=3, generation=1)), "not observed"
    assert not at_rest(kind, workload(kind, updated=3, available=3, spec={"replicas": "three"}))


counted = st.tuples(st.integers(0, 4), st.integers(0, 4))


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
@given(before=counted, after_rest=st.lists(counted, min_size=1, max_size=6))
def test_after_it_has_rolled_out_no_status_tells_of_a_rollout(
    kind: str, before: tuple[int, int], after_rest: list[tuple[int, int]]
) -> None:
    seen, resource = Rollouts(FINGERPRINT), a_resource(kind, "web")
    for second, (updated, available) in enumerate([before, (3, 3), *after_rest]):
        whole = read_whole(workload(kind, updated=min(updated, 3), available=available))
        assert whole is not None
        found = seen.observe(
            resource, whole.as_before() if second > 1 else _body(kind, updated, available),
            at=after(second), created=second == 0, begun_by=lambda: None,
        )  # fmt: skip
        assert second < 2 or found == ()


def test_other_kinds_rest_but_for_those_whose_statuses_are_read() -> None:
    raw = workload("ReplicaSet", updated=0, available=0)
    assert at_rest("ReplicaSet", raw)
    assert rests_for_good("apps", "ReplicaSet")
    read = [("", "Node"), ("", "Namespace"), ("apiregistration.k8s.io", "APIService")]
    read += [("apiextensions.k8s.io", "CustomResourceDefinition"), ("helm.toolkit.fluxcd.io", "HelmRelease")]
    for api_group, kind in read:
        assert not at_rest(kind, raw, api_group=api_group)
        assert not rests_for_good(api_group, kind)
