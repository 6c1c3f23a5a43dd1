"""What grows until it does not fit where it is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count

from tests.lab.api import Json, Kind, now, stamp
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.programs import every, tell
from tests.lab.scenario import family

GROUP, CONTROLLER = "argoproj.io", "workflow-controller"
REQUEST_BYTES = 32 * 1024
"""What one request of the store may have, which is 1.5 MiB where nobody says: a large workflow is a small one here."""
STEPS_AT_ONCE, RUN_EVERY, KEPT = 24, 5.0, 3
"""How many steps of a workflow are through at each look, after which time the next is begun, what is kept of each."""
SMALL, USUAL, MOST = (18, 40), 56, 125
"""Branches of a usual merchant, and of the one that grows: each is a step."""


@dataclass
class _Workflows:
    """Statements of merchants, each made by a workflow that has a step for each branch and keeps all in its status."""

    kind: Kind
    namespace: str
    branches: dict[str, float]
    numbers: count[int] = field(default_factory=count)
    failed: int = 0
    ended: int = 0
    lately: dict[str, bool] = field(default_factory=dict)
    """Of each merchant whether the last statement was not made."""

    async def begin(self, process: Process) -> None:
        """The statement of the next merchant."""
        merchant = tuple(self.branches)[next(self.numbers) % len(self.branches)]
        meta = {
            "name": f"statement-{merchant}-{process.rng.getrandbits(24):06x}",
            "labels": {"merchant": merchant},
        }
        spec = {"entrypoint": "statement", "arguments": {"branches": int(self.branches[merchant])}}
        body = {"apiVersion": f"{GROUP}/v1", "kind": self.kind.name, "metadata": meta, "spec": spec}
        await process.api.call("POST", self.kind.path(self.namespace), body)

    async def go_on(self, process: Process) -> None:
        """As the controller: steps that are through are written into the status; what has ended is cleared away."""
        listed = (await process.api.call("GET", self.kind.path(self.namespace))).body.get("items", [])
        ended: dict[str, deque[Json]] = {}
        for one in sorted(listed, key=lambda one: str(one["metadata"]["creationTimestamp"])):
            if one.get("status", {}).get("phase", "Running") == "Running":
                await self._advance(process, one)
                continue
            old = ended.setdefault(one["metadata"]["labels"]["merchant"], deque())
            old.append(one)
            if len(old) > KEPT:
                gone = old.popleft()["metadata"]["name"]
                await process.api.call("DELETE", self.kind.path(self.namespace, gone))

    async def _advance(self, process: Process, one: Json) -> None:
        name, wanted = one["metadata"]["name"], one["spec"]["arguments"]["branches"]
        nodes: list[Json] = list(one.get("status", {}).get("nodes", []))
        through = range(len(nodes), min(len(nodes) + STEPS_AT_ONCE, wanted))
        nodes += [_step(name, number) for number in through]
        phase = "Succeeded" if len(nodes) == wanted else "Running"
        status: Json = {"phase": phase, "progress": f"{len(nodes)}/{wanted}", "nodes": nodes}
        where = self.kind.path(self.namespace, name)
        told = await process.api.call("PATCH", where, {"status": status})
        if told.ok and phase == "Succeeded":
            self._end(one, is_failed=False)
        elif told.status >= 400:
            message = str(told.body.get("message", ""))
            await process.api.call("PATCH", where, {"status": {"phase": "Error", "message": message}})
            about = {**one, "kind": self.kind.name}
            await tell(process, about, "Warning", "WorkflowFailed", message, by=CONTROLLER)
            self._end(one, is_failed=True)

    def _end(self, one: Json, *, is_failed: bool) -> None:
        self.lately[one["metadata"]["labels"]["merchant"]] = is_failed
        self.failed += is_failed
        self.ended += not is_failed

    def lacking(self, _: Container) -> float:
        """The share of requests for a statement that was not made: a merchant asks as often as it is large."""
        missing = sum(self.branches[one] for one, is_failed in self.lately.items() if is_failed)
        return 0.5 * missing / sum(self.branches.values())


def _step(workflow: str, number: int) -> Json:
    """What is kept of one that is through."""
    at = f"{stamp(now())[:19]}Z"
    return {
        "id": f"{workflow}-{number * 2654435761 % 2**32:010}",
        "displayName": f"branch({number}:{1000 + number})",
        "type": "Pod",
        "templateName": "branch-statement",
        "phase": "Succeeded",
        "boundaryID": workflow,
        "startedAt": at,
        "finishedAt": at,
        "inputs": {"parameters": [{"name": "branch", "value": f"{1000 + number}"}]},
        "outputs": {"exitCode": "0"},
    }


@family(
    "A workflow keeps the state of all its steps in its own object, and has a step for each branch of a merchant. One"
    " merchant has more and more of them: its object is larger than what the store takes in one request, and the"
    " workflow ends with that.",
    culprit=False,
    joined=45,
    store_flags=(f"--max-request-bytes={REQUEST_BYTES}",),
)
async def status_outgrown(lab: Lab) -> AsyncIterator[None]:
    """As users of Argo Workflows tell whose workflows had too many nodes for one object."""
    namespace, front = "payments", lab.rng.choice(("statement-page", "merchant-portal"))
    growing, *others = lab.rng.sample(("anders", "bellini", "cormoran", "dunlin", "egret"), 4)
    kind = await lab.custom("Workflow", GROUP, ANY)
    await lab.served(kind)
    branches = {one: float(lab.rng.randrange(*SMALL)) for one in others}
    work = _Workflows(kind, namespace, {growing: float(USUAL), **branches})
    own = (GROUP, kind.plural, "get,list,watch,create,patch,delete")
    events = ("", "events", "create")
    goes_on = every(1.5, work.go_on)
    archive = ((namespace, "statement-archive"),)
    await lab.app(namespace, archive[0][1], like=App("", serves=False), kind="StatefulSet", replicas=1, tag="15.13")
    rights = own, events
    await lab.controller(namespace, CONTROLLER, goes_on, *rights, upstreams=archive, replicas=1, tag="3.6.10")
    begins = every(RUN_EVERY / len(work.branches) * 2, work.begin)
    await lab.controller(namespace, "statement-scheduler", begins, own, replicas=1, tag="1.8.0")
    like = App("", upstreams=archive, failing=work.lacking)
    await lab.app(namespace, front, like=like, replicas=3, tag="4.4.0")
    await lab.until(lambda: len(backends(lab.world, namespace, front)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, front)
    labels = {"namespace": namespace, "service": CONTROLLER}
    lab.measure("workflows_failed_total", lambda: work.failed, "counter", **labels)
    lab.measure("workflows_succeeded_total", lambda: work.ended, "counter", **labels)
    fails = lab.rate(lambda: work.failed, 0.05, seconds=15)
    lab.alert("WorkflowsFailing", fails, f"workflows of {namespace} end with an error", 6, **labels)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await rolled(lab, namespace, CONTROLLER, "3.6.10")
    await lab.pause(8)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(2, 6))
    await lab.roll("ci", namespace, front, "4.4.1")
    while work.branches[growing] < MOST:
        work.branches[growing] += lab.rng.uniform(1.0, 4.0)
        await lab.pause(1)
