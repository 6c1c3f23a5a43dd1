"""What is too much for who is called: a body, events that have waited for long, secrets of all tenants at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem, mebibytes
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import image_of, images, is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

ENTRY_KIB, BODY_KIB = 0.9, 1024
"""What one entry of a customer's history is in a request, and how large a body may be."""
FEW, MANY = "40", "5000"
"""Entries at most in a request, before and after."""
MENDED = "3.9.1"
"""The release since which all events are fetched."""
USUAL, FETCHES = 60.0, 150.0
"""Requests a second from users, and from what fetches events while there are any."""


@family(
    "Somebody has a customer's whole history sent along in place of the latest entries: requests of customers who have"
    " been there for long are larger than what is called takes, which answers 413, and their calls fail.",
    joined=26,
)
async def body_too_large(lab: Lab) -> AsyncIterator[None]:
    """As Sardine AI tells of 18 July 2024."""
    namespace, front, called = lab.rng.choice(
        (
            ("payments", "customers", "scoring"),
            ("shop", "accounts", "recommendations"),
            ("search", "profiles", "ranking"),
        )
    )
    long_standing = lab.rng.uniform(0.35, 0.6)

    def too_large(_: Container) -> float:
        """The share of bodies that its own limit keeps out."""
        told = lab.world["ConfigMap"].get((namespace, front), {}).get("data", {})
        return long_standing if int(told.get("HISTORY_ENTRIES", FEW)) * ENTRY_KIB > BODY_KIB else 0.0

    await lab.apply(objects.config_map(namespace, front, LOG_LEVEL="info", HISTORY_ENTRIES=FEW))
    await lab.apply(objects.config_map(namespace, called, LOG_LEVEL="info", MAX_BODY_KIB=str(BODY_KIB)))
    refuses = App("", failing=too_large, fails_with=lambda _: "413")
    await lab.app(namespace, called, like=refuses, replicas=3, config=called, tag="2.14.0")
    asks = App("", upstreams=((namespace, called),))
    await lab.app(namespace, front, like=asks, replicas=3, config=front, tag="5.3.2")
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, called)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    by = lab.rng.choice(("bob", "flux", "ci"))
    await lab.culprit(by, "update", "ConfigMap", namespace, front, {"data": {"HISTORY_ENTRIES": MANY}})


@dataclass
class _Events:
    """What waits to be fetched by the API that users ask too."""

    lab: Lab
    namespace: str
    fetcher: str
    api: str
    capacity: float
    waiting: float

    def fetches(self) -> float:
        """How many a second, once one is there that does not stop at what it fetched last."""
        is_mended = any(
            is_ready(pod) and images(pod)[0].endswith(f":{MENDED}")
            for pod in pods(self.lab.world, self.namespace, self.fetcher)
        )
        return min(FETCHES, self.waiting) if is_mended else 0.0

    def asked(self) -> float:
        return USUAL + self.fetches()

    def turned_away(self, _: Container) -> float:
        """What all of its processes together do not get through."""
        stood = self.capacity * len(backends(self.lab.world, self.namespace, self.api))
        return max(0.0, 1 - stood / self.asked())

    async def run(self) -> None:
        """New ones come all the time."""
        while True:
            await asyncio.sleep(0.5)
            self.waiting = max(0.0, self.waiting + (3.0 - self.fetches()) / 2)


