"""In which language callers speak: a rule of a mesh has all of them send plain text to one app, which takes none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab.api import Json, Kind
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.between_proxies import CALLS, MESH, PROXY, proxied
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.programs import changes
from tests.lab.scenario import family

NETWORKING = "networking.istio.io"
MUTUAL, PLAIN = "ISTIO_MUTUAL", "DISABLE"
ASKED = (26.0, 34.0)
"""Requests a second, at least and at most, of each app that calls."""


@dataclass
class _Mesh:
    """Proxies of those who call an app of the mesh, which takes no plain text."""

    rule: Kind
    host: str
    asked: float
    """Requests a second of each app that calls."""
    spoken: str = MUTUAL

    async def push(self, process: Process) -> None:
        """As istiod: what a rule says of a host all proxies have a moment later; without one they speak as all do."""

        def told(one: Json) -> None:
            if one["spec"]["host"] == self.host:
                self.spoken = one["spec"].get("trafficPolicy", {}).get("tls", {}).get("mode", MUTUAL)

        await changes(process, self.rule.path(), told, of_all=True)

    def reset(self, _: Container) -> float:
        """The share of its requests that an app fails as its proxy gets no answer."""
        return CALLS if self.spoken == PLAIN else 0.0

    def calls(self) -> float:
        """Those of both that get through."""
        return 2 * self.asked * CALLS if self.spoken == MUTUAL else 0.0

    def refused(self) -> float:
        """Those of each that do not."""
        return self.asked * CALLS if self.spoken == PLAIN else 0.0


@family(
    "A team gives its app a rule of the mesh, for how many connections callers may have and when one of its pods is"
    " left out. It is copied from an example of old, which also says that callers speak plain text. In this mesh nobody"
    " takes any: the proxies of those who call are reset, and answer 503 themselves.",
    joined=57,
)
async def plain_text_rule(lab: Lab) -> AsyncIterator[None]:
    """As among the causes that a page on strict meshes lists: a rule whose mode does not match (fixwikihub.com)."""
    namespace, called, front, home, caller = lab.rng.choice(
        (
            ("rail", "fares", "timetable-page", "partners", "fare-feed"),
            ("hotels", "vacancies", "rooms-page", "agencies", "rooms-feed"),
            ("clinic", "appointments", "booking-page", "insurers", "cover-check"),
        )
    )
    by, replicas, host = lab.rng.choice(("bob", "flux", "alice")), 3, f"{called}.{namespace}.svc.cluster.local"
    kind = await lab.custom("PeerAuthentication", MESH, ANY)
    rule = await lab.custom("DestinationRule", NETWORKING, ANY)
    mesh = _Mesh(rule, host, lab.rng.uniform(*ASKED))
    injected = {"metadata": {"labels": {"istio-injection": "enabled"}}}
    for one in ("istio-system", namespace, home):
        await lab.namespace(one)
    for one in (namespace, home):
        await lab.edit("admin", "Namespace", "", one, injected)
    await lab.served(kind, rule)
    strict: Json = {"mtls": {"mode": "STRICT"}}
    from_outside = {"selector": {"matchLabels": {"app.kubernetes.io/name": front}}, "mtls": {"mode": "PERMISSIVE"}}
    for place, name, spec in (("istio-system", "default", strict), (namespace, front, from_outside)):
        meta = {"namespace": place, "name": name}
        await lab.apply({"apiVersion": f"{MESH}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (MESH, kind.plural, "get,list,watch"), (NETWORKING, rule.plural, "get,list,watch")
    await lab.controller("istio-system", "istiod", mesh.push, *rules, tag="1.26.2")
    lab.apps[PROXY] = App(PROXY)
    await lab.app(namespace, called, like=App("", asked=mesh.calls), replicas=replicas, tag="3.4.0")
    callers = (namespace, front), (home, caller)
    for place, name in callers:
        like = App("", upstreams=((namespace, called),), failing=mesh.reset, asked=lambda: mesh.asked)
        await lab.app(place, name, like=like, replicas=2, tag="2.11.0")
    for place, name in ((namespace, called), *callers):
        await lab.until(partial(lab.world["Deployment"].get, (place, name)))
        await proxied(lab, place, name, is_in=True)
    await publish(lab, namespace, front)
    for place, name in callers:
        told = {"namespace": place, "service": name, "reporter": "source", "destination_service": host}
        told |= {"response_code": "503", "response_flags": "UC"}
        lab.measure("istio_requests_total", lab.adding_up(mesh.refused), "counter", **told)
        lab.alert_errors(place, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.edit(by, "Deployment", namespace, called, {"spec": {"replicas": replicas + 1}})
    await lab.pause(lab.rng.uniform(5, 12))
    limits = {"tcp": {"maxConnections": 100}, "http": {"http1MaxPendingRequests": 64, "maxRequestsPerConnection": 10}}
    outliers = {"consecutive5xxErrors": 7, "interval": "5m", "baseEjectionTime": "15m"}
    policy = {"connectionPool": limits, "outlierDetection": outliers, "tls": {"mode": PLAIN}}
    made = {"apiVersion": f"{NETWORKING}/v1", "kind": rule.name, "metadata": {"name": called}}
    made |= {"spec": {"host": host, "trafficPolicy": policy}}
    await lab.culprit(by, "create", rule.name, namespace, called, made)
