"""What pods read of ConfigMaps, Secrets and claims, and whether those that run get what is new.

A volume follows its ConfigMap; what is a variable, or mounted by a subPath, stays as it was when the container started:
https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically .
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from app.core.model import Symptom
from app.core.objects.dependencies import Named
from app.core.objects.pod_states import DIED

_VOLUMES = (
    ("ConfigMap", "configMap", "name"),
    ("Secret", "secret", "secretName"),
    ("Secret", "secret", "name"),
    ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
)
_VARIABLES = (
    ("ConfigMap", "configMapRef"),
    ("Secret", "secretRef"),
    ("ConfigMap", "configMapKeyRef"),
    ("Secret", "secretKeyRef"),
)
Spec = dict[str, Any]


def read_by(spec: Spec) -> Iterator[tuple[str, str, bool]]:
    """(kind, name, whether pods that run get what is new) of every ConfigMap, Secret and PersistentVolumeClaim that a
    pod spec reads."""
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    kept = _never_anew(containers)
    for volume in spec.get("volumes") or []:
        for source in [volume, *((volume.get("projected") or {}).get("sources") or [])]:
            for kind, part, name in _VOLUMES:
                if found := (source.get(part) or {}).get(name):
                    yield kind, str(found), volume.get("name") not in kept
    for secret in spec.get("imagePullSecrets") or []:
        yield "Secret", str(secret.get("name", "")), False
    for container in containers:
        yield from ((kind, name, False) for kind, name in _variables(container))


def read_anew(complaints: Iterable[Symptom]) -> dict[Named, datetime]:
    """Since when each pod has run with what was new then, where it has ended for the second time: the kubelet makes a
    container's variables anew as it starts it again, and what ends it the first time is nothing that it read then."""
    ended: dict[Named, list[datetime]] = defaultdict(list)
    for one in complaints:
        if one.resource and one.resource.kind == "Pod" and one.reason in DIED:
            ended[one.resource.namespace or "", one.resource.name].append(one.at)
    return {pod: sorted(times)[-2] for pod, times in ended.items() if len(times) > 1}


def _never_anew(containers: list[Spec]) -> set[object]:
    """The volumes of which containers mount subPaths alone."""
    parts, wholes = set[object](), set[object]()
    for mount in (mount for one in containers for mount in one.get("volumeMounts") or []):
        (parts if mount.get("subPath") or mount.get("subPathExpr") else wholes).add(mount.get("name"))
    return parts - wholes


def _variables(container: Spec) -> Iterator[tuple[str, str]]:
    variables = [one.get("valueFrom") or {} for one in container.get("env") or []]
    for source in [*(container.get("envFrom") or []), *variables]:
        for kind, part in _VARIABLES:
            if found := (source.get(part) or {}).get("name"):
                yield kind, str(found)
