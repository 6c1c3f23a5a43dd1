"""Who is meant, by a mark: the class of volumes that name none, callers of a label, a certificate by its last day."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods, stuck
from tests.lab.api import Json, now
from tests.lab.apps import App
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.nodes import provide, stateful
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import unreachable
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

# -- the default class

DEFAULT = "storageclass.kubernetes.io/is-default-class"
ELSEWHERE = (
    ("gp3", "ebs.csi.aws.com", {"type": "gp3"}),
    ("premium-rwo", "pd.csi.storage.gke.io", {"type": "pd-ssd"}),
    ("longhorn", "driver.longhorn.io", {"numberOfReplicas": "3"}),
    ("ceph-block", "rook-ceph.rbd.csi.ceph.com", {"clusterID": "rook-ceph", "pool": "replicapool"}),
)
"""Classes as they are in other clusters of the company, and whose provisioner this one has not."""


def _marked(is_default: bool) -> Json:
    return {"metadata": {"annotations": {DEFAULT: str(is_default).lower()}}}


@family(
    "The default class of volumes is changed to the one that other clusters of the company have. Nobody provisions it"
    " here. Volumes that are there go on; the next claim that names no class waits, and its pod with it.",
    joined=91,
)
async def default_of_elsewhere(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read waiting for a volume to be created by the external provisioner for an afternoon."""
    namespace, name, fresh, front = lab.rng.choice(
        (
            ("search", "vectors", "facet-index", "facet-page"),
            ("shop", "event-log", "review-store", "review-page"),
            ("media", "frames", "thumb-store", "thumb-page"),
            ("payments", "journal", "receipt-store", "receipt-page"),
        )
    )
    by, is_grown, is_there = lab.rng.choice((*TEAMS, "flux")), lab.rng.random() < 0.5, lab.rng.random() < 0.5
    called, provisioner, parameters = lab.rng.choice(ELSEWHERE)
    binding = lab.rng.choice(("Immediate", "WaitForFirstConsumer"))
    made = {"provisioner": provisioner, "parameters": parameters, "volumeBindingMode": binding}
    rules = (("", "persistentvolumeclaims,persistentvolumes", "*"), ("storage.k8s.io", "*", "get,list,watch"))
    await lab.controller("kube-system", "csi-provisioner", every(1, provide), *rules, replicas=1, tag="v5.3.0")
    meta = {"name": "standard", "annotations": {DEFAULT: "true"}}
    await lab.apply({"kind": "StorageClass", "metadata": meta, "provisioner": "disk.csi.example"})
    if is_there:
        await lab.apply({"kind": "StorageClass", "metadata": {"name": called}, **made})
    await stateful(lab, namespace, name)
    await rolled(lab, namespace, name, "1.0.0")
    await set_before(lab, namespace, front, name)

    def waits() -> bool:
        there = (*pods(lab.world, namespace, name), *pods(lab.world, namespace, fresh))
        return any(not one["spec"].get("nodeName") for one in there if "deletionTimestamp" not in one["metadata"])

    def is_unbound() -> bool:
        claims = (one for (where, _), one in lab.world["PersistentVolumeClaim"].items() if where == namespace)
        return any(one["status"].get("phase") == "Pending" for one in claims)

    summary = f"a pod of {namespace} has had no node for a while"
    lab.alert("KubePodNotReady", waits, summary, 8, namespace=namespace)
    summary = f"a claim of {namespace} has had no volume for a while"
    lab.alert("KubePersistentVolumeClaimPending", is_unbound, summary, 12, namespace=namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(4, 10))
        if is_grown:
            await lab.edit(
                lab.rng.choice(("carol", "argocd")), "StatefulSet", namespace, name, {"spec": {"replicas": 3}}
            )
            return
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
        meta = {"namespace": namespace, "name": f"{fresh}-data"}
        await lab.apply({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim}, "ci")
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": meta["name"]}}]
        image = f"registry.corp.example/{namespace}/{fresh}:0.1.0"
        manifest = objects.deployment(namespace, fresh, image, replicas=1)
        manifest["spec"]["template"]["spec"]["volumes"] = volumes
        await lab.apply(manifest, "ci")

    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, front, {"data": {"PAGE_SIZE": "30"}})
    await lab.pause(lab.rng.uniform(4, 9))
    if is_there:
        await lab.culprit(by, "update", "StorageClass", "", called, _marked(True))
    else:
        meta = {"name": called, "annotations": {DEFAULT: "true"}}
        body = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, **made}
        await lab.culprit(by, "create", "StorageClass", "", called, body)
    await lab.culprit(by, "update", "StorageClass", "", "standard", _marked(False))
    lab.start(afterwards())


# -- callers of a label


