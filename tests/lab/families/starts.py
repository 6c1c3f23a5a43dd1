"""What starts at once: everything of a product, as each of its templates is marked anew."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import LATE, App, Container, Problem, Process
from tests.lab.families.between import publish
from tests.lab.lab import NODES, Lab
from tests.lab.network import unserved
from tests.lab.programs import informer, lagging
from tests.lab.scenario import family

PREVIEWS, PARTS = 7, ("site", "api", "login")
"""How many instances of a product there are beside production, and what each of them is made of."""
VERSION, NEXT, TIME = "v2.14.11", ("v3.0.4", "v3.0.5"), "timestamp"
CORES, START_CORES, START_WORK, ENOUGH = 16.0, 10.0, 110.0, 0.7
"""Of a node; what a start would use of them, for how many seconds of one, and the share with which answers are in time.
"""


@dataclass
class Processors:
    """What is left of those of every node, for whoever does not say what it needs."""

    lab: Lab
    namespace: str
    names: Sequence[str]
    done: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """What a pod computed so far for its start, by uid."""
    share: dict[str, float] = field(default_factory=dict)
    """What whoever is there gets of that which it wants, by node."""

    async def compute(self) -> None:
        """For ever: who starts wants much, and together they want more than there is."""
        while True:
            await asyncio.sleep(1)
            starting = self._starting()
            for node in NODES:
                wanted = START_CORES * len(starting[node])
                self.share[node] = min(1.0, CORES / wanted) if wanted else 1.0
                for uid in starting[node]:
                    self.done[uid] += START_CORES * self.share[node]

    def _starting(self) -> dict[str, list[str]]:
        """The uids of such pods by their node."""
        found: dict[str, list[str]] = defaultdict(list)
        for pod in (pod for name in self.names for pod in pods(self.lab.world, self.namespace, name)):
            uid, is_up = pod["metadata"]["uid"], pod.get("status", {}).get("phase") == "Running"
            if is_up and self.done[uid] < START_WORK:
                found[pod["spec"]["nodeName"]].append(uid)
        return found

    def check(self, container: Container) -> Problem | None:
        if self.done[container.pod["metadata"]["uid"]] < START_WORK:
            return Problem("unready", "probe failed: dial tcp :8080: connect: connection refused")
        share = self.share.get(container.pod["spec"]["nodeName"], 1.0)
        return Problem("unready", LATE) if share < ENOUGH else None


@dataclass
class Rendered:
    """The templates of the apps as Argo CD has them: each has the time at which it was made."""

    lab: Lab
    namespace: str
    names: Sequence[str]
    at: str = ""
    cache: dict[str, str] = field(default_factory=dict)
    """When a version of it rendered them: what another one left is not used."""

    async def render(self, process: Process) -> None:
        """What its repo server does all day."""
        await lagging(process)
        self.at = self.cache.setdefault(process.tag, f"{stamp(now())[:19]}Z")
        await informer(path("ConfigMap", "argocd"))(process)

    async def sync(self) -> None:
        """Its application controller applies them for ever, where they differ."""
        while True:
            await asyncio.sleep(3)
            body = {"spec": {"template": {"metadata": {"annotations": {TIME: self.at}}}}}
            for name in self.names:
                template = self.lab.world["Deployment"][self.namespace, name]["spec"]["template"]
                if template["metadata"]["annotations"][TIME] != self.at:
                    await self.lab.edit("argocd", "Deployment", self.namespace, name, body)

    async def install(self, app: App, name: str, *, replicas: int) -> None:
        """One of them, which does not say what it needs. Raises RefusedError."""
        self.lab.apps[app.image] = app
        made: Json = objects.deployment(self.namespace, name, f"{app.image}:1.0.0", replicas=replicas)
        template = made["spec"]["template"]
        del template["spec"]["containers"][0]["resources"]
        template["metadata"]["annotations"] = {TIME: self.at}
        await self.lab.apply(made)
        await self.lab.apply(objects.service(self.namespace, name))


@family(
    "Every template of a product has the time at which it was rendered, so that a release restarts all of it. A new"
    " version of Argo CD renders all of them anew: every preview starts at once, and production gets no processor.",
    joined=13,
)
async def restart_stamp(lab: Lab) -> AsyncIterator[None]:
    """As Pathoplexus tells of June 2025 (pathoplexus 487 and 478)."""
    namespace, product = lab.rng.choice((("search", "atlas"), ("media", "wiki"), ("shop", "portal")))
    previews = [f"pr-{number}" for number in lab.rng.sample(range(300, 500), PREVIEWS)]
    names = [f"{product}-{instance}-{part}" for instance in ("prod", *previews) for part in PARTS]
    rendered, processors = Rendered(lab, namespace, names), Processors(lab, namespace, names)
    rules = ("", "configmaps", "list,watch")
    await lab.controller("argocd", "argocd-repo-server", rendered.render, rules, replicas=1, tag=VERSION)
    await lab.app("argocd", "argocd-server", tag=VERSION)
    await lab.until(lambda: rendered.at)
    for name in names:
        app = App(f"registry.corp.example/{namespace}/{name}", check=processors.check)
        await rendered.install(app, name, replicas=2 if "-prod-" in name else 1)
    lab.start(processors.compute())
    host = await publish(lab, namespace, f"{product}-prod-{PARTS[0]}")
    url = f"https://{host}"
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"{url} is not answered", 5, job="blackbox", instance=url)
    for part in PARTS:
        lab.alert_lacking(namespace, f"{product}-prod-{part}")
    yield
    lab.start(rendered.sync())
    by, version = lab.rng.choice(("alice", "ci")), lab.rng.choice(NEXT)
    for name in ("argocd-repo-server", "argocd-server"):
        await lab.roll(by, "argocd", name, version, culprit=True)
