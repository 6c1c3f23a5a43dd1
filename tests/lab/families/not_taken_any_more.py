"""Not taken any more: what is large or long by an Ingress, a route by its controller, and a name by the DNS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.company import COREFILE
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import annotated, rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import DNS, INGRESS_CLASS, INGRESS_CONTROLLER, backends
from tests.lab.scenario import family

# -- one Ingress

NGINX = "nginx.ingress.kubernetes.io"
LIMITS = (
    ("proxy-body-size", "200m", ("4m", "10m"), "413", "uploads"),
    ("proxy-read-timeout", "900", ("30", "60"), "504", "reports"),
)
"""What one Ingress has more of than others, what it gets, what those are answered who need more, and what they want."""


@family(
    "The limit of one Ingress for the size of a body, or for the time of an answer, is lowered, as all others have less"
    " and nobody remembers why. Pages are shown as ever. Whoever uploads something large gets 413, or 504 whoever waits"
    " for a long report.",
    joined=103,
)
async def smaller_for_one(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose customers said that it only fails with large ones."""
    key, usual, lower, code, what = lab.rng.choice(LIMITS)
    namespace, name, (away, page) = lab.rng.choice(
        (
            ("shop", "supplier-portal", ("media", "uploads")),
            ("payments", "invoice-portal", ("shop", "frontend")),
            ("media", "press-portal", ("search", "query")),
            ("search", "feed-portal", ("payments", "checkout")),
        )
    )
    by, minor = lab.rng.choice(("flux", "argocd", "ci", *TEAMS)), lab.rng.randrange(2, 40)
    share = lab.rng.uniform(0.1, 0.3)
    asked, less = lab.rng.uniform(20, 28), lab.rng.choice(lower)

    def is_low() -> bool:
        told = lab.world["Ingress"].get((namespace, namespace), {}).get("metadata", {}).get("annotations", {})
        return bool(told.get(f"{NGINX}/{key}") == less)

    shows = Lately(lab, is_low)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="40"))
    refused = lambda _: share if shows() else 0.0  # noqa: E731
    like = App("", serves=False, asked=lambda: asked, failing=refused, fails_with=lambda _: code)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    for place in ((namespace, name), (away, page)):
        await publish(lab, *place)
        lab.alert_ingress_errors(place[0], place[0])
    own = {f"{NGINX}/{key}": usual, f"{NGINX}/proxy-buffering": "off"}
    await lab.edit("admin", "Ingress", namespace, namespace, {"metadata": {"annotations": own}})
    done = lab.adding_up(lambda: 0.0 if shows() else share * asked)
    lab.measure(f"{what}_done_total", done, "counter", namespace=namespace, service=name)
    summary = f"hardly any {what} of {namespace}/{name} are done"
    lab.alert(f"{what.capitalize()}NotDone", shows, summary, 12, namespace=namespace, service=name)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"BATCH": "60"}})

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "Ingress", away, away, annotated(proxy_body_size="16m"))
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 13))
    if lab.rng.random() < 0.5:
        await lab.edit(lab.rng.choice(TEAMS), "Ingress", namespace, namespace, annotated(proxy_buffering="on"))
        await lab.pause(lab.rng.uniform(4, 8))
    body = {"metadata": {"annotations": {f"{NGINX}/{key}": less}}}
    await lab.culprit(by, "update", "Ingress", namespace, namespace, body)
    lab.start(afterwards())


# -- their controller

BEFORE, AFTER = "v1.11.8", "v1.13.3"
"""From 1.12 on the controller looks closely at paths and at what annotations say, unless it is told not to."""
ROUTE = ("/v[12]/{}/(.*)", "/{}/")


@dataclass
class _Route:
    """One route of an Ingress, which an older controller has taken as it is written."""

    lab: Lab
    shows: Lately | None = None

    def lost(self) -> float:
        """The share of the controller's pods that do not take it."""
        there = [images(one)[0] for one in backends(self.lab.world, *INGRESS_CONTROLLER)]
        return sum(one.endswith(f":{AFTER}") for one in there) / max(1, len(there))

    def fails(self, _: Container) -> float:
        self.shows = self.shows or Lately(self.lab, lambda: self.lost() > 0)
        return 0.98 * self.lost() if self.shows() else 0.0


