"""Objects as an API server sends them: Deployments, Pods, ConfigMaps, Services of a company, managedFields and all."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson

BORN = "2026-11-01T08:00:00Z"
MANAGED: dict[str, Any] = {
    "f:metadata": {"f:annotations": {".": {}, "f:team": {}}, "f:labels": {".": {}, "f:app": {}, "f:version": {}}},
    "f:spec": {
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"app"}': {
                        ".": {},
                        "f:image": {},
                        "f:imagePullPolicy": {},
                        "f:name": {},
                        "f:resources": {},
                        "f:env": {
                            f'k:{{"name":"SETTING_{n}"}}': {".": {}, "f:name": {}, "f:value": {}} for n in range(8)
                        },
                    }
                }
            }
        }
    },
}
STATUS: dict[str, Any] = {
    "f:status": {
        "f:conditions": {
            f'k:{{"type":"{kind}"}}': {".": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}
            for kind in ("ContainersReady", "Initialized", "Ready", "Available", "Progressing")
        },
        "f:containerStatuses": {},
        "f:hostIP": {},
        "f:phase": {},
        "f:podIP": {},
        "f:startTime": {},
    }
}


def _meta(kind: str, number: int, version: int, generation: int) -> dict[str, Any]:
    written = {"apiVersion": "v1", "fieldsType": "FieldsV1", "time": BORN}
    return {
        "name": f"{kind.lower()}-{number}",
        "namespace": f"team-{number % 50}",
        "uid": str(UUID(int=(len(kind) << 64) + number)),
        "resourceVersion": str(version),
        "generation": generation,
        "creationTimestamp": BORN,
        "labels": {"app": f"app-{number}", "version": "v1", "app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"team": f"team-{number % 50}", "deployment.kubernetes.io/revision": "7"},
        "managedFields": [
            {**written, "manager": "helm", "operation": "Update", "fieldsV1": MANAGED},
            {**written, "manager": "kube", "operation": "Update", "subresource": "status", "fieldsV1": STATUS},
        ],
    }


def _pod_spec(number: int, release: int) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1}
    return {
        "containers": [
            {
                "name": "app",
                "image": f"registry.example/team-{number % 50}/app-{number}:v1.{release}.0",
                "imagePullPolicy": "IfNotPresent",
                "env": [{"name": f"SETTING_{n}", "value": f"value {n} of {number}"} for n in range(8)],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                "livenessProbe": probe,
                "readinessProbe": probe,
                "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": f"configmap-{number}", "defaultMode": 420}}],
        "restartPolicy": "Always",
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


def _conditions(number: int, *kinds: str, reason: str = "Fine") -> list[dict[str, Any]]:
    second = f"2026-11-01T08:00:{number % 60:02}Z"
    return [{"type": one, "status": "True", "reason": reason, "lastTransitionTime": second} for one in kinds]


def deployment(number: int, version: int, *, release: int = 1, beat: int = 0, amid: bool = False) -> dict[str, Any]:
    """``release`` is part of its image, ``beat`` of its status alone; ``amid``: its rollout does not end."""
    spec = {
        "replicas": 3,
        "selector": {"matchLabels": {"app": f"app-{number}"}},
        "template": {"metadata": {"labels": {"app": f"app-{number}"}}, "spec": _pod_spec(number, release)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
    }
    counts = {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3 - amid, "availableReplicas": 3 - beat % 2}
    conditions = _conditions(beat, "Available", "Progressing", reason="ReplicaSetUpdated" if amid else "Fine")
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": _meta("Deployment", number, version, release),
        "spec": spec,
        "status": {"observedGeneration": release, **counts, "conditions": conditions},
    }


def pod(number: int, version: int, *, release: int = 1, beat: int = 0) -> dict[str, Any]:
    meta = _meta("Pod", number, version, 1)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{number // 3}-7d4b9c8f6", "controller": True}
    meta["ownerReferences"] = [{**owner, "uid": str(UUID(int=number // 3)), "blockOwnerDeletion": True}]
    running = {"running": {"startedAt": BORN}}
    container = {"name": "app", "ready": True, "restartCount": 0, "started": True, "state": running, "lastState": {}}
    image = {"image": f"registry.example/app-{number}:v1", "imageID": f"registry.example/app@sha256:{number:064x}"}
    status = {
        "phase": "Running",
        "conditions": _conditions(beat, "Initialized", "Ready", "ContainersReady", "PodScheduled"),
        "containerStatuses": [{**container, **image, "containerID": f"containerd://{beat:064x}"}],
        "hostIP": "10.0.0.7",
        "podIP": f"10.1.{number % 250}.{beat % 250}",
        "startTime": BORN,
        "qosClass": "Burstable",
    }
    spec = {**_pod_spec(number, release), "nodeName": f"node-{number % 100}"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status}


def config_map(number: int, version: int, *, release: int = 1) -> dict[str, Any]:
    data = {f"setting-{n}": f"value {n} of {number} in release {release}" for n in range(12)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": _meta("ConfigMap", number, version, 0), "data": data}


def service(number: int, version: int) -> dict[str, Any]:
    """Of the pods of the Deployment of this number."""
    spec = {
        "type": "ClusterIP",
        "clusterIPs": [f"10.96.{number // 250}.{number % 250}"],
        "selector": {"app": f"app-{number}"},
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
    }
    return {"kind": "Service", "apiVersion": "v1", "metadata": _meta("Service", number, version, 0), "spec": spec}


def line(kind: str, one: dict[str, Any]) -> bytes:
    """An event of a watch."""
    return orjson.dumps({"type": kind, "object": one})
