"""What apps need so as to run: time of a processor, a node with room, an image."""

from __future__ import annotations

from collections.abc import AsyncIterator
from zlib import crc32

from tests.lab import objects
from tests.lab.alerts import pending, restarts
from tests.lab.api import Json, now
from tests.lab.apps import LATE, App, Container, Problem, millicores
from tests.lab.company import APPS
from tests.lab.families.by_annotation import rolled
from tests.lab.families.moving import spare
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.families.still_more_stories import drain
from tests.lab.lab import Lab
from tests.lab.manifests import uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

BUSY_EVERY, BUSY_SECONDS, QUIET_SECONDS = 14.0, 6.0, 4.0
"""How often a process has much to do at once, and for how long; after its start it has nothing to do for a while."""
LIVENESS: Json = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 2, "timeoutSeconds": 1}


def _of_processors(requests: str, limits: str) -> Json:
    return {"requests": {"cpu": requests, "memory": "64Mi"}, "limits": {"cpu": limits, "memory": "256Mi"}}


@family(
    "So that fewer nodes do, what a team's apps ask for and may use of a processor is cut to what they use in the mean."
    " One of them has much to do at once every quarter of an hour: it stands still most of that time, does not answer"
    " its liveness probe within the second, and is killed.",
    joined=85,
)
async def processor_savings(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose graphs were of five minutes each."""
    namespace, name, front, *others = lab.rng.choice(
        (
            ("shop", "price-engine", "price-page", "opening-hours", "gift-notes"),
            ("payments", "statement-maker", "archive-page", "bank-names", "fee-tables"),
            ("media", "storyboards", "preview-page", "ratings", "credits-list"),
            ("search", "reranker", "best-matches", "stop-words", "filters"),
        )
    )
    by, needs = lab.rng.choice((*TEAMS, "argocd", "flux")), lab.rng.choice((700.0, 900.0, 1200.0))
    less = _of_processors(*lab.rng.choice((("50m", "200m"), ("100m", "250m"), ("80m", "300m"))))

    def lacks(container: Container) -> float:
        """How many times what it may it would use just now, less once."""
        turn = crc32(uid_of(container.pod).encode()) % BUSY_EVERY  # each has its own
        if (now().timestamp() + turn) % BUSY_EVERY > BUSY_SECONDS or container.seconds < QUIET_SECONDS + lab.lag:
            return 0.0
        limit = container.spec["resources"]["limits"].get("cpu")
        return max(0.0, needs / millicores(limit) - 1) if limit else 0.0

    def check(container: Container) -> Problem | None:
        return Problem("killed", LATE, at_once=True) if lacks(container) > 1 else None

    like = App("", check=check, asked=lambda: 20.0)
    await lab.app(namespace, name, like=like, replicas=3, tag="5.5.0", liveness=LIVENESS)
    for one in others:
        await lab.app(namespace, one, replicas=2, tag="2.0.4", liveness=LIVENESS)
    for one, tag in ((name, "5.5.0"), *((one, "2.0.4") for one in others)):
        await rolled(lab, namespace, one, tag)
        await lab.roll("admin", namespace, one, tag, resources=_of_processors("500m", "2"))
        await rolled(lab, namespace, one, tag)
    await set_before(lab, namespace, front, name)

    def periods(*, throttled: bool) -> float:
        there = [one.container for one in lab.kubelets.running() if one.app is like]
        return 10 * sum(min(0.9, 0.5 * lacks(one)) if throttled else 1.0 for one in there)

    told = {"namespace": namespace, "service": name, "container": name}
    lab.measure("container_cpu_cfs_periods_total", lab.adding_up(lambda: periods(throttled=False)), "counter", **told)
    shown = lab.adding_up(lambda: periods(throttled=True))
    lab.measure("container_cpu_cfs_throttled_periods_total", shown, "counter", **told)
    crashes = lambda: restarts(lab.world, namespace, name) > 2  # noqa: E731
    summary = f"containers of {namespace}/{name} are restarted again and again"
    lab.alert("KubePodCrashLooping", crashes, summary, 3, namespace=namespace, deployment=name)
    lab.alert_lacking(namespace, name, seconds=14)
    lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)
    yield

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(2, 6))
        await change_page(lab, namespace, front)

    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 8))
    for one in lab.rng.sample((name, *others), 3):
        await lab.roll(by, namespace, one, "5.5.0" if one == name else "2.0.4", resources=less, culprit=one == name)
        await lab.pause(lab.rng.uniform(1, 2))
    lab.start(afterwards())


MACHINES, EACH_CPU = 3, "3500m"
"""Of a pool; four pods that ask for so much find room on a machine of sixteen."""
KERNEL, PATCHED = "6.12.40", "6.12.58"
BOOT_SECONDS = 70.0
"""Until a machine is up again, which also gets a newer firmware."""


@family(
    "The machines of a pool are emptied one after the other for a patch of the kernel. With the first one all finds"
    " room on the other two; the second is emptied while the first is still not back, and half of the pods of an app"
    " have no node.",
    joined=85,
)
async def kernel_patch(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose window was short, and whose pods had no budget."""
    namespace, name, front = lab.rng.choice(
        (
            ("search", "vector-search", "similar-items"),
            ("media", "live-encoder", "live-page"),
            ("payments", "risk-score", "risk-page"),
            ("shop", "route-planner", "delivery-page"),
        )
    )
    by, machines, pool = lab.rng.choice(TEAMS), spare(lab, MACHINES), f"{namespace}-large"
    for node in machines:
        await lab.edit("admin", "Node", "", node, {"metadata": {"labels": {"pool": pool}}})
        await lab.kubelets.run_kernel(node, KERNEL)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", WORKERS="3"))
    selector: Json = {"pool": pool}
    like = App("", asked=lambda: 60.0)
    await lab.app(namespace, name, like=like, replicas=1, tag="3.6.0", config=name, nodeSelector=selector)
    await rolled(lab, namespace, name, "3.6.0")
    resources = {"requests": {"cpu": EACH_CPU, "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
    await lab.roll("admin", namespace, name, "3.6.1", resources=resources)
    await rolled(lab, namespace, name, "3.6.1")
    await lab.edit("admin", "Deployment", namespace, name, {"spec": {"replicas": 8}})
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 8)
    await set_before(lab, namespace, front, name)
    no_node = lambda: pending(lab.world, namespace)  # noqa: E731
    lab.alert("KubePodNotScheduled", no_node, f"a pod in {namespace} has no node", 15, namespace=namespace)
    lab.alert_lacking(namespace, name, seconds=18)
    await lab.until(lab.is_well)

    async def boot(node: str) -> None:
        """The machine goes down, and comes back patched; then pods may go there again."""
        await lab.pause(lab.rng.uniform(1, 3))
        lab.kubelets.crash(node)
        await lab.pause(BOOT_SECONDS)
        await lab.kubelets.come_back(node, rebooted=True)
        await lab.kubelets.run_kernel(node, PATCHED)
        await lab.edit(by, "Node", "", node, {"spec": {"unschedulable": None}})

    cordon = {"spec": {"unschedulable": True}}

    async def second() -> None:
        await drain(lab, by, machines[1])
        await boot(machines[1])

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(3, 6))
    why = "of the same hand and for the same patch: the room that is lacking is on this node, too"
    await lab.also(why, by, "update", "Node", "", machines[0], cordon)
    await drain(lab, by, machines[0])
    lab.start(boot(machines[0]))
    await lab.pause(lab.rng.uniform(5, 9))
    data = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice(("ci", "argocd", "flux")), "ConfigMap", namespace, name, data)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.culprit(by, "update", "Node", "", machines[1], cordon)
    lab.start(second())


