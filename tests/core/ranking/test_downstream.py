"""What merely follows from something else that is complained of: whom a client calls, lost nodes, what these lack."""

from __future__ import annotations

from dataclasses import replace as replaced

import pytest
from msgspec.structs import replace

from app.core.counted import Calls
from app.core.edges.indexing import topology
from app.core.edges.served import FAILS
from app.core.edges.topology import Topology
from app.core.findings import Scope
from app.core.model import Object, ObjectState, Resource, Symptom
from app.core.objects.pod_states import EVICTED, PREEMPTED
from app.core.ranking.downstream import roots
from app.core.ranking.relevance import Near, weigh
from app.core.signals.calls import axis, loads
from app.core.signals.complaints import symptom_signals
from app.core.signals.errors import error_signals
from app.core.signals.signal import Signal, SignalKind
from tests.core.factories import a_resource, a_state, a_symptom, a_workload, after, calls

DNS = a_resource("Deployment", "coredns", "kube-system")
STORE = a_resource("Deployment", "ledger", "pay")
CLIENTS = [a_resource("Deployment", name, "web") for name in ("basket", "search", "letters")]
NODE = a_resource("Node", "worker-1", None)
NO_NAME = "Readiness probe failed: lookup ledger.pay: i/o timeout"
REFUSED = "Readiness probe failed: dial tcp ledger.pay:80: connection refused"


def on_node(workload: Resource, node: str = NODE.name) -> ObjectState:
    """A pod of a Deployment."""
    pod = a_resource("Pod", f"{workload.name}-6f7c9d4b8-x7k2p", workload.namespace)
    return a_state(pod, {"spec": {"nodeName": node}})


def company(*more: ObjectState) -> Topology:
    service: Object = {"spec": {"selector": {"app": "ledger"}}}
    calling = [
        a_workload(one, containers=[{"name": one.name, "env": [{"name": "STORE", "value": "http://ledger.pay"}]}])
        for one in CLIENTS
    ]
    states = [*calling, a_workload(STORE), a_workload(DNS), a_state(a_resource("Service", "ledger", "pay"), service)]
    return topology([*states, on_node(STORE), on_node(CLIENTS[0], "worker-2"), *more])


def behind(*symptoms: Symptom, top: Topology | None = None) -> dict[str, set[str]]:
    """What is behind each complaint: by its reason and who complains first."""
    signals = symptom_signals(symptoms, start=after(-300), end=after(60))
    told = [f"{one.facts['reason']} {next(iter(one.about))[-1]}" for one in signals]
    return {told[n]: {told[m] for m in found} for n, found in roots(signals, top or company())}


def all_clients(at: float, message: str) -> list[Symptom]:
    return [a_symptom(one, "Unhealthy", at=after(at), message=message) for one in CLIENTS]


def test_what_several_clients_suffer_from_is_of_what_they_all_call() -> None:
    store = a_symptom(STORE, "OOMKilled", at=after(-3), message="ledger ended with exit code 137")
    assert behind(store, *all_clients(0, REFUSED)) == {"Unhealthy basket": {"OOMKilled ledger"}}
    assert behind(a_symptom(CLIENTS[0], "OOMKilled", at=after(-3)), *all_clients(0, REFUSED)) == {}


@pytest.mark.parametrize(("group", "found"), [("postgresql.cnpg.io", True), ("", False)])
def test_what_an_operator_made_complains_for_its_clients(group: str, found: bool) -> None:
    cluster = Resource("lab", group, "Cluster", "pay", "ledger")
    told = replace(a_symptom(cluster, "NotReady", at=after(-3), message="no space left on device"), workload=None)
    top = company(a_state(cluster, {"spec": {}}))
    assert behind(told, *all_clients(0, "Readiness probe failed: statuscode: 500"), top=top) == (
        {"Unhealthy basket": {"NotReady ledger"}} if found else {}
    )


