"""What leaves a program less to work with, where answers are late."""

from __future__ import annotations

import pytest

from app.core.edges.amounts import left_of
from app.core.findings import Evidence
from app.core.model import Json, Path
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

WEB = a_resource("Deployment", "web", "shop")
CONTAINER: Path = ("spec", "template", "spec", "containers", (("name", "a"),))
CPU: Path = (*CONTAINER, "resources", "limits", "cpu")
LATE = "Readiness probe failed: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


@pytest.mark.parametrize(
    ("path", "old", "new", "share"),
    [
        (("spec", "replicas"), 10, 3, 0.3),
        (("spec", "maxReplicas"), 30, 6, 0.2),
        (CPU, "2", "300m", 0.15),
        ((*CPU[:-1], "memory"), "1Gi", "256Mi", 0.25),
        ((*CONTAINER, "env", (("name", "MAX_POOL_SIZE"),), "value"), "40", "4", 0.1),
        (("data", "workers"), "8", "2", 0.25),
        (("spec", "replicas"), 3, 10, None),
        (("spec", "replicas"), 3, 0, None),
        ((*CONTAINER, "resources", "requests", "cpu"), "2", "300m", None),
        ((*CONTAINER, "env", (("name", "POOL_TIMEOUT"),), "value"), "40", "4", None),
        (("data", "workers"), "many", "few", None),
        (("data", "pool.ini"), "[a]\nmode = b\npool_size = 60\n", "[a]\nmode = b\npool_size = 6\n", 0.1),
        (("data", "proxy.yaml"), "tracked:\n  maxPerCore: 32768\n", "tracked:\n  maxPerCore: 4096\n", 0.125),
        (("data", "c.json"), '{"a": {"pool": 8}, "b": {"pool": 9}}', '{"a": {"pool": 2}, "b": {"pool": 9}}', 0.25),
        (("data", "c.json"), '{"a": {"pool": 8}, "b": {"x": 9}}', '{"b": {"x": 9}, "a": {"pool": 2}}', 0.25),
        (("data", "a.yaml"), "db:\n  pool:\n    max: 60\n", "db:\n  pool:\n    max: 6\n", 0.1),
        (("data", "a.yaml"), "db:\n  price:\n    max: 60\n", "db:\n  price:\n    max: 6\n", None),
        (("data", "a.toml"), "[db]\nmode = 1\n[pool]\nmax = 60\n", "[db]\nmode = 1\n[pool]\nmax = 6\n", 0.1),
        (("data", "a.json"), '{"pool": {"max": 60, "min": 2}}', '{"pool": {"max": 6, "min": 2}}', 0.1),
        (("spec", "values", "pool", "size"), 60, 6, 0.1),
        (("data", "redis.conf"), "appendonly yes\nmaxclients 10000\n", "appendonly yes\nmaxclients 100\n", 0.01),
        (("data", "nginx.conf"), "http { client_max_body_size 20m; }", "http { client_max_body_size 2m; }", 0.1),
        (("data", "hours.txt"), "pool opens at 10\nnot on Mondays", "pool opens at 1\nnot on Mondays", None),
        (("data", "pool.ini"), "pool_mode = 60\nname = b\n", "pool_mode = session\nname = b\n", None),
        (("spec", "config", "max.message.bytes"), 2_097_152, 262_144, 0.125),
        (("metadata", "annotations", "nginx.ingress.kubernetes.io/proxy-body-size"), "16m", "4m", 0.25),
        (("data", "maxPendingRequests"), "1024", "16", None),
        (("spec", "triggers", 0, "metadata", "lagThreshold"), "50", "500", 0.1),
        (("spec", "metrics", (("type", "Resource"),), "resource", "target", "averageUtilization"), 40, 80, 0.5),
        (("spec", "metrics", (("type", "Resource"),), "resource", "target", "averageUtilization"), 80, 40, None),
        (("spec", "triggers", 0, "metadata", "queueName"), "1", "2", None),
    ],
)
def test_how_much_is_left(path: Path, old: Json, new: Json, share: float | None) -> None:
    found = left_of(a_change(WEB, path=path, old=old, new=new))
    assert (found[0] if found else None) == pytest.approx(share)


def evidence(new: str, *, says: str = LATE, of: str = "cpu", reason: str = "Unhealthy") -> Evidence | None:
    """What is said of a limit that was cut from two of something to this, where the program says this."""
    ranking = ranked(
        a_change(WEB, at=after(-300), path=(*CPU[:-1], of), old="2Gi" if of == "memory" else "2", new=new),
        incident=an_incident(an_alert(after(30), name="LatencyHigh", namespace="shop", deployment="web")),
        symptoms=[a_symptom(WEB, reason, at=after(0), message=says, count=9)],
        states=[a_workload(WEB)],
    )
    (suspect,) = (one for one in ranking.suspects if one.change.resource == WEB)
    return next((one for one in suspect.evidence if one.rule == "lessened"), None)


