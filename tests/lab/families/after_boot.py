"""What was told of machines that booted anew: what does not come back with them, and who starts without it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.alerts import is_lost, pods
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.families.moving import spare
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import DNS, backends, unserved
from tests.lab.scenario import family

UPDATE_SECONDS, BOOT_SECONDS = 3.0, 5.0
"""For which packages are installed, and until a machine is up again after that."""
POWER_SECONDS = 9.0
"""Until machines whose power was lost are up again, if they are."""
TOLERATED_SECONDS = 5
"""How long pods stay on a node that is not heard: the five minutes that admission gives, in the time of here."""


def leave_early() -> list[Json]:
    """Tolerations of pods that leave a lost node after their minutes."""
    conditions = ("not-ready", "unreachable")
    return [
        {
            "key": f"node.kubernetes.io/{one}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": TOLERATED_SECONDS,
        }
        for one in conditions
    ]


@family(
    "A machine is updated and booted anew, and its firewall does not come up with it: strangers find the cache that"
    " listens in its network, and make it a replica of one of theirs. It takes no write any more.",
    joined=15,
)
async def unguarded_cache(lab: Lab) -> AsyncIterator[None]:
    """As Hachyderm tells of July 2023 (community 449)."""
    namespace, name, writer = lab.rng.choice(
        (("shop", "sessions-redis", "sessions"), ("media", "pages-redis", "pages"), ("search", "terms-redis", "terms"))
    )
    unguarded: set[str] = set()
    followers: set[str] = set()
    """Pods, by uid, that follow somebody else's primary."""

    def open_pods() -> list[Json]:
        """Who listens in the network of a machine that lets everybody in."""
        there = [pod for pod in pods(lab.world, namespace, name) if pod["spec"].get("nodeName") in unguarded]
        return [pod for pod in there if pod["spec"].get("hostNetwork") and is_ready(pod)]

    async def scan() -> None:
        """As those do who look at every address there is."""
        await lab.until(open_pods)
        await lab.pause(lab.rng.uniform(16, 26))
        followers.update(pod["metadata"]["uid"] for pod in open_pods())

    def follows() -> bool:
        return any(pod["metadata"]["uid"] in followers for pod in pods(lab.world, namespace, name))

    [node] = spare(lab, 1)
    await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "cache"}}})
    network: Json = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    like = App("", serves=False)
    pool = {"pool": "cache"}
    await lab.app(namespace, name, like=like, kind="StatefulSet", replicas=1, nodeSelector=pool, **network)
    for role, is_so in (("master", lambda: not follows()), ("slave", follows)):
        told = lambda is_so=is_so: 1 if is_so() else None  # noqa: E731
        lab.measure("redis_instance_info", told, namespace=namespace, service=name, role=role)

    def check(container: Container) -> Problem | None:
        """Its probe writes a key, as its users' requests do."""
        if not follows():
            return None
        refused = f"{name}: READONLY You can't write against a read only replica."
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({refused})")

    await lab.app(namespace, writer, like=App("", check=check), replicas=3)
    await lab.kubelets.update(node, "v1.36.1")
    summary = f"no instance of {name} is a master"
    lab.alert("RedisMissingMaster", follows, summary, 10, namespace=namespace, statefulset=name)
    lab.alert_lacking(namespace, writer, seconds=12)
    yield
    by = lab.rng.choice(("alice", "bob", "carol"))
    await lab.culprit(by, "update", "Node", "", node, {"spec": {"unschedulable": True}})
    await lab.pause(UPDATE_SECONDS)
    lab.kubelets.crash(node)
    unguarded.add(node)  # nobody has told it to start its firewall at boot
    await lab.pause(BOOT_SECONDS)
    await lab.kubelets.update(node, "v1.36.2")
    await lab.kubelets.come_back(node, rebooted=True)
    await lab.culprit(by, "update", "Node", "", node, {"spec": {"unschedulable": None}})
    lab.start(scan())


@family(
    "Power is lost for a moment, and three machines boot anew; two of them do not find their disks any more, and only"
    " they may have the store of all sessions. Whoever starts asks it first: what comes up elsewhere does not.",
    culprit=False,
    joined=15,
)
async def power_lost(lab: Lab) -> AsyncIterator[None]:
    """As GitHub tells of 28 January 2016 (Postmortem-Report-Reviews 1)."""
    namespace, store = lab.rng.choice((("shop", "sessions"), ("media", "accounts"), ("payments", "limits")))
    site, api = f"{namespace}-site", f"{namespace}-graph"
    names = {pod["spec"]["nodeName"] for pod in pods(lab.world, *DNS)}
    nodes = sorted(spare(lab, 4), key=lambda node: node in names)[:3]  # one server of the DNS is elsewhere
    for node in nodes[:2]:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": "stores"}}})

    started, off = set[str](), lab.outside.cut_off

    def check(container: Container) -> Problem | None:
        """In the course of a start it asks for its flags; who has them goes on, and has no sessions."""
        if any(pod["spec"]["nodeName"] not in off for pod in backends(lab.world, namespace, store)):
            started.add(process_of(container.pod))
            return None
        refused = f"Error connecting to Redis on {store}:6379 (Errno::ECONNREFUSED)"
        return Problem("crash", refused) if process_of(container.pod) not in started else None

    await lab.app(namespace, store, kind="StatefulSet", replicas=2, nodeSelector={"pool": "stores"})
    await lab.until(lambda: len(backends(lab.world, namespace, store)) == 2)
    like: Json = {"replicas": 6, "tolerations": leave_early()}
    await lab.app(namespace, api, like=App("", check=check, upstreams=((namespace, store),)), **like)
    await lab.app(namespace, site, like=App("", check=check, upstreams=((namespace, store),)), **like)
    host = await publish(lab, namespace, site)
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 6, job="blackbox", instance=f"https://{host}")
    for node in nodes:
        lost = lambda node=node: is_lost(lab.world, node)  # noqa: E731
        lab.alert("KubeNodeNotReady", lost, f"node {node} has been unready", 8, node=node)

    async def boot() -> None:
        """That of the firmware which sees its disks."""
        await lab.pause(POWER_SECONDS)
        off.discard(nodes[2])
        await lab.kubelets.come_back(nodes[2], rebooted=True)

    yield
    for node in nodes:
        lab.kubelets.crash(node)
    off.update(nodes)
    lab.start(boot())


def process_of(pod: Json) -> str:
    """A container as it was started last."""
    told = pod.get("status", {}).get("containerStatuses", ())
    return f"{pod['metadata']['uid']} {sum(one['restartCount'] for one in told)}"
