"""What several have to agree on: who signs tokens, what a kind has beside its fields, which taint is tolerated."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab import objects
from tests.lab.alerts import pending
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.lab import NODES, Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

WITH_TOKEN = 0.9
"""The share of the requests to an API that come with a user's token."""
MADE_EVERY, KEPT, WAITS_SECONDS = 2.5, 14, 6.0
"""Seconds between two that are ordered, how many of them are left, and for how long whoever ordered one waits."""
ORDERED = 0.5
"""The share of the requests to an app that order one."""


@family(
    "The settings that several apps share name who signs tokens, and get its new name: those that read them anew take"
    " only its tokens from now on, and the one that signs has read the old name at its start.",
    joined=20,
)
async def shared_issuer(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, apis, page = lab.rng.choice(
        (
            ("shop", ("orders", "wishlist"), "account"),
            ("payments", ("mandates", "limits"), "wallet"),
            ("media", ("playlists", "history"), "profile"),
        )
    )
    config = lab.rng.choice((f"{namespace}-common", "shared-settings", "common"))
    old, new = lab.rng.choice(
        (
            ("https://login.corp.example", "https://id.corp.example"),
            ("https://sso.corp.example", "https://login.corp.example"),
        )
    )
    signs_as: dict[str, str] = {}
    """By uid, what each process that signs has read at its start."""

    def sign(container: Container) -> Problem | None:
        signs_as.setdefault(container.pod["metadata"]["uid"], container.config["AUTH_ISSUER"])
        return None

    def refused(container: Container) -> float:
        """The share of the requests whose token is of another issuer than it takes."""
        there = [signs_as.get(pod["metadata"]["uid"], "") for pod in backends(lab.world, namespace, "login")]
        others = sum(issuer != container.config["AUTH_ISSUER"] for issuer in there)
        return WITH_TOKEN * others / len(there) if there else 0.0

    await lab.apply(objects.config_map(namespace, config, AUTH_ISSUER=old, LOG_FORMAT="json", CURRENCY="EUR"))
    await lab.app(namespace, "login", like=App("", check=sign), replicas=2, config=config)
    for api in apis:
        like = App("", failing=refused, fails_with=lambda _: "401")
        await lab.app(namespace, api, like=like, replicas=3, config=config)
    calls = tuple((namespace, one) for one in apis)
    await lab.app(namespace, page, like=App("", upstreams=calls), replicas=3)
    await lab.until(lambda: backends(lab.world, namespace, page))
    await publish(lab, namespace, page)
    lab.alert_errors(namespace, page)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    by = lab.rng.choice(("alice", "argocd", "flux"))
    await lab.culprit(by, "update", "ConfigMap", namespace, config, {"data": {"AUTH_ISSUER": new}})


@family(
    "A kind's definition is generated anew and leaves out that its objects have a status of their own: its operator is"
    " answered with 404 where it writes it, and whoever orders one waits for it in vain.",
    joined=20,
)
async def status_left_out(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    kind, namespace, name = lab.rng.choice(
        (("Workspace", "search", "workspaces"), ("Sandbox", "payments", "sandboxes"), ("Studio", "media", "studios"))
    )
    group, operator = "platform.corp.example", f"{kind.lower()}-operator"
    made = await lab.custom(kind, group, ANY)
    definition, number = f"{made.plural}.{group}", itertools.count(1)

    def version(**more: Json) -> Json:
        one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}, **more}
        return {"spec": {"versions": [one]}}

    async def reconcile(process: Process) -> None:
        """What is new is made outside of the cluster, and its status says so."""
        listed = await process.api.call("GET", made.path())
        for one in listed.body.get("items", []):
            if one.get("status", {}).get("phase") != "Ready":
                where = made.path(one["metadata"]["namespace"], one["metadata"]["name"])
                status = {"phase": "Ready", "observedGeneration": one["metadata"]["generation"]}
                await process.api.call("PATCH", f"{where}/status", {"status": status})

    async def order(process: Process) -> None:
        """One for each user who asks; the oldest is given back."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": f"{kind.lower()}-{next(number):04}"}}
        await process.api.call("POST", made.path(namespace), {**body, "spec": {"size": "small"}})
        listed = (await process.api.call("GET", made.path(namespace))).body.get("items", [])
        for one in sorted(listed, key=lambda one: str(one["metadata"]["creationTimestamp"]))[:-KEPT]:
            await process.api.call("DELETE", made.path(namespace, one["metadata"]["name"]))

    def late(_: Container) -> float:
        """Of those that were ordered, and are old enough, the share that is not ready."""
        there = [
            one.get("status", {}).get("phase") == "Ready"
            for one in lab.world[kind].values()
            if (now() - datetime.fromisoformat(one["metadata"]["creationTimestamp"])).total_seconds() > WAITS_SECONDS
        ]
        return ORDERED * there.count(False) / len(there) if there else 0.0

    await lab.edit("admin", "CustomResourceDefinition", "", definition, version(subresources={"status": {}}))
    await lab.served(made)
    resources = f"{made.plural},{made.plural}/status"
    await lab.controller("platform", operator, every(1.5, reconcile), (group, resources, "get,list,watch,patch"))
    app = await lab.controller(namespace, name, every(MADE_EVERY, order), (group, made.plural, "*"), replicas=2)
    app.serves, app.failing, app.fails_with = True, late, lambda _: "504"
    await lab.until(lambda: backends(lab.world, namespace, name))
    await publish(lab, namespace, name)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    by = lab.rng.choice(("argocd", "flux", "ci"))
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, version())


@family(
    "A chart's new version has the tolerations of its pods under another key, and the values know the old one: the"
    " first pod that is replaced may still run on its own machines only, whose taint it does not tolerate any more.",
    joined=20,
)
async def toleration_lost(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: it is the plainest that there is."""
    namespace, name = lab.rng.choice((("search", "documents"), ("media", "blobs"), ("shop", "sessions")))
    group = lab.rng.sample(NODES, 3)
    taint = {"key": "dedicated", "value": name, "effect": "NoSchedule"}
    for node in group:
        body = {"metadata": {"labels": {"pool": name}}, "spec": {"taints": [taint]}}
        await lab.edit("admin", "Node", "", node, body)
    tolerated = {"key": "dedicated", "operator": "Equal", "value": name, "effect": "NoSchedule"}
    await lab.app(namespace, name, kind="StatefulSet", replicas=3, nodeSelector={"pool": name}, tolerations=[tolerated])
    reader = f"{name}-api"
    await lab.app(namespace, reader, like=App("", upstreams=((namespace, name),)), replicas=3)
    lab.reserve(namespace, name)
    waits = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodPending", waits, f"a pod of {namespace} has had no node for a while", 8, namespace=namespace)
    lab.alert_lacking(namespace, name)
    yield
    there = lab.world["StatefulSet"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    container = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:1.1.0"}
    body = {"spec": {"template": {"spec": {"containers": [container], "tolerations": None}}}}
    by = lab.rng.choice(("argocd", "ci", "flux"))
    await lab.culprit(by, "update", "StatefulSet", namespace, name, body)
