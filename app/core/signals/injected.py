"""Containers that complain, or images that are not pulled, and stand in no template: a webhook put them into the pods,
and what it does is theirs.

A workload's own rollout makes new pods, into which the webhook's newest sidecar goes: it is only the occasion.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from app.core.edges.leads import repository
from app.core.edges.topology import Topology, pod_spec
from app.core.entities import Entity, of_injected, workload
from app.core.objects.untyped import objects
from app.core.signals.signal import Signal, SignalKind

_CONTAINER = re.compile(
    r"(?:^|\| )([a-z0-9][a-z0-9-]*)(?=: | ended with exit code)|failed container ([a-z0-9][a-z0-9-]*) in pod"
)
"""How pod_states.py, and the kubelet's events, name a container."""
_PULLED = re.compile(r'pull(?:ing)? image "([^"]+)"')
"""How the kubelet names an image that it does not get."""
OCCASION = 0.3
"""What is left of a match with the workload that such a container was put into."""


def with_injected(signals: Iterable[Signal], top: Topology) -> list[Signal]:
    """The signals; those of workloads of which only containers complain that nobody declared, or only images are not
    pulled that nobody did, are about what webhooks inject."""
    found = list(signals)
    if not any(resource.kind == "MutatingWebhookConfiguration" for resource in top.states):
        return found
    guests = set[Entity]()
    for named, declared in ((_named(found), _declared(top)), (_pulled(found), _images(top))):
        guests |= {home for home, names in named.items() if home in declared and not names & declared[home]}
    return [_about_guests(one, guests) if one.kind is SignalKind.SYMPTOM else one for one in found]


def _named(signals: Iterable[Signal]) -> dict[Entity, set[str]]:
    """The names of the containers that complain, by workload."""
    return _said(signals, lambda text: {name for pair in _CONTAINER.findall(text) for name in pair if name})


def _pulled(signals: Iterable[Signal]) -> dict[Entity, set[str]]:
    """The repositories of the images that are not pulled, by workload: an older pod wants another tag."""
    return _said(signals, lambda text: set(map(repository, _PULLED.findall(text))))


def _said(signals: Iterable[Signal], read: Callable[[str], set[str]]) -> dict[Entity, set[str]]:
    found: dict[Entity, set[str]] = defaultdict(set)
    for signal in signals:
        names = read(signal.text) if signal.kind is SignalKind.SYMPTOM else None
        for home in _homes(signal) if names else ():
            found[home] |= names or set()
    return found


def _homes(signal: Signal) -> set[Entity]:
    return {entity for entity in signal.about if entity[0] == "workload"}


def _about_guests(signal: Signal, guests: set[Entity]) -> Signal:
    homes = _homes(signal)
    if not homes or not homes <= guests:
        return signal
    about = {entity: weight * OCCASION if entity in homes else weight for entity, weight in signal.about.items()}
    return replace(signal, about=about | {of_injected(home[1]): 0.95 for home in homes})


def _declared(top: Topology) -> dict[Entity, set[str]]:
    """The names of the containers in each workload's template."""
    return {home: {str(one.get("name")) for one in containers} for home, containers in _containers(top)}


def _images(top: Topology) -> dict[Entity, set[str]]:
    """The repositories of the images in each workload's template."""
    return {home: {repository(str(one.get("image"))) for one in containers} for home, containers in _containers(top)}


def _containers(top: Topology) -> Iterator[tuple[Entity, list[dict[str, Any]]]]:
    for resource, state in top.states.items():
        spec = pod_spec(state) if resource.kind not in ("Pod", "ReplicaSet") else None
        if spec:
            containers = [*objects(spec.get("containers")), *objects(spec.get("initContainers"))]
            yield workload(resource.namespace, resource.name), containers
