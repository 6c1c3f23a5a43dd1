from __future__ import annotations

import orjson
import pytest

from app.core.changes import audit
from app.core.model import ListClass, Verb
from app.core.objects.own_rules import OwnRules
from app.core.objects.redact import Redactor

REDACTOR = Redactor(b"a key that only the tests know..")


def event(**fields: object) -> audit.RawAuditEvent:
    base: dict[str, object] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": "a-1",
        "stage": "ResponseComplete",
        "requestURI": "/apis/apps/v1/namespaces/shop/deployments/web",
        "verb": "patch",
        "user": {"username": "alice"},
        "userAgent": "kubectl/v1.34.1 (linux/amd64) kubernetes/abc",
        "objectRef": {"resource": "deployments", "namespace": "shop", "name": "web", "apiGroup": "apps"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2026-11-20T12:00:00.000001Z",
        "stageTimestamp": "2026-11-20T12:00:00.004001Z",
    }
    return audit.decode(orjson.dumps(base | fields))


WHOLE = {
    "kind": "Deployment",
    "apiVersion": "apps/v1",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
}


def test_a_write_is_a_sighting_of_what_came_out() -> None:
    (seen,) = audit.sightings("lab", event(responseObject=WHOLE, requestObject={"spec": {"replicas": 3}}))
    assert (seen.resource.kind, seen.resource.namespace, seen.resource.name) == ("Deployment", "shop", "web")
    assert (seen.uid, seen.resource_version, seen.verb) == ("u1", "7", Verb.UPDATE)
    assert seen.body is not None
    assert seen.patch == b'{"spec":{"replicas":3}}'
    assert seen.actor.name == "alice"


def test_an_apply_that_made_the_object_is_a_create() -> None:
    (seen,) = audit.sightings("lab", event(responseObject=WHOLE, responseStatus={"code": 201}))
    assert seen.verb is Verb.CREATE


def test_at_level_metadata_only_the_name_is_known() -> None:
    (seen,) = audit.sightings("lab", event(level="Metadata"))
    assert seen.body is None
    assert seen.patch is None
    assert seen.resource.kind == "Deployment"


def test_a_generated_name_comes_from_the_answer() -> None:
    made = event(
        verb="create",
        responseStatus={"code": 201},
        objectRef={"resource": "deployments", "namespace": "shop", "apiGroup": "apps"},
        responseObject=WHOLE,
    )
    assert audit.sightings("lab", made)[0].resource.name == "web"


@pytest.mark.parametrize(
    "fields",
    [
        {"requestURI": "/apis/apps/v1/namespaces/shop/deployments/web?dryRun=All"},
        {"responseStatus": {"code": 409}},
        {"verb": "get"},
        {"stage": "ResponseStarted"},
        {"objectRef": None},
        {"responseStatus": None},
    ],
)
def test_what_wrote_nothing_is_no_sighting(fields: dict[str, object]) -> None:
    assert audit.sightings("lab", event(**fields)) == []


def test_a_collection_is_deleted_item_by_item() -> None:
    items = [{"metadata": {"name": n, "namespace": "shop", "uid": n, "resourceVersion": "1"}} for n in ("a", "b")]
    gone = event(verb="deletecollection", responseObject={"kind": "DeploymentList", "items": items})
    assert [(s.resource.name, s.verb) for s in audit.sightings("lab", gone)] == [
        ("a", Verb.DELETE),
        ("b", Verb.DELETE),
    ]


def test_a_delete_that_answers_with_a_status_names_its_uid() -> None:
    status = {"kind": "Status", "details": {"name": "web", "uid": "u9"}}
    (seen,) = audit.sightings("lab", event(verb="delete", responseObject=status))
    assert (seen.uid, seen.verb, seen.body) == ("u9", Verb.DELETE, None)


def test_an_empty_user_is_anonymous() -> None:
    key = audit.call_key(event(user={}, verb="list", responseStatus={"code": 401, "message": "Unauthorized"}), REDACTOR)
    assert (key.user, key.code, key.error) == ("system:anonymous", 401, "Unauthorized")


