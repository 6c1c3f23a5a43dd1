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
from app.core.objects.untyped import fields, objects

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
    containers = [*objects(spec.get("initContainers")), *objects(spec.get("containers"))]
    kept = _never_anew(containers)
    for volume in objects(spec.get("volumes")):
        for source in [volume, *objects(fields(volume.get("projected")).get("sources"))]:
            for kind, part, name in _VOLUMES:
                if found := fields(source.get(part)).get(name):
                    yield kind, str(found), str(volume.get("name")) not in kept
    for secret in objects(spec.get("imagePullSecrets")):
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


def _never_anew(containers: list[Spec]) -> set[str]:
    """The volumes of which containers mount subPaths alone."""
    parts, wholes = set[str](), set[str]()
    for mount in (mount for one in containers for mount in objects(one.get("volumeMounts"))):
        (parts if mount.get("subPath") or mount.get("subPathExpr") else wholes).add(str(mount.get("name")))
    return parts - wholes


def _variables(container: Spec) -> Iterator[tuple[str, str]]:
    variables = [fields(one.get("valueFrom")) for one in objects(container.get("env"))]
    for source in [*objects(container.get("envFrom")), *variables]:
        for kind, part in _VARIABLES:
            if found := fields(source.get(part)).get("name"):
                yield kind, str(found)
