"""What is made stricter or tidied for all at once: folders, limits, proxies; and a resolver that nobody here keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tests.lab import objects
from tests.lab.apps import App, Container, millicores
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

TRACKED = "argocd.argoproj.io/tracking-id"


@family(
    "A repository's folders are put in a new order, and one Service's file is in none of those that are still looked"
    " at. The tool that deploys from there removes what has left its folder: the app runs on, and is not found.",
    joined=74,
)
async def moved_folder(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a prune that followed a refactoring."""
    namespace, front, middle, name = lab.rng.choice(
        (
            ("shop", "order-page", "orders", "stock-levels"),
            ("payments", "invoice-page", "invoices", "tax-rates"),
            ("media", "player-page", "playlists", "subtitles"),
        )
    )
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    await lab.app(namespace, name, replicas=3, tag="4.2.0", config=name)
    await lab.until(lambda: backends(lab.world, namespace, name))
    await lab.app(namespace, middle, like=App("", upstreams=((namespace, name),)), replicas=3, tag="2.8.1")
    await rolled(lab, namespace, middle, "2.8.1")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, middle),)), replicas=2, tag="6.0.4")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_lacking(namespace, middle)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "6.0.5")
    await lab.pause(lab.rng.uniform(3, 7))
    left = [("Deployment", name), ("ConfigMap", name), ("Deployment", middle), ("Service", middle)]
    lab.rng.shuffle(left)
    group = {"Deployment": "apps"}
    for kind, one in left:
        note = {TRACKED: f"{namespace}-base:{group.get(kind, '')}/{kind}:{namespace}/{one}"}
        await lab.edit("argocd", kind, namespace, one, {"metadata": {"annotations": note}})
    await lab.culprit("argocd", "delete", "Service", namespace, name)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit("flux", "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": str(lab.rng.randrange(400, 900))}})


