"""What is not found where it is looked for: a setting that has another name since, a Service by its short name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import DNS, backends
from tests.lab.scenario import family

OF_OLD, OF_READS, OF_WRITES = "SEARCH_INDEX", "INDEX_READ_ALIAS", "INDEX_WRITE_ALIAS"
"""Settings of an app: the one that the code of old reads, and those that took its place."""
SLOWER_SECONDS = 0.2
"""By which a new version answers later than the last one."""
DOTS_BY_KUBELETS, ZONES = 5, 3
"""From how many dots on a name is asked for as it is, where a pod says nothing, and in how many zones it is looked for
before that."""
LOOKUPS, OTHER_LOOKUPS = 8.0, 60.0
"""A second, of one process of those that are looked at here, and of all others together."""


@dataclass
class _Indices:
    """A search engine's index, which processes call by the name that they have read at their start."""

    there: str
    fallback: str
    old: str
    read: dict[str, tuple[float, Mapping[str, str]]] = field(default_factory=dict)
    """By uid, how old a process was as it was looked at last, and the settings of its start."""

    def settings(self, container: Container) -> Mapping[str, str]:
        uid = uid_of(container.pod)
        age, settings = self.read.get(uid, (0.0, dict(container.config)))
        if container.seconds < age:
            settings = dict(container.config)
        self.read[uid] = container.seconds, settings
        return settings

    def is_missed(self, container: Container) -> bool:
        """Whether a process asks for an index that there is not: each version reads a setting of its own."""
        key = OF_OLD if container.tag == self.old else OF_READS
        return self.settings(container).get(key, self.fallback) != self.there


@family(
    "A release brings its settings under new names: its ConfigMap is changed with its image. It is a little slow, and"
    " somebody undoes the rollout, which puts the image back and leaves the ConfigMap: the old code does not find its"
    " setting, goes by what it was written with, and asks for an index that has not been there for long.",
    joined=59,
)
async def settings_stay(lab: Lab) -> AsyncIterator[None]:
    """As told of rollbacks that lie, and of what an undone rollout does not put back (nivelepsilon.com)."""
    namespace, name, front, index = lab.rng.choice(
        (
            ("shop", "offer-search", "offers-page", "offers"),
            ("media", "title-search", "titles-page", "titles"),
            ("search", "article-search", "articles-page", "articles"),
        )
    )
    engine, number = f"{name}-engine", lab.rng.randrange(3, 20)
    old, new, alias = f"3.{number}.2", f"3.{number + 1}.0", f"{index}-v{lab.rng.randrange(5, 12)}"
    team, by = lab.rng.choice(("ci", "argocd")), lab.rng.choice(("alice", "bob", "carol"))
    indices, share = _Indices(alias, index, old), lab.rng.uniform(0.45, 0.7)
    await lab.app(namespace, engine, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="2.19.1")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="40", **{OF_OLD: alias}))
    like = App("", upstreams=((namespace, engine),), asked=lambda: 26.0)
    like.failing = lambda one: share if indices.is_missed(one) and one.seconds >= lab.lag else 0.0
    like.latency = lambda one: SLOWER_SECONDS if one.tag == new else 0.0
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="5.12.0")
    await rolled(lab, namespace, name, old)
    await lab.until(lambda: backends(lab.world, namespace, front) and len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)

    def missed() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 26.0 * share * sum(map(indices.is_missed, there)) / max(1, len(there))

    asked = {"namespace": namespace, "service": name, "client_name": engine}
    for status, rate in (("200", lambda: 26.0 * share - missed()), ("404", missed)):
        lab.measure("http_client_requests_total", lab.adding_up(rate), "counter", **asked, status=status)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    body = {"data": {OF_OLD: None, OF_READS: alias, OF_WRITES: alias}}
    why = "the settings that the undone rollout left as they were: without this the old code would find its own"
    await lab.also(why, team, "update", "ConfigMap", namespace, name, body)
    await lab.roll(team, namespace, name, new)
    await rolled(lab, namespace, name, new)
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(by, namespace, name, old, culprit=True)


