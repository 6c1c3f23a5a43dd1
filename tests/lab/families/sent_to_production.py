"""What a team sends to production by itself: a release whose migration did not come through, the address of a store."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_done, uid_of
from tests.lab.network import backends, unreachable
from tests.lab.scenario import family

MIGRATES_SECONDS, ENDS_SECONDS = 3.0, 1.5
"""For how long a migration runs that comes through, and after how long one ends that does not."""


@dataclass
class Since:
    """Whether something has been so for as long as the variation has it take to show."""

    lab: Lab
    holds: Callable[[], bool]
    since: float = 0.0

    def __call__(self) -> bool:
        if not self.holds():
            self.since = 0.0
            return False
        self.since = self.since or now().timestamp()
        return now().timestamp() - self.since >= self.lab.lag


async def stored(lab: Lab, namespace: str, database: str) -> None:
    """A team's own database, which is up. Raises TimeoutError, RefusedError."""
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1, tag="16.4")
    await lab.until(lambda: backends(lab.world, namespace, database))
    lab.reserve(namespace, database)


WHY = (
    "ERROR: canceling statement due to lock timeout",
    "ERROR: permission denied for schema public",
    'ERROR: column "tenant_id" referenced in foreign key constraint does not exist',
)


@family(
    "A pipeline runs the migration of a release as a Job and rolls the release out after it, without a look at what"
    " became of the Job. It has failed: the new version is ready, and whatever asks for its new table is answered"
    " with 500.",
    joined=88,
)
async def released_regardless(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *relation does not exist* after a release that was green."""
    namespace, name, front, table = lab.rng.choice(
        (
            ("shop", "loyalty-points", "points-page", "point_grants"),
            ("payments", "instalments", "instalment-page", "instalment_plans"),
            ("media", "bookmarks", "bookmark-page", "bookmark_folders"),
            ("search", "search-alerts", "alerts-page", "alert_channels"),
        )
    )
    by, minor, share = lab.rng.choice(("ci", "ci", *TEAMS)), lab.rng.randrange(2, 50), lab.rng.uniform(0.3, 0.9)
    old, new, why = f"3.{minor}.2", f"3.{minor + 1}.0", lab.rng.choice(WHY)
    step = f"{name}-migrate"
    image, database = f"registry.corp.example/{namespace}/{step}", f"{name}-db"

    def is_there() -> bool:
        """The table, since a migration of the new version came through."""
        return any(images(pod)[0] == f"{image}:{new}" and is_done(pod) for pod in lab.world["Pod"].values())

    def gives_up(container: Container) -> Problem | None:
        is_late = container.tag == new and container.seconds >= ENDS_SECONDS
        return Problem("crash", why, at_once=True) if is_late else None

    def fails(container: Container) -> float:
        is_missed = container.tag == new and container.seconds >= lab.lag and not is_there()
        return share if is_missed else 0.0

    def migration(tag: str) -> Json:
        made = objects.deployment(namespace, step, f"{image}:{tag}", config=name, restartPolicy="Never")
        del made["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
        meta = {"namespace": namespace, "name": f"{step}-{tag.replace('.', '-')}"}
        return {"kind": "Job", "metadata": meta, "spec": {"template": made["spec"]["template"], "backoffLimit": 1}}

    lab.apps[image] = App(image, ends_after=MIGRATES_SECONDS, check=gives_up, serves=False)
    await stored(lab, namespace, database)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", POOL_SIZE="20"))
    await lab.apply(migration(old), "ci")
    await lab.until(lambda: any(is_done(pod) for pod in lab.world["Pod"].values()))
    like = App("", upstreams=((namespace, database),), asked=lambda: 24.0, failing=fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=old, config=name)
    await rolled(lab, namespace, name, old)
    await set_before(lab, namespace, front, name)

    def refused() -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 24 * sum(map(fails, there)) / max(1, len(there))

    told = {"namespace": namespace, "service": name, "sqlstate": "42P01", "relation": table}
    lab.measure("db_statement_errors_total", lab.adding_up(refused), "counter", **told)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    size = {"data": {"POOL_SIZE": lab.rng.choice(("15", "25", "30"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(3, 7))
    job = migration(new)
    reason = "of the same release: its migration, which does not come through"
    await lab.also(reason, by, "create", "Job", namespace, job["metadata"]["name"], job)
    await lab.pause(lab.rng.uniform(3, 6))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


HOST = re.compile(r"(?:\w+://)?(?:[^@/]*@)?([\w.-]+)")


@dataclass
class _Client:
    """An app that finds what it needs by a value of its ConfigMap, as that was at its start or as it is now."""

    lab: Lab
    key: str
    is_once: bool
    looks: bool
    """Whether its probe asks for it too."""
    had: dict[str, str] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    def trouble(self, container: Container) -> str:
        """Why it does not get there, or ""."""
        told = container.config.get(self.key, "")
        value = self.had.setdefault(uid_of(container.pod), told) if self.is_once else told
        found, own = HOST.match(value), container.pod["metadata"]["namespace"]
        service, _, rest = (found[1] if found else "").partition(".")
        return unreachable(self.lab.world, container.pod, rest.partition(".")[0] or own, service)

    def check(self, container: Container) -> Problem | None:
        if not self.looks or not (why := self.trouble(container)):
            return None
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({why})", at_once=self.is_once)

    def fails(self, container: Container) -> float:
        uid = uid_of(container.pod)
        if not self.trouble(container):
            self.since.pop(uid, None)
            return 0.0
        since = self.since.setdefault(uid, now().timestamp())
        return 0.96 if now().timestamp() - since >= self.lab.lag else 0.0


def _mistaken(slip: str, service: str, namespace: str, *, is_short: bool) -> str:
    """A host as somebody writes it who was in a hurry, or had the values of another place beside them."""
    where = "" if is_short else f".{namespace}.svc.cluster.local"
    return {
        "letters": f"{service[:-2]}{service[-1]}{service[-2]}{where}",
        "dash": f"{service.replace('-', '', 1)}{where}",
        "trials": f"{service}.{namespace}-staging.svc.cluster.local",
        "replica": f"{service}-ro{where}",
    }[slip]


@family(
    "Somebody edits the ConfigMap of an app, and the address of its database, or of a service that it asks, is that of"
    " a host that there is not: of two letters that changed places, or of the cluster for trials. The app is well but"
    " for all that it needs from there.",
    joined=88,
)
async def pointed_elsewhere(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *no such host*, and the name three times before they saw it."""
    namespace, name, front, needed, key, form = lab.rng.choice(
        (
            ("shop", "stock-reservations", "reserve-page", "reservations-db", "DATABASE_HOST", "{0}"),
            (
                "payments",
                "dispute-files",
                "dispute-form",
                "disputes-db",
                "DATABASE_URL",
                "postgres://disputes@{0}/files",
            ),
            ("media", "clip-editor", "editor-page", "render-farm", "RENDER_FARM_URL", "http://{0}/v2"),
            ("search", "result-pages", "results-view", "score-service", "SCORES_URL", "http://{0}"),
        )
    )
    by, minor = lab.rng.choice((*TEAMS, *TEAMS, "flux")), lab.rng.randrange(2, 50)
    is_once, looks, is_short = lab.rng.random() < 0.5, lab.rng.random() < 0.4, lab.rng.random() < 0.3
    kinds = ("letters", "dash", "trials", "replica") if needed.endswith("-db") else ("letters", "dash", "trials")
    right = needed if is_short else f"{needed}.{namespace}.svc.cluster.local"
    wrong = _mistaken(lab.rng.choice(kinds), needed, namespace, is_short=is_short)
    client = _Client(lab, key, is_once, looks)
    if needed.endswith("-db"):
        await stored(lab, namespace, needed)
    else:
        await lab.app(namespace, needed, replicas=2, tag="2.8.1")
        await rolled(lab, namespace, needed, "2.8.1")
        lab.reserve(namespace, needed)
    settings = {"LOG_LEVEL": "info", "REQUEST_TIMEOUT_MS": "2000", key: form.format(right)}
    await lab.apply(objects.config_map(namespace, name, **settings))
    like = App("", check=client.check, asked=lambda: 22.0, failing=client.fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"5.{minor}.0", config=name)
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await set_before(lab, namespace, front, name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"5.{minor}.1")
    await lab.pause(lab.rng.uniform(11, 16))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 6))
    also = {"REQUEST_TIMEOUT_MS": lab.rng.choice(("1500", "3000"))} if lab.rng.random() < 0.5 else {}
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {key: form.format(wrong), **also}})
    if is_once:
        await lab.pause(lab.rng.uniform(0.5, 3))
        at = {"kubectl.kubernetes.io/restartedAt": f"{now():%Y-%m-%dT%H:%M:%SZ}"}
        body = {"spec": {"template": {"metadata": {"annotations": at}}}}
        why = "of the same hand, so that the app reads the address that it was given"
        await lab.also(why, by, "update", "Deployment", namespace, name, body)
    lab.start(afterwards())
