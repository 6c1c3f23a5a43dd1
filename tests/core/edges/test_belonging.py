"""Further ways from a custom resource, a policy, a job to who feels it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.asking import answered
from app.core.edges.indexing import topology
from app.core.edges.operators import SEVERAL
from app.core.edges.reach import Reach, reach
from app.core.edges.references import references
from app.core.edges.topology import Topology
from app.core.entities import NODES, Entity
from app.core.model import Change, FieldDiff, Json, Object, ObjectState, Resource, Verb
from tests.core.factories import NOON, a_change, a_resource, a_state, a_symptom, a_workload

KAFKA = Resource("lab", "kafka.strimzi.io", "Kafka", "kafka", "main")
TOPIC = Resource("lab", "kafka.strimzi.io", "KafkaTopic", "kafka", "scans")
CLIENT: Entity = ("calls", "radiology", "uploader")


def labelled(resource: Resource, **labels: str) -> ObjectState:
    named: Object = {"name": resource.name, "labels": {key.replace("__", "/"): value for key, value in labels.items()}}
    return a_state(resource, {"metadata": named, "spec": {}})


def client(**env: str) -> ObjectState:
    variables: Json = [{"name": name, "value": value} for name, value in env.items()]
    uploader = a_resource("Deployment", "uploader", "radiology")
    return a_workload(uploader, containers=[{"name": "a", "env": variables}])


def edit(resource: Resource) -> Change:
    return a_change(resource, path=("spec", "config", "x"), old=1, new=2)


def brokers() -> list[ObjectState]:
    return [
        a_workload(a_resource("StatefulSet", "main-kafka", "kafka"), labels={"app": "main"}),
        a_state(a_resource("Service", "main-kafka-bootstrap", "kafka"), {"spec": {"selector": {"app": "main"}}}),
    ]


@pytest.mark.parametrize(
    ("label", "value", "reached"),
    [
        ("strimzi.io__cluster", "main", True),
        ("strimzi.io__cluster", "other", False),
        ("strimzi.io__owner", "main", False),
        ("cnpg.io__cluster", "main", False),
    ],
)
def test_what_belongs_to_a_custom_resource_is_felt_by_who_calls_that(label: str, value: str, reached: bool) -> None:
    states = [
        *brokers(),
        labelled(KAFKA),
        labelled(TOPIC, **{label: value}),
        client(URL="main-kafka-bootstrap.kafka:9092"),
    ]
    assert (CLIENT in reach(edit(TOPIC), topology(states))) is reached


@pytest.mark.parametrize(("several", "reached"), [(1, True), (SEVERAL + 1, False)])
def test_who_is_told_the_name_of_a_topic_is_its_client(several: int, reached: bool) -> None:
    others = [
        a_workload(a_resource("Deployment", f"w{n}"), containers=[{"env": [{"name": "T", "value": TOPIC.name}]}])
        for n in range(1, several)
    ]
    top = topology([labelled(TOPIC), client(TOPIC=TOPIC.name), *others])
    assert (CLIENT in reach(edit(TOPIC), top)) is reached


@pytest.mark.parametrize(("pod", "reached"), [("main-kafka-0", True), ("mainland-0", False), ("other-kafka-0", False)])
def test_pods_that_an_operator_runs_by_itself_are_called_like_its_object(pod: str, reached: bool) -> None:
    of = Resource("lab", "core.strimzi.io", "StrimziPodSet", "kafka", pod.removesuffix("-0"))
    told = replace(a_symptom(a_resource("Pod", pod, "kafka"), "Error", at=NOON, message="full"), workload=of)
    states = [labelled(KAFKA), labelled(TOPIC, strimzi__io="x", strimzi_io="y", **{"strimzi.io__cluster": "main"})]
    found = reach(edit(TOPIC), topology(states, complaints=[told]))
    assert (("object", "StrimziPodSet", "kafka", of.name) in found) is reached


def test_a_node_belongs_to_what_it_was_made_by() -> None:
    node_class = Resource("lab", "karpenter.k8s.aws", "EC2NodeClass", None, "workers")
    node = a_resource("Node", "n1", None)
    pod = a_state(a_resource("Pod", "web-7d9c5f9db-2x8sq", "shop"), {"spec": {"nodeName": "n1"}})
    top = topology(
        [labelled(node_class), labelled(node, karpenter__x="y", **{"karpenter.k8s.aws__ec2nodeclass": "workers"}), pod]
    )
    found = reach(edit(node_class), top)
    assert found["node", "n1"] == 1
    assert found["workload", "shop", "web"] == 1


def test_a_custom_resource_uses_the_hosts_that_it_names() -> None:
    connector = Resource("lab", "kafka.strimzi.io", "KafkaConnector", "streams", "cdc")
    database = Resource("lab", "postgresql.cnpg.io", "Cluster", "energy", "contracts")
    states = [
        a_state(connector, {"spec": {"config": {"database.hostname": "contracts-rw.energy"}}}),
        labelled(database),
        a_workload(a_resource("StatefulSet", "contracts", "energy"), labels={"db": "contracts"}),
        a_state(a_resource("Service", "contracts-rw", "energy"), {"spec": {"selector": {"db": "contracts"}}}),
    ]
    found = reach(edit(connector), topology(states))
    assert ("burdens", "energy", "contracts") in found
    assert ("object", "Cluster", "energy", "contracts") in found


def test_a_reference_says_its_kind_by_its_name() -> None:
    spec: Json = {"rabbitmqClusterReference": {"name": "rabbit"}, "issuerRef": {"name": "ca"}}
    assert set(references({"spec": spec}, "mq")) == {("RabbitmqCluster", "mq", "rabbit"), ("", "mq", "ca")}


def hooked() -> Topology:
    hook: Json = {
        "name": "check.example",
        "clientConfig": {"service": {"namespace": "guard", "name": "guard"}},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}],
    }
    return topology(
        [
            a_workload(a_resource("Deployment", "guard", "guard"), serviceAccountName="guard"),
            a_state(a_resource("Service", "guard", "guard"), {"spec": {"selector": {"app": "guard"}}}),
            a_state(a_resource("MutatingWebhookConfiguration", "guard", None), {"webhooks": [hook]}),
            a_state(a_resource("NetworkPolicy", "closed", "guard"), {"spec": {"podSelector": {}}}),
            labelled(Resource("lab", "guard.example", "Guard", "guard", "rules")),
        ]
    )


@pytest.mark.parametrize(
    "changed",
    [a_resource("NetworkPolicy", "closed", "guard"), Resource("lab", "guard.example", "Guard", "guard", "rules")],
)
def test_what_a_webhook_is_asked_is_felt_through_what_closes_it_and_what_it_is_told(changed: Resource) -> None:
    top = hooked()
    asked: Reach = {}
    answered(("guard", "guard"), top, asked.__setitem__, 0)
    assert asked
    assert asked.keys() <= reach(edit(changed), top).keys()


def test_a_daemon_set_that_writes_into_etc_of_its_nodes_gives_them_their_runtime() -> None:
    setup = a_resource("DaemonSet", "setup", "infra")
    paths = {"/etc/containerd": True, "/etc": True, "/": True, "/etc/localtime": False, "/var/log": False}
    for path, sets_up in paths.items():
        volumes: Json = [{"name": "a", "hostPath": {"path": path}}]
        found = reach(edit(setup), topology([a_workload(setup, volumes=volumes)]))
        assert (("agent", "runtime") in found) is sets_up, path


@pytest.mark.parametrize(("kind", "leads"), [("KubeletConfiguration", True), ("KubeProxyConfiguration", False)])
def test_what_kubelets_go_by_is_the_nodes_however_it_comes_there(kind: str, leads: bool) -> None:
    config = a_resource("ConfigMap", "settings", "infra")
    state = a_state(config, {"data": {"kubelet": f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: {kind}\n"}})
    found = reach(edit(config), topology([state]))
    assert (NODES in found) is leads
    assert (("agent", "runtime") in found) is leads


def test_a_pool_of_addresses_is_the_network_plugins() -> None:
    pool = Resource("lab", "crd.projectcalico.org", "IPPool", None, "pods-v2")
    assert ("agent", "cni") in reach(edit(pool), topology([labelled(pool)]))
    assert ("agent", "cni") not in reach(edit(TOPIC), topology([labelled(TOPIC)]))


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_what_works_something_off_asks_as_much_as_it_can(kind: str) -> None:
    job = a_resource(kind, "vacuum", "kafka")
    pod: Object = {
        "metadata": {},
        "spec": {"containers": [{"env": [{"name": "URL", "value": "main-kafka-bootstrap:9092"}]}]},
    }
    template: Object = {"template": pod}
    spec: Object = template if kind == "Job" else {"jobTemplate": {"spec": template}}
    made = replace(a_change(job, verb=Verb.CREATE), diffs=(FieldDiff((), "add", None, {"spec": spec}),))
    states = [*brokers(), a_state(job, {"spec": spec}), client(URL="main-kafka-bootstrap.kafka:9092")]
    found = reach(made, topology(states))
    assert ("burdens", "kafka", "main-kafka") in found
    assert ("shares", "radiology", "uploader") in found


def test_a_node_that_goes_takes_the_webhooks_along_that_are_answered_there() -> None:
    node = a_resource("Node", "n1", None)
    top = hooked()
    top.by_node["n1"].add(("guard", "guard"))
    asked: Reach = {}
    answered(("guard", "guard"), top, asked.__setitem__, 0)
    gone = a_change(node, path=(), old={}, new=None, verb=Verb.DELETE)
    assert asked.keys() <= reach(gone, top).keys()