@pytest.mark.parametrize(("later", "found"), [(2, True), (20, False)])
def test_what_all_pods_rest_on_is_behind_who_gets_no_name(later: float, found: bool) -> None:
    served = a_symptom(DNS, "OOMKilled", at=after(later), message="coredns ended with exit code 137")
    assert behind(served, *all_clients(0, NO_NAME)) == ({"Unhealthy basket": {"OOMKilled coredns"}} if found else {})
    assert behind(served, *all_clients(0, "Readiness probe failed: statuscode: 500")) == {}


def test_what_all_pods_rest_on_is_behind_who_does_not_trust() -> None:
    identity = a_resource("Deployment", "linkerd-identity", "linkerd")
    untrusted = a_symptom(identity, "IssuerValidationFailed", at=after(2), message="x509: unknown authority")
    alone = a_symptom(CLIENTS[0], "Error", at=after(0), message="invalid peer certificate: UnknownIssuer")
    top = company(a_workload(identity))
    assert behind(untrusted, alone, top=top) == {"Error basket": {"IssuerValidationFailed linkerd-identity"}}


def test_an_autoscaler_that_cannot_measure_a_workload_is_not_behind_its_clients() -> None:
    scaler = a_resource("HorizontalPodAutoscaler", "ledger", "pay")
    unknown = a_symptom(scaler, "FailedGetResourceMetric", at=after(-3), message="no metrics known for pod")
    assert behind(unknown, *all_clients(0, REFUSED)) == {}


@pytest.mark.parametrize(
    ("client", "lost", "found"),
    [
        (STORE, -1, True),
        (CLIENTS[1], -1, True),
        (CLIENTS[1], 45, True),
        (CLIENTS[1], 70, False),
        (DNS, -1, False),
    ],
)
def test_who_ran_on_a_lost_node_or_calls_that_suffers_for_it(client: Resource, lost: float, found: bool) -> None:
    """The node is found to be lost later than it is felt."""
    node = a_symptom(NODE, "NodeNotReady", at=after(lost), message="Kubelet stopped posting node status.")
    told = behind(node, a_symptom(client, "Unhealthy", at=after(0), message=REFUSED))
    assert told == ({f"Unhealthy {client.name}": {"NodeNotReady worker-1"}} if found else {})


@pytest.mark.parametrize(("heard", "found"), [(-4, True), (30, True), (90, False)])
def test_a_node_is_lost_to_what_it_was_short_of_though_it_tells_that_later(heard: float, found: bool) -> None:
    lost = a_symptom(NODE, "NodeNotReady", at=after(0), message="Kubelet stopped posting node status.")
    short = a_symptom(NODE, "SystemOOM", at=after(heard), message="System OOM encountered, victim process: reindex")
    assert behind(lost, short) == ({"NodeNotReady worker-1": {"SystemOOM worker-1"}} if found else {})


def test_an_object_that_a_complaint_names_is_behind_it() -> None:
    repository = a_resource("HelmRepository", "charts", "web")
    unread = a_symptom(repository, "Failed", at=after(-20), message="cannot fetch the index")
    waits = a_symptom(CLIENTS[0], "Unready", at=after(0), message="HelmRepository charts is not ready")
    assert behind(unread, waits) == {"Unready basket": {"Failed charts"}}


def test_that_pods_are_taken_from_a_node_is_no_complaint_of_that_node() -> None:
    """The evictions of a drain are not behind what a workload complains of later."""
    pod = a_resource("Pod", "ledger-6f7c9d4b8-x7k2p", "pay")
    taken = replace(a_symptom(pod, EVICTED, at=after(-20), message="Eviction API: evicting"), workload=STORE)
    signals = symptom_signals(
        [taken, a_symptom(STORE, "Error", at=after(0), message="panic: nil map")], start=after(-300), end=after(60)
    )
    leaves = ("node", NODE.name), 0.5
    told = [
        replaced(one, about=dict([*one.about.items(), leaves])) if one.facts["reason"] == EVICTED else one
        for one in signals
    ]
    assert len(told) == 2
    assert list(roots(told, company())) == []


