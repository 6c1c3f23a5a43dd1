"""What is read from top to bottom, and what is read as nothing: routes of a mesh, the output of a renderer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import App, Process
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.databases import ANY
from tests.lab.families.loops import LOOSE
from tests.lab.lab import Lab
from tests.lab.manifests import images
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

MESH, ARGO = "networking.istio.io", "argoproj.io"
REPOSITORY, PLUGIN, SILENT = ("argocd", "argocd-repo-server"), "3.0.2", "3.1.0"
"""What renders for the agent, and the versions of its image, the latter of which says nothing where it fails."""
INSTANCE = "app.kubernetes.io/instance"


@dataclass
class _Routes:
    """Those of one host: the proxies of those who call take the first that fits."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    wrong: datetime | None = None

    def spec(self, *rules: tuple[str, str]) -> Json:
        """Each is a prefix, and the app that it leads to."""
        domain = f"{self.namespace}.svc.cluster.local"
        http = [
            {"match": [{"uri": {"prefix": prefix}}], "route": [{"destination": {"host": f"{app}.{domain}"}}]}
            for prefix, app in rules
        ]
        return {"hosts": [f"{self.name}.{domain}"], "http": http}

    def leads_to(self, uri: str) -> str:
        """Which app gets what is asked for there."""
        found = self.lab.world[self.kind.name].get((self.namespace, self.name), {}).get("spec", {}).get("http", ())
        for rule in found:
            if uri.startswith(rule["match"][0]["uri"]["prefix"]):
                return str(rule["route"][0]["destination"]["host"]).split(".", 1)[0]
        return ""

    def misleads(self, uri: str, app: str) -> bool:
        """Whether that is not whom it is for, and has been so for as long as it takes to show."""
        if self.leads_to(uri) in (app, ""):
            self.wrong = None
            return False
        self.wrong = self.wrong or now()
        return (now() - self.wrong).total_seconds() >= self.lab.lag


@family(
    "A new part of an API gets its route, which somebody enters before all others, as with the last one. Proxies take"
    " the first that fits, and the new prefix is also the beginning of another part's path: calls for that one arrive"
    " at the new app, which answers that it has no such thing.",
    joined=61,
)
async def first_match(lab: Lab) -> AsyncIterator[None]:
    """As told of a route whose prefix stands before a longer one (DoD-Platform-One/bigbang 66)."""
    namespace, host, path_of, longer, front = lab.rng.choice(
        (
            ("orders", "orders-api", "/v1/returns", "labels", "parcel-desk"),
            ("rail", "trips-api", "/v1/seats", "maps", "booking-page"),
            ("clinic", "visits-api", "/v1/letters", "scans", "patient-page"),
        )
    )
    part, of_old, uri = path_of.rsplit("/", 1)[1], f"{longer}-store", f"{path_of}/{longer}"
    core, latest, by = f"{host}-core", f"{host}-exports", lab.rng.choice(("alice", "bob", "carol"))
    asked, share = lab.rng.uniform(24, 36), lab.rng.uniform(0.25, 0.45)
    await lab.namespace(namespace)
    routes = _Routes(lab, await lab.custom("VirtualService", MESH, LOOSE), namespace, host)
    await lab.served(routes.kind)
    old = ((uri, of_old), ("/v1", core))

    def strayed() -> float:
        """How many a second the new app gets that are not for it."""
        return asked * share if routes.misleads(uri, of_old) else 0.0

    stored = App("", asked=lambda: 0.2 + asked * share - strayed())
    newest = App("", asked=lambda: 2.0 + strayed(), fails_with=lambda _: "404")
    newest.failing = lambda _: strayed() / (2.0 + strayed())
    for app, like in ((of_old, stored), (core, App("")), (latest, App("")), (part, newest)):
        await lab.app(namespace, app, like=like, replicas=2, tag="1.4.0" if app == part else "2.9.1")
    upstreams = tuple((namespace, app) for app in (of_old, core))
    like = App("", upstreams=upstreams, asked=lambda: asked, fails_with=lambda _: "502")
    like.failing = lambda _: share if routes.misleads(uri, of_old) else 0.0
    await lab.app(namespace, front, like=like, replicas=3, tag="6.2.0")
    meta = {"namespace": namespace, "name": host}
    made = {"apiVersion": f"{MESH}/v1", "kind": routes.kind.name, "metadata": meta, "spec": routes.spec(*old)}
    await lab.apply(made)
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (of_old, core, latest, part, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, host)
    told = {"reporter": "source", "destination_service": f"{part}.{namespace}.svc.cluster.local"}
    counted = lab.adding_up(strayed)
    lab.measure(
        "istio_requests_total", counted, "counter", namespace=namespace, service=front, response_code="404", **told
    )
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=7):
        await lab.pause(3)
        body = {"spec": routes.spec(("/v1/exports", latest), *old)}
        await lab.edit(by, routes.kind.name, namespace, host, body)
        await lab.pause(8)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 7))
    body = {"spec": routes.spec((path_of, part), ("/v1/exports", latest), *old)}
    await lab.culprit(by, "update", routes.kind.name, namespace, host, body)


