"""What is found and fetched by names: records of those that are public, and images of a registry that all share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends, unserved
from tests.lab.programs import both, every, informer
from tests.lab.scenario import family

# -- records of public names

KEEPER, LABEL = ("platform", "external-dns"), "public-dns"
GIVEN = (
    "--source=ingress",
    "--provider=aws",
    "--domain-filter=corp.example",
    "--registry=txt",
    "--txt-owner-id=prod-eu-1",
    "--policy=sync",
    "--interval=1m",
)
KEPT_SECONDS = 5.0
"""For which resolvers keep a record that is gone, as its TTL says."""
MARKS: dict[str, Json] = {
    f"--label-filter={LABEL}=enabled": {"labels": {LABEL: "enabled"}},
    "--annotation-filter=dns.corp.example/zone=public": {"annotations": {"dns.corp.example/zone": "public"}},
    "--annotation-filter=dns.corp.example/public=true": {"annotations": {"dns.corp.example/public": "true"}},
}
"""By what it may be told to choose, and what an Ingress has that is chosen."""


@dataclass
class _Zone:
    """The records of a public zone, as what keeps them has made them."""

    lab: Lab
    declared: set[str] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    gone: dict[str, float] = field(default_factory=dict)
    """Since when there is none of a name any more."""

    async def keep(self, process: Process) -> None:
        """What is chosen gets a record, and what of its own is not chosen any more is deleted."""
        listed = await process.api.call("GET", path("Ingress"))
        if not listed.ok:
            return
        given = process.see().spec.get("args", ())
        mark = next((MARKS[one] for one in given if one in MARKS), {})
        told = [one for one in listed.body["items"] if _has(one["metadata"], mark)]
        self.declared = {rule["host"] for one in told for rule in one["spec"].get("rules", ())}
        for host in self.records - self.declared:
            self.gone[host] = now().timestamp()
        for host in self.declared:
            self.gone.pop(host, None)
        self.records = set(self.declared)

    def is_found(self, host: str) -> bool:
        """By whoever is outside."""
        at = now().timestamp()
        self.lab.outside.unreached = {one for one, since in self.gone.items() if at - since > KEPT_SECONDS}
        return host not in self.lab.outside.unreached and not unserved(self.lab.world, host)


def _has(meta: Json, mark: Json) -> bool:
    return all(meta.get(part, {}).get(key) == value for part, told in mark.items() for key, value in told.items())


@family(
    "What keeps the records of public names is told to look at some Ingresses only, those with a mark, as another one"
    " is to keep the names inside. One that is in use has not got the mark: its record is deleted, and after some"
    " minutes nobody finds the name.",
    joined=92,
)
async def filter_of_records(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose external-dns had the policy sync."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "returns-api", "returns-page"),
            ("payments", "donations", "donation-page"),
            ("media", "podcasts", "podcast-page"),
            ("search", "job-offers", "jobs-page"),
        )
    )
    doors = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
    others = lab.rng.sample([one for one in doors if one != namespace], 2)
    by, tag = lab.rng.choice(("flux", "argocd", "ci", *TEAMS)), "v0.19.0"
    (chosen, mark), zone = lab.rng.choice(sorted(MARKS.items())), _Zone(lab)
    await lab.app(namespace, name, like=App("", asked=lambda: 15.0), replicas=3, tag="1.8.0")
    await rolled(lab, namespace, name, "1.8.0")
    await set_before(lab, namespace, front, name)
    for one in others:
        await publish(lab, one, doors[one])
    rules = ("networking.k8s.io", "ingresses", "get,list,watch")
    program = both(informer(path("Ingress")), every(2, zone.keep))
    await lab.controller(*KEEPER, program, rules, replicas=1, tag="v0.18.0")
    await lab.roll("admin", *KEEPER, tag, args=list(GIVEN))
    await rolled(lab, *KEEPER, tag)
    of_keeper = {"namespace": KEEPER[0], "service": KEEPER[1]}
    lab.measure("external_dns_source_a_records", lambda: len(zone.declared), **of_keeper)
    for one in (namespace, *others):
        host = f"{one}.corp.example"
        url = f"https://{host}"
        answered = partial(zone.is_found, host)
        told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": url}
        lab.measure("probe_success", lambda answered=answered: float(answered()), **told)  # type: ignore[misc]
        fails = lambda answered=answered: not answered()  # noqa: E731
        lab.alert("ProbeFailed", fails, f"{url} is not answered", 6, job="blackbox", instance=url)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: len(zone.records) == 1 + len(others))
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, "1.8.1")
    await lab.pause(lab.rng.uniform(4, 8))
    for one in others:
        await lab.edit(by, "Ingress", one, one, {"metadata": mark})
        await lab.pause(lab.rng.uniform(0.5, 2))
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll(by, *KEEPER, tag, culprit=True, args=[*GIVEN, chosen])
    lab.start(afterwards())


# -- images of a registry that all share

HUB = "docker.io"
BESIDE = (
    ("envoy", "envoyproxy/envoy", "v1.35.3"),
    ("local-cache", "library/redis", "8.2.1-alpine"),
    ("static", "nginxinc/nginx-unprivileged", "1.29.1-alpine"),
    ("statsd", "prom/statsd-exporter", "v0.28.0"),
)
"""Containers beside an app's own, by name, image and tag."""