@family(
    "Labels are renamed, and a NetworkPolicy lets in by the new one from now on. The callers of the same team have it"
    " since their last release; those of another team still have the old one, and are kept out.",
    joined=91,
)
async def callers_of_the_old_label(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose calls timed out from one minute to the next, and who had released nothing."""
    namespace, name, near, home, caller, front = lab.rng.choice(
        (
            ("payments", "tax-rates", "tax-desk", "shop", "basket-totals", "basket-page"),
            ("shop", "stock-api", "stock-desk", "search", "availability", "results-page"),
            ("media", "asset-api", "asset-desk", "shop", "product-images", "gallery-page"),
            ("search", "terms-api", "terms-desk", "media", "title-search", "titles-page"),
        )
    )
    old, new = lab.rng.choice(
        (
            ({"role": "frontend"}, {"app.kubernetes.io/component": "frontend"}),
            ({"access": name}, {f"access.corp.example/{name}": "allowed"}),
            ({"tier": "web"}, {"corp.example/tier": "web"}),
        )
    )
    by, minor, is_strict = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    share = lab.rng.uniform(0.3, 0.9)
    policy = f"{name}-callers"

    def lets_in(labels: Json) -> Json:
        peer = {"namespaceSelector": {}, "podSelector": {"matchLabels": labels}}
        ingress = [{"from": [peer], "ports": [{"port": 8080}]}]
        chosen = {"matchLabels": {"app.kubernetes.io/name": name}}
        return {"spec": {"podSelector": chosen, "policyTypes": ["Ingress"], "ingress": ingress}}

    def is_out() -> bool:
        there = pods(lab.world, home, caller)
        return any(unreachable(lab.world, one, namespace, name) for one in there)

    kept_out = Lately(lab, is_out)
    await lab.app(namespace, name, like=App("", asked=lambda: 30.0), replicas=3, tag=f"5.{minor}.2")
    await rolled(lab, namespace, name, f"5.{minor}.2")
    await lab.apply({"kind": "NetworkPolicy", "metadata": {"namespace": namespace, "name": policy}, **lets_in(old)})
    upstreams = ((namespace, name),)
    for where, who, labels in ((namespace, near, {**old, **new}), (home, caller, old)):
        await lab.apply(objects.config_map(where, who, LOG_LEVEL="info", RETRIES="1"))
        like, env = App("", upstreams=upstreams), list[Json]()
        if who == caller and not is_strict:
            fails = lambda _: share if kept_out() else 0.0  # noqa: E731
            like = App("", asked=lambda: 18.0, failing=fails, fails_with=lambda _: "504")
            env = [{"name": f"{name.upper().replace('-', '_')}_URL", "value": f"http://{name}.{namespace}.svc"}]
        lab.apps[f"registry.corp.example/{where}/{who}"] = like
        like.image = f"registry.corp.example/{where}/{who}"
        made = objects.deployment(where, who, f"{like.image}:1.9.0", replicas=2, config=who, env=env)
        made["spec"]["template"]["metadata"]["labels"] = {"app.kubernetes.io/name": who, **labels}
        await lab.apply(made)
        await lab.apply(objects.service(where, who))
        await rolled(lab, where, who, "1.9.0")
    await set_before(lab, home, front, caller)
    lab.alert_lacking(home, caller, seconds=8)
    for one in (caller, front):
        lab.alert_errors(home, one)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", home, caller, {"data": {"RETRIES": "2"}})

    yield
    await change_page(lab, home, front)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, near, "1.9.1")
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.culprit(by, "update", "NetworkPolicy", namespace, policy, lets_in(new))
    lab.start(afterwards())


# -- a certificate's last day

GOOD_SECONDS = 90.0
"""For how long a webhook's certificate is good once all is set up; its chart made it a year ago."""


@family(
    "No culprit. A webhook is asked for each new pod of some namespaces, and the certificate that its chart made a year"
    " ago is over. The API server trusts it no more: what runs goes on, and no pod is made in their place or beside.",
    culprit=False,
    joined=91,
)
async def made_a_year_ago(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods were evicted in the night, and did not come back."""
    server, minor = lab.rng.choice(("vault-agent-injector", "pod-defaults", "policy-server")), lab.rng.randrange(2, 30)
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "size-guide", "guide-page", "guide-feed"),
            ("payments", "limits", "limits-page", "limits-audit"),
            ("media", "chapters", "chapter-page", "chapter-feed"),
            ("search", "spellings", "spelling-page", "spelling-sync"),
        )
    )
    occasion, label = lab.rng.randrange(3), f"{server}.corp.example/pods"

    async def review(request: Json) -> str | list[Json] | None:
        """It leaves each as it is, but for a note."""
        note = {"op": "add", "path": "/metadata/annotations", "value": {f"{server}.corp.example/seen": "true"}}
        return None if "annotations" in request["object"]["metadata"] else [note]

    await lab.app("platform", server, like=App("", serves=False), replicas=2, tag="1.7.0")
    await rolled(lab, "platform", server, "1.7.0")
    await lab.app(namespace, name, like=App("", asked=lambda: 20.0), replicas=4, tag=f"3.{minor}.0")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="2.0.3", config=other)
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await rolled(lab, namespace, other, "2.0.3")
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and not stuck(lab.world, namespace, front))
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {label: "enabled"}}})
    webhook = Webhook(review, seconds=GOOD_SECONDS, service=("platform", server))
    over = now().timestamp() + GOOD_SECONDS
    await webhook.start()
    lab.servers.append(webhook)
    await lab.apply({**configuration(server, webhook, only=label), "kind": "MutatingWebhookConfiguration"})

    async def afterwards() -> None:
        await lab.pause(max(0.0, over - now().timestamp()) + lab.rng.uniform(3, 9))
        if occasion == 0:
            await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"3.{minor}.1")
        elif occasion == 1:
            await lab.edit("carol", "Deployment", namespace, name, {"spec": {"replicas": 6}})
        else:
            env: list[Json] = [{"name": "GOMEMLIMIT", "value": "200MiB"}]
            await lab.roll("flux", namespace, name, f"3.{minor}.0", env=env)

    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, front, {"data": {"PAGE_SIZE": "60"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice(("flux", *TEAMS)), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    lab.start(afterwards())
