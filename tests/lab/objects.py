"""Manifests as teams write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.lab.addresses import protocol
from tests.lab.api import Json


def deployment(
    namespace: str,
    name: str,
    image: str,
    *,
    replicas: int = 2,
    memory: str = "256Mi",
    config: str = "",
    secret: str = "",
    account: str = "",
    env: Sequence[Json] = (),
    probe: Mapping[str, Any] | None = None,
    liveness: Mapping[str, Any] | None = None,
    startup: Mapping[str, Any] | None = None,
    kind: str = "Deployment",
    **pod: Any,
) -> Json:
    """One container; ``config`` and ``secret`` are mounted, ``account`` is its ServiceAccount, ``pod`` joins."""
    get = {"path": "/healthz", "port": 8080, **(probe or {})}
    container: Json = {
        "name": name,
        "image": image,
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": memory}},
        "readinessProbe": {"httpGet": get, "periodSeconds": 5},
    }
    if liveness:
        container["livenessProbe"] = dict(liveness)
    if startup:
        container["startupProbe"] = dict(startup)
    if env:
        container["env"] = list(env)
    volumes: list[Json] = []
    if config:
        volumes.append({"name": "config", "configMap": {"name": config}})
    if secret:
        volumes.append({"name": "secret", "secret": {"secretName": secret}})
    if volumes:
        mounts: list[Json] = [{"name": one["name"], "mountPath": f"/etc/{one['name']}"} for one in volumes]
        container["volumeMounts"] = mounts
    spec: Json = {
        "containers": [container],
        "volumes": volumes,
        **({"serviceAccountName": account} if account else {}),
        **pod,
    }
    labels = {"app.kubernetes.io/name": name}
    whole: Json = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    if kind != "DaemonSet":
        whole["replicas"] = replicas
    return {"kind": kind, "metadata": {"namespace": namespace, "name": name, "labels": labels}, "spec": whole}


def service(namespace: str, name: str) -> Json:
    """To the pods of that name, at the port where such a server is asked."""
    ports = [{"port": protocol(name).port, "targetPort": 8080}]
    spec = {"selector": {"app.kubernetes.io/name": name}, "ports": ports}
    return {"kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def config_map(namespace: str, name: str, **data: str) -> Json:
    return {"kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data}


def account(namespace: str, name: str) -> Json:
    return {"kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}}


def cluster_role(name: str, *rules: tuple[str, str, str]) -> Json:
    """Each rule is groups, resources and verbs, with commas."""
    listed = [
        {"apiGroups": groups.split(","), "resources": resources.split(","), "verbs": verbs.split(",")}
        for groups, resources, verbs in rules
    ]
    return {"kind": "ClusterRole", "metadata": {"name": name}, "rules": listed}


def binding(name: str, role: str, namespace: str, service_account: str, *, within: str = "") -> Json:
    """Of a ClusterRole to a ServiceAccount: everywhere, or ``within`` a namespace."""
    meta = {"name": name, **({"namespace": within} if within else {})}
    return {
        "kind": "RoleBinding" if within else "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": service_account}],
    }
