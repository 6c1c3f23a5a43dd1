"""Without an audit log: rights say whose calls a metric may count, and field managers who wrote."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.findings import WriteFight
from app.core.model import NOBODY, Actor, ActorSource, Change, Json, MetricSeries, ObjectState, Resource, Verb
from app.core.ranking.candidates import candidates
from app.core.ranking.case import Case, Facts
from app.core.ranking.managers import with_accounts
from app.core.ranking.permitted import may_watch, rights, with_callers
from app.core.ranking.priors import by_itself
from app.core.ranking.suspects import Gathered, rank
from app.core.signals.fight_signals import fight_signal
from app.core.signals.signal import Signal
from tests.core.company import noise
from tests.core.factories import NOON, a_change, a_resource, a_state, a_workload, after, an_alert, an_incident

GROUP = "trust.example"
USER = "system:serviceaccount:{0}:{0}"


def may(name: str, group: str, resource: str, *verbs: str, namespace: str | None = None) -> list[ObjectState]:
    """A program that runs in a namespace of its name, and what it may do everywhere or in one namespace."""
    kind = "Role" if namespace else "ClusterRole"
    rules: Json = [{"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}]
    subjects: Json = [{"kind": "ServiceAccount", "namespace": name, "name": name}]
    return [
        a_workload(a_resource("Deployment", name, name), serviceAccountName=name),
        a_state(a_resource(kind, name, namespace), {"rules": rules}),
        a_state(
            a_resource(f"{kind}Binding", name, namespace),
            {"roleRef": {"kind": kind, "name": name}, "subjects": subjects},
        ),
    ]


def test_rights_are_those_of_all_roles_of_an_account_that_something_runs_as() -> None:
    states = [
        *may("inventory", "apps", "deployments", "list"),
        *may("inventory", "", "pods", "get", namespace="shop"),
        *may("inventory", "", "secrets", "get", namespace="media")[1:2],  # a role that nobody has
        *may("retired", "", "pods", "list")[1:],  # nothing runs as it
    ]
    found = rights(topology(states))
    assert found == {USER.format("inventory"): {("apps", "deployments", "list"), ("", "pods", "get")}}


def test_who_may_watch_a_custom_resource_by_name_acts_on_it() -> None:
    states = [
        *may("trust-manager", GROUP, "*", "*"),
        *may("poller", GROUP, "bundles", "list"),
        *may("writer", GROUP, "bundles", "patch"),
        *may("gitops", "*", "*", "*"),
        a_state(Resource("lab", GROUP, "Bundle", None, "ca"), {"spec": {}}),
    ]
    top = topology(states)
    assert may_watch(rights(top), top) == {(GROUP, "bundles"): {USER.format("poller"), USER.format("trust-manager")}}


def listed(rate: float) -> MetricSeries:
    """LISTs of Deployments, which rise 15 seconds before noon."""
    times = tuple(after(second).timestamp() for second in range(-120, 61, 5))
    values, total = [], 0.0
    for time in times:
        total += 5 * (rate if time >= after(-15).timestamp() else 1)
        values.append(total)
    labels = {"group": "apps", "resource": "deployments", "verb": "LIST", "code": "200", "instance": "a:6443"}
    return MetricSeries("apiserver_request_total", tuple(sorted(labels.items())), "counter", times, tuple(values))


def fought_over(*writers: str) -> Signal:
    """A write fight over a ConfigMap that everybody's settings are in."""
    resource = a_resource("ConfigMap", "settings", "shop")
    return fight_signal(WriteFight("", "ConfigMap", "data.hosts", (resource,), writers, 40, NOON, after(10), 4.0), ())


def test_whoever_may_write_it_may_be_the_unknown_writer_of_a_fight() -> None:
    states = [
        *may("labeller", "", "configmaps", "patch"),
        *may("keeper", "", "configmaps", "update"),
        *may("reader", "", "configmaps", "get"),
        *may("other", "", "secrets", "patch"),
    ]
    top = topology(states)
    able, keeper = rights(top), USER.format("keeper")

    def blamed(*writers: str) -> Signal:
        return with_callers([fought_over(*writers)], able, top)[0]

    one = blamed(keeper, "")
    assert one.facts["able"] == "1"  # the other that may is the known one
    assert 0.5 < one.about["workload", "labeller", "labeller"] < 1.0
    assert one.about["workload", "keeper", "keeper"] == 0.9
    assert not {("workload", name, name) for name in ("reader", "other")} & set(one.about)
    assert "able" not in blamed(keeper, USER.format("labeller")).facts


def test_who_may_write_a_status_need_not_be_let_write_the_rest() -> None:
    top = topology([*may("operator", "", "configmaps/status", "patch"), *may("labeller", "", "configmaps", "patch")])
    fight = WriteFight(
        "", "ConfigMap", "status.at", (a_resource("ConfigMap", "settings", "shop"),), ("",), 40, NOON, after(10), 4.0
    )
    [told] = with_callers([fight_signal(fight, ())], rights(top), top)
    assert ("workload", "operator", "operator") in told.about
    assert ("workload", "labeller", "labeller") not in told.about


def configured(name: str, at: float) -> Change:
    return a_change(a_resource("ConfigMap", name, name), at=after(at), path=("data", "interval"), old="4", new="0.1")


