"""What teams do on an ordinary day: a migration, a flag, a port's name, the size of a pool."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import unreachable
from tests.lab.scenario import family

MAX_CONNECTIONS, PER_REQUEST = 100, 20
FAILED = "probe failed: HTTP probe failed with statuscode: 503"


@family(
    "A migration adds a constraint to a large table and holds its lock for as long as it checks the rows: whoever"
    " writes there waits behind it.",
    joined=6,
)
async def migration_lock(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("payments", "invoices"), ("shop", "orders"), ("media", "albums")))
    migrate = f"{name}-migrate"
    image = f"registry.corp.example/{namespace}/{migrate}"
    lab.apps[image] = App(image, ends_after=600)

    def check(container: Container) -> Problem | None:
        """The lock is held while the migration runs, and no longer."""
        runs = any(pod.get("status", {}).get("phase") == "Running" for pod in pods(lab.world, namespace, migrate))
        return Problem("unready", f"{FAILED} (canceling statement due to lock timeout)") if runs else None

    await lab.app(namespace, name, like=App("", check=check), replicas=3)
    lab.alert_lacking(namespace, name)
    yield
    number = lab.rng.randrange(20, 90)
    made = objects.deployment(namespace, migrate, f"{image}:1.{number}.0")["spec"]["template"]
    made["spec"]["restartPolicy"] = "Never"
    del made["spec"]["containers"][0]["readinessProbe"]
    meta = {"namespace": namespace, "name": f"{migrate}-{number:04}"}
    body = {"kind": "Job", "metadata": meta, "spec": {"template": made, "backoffLimit": 0}}
    await lab.culprit("ci", "create", "Job", namespace, meta["name"], body)


@family(
    "A flag in a ConfigMap switches a call on that was tried where no policies are: the team that is called lets in"
    " whom it knows, and every page waits for it.",
    joined=6,
)
async def flag_call(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("shop", "product-pages"), ("media", "home"), ("shop", "basket")))
    callee = lab.rng.choice(("recommendations", "ranking", "suggestions"))
    flag = f"FEATURE_{callee.upper()}"

    def check(container: Container) -> Problem | None:
        if container.config.get(flag) != "on":
            return None
        trouble = unreachable(lab.world, container.pod, "search", callee)
        return Problem("unready", f"{FAILED} ({trouble})") if trouble else None

    await lab.app("search", callee)
    known = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "search"}}}
    spec: Json = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": callee}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [known]}],
    }
    await lab.apply({"kind": "NetworkPolicy", "metadata": {"namespace": "search", "name": callee}, "spec": spec})
    await lab.apply(objects.config_map(namespace, name, **{flag: "off", "LOG_LEVEL": "info"}))
    await lab.app(namespace, name, like=App("", check=check), config=name, replicas=3)
    lab.alert_lacking(namespace, name)
    yield
    by = lab.rng.choice(("alice", "carol", "flux"))
    await lab.culprit(by, "update", "ConfigMap", namespace, name, {"data": {flag: "on"}})


@family(
    "A release calls the port of its container by another name, and its Service goes by the name: its pods are ready,"
    " and nobody reaches them.",
    joined=6,
)
async def port_name(lab: Lab) -> AsyncIterator[None]:
    namespace, name, caller = lab.rng.choice(
        (("shop", "pricing", "offers"), ("search", "synonyms", "suggest"), ("media", "metadata", "player"))
    )
    await lab.app(namespace, name)
    await lab.until(lambda: (namespace, name) in lab.world["Deployment"])
    await lab.roll("admin", namespace, name, "1.0.0", ports=[{"name": "http", "containerPort": 8080}])
    by_name = {"spec": {"ports": [{"port": 80, "targetPort": "http"}]}}
    await lab.edit("admin", "Service", namespace, name, by_name)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    lab.alert_lacking(namespace, caller)
    yield
    ports = [{"name": "http-api", "containerPort": 8080}]
    await lab.roll(lab.rng.choice(("argocd", "ci")), namespace, name, "1.1.0", culprit=True, ports=ports)


@family(
    "A release raises the size of its pool: it keeps every connection that the database has, and another app that"
    " opens one for each request gets none.",
    joined=6,
)
async def connection_pool(lab: Lab) -> AsyncIterator[None]:
    namespace, greedy, starved = lab.rng.choice(
        (("shop", "reports", "orders"), ("payments", "reconciler", "refunds"), ("media", "statistics", "comments"))
    )

    def kept() -> int:
        """Connections of the pools of all that are ready."""
        found = [pod for pod in pods(lab.world, namespace, greedy) if is_ready(pod)]
        told = (one for pod in found for one in pod["spec"]["containers"][0]["env"] if one["name"] == "POOL_SIZE")
        return sum(int(one["value"]) for one in told)

    def check(container: Container) -> Problem | None:
        if kept() + PER_REQUEST <= MAX_CONNECTIONS:
            return None
        return Problem("unready", f"{FAILED} (FATAL: sorry, too many clients already)")

    await lab.app(namespace, greedy, replicas=3, env=[{"name": "POOL_SIZE", "value": "10"}])
    await lab.app(namespace, starved, like=App("", check=check), replicas=3)
    lab.alert_lacking(namespace, starved)
    yield
    env = [{"name": "POOL_SIZE", "value": lab.rng.choice(("40", "50", "100"))}]
    await lab.roll(lab.rng.choice(("argocd", "flux")), namespace, greedy, "1.0.0", culprit=True, env=env)
