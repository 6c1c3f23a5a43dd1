"""What a GitOps agent takes over: since a version of it, whatever somebody set by hand on what it looks after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import environment
from tests.lab.network import backends
from tests.lab.programs import both, every
from tests.lab.scenario import family

AGENT, BEFORE, SINCE = ("flux-system", "kustomize-controller"), "v0.15.5", "v0.20.2"
"""Up to some version between these the agent applied as kubectl does; since then fields that kubectl set are its."""
APPLY = "application/apply-patch+yaml"


def _joined(one: Json, other: Json) -> Json:
    """Two sets of fields as managedFields has them."""
    return {key: _joined(one.get(key, {}), other.get(key, {})) for key in one.keys() | other.keys()}


@dataclass
class _Agent:
    """It makes objects as its repository has them; how it does that depends on its version."""

    manifests: tuple[Json, ...]
    """In its repository, each as somebody wrote it: without what they leave to others."""

    async def sync(self, process: Process) -> None:
        for one in self.manifests:
            where = path(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"])
            found = await process.api.call("GET", where)
            if not found.ok:
                continue
            if process.tag != SINCE:
                continue  # as in the repository already: what was added beside it is none of its business
            if taken := self._taken_over(found.body["metadata"]["managedFields"]):
                body = [{"op": "replace", "path": "/metadata/managedFields", "value": taken}]
                await process.api.call("PATCH", where, body, patch="application/json-patch+json")
                forced = f"{where}?fieldManager={AGENT[1]}&force=true"
                await process.api.call("PATCH", forced, one, patch=APPLY)

    @staticmethod
    def _taken_over(entries: list[Json]) -> list[Json]:
        """The entries with those of kubectl made its own; empty where there is none of kubectl."""
        mine = [one for one in entries if one["manager"].startswith("kubectl") and one["operation"] == "Update"]
        kept = [one for one in entries if one not in mine and one["manager"] != AGENT[1]]
        if not mine:
            return []
        fields: Json = {}
        for one in (*mine, *(each for each in entries if each["manager"] == AGENT[1])):
            fields = _joined(fields, one["fieldsV1"])
        return [*kept, {**mine[0], "manager": AGENT[1], "operation": "Apply", "fieldsV1": fields}]


@family(
    "The GitOps agent is upgraded. Until now it left alone what its manifests do not say; since that version it takes"
    " over whatever somebody set with kubectl, and takes it out. An app had a variable so for months, of which its"
    " repository knows nothing.",
    joined=89,
)
async def taken_over_fields(lab: Lab) -> AsyncIterator[None]:
    """As those tell who went from Flux 0.17 to a version that applies on the server's side."""
    namespace, name, front, variable, value, other = lab.rng.choice(
        (
            ("shop", "voucher-check", "voucher-page", "LEGACY_VOUCHERS", "on", "voucher-mails"),
            ("payments", "card-tokens", "card-form", "VAULT_PARTITION", "eu-2", "card-expiry"),
            ("media", "stream-keys", "stream-page", "EDGE_PROFILE", "dual", "stream-stats"),
            ("search", "query-parser", "parser-page", "ANALYZER_SET", "de-2019", "parser-tests"),
        )
    )
    by, hand, share = (
        lab.rng.choice(("argocd", "ci", "carol")),
        lab.rng.choice(("alice", "bob")),
        lab.rng.uniform(0.3, 0.9),
    )
    agent_image, minor = f"registry.corp.example/{'/'.join(AGENT)}", lab.rng.randrange(2, 30)
    app = lab.apps[agent_image]

    def fails(container: Container) -> float:
        has_it = environment(container.spec).get(variable) == value
        return 0.0 if has_it or container.seconds < lab.lag else share

    for one in (name, other):
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", BATCH="20"))
    like = App("", asked=lambda: 20.0, failing=fails)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{minor}.0", config=name)
    await lab.app(namespace, other, replicas=2, tag="1.1.0", config=other)
    for one, tag in ((name, f"2.{minor}.0"), (other, "1.1.0")):
        await rolled(lab, namespace, one, tag)
    manifests = tuple(_as_written(lab, namespace, one) for one in (name, other))
    owner = {"metadata": {"annotations": {"corp.example/on-call": f"{namespace}-team"}}}
    await lab.edit(hand, "Deployment", namespace, other, owner)
    await lab.roll(hand, namespace, name, f"2.{minor}.0", env=[{"name": variable, "value": value}])
    await lab.until(lambda: _have(lab, namespace, name, variable))
    await set_before(lab, namespace, front, name)
    before = app.program
    assert before
    app.program = both(before, every(2.0, _Agent(manifests).sync))
    await lab.roll("admin", *AGENT, BEFORE)
    await rolled(lab, *AGENT, BEFORE)
    await lab.until(lambda: len(pods(lab.world, *AGENT)) == 1)
    await lab.robot("flux", *AGENT, f"{AGENT[1]}/{BEFORE}")
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await rolled(lab, *AGENT, SINCE)
        await lab.until(lambda: len(pods(lab.world, *AGENT)) == 1)
        await lab.robot("flux", *AGENT, f"{AGENT[1]}/{SINCE}")
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)

    yield
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, {"data": {"BATCH": "30"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "6.1.7")
    await lab.pause(lab.rng.uniform(5, 9))
    await lab.roll(by, *AGENT, SINCE, culprit=True)
    lab.start(afterwards())


def _as_written(lab: Lab, namespace: str, name: str) -> Json:
    """A Deployment as its team has it in the repository."""
    there = lab.world["Deployment"][namespace, name]
    keys = ("replicas", "selector", "template")
    meta = {"namespace": namespace, "name": name, "labels": there["metadata"]["labels"]}
    spec = {key: there["spec"][key] for key in keys}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def _have(lab: Lab, namespace: str, name: str, variable: str) -> bool:
    """Whether all pods of an app have a variable, and answer."""
    found = pods(lab.world, namespace, name)
    there = len(backends(lab.world, namespace, name)) == len(found) == 3
    return there and all(variable in environment(one["spec"]["containers"][0]) for one in found)
