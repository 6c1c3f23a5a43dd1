"""What the API server takes: of which version a manifest may be, what may stand in it, and what a policy says of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count

from tests.lab import objects
from tests.lab.api import Answer, Json, Key, Kind, now, path
from tests.lab.apps import Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.programs import both, every, informer, leading, tell
from tests.lab.scenario import family

LEASE = ("coordination.k8s.io", "leases", "*")

# -- of which version

BEFORE = {"ExternalSecret": "v1beta1", "KafkaTopic": "v1beta2", "Certificate": "v1alpha2"}
"""The version of each kind that was served beside v1 for years."""


def _served(kind: str, *, before: bool) -> Json:
    schema = {"openAPIV3Schema": ANY}
    kept = {"name": "v1", "served": True, "storage": True, "schema": schema}
    old = {"name": BEFORE[kind], "served": before, "storage": False, "schema": schema, "deprecated": True}
    return {"spec": {"versions": [kept, old] if before else [kept]}}


@dataclass
class _Runner:
    """What makes an environment of each pull request by a template, and takes it away again."""

    kind: Kind
    """As its template has it."""
    home: str
    name: str
    made: int = 0
    failed: int = 0
    numbers: count[int] = field(default_factory=lambda: count(1840))
    there: list[str] = field(default_factory=list)

    async def make(self, process: Process) -> None:
        """First what the app needs, then the app; where that is not taken, all of it is undone."""
        number = f"pr-{next(self.numbers)}"
        version = f"{self.kind.group}/{self.kind.root.rsplit('/', 1)[1]}"
        meta, spec = {"name": number, "labels": {"preview": "yes"}}, {"owner": f"u{process.rng.randrange(900)}"}
        config = objects.config_map(self.home, number, BRANCH=number)
        await process.api.call("POST", path("ConfigMap", self.home), config)
        body = {"apiVersion": version, "kind": self.kind.name, "metadata": meta, "spec": spec}
        done = await process.api.call("POST", self.kind.path(self.home), body)
        if done.ok:
            self.made += 1
            self.there.append(number)
        else:
            self.failed += 1
            await self._refuse(process, done, version)
            await process.api.call("DELETE", path("ConfigMap", self.home, number))
        for old in self.there[:-6]:
            await process.api.call("DELETE", self.kind.path(self.home, old))
            await process.api.call("DELETE", path("ConfigMap", self.home, old))
            self.there.remove(old)

    async def _refuse(self, process: Process, done: Answer, version: str) -> None:
        why = f'no matches for kind "{self.kind.name}" in version "{version}"'
        if done.status != 404:
            why = str(done.body.get("message", ""))
        pod = {"kind": "Pod", "metadata": process.see().pod["metadata"]}
        await tell(process, pod, "Warning", "PreviewFailed", f"unable to recognize template: {why}", by=self.name)


@family(
    "The definitions of an operator come with its next chart, and leave out the version that was old for years. All"
    " charts had been moved; the template by which environments of pull requests are made was not: it is answered that"
    " there is no such kind, and no environment is made any more.",
    joined=95,
)
async def no_longer_served(lab: Lab) -> AsyncIterator[None]:
    """As those tell who read that there are no matches for a kind in version v1beta1."""
    name, group, operator, old, new = lab.rng.choice(
        (
            ("ExternalSecret", "external-secrets.io", "external-secrets", "v0.16.2", "v0.17.0"),
            ("KafkaTopic", "kafka.strimzi.io", "strimzi-topic-operator", "0.49.1", "1.0.0"),
            ("Certificate", "certmanager.corp.example", "certificate-operator", "1.5.5", "1.6.0"),
        )
    )
    home, runner, front = lab.rng.choice(
        (
            ("shop", "preview-runner", "previews-page"),
            ("media", "review-apps", "reviews-page"),
            ("search", "branch-deployer", "branches-page"),
        )
    )
    by, minor = lab.rng.choice(("flux", "argocd", "ci")), lab.rng.randrange(2, 30)
    kind = await lab.custom(name, group, ANY)
    await lab.served(kind)
    definition, older = f"{kind.plural}.{group}", Kind(name, f"/apis/{group}/{BEFORE[name]}", namespaced=True)
    await lab.edit("admin", "CustomResourceDefinition", "", definition, _served(name, before=True))
    await lab.pause(2)  # until both are served

    async def reconcile(process: Process) -> None:
        for one in (await process.api.call("GET", kind.path())).body.get("items", ()):
            if "status" not in one:
                where = kind.path(one["metadata"]["namespace"], one["metadata"]["name"])
                ready = {"type": "Ready", "status": "True", "reason": "Synced"}
                await process.api.call("PATCH", where, {"status": {"conditions": [ready]}})

    rights = (group, kind.plural, "get,list,watch,patch")
    program = both(informer(kind.path()), every(1.5, reconcile), leading("platform", operator))
    await lab.controller("platform", operator, program, rights, LEASE, replicas=1, tag=old)
    await rolled(lab, "platform", operator, old)
    making = _Runner(older, home, runner)
    rights = (group, kind.plural, "get,list,create,delete")
    maps, events = ("", "configmaps", "get,create,delete"), ("", "events", "create")
    await lab.controller(home, runner, every(3.0, making.make), rights, maps, events, replicas=1, tag=f"1.{minor}.0")
    await rolled(lab, home, runner, f"1.{minor}.0")
    await set_before(lab, home, front, runner)
    told = {"namespace": home, "service": runner}
    lab.measure("previews_total", lambda: making.made, "counter", **told, result="success")
    lab.measure("previews_total", lambda: making.failed, "counter", **told, result="failure")
    summary = f"environments of pull requests fail in {home}/{runner}"
    lab.alert("PreviewEnvironmentsFailing", lab.rate(lambda: making.failed, 0.1, seconds=14), summary, 4, **told)
    lab.alert_ingress_errors(home, home)
    await lab.until(lambda: making.made > 1 and lab.is_well())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await change_page(lab, home, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, runner, f"1.{minor}.1")
    await lab.pause(lab.rng.uniform(5, 10))
    await change_page(lab, home, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.culprit(by, "update", "CustomResourceDefinition", "", definition, _served(name, before=False))
    await lab.pause(lab.rng.uniform(0.5, 1.5))
    await lab.roll(by, "platform", operator, new, culprit=True)
    lab.start(afterwards())


# -- what may stand in it


def _schema(*, states: tuple[str, ...] = (), fields: tuple[str, ...] = ()) -> Json:
    """What a chart's definition says of an object: the states that it may be in, and the fields of its status."""
    text: Json = {"type": "string"}
    state = {**text, "enum": list(states)} if states else text
    status = {"type": "object", "properties": {"state": state, **dict.fromkeys(fields, text)}}
    return {"type": "object", "properties": {"spec": ANY, "status": status}}


