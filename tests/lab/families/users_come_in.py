"""What goes wrong where users come in: an Ingress that is meant for another cluster, a proxy that hears of nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import comb

from tests.lab import objects
from tests.lab.api import Json, Key, now
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CONTROLLER, backends, led_to, unserved
from tests.lab.scenario import family

HOME, CONTROLLER = INGRESS_CONTROLLER
FRONT_ASKED, SELDOM = 28.0, 0.4
"""Requests a second of a page by its Ingress, and of what looks at it within the cluster."""
SERIAL = "--enable-serial-reloads=true"
TRIES = 3
"""At how many endpoints the proxies try a request that got no connection."""
WORKERS_END_AFTER = timedelta(seconds=45)
"""For how long workers with an old configuration go on for those who are connected; a second stands for a minute."""


def _leads_to(lab: Lab, namespace: str, service: str) -> bool:
    ingress = lab.world["Ingress"].get((namespace, namespace))
    return bool(ingress) and service in led_to(lab.world, namespace, ingress or {})


@family(
    "A hotfix is pushed together with a change of an Ingress that was meant for staging: there a gateway is in front of"
    " all pages, here the Service that the Ingress leads to from now on does not exist, and whoever asks for the host"
    " gets 503. The image that came along is well.",
    joined=44,
)
async def pushed_together(lab: Lab) -> AsyncIterator[None]:
    """As a course on safe operations begins: two diffs in one push, each of which looks harmless (safeops.work)."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "pricing", "product-page"),
            ("media", "captions", "player-page"),
            ("payments", "statements", "account-page"),
        )
    )
    by, number = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(4, 30)
    gateway = lab.rng.choice(("edge-gateway", "page-gateway"))
    await lab.app(namespace, f"{name}-db", like=App("", serves=False), kind="StatefulSet", replicas=1, tag="17.5")
    like = App("", upstreams=((namespace, f"{name}-db"),))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{number}.0")
    asked = lambda: FRONT_ASKED if _leads_to(lab, namespace, front) else SELDOM  # noqa: E731
    like = App("", upstreams=((namespace, name),), asked=asked)
    await lab.app(namespace, front, like=like, replicas=3, tag="8.0.2")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (name, front)))
    host = await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    url, fails = f"https://{host}", lambda: bool(unserved(lab.world, host))
    lab.alert("ProbeFailed", fails, f"{url} is not answered", 8, job="blackbox", instance=url)
    await lab.until(lab.is_well)
    yield
    await lab.roll(by, namespace, name, f"2.{number}.1")
    backend = {"service": {"name": gateway, "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    body = {"spec": {"rules": [{"host": host, "http": {"paths": paths}}]}}
    await lab.culprit(by, "update", "Ingress", namespace, namespace, body)


@dataclass
class _Proxies:
    """The Ingresses' controller: what it has told its proxies of endpoints, and until when old workers are there."""

    lab: Lab
    known: dict[str, list[str]] = field(default_factory=dict)
    """The pods behind the Ingress of each namespace."""
    configured: dict[Key, tuple[Json, Json]] = field(default_factory=dict)
    pods: set[str] = field(default_factory=set)
    ending: datetime = field(default_factory=now)

    async def run(self) -> None:
        while True:
            self._sync()
            await asyncio.sleep(0.5)

    def _sync(self) -> None:
        """Endpoints need no reload, Ingresses do; a serial one waits for the last one's workers, and all else too."""
        lab = self.lab
        pods = {pod["metadata"]["name"]: pod for pod in backends(lab.world, HOME, CONTROLLER)}
        wanted = {
            key: (one["spec"], one["metadata"].get("annotations", {})) for key, one in lab.world["Ingress"].items()
        }
        if pods.keys() - self.pods:  # a new process has no old workers
            self.configured, self.ending = wanted, now()
        self.pods = set(pods)
        is_serial = any(SERIAL in pod["spec"]["containers"][0].get("args", ()) for pod in pods.values())
        if is_serial and now() < self.ending:
            return
        if wanted != self.configured:
            self.configured, self.ending = wanted, now() + WORKERS_END_AFTER
        self.known = {
            namespace: [pod["metadata"]["name"] for service in led for pod in backends(lab.world, namespace, service)]
            for (namespace, _), one in lab.world["Ingress"].items()
            for led in [led_to(lab.world, namespace, one)]
        }

    def misled(self, namespace: str) -> float:
        """The share of requests all of whose tries get to pods that are gone."""
        known, there = self.known.get(namespace, []), self.lab.world["Pod"]
        ended = [one for one in known if "deletionTimestamp" in there.get((namespace, one), {}).get("metadata", _GONE)]
        tries = min(TRIES, len(known))
        return comb(len(ended), tries) / comb(len(known), tries) if known else 0.0


_GONE: Json = {"deletionTimestamp": ""}


async def _argued(lab: Lab, by: str, args: list[str], *, is_it: bool = False) -> None:
    """The Ingresses' controller is to run with these arguments."""
    there = lab.world["Deployment"][HOME, CONTROLLER]["spec"]["template"]["spec"]["containers"][0]
    body = {"spec": {"template": {"spec": {"containers": [{**there, "args": args}]}}}}
    if is_it:
        await lab.culprit(by, "update", "Deployment", HOME, CONTROLLER, body)
    else:
        await lab.edit(by, "Deployment", HOME, CONTROLLER, body)


@family(
    "The Ingresses' controller is to reload its proxies only once the workers of the last time have ended, as too many"
    " of them used up memory. While it waits for those it does not look at endpoints either: an Ingress is changed, and"
    " with the next, harmless release of an app users are sent to pods that are gone.",
    joined=44,
)
async def serial_reloads(lab: Lab) -> AsyncIterator[None]:
    """As told of the last incident of a company's Ingresses (lorenzhw.substack.com)."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "basket", "basket-page", ("media", "uploads")),
            ("search", "suggest", "search-page", ("shop", "frontend")),
            ("payments", "wallet", "wallet-page", ("search", "query")),
        )
    )
    by, number = lab.rng.choice(("alice", "carol", "flux")), lab.rng.randrange(6, 40)
    args = ["/nginx-ingress-controller", "--election-id=ingress-nginx-leader", "--watch-ingress-without-class=false"]
    long = f"{int(WORKERS_END_AFTER.total_seconds()) * 60}s"
    settings = {"worker-shutdown-timeout": long, "proxy-read-timeout": "3600"}
    await lab.apply(objects.config_map(HOME, "ingress-nginx-controller", **settings))
    await _argued(lab, "admin", args)
    await lab.app(namespace, name, replicas=3, tag="5.4.1")
    like = App("", upstreams=((namespace, name),), asked=lambda: 36.0)
    await lab.app(namespace, front, like=like, replicas=4, tag=f"1.{number}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 4)
    await rolled(lab, HOME, CONTROLLER, "1.0.0")
    await publish(lab, namespace, front)
    await publish(lab, *other)
    lab.reserve(namespace, name)
    proxies = _Proxies(lab)
    lab.outside.misled = proxies.misled
    lab.start(proxies.run())
    for one in (namespace, other[0]):
        lab.alert_ingress_errors(one, one, 0.1)
    lab.alert_errors(namespace, front)
    lab.alert_lacking(namespace, front, seconds=20)
    await lab.pause(4)
    await lab.until(partial(_has_rest, lab))
    yield
    await _argued(lab, by, [*args, SERIAL], is_it=True)
    await lab.pause(4)
    await rolled(lab, HOME, CONTROLLER, "1.0.0")
    await lab.pause(lab.rng.uniform(7, 13))
    larger = {"metadata": {"annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "64m"}}}
    await lab.edit("bob", "Ingress", other[0], other[0], larger)
    await lab.pause(lab.rng.uniform(3, 5))
    await lab.roll("ci", namespace, front, f"1.{number + 1}.0")


def _has_rest(lab: Lab) -> bool:
    return lab.is_well() and len(backends(lab.world, HOME, CONTROLLER)) >= 1
