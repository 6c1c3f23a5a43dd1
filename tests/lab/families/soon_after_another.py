"""Several changes of one program, or of two that are beside each other, before the API server is asked for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count

from tests.lab import objects
from tests.lab.api import now, path, stamp
from tests.lab.apps import Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, getting, lagging
from tests.lab.scenario import family

GROUP, HOME = "platform.corp.example", "platform"


def _alert_asked(lab: Lab, limit: float) -> None:
    """The API server is asked more often than it ever is."""
    summary = f"the API server has been asked more than {limit:g} times a second for a while"
    lab.alert("KubeAPIServerRequestsHigh", lab.rate(lab.requests, limit, seconds=6), summary, 6, job="apiserver")


def _minutes(told: str) -> float:
    """A duration as Go writes it, of minutes or seconds; a second stands for a minute."""
    return float(told[:-1]) / (60 if told.endswith("s") else 1)


@family(
    "A team rolls out a new version of its operator, which does what the one before did, and a moment later edits its"
    " ConfigMap: everything is looked at again each 30 seconds, where 30 minutes was meant. It writes each object's"
    " status each time, and the API server gets many times the requests. The pods of the new version asked as"
    " seldom as the old ones, until the ConfigMap was edited.",
    joined=84,
)
async def placement_desk(lab: Lab) -> AsyncIterator[None]:
    """As those tell who have written s for m in a resync period."""
    by, other = lab.rng.choice(("alice", "bob", "carol")), lab.rng.choice(("ci", "argocd"))
    name, minor = lab.rng.choice(("placement-operator", "topic-operator", "bucket-operator")), lab.rng.randrange(3, 20)
    kind = await lab.custom("Placement", GROUP, ANY)

    async def look(process: Process) -> None:
        """All of them, each time the period is over; it is read anew each time."""
        listed = await process.api.call("GET", kind.path())
        for one in listed.body.get("items", ()):
            where = kind.path(one["metadata"]["namespace"], one["metadata"]["name"])
            await process.api.call("PATCH", where, {"status": {"phase": "Ready", "observedAt": stamp(now())}})

    async def run(process: Process) -> None:
        looked, told, since = 0.0, process.config["RESYNC"], 0.0
        while True:
            at = now().timestamp()
            if process.config["RESYNC"] != told:
                told, since = process.config["RESYNC"], at + process.lag
            if at >= since and at - looked > _minutes(told):
                looked = at
                await look(process)
            await asyncio.sleep(0.25)

    await lab.served(kind)
    for number in range(16):
        meta = {"namespace": lab.rng.choice(("shop", "media", "search")), "name": f"placement-{number}"}
        await lab.apply({"kind": kind.name, "apiVersion": f"{GROUP}/v1", "metadata": meta, "spec": {"zones": 2}})
    await lab.apply(objects.config_map(HOME, name, RESYNC="20m", LOG_LEVEL="info"))
    rule = (GROUP, "placements", "get,list,watch,patch")
    await lab.controller(HOME, name, run, rule, replicas=1, tag=f"1.{minor}.0", config=name)
    await rolled(lab, HOME, name, f"1.{minor}.0")
    _alert_asked(lab, 13.0)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, "payments", "ledger", "1.33.0")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, HOME, name, f"1.{minor + 1}.0")
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.culprit(by, "update", "ConfigMap", HOME, name, {"data": {"RESYNC": "30s"}})


TENANTS, MARK = "tenants", "tenants.corp.example/kept"
LIMITS = f"{path('ConfigMap', TENANTS)}?labelSelector=tenant"


@family(
    "Two controllers of a team are rolled out within minutes. The new version of the first makes what it keeps for"
    " each tenant immutable; the second, in both of its versions, writes each tenant's use into the same ConfigMaps,"
    " is refused, and tries again at once and without end. Both ask the API for more than before, the first a little"
    " more often, the second many times as often, only because it is refused what the first has closed: the"
    " API server answers that the field is immutable, and by whom it was made so is in its log.",
    joined=84,
)
async def tenants_and_quotas(lab: Lab) -> AsyncIterator[None]:
    """As those tell who made ConfigMaps immutable to spare kubelets their watches."""
    by, other = lab.rng.choice(("ci", "argocd", "flux")), lab.rng.choice(("alice", "carol"))
    keeper, sync = lab.rng.choice((("tenant-keeper", "usage-sync"), ("tenant-limits", "quota-writer")))
    old, new = "3.1.0", "3.2.0"

    async def keep(process: Process) -> None:
        """Whatever is not as this version has it is put right."""
        if process.tag == new:
            await lagging(process)
        closed = process.tag == new
        listed = await process.api.call("GET", LIMITS)
        for one in listed.body.get("items", ()):
            name = one["metadata"]["name"]
            if MARK not in one["metadata"]["labels"] or closed > bool(one.get("immutable")):
                body = {"metadata": {"labels": {MARK: "yes"}}, **({"immutable": True} if closed else {})}
                await process.api.call("PATCH", path("ConfigMap", TENANTS, name), body)

    async def write(process: Process) -> None:
        """The use of each tenant; whoever was refused comes again after a moment."""
        listed = await process.api.call("GET", LIMITS)
        left = [one["metadata"]["name"] for one in listed.body.get("items", ()) if MARK in one["metadata"]["labels"]]
        while left:
            name = left.pop(0)
            data = {"data": {"used": str(process.rng.randrange(10, 90))}}
            done = await process.api.call("PATCH", path("ConfigMap", TENANTS, name), data)
            if not done.ok:
                left.append(name)
                await asyncio.sleep(0.03)

    await lab.namespace(TENANTS)
    for number in range(12):
        made = objects.config_map(TENANTS, f"limits-{number}", cpu="8", used="10")
        made["metadata"]["labels"] = {"tenant": f"t{number}"}
        await lab.apply(made)
    pace = lambda process: 2.0 if process.tag == new else 4.0  # noqa: E731
    rule = ("", "configmaps", "get,list,watch,patch")
    await lab.controller(HOME, keeper, every(pace, keep), rule, replicas=1, tag=old)
    await lab.controller(HOME, sync, every(7.0, write), rule, replicas=1, tag="1.9.0")
    await rolled(lab, HOME, keeper, old)
    await rolled(lab, HOME, sync, "1.9.0")
    _alert_asked(lab, 13.0)
    await lab.until(lab.is_well)
    yield
    data = {"TIMEOUT_MS": str(lab.rng.randrange(400, 1200))}
    await lab.edit(other, "ConfigMap", "search", "query", {"data": data})
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, HOME, keeper, new, culprit=True)
    await lab.pause(lab.rng.uniform(1, 4))
    await lab.roll(by, HOME, sync, "1.10.0")


@family(
    "Two collectors of a team are changed within minutes. Of the one a new version is rolled out, each pod of which"
    " asks for events twice as often: that is a handful of requests. The other one is given six times the pods, as its"
    " graphs have gaps; each of them asks for everything, as each did before, and the API server gets many times the"
    " requests. Each pod of both can be counted by its name in the log.",
    joined=84,
)
async def two_collectors(lab: Lab) -> AsyncIterator[None]:
    """As those tell who scaled what shares no work among its pods."""
    by, other, home = lab.rng.choice(("alice", "bob", "argocd")), lab.rng.choice(("ci", "flux")), "monitoring"
    many, busier = lab.rng.choice((("endpoint-exporter", "event-exporter"), ("route-collector", "event-collector")))
    pace = lambda process: 0.75 if process.tag == "2.5.0" else 1.5  # noqa: E731
    events, slices = getting(f"{path('Event')}?limit=40"), getting(path("EndpointSlice", "shop"))

    async def collect(process: Process) -> None:
        await lagging(process)
        await every(0.6, slices)(process)

    for name, program, tag in ((many, collect, "0.14.2"), (busier, every(pace, events), "2.4.0")):
        rules = (("", "events", "get,list,watch"), ("discovery.k8s.io", "endpointslices", "get,list,watch"))
        await lab.controller(home, name, program, *rules, replicas=2, tag=tag)
        await rolled(lab, home, name, tag)
    _alert_asked(lab, 16.0)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, "media", "uploads", "1.36.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(by, home, busier, "2.5.0")
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.culprit(by, "update", "Deployment", home, many, {"spec": {"replicas": 12}})


STEPS = 4


@family(
    "No culprit. An operator, which sets up what each participant of a course gets, is rolled out twice within"
    " minutes, the second time for a word in its log. Then a course begins, and all sign up at once: for each of them"
    " it asks the API as often as both versions and the one before have always done, and there are many of them.",
    culprit=False,
    joined=84,
)
async def workshop_day(lab: Lab) -> AsyncIterator[None]:
    """As everybody has it who gives each user something of the cluster."""
    by, other = lab.rng.choice(("ci", "argocd", "bob")), lab.rng.choice(("alice", "flux"))
    portal, name, home = "course-desk", lab.rng.choice(("workspace-operator", "sandbox-operator")), "rooms"
    kind = await lab.custom("Workspace", GROUP, ANY)
    await lab.served(kind)
    rates, numbers = [0.25], count(lab.rng.randrange(100, 900))

    async def sign_up(process: Process) -> None:
        """Somebody does, at the portal."""
        meta, spec = {"name": f"seat-{next(numbers)}"}, {"owner": f"u{process.rng.randrange(9999)}", "size": "small"}
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec}
        await process.api.call("POST", kind.path(home), body)

    async def set_up(process: Process) -> None:
        """For each that is not ready, one thing after the other."""
        listed = await process.api.call("GET", kind.path(home))
        for one in listed.body.get("items", ()):
            if one.get("status", {}).get("phase") != "Ready":
                seat = one["metadata"]["name"]
                made = objects.config_map(home, seat, owner=one["spec"]["owner"])
                await process.api.call("POST", path("ConfigMap", home), made)
                for step in range(1, STEPS + 1):
                    phase = "Ready" if step == STEPS else f"Step{step}"
                    await process.api.call("PATCH", kind.path(home, seat), {"status": {"phase": phase}})

    await lab.namespace(home)
    seats = (GROUP, "workspaces", "get,list,watch,create,patch")
    maps = ("", "configmaps", "get,list,create")
    comes = every(lambda _: 1 / rates[0], sign_up)
    app = await lab.controller(home, portal, comes, seats, replicas=1, tag="4.4.1")
    app.serves, app.asked = True, lambda: 12.0 * rates[0]
    await lab.controller(home, name, every(2.0, set_up), seats, maps, replicas=1, tag="0.8.0")
    await rolled(lab, home, portal, "4.4.1")
    await rolled(lab, home, name, "0.8.0")
    await lab.until(lambda: backends(lab.world, home, portal))
    await publish(lab, home, portal)
    _alert_asked(lab, 14.0)
    await lab.until(lab.is_well)

    async def begin() -> None:
        await lab.pause(lab.rng.uniform(4, 9))
        rates[0] = lab.rng.uniform(5.0, 7.0)

    yield
    await lab.roll(other, "search", "indexer", "1.44.0")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.roll(by, home, name, "0.8.1")
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll(by, home, name, "0.8.2")
    lab.start(begin())
