"""Names that no longer meet: a selector that few pods fit, nodes that are marked anew, a key that nobody finds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

REPLICAS, CAPACITY = 8, 60.0
"""Of those that take everything in; in the usual they have half of what they stand."""
FILLS_SECONDS = 2.5
"""For how long one that gets far too much has room to keep what waits."""


@family(
    "What takes all writes in moves to another way to find its peers, and the members of that get a label: the Service"
    " selects it too, so only the few new pods of the rollout get the calls of all, and are killed for memory.",
    joined=19,
)
async def narrowed_selector(lab: Lab) -> AsyncIterator[None]:
    """As Grafana tells of its logs (August 2022, loki 6626)."""
    namespace, name, caller = lab.rng.choice(
        (("search", "distributor", "intake"), ("media", "receiver", "ingest"), ("payments", "collector", "events"))
    )
    calls, over = REPLICAS * CAPACITY / 2, dict[str, datetime]()
    """Since when one gets more than it stands, by its pod and restarts."""

    def check(container: Container) -> Problem | None:
        there = backends(lab.world, namespace, name)
        me, told = container.pod["metadata"]["name"], container.pod["status"].get("containerStatuses", ())
        process = f"{me} {sum(one['restartCount'] for one in told)}"
        if me not in [one["metadata"]["name"] for one in there] or calls / len(there) <= CAPACITY:
            over.pop(process, None)
            return None
        waited = (now() - over.setdefault(process, now())).total_seconds()
        if waited < FILLS_SECONDS + lab.lag:
            return None
        return Problem("oom", f"needs more than {container.spec['resources']['limits']['memory']}")

    like = App("", check=check, start_seconds=3, capacity=CAPACITY, asked=lambda: calls)
    await lab.app(namespace, name, tag="2.5.0", like=like, replicas=REPLICAS)
    careful = {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}
    await lab.edit("admin", "Deployment", namespace, name, {"spec": careful})
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == REPLICAS)
    await lab.until(lambda: len(backends(lab.world, namespace, caller)) == 3)
    await publish(lab, namespace, caller)
    lab.alert_errors(namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    label = {f"{name}.corp.example/gossip-member": "true"}
    by = lab.rng.choice(("flux", "ci", "argocd"))
    await lab.culprit(by, "update", "Service", namespace, name, {"spec": {"selector": label}})
    template = {"metadata": {"labels": label}}
    await lab.edit(by, "Deployment", namespace, name, {"spec": {"template": template}})


@family(
    "The nodes of one kind of work are marked anew, as their group's taint gets another name: what runs there goes on,"
    " and each further run, which tolerates the old one, finds no node.",
    joined=19,
)
async def renamed_taint(lab: Lab) -> AsyncIterator[None]:
    """As Lima tells of Kubernetes 1.24 (May 2022, lima 846)."""
    namespace, name, work = lab.rng.choice(
        (("media", "render", "gpu"), ("search", "embed", "gpu"), ("payments", "reconcile", "batch"))
    )
    image, nodes = f"registry.corp.example/{namespace}/{name}", lab.rng.sample(NODES, 2)
    lab.apps[image] = App(image, ends_after=3)
    taint: Json = {"key": "dedicated", "value": work, "effect": "NoSchedule"}
    for node in nodes:
        body: Json = {"metadata": {"labels": {"pool": work}}, "spec": {"taints": [taint]}}
        await lab.edit("admin", "Node", "", node, body)
    jobs = path("Job", namespace)

    async def dispatch(process: Process) -> None:
        """One order after another becomes a Job; few at a time, and the oldest go."""
        listed = await process.api.call("GET", jobs)
        there: list[Json] = listed.body.get("items", [])
        done = sorted(one["metadata"]["name"] for one in there if one.get("status", {}).get("succeeded"))
        for old in done[:-3]:
            await process.api.call("DELETE", f"{jobs}/{old}", {"propagationPolicy": "Background"})
        if not listed.ok or len(there) - len(done) >= 6:
            return
        tolerated = {"key": "dedicated", "operator": "Equal", "value": work, "effect": "NoSchedule"}
        pod: Json = {"restartPolicy": "Never", "nodeSelector": {"pool": work}, "tolerations": [tolerated]}
        template = objects.deployment(namespace, name, f"{image}:1.0.0", **pod)["spec"]["template"]
        meta = {"name": f"{name}-{int(now().timestamp())}"}
        await process.api.call("POST", jobs, {"metadata": meta, "spec": {"template": template, "backoffLimit": 2}})

    rule = ("batch", "jobs", "list,create,delete")
    await lab.controller(namespace, f"{name}-dispatcher", every(3, dispatch), rule, replicas=1)
    holds = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", holds, f"a pod of {namespace} has had no node for a while", 8, namespace=namespace)
    yield
    by, renamed = lab.rng.choice(("ci", "carol", "bob")), {**taint, "key": "node.corp.example/dedicated"}
    for node in nodes:
        await lab.culprit(by, "update", "Node", "", node, {"spec": {"taints": [renamed]}})


@family(
    "A ConfigMap is written anew with one key misspelt: the app finds no timeout there, takes none for nothing at all,"
    " and every call of its database is given up at once.",
    joined=19,
)
async def misspelt_key(lab: Lab) -> AsyncIterator[None]:
    """As Graf Clouds tells of a typo that took two hours."""
    namespace, name, caller = lab.rng.choice(
        (("shop", "orders", "account"), ("media", "library", "shelves"), ("payments", "invoices", "billing"))
    )
    database, config = f"{name}-db", f"{name}-config"
    right, wrong = "DATABASE_CONNECTION_TIMEOUT", "DATABASE_CONNECITON_TIMEOUT"
    cached = lab.rng.uniform(0.1, 0.3)
    """The share of its answers for which it asks nobody."""
    missed: list[datetime] = []

    def failing(_: Container) -> float:
        """It reads its file anew when that changes."""
        if float(lab.world["ConfigMap"][namespace, config]["data"].get(right, 0)):
            missed.clear()
            return 0.0
        missed[:] = missed or [now()]
        return 1 - cached if (now() - missed[0]).total_seconds() >= lab.lag else 0.0

    data = {right: "15000", "DATABASE_POOL_SIZE": "20", "LOG_LEVEL": "info"}
    await lab.apply(objects.config_map(namespace, config, **data))
    await lab.app(namespace, database, like=App("", serves=False), kind="StatefulSet", replicas=1)
    like = App("", upstreams=((namespace, database),), failing=failing)
    await lab.app(namespace, name, like=like, replicas=3, config=config)
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=2)
    for one in (name, caller):
        lab.alert_errors(namespace, one)
    yield
    size = str(lab.rng.choice((30, 40, 50)))
    body = {"data": {right: None, wrong: "30000", "DATABASE_POOL_SIZE": size}}
    await lab.culprit(lab.rng.choice(("alice", "flux", "argocd")), "update", "ConfigMap", namespace, config, body)
