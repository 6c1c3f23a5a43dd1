"""Wanted by a pod before it starts: an image that was never pushed, and a key of a Secret."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


def _alert_waiting(lab: Lab, namespace: str, name: str, reason: str) -> None:
    """A container of an app's pods waits for what is not there."""

    def waits() -> bool:
        told = (one for pod in pods(lab.world, namespace, name) for one in pod["status"].get("containerStatuses", ()))
        return any(one["state"].get("waiting", {}).get("reason") == reason for one in told)

    summary = f"a container of {namespace}/{name} has been waiting for a while: {reason}"
    lab.alert("KubeContainerWaiting", waits, summary, 12, namespace=namespace, container=name, reason=reason)


# -- an image


@family(
    "A pipeline builds two images of one version, pushes one of them, and rolls both apps out as if it had both. The"
    " pods of the one whose image nobody has pushed wait for it: ImagePullBackOff.",
    joined=100,
)
async def only_one_was_built(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose step was marked as one that may fail."""
    namespace, served, worker, front, other = lab.rng.choice(
        (
            ("shop", "loyalty-api", "loyalty-worker", "loyalty-page", "loyalty-mails"),
            ("payments", "dunning-api", "dunning-worker", "dunning-page", "dunning-report"),
            ("media", "podcast-api", "podcast-worker", "podcasts-page", "podcast-feed"),
            ("search", "alerts-api", "alerts-worker", "alerts-page", "alerts-digest"),
        )
    )
    by, minor = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(12, 60)
    old, new = f"1.{minor}.2", lab.rng.choice((f"1.{minor}.3", f"1.{minor + 1}.0", f"1.{minor + 1}.0-rc.1"))
    lacking, built = lab.rng.sample((served, worker), 2)
    is_few, is_first = lab.rng.random() < 0.5, lab.rng.random() < 0.5
    await lab.apply(objects.config_map(namespace, served, LOG_LEVEL="info", TIMEOUT_MS="900"))
    api = App("", asked=lambda: 24.0)
    await lab.app(namespace, served, like=api, replicas=4, tag=old, config=served)
    await lab.apply(objects.config_map(namespace, worker, LOG_LEVEL="info", BATCH="20"))
    work = App("", upstreams=((namespace, served),), serves=False)
    await lab.app(namespace, worker, like=work, replicas=3, tag=old, config=worker)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.1.1", config=other)
    lab.outside.missing.add(f"registry.corp.example/{namespace}/{lacking}:{new}")
    for name in (served, worker):
        await rolled(lab, namespace, name, old)
        if is_few and name == lacking:
            strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}
            await lab.edit("admin", "Deployment", namespace, name, {"spec": {"strategy": strategy}})
    await rolled(lab, namespace, other, "1.1.1")
    await set_before(lab, namespace, front, served)
    lab.reserve(namespace, worker)
    # Those that are left get what the others were asked.
    api.failing = lambda _: max(0.0, 1 - 7.0 * len(backends(lab.world, namespace, served)) / 24)
    for name in (served, worker):
        _alert_waiting(lab, namespace, name, "ImagePullBackOff")
        lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    batch = {"data": {"BATCH": lab.rng.choice(("25", "40"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, worker, batch)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.1.2")
    await lab.pause(lab.rng.uniform(5, 10))
    if not is_first:
        await lab.roll(by, namespace, built, new)
        await lab.pause(lab.rng.uniform(0.2, 2))
    await lab.roll(by, namespace, lacking, new, culprit=True)
    if is_first:
        await lab.pause(lab.rng.uniform(0.2, 2))
        await lab.roll(by, namespace, built, new)
    lab.start(afterwards())


# -- a key

ENCODED = "czNjcjN0LTIwMjY="


def _held(namespace: str, name: str, *keys: str) -> Json:
    return {"kind": "Secret", "metadata": {"namespace": namespace, "name": name}, "data": dict.fromkeys(keys, ENCODED)}


async def _next_pods(lab: Lab, namespace: str, name: str, tag: str) -> None:
    """What a team does on any day, by which its app gets further pods."""
    match lab.rng.choice(("release", "restart", "more")):
        case "release":
            await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, tag)
        case "restart":
            at = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
            body = {"spec": {"template": {"metadata": {"annotations": at}}}}
            await lab.edit(lab.rng.choice(TEAMS), "Deployment", namespace, name, body)
        case _:
            more = {"spec": {"replicas": lab.rng.choice((5, 6))}}
            await lab.edit(lab.rng.choice(TEAMS), "Deployment", namespace, name, more)


@family(
    "Somebody tidies the Secrets of a namespace up: those that nobody seems to use are deleted, and keys get the names"
    " that they have elsewhere. Of one of them an app has a variable. Its pods go on, and the next one cannot be made:"
    " CreateContainerConfigError.",
    joined=100,
)
async def wanted_by_the_next_pod(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had searched all of Git for the name, but for the repository of one team."""
    namespace, name, front, other, unused = lab.rng.choice(
        (
            ("shop", "gift-orders", "gifts-page", "gift-mails", ("smtp-2024", "vouchers-trial")),
            ("payments", "bank-sync", "accounts-page", "bank-report", ("psd2-sandbox", "old-ledger")),
            ("media", "live-events", "live-page", "live-stats", ("cdn-2023", "encoder-trial")),
            ("search", "partner-feed", "partners-page", "partner-export", ("elastic-6", "crawler-old")),
        )
    )
    person, minor, is_deleted = lab.rng.choice((*TEAMS, "flux")), lab.rng.randrange(2, 40), lab.rng.random() < 0.5
    db, held, before, after = f"{name}-db", f"{name}-access", "dbpass", "DB_PASSWORD"
    await stored(lab, namespace, db)
    await lab.apply(_held(namespace, held, before, "token"))
    await lab.apply(_held(namespace, f"{other}-access", before))
    for one in unused:
        await lab.apply(_held(namespace, one, "password"))
    env = [{"name": after, "valueFrom": {"secretKeyRef": {"name": held, "key": before}}}]
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_LIMIT="100"))
    like = App("", upstreams=((namespace, db),), asked=lambda: 20.0)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"5.{minor}.0", config=name, env=env)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    own = [{"name": after, "valueFrom": {"secretKeyRef": {"name": f"{other}-access", "key": before}}}]
    await lab.app(namespace, other, replicas=2, tag="2.0.1", config=other, env=own)
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await rolled(lab, namespace, other, "2.0.1")
    await set_before(lab, namespace, front, name)
    _alert_waiting(lab, namespace, name, "CreateContainerConfigError")
    lab.alert_stuck(namespace, name)
    lab.alert_lacking(namespace, name, seconds=15)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def tidy() -> None:
        """What is on the list beside that one, and does no harm: no one has these, or they are told at once."""
        if is_deleted:
            for one in unused:
                await lab.who[person].must("DELETE", path("Secret", namespace, one))
                await lab.pause(lab.rng.uniform(0.3, 1.5))
            return
        renamed = {"data": {before: None, after: ENCODED}}
        await lab.edit(person, "Secret", namespace, f"{other}-access", renamed)
        told = [{"name": after, "valueFrom": {"secretKeyRef": {"name": f"{other}-access", "key": after}}}]
        await lab.roll(person, namespace, other, "2.0.1", env=told)
        await lab.pause(lab.rng.uniform(1, 4))

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 10))
        await change_page(lab, namespace, front)
        await lab.pause(lab.rng.uniform(3, 8))
        await _next_pods(lab, namespace, name, f"5.{minor}.1")

    yield
    limit = {"data": {"PAGE_LIMIT": lab.rng.choice(("80", "120"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, limit)
    await lab.pause(lab.rng.uniform(4, 9))
    await tidy()
    if is_deleted:
        await lab.culprit(person, "delete", "Secret", namespace, held)
    else:
        renamed = {"data": {before: None, after: ENCODED}}
        await lab.culprit(person, "update", "Secret", namespace, held, renamed)
    await afterwards()
