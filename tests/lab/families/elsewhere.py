"""Incidents without a culprit among the changes: a switch, a message and a resolver that are outside of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from tests.lab.alerts import restarts
from tests.lab.api import now
from tests.lab.apps import App, Container, Problem
from tests.lab.lab import Lab
from tests.lab.scenario import family


@family(
    "Somebody switches a feature on in the service that keeps such switches, where no cluster records it: the app keeps"
    " more and more in memory and is killed for it.",
    culprit=False,
    joined=5,
)
async def feature_flag(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("shop", "basket"), ("search", "personal"), ("media", "feed")))
    on_since: list[datetime] = []

    def check(container: Container) -> Problem | None:
        """What it keeps, it keeps since it was started or since the switch."""
        if not on_since:
            return None
        seconds = min(container.seconds, (now() - on_since[0]).total_seconds())
        needed = 110 + 16 * seconds
        return Problem("oom", f"needs {needed:.0f}Mi, may have 256Mi") if needed > 256 else None

    await lab.app(namespace, name, like=App("", check=check), replicas=3)
    holds = lambda: restarts(lab.world, namespace, name) >= 4  # noqa: E731
    lab.alert("KubePodRestarting", holds, f"pods of {name} restart", 2, namespace=namespace, deployment=name)
    yield
    on_since.append(now())


@family(
    "A partner sends a message that no consumer can read: whoever gets it crashes, and it is given to the next.",
    culprit=False,
    joined=5,
)
async def poison_message(lab: Lab) -> AsyncIterator[None]:
    namespace, name = lab.rng.choice((("payments", "settlements"), ("media", "ingest"), ("shop", "orders")))
    sent: list[datetime] = []
    holder = [("", -1)]

    def process(pod: str) -> tuple[str, int]:
        """A pod's name, and how often it was restarted."""
        told = lab.world["Pod"].get((namespace, pod), {}).get("status", {}).get("containerStatuses", ())
        return pod, sum(one["restartCount"] for one in told)

    def check(container: Container) -> Problem | None:
        """Its queue gives the message to whoever asks, once the process that had it is no more."""
        me = process(container.pod["metadata"]["name"])
        if sent and holder[0] != process(holder[0][0]):
            holder[0] = me
        return Problem("crash", "panic: message 7f3a: invalid UTF-8 at byte 118") if sent and holder[0] == me else None

    await lab.app(namespace, name, like=App("", check=check), replicas=3)
    lab.alert_lacking(namespace, name)
    yield
    sent.append(now())


@family(
    "The resolver that the cluster's DNS asks for names outside of it is down: whoever calls somebody out there fails,"
    " and names of Services are resolved as ever.",
    culprit=False,
    joined=5,
)
async def resolver_down(lab: Lab) -> AsyncIterator[None]:
    callers = (
        ("payments", "card-gateway", "acquirer.example"),
        ("shop", "mailer", "smtp.mail.example"),
        ("media", "purge", "api.cdn.example"),
    )
    for namespace, name, host in callers:
        await lab.app(namespace, name, like=App("", abroad=(host,)))
        lab.alert_lacking(namespace, name)
    yield
    lab.outside.resolver_up = False
