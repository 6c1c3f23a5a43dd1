"""What is written again and again: Ingresses in another order, reports of all that there is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.lab import objects
from tests.lab.api import Json, Kind, now, path
from tests.lab.apps import Process
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CLASS, INGRESS_CONTROLLER, backends
from tests.lab.programs import both, every
from tests.lab.scenario import family

SNIPPET = "nginx.ingress.kubernetes.io/configuration-snippet"
HEADERS = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}
SORTED, UNSORTED = "0.8.4", "0.9.0"
DOORS = (("shop", "frontend"), ("shop", "catalog"), ("payments", "checkout"), ("search", "query"), ("media", "uploads"))
CLOSING = timedelta(seconds=12)
"""For how long workers of before a reload are there, with the connections that were kept open to them."""
EACH_LOSES, MOST_LOST = 0.035, 0.4
"""The share of requests that is sent by such a connection as it is closed: of one reload, and at most."""
KYVERNO, REPORTS, QUOTA_BYTES = "kyverno", "reports.kyverno.io", 10_000_000
INTERVAL, AT_ONCE, SUMMED_UP = "--backgroundScanInterval", 12, 3
"""How many reports are made side by side, and how many a second are summed up and deleted."""
SECONDS = {"1h": 60.0, "1m": 1.0}


@dataclass
class _Proxy:
    """The Ingresses' controller reloads once its configuration would read otherwise, and not for each Ingress."""

    lab: Lab
    read: dict[tuple[str, str], str] = field(default_factory=dict)
    reloads: list[datetime] = field(default_factory=list)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            told = {
                place: json.dumps([one["spec"], one["metadata"].get("annotations", {}).get(SNIPPET, "")])
                for place, one in self.lab.world["Ingress"].items()
            }
            if told != self.read:
                self.read = told
                self.reloads.append(now())

    def lost(self) -> float:
        """Nobody has the proxy lose what it is sent for the first time."""
        closing = sum(now() - one < CLOSING for one in self.reloads)
        return min(MOST_LOST, EACH_LOSES * closing)


async def _sync(process: Process) -> None:
    """Ingresses as its ConfigMap has them: its new version takes the headers as a map gives them."""
    pairs = list(HEADERS.items())
    for place in process.config["ROUTES"].split():
        namespace, name = place.split("/")
        if process.tag == UNSORTED:
            process.rng.shuffle(pairs)
        lines = "".join(f'more_set_headers "{key}: {value}";\n' for key, value in pairs)
        where = path("Ingress", namespace, name)
        found = await process.api.call("GET", where)
        if found.ok and found.body["metadata"].get("annotations", {}).get(SNIPPET) != lines:
            await process.api.call("PATCH", where, {"metadata": {"annotations": {SNIPPET: lines}}})


