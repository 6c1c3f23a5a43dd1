"""What sightings teach: each write once, whoever tells of it and in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import orjson
import pytest
from msgspec import structs

from app.core.changes.sightings import NOTHING, Sighting
from app.core.changes.tracker import Tracker
from app.core.model import ActorSource, DiffSource, Object, ObjectState, Resource, Verb
from app.core.objects.redact import Redactor
from tests.core.learning import (
    ALICE,
    KEY,
    REPLICASETS,
    a_deployment,
    a_tracker,
    an_object,
    at,
    audited,
    changes,
    learn,
    listed,
    managed,
    seen,
    told,
)

BOTH = frozenset({"watch", "audit"})


def test_the_initial_list_teaches_state_and_no_change() -> None:
    (learned,) = learn(listed(a_deployment(version=5)))
    assert learned.changes == ()
    assert learned.states[0].resource_version == "5"
    assert learned.states[0].state is not None
    assert "status" not in learned.states[0].state


def test_an_update_is_the_diff_of_two_states_by_its_field_manager() -> None:
    fields: Object = {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"web"}': {"f:image": {}}}}}}}
    entries = [
        managed("argocd", seconds=9, fields=fields),
        managed("kubectl", seconds=1, fields={"f:spec": {"f:replicas": {}}}),
    ]
    new = a_deployment(version=6, image="r/web:v2", meta={"managedFields": entries})
    (change,) = changes(learn(listed(a_deployment(version=5)), seen(new, 9)))
    assert change.summary == "image of web: v1 → v2"
    assert [found.path_text for found in change.diffs] == ["spec.template.spec.containers[web].image"]
    assert (change.actor.name, change.actor.source) == ("argocd", ActorSource.MANAGED_FIELDS)
    assert change.diff_source is DiffSource.STATES
    assert change.sources == {"watch"}


def test_status_writes_and_resyncs_are_no_changes() -> None:
    quiet = a_deployment(
        version=6,
        status={"replicas": 2},
        meta={"generation": 1, "annotations": {"deployment.kubernetes.io/revision": "2"}},
    )
    learned = learn(listed(a_deployment(version=5)), seen(quiet, 1), seen(quiet, 2), seen(a_deployment(version=7), 3))
    assert changes(learned) == []


def test_a_write_that_changes_nothing_is_counted_not_shown() -> None:
    learned = learn(
        listed(a_deployment(version=5)), audited(a_deployment(version=5), 1), audited(a_deployment(version=6), 2)
    )
    assert changes(learned) == []
    assert [one.no_op for one in learned] == [False, True, True]


def test_watch_and_audit_meet_in_either_order() -> None:
    old, new = a_deployment(version=5), a_deployment(version=6, replicas=4)
    watch, audit = seen(new, 2), audited(new, 1.9)
    for pair in permutations((watch, audit)):
        (change,) = changes(learn(listed(old), *pair))
        assert change.actor == ALICE
        assert change.sources == {"watch", "audit"}
        assert change.at == pair[0].at, "the first seen is kept, so that its id never moves"


def test_the_same_telling_twice_adds_nothing() -> None:
    new = audited(a_deployment(version=6, replicas=4), 1)
    learned = learn(listed(a_deployment(version=5)), new, new)
    assert len(changes(learned)) == 1
    assert learned[-1].changes == ()


@pytest.mark.parametrize("watch_first", [True, False])
def test_a_metadata_level_audit_event_meets_the_watch_event_of_its_write(watch_first: bool) -> None:
    old = an_object("ConfigMap", "settings", version=5, data={"a": "1"})
    watch = seen(an_object("ConfigMap", "settings", version=6, data={"a": "2"}), 10)
    audit = told("ConfigMap", "settings", 9.5)
    pair = (watch, audit) if watch_first else (audit, watch)
    learned = learn(listed(old), *pair)
    (change,) = changes(learned)
    assert change.actor == ALICE
    assert change.diff_source is DiffSource.STATES
    assert change.summary == "a of ConfigMap settings: 1 → 2"


def test_a_metadata_level_event_far_away_is_another_write() -> None:
    watch = seen(an_object("ConfigMap", "settings", version=6, data={"a": "2"}), 10)
    found = changes(
        learn(listed(an_object("ConfigMap", "settings", version=5)), watch, told("ConfigMap", "settings", 20))
    )
    assert [change.diff_source for change in found] == [DiffSource.STATES, DiffSource.NONE]


def a_definition(version: int, **parts: Any) -> Any:
    api = "apiextensions.k8s.io/v1"
    return an_object("CustomResourceDefinition", "foobars.x.io", version=version, api=api, namespace=None, **parts)


def test_the_api_server_takes_back_the_group_of_a_deleted_definition() -> None:
    crd = a_definition(1)
    marked = a_definition(2, meta={"finalizers": ["customresourcecleanup.apiextensions.k8s.io"]})
    service = an_object("APIService", "v1.x.io", version=1, api="apiregistration.k8s.io/v1", namespace=None)
    registrar = structs.replace(ALICE, name="system:apiserver")
    deleted = audited(crd, 1.1, verb=Verb.DELETE)
    taken_back = structs.replace(audited(service, 2, verb=Verb.DELETE), actor=registrar)
    found = changes(learn(listed(crd), listed(service), seen(marked, 1), deleted, taken_back))
    assert [change.resource.kind for change in found] == ["CustomResourceDefinition", "APIService"]
    assert found[1].begun_by == found[0].id


def test_a_custom_kind_guessed_from_its_plural_meets_the_real_one() -> None:
    names = {"kind": "FooBar", "plural": "foobars"}
    crd = a_definition(1, spec={"group": "x.io", "names": names, "scope": "Namespaced"})
    obj = an_object("FooBar", "f", version=6, api="x.io/v1", spec={"a": 1})
    audit = told("Foobar", "f", 1, verb=Verb.CREATE, group="x.io")
    (change,) = changes(learn(listed(crd), audit, seen(obj, 1.2, verb=Verb.CREATE)))
    assert (change.resource.kind, change.sources) == ("FooBar", BOTH)


def test_without_a_state_before_the_patch_is_the_diff() -> None:
    (change,) = changes(learn(audited(a_deployment(version=6, replicas=4), 1, patch={"spec": {"replicas": 4}})))
    assert change.diff_source is DiffSource.PATCH
    assert change.summary == "replicas of web set to 4"


def test_without_a_state_before_a_patch_without_effect_is_none() -> None:
    entries = [managed("kubectl", seconds=-600, fields={"f:spec": {"f:replicas": {}}})]
    obj = a_deployment(version=6, replicas=4, meta={"managedFields": entries})
    (learned,) = learn(audited(obj, 1, patch={"spec": {"replicas": 4}}))
    assert learned.changes == ()


def test_an_update_of_an_unknown_object_teaches_its_state_only() -> None:
    (learned,) = learn(seen(a_deployment(version=6), 1))
    assert learned.changes == ()
    assert len(learned.states) == 1


def test_a_request_level_patch_is_applied_to_what_is_known() -> None:
    learned = learn(
        listed(a_deployment(version=5)), told("Deployment", "web", 1, patch={"spec": {"replicas": 7}}, group="apps")
    )
    (change,) = changes(learned)
    assert change.summary == "replicas of web: 2 → 7"
    assert change.diff_source is DiffSource.PATCH
    known: Any = learned[-1].states[0].state
    assert known["spec"]["replicas"] == 7


def test_scaling_changes_replicas_and_other_subresources_nothing() -> None:
    scale = {"kind": "Scale", "spec": {"replicas": 9}}
    common: dict[str, Any] = {"group": "apps", "patch": scale, "uid": "uid-web", "resource_version": "6"}
    scaled = told("Deployment", "web", 1, subresource="scale", **common)
    learned = learn(listed(a_deployment(version=5)), scaled, structs.replace(scaled, subresource="eviction"))
    (change,) = changes(learned)
    assert change.summary == "replicas of web: 2 → 9"
    assert change.diff_source is DiffSource.STATES
    assert learned[-1] is NOTHING


def test_an_older_version_never_overwrites_a_newer_state() -> None:
    tracker = a_tracker()
    for sighting in (listed(a_deployment(version=9, replicas=9)), seen(a_deployment(version=100, replicas=10), 1)):
        tracker.observe(sighting)
    late = tracker.observe(audited(a_deployment(version=11, replicas=3), 2))
    assert late.changes == ()
    assert late.no_op, "a watch saw every version since: this write changed nothing"
    (change,) = tracker.observe(seen(a_deployment(version=101, replicas=11), 3)).changes
    assert (change.diffs[0].old, change.diffs[0].new) == (10, 11)


def test_two_writes_told_in_the_wrong_order_are_told_apart() -> None:
    def with_owner(version: int, value: str) -> Any:
        return an_object("ServiceAccount", "sa", version=version, meta={"annotations": {"owner": value}})

    first, second = audited(with_owner(6, "b"), 1), audited(with_owner(7, "c"), 1.001)
    found = {change.resource_version: change for change in changes(learn(listed(with_owner(5, "a")), second, first))}
    assert {v: (c.diffs[0].old, c.diffs[0].new) for v, c in found.items()} == {"6": ("a", "b"), "7": ("b", "c")}


def test_there_and_back_told_in_the_wrong_order_is_two_changes() -> None:
    def with_owner(version: int, value: str) -> Any:
        return an_object("ServiceAccount", "sa", version=version, meta={"annotations": {"owner": value}})

    there, back = audited(with_owner(6, "b"), 1), audited(with_owner(7, "a"), 1.001)
    found = {change.resource_version: change for change in changes(learn(listed(with_owner(5, "a")), back, there))}
    assert {v: (c.diffs[0].old, c.diffs[0].new) for v, c in found.items()} == {"6": ("a", "b"), "7": ("b", "a")}


def test_repeated_rewrites_stay_single_changes() -> None:
    def signed(version: int) -> Any:
        return an_object("ServiceAccount", "sa", version=version, meta={"annotations": {"x/sign": "ab"[version % 2]}})

    found = changes(learn(listed(signed(1)), *(seen(signed(n), n / 10) for n in range(2, 302))))
    assert len(found) == 300
    assert found[0].summary == "annotation sign of ServiceAccount sa: b → a"


def test_creations_and_deletions() -> None:
    obj = a_deployment(version=6)
    gone = told("Deployment", "web", 5, verb=Verb.DELETE, group="apps", uid="uid-web")
    learned = learn(
        seen(obj, 1, verb=Verb.CREATE), audited(obj, 0.9, verb=Verb.CREATE), gone, seen(obj, 5.1, verb=Verb.DELETE)
    )
    made, deleted = changes(learned)
    assert (made.verb, made.summary, made.sources) == (
        Verb.CREATE,
        "Deployment web created: web:v1, 2 replicas",
        BOTH,
    )
    assert (deleted.verb, deleted.summary, deleted.sources) == (
        Verb.DELETE,
        "Deployment web deleted",
        BOTH,
    )
    assert deleted.diffs[0].old is not None
    assert learned[2].states[0].deleted_at == at(5)


def test_a_deletion_that_waits_for_finalizers_is_told_once() -> None:
    obj = an_object("Namespace", "old", version=5, namespace=None, meta={"finalizers": ["x"]})
    going = an_object(
        "Namespace",
        "old",
        version=6,
        namespace=None,
        meta={"finalizers": ["x"], "deletionTimestamp": "2026-11-21T05:00:01Z"},
    )
    found = changes(
        learn(listed(obj), seen(going, 1), audited(going, 0.9, verb=Verb.DELETE), seen(going, 30, verb=Verb.DELETE))
    )
    assert [(change.verb, change.at) for change in found] == [(Verb.DELETE, at(1))]
    assert found[0].actor == ALICE


def test_a_namespace_that_is_deleted_is_there_until_it_is_finalized() -> None:
    stamp = {"deletionTimestamp": "2026-11-21T05:00:01Z"}
    old = an_object("Namespace", "old", version=5, namespace=None, spec={"finalizers": ["kubernetes"]})
    going = an_object("Namespace", "old", version=6, namespace=None, meta=stamp, spec=old["spec"])
    marked = an_object("Namespace", "old", version=6, namespace=None, meta=stamp, spec={})
    learned = learn(
        listed(old),
        audited(going, 1, verb=Verb.DELETE),
        audited(going, 2, subresource="finalize"),
        audited(marked, 9, subresource="finalize"),
        audited(marked, 9, subresource="finalize"),
    )
    assert [(change.verb, change.at) for change in changes(learned)] == [(Verb.DELETE, at(1))]
    assert [[state.deleted_at for state in one.states] for one in learned[1:]] == [[], [], [at(9)], []]


def test_the_same_name_again_is_another_object() -> None:
    again = a_deployment(version=9)
    again["metadata"]["uid"] = "uid-2"
    first = a_deployment(version=5)
    found = changes(learn(listed(first), seen(first, 1, verb=Verb.DELETE), seen(again, 2, verb=Verb.CREATE)))
    assert [change.verb for change in found] == [Verb.DELETE, Verb.CREATE]


def test_a_dump_of_an_unknown_cluster_teaches_state_and_a_newer_one_reconstructs() -> None:
    old, new = a_deployment(version=5), a_deployment(version=8, replicas=6)
    assert changes(learn(seen(old, 1, verb=None, source="state"))) == []
    (change,) = changes(learn(listed(old), seen(new, 60, verb=None, source="state")))
    assert change.sources == {"state"}
    assert change.summary == "replicas of web: 2 → 6 (between 05:00:00 and 05:01:00)"
    assert changes(learn(listed(new), seen(old, 60, verb=None, source="state"))) == []


def test_what_the_tracker_does_not_hold_it_looks_up() -> None:
    stored: dict[Resource, ObjectState] = {}
    first = Tracker("c", Redactor(KEY), lambda _resource, _uid: None)
    for state in first.observe(listed(a_deployment(version=5))).states:
        stored[state.resource] = state
    second = Tracker("c", Redactor(KEY), lambda resource, _uid: stored.get(resource))
    (change,) = second.observe(seen(a_deployment(version=6, replicas=3), 1)).changes
    assert change.summary == "replicas of web: 2 → 3"


def test_memory_is_bounded_and_small() -> None:
    tracker = Tracker("c", Redactor(KEY), lambda _resource, _uid: None, memory_bytes=100_000)
    for n in range(500):
        tracker.observe(listed(a_deployment(f"web-{n}", version=n + 1)))
    held = [not tracker.lacks(Resource("c", "apps", "Deployment", "shop", f"web-{n}")) for n in range(500)]
    assert held[-1]
    assert not held[0]
    assert sum(held) >= 66, "at most 1.5 kB an object"


def test_what_was_asked_about_is_kept_before_what_is_older() -> None:
    tracker = Tracker("c", Redactor(KEY), lambda _resource, _uid: None, memory_bytes=100_000)
    first, second = (Resource("c", "apps", "Deployment", "shop", f"web-{n}") for n in (0, 1))
    asked = []
    for number in range(300):
        tracker.observe(listed(a_deployment(f"web-{number}", version=number + 1)))
        asked.append(tracker.lacks(second))
    assert asked == [True] + [False] * 299
    assert tracker.lacks(first)


@pytest.mark.parametrize(("api", "kind"), [("v1", "Event"), ("discovery.k8s.io/v1", "EndpointSlice")])
def test_what_is_not_followed_is_not_looked_up(api: str, kind: str) -> None:
    tracker = Tracker("c", Redactor(KEY), lambda _resource, _uid: pytest.fail("asked"))
    resource = Resource("c", api.rpartition("/")[0], kind, "shop", "x")
    assert not tracker.lacks(resource)
    tracker.observe(seen(an_object(kind, "x", version=5, api=api), 1))


@pytest.mark.parametrize("kind", ["Pod", "ReplicaSet"])
def test_pods_and_replica_sets_are_state(kind: str) -> None:
    api = "v1" if kind == "Pod" else "apps/v1"
    one, two = (an_object(kind, "p", version=n, api=api, spec={"a": n}) for n in (5, 6))
    gone = audited(two, 2, verb=Verb.DELETE, actor=REPLICASETS)
    learned = learn(listed(one), audited(two, 1, actor=REPLICASETS), gone)
    assert changes(learned) == []
    assert learned[1].states
    assert learned[2].states[0].deleted_at


def test_a_controllers_edit_of_an_owned_object_is_begun_by_the_owners_change() -> None:
    def parent(version: int, size: int) -> Any:
        return an_object("Component", "shop", version=version, api="platform.example/v1", spec={"size": size})

    owner = [
        {
            "apiVersion": "platform.example/v1",
            "kind": "Component",
            "name": "shop",
            "uid": "uid-shop",
            "controller": True,
        }
    ]
    child = [a_deployment(version=n, replicas=r, meta={"ownerReferences": owner}) for n, r in ((4, 1), (7, 5))]
    operator = structs.replace(ALICE, name="system:serviceaccount:platform:component-operator")
    start = (listed(parent(5, 1)), listed(child[0]), audited(parent(6, 5), 1))
    decided, derived = changes(learn(*start, audited(child[1], 2, actor=operator)))
    assert derived.begun_by == decided.id
    assert changes(learn(*start, audited(child[1], 2)))[1].begun_by is None, "a person decides"
    assert changes(learn(*start, audited(child[1], 2000, actor=operator)))[1].begun_by is None, "too long after"


def test_a_cronjobs_jobs_are_its_life() -> None:
    owner = [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}]
    job = an_object("Job", "nightly-1", version=5, api="batch/v1", meta={"ownerReferences": owner}, spec={})
    assert changes(learn(seen(job, 1, verb=Verb.CREATE))) == []
    assert len(changes(learn(seen(an_object("Job", "migrate", version=5, api="batch/v1"), 1, verb=Verb.CREATE)))) == 1


@pytest.mark.parametrize("kind", ["Lease", "EndpointSlice", "TokenReview"])
def test_what_is_never_stored(kind: str) -> None:
    group = {"Lease": "coordination.k8s.io", "EndpointSlice": "discovery.k8s.io"}.get(kind, "authentication.k8s.io")
    obj = an_object(kind, "x", version=1, api=f"{group}/v1", spec={"token": "s"})
    assert learn(audited(obj, 1, verb=Verb.CREATE)) == [NOTHING]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"metadata":5}',
        b'{"metadata":{"uid":5}}',
        b'{"spec":{}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_body_that_cannot_be_read_counts_as_not_recorded(body: bytes) -> None:
    sighting = structs.replace(told("ConfigMap", "x", 1), body=body)
    (change,) = changes(learn(sighting))
    assert change.diff_source is DiffSource.NONE


def test_a_body_that_postgresql_could_not_store_is_cleaned() -> None:
    body = b'{"metadata":{"name":"x","uid":"u","resourceVersion":"5"},"data":{"a":"\\u0000\\ud800","b":1e100000}}'
    sighting = structs.replace(told("ConfigMap", "x", 1, verb=Verb.CREATE), body=body)
    (learned,) = learn(sighting)
    known: Any = learned.states[0].state
    assert known["data"] == {"a": "\ufffd\ufffd", "b": "inf"}


Take = Callable[[], str]


def _secret(version: int, take: Take) -> Any:
    data = {f"key{n}": take() for n in range(10)}
    applied = orjson.dumps({"data": {"a": take()}}).decode()
    note = {"kubectl.kubernetes.io/last-applied-configuration": applied, "x/json": f'{{"token":"{take()}"}}'}
    return an_object("Secret", "s", version=version, data=data, stringData={"x": take()}, meta={"annotations": note})


def _pod_spec(take: Take) -> Any:
    env = [{"name": name, "value": take()} for name in ("DB_PASSWORD", "API_TOKEN", "AWS_SECRET_ACCESS_KEY")]
    args = [f"--password={take()}", "--token", take(), f"--url=amqp://u:{take()}@mq/", f"-p{take()}"]
    return {
        "containers": [{"name": "app", "env": env, "args": args, "command": ["sh", "-c", f"PGPASSWORD={take()} x"]}]
    }


def _config(version: int, take: Take) -> Any:
    text = f"db.password={take()}\nuser=x\napi_key: {take()}\nsecret: |\n  {take()}\n"
    data = {"app.conf": text, "id_rsa": take(), "client_secret": take(), "app.json": f'{{"password":"{take()}"}}'}
    return an_object("ConfigMap", "m", version=version, data=data)


def _custom(version: int, take: Take) -> Any:
    spec = {"credentials": {"a": take(), "b": [take()]}, "authToken": take(), "template": {"spec": _pod_spec(take)}}
    return an_object("Widget", "w", version=version, api="x.example/v1", spec=spec)


def _sealed(version: int, take: Take) -> Any:
    return an_object("SealedSecret", "z", version=version, api="bitnami.com/v1", spec={"anything": take()})


def _patches(take: Take) -> list[Any]:
    return [
        [{"op": "replace", "path": "/data/a", "value": take()}],
        [{"op": "add", "path": "", "value": {"data": {"a": take()}}}],
        {"data": {"a": take()}},
        {"metadata": {"annotations": {"openshift.io/token-secret.value": take()}}},
    ]


def _round(version: int, take: Take) -> Iterator[Sighting]:
    """One sighting of every sort: sources, verbs, levels, patch types."""
    for make in (_secret, _config, _custom, _sealed):
        for source, verb in (("watch", Verb.UPDATE), ("audit", Verb.CREATE), ("audit", Verb.UPDATE), ("state", None)):
            version += 1
            yield seen(make(version, take), version, verb=verb, source=source, actor=ALICE)
    deployment = a_deployment(version=version + 1)
    deployment["spec"]["template"]["spec"] = _pod_spec(take)
    yield seen(deployment, version + 1)
    for patch in _patches(take):
        version += 1
        yield told("Secret", "s", version, patch=patch)
        yield told("Secret", f"n{version}", version, patch=patch, verb=Verb.CREATE)
    about = {"kind": "Pod", "name": "p", "namespace": "shop"}
    event = {"type": "Warning", "reason": "Failed", "message": f"login with password={take()} refused"}
    yield seen(an_object("Event", f"e{version}", version=version, involvedObject=about, **event), version)
    yield seen(_secret(version + 1, take), version + 1, verb=Verb.DELETE)


def test_no_canary_leaves_the_tracker() -> None:
    canaries: list[str] = []

    def take() -> str:
        canaries.append(f"canary{len(canaries):04d}zq")
        return canaries[-1]

    sightings = [sighting for version in range(100, 700, 100) for sighting in _round(version, take)]
    assert len(canaries) >= 500
    learned = learn(*sightings)
    assert sum(len(one.changes) for one in learned) > 50
    assert any(one.symptoms for one in learned)
    shown = repr(learned)
    assert [canary for canary in canaries if canary in shown] == []
