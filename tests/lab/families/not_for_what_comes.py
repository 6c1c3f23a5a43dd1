"""What does for all that is there and not for what comes: a look at an image, the way in which a time is written."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab.api import Json, Kind
from tests.lab.apps import App, Container, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

POLICY, PATIENT, HASTY = "image-policy", 10, 2
"""What admits signed images only, and for how many seconds the API server waits for it, before and after."""
LOOK_UP = (2.4, 3.2)
"""For how long the registry looks for the signature of an image."""
GONE_SECONDS = 0.5


@dataclass
class _Signatures:
    """An image is looked up at the registry as it is first seen; what was found is kept."""

    lab: Lab
    known: set[str] = field(default_factory=set)

    async def review(self, request: Json) -> str | None:
        if not backends(self.lab.world, "platform", POLICY):
            raise ConnectionError("no pod is behind it")
        for image in images(request["object"]):
            if image not in self.known:
                await self._look_up(image)
        return None

    async def _look_up(self, image: str) -> None:
        """Once who asked has gone, so has the question to the registry, and nothing is kept."""
        [hook] = self.lab.world["ValidatingWebhookConfiguration"]["", POLICY]["webhooks"]
        needed = self.lab.rng.uniform(*LOOK_UP)
        await asyncio.sleep(min(needed, hook["timeoutSeconds"] + GONE_SECONDS))
        if needed < hook["timeoutSeconds"]:
            self.known.add(image)


@family(
    "The API server is to wait for a webhook for two seconds in place of ten. That one looks for the signature of each"
    " image at the registry, which takes three, and keeps what it has found: whatever has run before is let in at once,"
    " and no new image ever is.",
    joined=47,
)
async def first_look(lab: Lab) -> AsyncIterator[None]:
    """As users of Kyverno and of Sigstore's policy controller tell, whose look at a registry outlasts its time."""
    namespace, name, front = lab.rng.choice(
        (
            ("search", "synonyms", "synonym-editor"),
            ("shop", "stock-levels", "stock-page"),
            ("media", "playlists", "playlist-page"),
        )
    )
    by, team = lab.rng.choice(("alice", "flux", "carol")), lab.rng.choice(("ci", "argocd"))
    signatures = _Signatures(lab)
    like = App("", abroad=("registry.corp.example",), serves=False)
    await lab.app("platform", POLICY, like=like, tag="1.14.1")
    stateful = App("", serves=False)
    await lab.app(namespace, name, like=stateful, kind="StatefulSet", replicas=2, tag="4.0.2")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), tag="2.2.0")
    await rolled(lab, "platform", POLICY, "1.14.1")
    await rolled(lab, namespace, name, "4.0.2")
    signatures.known |= {image for pod in lab.world["Pod"].values() for image in images(pod)}
    webhook = Webhook(signatures.review, service=("platform", POLICY))
    await webhook.start()
    lab.servers.append(webhook)
    made = configuration(POLICY, webhook, seconds=PATIENT)
    await lab.apply(made)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)

    async def release(tag: str) -> None:
        """Of the StatefulSet. Raises RefusedError."""
        [there] = lab.world["StatefulSet"][namespace, name]["spec"]["template"]["spec"]["containers"]
        image = f"{str(there['image']).rsplit(':', 1)[0]}:{tag}"
        body = {"spec": {"template": {"spec": {"containers": [{**there, "image": image}]}}}}
        await lab.edit(team, "StatefulSet", namespace, name, body)

    await lab.until(lambda: ("", POLICY) in lab.world["ValidatingWebhookConfiguration"])
    lab.alert_lacking(namespace, name, seconds=20)
    lab.alert_errors(namespace, front)
    await release("4.0.3")  # as each week
    await rolled(lab, namespace, name, "4.0.3")
    await lab.until(lab.is_well)
    yield
    body = {"webhooks": [{**made["webhooks"][0], "timeoutSeconds": HASTY}]}
    await lab.culprit(by, "update", "ValidatingWebhookConfiguration", "", POLICY, body)
    await lab.pause(lab.rng.uniform(7, 14))
    await release("4.1.0")


ROUTES, GATEWAY, TUNER = "mesh.corp.example", "page-gateway", "timeout-tuner"
DURATION = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"
"""What the gateway's own kind takes for a time since its last version: whole numbers of a unit."""
MARGIN, WORTH_IT = 3.0, 0.04
"""How many times as long as an answer takes a caller is to wait, and from which difference on that is written."""
EVENING, SLOWER = 2.3, 1.5


def _schema(*, strict: bool) -> Json:
    """Of routes."""
    text: Json = {"type": "string"}
    timeout = {**text, "pattern": DURATION} if strict else text
    spec = {"type": "object", "properties": {"service": text, "timeout": timeout}}
    return {"type": "object", "properties": {"spec": spec}}


