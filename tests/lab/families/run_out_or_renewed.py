"""Incidents without a culprit among the changes: a key outside is over, machines take a newer kernel by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import now
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.scenario import family

ASKED = 26.0
"""Requests a second of the app that needs somebody outside."""


@dataclass
class _Key:
    """The key by which a provider outside knows the company: good for a year, of which nobody thought."""

    share: float
    """Of the app's requests, which need an answer of the provider that is not kept yet."""
    ends: float = float("inf")

    def is_over(self) -> bool:
        return now().timestamp() >= self.ends

    def fails(self) -> float:
        return self.share if self.is_over() else 0.0


@family(
    "The key by which a provider of maps knows the company was made for a year. The year is over: each call is answered"
    " with 403, and the app, whose own keeping has only what was asked before, answers 502 to whatever needs one.",
    culprit=False,
    joined=65,
)
async def maps_key(lab: Lab) -> AsyncIterator[None]:
    """As users of such services tell of an expired key (weather-10kb-wxkb 62, google-maps-services-js 79)."""
    namespace, name, front, host = lab.rng.choice(
        (
            ("shop", "address-check", "delivery-page", "api.maps.example"),
            ("search", "places", "map-page", "geocode.maps.example"),
            ("media", "weather-cards", "home-page", "api.weather.example"),
        )
    )
    team, key = lab.rng.choice(("ci", "bob", "carol")), _Key(lab.rng.uniform(0.3, 0.6))
    number = lab.rng.randrange(2, 20)
    await lab.apply(objects.config_map(namespace, name, PROVIDER_TIMEOUT_MS="1500", KEEP_DAYS="7"))
    secret = {"kind": "Secret", "metadata": {"namespace": namespace, "name": f"{name}-provider"}}
    await lab.apply({**secret, "stringData": {"api-key": "k-5f1c"}})
    like = App("", abroad=(host,), asked=lambda: ASKED, failing=lambda _: key.fails(), fails_with=lambda _: "502")
    given = {"config": name, "secret": f"{name}-provider"}
    await lab.app(namespace, name, like=like, replicas=3, tag=f"1.{number}.0", **given)
    await rolled(lab, namespace, name, f"1.{number}.0")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="7.7.0")
    await lab.until(lambda: backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    told = {"namespace": namespace, "service": name, "client_name": host}
    for status in ("200", "403"):
        rate = lambda status=status: ASKED * key.share * (key.is_over() is (status == "403"))  # noqa: E731
        lab.measure("http_client_requests_total", lab.adding_up(rate), "counter", **told, status=status)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_errors(namespace, front, 0.1)
    await lab.until(lab.is_well)
    yield
    key.ends = now().timestamp() + lab.rng.uniform(14, 24)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(team, namespace, name, f"1.{number}.1")


OLD_KERNEL, NEW_KERNEL = "5.4.0-216-generic", "5.8.0-63-generic"
BOOT_SECONDS = 5.0


@family(
    "Machines install a newer kernel by themselves, and boot at their hour of the night. Nodes are ready again, but"
    " this kernel has the card reckon the checksums of what the network's tunnel wraps, wrongly, and whoever gets such"
    " a packet drops it: pods there reach only what is on their own node.",
    culprit=False,
    joined=65,
)
async def tunnel_checksums(lab: Lab) -> AsyncIterator[None]:
    """As users of Calico tell of an upgrade of their machines (calico 4865, kubespray 8992)."""
    namespace, name, called = lab.rng.choice(
        (
            ("shop", "storefront-api", "stock-levels"),
            ("payments", "invoices-api", "tax-rates"),
            ("search", "autocomplete-api", "phrases"),
        )
    )
    nodes = spare(lab, 3)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    await lab.app(namespace, called, like=App("", asked=lambda: 30.0), replicas=2, tag="3.2.0")
    await lab.until(lambda: len(backends(lab.world, namespace, called)) == 2)
    like = App("", upstreams=((namespace, called),), asked=lambda: 24.0)
    await lab.app(namespace, name, like=like, replicas=6, tag="11.4.0", topologySpreadConstraints=[spread])
    await rolled(lab, namespace, name, "11.4.0")
    await publish(lab, namespace, name)
    lab.reserve(namespace, name)
    lab.reserve(namespace, called)
    for node in NODES:
        await lab.kubelets.run_kernel(node, OLD_KERNEL)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace, 0.2)
    await lab.until(lab.is_well)
    yield

    async def boot(node: str) -> None:
        lab.kubelets.crash(node)
        await lab.pause(BOOT_SECONDS)
        await lab.kubelets.run_kernel(node, NEW_KERNEL)
        lab.outside.cut_off.add(node)
        await lab.kubelets.come_back(node, rebooted=True)

    async def night() -> None:
        """Each at an hour of its own."""
        for node in nodes:
            await lab.pause(lab.rng.uniform(3, 7))
            await boot(node)

    lab.start(night())