def _dots(pod: Json) -> int:
    """From how many dots on a pod asks for a name as it is."""
    options = pod["spec"].get("dnsConfig", {}).get("options", ())
    return next((int(one["value"]) for one in options if one["name"] == "ndots"), DOTS_BY_KUBELETS)


def _host(container: Container, variable: str) -> str:
    """Of the URL that a variable of its manifest has."""
    found = next(one["value"] for one in container.spec["env"] if one["name"] == variable)
    return str(found).split("//")[1].split(":")[0]


@dataclass
class _Callers:
    """Apps that call a Service of another namespace by its short name; musl looks in no zone for a name as it is."""

    lab: Lab
    variable: str
    apps: list[App] = field(default_factory=list)

    def is_lost(self, container: Container) -> bool:
        """Whether the name is asked for as it is, and in no zone after that: the GNU library would go on there."""
        return "alpine" in container.tag and _host(container, self.variable).count(".") >= _dots(container.pod)

    def found(self) -> float:
        """Names a second that are asked for and that there are: of each process one outside, and that Service."""
        return OTHER_LOOKUPS + LOOKUPS * sum(1 if self.is_lost(one) else 2 for one in self._running())

    def not_found(self) -> float:
        """The same, of names that there are not: in the zones, or as it is, before the one where it is."""
        before = (ZONES + 1 if _dots(one.pod) > 1 else 1 if self.is_lost(one) else 2 for one in self._running())
        return OTHER_LOOKUPS * 0.1 + LOOKUPS * sum(before)

    def _running(self) -> list[Container]:
        return [one.container for one in self.lab.kubelets.running() if one.app in self.apps]


@family(
    "Most of what the servers of names are asked for is not found, and so some apps are told to ask for each name with"
    " a dot as it is. They call an app of another namespace by its short name, which has one: the GNU library looks for"
    " it in the cluster's zones after that, and that of one app's image in none.",
    joined=59,
)
async def one_dot(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have drowned in NXDOMAIN and lowered ndots, and of images of Alpine (dev.to, hpe-storage)."""
    home, called, namespace, name, front, others = lab.rng.choice(
        (
            ("payments", "ledger", "shop", "gift-cards", "gift-page", (("shop", "returns"), ("media", "rentals"))),
            ("search", "query", "media", "video-search", "watch-page", (("media", "credits"), ("shop", "lookbook"))),
            ("shop", "catalog", "search", "price-facets", "deals-page", (("search", "trends"), ("media", "trailers"))),
        )
    )
    by, variable = lab.rng.choice(("alice", "carol", "flux")), f"{called.upper()}_URL"
    host = f"api.partner-{lab.rng.randrange(10, 90)}.example"
    callers, share = _Callers(lab, variable), lab.rng.uniform(0.4, 0.65)
    env = [{"name": variable, "value": f"http://{called}.{home}:80"}]
    reaches = ((home, called),)
    for place in others:
        like = App("", upstreams=reaches, abroad=(host,))
        callers.apps.append(await lab.app(*place, like=like, replicas=2, tag="2.7.0-bookworm", env=env))
    like = App("", upstreams=reaches, abroad=(host,), asked=lambda: 22.0)
    like.failing = lambda one: share if callers.is_lost(one) and one.seconds >= lab.lag else 0.0
    callers.apps.append(await lab.app(namespace, name, like=like, replicas=3, tag="1.18.3-alpine", env=env))
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="9.4.1")
    there = ((namespace, front), (namespace, name), *others)
    await lab.until(lambda: all(backends(lab.world, *place) for place in there))
    await publish(lab, namespace, front)
    lab.reserve(home, called)
    lab.reserve(namespace, name)
    for rcode, rate in (("NOERROR", callers.found), ("NXDOMAIN", callers.not_found)):
        told = {"namespace": DNS[0], "service": DNS[1], "rcode": rcode, "zone": "."}
        lab.measure("coredns_dns_responses_total", lab.adding_up(rate), "counter", **told)
    lab.alert_errors(namespace, name, 0.1)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    body = {"spec": {"template": {"spec": {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}}}}}
    first, last = lab.rng.sample(others, 2)
    await lab.edit(by, "Deployment", *first, body)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.culprit(by, "update", "Deployment", namespace, name, body)
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(by, "Deployment", *last, body)