@pytest.mark.parametrize("resource", ["deployments", "services"])
def test_of_two_programs_the_one_that_may_make_the_calls_is_blamed(resource: str) -> None:
    reads: Json = {"name": "c", "envFrom": [{"configMapRef": {"name": "inventory"}}]}
    program = a_workload(
        a_resource("Deployment", "inventory", "inventory"), serviceAccountName="inventory", containers=[reads]
    )
    states = [program, *may("inventory", "apps", resource, "list")[1:]]
    states += [state for name in ("reporter", "mailer", "billing") for state in may(name, "", "configmaps", "get")]
    allowed = a_change(a_resource("ServiceAccount", "inventory", "inventory"), at=after(-50), verb=Verb.CREATE)
    ranking = rank(
        Gathered(
            incident=an_incident(an_alert(after(20), name="KubeAPIRequestRateHigh", job="apiserver")),
            start=after(-120),
            now=after(60),
            changes=(*noise(), allowed, configured("inventory", -22), configured("reporter", -18)),
            series=(listed(40),),
            states=tuple(states),
        )
    )
    places = {(one.change.resource.kind, one.change.resource.name): one for one in ranking.suspects}
    told = {evidence.rule: evidence for evidence in places["ConfigMap", "inventory"].evidence}
    blamed = places["ConfigMap", "inventory"]
    assert blamed.rank == 1 and blamed.probability > 0.3 if resource == "deployments" else blamed.probability < 0.1
    assert ("metrics" in told) is (resource == "deployments")
    if resource == "deployments":
        assert told["metrics"].sentence.startswith("inventory may make these calls, as no other program may: requests ")
        account = {evidence.rule: evidence.weight for evidence in places["ServiceAccount", "inventory"].evidence}
        assert account.get("metrics", 0.0) < told["metrics"].weight / 2  # it calls nobody by itself


MANAGER = Actor("trust-manager", ActorSource.MANAGED_FIELDS)


@pytest.mark.parametrize(
    ("actor", "namespaces", "account"),
    [
        (MANAGER, ["trust-manager"], USER.format("trust-manager")),
        (MANAGER, ["trust-manager", "staging"], "trust-manager"),  # which of two is not known
        (Actor("kubectl", ActorSource.MANAGED_FIELDS), ["trust-manager"], "kubectl"),
        (Actor("trust-manager", ActorSource.AUDIT), ["trust-manager"], "trust-manager"),  # a user of that name
    ],
)
def test_a_field_manager_is_the_one_program_of_its_name(actor: Actor, namespaces: list[str], account: str) -> None:
    homes = [
        a_workload(a_resource("Deployment", "trust-manager", space), serviceAccountName="trust-manager")
        for space in namespaces
    ]
    change = a_change(at=NOON, actor=actor)
    (known,) = with_accounts([change], topology(homes))
    assert known == replace(change, actor=replace(actor, name=account))


def test_a_node_goes_by_the_one_program_whose_rights_name_that() -> None:
    gone = replace(a_change(a_resource("Node", "n1", None), at=after(0)), verb=Verb.DELETE, actor=NOBODY)
    manager, other = may("manager", "", "nodes", "delete"), may("other", "", "nodes", "*")
    everything, reader = may("argocd", "*", "*", "*"), may("reader", "", "nodes", "get")
    (by,) = with_accounts([gone], topology([*manager, *everything, *reader]))
    assert by.actor.name == "system:serviceaccount:manager:manager"
    assert with_accounts([gone], topology([*manager, *other])) == [gone]
    role: Json = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}]
    subjects: Json = [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "cluster-autoscaler"}]
    autoscaler = [
        a_workload(
            a_resource("Deployment", "cluster-autoscaler", "kube-system"), serviceAccountName="cluster-autoscaler"
        ),
        a_state(a_resource("ClusterRole", "ca", None), {"rules": role}),
        a_state(
            a_resource("ClusterRoleBinding", "ca", None),
            {"roleRef": {"kind": "ClusterRole", "name": "ca"}, "subjects": subjects},
        ),
    ]
    (by,) = with_accounts([gone], topology(autoscaler))
    assert by.actor.name == "system:serviceaccount:kube-system:cluster-autoscaler"
    known = replace(gone, actor=Actor("alice", ActorSource.AUDIT))
    assert with_accounts([known], topology(manager)) == [known]


@pytest.mark.parametrize(("manager", "is_itself"), [("trust-manager", True), ("kubectl", False)])
def test_a_program_acts_by_itself_under_the_name_of_a_field_manager_too(manager: str, is_itself: bool) -> None:
    states = may("trust-manager", GROUP, "*", "*")
    made = a_change(Resource("lab", GROUP, "Bundle", None, "ca"), actor=Actor(manager, ActorSource.MANAGED_FIELDS))
    (candidate,) = candidates([made], [], [], topology=topology(states), until=after(10))
    assert (by_itself(cast("Case", None), Facts(candidate, (), 0)) is not None) is is_itself


def test_a_field_that_nobody_is_known_to_have_taken_away_went_by_the_one_program_that_may_write_it() -> None:
    bundle = Resource("lab", GROUP, "Bundle", None, "ca")
    taken = replace(a_change(bundle, path=("spec", "size"), old=3, new=None), actor=NOBODY)
    writer, other = may("trust-manager", GROUP, "bundles", "update"), may("other", GROUP, "*", "patch")
    everything, reader = may("argocd", "*", "*", "*"), may("reader", GROUP, "bundles", "get")
    states = [*writer, *everything, *reader]
    (by,) = with_accounts([taken], topology(states))
    assert by.actor.name == USER.format("trust-manager")
    assert with_accounts([taken], topology([*states, *may("second", GROUP, "bundles", "patch")])) == [taken]
    assert with_accounts([taken], topology(other)) == [taken], "it may write anything of the group"
    for left in (replace(taken, verb=Verb.DELETE), replace(taken, resource=a_resource("ConfigMap", "ca"))):
        assert with_accounts([left], topology(states)) == [left]
