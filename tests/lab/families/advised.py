"""What an app should ask for, as something recommends it by what the app has used: within bounds that somebody sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.alerts import pending, pods
from tests.lab.api import Answer, Json, Kind, path
from tests.lab.apps import App, Process, mebibytes
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.taking_turns_out import evict
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

GROUP, SCALED = "autoscaling.corp.example", "vertical.corp.example/admission"
WEBHOOK = ("platform", "vpa-admission")
OLD_MOST, NEW_MOST, SIBLING_GI, GROWN_GI = "8Gi", "96Gi", 8, (68, 80)
"""The bound of before and the new one; what would be recommended without any, in a small sibling and here."""


@dataclass
class _Advice:
    """As the three programs of the vertical autoscaler: the recommender, the updater and the webhook."""

    lab: Lab
    kind: Kind
    namespace: str
    name: str
    uncapped_gi: int
    """By all that the app has used: it keeps as much of its data in memory as it finds room for."""

    def _target(self, declared: Json) -> str:
        [policy] = declared["spec"]["resourcePolicy"]["containerPolicies"]
        most = mebibytes(policy["maxAllowed"]["memory"]) / 1024
        return f"{min(float(self.uncapped_gi), most):.0f}Gi"

    async def recommend(self, process: Process) -> None:
        found = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        if not found.ok:
            return
        target = self._target(found.body)
        one = {
            "containerName": self.name,
            "target": {"cpu": "100m", "memory": target},
            "uncappedTarget": {"cpu": "100m", "memory": f"{self.uncapped_gi}Gi"},
        }
        status = {"recommendation": {"containerRecommendations": [one]}}
        if found.body.get("status") != status:
            await process.api.call("PATCH", self.kind.path(self.namespace, self.name), {"status": status})

    async def update(self, process: Process) -> None:
        """Who asks for something else is evicted, one after another, while all others are ready."""
        found = await process.api.call("GET", self.kind.path(self.namespace, self.name))
        where = f"{path('Pod', self.namespace)}?labelSelector=app.kubernetes.io/name={self.name}"
        listed = await process.api.call("GET", where)
        target = _advised(found.body)
        there = listed.body.get("items", [])
        others = [one for one in there if target and _asks_for(one) != mebibytes(target)]
        if others and all(is_ready(one) and "deletionTimestamp" not in one["metadata"] for one in there):
            await evict(process, others[0])

    async def review(self, request: Json) -> list[Json] | None:
        """A new pod asks for what is recommended; its limit, which is as much, goes along."""
        if not backends(self.lab.world, *WEBHOOK):
            raise ConnectionError("no pod is behind it")
        target = _advised(self.lab.world[self.kind.name].get((self.namespace, self.name), {}))
        if not target or request["object"]["metadata"].get("labels", {}).get("app.kubernetes.io/name") != self.name:
            return None
        where = "/spec/containers/0/resources"
        return [{"op": "replace", "path": f"{where}/{one}/memory", "value": target} for one in ("requests", "limits")]


def _advised(declared: Json) -> str:
    """How much memory is recommended; "" where nothing is yet."""
    found = declared.get("status", {}).get("recommendation", {}).get("containerRecommendations", ())
    return str(found[0]["target"]["memory"]) if found else ""


def _asks_for(pod: Json) -> float:
    return mebibytes(pod["spec"]["containers"][0]["resources"]["requests"]["memory"])


def _bound(most: str) -> Json:
    policy = {"containerName": "*", "minAllowed": {"memory": "1Gi"}, "maxAllowed": {"memory": most}}
    return {"spec": {"resourcePolicy": {"containerPolicies": [policy]}}}


async def _admitted(lab: Lab, advice: _Advice) -> None:
    """The webhook is asked for new pods of the namespace. Raises RefusedError."""
    await lab.app(*WEBHOOK, like=App("", serves=False), tag="1.4.1")
    await lab.until(lambda: len(backends(lab.world, *WEBHOOK)) == 2)
    webhook = Webhook(advice.review, service=WEBHOOK)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.edit("admin", "Namespace", "", advice.namespace, {"metadata": {"labels": {SCALED: "enabled"}}})
    made = {**configuration("vpa-admission", webhook, only=SCALED), "kind": "MutatingWebhookConfiguration"}
    made["webhooks"][0]["failurePolicy"] = "Ignore"
    await lab.apply(made)


@family(
    "What recommends how much memory an app should ask for has a bound, and gets a far higher one, as in a sibling with"
    " little data. The app keeps in memory whatever it finds room for, so more is recommended than any node has: its"
    " first pod is evicted for that and finds no node, and the others do not stand what comes.",
    joined=63,
)
async def bound_above_nodes(lab: Lab) -> AsyncIterator[None]:
    """As the vertical autoscaler's documentation has it: it may recommend more than there is, and pods go pending."""
    namespace, name, front = lab.rng.choice(
        (
            ("search", "facet-store", "facet-api"),
            ("shop", "session-store", "session-api"),
            ("media", "poster-store", "poster-api"),
        )
    )
    by, asked = lab.rng.choice(("alice", "bob", "flux")), lab.rng.uniform(84, 90)
    kind = await lab.custom("VerticalPodAutoscaler", GROUP, ANY)
    await lab.served(kind)
    advice = _Advice(lab, kind, namespace, name, SIBLING_GI)

    def short() -> float:
        """Each pod stands a third of what comes, and refuses what is more."""
        return max(0.0, 1 - 30.0 * len(backends(lab.world, namespace, name)) / asked)

    await _admitted(lab, advice)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    head = {"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": {"namespace": namespace, "name": name}}
    spec = {"targetRef": target, "updatePolicy": {"updateMode": "Recreate"}, **_bound(OLD_MOST)["spec"]}
    await lab.apply({**head, "spec": spec})
    reads, watches = ("", "pods", "list"), (GROUP, kind.plural, "get,list,watch,patch")
    look = every(2, advice.recommend)
    await lab.controller("platform", "vpa-recommender", look, reads, watches, replicas=1, tag="1.4.1")
    await lab.until(lambda: _advised(lab.world[kind.name][namespace, name]))
    like = App("", asked=lambda: asked, failing=lambda _: short(), fails_with=lambda _: "503", memory_mi=900)
    await lab.app(namespace, name, like=like, replicas=3, tag="3.4.0", memory="8Gi")
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="6.0.2")
    await rolled(lab, namespace, name, "3.4.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3 and backends(lab.world, namespace, front))
    rights = reads, watches, ("", "pods/eviction", "create")
    await lab.controller("platform", "vpa-updater", every(2, advice.update), *rights, replicas=1, tag="1.4.1")
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_lacking(namespace, name, seconds=8)
    lab.alert_errors(namespace, front)
    waits = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodPending", waits, f"a pod of {namespace} has had no node for a while", 8, namespace=namespace)
    await lab.until(lambda: backends(lab.world, "platform", "vpa-updater"))
    await lab.until(lab.is_well)

    async def change(most: str) -> Answer:
        return await lab.edit(by, kind.name, namespace, name, _bound(most))

    async with before(lab, days=lab.rng.choice((2, 5, 8)), cluster="eu-2"):
        await lab.pause(3)
        await change(NEW_MOST)
        await lab.pause(12)
    await change(OLD_MOST)
    advice.uncapped_gi = lab.rng.randrange(*GROWN_GI)
    await lab.pause(5)
    assert all(_asks_for(one) == mebibytes(OLD_MOST) for one in pods(lab.world, namespace, name))
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 9))
    await lab.culprit(by, "update", kind.name, namespace, name, _bound(NEW_MOST))
