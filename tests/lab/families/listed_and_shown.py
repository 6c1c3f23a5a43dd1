"""Who may be asked, and by what one is known: a list of targets outside, the credentials for the registry."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

# -- targets outside

OVN, CILIUM = ("EgressFirewall", "k8s.ovn.org"), ("CiliumNetworkPolicy", "cilium.io")
PATIENCE_SECONDS = 3.0
"""Until a connection is given up to which nobody says anything."""


def _listing(kind: Kind, hosts: Sequence[str]) -> Json:
    """What a namespace's firewall says that lets out to these names alone."""
    if kind.name == OVN[0]:
        ports = [{"protocol": "TCP", "port": 443}]
        allowed: list[Json] = [{"type": "Allow", "to": {"dnsName": one}, "ports": ports} for one in hosts]
        return {"spec": {"egress": [*allowed, {"type": "Deny", "to": {"cidrSelector": "0.0.0.0/0"}}]}}
    names = [{"toFQDNs": [{"matchName": one}]} for one in hosts]
    return {"spec": {"endpointSelector": {}, "egress": [{"toEntities": ["cluster"]}, *names]}}


@dataclass
class _Door:
    """The way out of a namespace: what its firewall does not list is not answered."""

    lab: Lab
    kind: Kind
    place: tuple[str, str]

    def is_shut(self, host: str) -> bool:
        return f'"{host}"' not in json.dumps(self.lab.world[self.kind.name].get(self.place, {}).get("spec", {}))


@dataclass
class _Calls:
    """Of an app to its partner: of how many requests it has to call, and how they end."""

    lost: Lately
    share: float
    asked: float

    def failing(self, _: Container) -> float:
        return self.share if self.lost() else 0.0

    def latency(self, _: Container) -> float:
        return self.share * PATIENCE_SECONDS if self.lost() else 0.0

    def rate(self, *, is_well: bool) -> float:
        return self.share * self.asked if self.lost() is not is_well else 0.0


