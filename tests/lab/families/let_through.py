"""What is let through, or not any more: a snippet of an Ingress by its controller, a pull by the registry."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import Since, stored
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import INGRESS_CONTROLLER, backends
from tests.lab.scenario import family

SETTINGS, ALLOWED = (INGRESS_CONTROLLER[0], "ingress-nginx-controller"), "allow-snippet-annotations"
SNIPPET = "nginx.ingress.kubernetes.io/configuration-snippet"
BEFORE, AFTER = "v1.8.5", "v1.9.6"
"""Of the controller: since 1.9 it takes no snippet of an Ingress, unless its ConfigMap says that it does."""


def _takes_snippets(lab: Lab, controller: Json) -> bool:
    """As the ConfigMap says, or else as is usual for the version of a controller's pod."""
    told = lab.world["ConfigMap"].get(SETTINGS, {}).get("data", {}).get(ALLOWED)
    return images(controller)[0].rsplit(":", 1)[1] < AFTER if told is None else told == "true"


@family(
    "The controller of Ingresses is upgraded, or made safer by its ConfigMap as an advisory says: it takes no snippets"
    " of Ingresses any more. Nearly no Ingress has one. One sets a header by it that the app behind cannot do without,"
    " and most of what comes that way fails.",
    joined=88,
)
async def snippets_disallowed(lab: Lab) -> AsyncIterator[None]:
    """As those tell who came to 1.9 of ingress-nginx with annotations of their own in a few Ingresses."""
    (home, name, header), (away, other) = lab.rng.choice(
        (
            (("payments", "merchant-api", "X-Merchant-Realm"), ("shop", "frontend")),
            (("media", "studio-api", "X-Studio-Tenant"), ("search", "query")),
            (("shop", "wholesale-api", "X-Buyer-Group"), ("media", "uploads")),
            (("search", "partner-search", "X-Partner-Index"), ("payments", "checkout")),
        )
    )
    by, minor, share = lab.rng.choice(("flux", "argocd", *TEAMS)), lab.rng.randrange(2, 40), lab.rng.uniform(0.5, 0.95)
    is_upgrade = lab.rng.random() < 0.5
    first = BEFORE if is_upgrade else AFTER

    def lost() -> float:
        """The share of the controller's pods that leave the snippet out."""
        there = backends(lab.world, *INGRESS_CONTROLLER)
        has_one = SNIPPET in lab.world["Ingress"].get((home, home), {}).get("metadata", {}).get("annotations", {})
        return sum(not _takes_snippets(lab, one) for one in there) / max(1, len(there)) if has_one else 0.0

    shows = Since(lab, lambda: lost() > 0)

    def fails(_: Container) -> float:
        return share * lost() if shows() else 0.0

    settings = {"use-forwarded-headers": "true", "proxy-body-size": "20m", "keep-alive-requests": "1000"}
    settings |= {} if is_upgrade else {ALLOWED: "true"}
    await lab.apply(objects.config_map(*SETTINGS, **settings))
    await lab.roll("admin", *INGRESS_CONTROLLER, first)
    await rolled(lab, *INGRESS_CONTROLLER, first)
    await stored(lab, home, f"{name}-db")
    await lab.apply(objects.config_map(home, name, LOG_LEVEL="info", PAGE_SIZE="50"))
    like = App("", upstreams=((home, f"{name}-db"),), asked=lambda: 26.0, failing=fails)
    await lab.app(home, name, like=like, replicas=3, tag=f"2.{minor}.0", config=name)
    await rolled(lab, home, name, f"2.{minor}.0")
    await publish(lab, home, name)
    snippet = {SNIPPET: f'proxy_set_header {header} "main";\n'}
    await lab.edit("admin", "Ingress", home, home, {"metadata": {"annotations": snippet}})
    await publish(lab, away, other)
    lab.alert_errors(home, name)
    lab.alert_ingress_errors(home, home)
    lab.alert_ingress_errors(away, away)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", home, name, {"data": {"PAGE_SIZE": "80"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(11, 16))
    if is_upgrade:
        await lab.roll(by, *INGRESS_CONTROLLER, AFTER, culprit=True)
    else:
        safer = {ALLOWED: "false", "server-tokens": "false", "hide-headers": "X-Powered-By"}
        await lab.culprit(by, "update", "ConfigMap", *SETTINGS, {"data": safer})
    lab.start(afterwards())


