"""What objects are declared by: a version of their kind that is served no more, a field that is new or gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import restarts
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Container, CrashError, Process
from tests.lab.company import APPS
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

OLD_VERSION, GIVEN_UP_SECONDS = "v1beta1", 6.0
"""The version of an API that somebody still asks for, and how long one goes on without its list that gives up."""


def _versions(*, served: bool) -> Json:
    """As a chart's definition has them: the old version stays listed, for what was stored in it once."""
    schema = {"openAPIV3Schema": ANY}
    now_kept = {"name": "v1", "served": True, "storage": True, "schema": schema}
    before = {"name": OLD_VERSION, "served": served, "storage": False, "schema": schema, "deprecated": True}
    return {"spec": {"versions": [now_kept, before]}}


@dataclass
class _Asker:
    """A controller of the platform's own that was built against the old version, and never again."""

    kind: Kind
    is_given_up: bool
    """Whether it ends where it has not had its list for a while, or only says so in its log."""

    async def run(self, process: Process) -> None:
        failing_since = 0.0
        while True:
            listed = await process.api.call("GET", self.kind.path())
            if listed.ok:
                failing_since = 0.0
                names = ",".join(sorted(one["metadata"]["name"] for one in listed.body["items"]))
                await process.api.call("PATCH", path("ConfigMap", "platform", "inventory"), {"data": {"seen": names}})
            else:
                failing_since = failing_since or now().timestamp()
            if self.is_given_up and failing_since and now().timestamp() - failing_since > GIVEN_UP_SECONDS:
                asked = f"{self.kind.plural}.{self.kind.group}"
                raise CrashError(f"the server could not find the requested resource (get {asked})")
            await asyncio.sleep(1.5 * process.rng.uniform(0.9, 1.1))