@dataclass
class _Granting:
    """An operator that carries out what is asked for in two steps, and says in the end where it is found."""

    kind: Kind
    home: str
    asked: dict[Key, float] = field(default_factory=dict)
    errors: int = 0
    numbers: count[int] = field(default_factory=lambda: count(1))

    async def ask(self, process: Process) -> None:
        """Another one, as a project begins; the oldest that is done is given back."""
        listed = (await process.api.call("GET", self.kind.path(self.home))).body.get("items", ())
        done = sorted(one["metadata"]["name"] for one in listed if _is_granted(one))
        for one in done[:-8]:
            await process.api.call("DELETE", self.kind.path(self.home, one))
        name = f"{self.kind.name.lower()}-{next(self.numbers):04}"
        body = {"apiVersion": f"{self.kind.group}/v1", "kind": self.kind.name, "metadata": {"name": name}}
        spec = {"size": process.rng.choice(("small", "medium"))}
        if (await process.api.call("POST", self.kind.path(self.home), {**body, "spec": spec})).ok:
            self.asked[self.home, name] = now().timestamp()

    async def grant(self, process: Process) -> None:
        for one in (await process.api.call("GET", self.kind.path(self.home))).body.get("items", ()):
            key = one["metadata"]["namespace"], one["metadata"]["name"]
            if _is_granted(one):
                self.asked.pop(key, None)
                continue
            is_begun = "state" in one.get("status", {})
            status = {"state": "Ready", "secretName": f"{key[1]}-access"} if is_begun else {"state": "Provisioning"}
            done = await process.api.call("PATCH", self.kind.path(*key), {"status": status})
            if not done.ok:
                self.errors += 1
                message = str(done.body.get("message", ""))
                about = {**one, "kind": self.kind.name}
                await tell(
                    process, about, "Warning", "ReconcileError", message, by=f"{self.kind.name.lower()}-operator"
                )

    def oldest(self) -> float:
        return now().timestamp() - min(self.asked.values()) if self.asked else 0.0


