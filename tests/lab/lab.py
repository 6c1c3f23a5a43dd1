"""The laboratory: one control plane with nodes, people, robots, and what a scenario asks of it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2

from tests.cluster.control_plane import ControlPlane
from tests.lab import addresses, objects
from tests.lab.alerts import Rule, pods
from tests.lab.api import KINDS, UNWATCHED, Answer, Caller, Json, Kind, RefusedError, World, path
from tests.lab.apps import App, Outside, Program
from tests.lab.kubelets import Kubelets
from tests.lab.monitoring import Measure, Monitoring
from tests.lab.traffic import Traffic
from tests.lab.webhook import Webhook

if TYPE_CHECKING:
    from tests.lab.before import Past

NODES = tuple(f"ip-10-0-0-{number}" for number in range(1, 7))
LATER = "ip-10-0-0-7"
"""A machine that is not there until a family lets it join."""
KUBELET = "kubelet/v1.36.1 (linux/amd64) kubernetes/93248f9"
PEOPLE = {
    "alice": ("alice@corp.example", "kubectl/v1.34.1 (darwin/arm64) kubernetes/93248f9"),
    "bob": ("bob@corp.example", "kubectl/v1.33.2 (linux/amd64) kubernetes/a57b6f7"),
    "carol": ("carol@corp.example", "k9s/v0.50.6 (darwin/arm64)"),
    "ci": ("ci-deployer", "Helm/3.18.4"),
    "admin": ("admin", "kubeadm/v1.36.1"),
}
ROBOTS = {
    "argocd": ("argocd", "argocd-application-controller", "argocd-application-controller"),
    "flux": ("flux-system", "kustomize-controller", "kustomize-controller"),
}
USERS = {
    **{user: "platform" for user, _ in PEOPLE.values() if user != "admin"},
    **{f"system:node:{name}": "system:nodes" for name in (*NODES, LATER)},
}
"""Further users of the control plane, with their group: what a group may, RBAC says."""


@dataclass(frozen=True)
class Variation:
    """How a scenario is recorded: all times in seconds, one of which stands for a minute."""

    seed: int = 1
    distractors: float = 40.0
    """Harmless changes an hour of compressed time, which is a minute here."""
    lag: float = 0.0
    alert_delay: float = 0.0
    alert_shift: float = 0.0
    audit: str = "full"
    metrics: bool = True
    app_metrics: bool = True


@dataclass
class Lab(Monitoring):
    """What a scenario works with."""

    plane: ControlPlane
    client: httpx2.AsyncClient
    variation: Variation
    rng: random.Random = field(init=False)
    called: str = ""
    """What is recorded; where apps are told whom they call follows from it, and takes no turn of ``rng``."""
    outside: Outside = field(default_factory=Outside)
    apps: dict[str, App] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    who: dict[str, Caller] = field(default_factory=dict)
    reserved: set[tuple[str, str]] = field(default_factory=set)
    """Namespace and name of what nobody else may change but for its annotations."""
    culprits: list[tuple[Json, Answer]] = field(default_factory=list)
    accepted: list[tuple[Json, Answer, str]] = field(default_factory=list)
    servers: list[Webhook] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    past: list[Past] = field(default_factory=list)
    world: World = field(init=False)
    kubelets: Kubelets = field(init=False)
    traffic: Traffic = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.variation.seed)
        for name, (user, agent) in PEOPLE.items():
            self.who[name] = Caller(self.client, user, self.plane.token(user), agent)
        self.world = World(Caller(self.client, "admin", self.plane.token("admin"), "foreshock"))
        nodes = {
            one: Caller(self.client, user, self.plane.token(user), KUBELET)
            for one in (*NODES, LATER)
            for user in [f"system:node:{one}"]
        }
        self.outside.dead_nodes.add(LATER)
        self.kubelets = Kubelets(self.world, nodes, self.apps, self.outside)
        self.kubelets.rng = random.Random(self.variation.seed)
        self.traffic = Traffic(
            self.world,
            self.apps,
            self.outside,
            self.kubelets.running,
            seed=self.variation.seed,
            lag=self.variation.lag,
        )

    @property
    def lag(self) -> float:
        return self.variation.lag

    # -- before

    async def prepare(self) -> None:
        """Who may what, watches of every kind, nodes. Raises RefusedError."""
        for group in ("platform", "system:nodes"):
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
            meta = {"name": f"{group.replace(':', '-')}-admin"}
            await self.apply({"kind": "ClusterRoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]})
        for kind in KINDS.values():
            if kind.name not in UNWATCHED:
                await self.world.watch(kind)
        for name in NODES:
            await self.kubelets.register(name)

    async def apply(self, manifest: Json, by: str = "admin") -> Answer:
        """Create it; the API says of which version a manifest is that does not. Raises RefusedError."""
        meta, version = manifest["metadata"], KINDS[manifest["kind"]].root.split("/", 2)[2]
        where = path(manifest["kind"], meta.get("namespace"))
        return await self.who[by].must("POST", where, {"apiVersion": version, **manifest})

    async def namespace(self, name: str) -> None:
        """With its ServiceAccount, which a controller would make in its own time. Raises RefusedError."""
        await self.apply({"kind": "Namespace", "metadata": {"name": name}})
        made = await self.who["admin"].call("POST", path("ServiceAccount", name), objects.account(name, "default"))
        if made.status not in (201, 409):
            raise RefusedError(f"ServiceAccount default in {name}: {made.body.get('message')}")

    async def app(
        self, namespace: str, name: str, *, tag: str = "1.0.0", like: App | None = None, **manifest: Any
    ) -> App:
        """A Deployment (or ``kind``) of an image of its own, and a Service; ``like`` says how it behaves.

        Most are told whom they call, by their environment or by a file in their ConfigMap, which has to be there.
        """
        app = like or App("")
        app.image = f"registry.corp.example/{namespace}/{name}"
        self.apps[app.image] = app
        config, chance = manifest.get("config", ""), random.Random(f"{self.called} {app.image}")
        told = addresses.told(app, namespace, name, env=manifest.get("env", ()), has_config=bool(config), chance=chance)
        manifest["env"] = told.env
        if told.config:
            await self.edit("admin", "ConfigMap", namespace, config, {"data": told.config})
        await self.apply(objects.deployment(namespace, name, f"{app.image}:{tag}", **manifest))
        await self.apply(objects.service(namespace, name))
        return app

    async def controller(
        self,
        namespace: str,
        name: str,
        program: Program,
        *rules: tuple[str, str, str],
        upstreams: tuple[tuple[str, str], ...] = (),
        **manifest: Any,
    ) -> App:
        """An app whose program calls the API as its own ServiceAccount, which may what ``rules`` say."""
        await self.apply(objects.account(namespace, name))
        await self.apply(objects.cluster_role(name, *rules))
        await self.apply(objects.binding(name, name, namespace, name))
        like = App("", program=program, upstreams=upstreams, serves=False)
        return await self.app(namespace, name, like=like, account=name, **manifest)

    async def robot(self, name: str, namespace: str, account: str, agent: str) -> None:
        """``who`` of this name is the one pod of an app: it has a token that is bound to it. Raises RefusedError."""
        await self.until(lambda: pods(self.world, namespace, account))
        [pod] = pods(self.world, namespace, account)
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        where = f"{path('ServiceAccount', namespace, account)}/token"
        given = await self.who["admin"].must("POST", where, {"spec": {"boundObjectRef": reference}})
        user = f"system:serviceaccount:{namespace}:{account}"
        self.who[name] = Caller(self.client, user, given.body["status"]["token"], agent)

    def reserve(self, namespace: str, *names: str) -> None:
        """Nobody else changes what these are about."""
        self.reserved |= {(namespace, name) for name in names}

    # -- what happens

    async def culprit(self, by: str, verb: str, kind: str, namespace: str, name: str, body: Any = None) -> Answer:
        """The change that is to be found; of several of one hand the first. Raises RefusedError."""
        what, answer = await self._write(by, verb, kind, namespace, name, body)
        self.culprits.append((what, answer))
        return answer

    async def also(
        self, why: str, by: str, verb: str, kind: str, namespace: str, name: str, body: Any = None
    ) -> Answer:
        """A change that counts as the answer too. Raises RefusedError."""
        what, answer = await self._write(by, verb, kind, namespace, name, body)
        self.accepted.append((what, answer, why))
        return answer

    async def _write(self, by: str, verb: str, kind: str, namespace: str, name: str, body: Any) -> tuple[Json, Answer]:
        method = {"create": "POST", "update": "PATCH", "delete": "DELETE"}[verb]
        where = path(kind, namespace, None if verb == "create" else name)
        answer = await self.who[by].must(method, where, body)
        api = KINDS[kind].group
        user = self.who[by].user
        what = {
            "kind": kind,
            "namespace": namespace or None,
            "name": name,
            "actor": user,
            "verb": verb,
            "api_group": api,
        }
        return what, answer

    async def edit(self, by: str, kind: str, namespace: str, name: str, body: Json) -> Answer:
        """A change like others. Raises RefusedError."""
        return await self.who[by].must("PATCH", path(kind, namespace, name), body)

    async def roll(
        self, by: str, namespace: str, name: str, tag: str, *, culprit: bool = False, **container: Any
    ) -> Answer:
        """A rollout of an app's tag, with further fields of its container; ``env`` is joined. Raises RefusedError."""
        there = self.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
        image = str(there["image"]).rsplit(":", 1)[0]
        if "env" in container:
            named = {one["name"] for one in container["env"]}
            container["env"] = [*(one for one in there.get("env", ()) if one["name"] not in named), *container["env"]]
        one = {**there, "image": f"{image}:{tag}", **container}
        body = {"spec": {"template": {"spec": {"containers": [one]}}}}
        write = self.culprit(by, "update", "Deployment", namespace, name, body) if culprit else self.edit(
            by, "Deployment", namespace, name, body
        )  # fmt: skip
        return await write

    async def custom(self, kind: str, group: str, schema: Json, *, namespaced: bool = True) -> Kind:
        """A CustomResourceDefinition, watched from now on; the caller waits until it is served. Raises RefusedError."""
        made = Kind(kind, f"/apis/{group}/v1", namespaced=namespaced)
        KINDS[kind] = made
        names = {"kind": kind, "plural": made.plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        spec = {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": names,
            "versions": [version],
        }
        name = f"{made.plural}.{group}"
        await self.apply({"kind": "CustomResourceDefinition", "metadata": {"name": name}, "spec": spec})
        return made

    async def served(self, *kinds: Kind) -> None:
        """Wait until the API server serves custom kinds, and watch them. Raises RefusedError."""
        for kind in kinds:
            for pause in itertools.repeat(0.5):
                if (await self.world.caller.call("GET", kind.path())).ok:
                    break
                await asyncio.sleep(pause)
            await self.world.watch(kind)

    async def until(self, holds: Callable[[], object], *, seconds: float = 90) -> None:
        """Wait for what is bound to come. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            for pause in itertools.repeat(0.5):
                if holds():
                    return
                await asyncio.sleep(pause)

    async def pause(self, seconds: float) -> None:
        """Time passes between two changes."""
        await asyncio.sleep(seconds)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Somebody who is at work from now on."""
        self.tasks.append(asyncio.create_task(work))
