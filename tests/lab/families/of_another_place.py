"""Of another time or place: an older version on newer rows, the values of staging, and those of nobody at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json
from tests.lab.apps import App, Container
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.renumbered import helm_kept
from tests.lab.families.sent_to_production import stored
from tests.lab.lab import Lab
from tests.lab.manifests import environment
from tests.lab.network import backends
from tests.lab.scenario import family

# -- older than its rows

WRITES_A_SECOND = 0.011
"""The share of what is read that comes to be of the new form in a second, where all pods write it so."""


@dataclass
class _Rows:
    """What is read of a database, and which share of it only the newer version understands."""

    lab: Lab
    namespace: str
    name: str
    newer: str
    most: float
    share: float = 0.0

    def _are_new(self) -> float:
        """The share of the pods that write the new form."""
        there = backends(self.lab.world, self.namespace, self.name)
        new = [pod for pod in there if str(pod["spec"]["containers"][0]["image"]).endswith(f":{self.newer}")]
        return len(new) / max(1, len(there))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.share = min(self.most, self.share + WRITES_A_SECOND / 2 * self._are_new())

    def misread(self, container: Container) -> float:
        is_older = container.tag != self.newer and container.seconds >= self.lab.lag
        return self.share if is_older else 0.0


def _migration(namespace: str, name: str, image: str) -> Json:
    """The Job that a release has before its Deployment."""
    made = objects.deployment(namespace, name, image, restartPolicy="Never")
    [container] = made["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    container["args"] = ["migrate", "up"]
    spec = {"template": made["spec"]["template"], "backoffLimit": 2, "ttlSecondsAfterFinished": 600}
    return {"kind": "Job", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


@family(
    "A release brings a migration along, and the new version stores what it stores in a new form. It is rolled back for"
    " a small fault of its own: the older one comes upon rows that it does not understand, and fails where it reads"
    " them.",
    joined=94,
)
async def older_than_its_rows(lab: Lab) -> AsyncIterator[None]:
    """As those tell for whom going back had always been the safe way."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "returns-api", "returns-view", "returns-mails"),
            ("payments", "mandates", "mandate-page", "mandate-export"),
            ("media", "watch-history", "history-page", "history-stats"),
            ("search", "saved-filters", "filters-page", "filters-sync"),
        )
    )
    by, minor, number = lab.rng.choice(("ci", "argocd", *TEAMS)), lab.rng.randrange(2, 30), lab.rng.randrange(20, 90)
    old, new, db = f"9.{minor}.2", f"9.{minor + 1}.0", f"{name}-db"
    rows = _Rows(lab, namespace, name, new, lab.rng.uniform(0.3, 0.5))
    slower = lab.rng.uniform(0.1, 0.2)
    await stored(lab, namespace, db)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    like = App("", upstreams=((namespace, db),), asked=lambda: 20.0, failing=rows.misread)
    like.latency = lambda container: slower if container.tag == new else 0.0
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    tool = f"registry.corp.example/{namespace}/{name}-migrations"
    lab.apps[tool] = App(tool, upstreams=((namespace, db),), serves=False, ends_after=2.0)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="2.0.3", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "2.0.3")
    await lab.apply(helm_kept(name, namespace, number), "ci")
    await set_before(lab, namespace, front, name)
    lab.start(rows.run())
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})

    yield
    deploys = "argocd" if by == "argocd" else "ci"
    if deploys == "ci":
        await lab.apply(helm_kept(name, namespace, number + 1), "ci")
    await lab.apply(_migration(namespace, f"{name}-migrate-{number + 1}", f"{tool}:{new}"), deploys)
    await lab.pause(lab.rng.uniform(4, 6))
    await lab.roll(deploys, namespace, name, new)
    await rolled(lab, namespace, name, new)
    await lab.pause(lab.rng.uniform(7, 12))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(6, 12))
    if by == "ci":
        secret = helm_kept(name, namespace, number + 2)
        why = "the revision of the rollback"
        await lab.also(why, by, "create", "Secret", namespace, secret["metadata"]["name"], secret)
    await lab.roll(by, namespace, name, old, culprit=True)
    lab.start(afterwards())


# -- the values of staging