@family(
    "The controller of Ingresses is upgraded. The new version takes no path with a regular expression that is declared"
    " as a plain one, or leaves out an annotation whose value is not quite as it should be. One app has such a route,"
    " and whoever asks for it gets 404, or 400 as the app is spoken to without encryption.",
    joined=103,
)
async def paths_not_as_before(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose upgrade was good in three clusters, and the fourth had one Ingress of 2019."""
    namespace, name, front, (away, page), what = lab.rng.choice(
        (
            ("shop", "stock-feed", "stock-page", ("media", "uploads"), "stock"),
            ("payments", "bank-hooks", "hooks-page", ("search", "query"), "hooks"),
            ("media", "device-api", "device-page", ("shop", "frontend"), "devices"),
            ("search", "export-api", "export-page", ("payments", "checkout"), "exports"),
        )
    )
    by, minor = lab.rng.choice(("flux", "argocd", "ci", *TEAMS)), lab.rng.randrange(2, 40)
    is_regex = lab.rng.random() < 0.5
    route, code = _Route(lab), "404" if is_regex else "400"
    await lab.roll("admin", *INGRESS_CONTROLLER, BEFORE)
    await rolled(lab, *INGRESS_CONTROLLER, BEFORE)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="100"))
    like = App("", serves=False, asked=lambda: 24.0, failing=route.fails, fails_with=lambda _: code)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"1.{minor}.0", config=name)
    await lab.app(namespace, front, like=App("", asked=lambda: 20.0), replicas=2, tag="6.1.5")
    await rolled(lab, namespace, name, f"1.{minor}.0")
    await rolled(lab, namespace, front, "6.1.5")
    host = await publish(lab, namespace, front)
    await publish(lab, away, page)
    notes = {f"{NGINX}/use-regex": "true", f"{NGINX}/rewrite-target": f"/{what}/$1"}
    if not is_regex:
        notes = {f"{NGINX}/backend-protocol": "HTTPS ", f"{NGINX}/proxy-ssl-verify": "off"}
    path = ROUTE[0 if is_regex else 1].format(what)
    to: Json = {"service": {"name": name, "port": {"number": 80}}}
    kind = lab.rng.choice(("Prefix", "Exact")) if is_regex else "Prefix"
    rule: Json = {"host": host, "http": {"paths": [{"path": path, "pathType": kind, "backend": to}]}}
    meta = {"namespace": namespace, "name": name, "annotations": notes}
    await lab.apply({"kind": "Ingress", "metadata": meta, "spec": {"ingressClassName": INGRESS_CLASS, "rules": [rule]}})

    def refused() -> float:
        counts = lab.traffic.of_ingress(namespace, name, 10.0)
        return counts.answers[code] / max(1, counts.answers.total())

    summary = f"more than 20% of the requests to Ingress {namespace}/{name} are answered with {code}"
    told = {"namespace": namespace, "ingress": name}
    lab.alert("NginxHighHttp4xxErrorRate", lambda: refused() > 0.2, summary, 5, **told)
    url = f"https://{host}/v2/{what}/status" if is_regex else f"https://{host}{path}status"

    def is_lost() -> bool:
        return route.lost() > 0.5 and bool(route.shows and route.shows())

    told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": url}
    lab.measure("probe_http_status_code", lambda: float(code) if is_lost() else 200.0, **told)
    lab.alert("ProbeFailed", is_lost, f"{url} is answered with {code}", 8, job="blackbox", instance=url)
    for one in ((namespace, namespace), (namespace, name), (away, away)):
        lab.alert_ingress_errors(*one)
    lab.reserve(namespace, name, front)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"PAGE_SIZE": "80"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "6.1.6")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "Ingress", away, away, annotated(proxy_read_timeout="90"))
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(8, 13))
    await lab.roll(by, *INGRESS_CONTROLLER, AFTER, culprit=True)
    lab.start(afterwards())


# -- names

ZONE = "corp.internal"
LATE_SECONDS = 2.1


SEQUENTIAL = "forward . 10.20.0.53 10.20.1.53 {\n        policy sequential\n    }"
MOVED = f"    rewrite name suffix .{ZONE} .platform.svc.cluster.local\n"
HOSTS = f"    hosts {{\n        10.20.4.11 wiki.{ZONE}\n        10.20.4.12 git.{ZONE}\n    }}\n"
LONGER = COREFILE.replace("cache 30", "cache 60")
EDITED = {
    "zone": f"{LONGER}{ZONE}:53 {{\n    errors\n{HOSTS}}}\n",
    "rewrite": LONGER.replace("    kubernetes", f"{MOVED}    kubernetes"),
    "late": LONGER.replace("forward . /etc/resolv.conf", SEQUENTIAL),
}
"""What becomes of the Corefile: a zone of the company's own, names that are written anew, or other resolvers."""


@family(
    "The Corefile is edited. The company's own zone is entered, or names of it are written anew for a move, and a name"
    " that an app needs is in neither; or other resolvers are asked, the first of which does not answer, and whatever"
    " is outside of the cluster is found two seconds late.",
    joined=103,
)
async def names_of_the_house(lab: Lab) -> AsyncIterator[None]:
    """As those tell for whom it was always DNS, and that day it was."""
    (home, name, front), (away, other, page) = lab.rng.sample(
        (
            ("shop", "erp-lookup", "delivery-page"),
            ("payments", "core-banking", "balance-page"),
            ("media", "archive-lookup", "archive-page"),
            ("search", "thesaurus", "terms-page"),
        ),
        2,
    )
    by, minor = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.randrange(2, 40)
    change = lab.rng.choice(("zone", "rewrite", "late"))
    host, partner = f"{lab.rng.choice(('erp', 'mainframe', 'ldap'))}.{ZONE}", "api.partner.example"

    def is_so(one: str) -> bool:
        return bool(lab.world["ConfigMap"][DNS[0], "coredns"]["data"]["Corefile"] == EDITED[one])

    is_late = Lately(lab, lambda: is_so("late"))

    def check(_: Container) -> Problem | None:
        why = f"HTTP probe failed with statuscode: 503 (lookup {host}: no such host)"
        return Problem("unready", f"probe failed: {why}") if is_so("rewrite") else None

    def unknown() -> float:
        """Names a second that are not there: some are asked for at all times."""
        return 43.0 if is_so("zone") or is_so("rewrite") else 3.0

    for namespace, one, before, needs in ((home, name, front, host), (away, other, page, partner)):
        like = App("", abroad=(needs,), asked=lambda: 17.0, latency=lambda _: LATE_SECONDS if is_late() else 0.0)
        if needs == host:
            like.check = check
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", CACHE_SECONDS="30"))
        await lab.app(namespace, one, like=like, replicas=3, tag=f"4.{minor}.0", config=one)
        await rolled(lab, namespace, one, f"4.{minor}.0")
        await set_before(lab, namespace, before, one)
        lab.alert_lacking(namespace, one)
        lab.alert_slow(namespace, one)
        lab.alert_ingress_errors(namespace, namespace)
    told = {"namespace": DNS[0], "service": DNS[1]}
    lab.measure("coredns_dns_responses_total", lab.adding_up(unknown), "counter", **told, rcode="NXDOMAIN")
    unwell = lab.adding_up(lambda: 2.0 if is_late() else 0.0)
    lab.measure("coredns_forward_healthcheck_failures_total", unwell, "counter", **told, to="10.20.0.53:53")
    lab.reserve(*DNS)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, home, front)

    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", DNS[0], "coredns", {"data": {"Corefile": LONGER}})
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"4.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 11))
    await change_page(lab, away, page)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.culprit(by, "update", "ConfigMap", DNS[0], "coredns", {"data": {"Corefile": EDITED[change]}})
    lab.start(afterwards())
