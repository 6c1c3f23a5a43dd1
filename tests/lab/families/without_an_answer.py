"""An incident without a culprit among the changes: whoever says outside what is switched on gives no answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from math import inf

from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import image_of, uid_of
from tests.lab.network import backends
from tests.lab.scenario import family

CALLED, STANDS = 3, 30.0
"""Pods of the app that is called, and the requests a second that one of them stands."""
ASKED, OTHERS = 16.0, 12.0
"""Requests a second of the caller, and those that its callee gets from another one."""
ONE_BY_ONE = (8.0, 10.0)
"""Calls for each request, at least and at most, where all is asked for one by one as it was once."""


@dataclass
class _Switches:
    """What is switched on, which a process is told at its start and from then on by a stream that it keeps open.

    Without an answer at its start it goes by what its code says, which is of the time before.
    """

    lab: Lab
    image: str
    one_by_one: float
    is_up: bool = True
    started: dict[str, tuple[float, bool]] = field(default_factory=dict)
    """How old a process was as it was last looked at, and whether it was given an answer, by uid of its pod."""

    async def follow(self) -> None:
        while True:
            for one in self.lab.kubelets.running():
                if image_of(one.container.pod) == self.image:
                    self._look(one.container)
            await asyncio.sleep(0.5)

    def _look(self, container: Container) -> None:
        uid = uid_of(container.pod)
        age, was_told = self.started.get(uid, (inf, True))
        self.started[uid] = container.seconds, self.is_up if container.seconds < age else was_told

    def untold(self) -> float:
        """The share of the processes that go by what their code says; what that does shows a while later."""
        there = [one for one in self.lab.kubelets.running() if image_of(one.container.pod) == self.image]
        found = [self.started.get(uid_of(one.container.pod), (0.0, True)) for one in there]
        return sum(not told and age >= self.lab.kubelets.lag for age, told in found) / len(found) if found else 0.0

    def calls(self) -> float:
        """What the app that is called gets, a second."""
        share = self.untold()
        return OTHERS + ASKED * (1 - share + share * self.one_by_one)


@family(
    "What is switched on is told by a service outside, to each process as it starts. That one gives no answer for a"
    " while: what runs has what it was told. The processes of a harmless release go by what their code says, which is"
    " of old: they ask another app for each thing one by one, and that one does not stand it.",
    culprit=False,
    joined=57,
)
async def switches_untold(lab: Lab) -> AsyncIterator[None]:
    """As Inngest tells of July 2026 (inngest/website 1790)."""
    namespace, name, called, other = lab.rng.choice(
        (
            ("shop", "wish-lists", "stock-levels", "order-desk"),
            ("media", "watch-lists", "titles", "editor-desk"),
            ("search", "saved-results", "documents", "curator-desk"),
        )
    )
    host, by, minor = "stream.switches.example", lab.rng.choice(("ci", "argocd", "flux")), lab.rng.randrange(4, 30)
    old, new = f"3.{minor}.0", f"3.{minor}.1"
    switches = _Switches(lab, f"registry.corp.example/{namespace}/{name}", lab.rng.uniform(*ONE_BY_ONE))

    def shed(_: Container) -> float:
        """What is more than its pods stand it refuses."""
        stood = STANDS * max(1, len(backends(lab.world, namespace, called)))
        return max(0.0, 1 - stood / switches.calls())

    like = App("", asked=switches.calls, capacity=STANDS, failing=shed, fails_with=lambda _: "503")
    await lab.app(namespace, called, like=like, replicas=CALLED, tag="9.0.4")
    like = App("", upstreams=((namespace, called),), abroad=(host,), asked=lambda: ASKED, start_seconds=1.5)
    await lab.app(namespace, name, like=like, replicas=4, tag=old)
    like = App("", upstreams=((namespace, called),), asked=lambda: OTHERS)
    await lab.app(namespace, other, like=like, replicas=2, tag="1.31.2")
    await rolled(lab, namespace, name, old)
    await lab.until(lambda: len(backends(lab.world, namespace, called)) == CALLED)
    await lab.until(lambda: backends(lab.world, namespace, other))
    await publish(lab, namespace, name)
    lab.reserve(namespace, called, other)
    streams = {"namespace": namespace, "service": name}
    lab.measure("feature_flags_stream_connected", lambda: float(switches.is_up), **streams)
    untold = lambda: 4 * switches.untold()  # noqa: E731
    lab.measure("feature_flags_processes_on_defaults", untold, **streams)
    for one in (called, other):
        lab.alert_errors(namespace, one, 0.08)
    lab.alert_ingress_errors(namespace, namespace, 0.08)
    lab.start(switches.follow())
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(1, 4))
    switches.is_up = False
    await lab.pause(lab.rng.uniform(5, 12))
    await lab.roll(by, namespace, name, new)
