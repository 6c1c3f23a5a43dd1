"""What objects as they are now tell of the past, and how sure they are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from app.core.changes.history import Past, is_remembered, made_in, same_write
from app.core.model import ActorSource, Change, DiffSource, FieldDiff, Resource, Verb
from app.core.objects.body import Body, read_body
from app.core.objects.kinds import Kinds
from app.core.objects.redact import Redactor
from tests.core.learning import KEY, a_deployment, an_object, at, managed

IMAGE = ("spec", "template", "spec", "containers", (("name", "web"),), "image")
OWNED: Any = {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"web"}': {"f:image": {}}}}}}}
REPLICAS: Any = {"f:spec": {"f:replicas": {}}}


def stamp(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def body_of(raw: bytes) -> Body:
    body = read_body(raw)
    assert body is not None
    return body


def tell(past: Past, obj: Any) -> list[Change]:
    group = obj["apiVersion"].rpartition("/")[0]
    meta = obj["metadata"]
    raw = orjson.dumps(obj)
    found = past.of(Resource("c", group, obj["kind"], meta.get("namespace"), meta["name"]), raw, body_of(raw))
    return made_in(found, datetime.min.replace(tzinfo=at(0).tzinfo), at(1e6))


def keep(past: Past, obj: Any) -> None:
    raw = orjson.dumps(obj)
    past.keep(raw, body_of(raw))


def a_past() -> Past:
    return Past(Redactor(KEY), Kinds())


def a_web(image: str, *, made: float = 0, writers: tuple[Any, ...] = (), **meta: Any) -> Any:
    meta = {"creationTimestamp": stamp(made), "managedFields": list(writers), "generation": 5, **meta}
    return a_deployment(version=9, image=image, meta=meta)


def a_replica_set(
    name: str, image: str, number: int, *, made: float, before: str = "", touched: float | None = None
) -> Any:
    annotations = {"deployment.kubernetes.io/revision": str(number)}
    if before:
        annotations["deployment.kubernetes.io/revision-history"] = before
    owner = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "web", "uid": "uid-web", "controller": True}
    template = a_deployment(version=1, image=image)["spec"]["template"]
    template["metadata"]["labels"]["pod-template-hash"] = name
    meta = {"creationTimestamp": stamp(made), "annotations": annotations, "ownerReferences": [owner]}
    meta["managedFields"] = [managed("kube-controller-manager", seconds=touched or made, fields=REPLICAS)]
    return an_object("ReplicaSet", name, version=5, api="apps/v1", meta=meta, spec={"template": template})


def a_revision(name: str, image: str, number: int, *, made: float, touched: float | None = None) -> Any:
    owner = {"kind": "StatefulSet", "apiVersion": "apps/v1", "name": "db", "uid": "uid-db", "controller": True}
    template = a_deployment("db", version=1, image=image)["spec"]["template"]
    meta = {"creationTimestamp": stamp(made), "ownerReferences": [owner]}
    meta["managedFields"] = [managed("kube-controller-manager", seconds=touched or made, fields={"f:revision": {}})]
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    return an_object("ControllerRevision", name, version=5, api="apps/v1", meta=meta, data=data, revision=number)


def told(found: list[Change]) -> list[tuple[Any, ...]]:
    return [(one.verb.value, one.at, one.diffs[0].new if one.diffs and one.diffs[0].path else None) for one in found]


def test_replica_sets_tell_what_each_rollout_changed_and_when() -> None:
    past = a_past()
    for name, image, number, made in (("b", "v2", 2, 100), ("a", "v1", 1, 0), ("c", "v3", 3, 200)):
        keep(past, a_replica_set(name, image, number, made=made))
    found = tell(past, a_web("v3", writers=(managed("helm", seconds=200, fields=OWNED),)))
    assert told(found) == [("create", at(0), None), ("update", at(100), "v2"), ("update", at(200), "v3")]
    create, second, third = found
    assert create.diff_source is DiffSource.NONE  # what it was created as is not what it is now
    assert second.diffs == (FieldDiff(IMAGE, "replace", "v1", "v2"),)
    assert (second.found_in, second.since, second.actor.name) == ("ReplicaSet b", None, "")
    assert (third.actor.name, third.actor.source) == ("helm", ActorSource.MANAGED_FIELDS)
    assert {"history"} == set().union(*(one.sources for one in found))


def test_who_wrote_a_template_says_when_where_its_controller_was_late() -> None:
    past = a_past()
    keep(past, a_replica_set("a", "v1", 1, made=0))
    keep(past, a_replica_set("b", "v2", 2, made=160))
    found = tell(past, a_web("v2", writers=(managed("helm", seconds=100, fields=OWNED),)))
    assert told(found)[1:] == [("update", at(100), "v2")]


@pytest.mark.parametrize(
    ("writers", "when", "since"),
    [
        ((), at(500), at(100)),
        ((managed("kubectl-rollout", seconds=300, fields=OWNED),), at(300), None),
        ((managed("kubectl-scale", seconds=300, fields=REPLICAS),), at(500), at(100)),
    ],
    ids=["nobody says when", "its writer says", "another's write says nothing"],
)
def test_a_return_to_an_earlier_template_was_between_two_times(writers: Any, when: datetime, since: Any) -> None:
    past = a_past()
    keep(past, a_replica_set("a", "v1", 3, made=0, before="1", touched=500))
    keep(past, a_replica_set("b", "v2", 2, made=100))
    found = [one for one in tell(past, a_web("v1", writers=writers)) if one.diffs and one.verb is Verb.UPDATE]
    assert [one.diffs[0].new for one in found] == ["v2", "v1"]
    assert (found[1].at, found[1].since) == (when, since)
    assert ("between" in found[1].summary) == (since is not None)


def test_what_was_before_the_oldest_template_is_not_known() -> None:
    past = a_past()
    keep(past, a_replica_set("h", "v8", 8, made=800))
    keep(past, a_replica_set("i", "v9", 9, made=900))
    _, oldest, newest = tell(past, a_web("v9"))
    assert (oldest.diff_source, oldest.at) == (DiffSource.NONE, at(800))
    assert "the template before it was forgotten" in oldest.summary
    assert newest.diffs[0].old == "v8"


def test_a_template_that_is_not_rolled_out_is_told() -> None:
    past = a_past()
    keep(past, a_replica_set("a", "v1", 1, made=0))
    found = tell(past, a_web("v2", writers=(managed("alice", seconds=50, fields=OWNED),)))
    assert told(found)[1:] == [("update", at(50), "v2")]


def test_controller_revisions_tell_of_stateful_sets() -> None:
    past = a_past()
    keep(past, a_revision("db-1", "v1", 3, made=0, touched=300))
    keep(past, a_revision("db-2", "v2", 2, made=100))
    spec = a_deployment("db", version=1, image="v1")["spec"]
    meta = {"creationTimestamp": stamp(0), "generation": 3}
    found = tell(past, an_object("StatefulSet", "db", version=9, api="apps/v1", meta=meta, spec=spec))
    assert told(found) == [("create", at(0), None), ("update", at(100), "v2"), ("update", at(300), "v1")]
    assert [one.since for one in found] == [None, None, at(100)]


def test_secrets_in_earlier_templates_are_fingerprints() -> None:
    past = a_past()
    for name, number, value in (("a", 1, "correct-horse-1"), ("b", 2, "correct-horse-2")):
        obj = a_replica_set(name, "v1", number, made=number * 100)
        obj["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "DB_PASSWORD", "value": value}]
        keep(past, obj)
    found = tell(past, a_web("v1", made=100))
    assert [one.diffs[0].op for one in found if one.verb is Verb.UPDATE][:1] == ["replace"]
    assert "correct-horse" not in repr(found)


def test_an_object_that_nobody_wrote_again_was_created_as_it_is() -> None:
    writer = managed("kubectl-create", seconds=0, fields={"f:data": {"f:a": {}}})
    meta = {"creationTimestamp": stamp(0), "managedFields": [writer]}
    (found,) = tell(a_past(), an_object("ConfigMap", "web", version=3, data={"a": "1"}, meta=meta))
    assert (found.verb, found.diff_source, found.actor.name) == (Verb.CREATE, DiffSource.STATES, "kubectl-create")
    assert found.found_in == "creationTimestamp"


def test_last_writes_are_told_by_manager_and_time() -> None:
    writers = (
        managed("kubectl-create", seconds=0, fields={"f:data": {"f:a": {}}}),
        managed("kubectl-edit", seconds=60, fields={"f:data": {"f:b": {}}}),
        managed("kube-controller-manager", seconds=70, fields={"f:data": {"f:a": {}}}),
        managed("operator", seconds=80, fields={"f:metadata": {"f:annotations": {"f:argocd.argoproj.io/refresh": {}}}}),
        managed("operator", seconds=90, fields={"f:status": {}}, subresource="status"),
    )
    meta: Any = {"creationTimestamp": stamp(0), "managedFields": list(writers)}
    meta["annotations"] = {"argocd.argoproj.io/refresh": "hard", "meta.helm.sh/release-name": "shop"}
    create, edit = tell(a_past(), an_object("ConfigMap", "web", version=3, data={"a": "1", "b": "2"}, meta=meta))
    assert (create.verb, create.diff_source) == (Verb.CREATE, DiffSource.NONE)
    assert (edit.at, edit.actor.name, edit.diff_source) == (at(60), "kubectl-edit", DiffSource.NONE)
    assert "perhaps data.b" in edit.summary
    assert edit.found_in == "managedFields, Helm release shop"


def test_a_deletion_that_waits_is_told_from_when_it_was_asked_for() -> None:
    meta = {"deletionTimestamp": stamp(60), "deletionGracePeriodSeconds": 30, "finalizers": ["x.example/wait"]}
    (found,) = tell(a_past(), an_object("ConfigMap", "web", version=3, meta=meta))
    assert (found.verb, found.at, found.found_in) == (Verb.DELETE, at(30), "deletionTimestamp")


@pytest.mark.parametrize(
    "obj",
    [
        an_object("Pod", "web", version=3, meta={"creationTimestamp": stamp(0)}),
        a_replica_set("a", "v1", 1, made=0),
        an_object(
            "Job", "run", version=3, api="batch/v1",
            meta={
                "creationTimestamp": stamp(0),
                "ownerReferences": [{"kind": "CronJob", "apiVersion": "batch/v1", "name": "n", "controller": True}],
            },
        ),
    ],
    ids=["a pod", "a ReplicaSet", "a run of a CronJob"],
)  # fmt: skip
def test_what_follows_from_something_else_is_no_change(obj: Any) -> None:
    assert tell(a_past(), obj) == []


ARGO = {
    "history": [
        {"revision": "aaa", "deployedAt": stamp(10), "deployStartedAt": stamp(8)},
        {"revision": "bbb", "deployedAt": stamp(100), "initiatedBy": {"username": "alice"}},
        {"revision": "bbb", "deployedAt": stamp(200)},
    ],
    "operationState": {"phase": "Failed", "startedAt": stamp(300), "operation": {"sync": {"revision": "ccc"}}},
}
HELM = {
    "history": [
        {"chartName": "web", "chartVersion": "1.1.0", "configDigest": "sha256:1234567890", "lastDeployed": stamp(100)},
        {"chartName": "web", "chartVersion": "1.0.0", "configDigest": "sha256:1234567890", "lastDeployed": stamp(8)},
    ]
}
KUSTOMIZE = {
    "history": [
        {"firstReconciled": stamp(100), "metadata": {"revision": "main@sha1:b"}},
        {"firstReconciled": stamp(8), "metadata": {"revision": "main@sha1:a"}},
    ]
}


@pytest.mark.parametrize(
    ("api", "kind", "status", "expected"),
    [
        (
            "argoproj.io/v1alpha1", "Application", ARGO,
            [(at(8), None, "aaa", ""), (at(100), "aaa", "bbb", "alice"), (at(300), "bbb", "ccc (Failed)", "")],
        ),
        (
            "helm.toolkit.fluxcd.io/v2", "HelmRelease", HELM,
            [
                (at(8), None, "web 1.0.0, values 12345678", ""),
                (at(100), "web 1.0.0, values 12345678", "web 1.1.0, values 12345678", ""),
            ],
        ),
        (
            "kustomize.toolkit.fluxcd.io/v1", "Kustomization", KUSTOMIZE,
            [(at(8), None, "main@sha1:a", ""), (at(100), "main@sha1:a", "main@sha1:b", "")],
        ),
    ],
    ids=["Argo CD", "Flux's HelmRelease", "Flux's Kustomization"],
)  # fmt: skip
def test_deliveries_are_told(api: str, kind: str, status: Any, expected: Any) -> None:
    found = tell(a_past(), an_object(kind, "web", version=3, api=api, spec={"a": "b"}, status=status))
    assert [(one.at, one.diffs[0].old, one.diffs[0].new, one.actor.name) for one in found] == expected
    assert {one.diff_source for one in found} == {DiffSource.PATCH}  # a status is no desired state to go back to


def test_told_twice_it_is_the_same() -> None:
    def all_of_it() -> list[Change]:
        past = a_past()
        keep(past, a_replica_set("a", "v1", 3, made=0, before="1", touched=500))
        keep(past, a_replica_set("b", "v2", 2, made=100))
        return tell(past, a_web("v1", writers=(managed("alice", seconds=700, fields=REPLICAS),)))

    assert all_of_it() == all_of_it()
    assert len({one.key for one in all_of_it()}) == len(all_of_it()) == 4


WEB = Resource("c", "apps", "Deployment", "shop", "web")
WROTE = Change(
    WEB, at(100), Verb.UPDATE, 1, uid="u", resource_version="7", diffs=(FieldDiff(IMAGE, "replace", "v1", "v2"),)
)
REMEMBERED = replace(WROTE, key=2, resource_version="", sources=frozenset({"history"}))


@pytest.mark.parametrize(
    ("remembered", "same"),
    [
        (REMEMBERED, True),
        (replace(REMEMBERED, at=at(102)), True),
        (replace(REMEMBERED, at=at(103)), False),
        (replace(REMEMBERED, at=at(900), since=at(50)), True),
        (replace(REMEMBERED, at=at(900), since=at(500)), False),
        (replace(REMEMBERED, uid="another"), False),
        (replace(REMEMBERED, verb=Verb.CREATE), False),
        (replace(REMEMBERED, diffs=(FieldDiff(("spec", "paused"), "replace", True, False),)), False),
        (replace(REMEMBERED, diffs=(), diff_source=DiffSource.NONE), True),
    ],
)
def test_a_write_is_known_again_by_object_time_and_what_it_changed(remembered: Change, *, same: bool) -> None:
    assert is_remembered(remembered)
    assert same_write(remembered, WROTE) is same
