"""With a new version, and long after it: a variable that nobody has set, less patience, memory that is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

# -- a variable that nobody has set

ENDS = (
    "panic: required key {key} missing value\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/cmd/server/main.go:41",
    "java.lang.IllegalArgumentException: Could not resolve placeholder '{key}' in value \"${{{key}}}\"",
    'EnvVarError: env-var: "{key}" is a required variable, but it was not set',
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings\n{key}\n  Field required",
    'Symfony\\Component\\DependencyInjection\\Exception\\EnvNotFoundException: Environment variable not found: "{key}"',
    "/app/config/boot.rb:12:in 'Hash#fetch': key not found: \"{key}\" (KeyError)",
)
"""What programs say of it that are written in Go, Java, for Node.js, in Python, PHP and Ruby."""


@family(
    "A new version of an app needs one more variable of its environment. It is set where it was developed, and nobody"
    " has set it here: each of its new pods ends at its start.",
    joined=91,
)
async def one_more_variable(lab: Lab) -> AsyncIterator[None]:
    """As everybody has had it."""
    namespace, name, front, other, key = lab.rng.choice(
        (
            ("shop", "gift-wrap", "gift-page", "gift-mails", "WRAP_CATALOG_URL"),
            ("payments", "direct-debits", "debit-page", "debit-files", "MANDATE_SIGNING_KEY_ID"),
            ("media", "live-chat", "chat-page", "chat-archive", "MODERATION_QUEUE"),
            ("search", "synonym-api", "synonym-page", "synonym-sync", "INDEX_ALIAS"),
        )
    )
    by, minor, replicas = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(2, 30), lab.rng.choice((2, 4, 5))
    old, new, error = f"3.{minor}.4", f"3.{minor + 1}.0", lab.rng.choice(ENDS).format(key=key)
    budget = lab.rng.choice(({"maxSurge": 1, "maxUnavailable": 1}, {"maxSurge": "25%", "maxUnavailable": "25%"}))

    def check(container: Container) -> Problem | None:
        is_set = any(one["name"] == key for one in container.spec.get("env", ()))
        return Problem("crash", error, at_once=True) if container.tag == new and not is_set else None

    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="20"))
    env = [{"name": "PORT", "value": "8080"}, {"name": "REGION", "value": "eu-1"}]
    like = App("", asked=lambda: 16.0, check=check)
    await lab.app(namespace, name, like=like, replicas=replicas, tag=old, config=name, env=env)
    strategy = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": budget}}}
    await lab.edit("admin", "Deployment", namespace, name, strategy)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.0.7", config=other)
    await rolled(lab, namespace, name, old)
    await rolled(lab, namespace, other, "1.0.7")
    await set_before(lab, namespace, front, name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"a pod of {namespace}/{name} restarts again and again"
    lab.alert("KubePodCrashLooping", many, summary, 4, namespace=namespace, container=name)
    lab.alert_stuck(namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, other, {"data": {"EVERY": "30s"}})

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "35"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


# -- less patience

TIMEOUTS = (
    ("ResourceAccessException", 1.0),  # Spring: a read timeout of a second where there was none
    ("AxiosError", 1.0),
    ("ReadTimeout", 0.8),
    ("deadline_exceeded", 1.0),
)


@family(
    "A new version of an app comes with another HTTP client, which gives up after a second unless it is told otherwise."
    " One of those whom it calls has always taken longer: these calls fail.",
    joined=91,
)
async def gives_up_after_a_second(lab: Lab) -> AsyncIterator[None]:
    """As those tell in whose change there was no word of a timeout."""
    namespace, name, front, home, slow = lab.rng.choice(
        (
            ("shop", "delivery-quotes", "quote-page", "payments", "customs-rates"),
            ("payments", "credit-limits", "limit-page", "search", "scoring"),
            ("media", "transcripts", "transcript-page", "search", "language-model"),
            ("search", "travel-times", "map-page", "media", "route-engine"),
        )
    )
    (error, patience), minor = lab.rng.choice(TIMEOUTS), lab.rng.randrange(2, 30)
    takes, share, asked = lab.rng.uniform(1.3, 2.4), lab.rng.uniform(0.35, 0.8), 18.0
    old, new, by = f"6.{minor}.3", f"6.{minor + 1}.0", lab.rng.choice(("ci", "argocd", "flux"))

    giving_up: dict[str, bool] = {}

    def gives_up(container: Container) -> bool:
        uid = str(container.pod["metadata"]["uid"])
        giving_up[uid] = container.tag == new and container.seconds >= lab.lag
        return giving_up[uid]

    def part_of_new() -> float:
        there = backends(lab.world, namespace, name)
        return sum(giving_up.get(str(one["metadata"]["uid"]), False) for one in there) / max(1, len(there))

    def calls(with_error: bool) -> float:
        """Of the slow one, a second, that are given up, or answered."""
        return asked * share * (part_of_new() if with_error else 1 - part_of_new())

    await lab.apply(objects.config_map(home, slow, LOG_LEVEL="info", WORKERS="8"))
    like = App("", asked=lambda: asked * share, latency=lambda _: takes)
    await lab.app(home, slow, like=like, replicas=3, tag="2.8.1", config=slow)
    await rolled(lab, home, slow, "2.8.1")
    like = App(
        "",
        asked=lambda: asked,
        failing=lambda container: share if gives_up(container) else 0.0,
        fails_with=lambda _: "504" if error == "deadline_exceeded" else "500",
        latency=lambda container: share * (patience if gives_up(container) else takes),
    )
    env = [{"name": f"{slow.upper().replace('-', '_')}_URL", "value": f"http://{slow}.{home}:80"}]
    await lab.app(namespace, name, like=like, replicas=3, tag=old, env=env)
    await rolled(lab, namespace, name, old)
    await set_before(lab, namespace, front, name)
    lab.reserve(home, slow)
    told = {"namespace": namespace, "service": name, "client_name": f"{slow}.{home}"}
    for exception, with_error in (("none", False), (error, True)):
        counted = lab.adding_up(partial(calls, with_error))
        lab.measure("http_client_requests_total", counted, "counter", **told, exception=exception)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", home, slow, {"data": {"WORKERS": "12"}})

    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", home, slow, {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, namespace, name, new, culprit=True)
    lab.start(afterwards())


# -- memory that is never given back

MIB = 2.0**20
FRESH_MIB = 150.0


@dataclass
class _Leaking:
    """How much each process has in memory: of weeks as all begins, and from a fresh start's on once it was killed."""

    lab: Lab
    limit: float
    rate: float
    """MiB a second."""
    began: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By the uid of a pod: since when its process is counted, and what it had then."""
    ages: dict[str, float] = field(default_factory=dict)

    def first(self, uid: str, seconds: float) -> None:
        """A process that has run for weeks, and has so many seconds left."""
        self.began[uid] = now().timestamp(), self.limit - self.rate * seconds

    def mib(self, uid: str) -> float:
        since, had = self.began.get(uid, (now().timestamp(), FRESH_MIB))
        return min(self.limit, had + self.rate * (now().timestamp() - since))

    def check(self, container: Container) -> Problem | None:
        uid = str(container.pod["metadata"]["uid"])
        if container.seconds < self.ages.get(uid, 0.0) or uid not in self.began:
            self.began[uid] = now().timestamp(), FRESH_MIB
        self.ages[uid] = container.seconds
        if self.mib(uid) < self.limit:
            return None
        return Problem("oom", f"needs {self.limit:.0f}Mi", at_once=True)

    def bytes_of(self, namespace: str, name: str) -> float | None:
        """What the pod of a name has; None where it is gone."""
        pod = self.lab.world["Pod"].get((namespace, name))
        collected = self.lab.kubelets.rng.uniform(0.985, 1.0)  # what its runtime has just given up
        return None if pod is None else self.mib(str(pod["metadata"]["uid"])) * collected * MIB


@family(
    "No culprit. A version of weeks ago keeps a little of each request. Its pods have run ever since; today they come"
    " to the limit of their memory, one soon after the other, and are killed.",
    culprit=False,
    joined=91,
)
async def little_by_little(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked for what had been released that day."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "session-api", "session-page", "session-audit"),
            ("payments", "fraud-rules", "fraud-page", "fraud-export"),
            ("media", "stream-index", "stream-page", "stream-stats"),
            ("search", "suggest-api", "suggest-page", "suggest-feed"),
        )
    )
    minor, limit = lab.rng.randrange(2, 30), lab.rng.choice((512, 768, 1024))
    leaking = _Leaking(lab, float(limit), lab.rng.uniform(0.6, 1.1))
    like = App("", memory_mi=int(FRESH_MIB), asked=lambda: 23.0, check=leaking.check)
    await lab.app(namespace, name, like=like, replicas=4, tag=f"9.{minor}.2", memory=f"{limit}Mi")
    await rolled(lab, namespace, name, f"9.{minor}.2")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="4.0.1", config=other)
    await rolled(lab, namespace, other, "4.0.1")
    await set_before(lab, namespace, front, name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"containers of {namespace}/{name} have been killed for their memory"
    lab.alert("KubernetesContainerOomKiller", many, summary, 3, namespace=namespace, container=name)
    lab.alert_errors(namespace, name, 0.15)
    lab.alert_ingress_errors(namespace, namespace, 0.15)
    await lab.until(lab.is_well)
    for turn, pod in enumerate(pods(lab.world, namespace, name)):
        meta = pod["metadata"]
        leaking.first(str(meta["uid"]), 92.0 + turn * lab.rng.uniform(4, 9))
        told = {"namespace": namespace, "service": "kubelet", "pod": meta["name"], "container": name}
        lab.measure("container_memory_working_set_bytes", partial(leaking.bytes_of, namespace, meta["name"]), **told)
    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "90s"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "4.0.2")
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, namespace, front)