@family(
    "A namespace gets a default for what its containers may have of a processor, so that nobody takes it all. An app"
    " that never said how much it wants has less than it needs from its next rollout on, and answers late.",
    joined=74,
)
async def processor_default(lab: Lab) -> AsyncIterator[None]:
    """As many tell of a LimitRange that was applied for good order, and of throttling weeks later."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "recommendations", "offers-page"),
            ("search", "suggestions", "search-page"),
            ("media", "transcoder-api", "studio-page"),
        )
    )
    by, needs, given = (
        lab.rng.choice(("alice", "bob", "flux")),
        lab.rng.randrange(700, 1100),
        lab.rng.choice((150, 200)),
    )

    def waits(container: Container) -> float:
        """It stands still for what it lacks of each tenth of a second, and so do those that queue behind."""
        limit = container.spec.get("resources", {}).get("limits", {}).get("cpu")
        if limit is None or millicores(limit) >= needs or container.seconds < lab.lag:
            return 0.0
        return 0.25 * needs / millicores(limit)

    await lab.app(namespace, name, like=App("", latency=waits, asked=lambda: 28.0), replicas=4, tag="3.14.0")
    await rolled(lab, namespace, name, "3.14.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="8.1.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_slow(namespace, name)
    lab.alert_slow(namespace, front)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    limits = {"type": "Container", "default": {"cpu": f"{given}m"}, "defaultRequest": {"cpu": "50m"}}
    body = {"metadata": {"name": "container-defaults"}, "spec": {"limits": [limits]}}
    await lab.culprit(by, "create", "LimitRange", namespace, "container-defaults", body)
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.roll("ci", namespace, front, "8.1.1")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll("ci", namespace, name, "3.14.1")


MESH, PROXY = "security.istio.io", {"name": "istio-proxy", "image": "registry.corp.example/mesh/proxy:1.27.1"}


@family(
    "In a namespace of the mesh only what comes encrypted by a proxy is let in from now on. One of those who call there"
    " is of a namespace that never got proxies: its calls are cut off, all others go on.",
    joined=74,
)
async def strict_proxies(lab: Lab) -> AsyncIterator[None]:
    """As many tell of the day on which they turned PERMISSIVE into STRICT."""
    namespace, name, near, home, far, page = lab.rng.choice(
        (
            ("payments", "vouchers", "voucher-desk", "shop", "gift-cards", "gift-page"),
            ("search", "product-index", "index-desk", "shop", "comparison", "compare-page"),
            ("media", "image-store", "image-desk", "search", "picture-search", "picture-page"),
        )
    )
    by, share = lab.rng.choice(("alice", "carol", "argocd")), lab.rng.uniform(0.5, 0.9)
    modes = await lab.custom("PeerAuthentication", MESH, ANY)
    beside: dict[str, Any] = {"initContainers": [{**PROXY, "restartPolicy": "Always"}]}
    shut: dict[str, float] = {}

    def is_strict() -> bool:
        one = lab.world["PeerAuthentication"].get((namespace, "default"), {})
        return bool(one.get("spec", {}).get("mtls", {}).get("mode") == "STRICT")

    def cut_off(container: Container) -> float:
        """What of its answers needs the other namespace; the proxies there end a connection that is not encrypted."""
        has_proxy = any(one["name"] == PROXY["name"] for one in container.pod["spec"].get("initContainers", ()))
        if has_proxy or not is_strict():
            shut.pop(container.pod["metadata"]["uid"], None)
            return 0.0
        since = shut.setdefault(container.pod["metadata"]["uid"], container.seconds)
        return share if container.seconds - since >= lab.lag else 0.0

    await lab.served(modes)
    await lab.app(namespace, name, replicas=3, tag="5.5.0", **beside)
    await lab.until(lambda: backends(lab.world, namespace, name))
    calls = ((namespace, name),)
    await lab.app(namespace, near, like=App("", upstreams=calls, failing=cut_off), replicas=2, tag="2.0.9", **beside)
    like = App("", upstreams=calls, failing=cut_off, fails_with=lambda _: "502", asked=lambda: 24.0)
    await lab.app(home, far, like=like, replicas=3, tag="1.31.0")
    await rolled(lab, home, far, "1.31.0")
    await lab.app(home, page, like=App("", upstreams=((home, far),)), replicas=2, tag="3.3.0")
    await lab.until(lambda: backends(lab.world, home, page))
    await publish(lab, home, page)
    meta = {"namespace": namespace, "name": "default"}
    spec = {"mtls": {"mode": "PERMISSIVE"}}
    body = {"apiVersion": f"{MESH}/v1", "kind": "PeerAuthentication", "metadata": meta, "spec": spec}
    await lab.apply(body)
    for place in ((namespace, near), (home, far), (home, page)):
        lab.alert_errors(*place)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, name, "5.5.1")
    await lab.pause(lab.rng.uniform(4, 8))
    body = {"spec": {"mtls": {"mode": "STRICT"}}}
    await lab.culprit(by, "update", "PeerAuthentication", namespace, "default", body)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll("flux", home, page, "3.3.1")


@family(
    "No culprit. The resolver that the cluster's DNS asks for all names that are not its own goes down, which the"
    " network's people of the house keep: what is called outside is not found, while all names of the cluster are.",
    culprit=False,
    joined=74,
)
async def outer_names(lab: Lab) -> AsyncIterator[None]:
    """As many tell whose CoreDNS answered SERVFAIL for all that it forwards."""
    namespace, name, host, front, far = lab.rng.choice(
        (
            ("shop", "parcel-quotes", "api.parcels.example", "delivery-page", "address.lookup.example"),
            ("payments", "card-gateway", "gateway.acquirer.example", "card-page", "rates.exchange.example"),
            ("media", "caption-maker", "api.speech.example", "caption-page", "feeds.partners.example"),
        )
    )
    home, other = lab.rng.choice((("search", "feed-reader"), ("search", "geo-names")))
    await lab.app(namespace, name, like=App("", abroad=(host,)), replicas=3, tag="2.6.0")
    await lab.app(home, other, like=App("", abroad=(far,)), replicas=2, tag="1.9.3")
    await rolled(lab, namespace, name, "2.6.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="7.7.1")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_lacking(namespace, name)
    lab.alert_lacking(home, other)
    await lab.until(lab.is_well)
    yield
    await lab.roll("ci", namespace, front, "7.7.2")
    await lab.pause(lab.rng.uniform(3, 9))
    note = {"data": {"TIMEOUT_MS": str(lab.rng.randrange(500, 1500))}}
    await lab.edit("argocd", "ConfigMap", "search", "indexer", note)
    await lab.pause(lab.rng.uniform(2, 6))
    lab.outside.resolver_up = False
