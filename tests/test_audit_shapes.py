"""Every shape an audit event may have, through the real importer: what lands in calls and in changes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from app.collect.importer import Import, Report
from app.collect.inputs import find_inputs
from app.core.model import CallCount, Change
from app.store import calls, changes
from app.store.database import Database

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
T0 = datetime(2026, 11, 21, 11, tzinfo=UTC)
Event = dict[str, Any]


def deployment(version: int, *, image: str = "web:1", replicas: int = 2) -> Event:
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-web", "resourceVersion": str(version)},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}},
    }


def config(name: str, version: int, **data: str) -> Event:
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"u-{name}", "resourceVersion": str(version)},
        "data": data,
    }


def event(second: float = 10, verb: str = "patch", **fields: Any) -> Event:
    """A write of the Deployment shop/web by alice, unless told otherwise; ``ref`` amends what it is about."""
    at = (T0 + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")
    ref = {"resource": "deployments", "namespace": "shop", "name": "web", "apiGroup": "apps", "apiVersion": "v1"}
    ref |= fields.pop("ref", {})
    group = f"apis/{ref['apiGroup']}" if ref["apiGroup"] else "api"
    path = [group, "v1", "namespaces", "shop", ref["resource"], ref["name"], ref.get("subresource", "")]
    base: Event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": f"a-{second}",
        "stage": "ResponseComplete",
        "requestURI": "/" + "/".join(part for part in path if part) + fields.pop("query", ""),
        "verb": verb,
        "user": {"username": "alice"},
        "userAgent": "kubectl/v1.36.0 (linux/amd64) kubernetes/0",
        "objectRef": {key: value for key, value in ref.items() if value},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": at,
        "stageTimestamp": at,
    }
    return {key: value for key, value in (base | fields).items() if value is not None}


CONFIG = {"resource": "configmaps", "name": "site", "apiGroup": ""}
POD = {"resource": "pods", "name": "web-1", "apiGroup": ""}
KNOWN = event(0, "create", responseStatus={"code": 201}, responseObject=deployment(1), user={"username": "setup"})


async def imported(
    database: Database, folder: Path, events: list[Event]
) -> tuple[Report, list[Change], list[CallCount]]:
    cluster = f"s-{uuid4().hex[:8]}"
    path = folder / "audit.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in events) + "\n")
    run = Import(database.write, cluster, now=NOW, progress=lambda *_: None)
    report = await run.run(find_inputs([str(path)]))
    async with database.read.connect() as conn:
        found = await changes.read_window(conn, cluster, T0 - timedelta(hours=1), NOW, limit=100)
        counted = await calls.read(conn, cluster, T0 - timedelta(hours=1), NOW)
    return report, sorted(found, key=lambda change: (change.at, change.resource.name)), list(counted)


@dataclass(frozen=True)
class Row:
    """Events of one cluster; the calls and changes they must become, as short texts; and what else is counted."""

    events: list[Event]
    calls: list[str]
    changes: list[str] = field(default_factory=list)
    no_ops: int = 0
    failed_writes: int = 0


def called(count: CallCount) -> str:
    key = count.key
    error = f" ({key.error})" if key.error else ""
    return f"{count.count} {key.user} {key.verb} {key.resource} {key.code}{error}"


def changed(change: Change) -> str:
    who = change.actor.name + (f" by {change.actor.impersonator}" if change.actor.impersonator else "")
    return f"{change.verb.value}, {who}: {change.summary} [{change.diff_source.value}]"


IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}}
AFTER = deployment(5, image="web:2")
JSON_PATCH = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "web:2"}]
COPY = {"op": "copy", "from": "/data/a", "path": "/data/b"}
SITE = config("site", 1, a="1")
MERGE = {"spec": {"replicas": 3}}
NULL = {"spec": {"replicas": None}, "metadata": {"creationTimestamp": None}}
STRATEGIC = {"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "web"}]}}}} | IMAGE
DROP = {"spec": {"template": {"spec": {"containers": [{"name": "web", "$patch": "delete"}]}}}}
APPLY = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web", "namespace": "shop"}} | IMAGE
SCALE = {
    "kind": "Scale",
    "apiVersion": "autoscaling/v1",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u-web", "resourceVersion": "5"},
    "spec": {"replicas": 7},
}
DONE = {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": "web", "uid": "u-web"}}
GENERATED = {"kind": "ConfigMap", "metadata": {"generateName": "site-", "namespace": "shop"}, "data": {"a": "1"}}
LIST = {"kind": "ConfigMapList", "apiVersion": "v1", "items": [config("a", 3, x="1"), config("b", 4, x="2")]}
MADE = {"code": 201}
EXEC = POD | {"subresource": "exec"}
PATCHED = ["1 alice patch deployments 200"]
UPDATED = ["1 alice update deployments 200"]
STATES, PATCH = "update, alice: image of web: 1 → 2 [states]", "update, alice: image of web: 1 → 2 [patch]"
UNKNOWN = "update, alice: image of web set to 2 [patch]"
TRUNCATED = "update, alice: web written (its content was too large for the audit log) [none]"
UNRECORDED = "update, alice: web written (its content was not recorded) [none]"
DELETED = "delete, alice: Deployment web deleted [states]"


def request(body: object, **fields: Any) -> Event:
    """A write at level Request: the answer was not recorded."""
    return event(level="Request", requestObject=body, **fields)


def answered(body: object, after: object = AFTER, **fields: Any) -> Event:
    """A write at level RequestResponse."""
    return event(requestObject=body, responseObject=after, **fields)


def of_config(level: str, **fields: Any) -> Event:
    """A create of a ConfigMap whose name the server makes."""
    return event(verb="create", level=level, ref=CONFIG | {"name": ""}, responseStatus=MADE, **fields)


ROWS = {
    # levels
    "Metadata": Row([event(level="Metadata")], PATCHED, [UNRECORDED]),
    "Metadata, object known": Row([KNOWN, event(level="Metadata")], PATCHED, [UNRECORDED]),
    "Request": Row([KNOWN, request(IMAGE)], PATCHED, [PATCH]),
    "Request, an update at the last version": Row(
        [KNOWN, request(deployment(1, image="web:2"), verb="update")], UPDATED, [PATCH]
    ),
    "Request, an update, object unknown": Row(
        [request(deployment(1, image="web:2"), verb="update")],
        UPDATED,
        ["update, alice: image of web set to 2, replicas set to 2 [patch]"],
    ),
    "Request, a create": Row(
        [request(config("site", 0, a="1"), verb="create", ref=CONFIG, responseStatus=MADE)],
        ["1 alice create configmaps 201"],
        ["create, alice: ConfigMap site created: a [patch]"],
    ),
    "RequestResponse": Row([KNOWN, answered(IMAGE)], PATCHED, [STATES]),
    "RequestResponse, object unknown": Row([answered(IMAGE)], PATCHED, [UNKNOWN]),
    "RequestResponse, nothing changed": Row([KNOWN, answered(MERGE, deployment(1))], PATCHED, no_ops=1),
    # stages
    "RequestReceived alone": Row([event(stage="RequestReceived", responseStatus=None)], []),
    "ResponseStarted alone": Row([event(stage="ResponseStarted")], []),
    "both stages": Row(
        [KNOWN, event(stage="RequestReceived", responseStatus=None), answered(IMAGE)], PATCHED, [STATES]
    ),
    "all stages": Row(
        [KNOWN, event(stage="RequestReceived", responseStatus=None), event(stage="ResponseStarted"), answered(IMAGE)],
        PATCHED,
        [STATES],
    ),
    "Panic": Row([event(stage="Panic", responseStatus=None)], ["1 alice patch deployments 500"], failed_writes=1),
    "a watch, when it starts": Row(
        [event(verb="watch", stage="ResponseStarted"), event(verb="watch")], ["1 alice watch deployments 200"]
    ),
    "a watch that failed": Row([event(verb="watch", responseStatus={"code": 410})], ["1 alice watch deployments 410"]),
    # odd events
    "truncated": Row([KNOWN, event(annotations={"audit.k8s.io/truncated": "true"})], PATCHED, [TRUNCATED]),
    "nobody": Row(
        [KNOWN, answered(IMAGE, user={})],
        ["1 system:anonymous patch deployments 200"],
        ["update, system:anonymous: image of web: 1 → 2 [states]"],
    ),
    "one auditID told twice": Row([KNOWN, answered(IMAGE), answered(IMAGE)], PATCHED, [STATES]),
    "one auditID told twice, Metadata": Row([event(level="Metadata")] * 2, PATCHED, [UNRECORDED]),
    "one auditID chosen for two requests": Row(
        [KNOWN, answered(IMAGE), answered(MERGE, deployment(6, image="web:2", replicas=3), second=20, auditID="a-10")],
        PATCHED * 2,
        [STATES, "update, alice: replicas of web: 2 → 3 [states]"],
    ),
    # patches
    "JSON patch": Row([request(JSON_PATCH)], PATCHED, [UNKNOWN]),
    "JSON patch, object known": Row([KNOWN, request(JSON_PATCH)], PATCHED, [PATCH]),
    "JSON patch that moves, object known": Row(
        [
            event(0, "create", ref=CONFIG, responseStatus=MADE, user={"username": "setup"}, responseObject=SITE),
            request([{"op": "move", "from": "/data/a", "path": "/data/b"}], ref=CONFIG),
        ],
        ["1 alice patch configmaps 200"],
        ["update, alice: a of ConfigMap site removed (was 1), b set to 1 [patch]"],
    ),
    "JSON patch that copies": Row(
        [request([{"op": "test", "path": "/data/a", "value": "1"}, COPY], ref=CONFIG)],
        ["1 alice patch configmaps 200"],
        ["update, alice: b of ConfigMap site set to (what stood at /data/a) [patch]"],
    ),
    "merge patch": Row([request(MERGE)], PATCHED, ["update, alice: replicas of web set to 3 [patch]"]),
    "merge patch, object known": Row(
        [KNOWN, request(MERGE)], PATCHED, ["update, alice: replicas of web: 2 → 3 [patch]"]
    ),
    "merge patch that removes": Row([request(NULL)], PATCHED, ["update, alice: replicas of web removed [patch]"]),
    "merge patch that removes, object known": Row(
        [KNOWN, request(NULL)], PATCHED, ["update, alice: replicas of web removed (was 2) [patch]"]
    ),
    "strategic merge patch": Row([request(STRATEGIC)], PATCHED, [UNKNOWN]),
    "strategic merge patch, object known": Row([KNOWN, request(STRATEGIC)], PATCHED, [PATCH]),
    "strategic merge patch that deletes, object known": Row(
        [KNOWN, request(DROP)], PATCHED, ["update, alice: container web of web removed (was web:1) [patch]"]
    ),
    "apply": Row([request(APPLY, query="?fieldManager=argocd")], PATCHED, [UNKNOWN]),
    "apply, object known": Row([KNOWN, request(APPLY, query="?fieldManager=argocd")], PATCHED, [PATCH]),
    "apply that creates": Row(
        [request(APPLY, query="?fieldManager=argocd", responseStatus=MADE)],
        ["1 alice patch deployments 201"],
        ["create, alice: Deployment web created: web:2 [patch]"],
    ),
    # subresources
    "status": Row(
        [KNOWN, answered({"status": {"replicas": 1}}, deployment(5), ref={"subresource": "status"})],
        ["1 alice patch deployments/status 200"],
    ),
    "scale": Row(
        [KNOWN, answered({"spec": {"replicas": 7}}, SCALE, ref={"subresource": "scale"})],
        ["1 alice patch deployments/scale 200"],
        ["update, alice: replicas of web: 2 → 7 [states]"],
    ),
    "scale, object unknown": Row(
        [answered(SCALE, SCALE, verb="update", ref={"subresource": "scale"})],
        ["1 alice update deployments/scale 200"],
        ["update, alice: replicas of web set to 7 [patch]"],
    ),
    "eviction": Row(
        [
            answered(
                {"kind": "Eviction"}, DONE, verb="create", ref=POD | {"subresource": "eviction"}, responseStatus=MADE
            )
        ],
        ["1 alice create pods/eviction 201"],
    ),
    "token": Row(
        [
            answered(
                {"kind": "TokenRequest", "spec": {"audiences": ["vault"]}},
                {"kind": "TokenRequest", "metadata": {"name": "bob"}, "status": {"token": "not-a-real-token"}},
                verb="create",
                ref={"resource": "serviceaccounts", "apiGroup": "", "name": "bob", "subresource": "token"},
                responseStatus=MADE,
            )
        ],
        ["1 alice create serviceaccounts/token 201"],
    ),
    "binding": Row(
        [answered({"kind": "Binding"}, DONE, verb="create", ref=POD | {"subresource": "binding"}, responseStatus=MADE)],
        ["1 alice create pods/binding 201"],
    ),
    "exec": Row(
        [
            event(verb="create", ref=EXEC, query="?command=sh", stage="ResponseStarted", responseStatus={"code": 101}),
            event(verb="create", ref=EXEC, query="?command=sh", responseStatus={"code": 101}),
        ],
        ["1 alice create pods/exec 101"],
    ),
    # nothing done
    "dry run": Row([KNOWN, answered(IMAGE, query="?fieldManager=x&dryRun=All")], PATCHED),
    "dry run of a delete, told in its body": Row(
        [KNOWN, answered({"kind": "DeleteOptions", "dryRun": ["All"]}, DONE, verb="delete")],
        ["1 alice delete deployments 200"],
    ),
    "conflict": Row(
        [KNOWN, answered(IMAGE, DONE, responseStatus={"code": 409, "message": "the object has been modified"})],
        ["1 alice patch deployments 409 (the object has been modified)"],
        failed_writes=1,
    ),
    "forbidden": Row(
        [event(verb="delete", level="Metadata", responseStatus={"code": 403, "message": "not allowed"})],
        ["1 alice delete deployments 403 (not allowed)"],
        failed_writes=1,
    ),
    # who
    "impersonation": Row(
        [KNOWN, answered(IMAGE, user={"username": "admin"}, impersonatedUser={"username": "carol"})],
        ["1 admin patch deployments 200"],
        ["update, carol by admin: image of web: 1 → 2 [states]"],
    ),
    # gone
    "delete": Row(
        [KNOWN, answered({"kind": "DeleteOptions", "propagationPolicy": "Background"}, DONE, verb="delete")],
        ["1 alice delete deployments 200"],
        [DELETED],
    ),
    "delete, object unknown": Row(
        [event(verb="delete", level="Metadata")],
        ["1 alice delete deployments 200"],
        ["delete, alice: Deployment web deleted [none]"],
    ),
    "deletecollection": Row(
        [event(verb="deletecollection", ref=CONFIG | {"name": ""}, responseObject=LIST)],
        ["1 alice deletecollection configmaps 200"],
        ["delete, alice: ConfigMap a deleted [states]", "delete, alice: ConfigMap b deleted [states]"],
    ),
    "deletecollection, answer not recorded": Row(
        [event(verb="deletecollection", ref=CONFIG | {"name": ""}, level="Metadata")],
        ["1 alice deletecollection configmaps 200"],
    ),
    # names
    "generateName": Row(
        [of_config("RequestResponse", requestObject=GENERATED, responseObject=config("site-x7k2p", 5, a="1"))],
        ["1 alice create configmaps 201"],
        ["create, alice: ConfigMap site-x7k2p created: a [states]"],
    ),
    "generateName, answer not recorded": Row(
        [of_config("Request", requestObject=GENERATED)],
        ["1 alice create configmaps 201"],
        ["create, alice: ConfigMap site-* created: a [patch]"],
    ),
    "generateName, Metadata": Row(
        [of_config("Metadata")], ["1 alice create configmaps 201"], ["create, alice: ConfigMap * created [none]"]
    ),
}


@pytest.mark.parametrize("name", ROWS)
async def test_an_event_becomes_these_calls_and_changes(database: Database, tmp_path: Path, name: str) -> None:
    row = ROWS[name]
    report, found, counted = await imported(database, tmp_path, row.events)
    assert report.problems == []
    assert [called(count) for count in counted if count.key.user != "setup"] == row.calls
    assert [changed(change) for change in found if change.actor.name != "setup"] == row.changes
    assert (report.tally.no_ops, report.tally.failed_writes) == (row.no_ops, row.failed_writes)