AWAY = (
    "failed to do request: Head: dial tcp 10.0.9.4:443: i/o timeout",
    "unexpected status from HEAD request: 503 Service Unavailable",
    "unexpected status from GET request: 500 Internal Server Error",
)
"""As containerd says it of a registry that does not answer, or whose storage does not."""


@family(
    "No culprit. The company's registry, which is outside of the cluster, gives nothing out. What runs goes on; whoever"
    " needs an image that its node does not have waits for it: the new pods of each release of that hour, of any team.",
    culprit=False,
    joined=85,
)
async def registry_away(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it once in a while; each team takes it for its own release at first."""
    places = [(namespace, name) for namespace, names in APPS.items() for name in names]
    releases, why = lab.rng.sample(places, 3), lab.rng.choice(AWAY)

    def waits(namespace: str) -> bool:
        return any(
            one.get("state", {}).get("waiting", {}).get("reason") == "ImagePullBackOff"
            for (where, _), pod in lab.world["Pod"].items()
            if where == namespace
            for one in pod.get("status", {}).get("containerStatuses", ())
        )

    for namespace in APPS:
        summary = f"a container in {namespace} has been waiting for a while"
        holds = lambda namespace=namespace: waits(namespace)  # noqa: E731
        lab.alert("KubeContainerWaiting", holds, summary, 10, namespace=namespace)
    for namespace, name in releases:
        lab.alert_stuck(namespace, name)
        lab.reserve(namespace, name)
    await lab.until(lab.is_well)

    async def hour() -> None:
        """Nobody knows of it yet."""
        for namespace, name in releases[1:]:
            await lab.pause(lab.rng.uniform(3, 9))
            await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{lab.rng.randrange(2, 40)}.0")
            if lab.rng.random() < 0.5:
                await lab.pause(lab.rng.uniform(0.5, 2))
                data = {"data": {"TIMEOUT_MS": str(lab.rng.randrange(500, 1500))}}
                await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", namespace, name, data)

    yield
    await lab.roll("ci", *releases[0], "2.1.0")
    await rolled(lab, *releases[0], "2.1.0")
    await lab.pause(lab.rng.uniform(2, 6))
    lab.outside.broken["registry.corp.example"] = why
    lab.start(hour())