@family(
    "A new version of what keeps all Ingresses as declared writes the lines of one annotation in any order, and takes"
    " the order for a difference: the proxies reload at each of its rounds, and lose what is sent by connections that"
    " were kept open.",
    joined=34,
)
async def ingress_reloads(lab: Lab) -> AsyncIterator[None]:
    """As told of 502s that follow the churn of Ingresses (michal-drozd.com, reload storms)."""
    home, name = "platform", lab.rng.choice(("route-sync", "ingress-sync", "edge-config"))
    doors, proxy = lab.rng.sample(DOORS, 4), _Proxy(lab)
    for namespace, app in doors:
        backend = {"service": {"name": app, "port": {"number": 80}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        rules = [{"host": f"{app}.corp.example", "http": {"paths": paths}}]
        meta = {"namespace": namespace, "name": app}
        spec = {"ingressClassName": INGRESS_CLASS, "rules": rules}
        await lab.apply({"kind": "Ingress", "metadata": meta, "spec": spec})
        lab.reserve(namespace, app)
        lab.alert_ingress_errors(namespace, app, seconds=12)
    routes = " ".join("/".join(place) for place in doors)
    await lab.apply(objects.config_map(home, name, ROUTES=routes))
    rights = ("networking.k8s.io", "ingresses", "get,list,watch,patch")
    await lab.controller(home, name, every(2.5, _sync), rights, replicas=1, config=name, tag=SORTED)
    await lab.until(
        lambda: all(SNIPPET in one["metadata"].get("annotations", {}) for one in lab.world["Ingress"].values())
    )
    lab.outside.lost = proxy.lost
    lab.start(proxy.watch())
    reloaded = lambda: proxy.reloads[-1].timestamp() if proxy.reloads else None  # noqa: E731
    series = "nginx_ingress_controller_config_last_reload_successful_timestamp_seconds"
    lab.measure(series, reloaded, namespace=INGRESS_CONTROLLER[0], service="ingress-nginx-controller")
    await lab.until(lambda: backends(lab.world, *INGRESS_CONTROLLER))
    await lab.until(lambda: proxy.reloads and not proxy.lost())
    yield
    await lab.roll(lab.rng.choice(("argocd", "ci", "carol")), home, name, UNSORTED, culprit=True)


@dataclass
class _Reports:
    """What writes a report of each pod at each of its scans, and sums them up."""

    kind: Kind

    async def scan(self, process: Process) -> None:
        listed = await process.api.call("GET", path("Pod"))
        pods = listed.body["items"] if listed.ok else []
        for first in range(0, len(pods), AT_ONCE):
            await asyncio.gather(*(self._write(process, pod) for pod in pods[first : first + AT_ONCE]))
            await asyncio.sleep(0.25)

    async def _write(self, process: Process, pod: Json) -> None:
        """Each rule of each policy has its line."""
        told = {"source": "kyverno", "category": "Pod Security Standards (Baseline)", "scored": True, "result": "pass"}
        lines = [
            {**told, "policy": f"baseline-{number}", "rule": f"autogen-{number}", "message": f"rule {number} passed"}
            for number in range(45)
        ]
        meta = pod["metadata"]
        body = {
            "apiVersion": f"{REPORTS}/v1",
            "kind": self.kind.name,
            "metadata": {
                "generateName": f"{meta['name'][:40]}-",
                "labels": {"audit.kyverno.io/resource.uid": meta["uid"]},
            },
            "spec": {"owner": {"kind": "Pod", "name": meta["name"], "uid": meta["uid"]}, "results": lines},
        }
        await process.api.call("POST", self.kind.path(meta["namespace"]), body)

    async def sum_up(self, process: Process) -> None:
        listed = await process.api.call("GET", f"{self.kind.path()}?limit={SUMMED_UP}")
        for one in listed.body["items"] if listed.ok else ():
            await process.api.call("DELETE", self.kind.path(one["metadata"]["namespace"], one["metadata"]["name"]))


def _interval(process: Process) -> float:
    """As its arguments say; an hour where they do not."""
    told = next((one for one in process.see().spec.get("args", ()) if one.startswith(INTERVAL)), f"{INTERVAL}=1h")
    return SECONDS[told.partition("=")[2]]


@family(
    "Reports of what keeps to the policies are to be of the last minute and not of the last hour: each scan writes one"
    " for every pod, more than are summed up and deleted, until the store of the cluster has no room by its quota and"
    " takes nothing from anybody.",
    joined=34,
    store_flags=(f"--quota-backend-bytes={QUOTA_BYTES}",),
)
async def reports_kept(lab: Lab) -> AsyncIterator[None]:
    """As told of 181,000 reports of policies that brought a control plane down (k8s.co.il)."""
    name, by = "kyverno-reports-controller", lab.rng.choice(("carol", "flux", "ci"))
    reports = _Reports(await lab.custom("EphemeralReport", REPORTS, ANY))
    await lab.served(reports.kind)
    await lab.namespace(KYVERNO)
    rights = ("", "pods", "get,list,watch"), (REPORTS, reports.kind.plural, "get,list,create,delete")
    program = both(every(_interval, reports.scan), every(1, reports.sum_up))
    await lab.controller(KYVERNO, name, program, *rights, replicas=1, tag="1.13.2")
    await lab.until(lambda: (KYVERNO, name) in lab.world["Deployment"])
    await lab.roll("admin", KYVERNO, name, "1.13.2", args=["--v=2", f"{INTERVAL}=1h"])

    def failed() -> int:
        return sum(one.counts[500] for callers in lab.kubelets.counts.values() for one in callers)

    failing = lab.rate(failed, 0.5, seconds=6)
    lab.alert("KubeAPIErrorsHigh", failing, "the API server answers many requests with 5xx", job="apiserver")
    yield
    await lab.roll(by, KYVERNO, name, "1.13.2", culprit=True, args=["--v=2", f"{INTERVAL}=1m"])
