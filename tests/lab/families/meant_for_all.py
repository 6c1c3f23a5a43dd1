"""Meant for all: a namespace that is closed, and settings of the one way in that everybody shares."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import annotated, rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CONTROLLER, backends
from tests.lab.scenario import family

# -- a policy

NAMED = "kubernetes.io/metadata.name"
CALLED_FROM = {"payments": ("shop",)}
"""Who calls apps of a namespace from another one, as everybody knows."""


def _of(*names: str) -> list[Json]:
    return [{"namespaceSelector": {"matchLabels": {NAMED: one}}} for one in names]


def _closed(namespace: str, called: list[str], *, names: bool) -> tuple[Json, Json]:
    """Nobody gets in or out, but for what is listed; ``names`` whether servers of names are among that."""
    own: list[Json] = [{"podSelector": {}}]
    into = [{"from": [*own, *_of("ingress-nginx", "monitoring", *CALLED_FROM.get(namespace, ()))]}]
    out: list[Json] = [{"to": [*own, *_of(*called)]}]
    if names:
        ports = [{"protocol": one, "port": 53} for one in ("UDP", "TCP")]
        out.append({"to": _of("kube-system"), "ports": ports})
    everybody = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    meta = {"namespace": namespace}
    return (
        {"metadata": {**meta, "name": "default-deny-all"}, "spec": everybody},
        {"metadata": {**meta, "name": "allow-listed"}, "spec": {**everybody, "ingress": into, "egress": out}},
    )


@family(
    "A namespace gets a policy by which nobody gets in or out, and one that lists what is to go on. The servers of"
    " names are not in the list, or one of those whom an app there calls is not: it reaches them no more, and its users"
    " see errors.",
    joined=101,
)
async def denied_but_for_a_list(lab: Lab) -> AsyncIterator[None]:
    """As nearly everybody tells who has put their first policy of that sort on a namespace."""
    namespace, name, store, home, called, front = lab.rng.choice(
        (
            ("payments", "refund-api", "refund-store", "search", "address-check", "refund-page"),
            ("payments", "voucher-api", "voucher-store", "media", "barcode-maker", "voucher-page"),
            ("media", "cast-list", "cast-store", "shop", "name-service", "cast-page"),
            ("search", "hit-preview", "preview-store", "media", "still-images", "preview-page"),
        )
    )
    by, minor, names = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    denies_first = lab.rng.random() < 0.5
    await lab.app(home, called, like=App("", asked=lambda: 12.0), replicas=2, tag="2.0.4")
    await rolled(lab, home, called, "2.0.4")
    await lab.app(namespace, store, like=App("", serves=False), replicas=1, tag="16.4")
    await rolled(lab, namespace, store, "16.4")
    like = App("", upstreams=((namespace, store), (home, called)), asked=lambda: 17.0)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"1.{minor}.0")
    await rolled(lab, namespace, name, f"1.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.reserve(home, called)
    lab.alert_lacking(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(1, 4))
        await change_page(lab, namespace, front)

    yield
    for one in _closed("platform", [], names=True):
        await lab.apply({"kind": "NetworkPolicy", **one}, by=by)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, called, "2.0.5")
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 13))
    both = _closed(namespace, [] if names else [home], names=names)
    for one in both if denies_first else reversed(both):
        await lab.culprit(by, "create", "NetworkPolicy", namespace, one["metadata"]["name"], one)
    lab.start(afterwards())


# -- the way in

SETTINGS = ("ingress-nginx", "ingress-nginx-controller")
USUAL = {
    "proxy-body-size": "512m",
    "proxy-read-timeout": "900",
    "large-client-header-buffers": "4 32k",
    "use-forwarded-headers": "true",
}
SMALLER = (
    ("proxy-read-timeout", "60", "504", "reports"),
    ("proxy-body-size", "8m", "413", "uploads"),
    ("large-client-header-buffers", "4 8k", "400", "searches"),
)
"""What is made smaller, what those are answered who need more, and what they were about."""
FEW = 0.85


@family(
    "In the ConfigMap of the Ingresses' controller a time or a size is made smaller, for all, as it was once raised for"
    " somebody or is larger than advised. Nearly everybody needs less than that. The long requests of one app, or the"
    " large ones, are refused.",
    joined=101,
)
async def smaller_at_the_door(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of 413 and 504 after a controller's settings had been tidied."""
    key, less, code, what = lab.rng.choice(SMALLER)
    namespace, name, other = lab.rng.choice(
        (
            ("media", "film-desk", ("shop", "frontend")),
            ("payments", "merchant-desk", ("media", "uploads")),
            ("shop", "supplier-desk", ("search", "query")),
            ("search", "editor-desk", ("payments", "checkout")),
        )
    )
    by, minor, share = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.uniform(0.25, 0.5)
    asked = lab.rng.uniform(18, 26)

    def is_small() -> bool:
        return bool(lab.world["ConfigMap"].get(SETTINGS, {}).get("data", {}).get(key) == less)

    shows = Lately(lab, is_small)

    def refused(_: Container) -> float:
        """Of what comes by the Ingress: the app itself sees nothing of it, or gives its answer to nobody."""
        return share if shows() else 0.0

    await lab.apply(objects.config_map(*SETTINGS, **USUAL))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="40"))
    like = App("", serves=False, asked=lambda: asked, failing=refused, fails_with=lambda _: code)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"5.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    for place in ((namespace, name), other):
        await publish(lab, *place)
        lab.alert_ingress_errors(place[0], place[0])
    own = annotated(proxy_body_size="1g", proxy_read_timeout="1800")
    await lab.edit("admin", "Ingress", other[0], other[0], own)
    done = lab.adding_up(lambda: share * asked * (0.0 if shows() else 1.0))
    lab.measure(f"{what}_finished_total", done, "counter", namespace=namespace, service=name)
    summary = f"{namespace}/{name} has far fewer {what} finished than at this hour a week ago"
    lab.alert("FinishedBelowLastWeek", shows, summary, 12, namespace=namespace, service=name)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 5))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"PAGE_SIZE": "60"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"5.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 11))
    if lab.rng.random() < 0.5:
        await lab.edit(lab.rng.choice(TEAMS), "Ingress", namespace, namespace, annotated(proxy_buffering="on"))
    else:
        await lab.roll(lab.rng.choice(("flux", "ci")), *INGRESS_CONTROLLER, "1.13.4")
    await lab.pause(lab.rng.uniform(7, 12))
    tidied = {key: less, "use-forwarded-headers": lab.rng.choice(("true", None)), "keep-alive": "75"}
    await lab.culprit(by, "update", "ConfigMap", *SETTINGS, {"data": tidied})
    lab.start(afterwards())
