"""A deletion is told once, and two are never taken for one, however little was recorded of them."""

from __future__ import annotations

import pytest

from app.core.audit import decode, sightings
from app.core.model import NOBODY, Actor, Verb
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident
from tests.core.objects import ALICE, REPLICASETS, an_object, changes, learn, seen, told


def test_deletions_without_an_uid_are_told_apart() -> None:
    told_twice = [told("Secret", name, n, verb=Verb.DELETE) for n, name in enumerate(("a", "b", "a"))]
    found = changes(learn(*told_twice))
    assert [(one.resource.name, one.verb) for one in found] == [
        ("a", Verb.DELETE),
        ("b", Verb.DELETE),
        ("a", Verb.DELETE),
    ]


def test_an_audit_event_and_a_watch_event_of_one_deletion_meet() -> None:
    meta = {"name": "a", "namespace": "shop", "uid": "u-1", "resourceVersion": "7"}
    secret = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"x": "1"}}
    for uid in ("", "u-1"):
        audited = told("ConfigMap", "a", 0, verb=Verb.DELETE, uid=uid)
        watched = seen(secret, 0.2, verb=Verb.DELETE)
        for order in ((audited, watched), (watched, audited)):
            [found] = changes(learn(*order))
            assert found.sources == {"audit", "watch"}


def test_the_uid_stands_in_the_status_at_every_level() -> None:
    line = (
        b'{"stage":"ResponseComplete","verb":"delete","level":"Metadata","auditID":"x","user":{"username":"a"},'
        b'"requestReceivedTimestamp":"2026-11-21T12:00:00Z","stageTimestamp":"2026-11-21T12:00:00Z",'
        b'"objectRef":{"resource":"secrets","namespace":"shop","name":"s","apiVersion":"v1"},'
        b'"responseStatus":{"status":"Success","details":{"name":"s","kind":"secrets","uid":"u-9"},"code":200}}'
    )
    [found] = sightings("c", decode(line))
    assert found.uid == "u-9"


@pytest.mark.parametrize(("who", "told_of"), [(ALICE, True), (REPLICASETS, False), (NOBODY, False)])
def test_a_replica_set_that_a_person_deletes_is_a_change(who: Actor, told_of: bool) -> None:
    """Its pods go with it. Controllers delete old ones all the time."""
    one = an_object("ReplicaSet", "web-5b9548b565", version=7, api="apps/v1", spec={"replicas": 3})
    audited = seen(one, 10, verb=Verb.DELETE, source="audit", actor=who)
    watched = seen(one, 10.2, verb=Verb.DELETE)
    for order in ((audited, watched), (watched, audited)):
        found = changes(learn(seen(one, 0, verb=None), *order))
        assert [(c.resource.name, c.verb, c.actor.name) for c in found] == (
            [("web-5b9548b565", Verb.DELETE, "alice")] if told_of else []
        )


def test_what_befalls_its_deployment_leads_to_it() -> None:
    home, one = a_resource("Deployment", "web", "shop"), a_resource("ReplicaSet", "web-5b9548b565", "shop")
    gone = a_change(one, at=after(-5), verb=Verb.DELETE)
    hurt = a_symptom(home, "Unready", at=after(0), message="pods are not ready", count=9)
    ranking = ranked(
        gone,
        incident=an_incident(an_alert(after(20), name="KubeDeploymentReplicasMismatch", namespace="shop")),
        load=[],
        symptoms=[hurt],
        states=[a_workload(home)],
    )
    assert ranking.suspects[0].change.resource == one
