"""What a node has once, or only by a plugin: ports and devices that pods find no node for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import Change, FieldDiff, Json, Object, Resource, Verb
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, after, an_alert, an_incident

PORTS = "0/6 nodes are available: 6 node(s) didn't have free ports for the requested pod ports."
DEVICE = "0/6 nodes are available: 6 Insufficient {}/gpu."
APP = a_resource("Deployment", "ingress-public", "edge")
AGENT = a_resource("DaemonSet", "flow-exporter", "ops")


def on_port(resource: Resource, port: int) -> Object:
    ports: Json = [{"containerPort": 8080, "hostPort": port}]
    return {"spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": resource.name, "ports": ports}]}}}}


def waits(message: str, *culprit: Change, ports: tuple[int, int] = (443, 443)) -> Ranking:
    """Pods of an app find no node after a rollout of it."""
    release = a_change(APP, at=after(-12), old="ingress-public:1", new="ingress-public:2")
    return ranked(
        *culprit,
        release,
        incident=an_incident(an_alert(after(20), name="Stuck", namespace="edge", deployment=APP.name)),
        symptoms=[a_symptom(APP, "FailedScheduling", at=after(-10), message=message, count=6)],
        states=[a_state(one, on_port(one, port)) for one, port in zip((APP, AGENT), ports, strict=True)],
    )


def made(resource: Resource, at: float, *, verb: Verb = Verb.CREATE) -> Change:
    whole: Json = {"spec": {}}
    old, new = (whole, None) if verb is Verb.DELETE else (None, whole)
    diff = FieldDiff((), "remove" if new is None else "add", old, new)
    return replace(a_change(resource, at=after(at)), verb=verb, diffs=(diff,))


def test_whose_pods_took_the_port_of_the_nodes() -> None:
    ranking = waits(PORTS, made(AGENT, -40))
    assert first(ranking) == ("DaemonSet", "flow-exporter")
    said = " ".join(evidence.sentence for evidence in ranking.suspects[0].evidence)
    assert "Its pods take the same port of their nodes as those of ingress-public" in said


@pytest.mark.parametrize("ports", [(443, 9100), (8443, 443)])
def test_who_takes_another_port_is_not_to_blame(ports: tuple[int, int]) -> None:
    ranking = waits(PORTS, made(AGENT, -40), ports=ports)
    (agent,) = (suspect for suspect in ranking.suspects if suspect.change.resource == AGENT)
    assert "take the same port" not in " ".join(evidence.sentence for evidence in agent.evidence)
    assert agent.probability < ranking.none_of_these


@pytest.mark.parametrize("domain", ["nvidia.com", "gpu.nvidia.com"])
def test_whose_plugin_gave_nodes_the_device_is_next_to_who_wants_more_of_it(domain: str) -> None:
    plugin, other = (a_resource("DaemonSet", name, "kube-system") for name in ("nvidia-device-plugin", "fluent-bit"))
    ranking = waits(DEVICE.format(domain), *(made(one, -40, verb=Verb.DELETE) for one in (plugin, other)))
    probability = {suspect.change.resource: suspect.probability for suspect in ranking.suspects}
    assert probability[plugin] > 0.3
    assert probability.get(other, 0.0) < 0.01
