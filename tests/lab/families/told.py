"""What was told of names, limits and addresses: whom a name leads to, a processor's time, ranges and balancers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, path
from tests.lab.apps import App, Process
from tests.lab.families.upgrades import CALLERS
from tests.lab.lab import NODES, Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import both, every, getting
from tests.lab.scenario import family


@family(
    "A team brings a new app whose Service and namespace together read like the name of a partner outside: the"
    " cluster's own names are looked for first, so another app's calls to the partner end at the Service.",
    joined=10,
)
async def name_collision(lab: Lab) -> AsyncIterator[None]:
    """As in "101 Ways to Break and Recover Kubernetes Cluster" (Oath, KubeCon Europe 2018)."""
    namespace, name, new = lab.rng.choice(
        (
            ("payments", "giftcards", ("shop", "vouchers")),
            ("search", "importer", ("shop", "feeds")),
            ("shop", "product-pages", ("media", "images")),
        )
    )
    host = f"{new[1]}.{new[0]}"
    await lab.app(namespace, name, like=App("", abroad=(host,)), replicas=3)
    lab.alert_lacking(namespace, name)
    yield
    by = lab.rng.choice(("ci", "argocd", "carol"))
    # as Helm does: Services before Deployments
    await lab.culprit(by, "create", "Service", *new, objects.service(*new))
    image = f"registry.corp.example/{new[0]}/{new[1]}"
    lab.apps[image] = App(image)
    await lab.apply(objects.deployment(*new, f"{image}:0.1.0"), by)


@family(
    "An app gets a limit on its processor's time, as all are to have one, that is more than it uses on average and less"
    " than in a burst: it stands still for seconds, answers no probe, and is killed now and then.",
    joined=10,
)
async def cpu_limit(lab: Lab) -> AsyncIterator[None]:
    """As in "CPU limits and aggressive throttling in Kubernetes" (Omio, 2020)."""
    namespace, name = lab.rng.choice((("search", "routes"), ("shop", "fares"), ("payments", "exchange-rates")))
    alive: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 1}
    await lab.app(namespace, name, like=App("", burst_m=1500), replicas=4, liveness=alive)
    holds = lambda: restarts(lab.world, namespace, name) >= 3  # noqa: E731
    lab.alert("KubePodRestarting", holds, f"pods of {name} restart", 3, namespace=namespace, deployment=name)
    yield
    limit = lab.rng.choice(("200m", "250m", "400m"))
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": limit, "memory": "256Mi"}}
    by = lab.rng.choice(("alice", "argocd", "flux"))
    await lab.roll(by, namespace, name, "1.0.0", culprit=True, resources=resources)


@family(
    "The cluster's installer is run once more, to mend something else, with the values of a cluster that is to come:"
    " pods that are made from then on get addresses of another range, for which no node has a route.",
    joined=10,
)
async def pod_range(lab: Lab) -> AsyncIterator[None]:
    """As in "Outages? Downtime?" (SourceClear at Veracode, 2018)."""
    namespace, name, caller = lab.rng.choice(
        (("shop", "stock", "offers"), ("search", "synonyms", "suggest"), ("media", "licences", "player"))
    )

    async def hold(process: Process) -> None:
        """Each agent for its own node."""
        node = process.see().pod["spec"]["nodeName"]
        lab.outside.pools[node] = ".".join(process.config["POD_CIDR"].split(".")[:2])

    config = objects.config_map("kube-system", "network-config", POD_CIDR="10.244.0.0/16", MTU="8951")
    await lab.apply(config)
    program = both(every(1, hold), every(5, getting(f"{path('Node')}?limit=10")))
    await lab.controller(
        "kube-system", "network-node", program, ("", "nodes", "list"), kind="DaemonSet", config="network-config"
    )
    await lab.app(namespace, name)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=4)
    lab.alert_lacking(namespace, caller)
    yield
    body = {"data": {"POD_CIDR": lab.rng.choice(("10.233.64.0/18", "10.128.0.0/16", "10.60.0.0/16"))}}
    by = lab.rng.choice(("alice", "bob"))
    await lab.culprit(by, "update", "ConfigMap", "kube-system", "network-config", body)
    await lab.pause(lab.rng.uniform(6, 11))
    await lab.roll("argocd", namespace, name, "1.0.1")


@family(
    "The cloud gives the load balancer of the API server other addresses, and the name by which kubelets know it has"
    " the old ones written down: one after another their connections end, and nearly all nodes are called lost.",
    culprit=False,
    joined=10,
)
async def api_address(lab: Lab) -> AsyncIterator[None]:
    """As in "SaleMove US System Issue" (SaleMove, 2017)."""

    def lost() -> bool:
        return sum(not is_ready(node) for node in lab.world["Node"].values()) > len(NODES) / 2

    lab.alert("KubeNodesNotReady", lost, "most nodes have been unready for a while", 4)
    for place in CALLERS:
        lab.reserve(*place)
        lab.alert_lacking(*place)
    yield
    nodes = lab.rng.sample(NODES, len(NODES) - lab.rng.choice((0, 1)))
    for node in nodes:  # an address is taken away once most connections to it have ended
        lab.outside.silent_nodes.add(node)
        await lab.pause(lab.rng.uniform(0, 0.8))
