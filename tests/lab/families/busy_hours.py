"""When much is to be done: probes, autoscalers and replicas that are not made for the busy hours, and a campaign."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.lab import objects
from tests.lab.apps import App
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

LONGEST_WAIT, MOST_LOST = 2.5, 0.9
PERSONS = ("alice", "bob", "carol")


async def team_app(lab: Lab, namespace: str, name: str, like: App, *, replicas: int, tag: str) -> None:
    """An app with a ConfigMap of its name, once all of it is there. Raises RefusedError."""
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="1200"))
    await lab.app(namespace, name, like=like, replicas=replicas, tag=tag, config=name)
    await rolled(lab, namespace, name, tag)
    lab.reserve(namespace, name)


async def stir(lab: Lab, namespace: str, *names: str) -> None:
    """Somebody of the neighbourhood rolls out or configures what is theirs."""
    name = lab.rng.choice(names)
    if lab.rng.random() < 0.6:
        there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]["image"]
        major, minor, _ = str(there).rsplit(":", 1)[1].split(".")
        tag = f"{major}.{int(minor) + 1}.{lab.rng.randrange(4)}"
        await lab.roll(lab.rng.choice(("ci", "argocd", "flux")), namespace, name, tag)
        return
    body = {"data": {"TIMEOUT_MS": str(lab.rng.randrange(600, 2400))}}
    await lab.edit(lab.rng.choice(("flux", *PERSONS)), "ConfigMap", namespace, name, body)


async def amid(lab: Lab, strike: Callable[[], Awaitable[object]], namespace: str, *names: str) -> None:
    """The change, with one or two of the neighbourhood shortly before it or after it."""

    async def later() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await stir(lab, namespace, *names)

    earlier, afterwards = lab.rng.choice(((1, 0), (2, 0), (1, 1), (0, 1)))
    await lab.pause(lab.rng.uniform(1, 4))
    for _ in range(earlier):
        await stir(lab, namespace, *names)
        await lab.pause(lab.rng.uniform(3, 8))
    await strike()
    for _ in range(afterwards):
        lab.start(later())


def sized(lab: Lab, demand: Callable[[], float], each: float, *upstreams: tuple[str, str]) -> App:
    """An app of which each process stands so many requests a second: what is more waits, and is not answered."""

    def use() -> float:
        there = sum(one.app is app and one.problem is None for one in lab.kubelets.running())
        return demand() / (each * max(1, there))

    app = App("", asked=demand, capacity=each, upstreams=upstreams, fails_with=lambda _: "503")
    app.failing = lambda _: min(MOST_LOST, max(0.0, 1 - 1 / max(use(), 0.01)))
    app.latency = lambda _: min(LONGEST_WAIT, max(0.0, 4 * (use() - 0.95)))
    return app


@family(
    "A liveness probe with a timeout of a second is added to an app that had none. In quiet hours it is answered in"
    " time; when the app is busy it is not, and pods that were only slow are ended, one and all.",
    joined=67,
)
async def short_liveness_timeout(lab: Lab) -> AsyncIterator[None]:
    """The plainest of all tales of a liveness probe."""
    namespace, name, front, store = lab.rng.choice(
        (
            ("shop", "price-engine", "offers-page", "price-list"),
            ("media", "renderer", "gallery-page", "originals"),
            ("search", "ranker", "results-page", "click-log"),
        )
    )
    by, tag = lab.rng.choice(("argocd", "ci", *PERSONS)), f"2.{lab.rng.randrange(3, 30)}.1"
    like = App("", load=40.0, capacity=30.0, answer_seconds=0.25, upstreams=((namespace, store),))

    async def busy_and_quiet() -> None:
        """As people come: what one process stands is never reached."""
        while True:
            like.load = lab.rng.uniform(36, 44)
            await asyncio.sleep(lab.rng.uniform(12, 20))
            like.load = lab.rng.uniform(71, 76)
            await asyncio.sleep(lab.rng.uniform(10, 14))

    await team_app(lab, namespace, store, App(""), replicas=2, tag="4.1.0")
    await team_app(lab, namespace, name, like, replicas=3, tag=tag)
    await team_app(lab, namespace, front, App("", upstreams=((namespace, name),)), replicas=2, tag="7.0.2")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.alert_lacking(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    lab.start(busy_and_quiet())
    yield
    get = {"path": "/healthz", "port": 8080}
    probe = {"httpGet": get, "timeoutSeconds": 1, "periodSeconds": lab.rng.choice((5, 10)), "failureThreshold": 3}
    await amid(
        lab,
        lambda: lab.roll(by, namespace, name, tag, culprit=True, livenessProbe=probe),
        *(namespace, front, store),
    )


@family(
    "To spend less a team lowers the maximum of an app's autoscaler, in the hour of the day in which it has nearly all"
    " of the old one: the autoscaler takes down what is above the new one, and what is left is too few.",
    joined=67,
)
async def lower_ceiling(lab: Lab) -> AsyncIterator[None]:
    """As happens after each talk about the bill."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "basket-api", "shop-page"),
            ("payments", "quotes-api", "pay-page"),
            ("media", "playlist-api", "player-page"),
        )
    )
    by, there, left = lab.rng.choice(("flux", "argocd", *PERSONS)), lab.rng.choice((8, 9)), lab.rng.choice((4, 5))
    demand = 13.0 * there
    like = sized(lab, lambda: demand, 16.0)
    await team_app(lab, namespace, name, like, replicas=there, tag="3.14.0")
    await team_app(lab, namespace, front, App("", upstreams=((namespace, name),)), replicas=2, tag="8.2.0")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": lab.rng.choice((10, 12))}
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec})
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    body = {"spec": {"maxReplicas": left}}
    await amid(
        lab,
        lambda: lab.culprit(by, "update", "HorizontalPodAutoscaler", namespace, name, body),
        *(namespace, front),
    )