def _is_granted(one: Json) -> bool:
    """Whoever asked for it has where it is found."""
    status = one.get("status", {})
    return bool(status.get("state") == "Ready" and status.get("secretName"))


@family(
    "The definition of a kind is replaced by another chart's, which brings a copy of its own along: stricter, or"
    " without a field that came since. What the operator writes is refused, or is taken without what matters, and"
    " nobody gets what he asks for.",
    joined=95,
)
async def schema_of_the_next(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have two charts with the same definition among their templates."""
    name, group, operator, home = lab.rng.choice(
        (
            ("Bucket", "objectstorage.corp.example", "bucket-operator", "media"),
            ("Queue", "rabbitmq.corp.example", "queue-operator", "shop"),
            ("Collection", "vectors.corp.example", "collection-operator", "search"),
            ("Account", "ledger.corp.example", "account-operator", "payments"),
        )
    )
    by, minor, is_short = lab.rng.choice(("flux", "argocd", "ci")), lab.rng.randrange(2, 30), lab.rng.random() < 0.5
    desk, other = "project-desk", lab.rng.choice(("cost-report", "audit-export", "backup-plans"))
    kind = await lab.custom(name, group, _schema(fields=("secretName",)))
    await lab.served(kind)
    granting = _Granting(kind, home)
    rights, events = (group, kind.plural, "get,list,watch,create,patch,delete"), ("", "events", "create")
    program = both(informer(kind.path()), every(1.0, granting.grant), leading("platform", operator))
    await lab.controller("platform", operator, program, rights, events, LEASE, replicas=1, tag=f"0.{minor}.4")
    await rolled(lab, "platform", operator, f"0.{minor}.4")
    await lab.controller(home, desk, every(4.0, granting.ask), rights, replicas=1, tag="3.1.0")
    await rolled(lab, home, desk, "3.1.0")
    await lab.apply(objects.config_map("platform", other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app("platform", other, replicas=1, tag="1.4.0", config=other)
    await rolled(lab, "platform", other, "1.4.0")
    told = {"namespace": "platform", "service": operator, "controller": name.lower()}
    lab.measure("controller_runtime_reconcile_errors_total", lambda: granting.errors, "counter", **told)
    summary = f"{operator} fails to reconcile"
    lab.alert("ControllerReconcileErrors", lab.rate(lambda: granting.errors, 0.5, seconds=8), summary, 8, **told)
    summary = f"who asks for a {name} waits for a long time"
    lab.alert("ProvisioningSlow", lambda: granting.oldest() > 18, summary, 5, namespace=home, service=desk)
    await lab.until(lambda: granting.asked and lab.is_well())
    await lab.pause(6)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.roll(lab.rng.choice(("ci", "argocd")), home, desk, "3.1.1")

    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "platform", other, {"data": {"EVERY": "30s"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "platform", other, "1.4.1")
    await lab.pause(lab.rng.uniform(4, 9))
    schema = _schema() if is_short else _schema(states=("Pending", "Ready", "Failed"), fields=("secretName",))
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    body = {"spec": {"versions": [version]}}
    await lab.culprit(by, "update", "CustomResourceDefinition", "", f"{kind.plural}.{group}", body)
    lab.start(afterwards())