def test_who_is_not_let_in_suffers_from_who_answers_the_webhook() -> None:
    gate = a_resource("Deployment", "gate", "policy")
    hook: Object = {"name": "check.gate.example", "clientConfig": {"service": {"namespace": "policy", "name": "gate"}}}
    states = [
        a_workload(gate),
        *map(a_workload, CLIENTS),
        a_state(a_resource("Service", "gate", "policy"), {"spec": {"selector": {"app": "gate"}}}),
        a_state(a_resource("ValidatingWebhookConfiguration", "gate", None), {"webhooks": [hook]}),
    ]
    message = 'Internal error occurred: failed calling webhook "check.gate.example": connection refused'
    refused = [a_symptom(one, "FailedCreate", at=after(0), message=message) for one in CLIENTS]
    crash = a_symptom(gate, "OOMKilled", at=after(-3), message="gate ended with exit code 137")
    assert behind(crash, *refused, top=topology(states)) == {"FailedCreate basket": {"OOMKilled gate"}}
    taken = replace(a_symptom(gate, PREEMPTED, at=after(-3), message="preempting"), workload=gate)
    assert behind(taken, *refused, top=topology(states)) == {"FailedCreate basket": {f"{PREEMPTED} gate"}}
    other = replace(crash, resource=STORE, workload=STORE)
    assert behind(other, *refused, top=topology(states)) == {}
    own = a_symptom(gate, "FailedCreate", at=after(1), message=message)
    assert behind(taken, *refused, own, top=topology(states)) == {"FailedCreate basket": {f"{PREEMPTED} gate"}}


def test_so_do_calls_that_fail_there() -> None:
    gate = a_resource("Deployment", "gate", "policy")
    hook: Object = {"name": "check.gate.example", "clientConfig": {"service": {"namespace": "policy", "name": "gate"}}}
    top = topology(
        [
            a_workload(gate),
            a_state(a_resource("Service", "gate", "policy"), {"spec": {"selector": {"app": "gate"}}}),
            a_state(a_resource("ValidatingWebhookConfiguration", "gate", None), {"webhooks": [hook]}),
        ]
    )
    message = 'Internal error occurred: failed calling webhook "check.gate.example": connection refused'
    crash = a_symptom(gate, "OOMKilled", at=after(-3), message="gate ended with exit code 137")
    own = a_symptom(gate, "FailedCreate", at=after(1), message=message)
    told = symptom_signals([crash, own], start=after(-300), end=after(60))
    failing = Signal(SignalKind.ERROR, after(0), after(5), 0.9, {}, "500 on CREATE pods", text=message)
    counted = Signal(SignalKind.METRIC, after(0), after(5), 0.9, {}, "refused", facts={"name": "check.gate.example"})
    other = Signal(SignalKind.ERROR, after(0), after(5), 0.9, {}, "500 on CREATE pods", text="etcdserver: timeout")
    found = dict(roots([*told, failing, counted, other], top))
    crashed = next(n for n, one in enumerate(told) if one.facts["reason"] == "OOMKilled")
    assert {n: found.get(n) for n in (2, 3, 4)} == {2: [crashed], 3: [crashed], 4: None}


@pytest.mark.parametrize(("reason", "found"), [("FailedCreate", True), ("FailedScheduling", True), ("BackOff", False)])
def test_who_fails_its_clients_for_its_pods_are_kept_out_suffers_from_that(reason: str, found: bool) -> None:
    store = ("workload", "pay", "ledger")
    fails = Signal(SignalKind.SYMPTOM, after(0), after(2), 0.9, {store: 1.0}, "503", facts={"reason": FAILS})
    (kept_out,) = symptom_signals(
        [a_symptom(STORE, reason, at=after(1), message="failed quota", count=9)], start=after(-300), end=after(60)
    )
    assert dict(roots([fails, kept_out], company())).get(0) == ([1] if found else None)


