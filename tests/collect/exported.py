"""Audit events in the forms in which managed clusters export them, as the vendors document these."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from app.collect.inputs import InputKind, find_inputs
from app.collect.intake import Piece
from app.collect.logs import Job, Log, pieces
from tests.collect.test_importer import NOW

Event = dict[str, Any]
KEY = b"k" * 32


def compact(value: object) -> str:
    """JSON as the API server writes it: without spaces, and UTF-8 as it is."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _ms(event: Event) -> int:
    return int(datetime.fromisoformat(event["stageTimestamp"]).timestamp() * 1000)


def plain(events: Sequence[Event]) -> bytes:
    return "".join(f"{compact(one)}\n" for one in events).encode()


def s3_export(events: Sequence[Event]) -> bytes:
    """``aws logs create-export-task``: each message behind the time when CloudWatch Logs got it."""
    return gzip.compress("".join(f"{one['stageTimestamp'][:19]}.118Z {compact(one)}\n" for one in events).encode())


def filtered(events: Sequence[Event]) -> bytes:
    """``aws logs filter-log-events``."""
    found = [
        {
            "logStreamName": "kube-apiserver-audit-0123456789abcdef0123456789abcdef",
            "timestamp": _ms(one),
            "message": compact(one),
            "ingestionTime": _ms(one) + 900,
            "eventId": f"{number:056}",
        }
        for number, one in enumerate(events)
    ]
    return json.dumps({"events": found, "searchedLogStreams": []}, indent=4).encode()


def gotten(events: Sequence[Event]) -> bytes:
    """``aws logs get-log-events``, in one line."""
    found = [{"timestamp": _ms(one), "message": compact(one), "ingestionTime": _ms(one)} for one in events]
    return json.dumps({"events": found, "nextForwardToken": "f/1", "nextBackwardToken": "b/1"}).encode()


def record(messages: Sequence[str], kind: str = "DATA_MESSAGE") -> bytes:
    """One record of a subscription, as it comes through Kinesis or Firehose."""
    told = {
        "messageType": kind,
        "owner": "123456789012",
        "logGroup": "/aws/eks/shop/cluster",
        "logStream": "kube-apiserver-audit-0123456789abcdef0123456789abcdef",
        "subscriptionFilters": ["audit"],
        "logEvents": [{"id": f"{n:056}", "timestamp": 1795238501000, "message": m} for n, m in enumerate(messages)],
    }
    return gzip.compress(compact(told).encode())


def subscribed(events: Sequence[Event]) -> bytes:
    """Firehose's object in S3: record behind record, each a gzip member, with nothing between."""
    parts = [events[at : at + 2] for at in range(0, len(events), 2)]
    return b"".join(record([compact(one) for one in part]) for part in parts)


def _azure(event: Event) -> Event:
    return {
        "time": event["stageTimestamp"],
        "resourceId": "/SUBSCRIPTIONS/0/RESOURCEGROUPS/SHOP/PROVIDERS/MICROSOFT.CONTAINERSERVICE/MANAGEDCLUSTERS/SHOP",
        "operationName": "Microsoft.ContainerService/managedClusters/diagnosticLogs/Read",
        "category": "kube-audit",
        "properties": {"log": compact(event) + "\n", "stream": "stdout", "pod": "kube-apiserver-5d9c-x7k2p"},
    }


def stored(events: Sequence[Event]) -> bytes:
    """A diagnostic setting's blob in a storage account."""
    return plain([_azure(one) for one in events])


def hubbed(events: Sequence[Event]) -> bytes:
    """What an event hub gets."""
    return compact({"records": [_azure(one) for one in events]}).encode()


SAME: dict[str, Callable[[Sequence[Event]], bytes]] = {
    "S3": s3_export,
    "filter-log-events": filtered,
    "get-log-events": gotten,
    "subscription": subscribed,
    "storage account": stored,
    "event hub": hubbed,
}
"""The forms that hold the events as they are."""


def logged(event: Event, **more: Any) -> Event:
    """An event as GKE tells it to Cloud Logging; ``more`` overrides fields of the protoPayload."""
    ref = event.get("objectRef", {})
    group, version = ref.get("apiGroup") or "core", ref.get("apiVersion", "v1")
    namespace = ["namespaces", ref["namespace"]] if ref.get("namespace") else []
    steps = [group, version, *namespace, ref.get("resource"), ref.get("name"), ref.get("subresource")]
    permission = ".".join(
        step
        for step in ("io.k8s", group.removesuffix(".k8s.io"), version, ref["resource"], ref.get("subresource"))
        if step
    )
    payload = {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "authenticationInfo": {"principalEmail": event["user"]["username"]},
        "authorizationInfo": [{"granted": True, "permission": f"{permission}.{event['verb']}"}],
        "methodName": f"{permission}.{event['verb']}",
        "requestMetadata": {"callerIp": "203.0.113.7", "callerSuppliedUserAgent": event.get("userAgent", "")},
        "resourceName": "/".join(step for step in steps if step),
        "serviceName": "k8s.io",
        "status": {"code": 0},
    }
    for ours, theirs, added in (("requestObject", "request", "k8s.io/Patch"), ("responseObject", "response", "v1")):
        if ours in event:
            payload[theirs] = {"@type": added} | event[ours]
    return {
        "insertId": event["auditID"],
        "labels": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed"},
        "logName": "projects/shop-prod/logs/cloudaudit.googleapis.com%2Factivity",
        "operation": {"first": True, "id": event["auditID"], "last": True, "producer": "k8s.io"},
        "protoPayload": payload | more,
        "receiveTimestamp": event["stageTimestamp"],
        "resource": {"labels": {"cluster_name": "shop", "location": "europe-west1"}, "type": "k8s_cluster"},
        "timestamp": event["requestReceivedTimestamp"],
    }


def put(folder: Path, body: bytes) -> Path:
    path = folder / "export"
    path.write_bytes(body)
    return path


def told(path: Path) -> list[Piece]:
    [one] = find_inputs([str(path)])
    assert one.kind is InputKind.AUDIT
    return list(pieces(Job("c", KEY, NOW, [Log(one, 0, 0)])))
