"""What a vertical autoscaler gives an app, and what its policy keeps that below."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, Kind, path
from tests.lab.apps import App, Container, Problem, Process, mebibytes
from tests.lab.families.at_their_own_hand import ACTS, FITTED, MARGIN, MOST_AWAY, TOLERATED, VERTICAL
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family
from tests.lab.webhook import Webhook, configuration

AT_START, GROWS = 140.0, 30.0
"""MiB that a process has as it starts, and by how many that grows each second until it has what it uses."""
RATIO = 1.25
"""A limit is so many times what is requested; the autoscaler keeps it so."""


@dataclass
class _Memory:
    """A vertical autoscaler that is for memory: what its recommender, its updater and its webhook do for one app."""

    lab: Lab
    kind: Kind
    place: tuple[str, str]
    used: float
    """MiB that a process of the app uses."""

    @property
    def declared(self) -> Json:
        return self.lab.world[self.kind.name].get(self.place, {})

    def target(self) -> float:
        """MiB that are recommended now; 0 where nothing is yet."""
        told = self.declared.get("status", {}).get("recommendation", {}).get("containerRecommendations", ())
        return mebibytes(told[0]["target"]["memory"]) if told else 0.0

    async def recommend(self, process: Process) -> None:
        """By what was used, within what the policy allows."""
        found = await process.api.call("GET", self.kind.path(*self.place))
        if not found.ok:
            return
        [policy] = found.body["spec"]["resourcePolicy"]["containerPolicies"]
        wanted = self.used * MARGIN
        target = max(mebibytes(policy["minAllowed"]["memory"]), min(wanted, mebibytes(policy["maxAllowed"]["memory"])))
        if abs(target - self.target()) < 1:
            return
        told = {
            "containerName": self.place[1],
            "target": {"memory": f"{target:.0f}Mi"},
            "uncappedTarget": {"memory": f"{wanted:.0f}Mi"},
        }
        body = {"status": {"recommendation": {"containerRecommendations": [told]}}}
        await process.api.call("PATCH", self.kind.path(*self.place), body)

    def is_off(self, pod: Json) -> bool:
        requested = mebibytes(pod["spec"]["containers"][0]["resources"]["requests"]["memory"])
        return abs(requested / self.target() - 1) > TOLERATED

    async def update(self, process: Process) -> None:
        """Evicts one that is not as is recommended, unless too many are away."""
        if not self.target() or self.declared["spec"]["updatePolicy"]["updateMode"] not in ACTS:
            return
        there = [pod for pod in pods(self.lab.world, *self.place) if "deletionTimestamp" not in pod["metadata"]]
        well, off = [pod for pod in there if is_ready(pod)], [pod for pod in there if self.is_off(pod)]
        replicas = self.lab.world["Deployment"].get(self.place, {}).get("spec", {}).get("replicas", 0)
        if off and len(well) - 1 >= replicas * (1 - MOST_AWAY):
            meta = off[0]["metadata"]
            named = {"namespace": meta["namespace"], "name": meta["name"]}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named}
            await process.api.call("POST", f"{path('Pod', meta['namespace'], meta['name'])}/eviction", body)
            said = "Pod was evicted by VPA Updater to apply resource recommendation."
            await tell(process, {**off[0], "kind": "Pod"}, "Normal", "EvictedByVPA", said, by="vpa-updater")

    async def review(self, request: Json) -> list[Json] | None:
        """A pod of the app is given what is recommended, and a limit in proportion."""
        if not backends(self.lab.world, "platform", "vpa-admission-controller"):
            raise ConnectionError("no pod is behind it")
        is_own = request["object"]["metadata"].get("labels", {}).get("app.kubernetes.io/name") == self.place[1]
        if not is_own or not self.target():
            return None
        where = "/spec/containers/0/resources"
        return [
            {"op": "replace", "path": f"{where}/requests/memory", "value": f"{self.target():.0f}Mi"},
            {"op": "replace", "path": f"{where}/limits/memory", "value": f"{self.target() * RATIO:.0f}Mi"},
        ]


async def _set_up(lab: Lab, fitting: _Memory, policy: Json, acts: str) -> None:
    """The autoscaler's three parts, what it is told of the app, and what it recommends for that."""
    namespace, name = fitting.place
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "updatePolicy": {"updateMode": acts},
        "resourcePolicy": {"containerPolicies": [policy]},
    }
    meta = {"namespace": namespace, "name": name}
    await lab.apply({"apiVersion": f"{VERTICAL}/v1", "kind": "VerticalPodAutoscaler", "metadata": meta, "spec": spec})
    reads, watches = (VERTICAL, "verticalpodautoscalers", "get,list,watch,patch"), ("", "pods", "get,list,watch")
    for one, program, *more in (
        ("vpa-recommender", every(2.5, fitting.recommend)),
        ("vpa-updater", every(2.5, fitting.update), ("", "pods/eviction,events", "create")),
    ):
        await lab.controller("platform", one, program, reads, watches, *more, replicas=1, tag="1.5.1")
        await rolled(lab, "platform", one, "1.5.1")
    server = ("platform", "vpa-admission-controller")
    await lab.app(*server, like=App("", serves=False), replicas=1, tag="1.5.1")
    await rolled(lab, *server, "1.5.1")
    webhook = Webhook(fitting.review, service=server)
    await webhook.start()
    lab.servers.append(webhook)
    await lab.edit("admin", "Namespace", "", namespace, {"metadata": {"labels": {FITTED: "enabled"}}})
    manifest = configuration("vpa-webhook-config", webhook, only=FITTED)
    manifest["kind"], manifest["webhooks"][0]["failurePolicy"] = "MutatingWebhookConfiguration", "Ignore"
    await lab.apply(manifest)
    await lab.until(fitting.target)