def test_it_weighs_the_more_the_less_is_left() -> None:
    half, little = evidence("1"), evidence("200m")
    assert half is not None
    assert little is not None
    assert 0 < half.weight < little.weight
    assert little.sentence == "It leaves 10 % of what there was (2 → 200m)."


def of_ceiling(alert: str) -> Evidence | None:
    """What is said of an autoscaler's ceiling that was cut to a third, where the alert is called so."""
    scaler = a_resource("HorizontalPodAutoscaler", "web", "shop")
    ranking = ranked(
        a_change(scaler, at=after(-2400), path=("spec", "maxReplicas"), old=24, new=8),
        incident=an_incident(an_alert(after(30), name=alert, namespace="shop", horizontalpodautoscaler="web")),
        symptoms=[a_symptom(WEB, "Unhealthy", at=after(0), message=LATE, count=9)],
        states=[a_workload(WEB), a_state(scaler, {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}})],
    )
    (suspect,) = (one for one in ranking.suspects if one.change.resource == scaler)
    return next((one for one in suspect.evidence if one.rule == "lessened"), None)


def test_an_alert_about_an_autoscaler_at_its_most_is_about_a_lower_ceiling() -> None:
    told, late = of_ceiling("KubeHpaMaxedOut"), of_ceiling("LatencyHigh")
    assert told is not None
    assert late is not None
    assert told.weight == pytest.approx(late.weight + 1.5)
    assert told.sentence == "It leaves 33 % of what there was (24 → 8). The alert says that no more pods may be."


SENT = "RecordTooLargeException: The request included a message larger than the max message size the server accepts"


def of_size(says: str) -> Evidence | None:
    """What is said of how large a message may be, where the program that says this is told less."""
    settings = a_resource("ConfigMap", "web", "shop")
    ranking = ranked(
        a_change(settings, at=after(-300), path=("data", "max.message.bytes"), old="2097152", new="262144"),
        incident=an_incident(an_alert(after(30), name="IngestFails", namespace="shop", deployment="web")),
        symptoms=[a_symptom(WEB, "Error", at=after(0), message=f"web ended with exit code 1: {says}", count=9)],
        states=[a_workload(WEB, containers=[{"name": "a", "envFrom": [{"configMapRef": {"name": "web"}}]}])],
    )
    (suspect,) = (one for one in ranking.suspects if one.change.resource == settings)
    return next((one for one in suspect.evidence if one.rule == "lessened"), None)


def test_what_is_larger_than_it_may_be_leads_to_how_large_it_may_be() -> None:
    found = of_size(SENT)
    assert found is not None
    assert found.weight == pytest.approx(3.0)  # what one rule may weigh
    assert found.sentence.endswith("What is complained of is larger than it may be.")
    assert of_size("the queue is full") is None


def test_of_a_file_it_says_which_setting() -> None:
    settings = a_resource("ConfigMap", "web", "shop")
    old, new = (f"db:\n  pool:\n    max: {most}\n    min: 1\n" for most in (60, 6))
    ranking = ranked(
        a_change(settings, at=after(-300), path=("data", "web.yaml"), old=old, new=new),
        incident=an_incident(an_alert(after(30), name="LatencyHigh", namespace="shop", deployment="web")),
        symptoms=[a_symptom(WEB, "Unhealthy", at=after(0), message=LATE, count=9)],
        states=[a_workload(WEB, containers=[{"name": "a", "envFrom": [{"configMapRef": {"name": "web"}}]}])],
    )
    (suspect,) = (one for one in ranking.suspects if one.change.resource == settings)
    (found,) = (one for one in suspect.evidence if one.rule == "lessened")
    assert found.sentence == "It leaves 10 % of what there was (pool.max: 60 → 6)."


def test_a_queue_that_nobody_gets_through_is_too_little() -> None:
    assert evidence("200m", says="order 4417: still waiting for its label after 120s", reason="Error") is not None


def test_a_little_less_or_another_complaint_is_none() -> None:
    assert evidence("1500m") is None
    assert evidence("200m", says="Readiness probe failed: HTTP probe failed with statuscode: 404") is None


def test_less_memory_is_why_a_program_is_killed_for_it_and_not_why_it_is_late() -> None:
    killed = "Container a was OOMKilled, exit code 137"
    assert evidence("256Mi", of="memory", says=killed, reason="OOMKilled") is not None
    assert evidence("256Mi", of="memory") is None
    assert evidence("200m", says=killed, reason="OOMKilled") is None
