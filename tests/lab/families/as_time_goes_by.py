"""What nobody changed: an upload as there was none before, and a year that is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from tests.lab import objects
from tests.lab.alerts import pods, restarts
from tests.lab.api import Json, now
from tests.lab.apps import App, Container, Problem
from tests.lab.families.by_annotation import rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.scenario import family

MIB = 2.0**20
USUAL_MIB, LIMIT_MIB = 190.0, 512
READS_SECONDS = 5.0
"""Until as much of the file is read as the container's memory takes."""


@dataclass
class _Upload:
    """A file that is read into memory as a whole; whoever sends it tries again, and comes to another pod."""

    lab: Lab
    namespace: str
    name: str
    mib: float
    reader: str = ""
    """The uid of the pod that reads it now."""
    since: float = 0.0

    async def go_on(self) -> None:
        await self.lab.pause(self.lab.rng.uniform(3, 9))
        while True:
            if ready := [one for one in pods(self.lab.world, self.namespace, self.name) if is_ready(one)]:
                before = restarts(self.lab.world, self.namespace, self.name)
                self.reader = str(self.lab.kubelets.rng.choice(ready)["metadata"]["uid"])
                self.since = now().timestamp()
                await self.lab.until(lambda: restarts(self.lab.world, self.namespace, self.name) > before)  # noqa: B023
                self.reader = ""
            await self.lab.pause(self.lab.kubelets.rng.uniform(3, 6))

    def read(self, uid: str) -> float:
        """The share of what ends it that a pod has read."""
        return min(1.0, (now().timestamp() - self.since) / READS_SECONDS) if uid == self.reader else 0.0

    def check(self, container: Container) -> Problem | None:
        is_over = self.read(str(container.pod["metadata"]["uid"])) >= 1
        return Problem("oom", f"reads {self.mib:.0f}Mi, may have {LIMIT_MIB}Mi", at_once=True) if is_over else None

    def bytes_of(self, name: str) -> float | None:
        """What a pod has in memory; None where it is gone."""
        pod = self.lab.world["Pod"].get((self.namespace, name))
        if pod is None:
            return None
        grown = (LIMIT_MIB - USUAL_MIB) * self.read(str(pod["metadata"]["uid"]))
        return (USUAL_MIB * self.lab.kubelets.rng.uniform(0.95, 1.05) + grown) * MIB


@family(
    "No culprit. A customer uploads an export many times as large as all before it. The pod that gets it reads it into"
    " its memory and is killed for that; the customer's program tries again, and the next pod gets it.",
    culprit=False,
    joined=90,
)
async def one_large_export(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose pods fell one after the other, for one and the same request."""
    namespace, name, front = lab.rng.choice(
        (
            ("shop", "catalog-import", "merchant-page"),
            ("payments", "statement-import", "statement-page"),
            ("media", "subtitle-import", "studio-page"),
            ("search", "synonym-import", "tuning-page"),
        )
    )
    minor = lab.rng.randrange(2, 30)
    upload = _Upload(lab, namespace, name, lab.rng.uniform(900, 3000))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", BATCH="500"))
    like = App("", asked=lambda: 14.0, check=upload.check)
    await lab.app(namespace, name, like=like, replicas=3, tag=f"1.{minor}.0", config=name, memory=f"{LIMIT_MIB}Mi")
    await rolled(lab, namespace, name, f"1.{minor}.0")
    await lab.roll("ci", namespace, name, f"1.{minor}.1")
    await rolled(lab, namespace, name, f"1.{minor}.1")
    await set_before(lab, namespace, front, name)
    for pod in pods(lab.world, namespace, name):
        one = pod["metadata"]["name"]
        told = {"namespace": namespace, "service": "kubelet", "pod": one, "container": name}
        lab.measure("container_memory_working_set_bytes", partial(upload.bytes_of, one), **told)
    size = lambda: (upload.mib if upload.reader else upload.lab.kubelets.rng.uniform(2, 30)) * MIB  # noqa: E731
    lab.measure("http_request_size_bytes_max", size, namespace=namespace, service=name)
    many = lambda: restarts(lab.world, namespace, name) >= 2  # noqa: E731
    summary = f"containers of {namespace}/{name} have been killed for their memory"
    lab.alert("KubernetesContainerOomKiller", many, summary, 3, namespace=namespace, container=name)
    lab.alert_errors(namespace, name, 0.15)
    lab.alert_ingress_errors(namespace, namespace, 0.15)
    await lab.until(lab.is_well)
    yield
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "400"}})
    await lab.pause(lab.rng.uniform(5, 10))
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(2, 6))
    note: Json = {"metadata": {"annotations": {"corp.example/on-call": f"{namespace}-team"}}}
    await lab.edit(lab.rng.choice(("alice", "argocd")), "Deployment", namespace, name, note)
    lab.start(upload.go_on())


@family(
    "No culprit. The key that an app has for a provider's API, or the licence of a library that it is built with, was"
    " given for a year, and the year is over: whatever needs it fails from one minute to the next.",
    culprit=False,
    joined=90,
)
async def key_for_a_year(lab: Lab) -> AsyncIterator[None]:
    """As those tell who found a mail from March, to somebody who had left."""
    namespace, name, front, host = lab.rng.choice(
        (
            ("shop", "parcel-labels", "label-page", "api.parcels.example"),
            ("payments", "credit-checks", "credit-page", "api.bureau.example"),
            ("media", "pdf-export", "export-page", ""),
            ("search", "spell-check", "spell-page", "api.language-tools.example"),
        )
    )
    share, asked, minor = lab.rng.uniform(0.25, 0.9), 21.0, lab.rng.randrange(2, 30)
    began: list[float] = []

    def calls(while_over: bool) -> float:
        """Of the provider, a second, that are answered as they are once the year is over, or before."""
        return asked * share if bool(began) is while_over else 0.0

    settings = {"LOG_LEVEL": "info", "BATCH": "10"}
    await lab.apply(objects.config_map(namespace, name, **settings))
    secret = {"metadata": {"namespace": namespace, "name": f"{name}-key"}, "stringData": {"key": "k-4711"}}
    await lab.apply({"kind": "Secret", **secret})
    like = App(
        "",
        abroad=(host,) if host else (),
        asked=lambda: asked,
        failing=lambda _: share if began else 0.0,
        fails_with=lambda _: "502" if host else "500",
    )
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{minor}.0", config=name, secret=f"{name}-key")
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await set_before(lab, namespace, front, name)
    told = {"namespace": namespace, "service": name}
    if host:
        for status, while_over in (("200", False), ("403", True)):
            counted = lab.adding_up(partial(calls, while_over))
            lab.measure("http_client_requests_total", counted, "counter", **told, client_name=host, status=status)
    else:
        lab.measure("pdf_license_valid", lambda: 0.0 if began else 1.0, **told)
    for one in (name, front):
        lab.alert_errors(namespace, one)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def goes_by() -> None:
        await lab.pause(lab.rng.uniform(3, 10))
        began.append(now().timestamp())

    yield
    await change_page(lab, namespace, front)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 12))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, {"data": {"BATCH": "25"}})
    lab.start(goes_by())
