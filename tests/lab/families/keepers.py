"""What rests on objects of the cluster that others keep: a priority, a custom object, a Job that is finished."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path
from tests.lab.apps import App, Container, CrashError, Problem, Process
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.programs import both, every, informer
from tests.lab.scenario import family

GOOD_FOR_SECONDS = 24
"""A short-lived credential."""


@family(
    "The value of a PriorityClass cannot be changed, so another one is made and the old one is deleted: whoever names"
    " it runs on, but the pods of the next, harmless change are forbidden.",
    joined=8,
)
async def priority_class(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("shop", "sessions"), ("payments", "fraud"), ("search", "ranking")))
    old, new = lab.rng.choice((("critical", "tier-1"), ("high-priority", "production"), ("important", "customers")))
    await lab.apply({"kind": "PriorityClass", "metadata": {"name": old}, "value": 100000})
    await lab.apply({"kind": "PriorityClass", "metadata": {"name": new}, "value": 200000})
    await lab.pause(1)  # admission knows a class when its informer does
    await lab.app(namespace, name, replicas=3, priorityClassName=old)
    lab.alert_stuck(namespace, name)
    yield
    await lab.culprit(lab.rng.choice(("bob", "flux")), "delete", "PriorityClass", "", old)
    await lab.pause(lab.rng.uniform(8, 14))
    if lab.rng.random() < 0.5:
        await lab.roll("argocd", namespace, name, "1.0.1")
    else:
        await lab.edit("argocd", "Deployment", namespace, name, {"spec": {"replicas": 5}})


@family(
    "A team makes a custom object without a section that its schema does not ask for and its operator reads: the"
    " operator ends on it each time it starts, and renews nobody's credentials.",
    joined=8,
)
async def operator_panic(lab: Lab) -> AsyncIterator[None]:
    group = "identity.corp.example"
    kind = await lab.custom(lab.rng.choice(("Grant", "Login", "Identity")), group, LOOSE)
    await lab.served(kind)
    name = f"{kind.name.lower()}-operator"
    namespace, app = lab.rng.choice((("payments", "refunds"), ("media", "originals"), ("shop", "vouchers")))

    async def renew(process: Process) -> None:
        """It sorts what there is by role before it does anything."""
        listed = await process.api.call("GET", kind.path())
        grants = listed.body.get("items", [])
        if any("database" not in one["spec"] for one in grants):
            raise CrashError("panic: runtime error: invalid memory address or nil pointer dereference [recovered]")
        for one in sorted(grants, key=lambda grant: str(grant["spec"]["database"]["role"])):
            where, secret = one["metadata"]["namespace"], f"{one['metadata']['name']}-login"
            body = {"metadata": {"name": secret}, "stringData": {"until": f"{now().timestamp() + GOOD_FOR_SECONDS}"}}
            if (await process.api.call("PATCH", path("Secret", where, secret), body)).status == 404:
                await process.api.call("POST", path("Secret", where), body)

    def check(container: Container) -> Problem | None:
        until = float(base64.b64decode(container.secret["until"]))
        if now().timestamp() < until:
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503 (role does not exist)")

    def grant(where: str, called: str, spec: Json) -> Json:
        meta = {"namespace": where, "name": called}
        return {"apiVersion": f"{group}/v1", "kind": kind.name, "metadata": meta, "spec": spec}

    for where, called in ((namespace, app), ("search", "indexer"), ("platform", "reports")):
        body = grant(where, called, {"database": {"role": called}})
        await lab.who["argocd"].must("POST", kind.path(where), body)
    rules = (group, kind.plural, "get,list,watch"), ("", "secrets", "get,create,patch")
    await lab.controller("platform", name, both(every(3, renew), informer(kind.path())), *rules, replicas=1)
    await lab.app(namespace, app, like=App("", check=check), replicas=3, secret=f"{app}-login")
    lab.alert_lacking(namespace, app)
    yield
    where, called = lab.rng.choice((("search", "experiments"), ("media", "contest"), ("shop", "survey")))
    body = grant(where, called, {"bucket": {"name": called}})
    await lab.culprit(lab.rng.choice(("alice", "ci")), "create", kind.name, where, called, body)


@family(
    "Finished Jobs are to be removed at once, for tidiness, also one that an agent keeps as it is declared: it makes it"
    " anew each time, and the index is built again and again.",
    joined=8,
)
async def job_ttl(lab: Lab) -> AsyncIterator[None]:
    group = "deploy.corp.example"
    release = await lab.custom("Release", group, LOOSE)
    await lab.served(release)
    namespace, name = lab.rng.choice((("search", "wiki"), ("shop", "products"), ("media", "archive")))
    job = f"{name}-reindex"
    image = f"registry.corp.example/{namespace}/{job}"
    lab.apps[image] = App(image, ends_after=18)

    async def sync(process: Process) -> None:
        """What a release declares is there, and as it declares it."""
        for one in (await process.api.call("GET", release.path())).body.get("items", []):
            where = path("Job", one["metadata"]["namespace"])
            spec: Json = {"ttlSecondsAfterFinished": one["spec"]["jobs"].get("ttlSecondsAfterFinished")}
            found = await process.api.call("GET", f"{where}/{job}")
            if found.status == 404:
                template = objects.deployment(namespace, job, f"{image}:1.0.0")["spec"]["template"]
                template["spec"]["restartPolicy"] = "Never"
                del template["spec"]["containers"][0]["readinessProbe"]
                body = {"metadata": {"name": job}, "spec": {**spec, "template": template, "backoffLimit": 0}}
                await process.api.call("POST", where, body)
            elif found.ok and found.body["spec"].get("ttlSecondsAfterFinished") != spec["ttlSecondsAfterFinished"]:
                await process.api.call("PATCH", f"{where}/{job}", {"spec": spec})

    def check(container: Container) -> Problem | None:
        """There is no index while it is built."""
        runs = any(pod.get("status", {}).get("phase") == "Running" for pod in pods(lab.world, namespace, job))
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503 (no index)") if runs else None

    rules = (group, "releases", "get,list,watch"), ("batch", "jobs", "get,create,patch")
    await lab.controller("platform", "release-agent", every(2, sync), *rules, replicas=1)
    await lab.app(namespace, name, like=App("", check=check), replicas=3)
    meta = {"namespace": namespace, "name": name}
    body = {"apiVersion": f"{group}/v1", "kind": "Release", "metadata": meta, "spec": {"jobs": {"backoffLimit": 0}}}
    await lab.who["argocd"].must("POST", release.path(namespace), body)
    await lab.until(lambda: lab.world["Job"].get((namespace, job), {}).get("status", {}).get("succeeded"))
    lab.alert_lacking(namespace, name)
    yield
    tidy = {"spec": {"jobs": {"ttlSecondsAfterFinished": 0}}}
    await lab.culprit(lab.rng.choice(("carol", "ci")), "update", "Release", namespace, name, tidy)