def _defined(*, strict: bool) -> Json:
    """A change of the definition, which has one version."""
    schema = {"openAPIV3Schema": _schema(strict=strict)}
    return {"spec": {"versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}}


def _written(seconds: float) -> str:
    """As Go writes a duration: of less than a second in milliseconds."""
    return f"{seconds * 1000:.0f}ms" if round(seconds, 2) < 1 else f"{round(seconds, 2):g}s"


def _read(duration: str) -> float:
    return float(duration[:-2]) / 1000 if duration.endswith("ms") else float(duration[:-1])


@dataclass
class _Page:
    """What a route leads to: the more it is asked, the later it answers."""

    namespace: str
    name: str
    usual: float
    idle_seconds: float
    asked: float = 0.0

    @property
    def seconds(self) -> float:
        """Which an answer takes in the mean."""
        return self.idle_seconds * (1 + SLOWER * (self.asked / self.usual - 1))

    def later_than(self, seconds: float) -> float:
        """The share of answers that take longer, as they are spread in four steps of work."""
        steps = 4 * seconds / self.seconds
        return math.exp(-steps) * (1 + steps + steps**2 / 2 + steps**3 / 6)


@dataclass
class _Gateway:
    """It waits for each page as long as the route of it says; another program keeps that up to date."""

    kind: Kind
    pages: list[_Page]
    timeouts: dict[str, float] = field(default_factory=dict)
    refused: int = 0

    async def follow(self, process: Process) -> None:
        listed = await process.api.call("GET", self.kind.path("platform"))
        for one in listed.body.get("items", []):
            self.timeouts[one["metadata"]["name"]] = _read(one["spec"]["timeout"])

    async def tune(self, process: Process) -> None:
        """By what it has measured of each page."""
        listed = await process.api.call("GET", self.kind.path("platform"))
        there = {one["metadata"]["name"]: one for one in listed.body.get("items", [])}
        for page in self.pages:
            wanted = MARGIN * page.seconds * process.rng.uniform(0.99, 1.01)
            found = there.get(page.name)
            if found and abs(wanted / _read(found["spec"]["timeout"]) - 1) > WORTH_IT:
                where = self.kind.path("platform", page.name)
                done = await process.api.call("PATCH", where, {"spec": {"timeout": _written(wanted)}})
                if not done.ok:
                    self.refused += 1
                    about: Json = {"kind": self.kind.name, **found}
                    await tell(process, about, "Warning", "TimeoutNotSet", str(done.body.get("message")), by=TUNER)

    def asked(self) -> float:
        return sum(page.asked for page in self.pages)

    def given_up(self, _: Container) -> float:
        """Of all that it is asked."""
        late = sum(page.asked * page.later_than(self.timeouts.get(page.name, 5.0)) for page in self.pages)
        return late / self.asked()


@family(
    "A chart's new definition says how a time has to be written: in whole numbers. What sets how long a gateway waits"
    " for each page writes milliseconds by day, which are whole; in the evening a page takes longer, more than a second"
    " is written with a fraction, and answered with 422: the gateway goes on to give up as early as by day.",
    joined=47,
)
async def in_fractions(lab: Lab) -> AsyncIterator[None]:
    """As the Gateway API defines a duration (GEP-2257), which is less than what Go writes."""
    busy, *others = lab.rng.sample(
        (("shop", "offers"), ("media", "concerts"), ("search", "similar"), ("payments", "instalments")), 3
    )
    by = lab.rng.choice(("flux", "argocd", "bob"))
    kind = await lab.custom("PageRoute", ROUTES, _schema(strict=False))
    definition = f"{kind.plural}.{ROUTES}"
    await lab.served(kind)
    pages = [_Page(*busy, lab.rng.uniform(24, 30), lab.rng.uniform(0.25, 0.28))]
    pages += [_Page(*place, lab.rng.uniform(8, 14), lab.rng.uniform(0.1, 0.2)) for place in others]
    gateway = _Gateway(kind, pages)
    for page in pages:
        page.asked = page.usual
        like = App("", asked=partial(getattr, page, "asked"), latency=partial(lambda page, _: page.seconds, page))
        await lab.app(page.namespace, page.name, like=like, replicas=2, tag="3.1.0")
        spec = {"service": f"{page.name}.{page.namespace}", "timeout": _written(MARGIN * page.seconds)}
        meta = {"namespace": "platform", "name": page.name}
        await lab.apply({"apiVersion": f"{ROUTES}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
        lab.reserve(page.namespace, page.name)
    upstreams = tuple((page.namespace, page.name) for page in pages)
    reads, writes = (ROUTES, kind.plural, "get,list,watch"), (ROUTES, kind.plural, "get,list,watch,patch")
    follows = every(1.2, gateway.follow)
    app = await lab.controller("platform", GATEWAY, follows, reads, upstreams=upstreams, replicas=3, tag="1.4.2")
    app.serves, app.asked, app.failing, app.fails_with = True, gateway.asked, gateway.given_up, lambda _: "504"
    events = ("", "events", "create")
    await lab.controller("platform", TUNER, every(2, gateway.tune), writes, events, replicas=1, tag="0.9.0")
    await lab.until(lambda: len(backends(lab.world, "platform", GATEWAY)) == 3)
    await publish(lab, "platform", GATEWAY)
    lab.measure("timeouts_not_set_total", lambda: gateway.refused, "counter", namespace="platform", service=TUNER)
    lab.alert_errors("platform", GATEWAY)
    lab.alert_ingress_errors("platform", "platform")
    await rolled(lab, "platform", GATEWAY, "1.4.2")
    await lab.pause(6)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(1, 6), cluster=lab.rng.choice(("staging", "eu-2"))):
        await lab.edit(by, "CustomResourceDefinition", "", definition, _defined(strict=True))
        await lab.pause(2)
        await lab.roll(by, "platform", GATEWAY, "1.5.0")
        await rolled(lab, "platform", GATEWAY, "1.5.0")
        await lab.pause(5)
    await lab.edit("admin", "CustomResourceDefinition", "", definition, _defined(strict=False))
    await lab.roll("admin", "platform", GATEWAY, "1.4.2")
    await rolled(lab, "platform", GATEWAY, "1.4.2")
    await lab.pause(4)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, _defined(strict=True))
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll(by, "platform", GATEWAY, "1.5.0")
    await lab.pause(lab.rng.uniform(12, 18))
    while pages[0].asked < EVENING * pages[0].usual:
        pages[0].asked += pages[0].usual * lab.rng.uniform(0.06, 0.12)
        await lab.pause(1)