@family(
    "A release mends how events are fetched, which had stopped halfway for months: all that has waited since is asked"
    " for at once, of an API that users ask too, and which does not stand it.",
    joined=26,
)
async def waiting_events(lab: Lab) -> AsyncIterator[None]:
    """As Red Hat 3scale tells of 7 November 2023."""
    namespace, api, fetcher, front = lab.rng.choice(
        (
            ("platform", "service-management", "event-fetcher", "gateway"),
            ("media", "rights", "usage-collector", "streams"),
            ("payments", "accounts", "statement-collector", "mobile-bff"),
        )
    )
    events = _Events(lab, namespace, fetcher, api, capacity=42.0, waiting=0.0)
    like = App("", asked=events.asked, failing=events.turned_away, fails_with=lambda _: "503", capacity=300)
    await lab.app(namespace, api, like=like, replicas=3, tag="3.9.0")
    upstreams = ((namespace, api),)
    await lab.app(namespace, fetcher, like=App("", serves=False, upstreams=upstreams), replicas=1, tag="3.9.0")
    await lab.app(namespace, front, like=App("", upstreams=upstreams), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == len(backends(lab.world, namespace, api)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, api, fetcher)
    lab.measure("events_waiting", lambda: events.waiting, namespace=namespace, service=api)
    for one in (api, front):
        lab.alert_errors(namespace, one)
    lab.start(events.run())
    by = lab.rng.choice(("ci", "argocd"))
    async with before(lab, hours=20, cluster=lab.rng.choice(("us-1", "ap-1"))):  # where hardly any event waits
        await lab.roll(by, namespace, fetcher, MENDED)
        await rolled(lab, namespace, fetcher, MENDED)
        await lab.pause(8)
    await lab.roll("admin", namespace, fetcher, "3.9.0")
    await rolled(lab, namespace, fetcher, "3.9.0")
    events.waiting = lab.rng.uniform(20000, 60000)
    yield
    await lab.roll(by, namespace, fetcher, MENDED, culprit=True)


@family(
    "A Job rewrites what is kept of all tenants, and has their secrets decrypted for it: what decrypts keeps each for a"
    " while, which is more than the memory that it may have, and whoever signs in needs it too.",
    joined=26,
)
async def decrypted_at_once(lab: Lab) -> AsyncIterator[None]:
    """As F5 tells of its Distributed Cloud, 12 September 2023."""
    namespace, login, decrypts = lab.rng.choice(
        (("platform", "console-login", "blindfold"), ("payments", "merchant-login", "vault-proxy"))
    )
    job = "tune-compatibility"
    image, limit = f"registry.corp.example/{namespace}/{job}", "320Mi"
    rate = lab.rng.uniform(11, 15)
    """MiB that a process keeps more with each second, of what it decrypts for one pod of the Job."""

    def asking() -> list[Json]:
        found = lab.world["Pod"].values()
        return [pod for pod in found if image_of(pod) == image and pod["status"].get("phase") == "Running"]

    kept: dict[str, float] = {}
    begun: dict[str, float] = {}

    def memory(container: Container) -> Problem | None:
        """From nothing with each start; what it is asked for meanwhile comes on top."""
        uid = container.pod["metadata"]["uid"]
        since = begun.get(uid, 0.0)
        if container.seconds < since:
            kept[uid], since = 0.0, 0.0
        share = len(asking()) / max(1, len(pods(lab.world, namespace, decrypts)))
        kept[uid] = kept.get(uid, 0.0) * (1.0 if share else 0.5) + (container.seconds - since) * rate * share
        begun[uid] = container.seconds
        needed = 120 + kept[uid]
        return Problem("oom", f"needs {needed:.0f}Mi, may have {limit}") if needed > mebibytes(limit) else None

    await lab.app(namespace, decrypts, like=App("", check=memory), replicas=2, memory=limit, tag="0.42.1")
    await lab.app(namespace, login, like=App("", upstreams=((namespace, decrypts),)), replicas=3, tag="1.18.0")
    await lab.until(lambda: len(backends(lab.world, namespace, login)) == 3)
    await publish(lab, namespace, login)
    lab.reserve(namespace, decrypts)
    for one in (login, decrypts):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    lab.apps[image] = App(image, ends_after=lab.rng.uniform(45, 60), upstreams=((namespace, decrypts),), serves=False)
    env = [{"name": "DECRYPT_URL", "value": f"http://{decrypts}.{namespace}.svc"}, {"name": "TENANTS", "value": "all"}]
    made: Json = objects.deployment(namespace, job, f"{image}:1.0.0", env=env, restartPolicy="Never")
    template = made["spec"]["template"]
    del template["spec"]["containers"][0]["readinessProbe"]
    yield
    await lab.roll("argocd", namespace, login, "1.18.1")
    await lab.pause(lab.rng.uniform(8, 12))
    meta = {"name": f"{job}-{lab.rng.randrange(36**5):05x}"}
    spec = {"parallelism": 4, "completions": 4, "backoffLimit": 2, "template": template}
    by = lab.rng.choice(("ci", "carol"))
    await lab.culprit(by, "create", "Job", namespace, meta["name"], {"metadata": meta, "spec": spec})