@pytest.mark.parametrize(("later", "found"), [(2, True), (20, False)])
def test_who_fails_its_clients_without_a_word_may_get_no_names(later: float, found: bool) -> None:
    basket = ("workload", "web", "basket")
    fails = Signal(SignalKind.SYMPTOM, after(0), after(2), 0.9, {basket: 1.0}, "503", facts={"reason": FAILS})
    names = a_symptom(DNS, "Unhealthy", at=after(later), message="probe failed", count=9)
    (unwell,) = symptom_signals([names], start=after(-300), end=after(60))
    assert dict(roots([fails, unwell], company())) == ({0: [1]} if found else {})


@pytest.mark.parametrize(
    ("resource", "namespace", "names", "found"),
    [
        ("deployments/scale", "pay", ("ledger",), True),
        ("deployments/scale", "pay", ("ledger", "tariffs", "cards", "limits", "quotes", "rates"), True),
        ("deployments/scale", "pay", ("tariffs",), False),
        ("deployments/scale", "web", ("ledger",), False),
        ("deployments", "pay", ("ledger",), False),
    ],
)
def test_who_fails_its_clients_for_it_could_not_be_scaled_suffers_from_that(
    resource: str, namespace: str, names: tuple[str, ...], *, found: bool
) -> None:
    counts = [
        one
        for name in names
        for one in calls(
            "system:serviceaccount:ops:scaler", "get", resource, rate=0.2, start=-20, code=403, group="apps",
            namespace=namespace, error=f'deployments.apps "{name}" is forbidden: cannot get resource "{resource}"',
        )
    ]  # fmt: skip
    together = Calls.of([*calls("ci", "list", "pods", rate=1), *counts])
    slots = axis(together, until=after(60).timestamp())
    assert slots is not None
    (refused,) = error_signals(together, slots, loads(together, slots))
    store = ("workload", "pay", "ledger")
    fails = Signal(SignalKind.SYMPTOM, after(0), after(2), 0.9, {store: 1.0}, "503", facts={"reason": FAILS})
    assert dict(roots([fails, refused], company())) == ({0: [1]} if found else {})


def test_what_is_handed_on_is_handed_to_what_follows_from_nothing() -> None:
    """A page fails as its app does, and both as no name is found: the app has not more to do with it for the page."""
    page, app, names = (
        Signal(SignalKind.SYMPTOM, after(at), after(at + 2), strength, {("workload", *home): 1.0}, "", facts=facts)
        for at, strength, home, facts in (
            (2, 0.9, ("web", "basket"), {"reason": FAILS}),
            (1, 0.9, ("pay", "ledger"), {"reason": FAILS}),
            (0, 0.6, ("kube-system", "coredns"), {"reason": "Unhealthy"}),
        )
    )
    near = Near(upstream={}, words=frozenset(), newborn={}, said="", at=after(0))
    scope = Scope(workloads=("web/basket", "pay/ledger"))
    weighed = [weight for _, weight in weigh([page, app, names], scope, near=near, top=company())]
    assert weighed[2] > 2 * max(weighed[:2])


@pytest.mark.parametrize(
    ("name", "message", "found"),
    [
        ("cluster-autoscaler", "0/6 nodes are available: 6 Insufficient cpu.", True),
        ("cluster-autoscaler", "0/6 nodes are available: 6 node(s) had untolerated taint {gpu: true}.", False),
        ("ledger", "0/6 nodes are available: 6 Insufficient cpu.", False),
    ],
)
def test_what_makes_nodes_is_behind_who_finds_no_room(name: str, message: str, found: bool) -> None:
    maker = a_resource("Deployment", name, "kube-system")
    top = company(a_workload(maker))
    crash = a_symptom(maker, "CrashLoopBackOff", at=after(-20))
    waits = a_symptom(CLIENTS[0], "FailedScheduling", at=after(0), message=message)
    assert behind(crash, waits, top=top) == ({"FailedScheduling basket": {f"CrashLoopBackOff {name}"}} if found else {})
