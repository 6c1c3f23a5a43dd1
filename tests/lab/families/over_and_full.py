"""What is over or full without anybody's doing: a partner's certificate, the store of the cluster."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Kind, now
from tests.lab.apps import App, Container, Process
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.programs import every
from tests.lab.scenario import family

CONNECTED_SECONDS = 14.0
"""For how long a client keeps a connection; nobody looks at the certificate of one that is there."""


@dataclass
class _Partner:
    """A partner outside, whose certificate is over at its hour."""

    lab: Lab
    over: list[float] = field(default_factory=list)

    def fails(self, _: Container) -> float:
        """The share of calls for which there is no connection of before."""
        passed = now().timestamp() - self.over[0] - self.lab.lag if self.over else 0.0
        return 0.97 * min(1.0, max(0.0, passed / CONNECTED_SECONDS))


@family(
    "No culprit. A partner has not renewed the certificate of the address that apps of two teams call. It is over at"
    " its hour: connections that are there go on until they end, and each new one is given up, as the certificate is"
    " not good any more.",
    culprit=False,
    joined=88,
)
async def partner_certificate_over(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of *certificate has expired or is not yet valid*, and of whom they had to call."""
    (home, name, front), (away, other, page) = lab.rng.sample(
        (
            ("shop", "parcel-booking", "parcel-page"),
            ("payments", "bank-transfers", "transfer-page"),
            ("media", "subtitle-orders", "subtitle-page"),
            ("search", "map-tiles", "map-page"),
        ),
        2,
    )
    host = lab.rng.choice(("api.northgate.example", "gateway.clearing.example", "edi.partnerhub.example"))
    minor, partner, share = lab.rng.randrange(2, 50), _Partner(lab), lab.rng.uniform(0.5, 0.9)
    for namespace, one, before in ((home, name, front), (away, other, page)):
        fails = lambda container: share * partner.fails(container)  # noqa: E731
        await lab.apply(objects.config_map(namespace, one, LOG_LEVEL="info", RETRIES="1"))
        like = App("", abroad=(host,), asked=lambda: 21.0, failing=fails, fails_with=lambda _: "502")
        await lab.app(namespace, one, like=like, replicas=3, tag=f"2.{minor}.0", config=one)
        await rolled(lab, namespace, one, f"2.{minor}.0")
        await set_before(lab, namespace, before, one)
        for code, is_well in (("200", True), ("tls_error", False)):

            def rate(is_well: bool = is_well) -> float:
                refused = partner.fails(None)  # type: ignore[arg-type]
                return 21 * share * (1 - refused if is_well else refused)

            told = {"namespace": namespace, "service": one, "host": host, "code": code}
            lab.measure("http_client_requests_total", lab.adding_up(rate), "counter", **told)
        lab.alert_errors(namespace, one, 0.1)
        lab.alert_ingress_errors(namespace, namespace, 0.1)
    await lab.until(lab.is_well)

    async def its_hour() -> None:
        await lab.pause(lab.rng.uniform(3, 9))
        partner.over.append(now().timestamp())
        await lab.pause(lab.rng.uniform(3, 7))
        await change_page(lab, away, page)

    yield
    await change_page(lab, away, page)
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.roll(lab.rng.choice(("ci", "argocd")), home, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", away, other, {"data": {"RETRIES": "2"}})
    lab.start(its_hour())


PIPELINES, RUNNER = "pipelines.corp.example", ("platform", "pipelines-controller")
STORE_BYTES, LEFT_BYTES, RUN_BYTES, FILLS_IN = 30_000_000, 8_000_000, 26_000, 88.0
"""What the store may have, what months have left of it, what a run writes, and the seconds until it is full."""
MOST_RUNS = 14
"""At once."""
SIZE = re.compile(r"^apiserver_storage_size_bytes\{[^}]*\} (\S+)", re.MULTILINE)
STEP = "step-{0}: pulling image\nstep-{0}: resolved 214 dependencies\nstep-{0}: compiled in 41s\nstep-{0}: done\n"


@dataclass
class _Runs:
    """Each run of a pipeline is an object, with what it said: nobody ever deletes one."""

    lab: Lab
    kind: Kind
    number: int
    first: tuple[float, float] = (0.0, 0.0)
    """Since when the store grows evenly, and how much it had then."""
    written: int = 0

    async def size(self) -> float:
        """Bytes of the store, as the API server tells Prometheus. Raises RefusedError."""
        told = await self.lab.who["admin"].must("GET", "/metrics")
        [size] = SIZE.findall(str(told.body["message"]))
        return float(size)

    async def run(self, process: Process) -> None:
        """What months have written, and then so many that the store grows evenly, whatever all others write."""
        size, at = await self.size(), now().timestamp()
        if not self.first[0] and size < STORE_BYTES - LEFT_BYTES:
            await asyncio.gather(*(self._write(process) for _ in range(2 * MOST_RUNS)))
            return
        if not self.first[0]:
            self.first = at, size
        began, least = self.first
        due = least + (STORE_BYTES - least) * (at - began) / FILLS_IN
        number = min(MOST_RUNS, max(1, math.ceil((due - size) / RUN_BYTES)))
        await asyncio.gather(*(self._write(process) for _ in range(number)))

    async def _write(self, process: Process) -> None:
        self.number = number = self.number + 1
        team, service = process.rng.choice((("shop", "cart"), ("payments", "ledger"), ("media", "uploads")))
        log = "".join(STEP.format(step) for step in range(RUN_BYTES // len(STEP)))
        spec = {"pipelineRef": {"name": f"{service}-build"}, "params": {"team": team, "revision": f"r{number}"}}
        meta = {"name": f"{service}-build-{number}"}
        body = {"apiVersion": f"{PIPELINES}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        body["status"] = {"phase": "Succeeded", "steps": log}
        done = await process.api.call("POST", self.kind.path("platform"), body)
        self.written += done.ok


@family(
    "No culprit. Each run of a pipeline leaves an object with all that it has said, and nobody has ever had them"
    " deleted. They have become more for months, as everything has been built a bit more often each week: the store of"
    " the cluster is full by its quota, and takes nothing from anybody.",
    culprit=False,
    joined=88,
    store_flags=(f"--quota-backend-bytes={STORE_BYTES}",),
)
async def runs_never_pruned(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of *database space exceeded*, and of thousands of PipelineRuns."""
    kind = await lab.custom("PipelineRun", PIPELINES, ANY)
    await lab.served(kind)
    runs = _Runs(lab, kind, lab.rng.randrange(21_000, 60_000))
    rights = ((PIPELINES, "pipelineruns", "get,list,watch,create,patch"),)
    minor = lab.rng.randrange(1, 9)
    await lab.controller(*RUNNER, every(1.0, runs.run), *rights, replicas=1, tag=f"1.{minor}.0")
    await rolled(lab, *RUNNER, f"1.{minor}.0")

    def failed() -> int:
        return sum(one.counts[500] for callers in lab.kubelets.counts.values() for one in callers)

    failing = lab.rate(failed, 0.5, seconds=6)
    lab.alert("KubeAPIErrorsHigh", failing, "the API server answers many requests with 5xx", job="apiserver")
    told = {"namespace": RUNNER[0], "service": RUNNER[1]}
    lab.measure("pipelineruns_written_total", lambda: runs.written, "counter", **told)
    await lab.until(lambda: runs.first[0])
    yield
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", "media", "uploads", {"data": {"TIMEOUT_MS": "900"}})
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll(lab.rng.choice(("ci", "argocd")), "search", "query", f"1.{minor + 20}.0")