@family(
    "The chart of a widely used operator is upgraded, and its definitions serve an old version of their kinds no more."
    " All manifests are of the new one. A controller of the house still asks for the old one: it is not found, and"
    " what it does for others is done no more.",
    joined=89,
)
async def version_unserved(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *the server could not find the requested resource* after external-secrets 0.17."""
    operator, kind_name, group, old, new, askers = lab.rng.choice(
        (
            (
                "external-secrets",
                "ExternalSecret",
                "external-secrets.io",
                "v0.16.2",
                "v0.17.0",
                ("onboarding", "audits"),
            ),
            (
                "source-controller",
                "GitRepository",
                "source.toolkit.fluxcd.io",
                "v1.6.2",
                "v1.7.0",
                ("catalogue", "previews"),
            ),
        )
    )
    asker = f"{lab.rng.choice(askers)}-controller"
    by, minor = lab.rng.choice(("flux", "argocd", "ci")), lab.rng.randrange(2, 30)
    kind = await lab.custom(kind_name, group, ANY)
    definition = f"{kind.plural}.{group}"
    await lab.served(kind)
    await lab.edit("admin", "CustomResourceDefinition", "", definition, _versions(served=True))
    for team in APPS:
        meta = {"namespace": team, "name": f"{team}-shared"}
        await lab.apply({"apiVersion": f"{group}/v1", "kind": kind_name, "metadata": meta, "spec": {"team": team}})

    async def reconcile(process: Process) -> None:
        for one in (await process.api.call("GET", kind.path())).body.get("items", ()):
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": f"{stamp(now())[:19]}Z"}
            if "status" not in one:
                where = kind.path(one["metadata"]["namespace"], one["metadata"]["name"])
                await process.api.call("PATCH", where, {"status": {"conditions": [ready]}})

    await lab.apply(objects.config_map("platform", "inventory", seen=""))
    await lab.apply(objects.config_map("platform", asker, LOG_LEVEL="info", WORKERS="2"))
    rules = (group, kind.plural, "get,list,watch,patch")
    await lab.controller("platform", operator, every(2.5, reconcile), rules, replicas=1, tag=old)
    reads = ((group, kind.plural, "get,list,watch"), ("", "configmaps", "get,patch"))
    before = Kind(kind_name, f"/apis/{group}/{OLD_VERSION}", namespaced=True)
    program = _Asker(before, lab.rng.random() < 0.6)
    await lab.pause(2)  # until both versions are served
    app = await lab.controller("platform", asker, program.run, *reads, replicas=1, tag=f"0.{minor}.1", config=asker)
    await rolled(lab, "platform", operator, old)
    await rolled(lab, "platform", asker, f"0.{minor}.1")
    told = {"namespace": "platform", "service": asker}
    refused = lab.refused(app.image, 404)
    lab.measure("rest_client_requests_total", refused, "counter", **told, code="404", method="GET")
    crashes = lambda: restarts(lab.world, "platform", asker) > 1  # noqa: E731
    summary = f"containers of platform/{asker} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace="platform", deployment=asker)
    summary = f"{asker} is refused what it asks of the API server"
    lab.alert("ControllerClientErrors", lab.rate(refused, 0.3, seconds=8), summary, 8, **told)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "platform", asker, {"data": {"LOG_LEVEL": "debug"}})

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "platform", asker, {"data": {"WORKERS": "4"}})
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "shop", "cart", f"1.{lab.rng.randrange(40, 60)}.0")
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, _versions(served=False))
    await _upgrade(lab, by, operator, new)
    lab.start(afterwards())


async def _upgrade(lab: Lab, by: str, operator: str, tag: str) -> None:
    """The rest of an operator's chart: its Deployment. Raises RefusedError."""
    await lab.pause(lab.rng.uniform(0.5, 1.5))
    there = lab.world["Deployment"]["platform", operator]["spec"]["template"]["spec"]["containers"][0]
    newer = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:{tag}"}
    body = {"spec": {"template": {"spec": {"containers": [newer]}}}}
    await lab.also("of the same upgrade, the same chart", by, "update", "Deployment", "platform", operator, body)


SERVICES, EACH_STANDS = "apps.corp.example", 9.0
"""The group of the kind by which teams order what they run, and how many requests a second a pod stands."""
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def _ordered(changed: str) -> Json:
    """The definition's schema as the chart has it: the one before, with a field more to say, or with one less."""
    bounds: Json = {"type": "object", "properties": {"min": NUMBER, "max": NUMBER}}
    fields: Json = {"image": TEXT, "seen": TEXT, "minReplicas": NUMBER, "owner": TEXT}
    needed = ["image"]
    if changed == "required":
        needed.append("owner")
    if changed == "dropped":
        del fields["minReplicas"]
        fields["scaling"] = bounds
    spec = {"type": "object", "properties": fields, "required": needed}
    return {"type": "object", "properties": {"spec": spec}, "required": ["spec"]}


@dataclass
class _Renderer:
    """An operator that makes a Deployment's size of what was ordered, and notes on the order that it has seen it."""

    kind: Kind

    async def reconcile(self, process: Process) -> None:
        for one in (await process.api.call("GET", self.kind.path())).body.get("items", ()):
            home, name, spec = one["metadata"]["namespace"], one["metadata"]["name"], one["spec"]
            await process.api.call("PATCH", self.kind.path(home, name), {"spec": {"seen": stamp(now())}})
            wanted = spec.get("scaling", {}).get("min", spec.get("minReplicas", 1))
            found = await process.api.call("GET", path("Deployment", home, name))
            if found.ok and found.body["spec"]["replicas"] != wanted:
                await process.api.call("PATCH", path("Deployment", home, name), {"spec": {"replicas": wanted}})


@family(
    "The chart of the operator by which teams order what they run is upgraded. Its new definition asks for a field that"
    " nobody has filled in, so that no order can be written any more; or it has another one in place of one that all"
    " have, which the API server leaves out from then on, and the operator goes by what is usual: one pod.",
    joined=89,
)
async def field_of_the_chart(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read *Required value* of objects that were years old, or whose values were gone."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "size-advice", "size-page"),
            ("payments", "tax-service", "tax-page"),
            ("media", "lyrics", "lyrics-page"),
            ("search", "facets", "facets-page"),
        )
    )
    by, changed = lab.rng.choice(("flux", "argocd", "ci")), lab.rng.choice(("required", "dropped"))
    operator, minor, many = "webservice-operator", lab.rng.randrange(3, 30), lab.rng.choice((4, 5))
    asked = EACH_STANDS * (many - lab.rng.uniform(0.6, 1.2))
    kind = await lab.custom("WebService", SERVICES, _ordered("nothing"))
    definition, image = f"{kind.plural}.{SERVICES}", f"registry.corp.example/{namespace}/{name}"
    await lab.served(kind)

    def short(_: Container) -> float:
        return max(0.0, 1 - EACH_STANDS * len(backends(lab.world, namespace, name)) / asked)

    await lab.app(namespace, name, like=App("", asked=lambda: asked, failing=short), replicas=many, tag="7.0.1")
    await rolled(lab, namespace, name, "7.0.1")
    await set_before(lab, namespace, front, name)
    for home, one, least in ((namespace, name, many), ("platform", "status-board", 1), ("platform", "glossary", 1)):
        if one != name:
            await lab.app(home, one, replicas=1, tag="1.2.0")
        spec = {"image": image if one == name else f"registry.corp.example/{home}/{one}", "minReplicas": least}
        meta = {"namespace": home, "name": one}
        await lab.apply({"apiVersion": f"{SERVICES}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (SERVICES, kind.plural, "get,list,watch,patch"), ("apps", "deployments", "get,patch")
    app = await lab.controller(
        "platform", operator, every(1.5, _Renderer(kind).reconcile), *rules, replicas=1, tag=f"2.{minor}.0"
    )
    await rolled(lab, "platform", operator, f"2.{minor}.0")
    told = {"namespace": "platform", "service": operator}
    refused = lab.refused(app.image, 400, 422)
    lab.measure("controller_runtime_reconcile_errors_total", refused, "counter", **told, controller="webservice")
    summary = f"{operator} cannot reconcile what it looks after"
    lab.alert("ControllerReconcileErrors", lab.rate(refused, 0.4, seconds=8), summary, 6, **told)
    lab.alert_errors(namespace, name)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 8))
        await change_page(lab, namespace, front)

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(8, 12))
    await lab.edit(lab.rng.choice(TEAMS), "Deployment", "platform", "glossary", {"metadata": {"labels": {"tier": "3"}}})
    await lab.pause(lab.rng.uniform(2, 6))
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _ordered(changed)}}
    body = {"spec": {"versions": [version]}}
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, body)
    await _upgrade(lab, by, operator, f"2.{minor + 1}.0")
    lab.start(afterwards())
