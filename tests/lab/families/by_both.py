"""Two controllers that write one field of the same objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from tests.lab import objects
from tests.lab.api import now, path
from tests.lab.apps import App, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, INGRESS_CONTROLLER
from tests.lab.programs import both, every, tell
from tests.lab.scenario import family

PUBLIC, WITHIN = "198.51.100.7", "10.80.4.20"
"""Where what serves the company's public names is reached by all, and a team's own one from its offices alone."""
PUBLISHED = "--publish-status-address="


@dataclass
class _Names:
    """Who writes at which address an Ingress is, and who makes public names of it."""

    lab: Lab
    records: dict[str, str] = field(default_factory=dict)
    probed: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)

    async def publish_status(self, process: Process) -> None:
        """A controller says of each Ingress of its class where that is: at its own address."""
        args = process.see().spec.get("args", ())
        own = next(one.removeprefix(PUBLISHED) for one in args if one.startswith(PUBLISHED))
        listed = await process.api.call("GET", path("Ingress"))
        for one in listed.body.get("items", ()):
            told = [{"ip": own}]
            is_other = one.get("status", {}).get("loadBalancer", {}).get("ingress") != told
            if one["spec"].get("ingressClassName") != INGRESS_CLASS or not is_other:
                continue
            where = path("Ingress", one["metadata"]["namespace"], one["metadata"]["name"])
            await process.api.call("PATCH", f"{where}/status", {"status": {"loadBalancer": {"ingress": told}}})
            about = {**one, "kind": "Ingress"}
            await tell(process, about, "Normal", "Sync", "Scheduled for sync", by="nginx-ingress-controller")

    async def make_records(self, process: Process) -> None:
        """What keeps the public names: each leads to where its Ingress is said to be."""
        listed = await process.api.call("GET", path("Ingress"))
        for one in listed.body.get("items", ()):
            for where in one.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
                self.records |= {rule["host"]: where["ip"] for rule in one["spec"]["rules"]}
        self.lab.outside.unreached = {host for host, address in self.records.items() if address == WITHIN}

    def fails(self, host: str, seconds: float = 20.0, share: float = 0.15) -> bool:
        """Of the probes from outside of the last seconds more than a share."""
        looks, at = self.probed.setdefault(host, []), now().timestamp()
        looks.append((at, host in self.lab.outside.unreached))
        while looks[0][0] < at - seconds:
            looks.pop(0)
        return sum(failed for _, failed in looks) > share * max(len(looks), 10)


@family(
    "A team installs a controller of Ingresses of its own by a chart, for its offices alone, and leaves it the class of"
    " the platform's. Both say of every Ingress that it is at their address, in turn: the public names of all teams"
    " lead to where nobody from outside gets, every other moment.",
    joined=81,
)
async def two_hands(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose Ingresses had another address at each look."""
    places = lab.rng.sample((("shop", "frontend"), ("payments", "checkout"), ("media", "uploads")), 2)
    by, other, home = lab.rng.choice(("alice", "bob", "ci")), lab.rng.choice(("argocd", "flux")), "search"
    own, names = lab.rng.choice(("edge-nginx", "office-ingress", "internal-nginx")), _Names(lab)
    writes = (
        ("networking.k8s.io", "ingresses,ingresses/status", "get,list,watch,update,patch"),
        ("", "events", "create"),
    )
    program = every(2.2, names.publish_status)
    await lab.apply(objects.cluster_role("ingress-status", *writes))
    await lab.apply(objects.binding("ingress-status", "ingress-status", *INGRESS_CONTROLLER))
    app = lab.apps["registry.corp.example/{}/{}".format(*INGRESS_CONTROLLER)]
    assert app.program
    app.program = both(app.program, program)
    await lab.edit("admin", "Deployment", *INGRESS_CONTROLLER, {"spec": {"replicas": 1}})
    await lab.roll("admin", *INGRESS_CONTROLLER, "1.14.1", args=[f"{PUBLISHED}{PUBLIC}"])
    await rolled(lab, *INGRESS_CONTROLLER, "1.14.1")
    records = every(2.7, names.make_records)
    reads = ("networking.k8s.io", "ingresses", "get,list,watch")
    await lab.controller("platform", "external-dns", records, reads, replicas=1, tag="0.19.0")
    await rolled(lab, "platform", "external-dns", "0.19.0")
    for place in places:
        host = await publish(lab, *place)
        fails, url = partial(names.fails, host), f"https://{host}"
        lab.alert("ProbeFailed", fails, f"{url} is not answered again and again", 6, job="blackbox", instance=url)
    await lab.until(lambda: len(names.records) == len(places))
    image = f"registry.corp.example/{home}/{own}"
    lab.apps[image] = App(image, program=program, serves=False)
    await lab.until(lab.is_well)
    yield
    await lab.roll(other, home, "indexer", "1.39.2")
    await lab.pause(lab.rng.uniform(5, 10))
    await lab.apply(objects.account(home, own), by=by)
    await lab.apply(objects.cluster_role(f"{home}-{own}", *writes), by=by)
    bound = objects.binding(f"{home}-{own}", f"{home}-{own}", home, own)
    why = "it lets the second controller write, and came with it"
    await lab.also(why, by, "create", "ClusterRoleBinding", "", f"{home}-{own}", bound)
    second = objects.deployment(home, own, f"{image}:1.13.3", replicas=1, account=own)
    container = second["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["/nginx-ingress-controller", f"--ingress-class={INGRESS_CLASS}", f"{PUBLISHED}{WITHIN}"]
    await lab.culprit(by, "create", "Deployment", home, own, second)