@family(
    "On call somebody doubled an app's replicas by hand as more and more people came, and did not write it into git."
    " The next sync of its manifests, for something else, sets the number that git has, while people are still there.",
    joined=67,
)
async def replicas_from_git(lab: Lab) -> AsyncIterator[None]:
    """As all tell once who scale by hand what is synced from git."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "stock-api", "shop-page"),
            ("payments", "invoice-api", "bills-page"),
            ("search", "suggest-api", "search-page"),
        )
    )
    declared, minor = lab.rng.choice((3, 4)), lab.rng.randrange(3, 30)
    demand = [11.0 * declared]
    like = sized(lab, lambda: demand[0], 16.0)
    await team_app(lab, namespace, name, like, replicas=declared, tag=f"5.{minor}.0")
    await team_app(lab, namespace, front, App("", upstreams=((namespace, name),)), replicas=2, tag="2.9.4")
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, hours=lab.rng.choice((3, 6, 21))):
        body = {"spec": {"replicas": 2 * declared}}
        await lab.edit(lab.rng.choice(PERSONS), "Deployment", namespace, name, body)
        await lab.until(lambda: len(backends(lab.world, namespace, name)) == 2 * declared)
        demand[0] = 26.0 * declared
        await lab.pause(4)
    await lab.until(lab.is_well)
    yield
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    if lab.rng.random() < 0.5:
        one = {**there, "image": f"registry.corp.example/{namespace}/{name}:5.{minor}.1"}
    else:
        one = {**there, "resources": {**there["resources"], "requests": {"cpu": "120m", "memory": "96Mi"}}}
    synced = {"spec": {"replicas": declared, "template": {"spec": {"containers": [one]}}}}
    await amid(
        lab,
        lambda: lab.culprit("argocd", "update", "Deployment", namespace, name, synced),
        *(namespace, front),
    )


@family(
    "No culprit. A film about the company is shown on television in the evening, of which nobody who runs the shop was"
    " told: within minutes four times as many people come as on any other day, and there are too few pods for them.",
    culprit=False,
    joined=67,
)
async def campaign_visitors(lab: Lab) -> AsyncIterator[None]:
    """As shops tell of a spot, a newsletter or a sale."""
    namespace, front, api = lab.rng.choice(
        (
            ("shop", "storefront", "products-api"),
            ("media", "tickets-page", "events-api"),
            ("payments", "sign-up-page", "accounts-api"),
        )
    )
    usual, times = lab.rng.uniform(24, 32), [1.0]

    async def come() -> None:
        """More from minute to minute."""
        most = lab.rng.uniform(3.6, 4.6)
        while times[0] < most:
            times[0] = min(most, times[0] + lab.rng.uniform(0.15, 0.5))
            await asyncio.sleep(1)

    await team_app(lab, namespace, api, sized(lab, lambda: 1.3 * usual * times[0], 22.0), replicas=4, tag="6.4.0")
    shown = sized(lab, lambda: usual * times[0], 24.0, (namespace, api))
    await team_app(lab, namespace, front, shown, replicas=3, tag="9.1.0")
    await publish(lab, namespace, front)
    lab.alert_errors(namespace, front)
    lab.alert_slow(namespace, front)
    lab.alert_errors(namespace, api)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    if lab.rng.random() < 0.5:
        await stir(lab, namespace, front, api)
    await lab.pause(lab.rng.uniform(4, 12))
    lab.start(come())
