"""Where those who complain run: what only the pods on some nodes suffer from is not in what all of them have in common.

Other pods of the same revision run elsewhere and are well: then it is the nodes, their zone or their machines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import comb

from app.core.edges.mechanism import WHILE_RUNNING
from app.core.edges.topology import Topology
from app.core.entities import workload, workload_of_pod
from app.core.model import Resource, Symptom
from app.core.objects.untyped import fields, part
from app.core.signals.signal import Place, Signal

KEYS = {
    "topology.kubernetes.io/zone": "zone",
    "node.kubernetes.io/instance-type": "machines of type",
    "kubernetes.io/arch": "architecture",
    "kubernetes.io/hostname": "node",
}
"""Well-known labels of nodes, the widest first: https://kubernetes.io/docs/reference/labels-annotations-taints/ ."""
LEAST = 4
"""So many pods must complain there, and so many of the same be well elsewhere."""
NEARLY_ALL = 0.8
BY_CHANCE = 0.001
"""A place is one where so many would complain by chance this rarely (hypergeometric: drawn without putting back)."""
EARLIER, LATER = timedelta(minutes=1), timedelta(minutes=2)


_Label = tuple[str, dict[str, str]]
"""What a label is called, and its value by node."""


@dataclass(frozen=True, slots=True)
class _Pods:
    """Pods of the revisions that complain, by their node; and those that complain."""

    node_of: dict[Resource, str]
    hurt: set[Resource]


def located(signals: Iterable[Signal], symptoms: Iterable[Symptom], top: Topology) -> list[Signal]:
    """The signals, with the place that their complaints come from where they come from one alone."""
    node_of = _node_of(top)
    told = [s for s in symptoms if s.reason in WHILE_RUNNING and s.resource in node_of]
    labels = _labels(top)

    def within(signal: Signal) -> Signal:
        return _located(signal, _pods(told, signal.low, node_of), labels)

    return [within(signal) if signal.facts.get("reason") in WHILE_RUNNING else signal for signal in signals]


def _node_of(top: Topology) -> dict[Resource, str]:
    """The node of each pod that is there."""
    nodes = {one: part(state, "spec", "nodeName") for one, state in top.states.items() if one.kind == "Pod"}
    return {pod: str(node) for pod, node in nodes.items() if node}


def _located(signal: Signal, pods: _Pods, labels: list[_Label]) -> Signal:
    place = _place(pods, labels)
    own = [pod for pod in pods.hurt if workload(pod.namespace, workload_of_pod(pod.name)) in signal.about]
    there = sum(pods.node_of[pod] in place.nodes for pod in own) if place else 0
    if place is None or not own or there < NEARLY_ALL * len(own):
        return signal
    return replace(signal, place=place, sentence=f"{signal.sentence}, {place.said}")


def _pods(told: list[Symptom], low: datetime, node_of: dict[Resource, str]) -> _Pods:
    hurt = {s.resource for s in told if s.resource and low - EARLIER <= s.at <= low + LATER}
    revisions = {_revision(pod) for pod in hurt}
    return _Pods({pod: node for pod, node in node_of.items() if _revision(pod) in revisions}, hurt)


def _revision(pod: Resource) -> tuple[str | None, str]:
    return pod.namespace, pod.name.rpartition("-")[0]


def _place(pods: _Pods, labels: list[_Label]) -> Place | None:
    """The place of which nearly all pods complain, and nearly no others: of several the least likely by chance."""
    found: list[tuple[float, Place]] = []
    for called, value_of in labels:
        for value, here in _by_value(pods, value_of).items():
            both, elsewhere = len(here & pods.hurt), len(pods.node_of) - len(here)
            if both < max(LEAST, NEARLY_ALL * max(len(here), len(pods.hurt))) or elsewhere < LEAST:
                continue
            chance = _chance(len(pods.node_of), len(here), len(pods.hurt), at_least=both)
            if chance <= BY_CHANCE:
                nodes = frozenset(node for node, known in value_of.items() if known == value)
                said = f"only in {called} {value}, while {elsewhere} pods of the same elsewhere are well"
                found.append((chance, Place(nodes, said)))
    return min(found, key=lambda one: one[0])[1] if found else None


def _by_value(pods: _Pods, value_of: dict[str, str]) -> dict[str, set[Resource]]:
    """The pods by the value that their node has for a label."""
    found: dict[str, set[Resource]] = defaultdict(set)
    for pod, node in pods.node_of.items():
        if value := value_of.get(node):
            found[value].add(pod)
    return found


def _labels(top: Topology) -> list[_Label]:
    """By each of KEYS, widest first."""
    states = {one.name: state for one, state in top.states.items() if one.kind == "Node"}
    nodes = {name: fields(part(state, "metadata", "labels")) for name, state in states.items()}
    return [(called, {node: own[key] for node, own in nodes.items() if key in own}) for key, called in KEYS.items()]


def _chance(all_of_them: int, here: int, hurt: int, *, at_least: int) -> float:
    """The probability that of ``hurt`` pods, drawn from all, so many are among those here."""
    ways = sum(comb(here, n) * comb(all_of_them - here, hurt - n) for n in range(at_least, min(here, hurt) + 1))
    return ways / comb(all_of_them, hurt)
