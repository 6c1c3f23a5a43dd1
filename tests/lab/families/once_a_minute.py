"""Once a minute: a run that is started beside the last one, and an API server that is away for as long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pending, pods, restarts
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import App, Container, CrashError, Process, Program
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import both, every, getting, informer
from tests.lab.scenario import family

# -- a run

RUN_SECONDS, SIDE_BY_SIDE = 330.0, 8
"""For how long a run takes by now, as there is more to do than there was, and how many pods do it."""


def _cron_job(namespace: str, name: str, image: str, schedule: str, *, overlaps: bool, cpu: str) -> Json:
    made = objects.deployment(namespace, name, image, restartPolicy="Never", config=name)
    template = made["spec"]["template"]
    [container] = template["spec"]["containers"]
    del container["readinessProbe"]
    container["resources"]["requests"]["cpu"] = cpu
    job = {"parallelism": SIDE_BY_SIDE, "completions": SIDE_BY_SIDE, "backoffLimit": 3, "template": template}
    policy = "Allow" if overlaps else "Forbid"
    spec = {"schedule": schedule, "timeZone": "Etc/UTC", "concurrencyPolicy": policy, "jobTemplate": {"spec": job}}
    return {"kind": "CronJob", "metadata": {"namespace": namespace, "name": name}, "spec": spec}


@family(
    "A job of each night is to be done by the minute, so that what it makes is fresh, and its runs may overlap. A run"
    " takes some minutes by now: the next ones come beside it, until the quota of the namespace, or the nodes, have no"
    " room left. An app there that needs another pod gets none.",
    joined=99,
)
async def beside_the_last_one(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found some hundred pods of one CronJob on a Monday."""
    namespace, name, run, other = lab.rng.choice(
        (
            ("shop", "deal-page", "price-sync", "deal-mails"),
            ("payments", "payout-page", "statement-sync", "payout-export"),
            ("media", "trend-page", "trend-count", "trend-feed"),
            ("search", "topic-page", "topic-sync", "topic-feed"),
        )
    )
    by, minor, by_quota = lab.rng.choice((*TEAMS, "flux", "ci")), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    was_forbidden, schedule = lab.rng.random() < 0.5, lab.rng.choice(("* * * * *", "*/1 * * * *"))
    image, cpu = f"registry.corp.example/{namespace}/{run}", "500m" if by_quota else "5"
    needed = {"requests": {"cpu": "250m" if by_quota else "3", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    lab.apps[image] = App(image, ends_after=RUN_SECONDS, serves=False)
    await lab.apply(objects.config_map(namespace, run, BATCH="500", LOG_LEVEL="info"))
    made = _cron_job(namespace, run, f"{image}:1.{minor}.0", "40 2 * * *", overlaps=not was_forbidden, cpu=cpu)
    await lab.apply(made)
    await lab.app(namespace, name, like=App("", asked=lambda: 20.0), replicas=3, tag=f"5.{minor}.0")
    await rolled(lab, namespace, name, f"5.{minor}.0")
    await lab.roll("admin", namespace, name, f"5.{minor}.1", resources=needed)
    await rolled(lab, namespace, name, f"5.{minor}.1")
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.3.0", config=other)
    await rolled(lab, namespace, other, "1.3.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, name)
    if by_quota:
        meta = {"namespace": namespace, "name": "team"}
        await lab.apply({"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "30"}}})
    lab.alert_stuck(namespace, name)
    lab.alert_stuck(namespace, other)
    for one in (name, other):
        lab.alert_lacking(namespace, one, seconds=15)
    summary = f"pods of {namespace} have had no node for a while"
    lab.alert("KubePodNotScheduled", lambda: pending(lab.world, namespace), summary, 16, namespace=namespace)
    await lab.until(lab.is_well)

    async def grow() -> None:
        """The next release of one, and a further pod or two for the other, as on any day."""
        await lab.pause((22 - now().timestamp()) % 60)
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.3.1")
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.edit(lab.rng.choice(TEAMS), "Deployment", namespace, name, {"spec": {"replicas": 5}})
        await lab.pause(lab.rng.uniform(3, 8))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"5.{minor}.2")

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause((46 - now().timestamp()) % 60)
    spec: Json = {"schedule": schedule, "concurrencyPolicy": "Allow"}
    await lab.culprit(by, "update", "CronJob", namespace, run, {"spec": spec})
    await lab.pause(lab.rng.uniform(20, 40))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "query", {"data": {"TIMEOUT_MS": "750"}})
    await lab.pause(85)
    lab.start(grow())


# -- the control plane

RENEW_SECONDS, LEASE_SECONDS, DUE_SECONDS = 2.0, 10, 6.0
LEASES = ("coordination.k8s.io", "leases", "*")
OPERATORS = (
    ("cert-manager", "cert-manager-cainjector", "v1.19.1"),
    ("monitoring", "prometheus-operator", "v0.86.1"),
    ("platform", "postgres-operator", "v1.14.0"),
    ("platform", "keda-operator", "2.18.1"),
    ("kube-system", "aws-load-balancer-controller", "v2.14.1"),
)


def _leading(namespace: str, name: str) -> Program:
    """Renews its lease, and ends where it has not been able to in time, as others may lead by then."""
    where = path("Lease", namespace, name)

    async def run(process: Process) -> None:
        renewed = now()
        while True:
            spec = {
                "holderIdentity": process.see().pod["metadata"]["name"],
                "renewTime": f"{stamp(now())[:-1]}000Z",
                "leaseDurationSeconds": LEASE_SECONDS,
            }
            done = await process.api.call("PATCH", where, {"spec": spec})
            if done.status == 404:
                done = await process.api.call(
                    "POST", path("Lease", namespace), {"metadata": {"name": name}, "spec": spec}
                )
            if done.ok:
                renewed = now()
            elif (now() - renewed).total_seconds() > DUE_SECONDS:
                raise CrashError(
                    f"failed to renew lease {namespace}/{name}: context deadline exceeded: leader election lost"
                )
            await asyncio.sleep(RENEW_SECONDS * process.rng.uniform(0.9, 1.1))

    return run


@dataclass
class _Provider:
    """Who runs the control plane, and replaces its machine when it is the turn of this cluster."""

    lab: Lab
    seconds: float
    is_away: bool = False
    answered: dict[str, int] = field(default_factory=lambda: {"success": 0, "failure": 0})

    async def replace(self) -> None:
        plane = self.lab.plane
        manager, scheduler = plane.controller_manager, plane.scheduler
        assert manager
        assert scheduler
        self.is_away = True
        for program in (scheduler, manager, plane.apiserver):
            await asyncio.to_thread(program.stop)
        await asyncio.sleep(self.seconds)
        for program in (plane.apiserver, manager, scheduler):
            await asyncio.to_thread(program.start)
        self.is_away = False

    async def submit(self, process: Process) -> None:
        """As a portal that reads and writes what its users order as objects of the cluster."""
        done = await process.api.call("GET", f"{path('ConfigMap', 'platform')}?limit=20")
        self.answered["success" if done.ok else "failure"] += 1


@family(
    "No culprit. The provider upgrades the managed control plane by itself, and replaces its machine: for a while the"
    " API is not there. All that runs goes on. Controllers cannot renew their leases meanwhile, and end, to be started"
    " again; what asks the API for its users fails.",
    culprit=False,
    joined=99,
)
async def replaced_by_the_provider(lab: Lab) -> AsyncIterator[None]:
    """As those tell of a regional cluster that was none, in the window that they had set years ago."""
    provider, chosen = _Provider(lab, lab.rng.uniform(12, 22)), lab.rng.sample(OPERATORS, 3)
    portal, page = lab.rng.choice(
        (("order-portal", "order-page"), ("job-console", "job-page"), ("env-api", "env-page"))
    )
    minor, share = lab.rng.randrange(2, 30), lab.rng.uniform(0.5, 0.9)
    for home, name, tag in chosen:
        program = both(informer(path("Service")), every(4.0, getting(path("Node"))), _leading(home, name))
        await lab.controller(home, name, program, ("", "services,nodes", "get,list,watch"), LEASES, replicas=1, tag=tag)
        await rolled(lab, home, name, tag)

    def fails(_: Container) -> float:
        return share if provider.is_away else 0.0

    rights = ("", "configmaps", "get,list")
    app = await lab.controller("platform", portal, every(1.5, provider.submit), rights, replicas=2, tag=f"2.{minor}.0")
    app.serves, app.failing, app.fails_with, app.asked = True, fails, lambda _: "502", lambda: 14.0
    await rolled(lab, "platform", portal, f"2.{minor}.0")
    await set_before(lab, "platform", page, portal)

    def restarted(home: str, name: str) -> bool:
        there = pods(lab.world, home, name)
        return bool(there) and restarts(lab.world, home, name) > 0

    for home, name, _ in chosen:
        summary = f"a container of {home}/{name} was started again"
        told = {"namespace": home, "container": name}
        lab.alert("KubeContainerRestarted", lambda home=home, name=name: restarted(home, name), summary, 6, **told)  # type: ignore[misc]
    summary = "Prometheus has not found the API server for a while"
    lab.alert("KubeAPIDown", lambda: lab.plane.apiserver.pid is None, summary, 8, job="apiserver")
    told = {"namespace": "platform", "service": portal}
    for result in ("success", "failure"):
        value = lambda result=result: provider.answered[result]  # noqa: E731
        lab.measure("portal_api_requests_total", value, "counter", **told, result=result)
    for one in (portal, page):
        lab.alert_errors("platform", one)
    lab.alert_ingress_errors("platform", "platform")
    await lab.until(lab.is_well)
    touched = lab.rng.choice(chosen)
    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), "platform", portal, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 9))
    if lab.rng.random() < 0.5:
        args = ["--leader-elect", f"--v={lab.rng.choice((1, 2, 4))}"]
        await lab.roll(lab.rng.choice(("flux", "ci")), *touched, args=args)
    else:
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "payments", "ledger", {"data": {"LOG_LEVEL": "warn"}})
    await lab.pause(lab.rng.uniform(4, 9))
    await change_page(lab, "platform", page)
    await lab.pause(lab.rng.uniform(5, 12))
    lab.start(provider.replace())
