"""Nobody knew what for: what had been made by hand once, and a group that nobody had heard of."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path, stamp
from tests.lab.apps import App, Process
from tests.lab.company import APPS
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

# -- by hand

ARGO, OWNED_BY, LOOKS_SECONDS = "argoproj.io", "app.kubernetes.io/instance", 3.0
WHOLE = {"prune": True, "selfHeal": True}
DOOR = "allow-callers"


@dataclass
class _Agent:
    """The GitOps agent: what differs from Git in an Application's namespace it puts right, as far as it is told to."""

    lab: Lab
    kind: Kind
    git: dict[str, tuple[str, set[str], Json]]
    """Of each Application its namespace, the names that Git has there, and the rule of who may come in."""

    async def declare(self, name: str, automated: Json) -> None:
        """Raises RefusedError."""
        namespace = self.git[name][0]
        source = {"repoURL": f"https://git.corp.example/{namespace}/deploy.git", "path": "prod"}
        to = {"server": "https://kubernetes.default.svc", "namespace": namespace}
        spec = {"project": namespace, "source": {**source, "targetRevision": "main"}, "destination": to}
        meta = {"namespace": "argocd", "name": name}
        body = {"apiVersion": f"{ARGO}/v1", "kind": self.kind.name, "metadata": meta}
        await self.lab.apply({**body, "spec": {**spec, "syncPolicy": {"automated": automated}}})

    async def turn_on(self, by: str, name: str, *, is_it: bool = False) -> None:
        """Raises RefusedError."""
        kind, body = self.kind.name, {"spec": {"syncPolicy": {"automated": WHOLE}}}
        if is_it:
            await self.lab.culprit(by, "update", kind, "argocd", name, body)
        else:
            await self.lab.edit(by, kind, "argocd", name, body)

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOKS_SECONDS)
            for name in self.git:
                await self._sync(name)

    async def _sync(self, name: str) -> None:
        one, (namespace, _, rule) = self.lab.world[self.kind.name]["argocd", name], self.git[name]
        told = one["spec"]["syncPolicy"]["automated"]
        extra, caller = self.extra(name), self.lab.who["argocd"]
        if told.get("prune"):
            for kind, which in extra:
                await caller.call("DELETE", path(kind, namespace, which))
        door = self.lab.world["NetworkPolicy"].get((namespace, DOOR), {}).get("spec", {}).get("ingress")
        is_other = bool(rule) and door != rule["ingress"]
        if told.get("selfHeal") and is_other:
            await caller.call("PATCH", path("NetworkPolicy", namespace, DOOR), {"spec": {"ingress": rule["ingress"]}})
        is_synced = (told.get("prune") or not extra) and (told.get("selfHeal") or not is_other)
        status = "Synced" if is_synced else "OutOfSync"
        if one.get("status", {}).get("sync", {}).get("status") != status:
            body = {"status": {"sync": {"status": status}, "reconciledAt": f"{stamp(now())[:19]}Z"}}
            await caller.call("PATCH", self.kind.path("argocd", name), body)

    def extra(self, name: str) -> list[tuple[str, str]]:
        """What says that it is of an Application and is not in Git."""
        namespace, names, _ = self.git[name]
        return [
            (kind, which)
            for kind in ("Service", "Deployment")
            for (where, which), one in self.lab.world[kind].items()
            if where == namespace and one["metadata"].get("labels", {}).get(OWNED_BY) == name and which not in names
        ]


def _peers(*namespaces: str) -> list[Json]:
    """Who may come in: those of the same namespace, and of some others."""
    labels = [{"kubernetes.io/metadata.name": one} for one in namespaces]
    return [{"podSelector": {}}, *({"namespaceSelector": {"matchLabels": one}} for one in labels)]


async def _let_in(lab: Lab, namespace: str, name: str, own: str, away: str) -> None:
    """Git lets in monitoring alone; somebody has added another team. Raises RefusedError, TimeoutError."""
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    chosen = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}, "policyTypes": ["Ingress"]}
    meta = {"namespace": namespace, "name": DOOR, "labels": {OWNED_BY: own}}
    spec = {**chosen, "ingress": [{"from": _peers("monitoring")}]}
    await lab.apply({"kind": "NetworkPolicy", "metadata": meta, "spec": spec})
    by_hand = {"spec": {"ingress": [{"from": _peers("monitoring", away)}]}}
    await lab.edit(lab.rng.choice(TEAMS), "NetworkPolicy", namespace, DOOR, by_hand)


