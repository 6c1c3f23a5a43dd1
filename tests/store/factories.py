"""Nouns with defaults: a test names only what it is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.core.model import (
    Actor,
    ActorSource,
    CallCount,
    CallKey,
    Change,
    FieldDiff,
    Json,
    ObjectState,
    Outcome,
    Request,
    Resource,
    Rollout,
    Symptom,
    SymptomSource,
    Verb,
    version_key,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
CLUSTER = "north"


def a_resource(name: str = "payments-api", *, kind: str = "Deployment", namespace: str | None = "payments") -> Resource:
    return Resource(CLUSTER, "apps" if kind == "Deployment" else "", kind, namespace, name)


def an_actor(
    name: str = "argocd", source: ActorSource = ActorSource.MANAGED_FIELDS, *, pod: str | None = None
) -> Actor:
    return Actor(name, source, "argocd-application-controller" if source is ActorSource.AUDIT else "", pod)


def a_diff(new: Json = "v2", old: Json = "v1") -> FieldDiff:
    return FieldDiff(("spec", "containers", (("name", "app"),), "image"), "replace", old, new)


def a_change(version: str = "7", *, seconds: float = 0, resource: Resource | None = None, **more: Any) -> Change:
    fields: dict[str, Any] = {
        "actor": an_actor(),
        "uid": "u-1",
        "resource_version": version,
        "generation": 3,
        "diffs": (a_diff(),),
        "summary": "image of payments-api: v1 → v2",
        "sources": frozenset({"watch"}),
    }
    fields |= more
    key = version_key(CLUSTER, str(fields["uid"]), version)
    return Change(
        resource or a_resource(),
        NOON + timedelta(seconds=seconds),
        Verb.UPDATE,
        key,
        **fields,
    )


def a_state(version: str = "7", *, resource: Resource | None = None, uid: str = "u-1", **more: Any) -> ObjectState:
    fields: dict[str, Any] = {"state": {"spec": {"replicas": 2}, "version": version}} | more
    return ObjectState(resource or a_resource(), uid, version, NOON, **fields)


def a_rollout(generation: int = 3, *, seconds: float = 0, **more: Any) -> Rollout:
    started = NOON + timedelta(seconds=seconds)
    fields: dict[str, Any] = {"outcome": Outcome.RUNNING} | more
    return Rollout(a_resource(), "u-1", generation, started, **fields)


def a_symptom(fingerprint: str = "f1", *, seconds: float = 0, **more: Any) -> Symptom:
    return Symptom(
        SymptomSource.EVENT,
        "BackOff",
        NOON + timedelta(seconds=seconds),
        fingerprint,
        **more,
    )


def a_call_key(user: str = "system:node:n1", *, verb: str = "get", code: int = 200) -> CallKey:
    return CallKey(user, "", "kubelet", verb, "", "pods", "payments", code)


def a_count(slot: int = 0, *, user: str = "system:node:n1", count: int = 1, latency_us: int = 900) -> CallCount:
    return CallCount(a_call_key(user), int(NOON.timestamp()) + slot * 5, count, latency_us)


def a_request(number: int = 1, *, seconds: float = 0) -> Request:
    return Request(a_call_key(verb="update"), NOON + timedelta(seconds=seconds), number, f"payments-api-{number}", 2100)
