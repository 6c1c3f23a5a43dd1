"""What goes wrong on its own: a machine that fails with the only one of an app on it, and what stands before all."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.alerts import is_lost, pods
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.not_there_yet import aside, later, stand
from tests.lab.lab import Lab
from tests.lab.scenario import family


@family(
    "No culprit. A node's machine fails. All that runs there has others elsewhere, but for one app that never had a"
    " second replica: whoever calls it is answered by nobody until its pod may be made anew on another node.",
    culprit=False,
    joined=73,
)
async def lonely_replica(lab: Lab) -> AsyncIterator[None]:
    """As post-mortems of a lost instance tell of what nobody had thought of as important."""
    namespace, name, caller = lab.rng.choice(
        (
            ("shop", "gift-cards", "gift-page"),
            ("payments", "exchange-rates", "transfer-page"),
            ("media", "subtitles", "watch-page"),
        )
    )
    minor = lab.rng.randrange(3, 40)
    await stand(lab, namespace, name, App("", asked=lambda: 15.0), f"1.{minor}.0", replicas=1)
    await stand(lab, namespace, caller, App("", upstreams=((namespace, name),)), "4.4.0", replicas=3)
    await publish(lab, namespace, caller)
    lab.alert_errors(namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    lab.alert_lacking(namespace, name)
    for node in sorted(one for _, one in lab.world["Node"]):
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", lost, f"{node} has been unready for a while", 6, node=node)
    await lab.until(lab.is_well)
    yield
    await aside(lab, namespace, caller, "4.4.1")
    if lab.rng.random() < 0.5:
        await aside(lab, namespace, name, f"1.{minor}.1")
        await lab.until(lambda: len(pods(lab.world, namespace, name)) == 1)
    await lab.pause(lab.rng.uniform(2, 8))
    [only] = (one for one in pods(lab.world, namespace, name) if "deletionTimestamp" not in one["metadata"])
    lab.kubelets.crash(only["spec"]["nodeName"])


@family(
    "No culprit. The provider of the network that stands before the site has trouble in one of its regions: a good part"
    " of the users are shown its error page, and the cluster sees nothing of it but that fewer requests come.",
    culprit=False,
    joined=73,
)
async def edge_trouble(lab: Lab) -> AsyncIterator[None]:
    """As so many told on the days on which a large CDN had trouble."""
    namespace, page, api = lab.rng.choice(
        (
            ("shop", "storefront", "offers-api"),
            ("payments", "online-banking", "accounts-api"),
            ("media", "live-page", "schedule-api"),
        )
    )
    users, worst, lost = lab.rng.uniform(26, 40), lab.rng.uniform(0.45, 0.75), 0.0

    def come() -> float:
        """Those whom the edge lets through."""
        return users * (1 - lost)

    await stand(lab, namespace, api, App("", asked=lambda: 0.6 * come()), "2.14.0")
    await stand(lab, namespace, page, App("", upstreams=((namespace, api),), asked=come), "9.1.0", replicas=3)
    host = await publish(lab, namespace, page)
    edge = {"namespace": "monitoring", "service": "cdn-exporter", "zone": host}
    served, failed = lab.adding_up(come), lab.adding_up(lambda: 0.001 * users + users * lost)
    lab.measure("cdn_requests_total", served, "counter", **edge, status="2xx")
    lab.measure("cdn_requests_total", failed, "counter", **edge, status="5xx")
    errors = lab.rate(lambda: int(failed()), 0.1 * users, seconds=8)
    lab.alert("EdgeHighErrorRate", errors, f"the edge answers many requests to {host} with 5xx", 5, zone=host)

    def is_quiet() -> bool:
        return lab.traffic.of_app(namespace, page, 10).answers.total() < 6.5 * users

    summary = f"{namespace}/{page} gets far fewer requests than is usual at this time"
    lab.alert("RequestRateTooLow", is_quiet, summary, 5, namespace=namespace, service=page)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.pause(11)  # until there is a usual rate
    await lab.until(lab.is_well)
    yield
    await aside(lab, namespace, *lab.rng.choice(((page, "9.1.1"), (api, "2.14.1"))))
    await lab.pause(lab.rng.uniform(2, 9))

    async def worsen() -> None:
        """One of its machines after the other."""
        nonlocal lost
        for step in range(1, 6):
            lost = worst * step / 5
            await lab.pause(1)

    lab.start(worsen())
    lab.start(later(lab, namespace, api, "2.14.2"))
