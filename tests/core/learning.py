"""Kubernetes objects and sightings made in code, for the tests of the tracker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from app.core.changes.sightings import Learned, Sighting
from app.core.changes.tracker import Tracker
from app.core.model import NOBODY, Actor, Change, Resource, Verb
from app.core.objects.actors import actor_from_audit
from app.core.objects.redact import Redactor

T0 = datetime(2026, 11, 21, 5, 0, tzinfo=UTC)
KEY = b"a key that only the tests know.."
ALICE = actor_from_audit({"username": "alice"}, user_agent="kubectl/v1.33.2 (linux/amd64)")
BOB = actor_from_audit({"username": "bob"}, user_agent="kubectl/v1.33.2 (linux/amd64)")
HPA = actor_from_audit({"username": "system:serviceaccount:kube-system:horizontal-pod-autoscaler"})
REPLICASETS = actor_from_audit({"username": "system:serviceaccount:kube-system:replicaset-controller"})


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def a_tracker() -> Tracker:
    return Tracker("c", Redactor(KEY), lambda _resource, _uid: None)


def an_object(
    kind: str, name: str, *, version: int, api: str = "v1", namespace: str | None = "shop", **parts: Any
) -> Any:
    """An object as the API server sends it. ``meta`` is merged into its metadata."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **parts.pop("meta", {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"kind": kind, "apiVersion": api, "metadata": metadata, **parts}


def a_deployment(name: str = "web", *, version: int, image: str = "r/web:v1", replicas: int = 2, **parts: Any) -> Any:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": name, "image": image}]}}
    meta = {"generation": 1, **parts.pop("meta", {})}
    return an_object(
        "Deployment",
        name,
        version=version,
        api="apps/v1",
        spec={"replicas": replicas, "template": template},
        meta=meta,
        **parts,
    )


def managed(manager: str, *, seconds: float, fields: Any, subresource: str = "") -> Any:
    time = at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsV1": fields}
    return entry | ({"subresource": subresource} if subresource else {})


def seen(
    obj: Any,
    seconds: float,
    *,
    verb: Verb | None = Verb.UPDATE,
    source: str = "watch",
    actor: Actor = NOBODY,
    **more: Any,
) -> Sighting:
    """A sighting of a whole object."""
    meta = obj["metadata"]
    group, _, version = obj["apiVersion"].rpartition("/")
    patch = more.pop("patch", None)
    return Sighting(
        Resource("c", group if version else "", obj["kind"], meta.get("namespace"), meta["name"]),
        at(seconds),
        source,
        verb,
        body=orjson.dumps(obj),
        patch=None if patch is None else orjson.dumps(patch),
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        actor=actor,
        **more,
    )


def told(
    kind: str, name: str, seconds: float, *, verb: Verb = Verb.UPDATE, patch: Any = None, group: str = "", **more: Any
) -> Sighting:
    """An audit event without a whole object: Request level with a patch, Metadata level without."""
    return Sighting(
        Resource("c", group, kind, "shop", name),
        at(seconds),
        "audit",
        verb,
        patch=None if patch is None else orjson.dumps(patch),
        actor=more.pop("actor", ALICE),
        audit_id=more.pop("audit_id", f"audit-{name}-{seconds}"),
        **more,
    )


def listed(obj: Any) -> Sighting:
    return seen(obj, 0, verb=None)


def audited(obj: Any, seconds: float, *, verb: Verb = Verb.UPDATE, actor: Actor = ALICE, **more: Any) -> Sighting:
    return seen(obj, seconds, verb=verb, source="audit", actor=actor, audit_id=f"audit-{seconds}", **more)


def learn(*sightings: Sighting) -> list[Learned]:
    tracker = a_tracker()
    return [tracker.observe(sighting) for sighting in sightings]


def changes(learned: list[Learned]) -> list[Change]:
    """The changes by key, as the store would hold them: the last telling of each, in the order first told."""
    found: dict[int, Change] = {}
    for one in learned:
        for change in one.changes:
            assert change.key not in found or found[change.key].id == change.id
            found[change.key] = change
    return list(found.values())
