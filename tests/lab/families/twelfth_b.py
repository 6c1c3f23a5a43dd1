"""What was told of members of a cluster: when all of them stop for one that joins, and who of them is the first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.alerts import pods
from tests.lab.api import now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.network import unserved
from tests.lab.scenario import family

JOIN_SECONDS = 14.0
"""Until what a member holds has been looked through, and the whole is called healthy again."""
RECOVERY_SECONDS = 6.0
"""Until whoever watches over replication has a successor for a primary that is gone."""


@family(
    "A release of a content server asks for the health of its cluster, and stops its applications while that is red: it"
    " is so whenever a member goes or comes, and now all of them answer nothing meanwhile.",
    joined=14,
)
async def cluster_health(lab: Lab) -> AsyncIterator[None]:
    """As Enonic XP tells of its health check, which it took out again (2018)."""
    namespace, name = lab.rng.choice((("media", "cms"), ("shop", "pages"), ("search", "portal")))
    version, asks = "6.14.3", "6.15.0"
    seen: dict[str, datetime] = {}

    def check(container: Container) -> Problem | None:
        """A member that joins waits for itself too; the version of old never asked."""
        there = [pod for pod in pods(lab.world, namespace, name) if pod.get("status", {}).get("phase") == "Running"]
        joined = {seen.setdefault(pod["metadata"]["uid"], now()) for pod in there}
        going = len(there) < 3 or any("deletionTimestamp" in pod["metadata"] for pod in there)
        is_red = going or (now() - max(joined)).total_seconds() < JOIN_SECONDS
        if container.tag != asks or not is_red:
            return None
        return Problem("unready", "probe failed: HTTP probe failed with statuscode: 503")

    await lab.app(namespace, name, like=App("", check=check), tag=version, replicas=3, kind="StatefulSet")
    host = await publish(lab, namespace, name)
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 3, job="blackbox", instance=f"https://{host}")
    yield
    template = lab.world["StatefulSet"][namespace, name]["spec"]["template"]["spec"]
    one = {**template["containers"][0], "image": f"registry.corp.example/{namespace}/{name}:{asks}"}
    body = {"spec": {"template": {"spec": {"containers": [one]}}}}
    await lab.culprit(lab.rng.choice(("ci", "argocd", "alice")), "update", "StatefulSet", namespace, name, body)
