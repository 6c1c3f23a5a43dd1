"""What is used up on a machine that has room enough: what its kernel lets all processes of one user have together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.programs import every
from tests.lab.scenario import family

MOST, EACH = 128, 16
"""Watchers of files that one user may have on a machine, as kernels come, and how many of them one process needs."""
FIRST = 30
QUIET_EVERY, BUSY_EVERY = 12.0, 1.3
"""Seconds between two who sign up, on any day and in the week of a fair."""
REACHED = (
    f"Unhandled exception. System.IO.IOException: The configured user limit ({MOST}) on the number of inotify"
    " instances has been reached, or the per-process limit on the number of open file descriptors has been reached."
)
CRASHING = 2


@dataclass
class _Kernels:
    """Those of all nodes: who has its watchers keeps them, and whoever comes later gets what is left."""

    lab: Lab
    nodes: dict[str, str] = field(default_factory=dict)
    """Of who has its watchers, by uid of the pod."""

    def check(self, container: Container) -> Problem | None:
        uid, node = uid_of(container.pod), container.pod["spec"]["nodeName"]
        there = {uid_of(pod) for pod in self.lab.world["Pod"].values()}
        self.nodes = {one: where for one, where in self.nodes.items() if one in there}
        if uid not in self.nodes and EACH * (1 + list(self.nodes.values()).count(node)) > MOST:
            return Problem("crash", REACHED)
        self.nodes[uid] = node
        return None


@dataclass
class _Customers:
    """Each who signs up gets an app of its own."""

    namespace: str
    image: str
    number: int = 0
    is_busy: bool = False

    def pause(self, _: Process) -> float:
        return BUSY_EVERY if self.is_busy else QUIET_EVERY

    async def sign_up(self, process: Process) -> None:
        self.number += 1
        name = f"customer-{self.number:04}"
        made = objects.deployment(self.namespace, name, f"{self.image}:6.4.0", replicas=1)
        await process.api.call("POST", path("Deployment", self.namespace), made)


@family(
    "Each customer has an app of its own, which watches its files of settings. A kernel lets all processes of one user"
    " on a machine have so many watchers together. Customers sign up, more of them in the week of a fair: nodes have"
    " processors and memory enough, and whoever starts on one that has many of them ends at once.",
    culprit=False,
    joined=58,
)
async def watchers_used_up(lab: Lab) -> AsyncIterator[None]:
    """As users of .NET on Kubernetes tell whose machines had no inotify instances left."""
    namespace, app = lab.rng.choice((("stores", "storefront"), ("practices", "calendar"), ("clubs", "member-pages")))
    image = f"registry.corp.example/{namespace}/{app}"
    kernels, customers = _Kernels(lab), _Customers(namespace, image, FIRST)
    lab.apps[image] = App(image, serves=False, check=kernels.check)
    await lab.namespace(namespace)
    for number in range(1, FIRST + 1):
        await lab.apply(objects.deployment(namespace, f"customer-{number:04}", f"{image}:6.4.0", replicas=1))
    rule = ("apps", "deployments", "get,list,watch,create")
    program = every(customers.pause, customers.sign_up)
    await lab.controller("platform", "sign-up", program, rule, replicas=1, tag="3.2.0")
    lab.measure("customers", lambda: float(customers.number), namespace="platform", service="sign-up")

    def crashing() -> bool:
        """Whether some of the customers' apps were started anew more than once."""
        there = (pod for (where, _), pod in lab.world["Pod"].items() if where == namespace)
        statuses = (pod.get("status", {}).get("containerStatuses", ()) for pod in there)
        return sum(any(one["restartCount"] > 1 for one in each) for each in statuses) >= CRASHING

    lab.alert("KubePodCrashLooping", crashing, f"containers of {namespace} are restarting", 4, namespace=namespace)
    await lab.until(lambda: len(kernels.nodes) >= FIRST)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    customers.is_busy = True
