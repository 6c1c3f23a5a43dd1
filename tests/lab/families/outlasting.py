"""Who asks too much: a batch whose backlog outlasts it, an agent for each tenant, a client that has to look around."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial

from tests.lab import addresses, objects
from tests.lab.alerts import pods
from tests.lab.api import Kind, path
from tests.lab.apps import App, Process, Program
from tests.lab.families.databases import ANY
from tests.lab.families.load import alert_on_load
from tests.lab.families.meshes import tries
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.programs import every, getting
from tests.lab.scenario import family

RETRIES, GIVE_UP_SECONDS = 3, 2.0
"""How often a client asks again, and for how long it waits each time."""
BACKLOG, LOST = 600.0, 0.3
"""How many calls wait at most for a server, and the share of its work that it loses where so many do."""
STEP_SECONDS, STEP_SHARE = 0.5, 0.4


@family(
    "A backfill asks an app for a while for more than that one stands: calls wait longer than their clients do, who"
    " give up and ask again while what they gave up is still answered. The backfill is done, and the backlog stays.",
    joined=21,
)
async def backlog_outlasts(lab: Lab) -> AsyncIterator[None]:
    """As AgentMail tells of 19 August 2026 (agentmail-mcp 43); what set it off there was no more than a blip."""
    namespace, called, others, batch = lab.rng.choice(
        (
            ("shop", "stock", ("basket", "offers"), "stock-backfill"),
            ("payments", "tariffs", ("quotes", "statements"), "tariff-recount"),
            ("search", "embeddings", ("related", "answers"), "embeddings-rebuild"),
            ("media", "metadata", ("player", "playlists"), "metadata-export"),
        )
    )
    each, asks, runs = 40.0, lab.rng.choice((55.0, 60.0, 65.0)), lab.rng.uniform(13, 17)
    wanted = dict(zip(others, lab.rng.sample((32.0, 36.0, 40.0), 2), strict=True))
    calls = {batch: 0.0, **wanted}
    waiting, late, refused = [0.0], [0.0], [0.0]

    def running(name: str) -> int:
        return sum(is_ready(pod) for pod in pods(lab.world, namespace, name))

    def seconds() -> float:
        """For how long a call waits."""
        stands = each * max(1, running(called)) * (1 - LOST * waiting[0] / BACKLOG)
        return waiting[0] / stands

    async def traffic() -> None:
        """What is given up is not taken out of the queue, as its server does not hear of it."""
        while True:
            rates = {name: rate * tries(late[0], RETRIES) for name, rate in wanted.items()}
            rates[batch] = asks * running(batch)
            for name, rate in rates.items():
                calls[name] += STEP_SHARE * (rate - calls[name])
            asked, stands = sum(calls.values()), each * max(1, running(called)) * (1 - LOST * waiting[0] / BACKLOG)
            more = waiting[0] + (asked - stands) * STEP_SECONDS
            waiting[0] = min(BACKLOG, max(0.0, more))
            refused[0] = max(0.0, (more - BACKLOG) / STEP_SECONDS / asked)
            late[0] = min(1.0, max(0.0, (seconds() / GIVE_UP_SECONDS - 0.7) / 0.6))
            await asyncio.sleep(STEP_SECONDS)

    like = App(
        "",
        capacity=2 * each,
        asked=lambda: sum(calls.values()),
        failing=lambda _: refused[0],
        fails_with=lambda _: "503",
        latency=lambda _: seconds(),
    )
    await lab.app(namespace, called, like=like, replicas=3)
    upstreams = ((namespace, called),)
    for name in others:
        given_up = lambda _: late[0] ** (RETRIES + 1)  # noqa: E731
        client = App("", upstreams=upstreams, failing=given_up, fails_with=lambda _: "504")
        await lab.app(namespace, name, like=client, replicas=2)
        lab.reserve(namespace, name)
        counted = lab.adding_up(partial(calls.__getitem__, name))
        lab.measure(
            "http_client_requests_total", counted, "counter", namespace=namespace, service=name, upstream=called
        )
    lab.reserve(namespace, called)
    for name in (called, *others):
        lab.alert_errors(namespace, name)
    lab.alert_slow(namespace, called, 1.0)
    image = f"registry.corp.example/{namespace}/{batch}"
    job = App(image, ends_after=runs, upstreams=upstreams, serves=False)
    lab.apps[image] = job
    told = addresses.told(
        job, namespace, batch, env=(), has_config=False, chance=random.Random(f"{lab.called} {image}")
    )
    await lab.until(lambda: running(called) == 3)
    lab.start(traffic())
    yield
    made = objects.deployment(namespace, batch, f"{image}:1.0.0", env=told.env, restartPolicy="Never")
    spec = {"template": made["spec"]["template"], "parallelism": 2, "completions": 2, "backoffLimit": 1}
    name = f"{batch}-{lab.rng.choice(('2026q3', 'eu', 'missing', '1142'))}"
    by = lab.rng.choice(("alice", "bob", "ci"))
    await lab.culprit(by, "create", "Job", namespace, name, {"metadata": {"name": name}, "spec": spec})


TIER, TENANT = "tenancy.corp.example/tier", "tenancy.corp.example/tenant"
TENANTS = ("acme", "borealis", "cobalt", "dunes", "eider", "fjord", "granite", "harbour", "indigo", "juniper")


def _installing(profile: Kind, name: str, image: str) -> Program:
    """As what keeps add-ons: whichever namespace a profile selects has its agent, with an account that may read."""

    async def install(process: Process) -> None:
        listed = await process.api.call("GET", profile.path("platform"))
        for one in listed.body.get("items", []):
            label = ",".join(f"{key}={value}" for key, value in one["spec"]["namespaceSelector"]["matchLabels"].items())
            found = await process.api.call("GET", f"{path('Namespace')}?labelSelector={label}")
            for namespace in [each["metadata"]["name"] for each in found.body.get("items", [])]:
                if (await process.api.call("GET", path("Deployment", namespace, name))).status != 404:
                    continue
                await process.api.call("POST", path("ServiceAccount", namespace), objects.account(namespace, name))
                may = objects.binding(name, name, namespace, name, within=namespace)
                await process.api.call("POST", path("RoleBinding", namespace), may)
                made = objects.deployment(namespace, name, f"{image}:{one['spec']['version']}", account=name)
                await process.api.call("POST", path("Deployment", namespace), made)

    return every(2, install)


@family(
    "The profile of an add-on selects the namespaces of all tenants in place of those of the pilot: each gets an agent"
    " of its own, each of which asks as often as the first one did, and the API server gets many times the requests.",
    joined=21,
)
async def agent_per_tenant(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    name, group = lab.rng.choice(("secrets-agent", "config-agent", "policy-agent")), "addons.corp.example"
    image, tenants = f"registry.corp.example/platform/{name}", lab.rng.sample(TENANTS, len(TENANTS))
    profile = await lab.custom("AddonProfile", group, ANY)
    period = lab.rng.uniform(0.9, 1.1)

    async def program(process: Process) -> None:
        """It asks for its own namespace only."""
        namespace = process.see().pod["metadata"]["namespace"]
        asked = [path(one, namespace) for one in ("ConfigMap", "Secret")]
        await every(period, getting(*asked))(process)

    lab.apps[image] = App(image, program=program, serves=False)
    for number, tenant in enumerate(tenants):
        await lab.namespace(tenant)
        labels = {TENANT: "true", TIER: "pilot" if number == 0 else "standard"}
        await lab.edit("admin", "Namespace", "", tenant, {"metadata": {"labels": labels}})
    reads = ("", "configmaps,secrets", "get,list")
    await lab.apply(objects.cluster_role(name, reads))
    rules = (
        reads,
        (group, "*", "get,list"),
        ("", "namespaces", "list"),
        ("", "serviceaccounts", "create"),
        ("rbac.authorization.k8s.io", "rolebindings", "create"),
        ("apps", "deployments", "get,create"),
    )
    await lab.served(profile)
    spec = {"namespaceSelector": {"matchLabels": {TIER: "pilot"}}, "version": "2.4.1"}
    meta = {"namespace": "platform", "name": name}
    await lab.apply({"apiVersion": f"{group}/v1", "kind": "AddonProfile", "metadata": meta, "spec": spec})
    await lab.controller("platform", "addon-controller", _installing(profile, name, image), *rules, replicas=1)
    await lab.until(lambda: pods(lab.world, tenants[0], name))
    alert_on_load(lab)
    yield
    by = lab.rng.choice(("alice", "flux", "argocd"))
    body = {"spec": {"namespaceSelector": {"matchLabels": {TIER: None, TENANT: "true"}}}}
    await lab.culprit(by, "update", "AddonProfile", "platform", name, body)
