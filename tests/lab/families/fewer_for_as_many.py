"""Fewer for as many: an app that has the pods of a quiet hour, and doors that are closed while most people come in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.api import Json, now, stamp
from tests.lab.families.between import publish
from tests.lab.families.busy_hours import sized
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready, uid_of
from tests.lab.network import INGRESS_CONTROLLER
from tests.lab.scenario import family

# -- an app

EACH, QUIET, BUSY = 16.0, 22.0, 0.78
"""What a pod stands in a second, what comes in a quiet hour, and how much of what all pods stand comes at the peak."""
COMES_SECONDS = 45.0
"""From the quiet hour to the peak."""


@family(
    "An app has fewer pods than it had: somebody scales it down by hand while it is quiet, to save money or after a"
    " test, or a release comes with the number that its manifest has had since the spring. Then people come as on any"
    " day, and those that are left do not stand it.",
    joined=105,
)
async def fewer_than_it_was(lab: Lab) -> AsyncIterator[None]:
    """As those tell who had scaled down on a Sunday, and it was Monday."""
    namespace, name, front, other = lab.rng.choice(
        (
            ("shop", "basket-api", "basket-page", "basket-mails"),
            ("payments", "card-check", "card-page", "card-report"),
            ("media", "stream-keys", "stream-page", "stream-stats"),
            ("search", "autocomplete", "search-page", "click-feed"),
        )
    )
    minor, replicas, few = lab.rng.randrange(2, 40), lab.rng.choice((5, 6)), lab.rng.choice((2, 2, 3))
    by_hand, busy, comes = lab.rng.random() < 0.5, [QUIET], lab.rng.uniform(2, 9)
    like = sized(lab, lambda: busy[0], EACH)
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", CACHE_SECONDS="30"))
    await lab.app(namespace, name, like=like, replicas=replicas, tag=f"2.{minor}.0", config=name)
    await lab.apply(objects.config_map(namespace, other, LOG_LEVEL="info", EVERY="60s"))
    await lab.app(namespace, other, replicas=2, tag="1.8.2", config=other)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await rolled(lab, namespace, other, "1.8.2")
    await set_before(lab, namespace, front, name)
    for one in (name, front):
        lab.alert_errors(namespace, one)
        lab.alert_slow(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def day() -> None:
        """People come, as on any day."""
        await lab.pause(comes)
        most = BUSY * EACH * replicas
        while busy[0] < most:
            busy[0] = min(most, busy[0] + (most - QUIET) / COMES_SECONDS * lab.kubelets.rng.uniform(0.5, 1.5))
            await asyncio.sleep(1)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, other, "1.8.3")
        await lab.pause(lab.rng.uniform(8, 16))
        await change_page(lab, namespace, front)

    yield
    lab.start(day())
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, other, {"data": {"EVERY": "45s"}})
    await lab.pause(lab.rng.uniform(4, 8))
    cached = {"data": {"CACHE_SECONDS": lab.rng.choice(("20", "45"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, cached)
    await lab.pause(lab.rng.uniform(2, 6))
    if by_hand:
        await lab.culprit(lab.rng.choice(TEAMS), "update", "Deployment", namespace, name, {"spec": {"replicas": few}})
    else:
        [there] = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"]
        newer = {**there, "image": f"{there['image'].rsplit(':', 1)[0]}:2.{minor}.1"}
        body: Json = {"spec": {"replicas": few, "template": {"spec": {"containers": [newer]}}}}
        await lab.culprit(lab.rng.choice(("ci", "argocd", "flux")), "update", "Deployment", namespace, name, body)
    lab.start(afterwards())


# -- the doors

STEP, PODS = 0.5, 4
HELD, TAKEN = 2500.0, 42.0
"""How many connections one of the controller's pods holds at most, and how many new ones it takes in a second."""