def _limited(image: str, tag: str) -> str:
    """As containerd says it of an image of that registry."""
    whole = f"{HUB}/{image}:{tag}"
    digest = sha256(whole.encode()).hexdigest()
    asked = f"https://registry-1.docker.io/v2/{image}/manifests/sha256:{digest}"
    why = "toomanyrequests: You have reached your unauthenticated pull rate limit."
    told = f"429 Too Many Requests - Server message: {why} https://www.docker.com/increase-rate-limit"
    failed = f'failed to pull and unpack image "{whole}"'
    return f"{failed}: failed to copy: httpReadSeeker: failed open: unexpected status code {asked}: {told}"


@family(
    "No culprit. A public registry gives out so many images in an hour to one address, and all nodes and all builds of"
    " the company come from one. It is used up: pods that come to a node which has not got that image wait there.",
    culprit=False,
    joined=92,
)
async def limit_of_the_hub(lab: Lab) -> AsyncIterator[None]:
    """As very many tell since November 2020."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "price-tags", "tag-page", "tag-feed"),
            ("payments", "cash-points", "cash-page", "cash-report"),
            ("media", "live-scores", "score-page", "score-feed"),
            ("search", "place-names", "place-page", "place-sync"),
        )
    )
    minor, is_release, beside = lab.rng.randrange(2, 30), lab.rng.random() < 0.6, lab.rng.choice(BESIDE)
    called, image, tag = beside
    old, new, own = f"7.{minor}.1", f"7.{minor}.2", f"registry.corp.example/{namespace}/{name}"
    room = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
    sidecar: Json = {"name": called, "image": f"{HUB}/{image}:{tag}", "resources": room}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    lab.apps[own] = App(own, asked=lambda: 19.0)
    made = objects.deployment(namespace, name, f"{own}:{old}", replicas=3, topologySpreadConstraints=[spread])
    made["spec"]["template"]["spec"]["containers"].append(sidecar)
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, old)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="3.0.2", config=other)
    await rolled(lab, namespace, other, "3.0.2")
    await set_before(lab, namespace, front, name)

    def waits() -> bool:
        states = (one for pod in pods(lab.world, namespace, name) for one in pod["status"].get("containerStatuses", ()))
        return any(one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for one in states)

    summary = f"a container of {namespace}/{name} has been waiting for a while"
    lab.alert("KubeContainerWaiting", waits, summary, 12, namespace=namespace, deployment=name)
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=10)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, namespace, name)) == 3)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    lab.outside.broken[HUB] = _limited(image, tag)
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "3.0.3")
    await lab.pause(lab.rng.uniform(4, 9))
    if is_release:
        [first, *_] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
        containers = [{**first, "image": f"{own}:{new}"}, sidecar]
        body = {"spec": {"template": {"spec": {"containers": containers}}}}
        await lab.edit(lab.rng.choice(("ci", "argocd", "flux")), "Deployment", namespace, name, body)
    else:
        await lab.edit(lab.rng.choice(TEAMS), "Deployment", namespace, name, {"spec": {"replicas": 6}})
    lab.start(afterwards())
