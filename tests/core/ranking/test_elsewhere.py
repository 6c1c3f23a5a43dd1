"""Objects of one name in two namespaces are two, and what nothing acts by is to blame for nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.mechanism import is_inert, is_other_quota, plausible
from app.core.model import Json, Verb
from tests.core.company import background, first, ranked
from tests.core.factories import (
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
    calls,
)

HARD = ("spec", "hard", "requests.cpu")


@pytest.mark.parametrize("home", ["billing", "search"])
def test_a_quota_that_refuses_is_that_of_the_namespace(home: str) -> None:
    runs = a_resource("CronJob", "settlement", "billing")
    refused = 'pods "settlement-x" is forbidden: exceeded quota: compute, requested: requests.cpu=2'
    ranking = ranked(
        a_change(a_resource("ResourceQuota", "compute", home), at=after(-12), path=HARD, old="20", new="10"),
        a_change(runs, at=after(-30), path=("spec", "concurrencyPolicy"), old="Forbid", new="Allow"),
        incident=an_incident(an_alert(after(30), name="Missing", namespace="billing", deployment="intake")),
        symptoms=[a_symptom(runs, "FailedCreate", at=after(-6), message=refused, count=9)],
        states=[a_workload(runs)],
    )
    assert first(ranking) == (("ResourceQuota", "compute") if home == "billing" else ("CronJob", "settlement"))


@pytest.mark.parametrize("field", ["concurrencyPolicy", "suspend", "schedule", "maxReplicas"])
def test_more_runs_at_a_time_ask_for_more(field: str) -> None:
    change = a_change(a_resource("CronJob", "settlement"), path=("spec", field))
    assert plausible(change, "FailedCreate", refused="ResourceQuota") == 1


def test_a_class_is_chosen_by_its_name_or_because_it_is_the_default() -> None:
    storage = a_resource("StorageClass", "gp3", None)
    default = ("metadata", "annotations", "storageclass.kubernetes.io/is-default-class")
    assert is_inert(a_change(storage, path=("metadata", "labels", "rev")))
    assert is_inert(a_change(storage, path=("metadata", "annotations", "owner")))
    assert not is_inert(a_change(storage, path=default))
    assert not is_inert(a_change(storage, path=("parameters", "type")))


def test_a_service_that_is_gone_fails_whoever_calls_it() -> None:
    gone = a_change(a_resource("Service", "suggest", "search"), at=after(-12), path=(), new=None, verb=Verb.DELETE)
    client = a_resource("Deployment", "query-api", "search")
    ranking = ranked(
        gone,
        incident=an_incident(an_alert(after(30), name="Slow", namespace="search", deployment="query-api")),
        symptoms=[a_symptom(client, "Unhealthy", at=after(-6), count=20)],
        states=[a_workload(client)],
    )
    assert first(ranking) == ("Service", "suggest")
    assert any("No workload stands behind Service suggest" in e.sentence for e in ranking.suspects[0].evidence)


@pytest.mark.parametrize(("about", "misses"), [("search", False), ("shop", True)])
def test_whoever_goes_with_their_namespace_misses_no_service_in_it(about: str, misses: bool) -> None:
    namespace, web = a_resource("Namespace", "search", None), a_resource("Deployment", "web", "search")
    gone = a_change(namespace, at=after(-12), path=(), new=None, verb=Verb.DELETE)
    ranking = ranked(
        gone,
        replace(a_change(web, at=after(-11), path=(), new=None, verb=Verb.DELETE), begun_by=gone.id),
        incident=an_incident(an_alert(after(30), name="Slow", namespace=about)),
        states=[
            a_workload(web),
            a_state(a_resource("Service", "web", "search"), {"spec": {"selector": {"app": "web"}}}),
        ],
    )
    [suspect] = [one for one in ranking.suspects if one.change.resource == namespace]
    assert ("empties" in {one.rule for one in suspect.evidence}) is misses


@pytest.mark.parametrize(("field", "blamed"), [("requests.cpu", True), ("requests.memory", False)])
def test_a_quota_refuses_by_what_it_was_changed_in(field: str, blamed: bool) -> None:
    refused = "exceeded quota: compute, requested: requests.cpu=2, used: requests.cpu=9, limited: requests.cpu=10"
    change = a_change(a_resource("ResourceQuota", "compute"), path=("spec", "hard", field), old="20", new="10")
    assert is_other_quota(change, refused) is not blamed
    assert not is_other_quota(change, "no room")


def test_labels_of_a_node_count_where_a_workload_chooses_by_them() -> None:
    node = a_resource("Node", "gpu-1", None)
    term: Json = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    placed = a_workload(
        a_resource("DaemonSet", "plugin"), nodeSelector={"accelerator": "l4"}, affinity={"nodeAffinity": required}
    )
    top = topology([placed])
    for key, counts in (("accelerator", True), ("zone", True), ("rack", False)):
        change = a_change(node, path=("metadata", "labels", key))
        assert top.ignores(change) is not counts
        assert not is_inert(change)
    assert is_inert(a_change(node, path=("metadata", "annotations", "node.alpha.kubernetes.io/ttl")))


def test_a_namespace_that_is_going_refuses_what_is_made_in_it() -> None:
    gone = a_change(a_resource("Namespace", "preview-44", None), at=after(-12), path=(), new=None, verb=Verb.DELETE)
    error = 'jobs "*" is forbidden: unable to create new content in namespace preview-# because it is being terminated'
    user = "system:serviceaccount:previews:preview-operator"
    refused = calls(user, "create", "jobs", rate=20, start=-10, code=403, error=error, namespace="preview-44")
    ranking = ranked(
        gone, incident=an_incident(an_alert(after(30), name="KubeAPIErrors")), load=[*background(), *refused]
    )
    assert first(ranking) == ("Namespace", "preview-44")


def test_many_that_were_just_made_and_complain_alike_have_one_cause() -> None:
    gone = a_change(a_resource("StorageClass", "scratch-ssd", None), at=after(-20), path=(), new=None, verb=Verb.DELETE)
    jobs = [a_resource("Job", f"import-{number}", "ml") for number in range(6)]
    made = [
        a_change(job, at=after(3 * number - 18), path=(), new={"spec": {}}, verb=Verb.CREATE)
        for number, job in enumerate(jobs)
    ]
    message = 'storageclass.storage.k8s.io "scratch-ssd" not found'
    ranking = ranked(
        gone,
        *made,
        incident=an_incident(an_alert(after(30), name="FeaturesStale", namespace="ml", deployment="features")),
        symptoms=[
            a_symptom(job, "ProvisioningFailed", at=after(3 * number - 17), message=message, count=3)
            for number, job in enumerate(jobs)
        ],
        states=[a_workload(job) for job in jobs],
    )
    assert first(ranking) == ("StorageClass", "scratch-ssd")
    assert ranking.suspects[0].probability > 0.5
