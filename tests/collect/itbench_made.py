"""Snapshots in the form of ITBench, made up: as the k8sobjects receiver tells ClickHouse, and pandas prints it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

T0 = datetime(2026, 11, 21, 11, tzinfo=UTC)
EVERY = 300
"""Seconds between two lists."""
COLUMNS = (
    "Timestamp", "TimestampTime", "TraceId", "SpanId", "TraceFlags", "SeverityText", "SeverityNumber", "ServiceName",
    "Body", "ResourceSchemaUrl", "ResourceAttributes", "ScopeSchemaUrl", "ScopeName", "ScopeVersion", "ScopeAttributes",
    "LogAttributes", "EventName",
)  # fmt: skip
OWNERS = {"Deployment": "apps/v1", "ReplicaSet": "apps/v1", "App": "example.org/v1"}
"""The apiVersion of what owns others, by its kind."""
Told = tuple[float, dict[str, Any]]
"""A row: its second, and what is told."""


def at(second: float) -> datetime:
    return T0 + timedelta(seconds=second)


def stamp(second: float) -> str:
    return f"{at(second):%Y-%m-%dT%H:%M:%SZ}"


def an_object(
    kind: str,
    name: str,
    version: int,
    *,
    api: str = "apps/v1",
    namespace: str | None = "shop",
    created: float = -9000,
    wrote: float | None = None,
    manager: str = "kubectl",
    owner: tuple[str, str] | None = None,
    uid: str = "",
    **parts: Any,
) -> dict[str, Any]:
    """An object; ``wrote`` is when its managedFields say that its ``manager`` wrote its spec."""
    meta: dict[str, Any] = {"name": name, "uid": uid or f"uid-{kind}-{name}", "resourceVersion": str(version)}
    meta["creationTimestamp"] = stamp(created)
    if namespace:
        meta["namespace"] = namespace
    if wrote is not None:
        entry = {"manager": manager, "operation": "Update", "time": stamp(wrote), "apiVersion": api}
        fields: dict[str, Any] = {f"f:{part}": {f"f:{key}": {} for key in value} for part, value in parts.items()}
        meta["managedFields"] = [entry | {"fieldsType": "FieldsV1", "fieldsV1": fields}]
    if owner:
        meta["ownerReferences"] = [
            {"kind": owner[0], "name": owner[1], "apiVersion": OWNERS[owner[0]], "uid": "o", "controller": True}
        ]
    return {"apiVersion": api, "kind": kind, "metadata": meta, **parts}


def deployment(name: str, version: int, image: str, *, wrote: float | None = None) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": name, "image": image}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return an_object("Deployment", name, version, wrote=wrote, spec=spec)


def replica_set(of: str, mark: str, *, created: float = -9000, version: int = 3) -> dict[str, Any]:
    spec = {"replicas": 1}
    return an_object("ReplicaSet", f"{of}-{mark}", version, created=created, owner=("Deployment", of), spec=spec)


def pod(of: str, mark: str, *, created: float = -9000, version: int = 4, waiting: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": waiting, "message": "no such image"}} if waiting else {"running": {}}
    status = {
        "phase": "Pending" if waiting else "Running",
        "containerStatuses": [{"name": of, "state": state, "ready": not waiting}],
        "conditions": [{"type": "Ready", "status": str(not waiting), "lastTransitionTime": stamp(created)}],
    }
    labels = {"labels": {"app": of}}
    made = an_object(
        "Pod", f"{of}-{mark}-xyz", version, api="v1", created=created, owner=("ReplicaSet", f"{of}-{mark}"),
        spec={"nodeName": "node-1", "containers": [{"name": of, "image": of}]}, status=status,
    )  # fmt: skip
    made["metadata"] |= labels
    return made


def config_map(name: str, version: int, *, wrote: float | None = None, **data: str) -> dict[str, Any]:
    return an_object("ConfigMap", name, version, api="v1", wrote=wrote, data=data)


def warned(second: float, about: dict[str, Any], reason: str, message: str, *, count: int = 1) -> Told:
    """What a watch told of a Warning event."""
    where = about["metadata"]
    body = an_object("Event", f"{where['name']}.{reason}", int(second), api="v1", created=second)
    body |= {"type": "Warning", "reason": reason, "message": message, "count": count, "lastTimestamp": stamp(second)}
    body["involvedObject"] = {"kind": about["kind"], "namespace": where["namespace"], "name": where["name"]}
    body["involvedObject"]["apiVersion"] = about["apiVersion"]
    return second, {"type": "ADDED", "object": body}


def table(told: Iterable[Told], *, zone: str = "") -> str:
    """Rows, as pandas writes them; ``zone`` is what Go writes behind a time."""
    text = StringIO()
    out = csv.writer(text, delimiter="\t", lineterminator="\n")
    out.writerow(COLUMNS)
    for second, body in told:
        values = dict.fromkeys(COLUMNS, "") | {
            "Timestamp": f"{at(second):%Y-%m-%d %H:%M:%S.%f}123{zone}",
            "TraceFlags": "0",
            "Body": json.dumps(body),
            "ResourceAttributes": "{'k8s.namespace.name': 'shop'}",
            "LogAttributes": "{'k8s.resource.name': 'deployments'}",
        }
        out.writerow([values[name] for name in COLUMNS])
    return text.getvalue()


def listed(*lists: list[dict[str, Any]], every: float = EVERY) -> list[Told]:
    """Lists of objects, one after the other; each kind has a time of its own, a little later than the one before."""
    found = []
    for number, objects in enumerate(lists):
        kinds = list(dict.fromkeys(one["kind"] for one in objects))
        found += [(number * every + kinds.index(one["kind"]) / 10, one) for one in objects]
    return sorted(found, key=lambda one: one[0])


def alert(name: str, second: float, **labels: str) -> dict[str, Any]:
    """An alert as Prometheus lists it."""
    return {
        "labels": {"alertname": name, "severity": "critical", "namespace": "shop", **labels},
        "annotations": {"description": f"{name} of the shop"},
        "state": "firing",
        "activeAt": stamp(second),
        "value": "1e+00",
    }


def put(
    folder: Path,
    *,
    objects: str | None,
    events: str | None = None,
    alerts: dict[str, Any] | None = None,
    truth: str | None = None,
) -> Path:
    """A snapshot; ``alerts`` by what comes behind "alerts_at_" in the file's name."""
    (folder / "alerts").mkdir(parents=True)
    for name, text in (("k8s_objects_raw.tsv", objects), ("k8s_events_raw.tsv", events), ("ground_truth.yaml", truth)):
        if text is not None:
            (folder / name).write_text(text)
    for when, told in (alerts or {}).items():
        (folder / "alerts" / f"alerts_at_{when}.json").write_text(json.dumps(told))
    return folder
