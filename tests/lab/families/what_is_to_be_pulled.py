"""What is to be pulled: a version that no registry has, and a registry outside that gives nothing out for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import NamedTuple

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


def _waits(lab: Lab, namespace: str, name: str) -> bool:
    """Whether a container of an app waits for its image."""
    states = (one for pod in pods(lab.world, namespace, name) for one in pod["status"].get("containerStatuses", ()))
    return any(one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for one in states)


def _alert_waiting(lab: Lab, namespace: str, name: str, seconds: float) -> None:
    summary = f"a container of {namespace}/{name} has been waiting for a while"
    told = {"namespace": namespace, "deployment": name}
    lab.alert("KubeContainerWaiting", lambda: _waits(lab, namespace, name), summary, seconds, **told)


# -- a tag


@family(
    "An app is rolled out with a tag that the registry does not have: the build of it failed and the pipeline went on,"
    " tags are written with a v since last week, or somebody typed it. The new pod waits with ImagePullBackOff, the old"
    " ones go on, and the rollout does not come to its end.",
    joined=105,
)
async def tag_never_pushed(lab: Lab) -> AsyncIterator[None]:
    """As everybody has done it once."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "gift-cards", "gift-page", "gift-mails"),
            ("payments", "direct-debits", "debit-page", "debit-files"),
            ("media", "subtitles", "subtitle-page", "subtitle-sync"),
            ("search", "brand-filter", "brand-page", "brand-feed"),
        )
    )
    minor, patch = lab.rng.randrange(3, 60), lab.rng.randrange(1, 9)
    old, next_one = f"3.{minor}.{patch}", f"3.{minor + 1}.0"
    why = lab.rng.choice(("not built", "other form", "typed"))
    wrong = {
        "not built": next_one,
        "other form": f"v{next_one}",
        "typed": lab.rng.choice((f"3.{minor}{minor + 1}.0", f"3.{minor}.{patch}1", f"3.{minor + 1}")),
    }[why]
    by = lab.rng.choice(TEAMS if why == "typed" else ("ci", "argocd", "flux"))
    image = f"registry.corp.example/{namespace}/{name}"
    lab.outside.missing.add(f"{image}:{wrong}")
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", VALID_DAYS="365"))
    await lab.app(namespace, name, like=App("", asked=lambda: 20.0), replicas=3, tag=old, config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.6.0", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.6.0")
    await set_before(lab, namespace, front, name)
    _alert_waiting(lab, namespace, name, 12)
    lab.alert_stuck(namespace, name)
    lab.alert_stuck(namespace, other)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.6.1")
    await lab.pause(lab.rng.uniform(5, 10))
    days = {"data": {"VALID_DAYS": lab.rng.choice(("180", "730"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, days)
    await lab.pause(lab.rng.uniform(3, 8))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 7))
    await lab.roll(by, namespace, name, wrong, culprit=True)
    lab.start(afterwards())


# -- a registry outside


class _Hub(NamedTuple):
    """A public registry, what is run of it beside apps, and what it says on its bad day."""

    host: str
    called: str
    image: str
    tag: str
    says: str


HUBS = (
    _Hub("quay.io", "oauth2-proxy", "oauth2-proxy/oauth2-proxy", "v7.12.0", "502 Bad Gateway"),
    _Hub("ghcr.io", "litestream", "benbjohnson/litestream", "0.5.2", "503 Service Unavailable"),
    _Hub("docker.io", "pgbouncer", "bitnami/pgbouncer", "1.24.1", "504 Gateway Time-out"),
    _Hub("docker.io", "memcached", "library/memcached", "1.6.39-alpine", "toomanyrequests"),
    _Hub("public.ecr.aws", "fluent-bit", "aws-observability/aws-for-fluent-bit", "2.34.0", "toomanyrequests"),
)


def _refused(hub: _Hub) -> str:
    """As containerd says it."""
    whole, asked = f"{hub.host}/{hub.image}:{hub.tag}", f"https://{hub.host}/v2/{hub.image}/manifests/{hub.tag}"
    failed = f'failed to pull and unpack image "{whole}": failed to resolve reference "{whole}"'
    if hub.says != "toomanyrequests":
        return f"{failed}: unexpected status from HEAD request to {asked}: {hub.says}"
    asked += f"@sha256:{sha256(whole.encode()).hexdigest()}"
    told = "429 Too Many Requests - Server message: toomanyrequests: Rate exceeded"
    return f"{failed}: failed to copy: httpReadSeeker: failed open: unexpected status code {asked}: {told}"


async def _with_one_beside(lab: Lab, hub: _Hub, namespace: str, name: str, tag: str) -> str:
    """An app, of whose pods each has a container of the public registry; returns its image. Raises TimeoutError."""
    image = f"registry.corp.example/{namespace}/{name}"
    room = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    lab.apps[image] = App(image, asked=lambda: 17.0)
    made = objects.deployment(namespace, name, f"{image}:{tag}", replicas=2, topologySpreadConstraints=[spread])
    beside: Json = {"name": hub.called, "image": f"{hub.host}/{hub.image}:{hub.tag}", "resources": room}
    made["spec"]["template"]["spec"]["containers"].append(beside)
    await lab.apply(made)
    await lab.apply(objects.service(namespace, name))
    await rolled(lab, namespace, name, tag)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 2)
    lab.reserve(namespace, name)
    return image


@family(
    "No culprit. A registry outside, from which many take what runs beside their apps, has an outage, or gives out no"
    " more to the one address of the company. What runs goes on. Pods that come to a node which does not have that"
    " image yet, with a release of one team and as another one takes more replicas, wait for it.",
    culprit=False,
    joined=105,
)
async def hub_does_not_answer(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked at the status page of a registry after an hour of their own logs."""
    hub, minor = lab.rng.choice(HUBS), lab.rng.randrange(2, 40)
    (home, name, front), (away, other) = lab.rng.choice(
        (
            (("shop", "loyalty-api", "loyalty-page"), ("payments", "voucher-check")),
            (("payments", "refunds", "refund-page"), ("media", "cover-art")),
            (("media", "radio-api", "radio-page"), ("search", "typo-model")),
            (("search", "recipe-api", "recipe-page"), ("shop", "pick-lists")),
        )
    )
    tag = f"2.{minor}.0"
    image = await _with_one_beside(lab, hub, home, name, tag)
    await _with_one_beside(lab, hub, away, other, "4.0.7")
    await set_before(lab, home, front, name)
    for place in ((home, name), (away, other)):
        _alert_waiting(lab, *place, 12)
        lab.alert_stuck(*place)
        lab.alert_lacking(*place, seconds=15)
        lab.alert_errors(*place)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)

    async def release() -> None:
        [first, *rest] = lab.world["Deployment"][home, name]["spec"]["template"]["spec"]["containers"]
        containers = [{**first, "image": f"{image}:2.{minor}.1"}, *rest]
        body = {"spec": {"replicas": 3, "template": {"spec": {"containers": containers}}}}
        await lab.edit(lab.rng.choice(("ci", "argocd", "flux")), "Deployment", home, name, body)

    async def take_more() -> None:
        await lab.edit(lab.rng.choice(TEAMS), "Deployment", away, other, {"spec": {"replicas": 5}})

    yield
    lab.outside.broken[hub.host] = _refused(hub)
    await change_page(lab, home, front)
    await lab.pause(lab.rng.uniform(5, 10))
    level = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "payments", "ledger", level)
    await lab.pause(lab.rng.uniform(3, 8))
    first, second = lab.rng.sample((release, take_more), 2)
    await first()
    await lab.pause(lab.rng.uniform(4, 9))
    await second()