@family(
    "The values of staging are applied to production, as two files lie side by side or a variable of the pipeline has"
    " another value. The app goes on there with the database of staging, in which hardly anybody is known.",
    joined=94,
)
async def values_of_staging(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose customers were told that they had never ordered anything."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "order-archive", "archive-view", "archive-search"),
            ("payments", "wallets", "wallet-page", "wallet-export"),
            ("media", "subscriptions", "plans-page", "plans-mails"),
            ("search", "profiles", "profile-view", "profile-sync"),
        )
    )
    by, minor = lab.rng.choice(("ci", "argocd", "flux", *TEAMS)), lab.rng.randrange(2, 30)
    unknown, with_release, fewer = lab.rng.uniform(0.35, 0.8), lab.rng.random() < 0.4, lab.rng.random() < 0.5
    staging, db, tag = f"{namespace}-staging", f"{name}-db", f"5.{minor}.1"
    hosts = {place: f"{db}.{place}.svc.cluster.local" for place in (namespace, staging)}

    def host(container: Container) -> str:
        return environment(container.spec).get("DB_HOST", "")

    def fails(container: Container) -> float:
        return unknown if host(container) == hosts[staging] and container.seconds >= lab.lag else 0.0

    def connections(place: str) -> float:
        """At a database, by all pods of the app and its own."""
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 2.0 + sum(8.0 for one in there if host(one) == hosts[place])

    await lab.namespace(staging)
    for place in (namespace, staging):
        await stored(lab, place, db)
    settings = {"LOG_LEVEL": "info", "PUBLIC_URL": f"https://{namespace}.corp.example", "MAIL_TO": "customers"}
    await lab.apply(objects.config_map(namespace, name, **settings))
    env = [{"name": "APP_ENV", "value": "production"}, {"name": "DB_HOST", "value": hosts[namespace]}]
    like = App("", asked=lambda: 20.0, failing=fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=tag, config=name, env=env)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.8.0", config=other)
    await rolled(lab, namespace, name, tag)
    await rolled(lab, namespace, other, "1.8.0")
    await set_before(lab, namespace, front, name)
    for place in (namespace, staging):
        told = {"namespace": place, "service": db}
        lab.measure("pg_stat_activity_count", lambda place=place: connections(place), **told)  # type: ignore[misc]
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_lacking(namespace, name, seconds=12)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.8.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "90s"}})
    await lab.pause(lab.rng.uniform(4, 9))
    values = {"LOG_LEVEL": "debug", "PUBLIC_URL": f"https://{namespace}.staging.corp.example", "MAIL_TO": "sink"}
    why = "of the same release, with the same values of staging"
    await lab.also(why, by, "update", "ConfigMap", namespace, name, {"data": values})
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    changed = {"APP_ENV": "staging", "DB_HOST": hosts[staging]}
    named = [{**one, "value": changed[one["name"]]} if one["name"] in changed else one for one in there["env"]]
    version = f"5.{minor}.2" if with_release else tag
    container = {**there, "image": f"registry.corp.example/{namespace}/{name}:{version}", "env": named}
    body: Json = {"spec": {"template": {"spec": {"containers": [container]}}}}
    if fewer:
        body["spec"]["replicas"] = 1
    await lab.culprit(by, "update", "Deployment", namespace, name, body)
    lab.start(afterwards())


# -- nobody's values

EACH_STANDS, ASKED = 13.0, 60.0
DEFAULTS: tuple[tuple[int, Json, int], ...] = (
    (1, {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}, 230),
    (1, {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}, 180),
    (2, {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}}, 310),
    (2, {}, 240),
)
"""What a chart has of its own: replicas and resources; and what a process needs of memory, in MiB."""


@family(
    "A chart is upgraded to its next version by hand, and without the file of values that was given each time before:"
    " replicas, resources and settings of the app are the chart's own again.",
    joined=94,
)
async def back_to_defaults(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had taken it for granted that Helm keeps what it was told last time."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "stock-search", "stock-page", "stock-feed"),
            ("payments", "bank-lookup", "bank-page", "bank-import"),
            ("media", "image-proxy", "gallery-view", "image-cleaner"),
            ("search", "ranking-api", "ranking-page", "ranking-jobs"),
        )
    )
    replicas, resources, needs = lab.rng.choice(DEFAULTS)
    person, minor, number = lab.rng.choice(TEAMS[:2]), lab.rng.randrange(2, 30), lab.rng.randrange(20, 90)
    lab.who["by hand"] = replace(lab.who[person], agent="Helm/3.18.4", counts=Counter())
    old, new = f"2.{minor}.0", f"2.{minor + 1}.0" if lab.rng.random() < 0.5 else f"2.{minor}.0"

    def over() -> float:
        return ASKED / (EACH_STANDS * max(1, len(backends(lab.world, namespace, name))))

    like = App("", memory_mi=needs, asked=lambda: ASKED, capacity=80, fails_with=lambda _: "503")
    like.failing = lambda _: min(0.9, max(0.0, 1 - 1 / over()))
    like.latency = lambda _: min(2.0, max(0.0, 2 * (over() - 1)))
    settings = {"LOG_LEVEL": "warn", "CACHE_ENTRIES": "200000", "WORKERS": "8"}
    await lab.apply(objects.config_map(namespace, name, **settings))
    await lab.app(namespace, name, like=like, replicas=6, tag=old, config=name, memory="768Mi")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.1.9", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.1.9")

    def chart(version: str) -> Json:
        return {"metadata": {"labels": {"helm.sh/chart": f"{name}-{version}", "app.kubernetes.io/managed-by": "Helm"}}}

    await lab.edit("admin", "Deployment", namespace, name, chart(f"0.{minor}.3"))
    await lab.apply(helm_kept(name, namespace, number), "ci")
    await set_before(lab, namespace, front, name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"containers of {namespace}/{name} have been killed for their memory"
    lab.alert("KubernetesContainerOomKiller", many, summary, 3, namespace=namespace, container=name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "30s"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.2.0")
    await lab.pause(lab.rng.uniform(3, 8))
    kept = helm_kept(name, namespace, number + 1)
    same = "of the same upgrade, without the values that were given before"
    await lab.also(same, "by hand", "create", "Secret", namespace, kept["metadata"]["name"], kept)
    own = {"LOG_LEVEL": "info", "CACHE_ENTRIES": None, "WORKERS": "2"}
    await lab.also(same, "by hand", "update", "ConfigMap", namespace, name, {"data": own})
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    image = f"registry.corp.example/{namespace}/{name}:{new}"
    spec: dict[str, Any] = {"containers": [{**there, "image": image, "resources": resources}]}
    template = {"metadata": {"annotations": {"checksum/config": f"{lab.rng.getrandbits(64):016x}"}}, "spec": spec}
    body = {**chart(f"0.{minor + 1}.0"), "spec": {"replicas": replicas, "template": template}}
    await lab.culprit("by hand", "update", "Deployment", namespace, name, body)
    lab.start(afterwards())
