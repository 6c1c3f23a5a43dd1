"""Met by customers: a load balancer that is another one, and a path on which a version fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from tests.lab import objects
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import INGRESS_CONTROLLER, unserved
from tests.lab.programs import every, tell
from tests.lab.scenario import family

# -- a load balancer

CLOUD, OF_BALANCER = ("kube-system", "cloud-controller-manager"), "service.beta.kubernetes.io/aws-load-balancer"
SERVICE = path("Service", *INGRESS_CONTROLLER)
MADE_SECONDS, CHECKED_SECONDS = 5.0, 6.0
"""Until a load balancer that is made anew is there, and until one has found that nobody answers its checks."""
USUAL = {"scheme": "internet-facing", "type": "external", "healthcheck-port": "traffic-port"}
EDITS: tuple[dict[str, str], ...] = (
    {"scheme": "internal"},
    {"type": "nlb"},
    {"name": "prod-edge"},
    {"healthcheck-port": "10254", "healthcheck-protocol": "http"},
)
"""Inside only; of another controller, or of another name, and so made anew; or sent to nowhere, as no check is well."""


@dataclass
class _Balancer:
    """The one in front of the Ingresses' controller, and the record by which users come to it."""

    lab: Lab
    record: str = ""
    """The name of the load balancer that public names lead to, as somebody has once entered it."""
    unwell_since: float = 0.0
    seen: dict[str, float] = field(default_factory=dict)
    """When each name was first wanted."""

    def _asked(self) -> dict[str, str]:
        meta = self.lab.world["Service"][INGRESS_CONTROLLER]["metadata"]
        there = meta.get("annotations", {})
        prefix = f"{OF_BALANCER}-"
        return {key.removeprefix(prefix): value for key, value in there.items() if key.startswith(prefix)}

    def wanted(self) -> str:
        """The name of what is asked for: what cannot be changed of one that is there makes another one."""
        asked = self._asked()
        of = " ".join(asked.get(one, "") for one in ("scheme", "type", "name"))
        inside = "internal-" if asked.get("scheme") == "internal" else ""
        return f"{inside}k8s-ingressn-{sha256(of.encode()).hexdigest()[:18]}.elb.eu-west-1.amazonaws.com"

    def there(self) -> str:
        listed = self.lab.world["Service"][INGRESS_CONTROLLER].get("status", {}).get("loadBalancer", {})
        return str(next((one["hostname"] for one in listed.get("ingress", ())), ""))

    async def keep(self, process: Process) -> None:
        """As a cloud's controller."""
        found, name, at = await process.api.call("GET", SERVICE), self.wanted(), now().timestamp()
        if not found.ok or self.there() == name:
            return
        about = {**found.body, "kind": "Service"}
        if name not in self.seen:
            self.seen[name] = at
            await tell(process, about, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer", by=CLOUD[1])
        elif at - self.seen[name] >= MADE_SECONDS:
            status = {"status": {"loadBalancer": {"ingress": [{"hostname": name}]}}}
            await process.api.call("PATCH", f"{SERVICE}/status", status)
            await tell(process, about, "Normal", "EnsuredLoadBalancer", "Ensured load balancer", by=CLOUD[1])

    def healthy(self) -> float:
        """Nodes that it sends to."""
        is_checked = self._asked().get("healthcheck-port") == USUAL["healthcheck-port"]
        self.unwell_since = 0.0 if is_checked else self.unwell_since or now().timestamp()
        patience = CHECKED_SECONDS + self.lab.lag
        is_well = is_checked or now().timestamp() - self.unwell_since < patience
        return 6.0 if is_well else 0.0

    def is_reached(self) -> bool:
        """Whether somebody outside gets to the Ingresses' controller."""
        return self.there() == self.record and self.healthy() > 0


@family(
    "An annotation is edited of the Service by which the cloud makes the load balancer in front of all Ingresses. It is"
    " made anew and has another address, or is for the inside only, or finds nobody well by its new check. Pods and"
    " Ingresses are as they were, and nobody gets in.",
    joined=102,
)
async def another_balancer(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose DNS went on to lead to a load balancer that was not there any more."""
    fronts = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
    homes = lab.rng.sample(sorted(fronts), 3)
    by, other, change = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.choice(TEAMS), lab.rng.choice(EDITS)
    balancer, minor = _Balancer(lab), lab.rng.randrange(2, 40)

    def annotated(**named: str) -> Json:
        return {"metadata": {"annotations": {f"{OF_BALANCER}-{key}": value for key, value in named.items()}}}

    usual = annotated(**USUAL, **{"additional-resource-tags": "team=platform"})
    await lab.edit("admin", "Service", *INGRESS_CONTROLLER, {**usual, "spec": {"type": "LoadBalancer"}})
    rights = ("", "services", "get,list,watch"), ("", "services/status", "patch"), ("", "events", "create")
    await lab.controller(*CLOUD, every(1.0, balancer.keep), *rights, replicas=1, tag="v1.33.1")
    await rolled(lab, *CLOUD, "v1.33.1")
    await lab.until(balancer.there)
    balancer.record = balancer.there()
    lab.outside.reached = balancer.is_reached
    told = {"namespace": "monitoring", "service": "cloudwatch-exporter", "load_balancer": "ingress-nginx"}
    lab.measure("aws_networkelb_healthy_host_count", balancer.healthy, **told)
    for home in homes:
        host = await publish(lab, home, fronts[home])
        lab.alert_ingress_errors(home, home)
        url = f"https://{host}"
        answered = lambda host=host: balancer.is_reached() and not unserved(lab.world, host)  # noqa: E731
        told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": url}
        lab.measure("probe_success", lambda answered=answered: float(answered()), **told)  # type: ignore[misc]
        lost = lambda answered=answered: not answered()  # noqa: E731
        lab.alert("ProbeFailed", lost, f"{url} is not answered", 6, job="blackbox", instance=url)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        body = {"data": {"TIMEOUT_MS": lab.rng.choice(("600", "1200"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", homes[1], fronts[homes[1]], body)

    yield
    tags = annotated(**{"additional-resource-tags": f"team=platform,cost-center={lab.rng.randrange(1000, 9999)}"})
    await lab.edit(other, "Service", *INGRESS_CONTROLLER, tags)
    await lab.pause(lab.rng.uniform(6, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), homes[0], fronts[homes[0]], f"1.{minor}.3")
    await lab.pause(lab.rng.uniform(4, 8))
    if lab.rng.random() < 0.5:
        note = {"nginx.ingress.kubernetes.io/proxy-read-timeout": lab.rng.choice(("30", "90"))}
        await lab.edit(lab.rng.choice(TEAMS), "Ingress", homes[2], homes[2], {"metadata": {"annotations": note}})
    else:
        await lab.roll(lab.rng.choice(("flux", "argocd")), *INGRESS_CONTROLLER, "1.0.1")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.culprit(by, "update", "Service", *INGRESS_CONTROLLER, annotated(**change))
    lab.start(afterwards())


# -- a path

ASKED = 24.0


@dataclass
class _Paths:
    """An app, a version of which throws an exception on one of its paths."""

    lab: Lab
    new: str
    share: float
    """Of all requests, those on that path for which it does."""
    since: dict[str, float] = field(default_factory=dict)

    def fails(self, container: Container) -> float:
        if container.tag != self.new:
            return 0.0
        at = now().timestamp()
        begun = self.since.setdefault(uid_of(container.pod), at)
        return self.share if at - begun >= self.lab.lag else 0.0

    def thrown(self, app: App) -> float:
        """A second, of all pods."""
        there = [one.container for one in self.lab.kubelets.running() if one.app is app]
        return ASKED * sum(map(self.fails, there)) / max(1, len(there))


@family(
    "A new version of an app throws an exception on one path, for what a test does not have: a customer without an"
    " address, an item without a price. Its probes ask for another path, and its pods are ready. A share of its"
    " requests is answered with 500.",
    joined=102,
)
async def thrown_on_one_path(lab: Lab) -> AsyncIterator[None]:
    """As everybody has seen it on the first graph after a release."""
    namespace, name, front, other, uri, thrown = lab.rng.choice(
        (
            ("shop", "parcel-api", "parcels-page", "parcel-mails", "/v1/parcels/{id}", "NullPointerException"),
            ("payments", "mandate-api", "mandates-page", "mandate-run", "/v2/mandates/{iban}", "KeyError"),
            ("media", "episode-api", "episodes-page", "episode-feed", "/episodes/{id}/next", "TypeError"),
            ("search", "filter-api", "filters-page", "filter-sync", "/filters/{category}", "NoSuchElementException"),
        )
    )
    minor, by = lab.rng.randrange(2, 40), lab.rng.choice(("ci", "argocd", "flux"))
    old, new = f"6.{minor}.1", f"6.{minor + 1}.0"
    paths = _Paths(lab, new, lab.rng.uniform(0.15, 0.45))
    like = App("", asked=lambda: ASKED, failing=paths.fails)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    await lab.app(namespace, name, like=like, replicas=4, tag=old, config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.9.0", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.9.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name, "uri": uri, "exception": thrown}
    lab.measure("http_server_exceptions_total", lab.adding_up(partial(paths.thrown, like)), "counter", **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 7))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.9.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"CACHE_SECONDS": "90"}})
    await lab.pause(lab.rng.uniform(2, 7))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())