def test_a_refusal_is_counted_without_its_secrets() -> None:
    def error(message: str, resource: str = "pods", group: str = "") -> str:
        ref = {"resource": resource, "namespace": "shop", "name": "web", "apiGroup": group}
        refused = event(verb="create", objectRef=ref, responseStatus={"code": 422, "message": message})
        return audit.call_key(refused, REDACTOR).error

    assert error('pods "web-7d4b9c6f55-x2x4z" not found') == 'pods "web-#" not found'
    assert error("denied: password=hunter2") == "denied: password=<redacted>"
    assert "hunter2" not in error("x" * 225 + " https://bob:hunter2@host/")
    assert error('Secret "db" is invalid: data: "plain"', "secrets") == ""
    assert error('spec.x: Invalid value: "plain"', "sealedsecrets", "bitnami.com") == ""
    assert error('spec.x: Invalid value: "plain"', "caches", "acme.io") == 'spec.x: Invalid value: "plain"'
    own = Redactor(b"k" * 32, OwnRules(kinds=("acme.io/Cache",)))
    ref = {"resource": "caches", "apiGroup": "acme.io", "name": "web"}
    refused = event(verb="create", objectRef=ref, responseStatus={"code": 422, "message": 'Invalid value: "plain"'})
    assert audit.call_key(refused, own).error == ""


def test_a_bound_token_says_which_pod_called() -> None:
    key = audit.call_key(
        event(user={"username": "sa", "extra": {"authentication.kubernetes.io/pod-name": ["web-1"]}}), REDACTOR
    )
    assert key.pod == "web-1"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ListClass.QUORUM),
        ("?limit=500", ListClass.QUORUM),
        ("?resourceVersion=0", ListClass.CACHE),
        ("?resourceVersion=12", ListClass.EXACT),
        ("?limit=500&continue=abc", ListClass.CONTINUE),
    ],
)
def test_a_list_says_what_it_costs(query: str, expected: ListClass) -> None:
    assert audit.list_class("list", f"/api/v1/pods{query}") is expected


@pytest.mark.parametrize(
    ("verb", "query", "expected"),
    [
        ("watch", "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", ListClass.STREAM),
        ("watch", "watch=true&resourceVersion=12", ListClass.NOT_A_LIST),
        ("watch", "watch=true&sendInitialEvents=false", ListClass.NOT_A_LIST),
        ("get", "", ListClass.NOT_A_LIST),
    ],
)
def test_a_watch_says_whether_it_begins_with_all_there_is(verb: str, query: str, expected: ListClass) -> None:
    assert audit.list_class(verb, f"/api/v1/pods?{query}") is expected


def test_a_watch_is_counted_when_it_starts() -> None:
    assert audit.is_counted(event(verb="watch", stage="ResponseStarted"))
    assert not audit.is_counted(event(verb="watch", stage="ResponseComplete"))
    assert audit.is_counted(event(verb="list"))
    assert not audit.is_counted(event(verb="list", stage="RequestReceived"))


def test_equal_failures_count_together() -> None:
    one = audit.error_template('pods "web-6d5f7b8c9d-x2x4z" is forbidden: exceeded quota: team, used: pods=5')
    two = audit.error_template('pods "web-6d5f7b8c9d-abcde" is forbidden: exceeded quota: team, used: pods=6')
    assert one == two
    assert "exceeded quota: team" in one


def test_the_client_cannot_hide_a_call_behind_another_ones_id() -> None:
    first, second = event(), event(verb="delete")
    assert first.auditID == second.auditID
    assert audit.event_key("lab", first) != audit.event_key("lab", second)


def test_heartbeats_are_counted_but_not_kept() -> None:
    lease = event(verb="update", objectRef={"resource": "leases", "apiGroup": "coordination.k8s.io", "name": "n"})
    assert not audit.is_kept(lease)
    assert audit.is_kept(event())


def test_a_namespace_is_in_no_namespace_whatever_its_request_says() -> None:
    ref = {"resource": "namespaces", "namespace": "shop", "name": "shop", "apiVersion": "v1"}
    (seen,) = audit.sightings("lab", event(level="Metadata", verb="update", objectRef=ref))
    assert (seen.resource.kind, seen.resource.namespace, seen.resource.name) == ("Namespace", None, "shop")