@family(
    "A vertical autoscaler has fitted the memory of an app for months. Somebody sets the most that it may give, to save"
    " memory, below what the app uses on any day: it makes the pods anew with less, request and limit, and the kernel"
    " ends each of them a while after its start.",
    joined=87,
)
async def capped_by_policy(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found OOMKilled under a limit that is in no manifest."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "bundle-offers", "bundles-page"),
            ("payments", "ledger-views", "ledger-page"),
            ("media", "cover-art", "covers-page"),
            ("search", "facet-cache", "facets-page"),
        )
    )
    place, minor = (namespace, name), lab.rng.randrange(2, 50)
    by, acts, used = lab.rng.choice((*TEAMS, "flux", "argocd")), lab.rng.choice(ACTS), lab.rng.uniform(400, 520)
    kind = await lab.custom("VerticalPodAutoscaler", VERTICAL, ANY)
    await lab.served(kind)
    fitting = _Memory(lab, kind, place, used)

    def needs(container: Container) -> float:
        """MiB that a process has by now: each comes to what it uses at its own pace."""
        pace = GROWS * (0.8 + 0.4 * (crc32(uid_of(container.pod).encode()) % 100) / 100)
        return min(used, AT_START + pace * max(0.0, container.seconds - lab.lag))

    def check(container: Container) -> Problem | None:
        may = str(container.spec["resources"]["limits"]["memory"])
        is_beyond = needs(container) > mebibytes(may)
        return Problem("oom", f"needs {needs(container):.0f}Mi, may have {may}", at_once=True) if is_beyond else None

    def most() -> float:
        """Bytes of that one of its containers that has most."""
        return 2**20 * max((needs(one.container) for one in lab.kubelets.running() if one.app is like), default=0.0)

    policy = {"containerName": "*", "minAllowed": {"memory": "64Mi"}, "maxAllowed": {"memory": "2Gi"}}
    policy |= {"controlledResources": ["memory"], "controlledValues": "RequestsAndLimits"}
    await _set_up(lab, fitting, policy, acts)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_ENTRIES="20000"))
    like = App("", check=check, asked=lambda: 20.0)
    await lab.app(namespace, name, like=like, replicas=4, tag=f"3.{minor}.0", config=name, memory="640Mi")
    await rolled(lab, namespace, name, f"3.{minor}.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name, "container": name}
    lab.measure("container_memory_working_set_bytes", most, **told)
    crashes = lambda: restarts(lab.world, namespace, name) > 2  # noqa: E731
    summary = f"containers of {namespace}/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name, seconds=14)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 6))
        await change_page(lab, namespace, front)

    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"3.{minor}.1")
    await lab.pause(lab.rng.uniform(14, 20))
    entries = {"data": {"CACHE_ENTRIES": lab.rng.choice(("15000", "25000"))}}
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, entries)
    await lab.pause(lab.rng.uniform(3, 6))
    cap = {"memory": lab.rng.choice(("192Mi", "224Mi", "256Mi"))}
    lower = {"resourcePolicy": {"containerPolicies": [{**policy, "maxAllowed": cap}]}}
    await lab.culprit(by, "update", "VerticalPodAutoscaler", namespace, name, {"spec": lower})
    lab.start(afterwards())