PULLS, REGISTRY = "registry-credentials", "registry.corp.example"


def _pulls(user: str, password: str) -> Json:
    """What a kubelet shows to the registry for a pod of the team."""
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    auths = {"auths": {REGISTRY: {"username": user, "password": password, "auth": auth}}}
    return {"data": {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}}


@dataclass
class _Accounts:
    """Each team has one of its own at the registry, whose old password is good for a day beside the new one."""

    lab: Lab
    good: dict[str, set[str]] = field(default_factory=dict)

    def denied(self, image: str, pod: Json) -> str:
        home = pod["metadata"]["namespace"]
        if home not in self.good or not image.startswith(f"{REGISTRY}/"):
            return ""
        shown = self.lab.outside.credentials.get((home, PULLS), {}).get(".dockerconfigjson", "")
        auths = json.loads(base64.b64decode(shown) or "{}").get("auths", {})
        if base64.b64decode(auths.get(REGISTRY, {}).get("auth", "")).decode().partition(":")[2] in self.good[home]:
            return ""
        name, tag = image.removeprefix(f"{REGISTRY}/").rsplit(":", 1)
        head = f"unexpected status from HEAD request to https://{REGISTRY}/v2/{name}/manifests/{tag}"
        return f'failed to resolve reference "{image}": {head}: 401 Unauthorized'


@family(
    "The passwords by which the registry knows each team are changed, as they are each half year, and the pull Secret"
    " of each namespace is written anew. In one of them the password is not what it should be. What runs there goes"
    " on; the images of its next release are not given out.",
    joined=88,
)
async def pull_secret_mistyped(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had one namespace with ImagePullBackOff, and all others well."""
    places = {
        "shop": ("price-lists", "prices-page"),
        "payments": ("fee-tables", "fees-page"),
        "media": ("poster-images", "posters-page"),
        "search": ("stop-words", "words-view"),
    }
    home, by, minor = lab.rng.choice(sorted(places)), lab.rng.choice((*TEAMS, *TEAMS, "flux")), lab.rng.randrange(2, 50)
    name, front = places[home]
    first, second = ({team: f"{lab.rng.getrandbits(96):024x}" for team in APPS} for _ in range(2))
    accounts = _Accounts(lab, {team: {first[team]} for team in APPS})
    for team in APPS:
        meta = {"namespace": team, "name": PULLS}
        kept = _pulls(f"robot${team}", first[team])
        await lab.apply({"kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "metadata": meta, **kept})
        await lab.edit("admin", "ServiceAccount", team, "default", {"imagePullSecrets": [{"name": PULLS}]})
    lab.outside.denied = accounts.denied
    await lab.apply(objects.config_map(home, name, LOG_LEVEL="info", CACHE_SECONDS="60"))
    like = App("", asked=lambda: 20.0)
    await lab.app(home, name, like=like, replicas=3, tag=f"1.{minor}.0", config=name)
    await rolled(lab, home, name, f"1.{minor}.0")
    await set_before(lab, home, front, name)
    lab.reserve(home, front)
    for one in (name, front):
        lab.alert_stuck(home, one)
    lab.alert_errors(home, name)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"1.{minor + 1}.0")
        await lab.pause(lab.rng.uniform(2, 5))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", home, name, {"data": {"CACHE_SECONDS": "90"}})

    yield
    await change_page(lab, home, front)
    await lab.pause(lab.rng.uniform(11, 15))
    order = lab.rng.sample(sorted(APPS), len(APPS))
    away = next(team for team in order if team != home)
    written = {
        "short": second[home][:-1],
        "of another team": second[away],
        "with a line's end": f"{second[home]}\n",
    }[lab.rng.choice(("short", "of another team", "with a line's end"))]
    for team in order:
        accounts.good[team] |= {second[team]}
        if team == home:
            await lab.culprit(by, "update", "Secret", home, PULLS, _pulls(f"robot${team}", written))
        else:
            await lab.edit(by, "Secret", team, PULLS, _pulls(f"robot${team}", second[team]))
        await lab.pause(lab.rng.uniform(0.5, 1.5))
    await lab.pause(lab.rng.uniform(5, 11))
    lab.start(afterwards())