async def _put_beside(lab: Lab, namespace: str, name: str, own: str, helper: str) -> None:
    """A cache, with the labels of the app that it was made for. Raises RefusedError, TimeoutError."""
    await lab.app(namespace, helper, like=App("", serves=False), replicas=1, tag="8.0.3")
    await rolled(lab, namespace, helper, "8.0.3")
    for kind in ("Deployment", "Service"):
        for one in (name, helper):
            await lab.edit("admin", kind, namespace, one, {"metadata": {"labels": {OWNED_BY: own}}})


@family(
    "Automatic pruning and self-healing are turned on for the Applications of the GitOps agent, one after another, as"
    " all should be as Git has it. In one of them somebody had made something by hand in a bad night of the spring: a"
    " cache beside an app, with the labels of that app, or a rule that lets in another team. It is not in Git, and the"
    " agent takes it away.",
    joined=105,
)
async def undone_by_git(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had meant to write it into Git on the next day."""
    namespace, name, helper, (away, caller), front = lab.rng.choice(
        (
            ("shop", "price-lists", "price-cache", ("payments", "quote-api"), "list-page"),
            ("payments", "fx-rates", "rates-cache", ("shop", "currency-api"), "rates-page"),
            ("media", "artist-api", "artist-cache", ("search", "artist-hits"), "artist-page"),
            ("search", "place-lookup", "lookup-cache", ("media", "place-cards"), "place-page"),
        )
    )
    is_pruned, minor, by = lab.rng.random() < 0.5, lab.rng.randrange(2, 40), lab.rng.choice((*TEAMS, "flux"))
    own = f"{namespace}-prod"
    others = [f"{one}-prod" for one in lab.rng.sample([one for one in APPS if one != namespace], 2)]
    git: dict[str, tuple[str, set[str], Json]] = {one: (one.removesuffix("-prod"), set(), {}) for one in others}
    git[own] = (namespace, {name, front}, {} if is_pruned else {"ingress": [{"from": _peers("monitoring")}]})
    agent = _Agent(lab, await lab.custom("Application", ARGO, ANY), git)
    await lab.served(agent.kind)
    to = ((namespace, helper),) if is_pruned else ()
    like = App("", upstreams=to, asked=lambda: 20.0)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", PAGE_SIZE="100"))
    await lab.app(namespace, name, like=like, replicas=3, tag=f"5.{minor}.0", config=name)
    if is_pruned:
        await _put_beside(lab, namespace, name, own, helper)
    else:
        await _let_in(lab, namespace, name, own, away)
    await rolled(lab, namespace, name, f"5.{minor}.0")
    like = App("", upstreams=() if is_pruned else ((namespace, name),), asked=lambda: 17.0)
    await lab.apply(objects.config_map(away, caller, LOG_LEVEL="info", TTL="60"))
    await lab.app(away, caller, like=like, replicas=2, tag="1.9.0", config=caller)
    await rolled(lab, away, caller, "1.9.0")
    place = (namespace, name) if is_pruned else (away, caller)
    await set_before(lab, place[0], front, place[1])
    for one in agent.git:
        await agent.declare(one, {})
    lab.alert_errors(*place)
    lab.alert_errors(place[0], front)
    lab.alert_ingress_errors(place[0], place[0])
    lab.start(agent.run())
    await lab.pause(2 * LOOKS_SECONDS)
    await lab.until(lab.is_well)

    async def afterwards(rest: list[str]) -> None:
        for one in rest:
            await lab.pause(lab.rng.uniform(2, 5))
            await agent.turn_on(by, one)
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, place[0], front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), away, caller, "1.9.1")
    await lab.pause(lab.rng.uniform(6, 11))
    size = {"data": {"PAGE_SIZE": lab.rng.choice(("50", "200"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, size)
    await lab.pause(lab.rng.uniform(3, 8))
    order = lab.rng.sample([own, *others], 3)
    for one in order[: order.index(own)]:
        await agent.turn_on(by, one)
        await lab.pause(lab.rng.uniform(2, 5))
    await agent.turn_on(by, own, is_it=True)
    lab.start(afterwards(order[order.index(own) + 1 :]))


# -- a group

AGENT, RELEASED, EVERY_SECONDS, FAILED = ("platform", "gitlab-agent"), "storefront-release", 3.0, 2


@dataclass
class _Jobs:
    """The deploying jobs of pipelines: each asks the API by the agent, as its own group may."""

    groups: dict[str, str]
    """By namespace."""
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    in_a_row: Counter[str] = field(default_factory=Counter)
    """How often it has failed by now, by namespace."""
    turn: int = 0

    async def work(self, process: Process) -> None:
        self.turn += 1
        namespace = list(self.groups)[self.turn % len(self.groups)]
        job = f"gitlab:ci_job:{81200 + self.turn}"
        asked = replace(process.api, acts_for=(job, f"gitlab:group:{self.groups[namespace]}"))
        where, version = path("Deployment", namespace, "webapp"), f"2.{self.turn + 8}.0"
        found = await asked.call("GET", where)
        is_done = found.ok
        if found.ok:
            [container] = found.body["spec"]["template"]["spec"]["containers"]
            image = f"{container['image'].rsplit(':', 1)[0]}:{version}"
            body = {"spec": {"template": {"spec": {"containers": [{**container, "image": image}]}}}}
            note = {"data": {"version": version}}
            is_done = (await asked.call("PATCH", path("ConfigMap", namespace, RELEASED), note)).ok
            is_done = is_done and (await asked.call("PATCH", where, body)).ok
        self.done[namespace, "success" if is_done else "failed"] += 1
        self.in_a_row[namespace] = 0 if is_done else self.in_a_row[namespace] + 1


@family(
    "In a review of who may do what somebody comes upon a group that is a number, and that nobody has heard of: it is"
    " taken out of the RoleBinding of a team, or its RoleBinding is deleted. It is the group of the team's project, as"
    " whose jobs the pipeline deploys: each deployment of that team is refused from then on.",
    joined=105,
)
async def group_nobody_knew(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pipelines were red on the day after the review."""
    homes, by, minor = lab.rng.sample(sorted(APPS), 3), lab.rng.choice(TEAMS), lab.rng.randrange(2, 12)
    jobs = _Jobs({one: str(lab.rng.randrange(1000, 9999)) for one in homes})
    is_shared, old = lab.rng.random() < 0.5, lab.rng.choice(("legacy-edit", "deploy", "edit-2024"))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}

    def group(name: str) -> Json:
        return {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name}

    def subjects(home: str) -> list[Json]:
        people = [group(f"{home}-developers"), group(f"{home}-contractors")] if is_shared else []
        return [*people, group(f"gitlab:group:{jobs.groups[home]}")]

    for one in homes:
        await lab.apply(objects.config_map(one, RELEASED, version="2.7.0"))
        await lab.app(one, "webapp", replicas=1, tag="2.7.0")
        await rolled(lab, one, "webapp", "2.7.0")
        binding = {"kind": "RoleBinding", "metadata": {"namespace": one, "name": old}, "roleRef": role}
        await lab.apply({**binding, "subjects": subjects(one)})
    like = App("", program=every(EVERY_SECONDS, jobs.work), serves=False)
    await lab.apply(objects.account(*AGENT))
    await lab.apply(objects.cluster_role(AGENT[1], ("", "users,groups", "impersonate")))
    await lab.apply(objects.binding(AGENT[1], AGENT[1], *AGENT))
    await lab.app(*AGENT, like=like, account=AGENT[1], replicas=1, tag=f"v18.{minor}.0")
    await rolled(lab, *AGENT, f"v18.{minor}.0")
    for one in homes:
        for result in ("success", "failed"):
            value = lambda one=one, result=result: jobs.done[one, result]  # noqa: E731
            told = {"namespace": "platform", "service": "gitlab-exporter", "project": f"{one}/webapp"}
            lab.measure("gitlab_ci_pipeline_jobs_total", value, "counter", **told, stage="deploy", status=result)
        summary = f"deployments of {one}/webapp fail again and again"
        fails = lambda one=one: jobs.in_a_row[one] >= FAILED  # noqa: E731
        lab.alert("DeploymentJobsFailing", fails, summary, 4, namespace=one, deployment="webapp")
    await lab.until(lambda: sum(jobs.done.values()) >= 6 and lab.is_well())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        values = {"data": {"TIMEOUT_MS": lab.rng.choice(("600", "900"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "search", "indexer", values)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), *AGENT, f"v18.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 12))
    level = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", "payments", "ledger", level)
    await lab.pause(lab.rng.uniform(3, 8))
    if is_shared:
        fewer = [one for one in subjects(homes[1]) if not one["name"].endswith("-contractors")]
        await lab.edit(by, "RoleBinding", homes[1], old, {"subjects": fewer})
        await lab.pause(lab.rng.uniform(2, 5))
        people = {"subjects": subjects(homes[0])[:1]}
        await lab.culprit(by, "update", "RoleBinding", homes[0], old, people)
    else:
        await lab.culprit(by, "delete", "RoleBinding", homes[0], old)
    lab.start(afterwards())
