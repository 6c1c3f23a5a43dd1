"""More than was meant: a namespace that somebody still called, and a canary that gets half of all requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends, unreachable
from tests.lab.programs import every, getting
from tests.lab.scenario import family


@dataclass
class Lately:
    """What holds shows only once it has held for the lag of the variation."""

    lab: Lab
    holds: Callable[[], bool]
    since: float = 0.0

    def __call__(self) -> bool:
        if not self.holds():
            self.since = 0.0
            return False
        self.since = self.since or now().timestamp()
        return now().timestamp() - self.since >= self.lab.lag


@family(
    "A script deletes namespaces that nobody has deployed to for half a year. In one of them runs a service that an app"
    " of another team has been calling since it was tried there.",
    joined=90,
)
async def thought_unused(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose page failed in the minute in which three old namespaces went."""
    namespace, name, front, home, service = lab.rng.choice(
        (
            ("payments", "invoice-totals", "invoice-page", "fx-poc", "fx-rates"),
            ("shop", "size-advice", "size-page", "fit-trial", "fit-model"),
            ("media", "clip-tagger", "clip-page", "labs-2025", "tag-model"),
            ("search", "query-rewriter", "rewriter-page", "hackweek", "synonyms"),
        )
    )
    old = lab.rng.sample(("demo-autumn", "perf-2025", "onboarding-2", "spike-graphql", "team-blue-old"), 2)
    by, cannot_do_without = lab.rng.choice((*TEAMS, "janitor")), lab.rng.random() < 0.5
    share, minor = lab.rng.uniform(0.3, 0.8), lab.rng.randrange(2, 30)
    for one, deployed in ((home, service), *((one, "web") for one in old)):
        await lab.namespace(one)
        await lab.apply(objects.config_map(one, deployed, LOG_LEVEL="info"))
        await lab.app(one, deployed, replicas=lab.rng.choice((1, 2)), tag="0.3.1", config=deployed)
        await rolled(lab, one, deployed, "0.3.1")
    await lab.until(lambda: backends(lab.world, home, service))
    rights = ("", "namespaces", "get,list,delete")
    program = every(6.0, getting(path("Namespace")))
    await lab.controller("platform", "namespace-janitor", program, rights, replicas=1, tag="1.2.0")
    await rolled(lab, "platform", "namespace-janitor", "1.2.0")
    await lab.robot("janitor", "platform", "namespace-janitor", "kubectl/v1.34.1 (linux/amd64) kubernetes/93248f9")
    is_gone = Lately(lab, lambda: not backends(lab.world, home, service))

    def fails(container: Container) -> float:
        is_shut = is_gone() and bool(unreachable(lab.world, container.pod, home, service))
        return share if is_shut and not cannot_do_without else 0.0

    env: list[Json] = []
    if not cannot_do_without:
        env = [{"name": f"{service.replace('-', '_').upper()}_URL", "value": f"http://{service}.{home}.svc:80"}]
    upstreams = ((home, service),) if cannot_do_without else ()
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    like = App("", upstreams=upstreams, asked=lambda: 17.0, failing=fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"4.{minor}.0", config=name, env=env)
    await rolled(lab, namespace, name, f"4.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.alert_lacking(namespace, name, seconds=8)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"4.{minor}.1")
    await lab.pause(lab.rng.uniform(6, 12))
    for one in sorted((home, *old)):
        if one == home:
            await lab.culprit(by, "delete", "Namespace", "", one)
        else:
            await lab.who[by].must("DELETE", path("Namespace", None, one))
        await lab.pause(lab.rng.uniform(0.3, 0.8))
    lab.start(afterwards())


ROUTES, ANY = "networking.istio.io", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
FEW, ALL_ASKED = 2, 26.0
"""Of a hundred requests those that the canary gets at first; and of all a second."""


@dataclass
class _Route:
    """How requests are split, by the VirtualService as it is there; who sends them knows of it a lag later."""

    lab: Lab
    namespace: str
    name: str
    told: int = FEW
    shown: int = FEW
    at: float = field(default_factory=lambda: now().timestamp())

    def rules(self, canary: int) -> Json:
        shares = (("stable", 100 - canary), ("canary", canary))
        to = [{"destination": {"host": self.name, "subset": one}, "weight": share} for one, share in shares]
        return {"spec": {"hosts": [self.name], "http": [{"route": to}]}}

    def canary(self) -> int:
        """Of a hundred."""
        there = self.lab.world["VirtualService"].get((self.namespace, self.name))
        if there is None:
            return self.shown
        told = int(there["spec"]["http"][0]["route"][1]["weight"])
        if told != self.told:
            self.told, self.at = told, now().timestamp()
        if now().timestamp() - self.at >= self.lab.lag:
            self.shown = told
        return self.shown

    def weight(self, container: Container) -> float:
        """A pod's part of what its subset gets."""
        track = container.pod["metadata"]["labels"]["track"]
        ready = backends(self.lab.world, self.namespace, self.name)
        like = [one for one in ready if one["metadata"]["labels"]["track"] == track]
        return (self.canary() if track == "canary" else 100 - self.canary()) / max(1, len(like))

    def asked(self, part: float) -> float:
        """A second, of the canary, that part of them."""
        return ALL_ASKED * self.canary() / 100 * part


@family(
    "A new version of an app gets two of a hundred requests for a start, and fails most of them. Nobody looks at the"
    " errors of the canary alone; some time later it is to get half of all.",
    joined=90,
)
async def half_to_canary(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose canary was well, by a dashboard of the whole service."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "basket-rules", "basket-page"),
            ("payments", "instalments", "instalment-page"),
            ("media", "recommendations", "home-page"),
            ("search", "ranker", "hits-page"),
        )
    )
    by, minor, raised = lab.rng.choice((*TEAMS, "ci", "flux")), lab.rng.randrange(2, 30), lab.rng.choice((40, 50))
    old, new, share = f"2.{minor}.4", f"2.{minor + 1}.0", lab.rng.uniform(0.6, 0.95)
    route = _Route(lab, namespace, name)
    image = f"registry.corp.example/{namespace}/{name}"
    kinds = [await lab.custom(kind, ROUTES, ANY) for kind in ("VirtualService", "DestinationRule")]
    await lab.served(*kinds)
    fails = lambda container: share if container.tag == new else 0.0  # noqa: E731
    lab.apps[image] = App(image, asked=lambda: ALL_ASKED, failing=fails, weight=route.weight)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    for track, tag, deployed in (("stable", old, name), ("canary", new, f"{name}-canary")):
        made = objects.deployment(namespace, deployed, f"{image}:{tag}", replicas=2, config=name)
        labels = {"app.kubernetes.io/name": name, "track": track}
        made["spec"]["selector"]["matchLabels"] = made["spec"]["template"]["metadata"]["labels"] = labels
        await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    subsets = [{"name": one, "labels": {"track": one}} for one in ("stable", "canary")]
    meta = {"namespace": namespace, "name": name}
    for kind, rules in (
        ("DestinationRule", {"spec": {"host": name, "subsets": subsets}}),
        ("VirtualService", route.rules(FEW)),
    ):
        await lab.apply({"kind": kind, "metadata": meta, **rules})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 4)
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name, "reporter": "destination", "destination_version": new}
    for code, part in (("500", share), ("200", 1 - share)):
        counted = lab.adding_up(partial(route.asked, part))
        lab.measure("istio_requests_total", counted, "counter", **told, response_code=code)
    for one in (name, front):
        lab.alert_errors(namespace, one, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"LOG_LEVEL": "warn"}})

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 11))
    await lab.culprit(by, "update", "VirtualService", namespace, name, route.rules(raised))
    lab.start(afterwards())