@dataclass
class _Doors:
    """The connections of all who are there, each with a pod of the Ingresses' controller."""

    lab: Lab
    are_there: float
    held: dict[str, float] = field(default_factory=dict)
    waiting: float = 0.0
    """Of those whose pod is gone: they come again, as fast as they are taken in."""
    taken: float = 0.0
    """New ones in the last step."""

    def open_now(self) -> None:
        """All of them are in, as they have come over the day."""
        there = self._there()
        self.held = dict.fromkeys(there, self.are_there / len(there))

    def _there(self) -> list[str]:
        found = pods(self.lab.world, *INGRESS_CONTROLLER)
        return [uid_of(one) for one in found if is_ready(one) and "deletionTimestamp" not in one["metadata"]]

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(STEP)
            there = self._there()
            for uid in self.held.keys() - set(there):
                self.waiting += self.held.pop(uid)
            self.taken = 0.0
            for uid in there:
                held = self.held.setdefault(uid, 0.0)
                comes = min(self.waiting, TAKEN * STEP, max(0.0, HELD - held))
                self.held[uid] += comes
                self.waiting -= comes
                self.taken += comes

    def lost(self) -> float:
        """Of what is asked, the share of those who have no connection."""
        return 0.95 * self.waiting / self.are_there


@family(
    "The controller of all Ingresses is rolled out anew in the busiest hour, for a patch, a limit or a restart, or has"
    " fewer pods from now on, as it had little to do at night. Each pod that ends cuts the connections of all who are"
    " with it: they come again at once, more of them than those that are left take in.",
    joined=105,
)
async def cut_at_the_busy_hour(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose upgrade of a proxy was tried at night a hundred times."""
    fronts = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
    homes = lab.rng.sample(sorted(fronts), 3)
    patch, doors = lab.rng.randrange(1, 6), _Doors(lab, lab.rng.uniform(6600, 7600))
    old, new = f"1.13.{patch}", f"1.13.{patch + 1}"
    how = lab.rng.choice(("patch", "limit", "restart", "fewer", "fewer"))
    await lab.edit("admin", "Deployment", *INGRESS_CONTROLLER, {"spec": {"replicas": PODS}})
    await lab.roll("admin", *INGRESS_CONTROLLER, old)
    await rolled(lab, *INGRESS_CONTROLLER, old)
    await lab.until(lambda: len(pods(lab.world, *INGRESS_CONTROLLER)) == PODS)
    for home in homes:
        await publish(lab, home, fronts[home])
        lab.alert_ingress_errors(home, home)
    doors.open_now()
    lab.outside.lost = doors.lost
    lab.start(doors.run())
    told = {"namespace": INGRESS_CONTROLLER[0], "service": INGRESS_CONTROLLER[1]}
    active = lambda: round(sum(doors.held.values()))  # noqa: E731
    lab.measure("nginx_ingress_controller_nginx_process_connections", active, **told, state="active")
    accepted = lab.adding_up(lambda: 6.0 + doors.taken / STEP)
    series = "nginx_ingress_controller_nginx_process_connections_total"
    lab.measure(series, accepted, "counter", **told, state="accepted")
    await lab.until(lab.is_well)

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(3, 7))
        body = {"data": {"TIMEOUT_MS": lab.rng.choice(("600", "1200"))}}
        await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", homes[1], fronts[homes[1]], body)

    async def strike() -> None:
        by = lab.rng.choice(("flux", "argocd", *TEAMS))
        if how == "fewer":
            await lab.culprit(by, "update", "Deployment", *INGRESS_CONTROLLER, {"spec": {"replicas": 2}})
        elif how == "restart":
            mark = {"kubectl.kubernetes.io/restartedAt": f"{stamp(now())[:19]}Z"}
            body = {"spec": {"template": {"metadata": {"annotations": mark}}}}
            await lab.culprit(lab.rng.choice(TEAMS), "update", "Deployment", *INGRESS_CONTROLLER, body)
        elif how == "limit":
            room = {"requests": {"cpu": "200m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
            await lab.roll(by, *INGRESS_CONTROLLER, old, culprit=True, resources=room)
        else:
            await lab.roll(lab.rng.choice(("flux", "argocd", "ci")), *INGRESS_CONTROLLER, new, culprit=True)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), homes[0], fronts[homes[0]], f"1.{lab.rng.randrange(40, 60)}.0")
    await lab.pause(lab.rng.uniform(5, 10))
    note = {"nginx.ingress.kubernetes.io/proxy-read-timeout": lab.rng.choice(("30", "90"))}
    await lab.edit(lab.rng.choice(TEAMS), "Ingress", homes[2], homes[2], {"metadata": {"annotations": note}})
    await lab.pause(lab.rng.uniform(4, 9))
    level = {"data": {"LOG_LEVEL": lab.rng.choice(("warn", "debug"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", homes[1], fronts[homes[1]], level)
    await lab.pause(lab.rng.uniform(2, 7))
    await strike()
    lab.start(afterwards())