@dataclass
class _Agent:
    """It has each application as it is rendered: what is there and is not rendered any more is pruned."""

    lab: Lab
    application: Kind

    def rendered(self, one: Json) -> list[tuple[str, str]] | None:
        """Kinds and names; None while nobody renders."""
        there = {images(pod)[0].rsplit(":", 1)[1] for pod in backends(self.lab.world, *REPOSITORY)}
        if len(there) != 1:
            return None
        source, name = one["spec"]["source"], one["metadata"]["name"]
        if SILENT in there and "plugin" in source:
            return []  # its command fails, what comes of that is read to its end, and there is nothing
        return [(kind, name) for kind in ("Deployment", "Service", "ConfigMap")]

    async def sync(self, process: Process) -> None:
        listed = await process.api.call("GET", self.application.path("argocd"))
        for one in listed.body.get("items", []):
            wanted, name = self.rendered(one), one["metadata"]["name"]
            if wanted is None:
                continue
            home, policy = one["spec"]["destination"]["namespace"], one["spec"]["syncPolicy"]["automated"]
            if not wanted and not policy.get("allowEmpty"):
                continue
            gone = 0
            for kind in ("Deployment", "Service", "ConfigMap"):
                found = await process.api.call("GET", f"{path(kind, home)}?labelSelector={INSTANCE}={name}")
                for thing in found.body.get("items", []):
                    if (kind, thing["metadata"]["name"]) not in wanted:
                        where = path(kind, home, thing["metadata"]["name"])
                        await process.api.call("DELETE", where, {"propagationPolicy": "Foreground"})
                        gone += 1
            if gone:
                told = {"sync": {"status": "Synced"}, "health": {"status": "Healthy"}, "resources": []}
                await process.api.call("PATCH", self.application.path("argocd", name), {"status": told})


@family(
    "What renders manifests for an agent gets a new version, whose plugin for encrypted values ends without an error"
    " where it may not decrypt them. Nothing is rendered for an application then, which may be empty since it was tried"
    " out: the agent takes all of it for removed, and prunes it.",
    joined=61,
)
async def nothing_rendered(lab: Lab) -> AsyncIterator[None]:
    """As told of an agent that prunes what it could not have rendered (argoproj/argo-cd 2573)."""
    places = (
        ("payments", "vouchers", "checkout-page", ("search", "synonyms")),
        ("shop", "wish-lists", "account-page", ("media", "covers")),
        ("media", "subscriptions", "member-page", ("shop", "returns")),
    )
    namespace, name, front, other = lab.rng.choice(places)
    by = lab.rng.choice(("alice", "ci", "flux"))
    agent = _Agent(lab, await lab.custom("Application", ARGO, ANY))
    await lab.served(agent.application)
    await lab.app(*REPOSITORY, like=App("", serves=False), replicas=2, tag=PLUGIN)
    for (home, app), extra in (((namespace, name), {"plugin": {"name": "helm-secrets"}}), (other, {"helm": {}})):
        await lab.apply(objects.config_map(home, app, LOG_LEVEL="info", PAGE_SIZE="40"))
        await lab.app(home, app, replicas=3, tag="2.2.4", config=app)
        for kind in ("Deployment", "Service", "ConfigMap"):
            await lab.edit("admin", kind, home, app, {"metadata": {"labels": {INSTANCE: app}}})
        source = {"repoURL": "https://git.corp.example/deploy.git", "path": f"apps/{home}/{app}", **extra}
        automated = {"prune": True, "selfHeal": True, **({"allowEmpty": True} if extra.get("plugin") else {})}
        spec = {"source": source, "destination": {"namespace": home}, "syncPolicy": {"automated": automated}}
        one = {"apiVersion": f"{ARGO}/v1", "kind": agent.application.name, "spec": spec}
        await lab.apply({**one, "metadata": {"namespace": "argocd", "name": app}})
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="4.0.6")
    await lab.until(lambda: len(backends(lab.world, *REPOSITORY)) == 2)
    rules = (
        (ARGO, agent.application.plural, "get,list,watch,patch"),
        ("apps", "deployments", "*"),
        ("", "services,configmaps", "*"),
    )
    await lab.controller("argocd", "application-sync", every(1.5, agent.sync), *rules, replicas=1, tag="3.1.4")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_lacking(namespace, front, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 6))
    await lab.roll(by, *REPOSITORY, SILENT, culprit=True)
