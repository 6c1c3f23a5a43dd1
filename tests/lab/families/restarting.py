"""What was told of starting again: proxies that do not come up any more."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import path
from tests.lab.apps import App, Container, Problem, Process
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every
from tests.lab.scenario import family

PROXIES, NEEDED, EVICT_SECONDS = 6, 3, 6.0
"""How many there are, how many of them stand all calls, and until the next one is evicted."""
STARTUP_SECONDS = 8.0
"""After which a startup probe has failed as often as it may."""
REFUSED = "probe failed: dial tcp :8080: connect: connection refused"


@family(
    "A flag switches a path on that an upgrade will need: proxies of a store connect to the new one as they start, and"
    " that times out. Those that run go on; one after another is evicted, as ever, and does not come up again.",
    joined=13,
)
async def startup_path(lab: Lab) -> AsyncIterator[None]:
    """As Inngest tells of 16 July 2026."""
    namespace, caller = lab.rng.choice((("payments", "checkpoints"), ("media", "sessions"), ("search", "runs")))
    proxy = "state-proxy"
    flagged: dict[str, bool] = {}  # by uid and restarts: what a container's flag was at its start

    def check(container: Container) -> Problem | None:
        """The flag is read once. Without an answer of the new store it never listens, and is killed for that."""
        told = container.pod["status"].get("containerStatuses", ())
        process = f"{container.pod['metadata']['uid']} {sum(one['restartCount'] for one in told)}"
        if not flagged.setdefault(process, container.config["UPGRADE_READINESS"] == "on"):
            return None
        return Problem("starting" if container.seconds < STARTUP_SECONDS else "killed", REFUSED, "Startup")

    def check_caller(_: Container) -> Problem | None:
        """A few proxies do not stand the calls of all."""
        if len(backends(lab.world, namespace, proxy)) >= NEEDED:
            return None
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({proxy}: i/o timeout)")

    async def evict(process: Process) -> None:
        """As a descheduler that evens nodes out: the oldest goes."""
        where = path("Pod", namespace)
        listed = await process.api.call("GET", f"{where}?labelSelector=app.kubernetes.io/name={proxy}")
        for pod in sorted(listed.body.get("items", []), key=lambda one: str(one["metadata"]["creationTimestamp"]))[:1]:
            name = pod["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
            await process.api.call("POST", f"{where}/{name}/eviction", body)

    await lab.apply(objects.config_map(namespace, proxy, UPGRADE_READINESS="off", POOL_SIZE="40"))
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 8}
    await lab.app(namespace, proxy, like=App("", check=check), replicas=PROXIES, config=proxy, startup=probe)
    await lab.app(namespace, caller, like=App("", check=check_caller), replicas=3)
    await lab.until(lambda: len(backends(lab.world, namespace, proxy)) == PROXIES)
    rules = (("", "pods", "list"), ("", "pods/eviction", "create"))
    await lab.controller("kube-system", "descheduler", every(EVICT_SECONDS, evict), *rules, replicas=1)
    lab.alert_lacking(namespace, caller)
    yield
    by = lab.rng.choice(("alice", "ci", "flux"))
    await lab.culprit(by, "update", "ConfigMap", namespace, proxy, {"data": {"UPGRADE_READINESS": "on"}})