@family(
    "The firewall for what leaves a namespace, an object of the cluster, is given the list of targets that a review has"
    " found in use, and it is shorter. One partner of an app was not among what the review had seen, and is out of"
    " reach from then on; all others are called as ever.",
    joined=97,
)
async def partner_not_listed(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose partner was called at the end of the month alone, by the logs of a week."""
    namespace, name, front, other, host, beside = lab.rng.choice(
        (
            ("payments", "credit-checks", "credit-form", "rate-import", "api.bureau.example", "rates.ecb.example"),
            ("shop", "label-printing", "dispatch-page", "stock-import", "labels.courier.example", "b2b.vendor.example"),
            (
                "media",
                "rights-checks",
                "licence-page",
                "charts-import",
                "api.rightsdesk.example",
                "feeds.charts.example",
            ),
            ("search", "geocoding", "nearby-page", "poi-import", "geo.mapserver.example", "dump.openpoi.example"),
        )
    )
    (called, group), share = lab.rng.choice((OVN, CILIUM)), lab.rng.uniform(0.35, 0.8)
    by, minor = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 40)
    kind = await lab.custom(called, group, ANY)
    await lab.served(kind)
    place = namespace, "default" if called == OVN[0] else "egress-allowed"
    more = [f"{one}.example" for one in ("hooks.pager", "api.mailer", "objects.cloudstore", "sentry.errors")]
    known, new = [beside, *more[:3], host], more[3]
    shorter = [one for one in (beside, *more[:3], new) if one != more[lab.rng.randrange(1, 3)]]
    door = _Door(lab, kind, place)
    made = {"apiVersion": f"{group}/v1", "kind": called, "metadata": {"namespace": namespace, "name": place[1]}}
    await lab.apply({**made, **_listing(kind, known)})
    await lab.until(lambda: not door.is_shut(host))
    for one, target, part, asks in ((name, host, share, 22.0), (other, beside, 0.6, 6.0)):
        calls = _Calls(Lately(lab, partial(door.is_shut, target)), part, asks)
        like = App("", abroad=(target,), asked=partial(float, asks), failing=calls.failing, latency=calls.latency)
        like.fails_with = lambda _: "504"
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", RETRIES="1"))
        await lab.app(namespace, one, like=like, replicas=3, tag=f"2.{minor}.0", config=one)
        await rolled(lab, namespace, one, f"2.{minor}.0")
        for code, is_well in (("200", True), ("timeout", False)):
            told = {"namespace": namespace, "service": one, "host": target, "code": code}
            counted = lab.adding_up(partial(calls.rate, is_well=is_well))
            lab.measure("http_client_requests_total", counted, "counter", **told)
        lab.alert_errors(namespace, one)
    await set_before(lab, namespace, front, name)
    lab.alert_slow(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"RETRIES": "2"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(9, 13))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 8))
    await lab.culprit(by, "update", called, *place, _listing(kind, shorter))
    lab.start(afterwards())


# -- credentials for the registry

PULLS, REGISTRY = "regcred", "registry.corp.example"
AWAY = "registry.staging.corp.example"


def _pulls(registry: str, user: str, password: str) -> Json:
    """The data of a Secret by which kubelets pull images of one registry."""
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    auths = {"auths": {registry: {"username": user, "password": password, "auth": auth}}}
    return {"data": {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}}


@dataclass
class _Registry:
    """Which gives the images of a project to the robots that may have them."""

    lab: Lab
    home: str
    good: dict[str, str]
    """Passwords of the robots that there are, by their names."""

    def denied(self, image: str, pod: Json) -> str:
        if pod["metadata"]["namespace"] != self.home or not image.startswith(f"{REGISTRY}/{self.home}/"):
            return ""
        shown = self.lab.outside.credentials.get((self.home, PULLS), {}).get(".dockerconfigjson", "")
        auths = json.loads(base64.b64decode(shown) or "{}").get("auths", {})
        name, tag = image.removeprefix(f"{REGISTRY}/").rsplit(":", 1)
        head = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}"'
        if REGISTRY not in auths:
            why = "repository does not exist or may require authorization: authorization failed: no basic auth"
            return f"{head}: pull access denied, {why} credentials"
        user, _, password = base64.b64decode(auths[REGISTRY]["auth"]).decode().partition(":")
        if self.good.get(user) != password:
            scope = f"scope=repository%3A{name.replace('/', '%2F')}%3Apull&service=harbor-registry"
            asked = f"https://{REGISTRY}/service/token?{scope}"
            failed = f"failed to fetch oauth token: unexpected status from GET request to {asked}"
            return f"{head}: failed to authorize: {failed}: 401 Unauthorized"
        if not user.startswith(f"robot${self.home}"):
            asked = f"https://{REGISTRY}/v2/{name}/manifests/{tag}"
            return f"{head}: unexpected status from HEAD request to {asked}: 403 Forbidden"
        return ""


async def _drain(lab: Lab, by: str, node: str) -> None:
    """As kubectl does, but for what belongs to a DaemonSet."""
    await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": True}})
    for (namespace, name), pod in list(lab.world["Pod"].items()):
        owners = pod["metadata"].get("ownerReferences", ())
        if pod["spec"].get("nodeName") == node and not any(one["kind"] == "DaemonSet" for one in owners):
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await lab.who[by].call("POST", f"{path('Pod', namespace, name)}/eviction", body)


@family(
    "The credentials by which nodes pull a team's images are renewed, and what is written into the pull Secret is of"
    " another project, of a robot that is not there any more, or for another registry. Nodes that have the image need"
    " none; pods that come to another node, as one is drained or more of them are wanted, wait for it.",
    joined=97,
)
async def pull_secret_renewed(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods ran on four nodes, and on the fifth were ImagePullBackOff."""
    home, name, front, other = lab.rng.choice(
        (
            ("shop", "click-collect", "collect-page", "collect-mails"),
            ("payments", "chargebacks", "dispute-page", "dispute-export"),
            ("media", "watchlists", "watch-page", "watch-sync"),
            ("search", "trending", "trends-page", "trends-feed"),
        )
    )
    by, minor, is_drain = lab.rng.choice((*TEAMS, "flux", "ci")), lab.rng.randrange(2, 50), lab.rng.random() < 0.5
    robots = [f"robot${one}+puller" for one in (home, next(one for one in ("shop", "media") if one != home))]
    registry = _Registry(lab, home, {one: f"{lab.rng.getrandbits(96):024x}" for one in robots})
    own, away = robots
    written = lab.rng.choice(
        (
            _pulls(REGISTRY, away, registry.good[away]),
            _pulls(REGISTRY, f"robot${home}+deployer", f"{lab.rng.getrandbits(96):024x}"),
            _pulls(AWAY, own, registry.good[own]),
        )
    )
    first = _pulls(REGISTRY, own, registry.good[own])
    meta, sort = {"namespace": home, "name": PULLS}, "kubernetes.io/dockerconfigjson"
    await lab.apply({"kind": "Secret", "type": sort, "metadata": meta, **first})
    await lab.edit("admin", "ServiceAccount", home, "default", {"imagePullSecrets": [{"name": PULLS}]})
    lab.outside.denied = registry.denied
    await lab.app(home, name, like=App("", asked=lambda: 21.0), replicas=3, tag=f"1.{minor}.0")
    await rolled(lab, home, name, f"1.{minor}.0")
    await lab.apply(objects.config_map(home, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(home, other, replicas=2, tag="1.1.7", config=other)
    await rolled(lab, home, other, "1.1.7")
    await set_before(lab, home, front, name)
    lab.reserve(home, front)

    def waits() -> bool:
        there = (status for one in pods(lab.world, home, name) for status in one["status"].get("containerStatuses", ()))
        return any("waiting" in one["state"] for one in there)

    summary = f"a container of {home}/{name} has been waiting for a while"
    lab.alert("KubeContainerWaiting", waits, summary, 10, namespace=home, deployment=name)
    lab.alert_lacking(home, name, seconds=14)
    lab.alert_errors(home, name)
    lab.alert_ingress_errors(home, home)
    await lab.until(lambda: lab.is_well() and len(backends(lab.world, home, name)) == 3)
    there = [str(one["spec"]["nodeName"]) for one in pods(lab.world, home, name)]
    node = next(one for one in spare(lab, 4) if one in there)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(5, 11))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", home, other, {"data": {"EVERY": "45s"}})
        await lab.pause(lab.rng.uniform(3, 8))
        if is_drain:
            await _drain(lab, lab.rng.choice(TEAMS), node)
        else:
            await lab.edit(lab.rng.choice(("carol", "argocd")), "Deployment", home, name, {"spec": {"replicas": 7}})

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, front, {"data": {"PAGE_SIZE": "70"}})
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, other, "1.1.8")
    await lab.pause(lab.rng.uniform(7, 11))
    await lab.culprit(by, "update", "Secret", home, PULLS, written)
    lab.start(afterwards())
