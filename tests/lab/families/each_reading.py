"""What is written of each thing that is told, where the one before wrote what had changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.lab.api import Json, Kind, now, stamp
from tests.lab.apps import Process
from tests.lab.families.collapses import LONG_TEMPLATE_BYTES, LOW_FACTOR, UNCACHED, cluster
from tests.lab.families.databases import ANY
from tests.lab.lab import Lab
from tests.lab.programs import every, lagging
from tests.lab.scenario import family

GROUP, NAMESPACE = "devices.corp.example", "fleet"
DEVICES, TOGETHER = 96, 32
"""How many devices say every moment how they are, and of how many a bridge writes at once."""
CHANGES_EVERY, READS_EVERY = 5.0, 0.1
BACKOFF_SECONDS = 2.0
EACH_READING = "2."
"""From this version on a bridge writes each reading, and not only whether a device is there."""


@dataclass
class _Bridge:
    """Writes into the status of each device's object."""

    kind: Kind

    def pause(self, process: Process) -> float:
        return READS_EVERY if process.tag.startswith(EACH_READING) else CHANGES_EVERY

    async def run(self, process: Process) -> None:
        if not process.tag.startswith(EACH_READING):
            await self._write(process, process.rng.randrange(DEVICES), {"connected": process.rng.random() < 0.8})
            return
        await lagging(process)
        for first in range(0, DEVICES, TOGETHER):
            some = range(first, first + TOGETHER)
            await asyncio.gather(*(self._write(process, one, self._reading(process)) for one in some))

    @staticmethod
    def _reading(process: Process) -> Json:
        celsius, volts = f"{process.rng.uniform(17, 31):.2f}", f"{process.rng.uniform(3.5, 4.1):.3f}"
        return {"connected": True, "temperatureCelsius": celsius, "batteryVolts": volts}

    async def _write(self, process: Process, number: int, told: Json) -> None:
        where = self.kind.path(NAMESPACE, f"sensor-{number:03}")
        done = await process.api.call("PATCH", where, {"status": {**told, "lastSeen": stamp(now())}})
        if not done.ok:
            await asyncio.sleep(BACKOFF_SECONDS)


@family(
    "A new version of what brings a fleet's devices into the cluster writes each of their readings into the status of"
    " an object, where the one before wrote whether a device was there. With so many writes the store keeps its"
    " revisions for seconds only: agents whose watches are too old list all pods, and the API server is killed for its"
    " memory.",
    flags=UNCACHED,
    joined=54,
)
async def readings_collapse(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose operators wrote what changes all the time into a status; the rest as Robinhood told."""
    by = lab.rng.choice(("ci", "argocd", "flux"))
    kind = await lab.custom("Device", GROUP, ANY)
    bridge = _Bridge(kind)
    await lab.served(kind)
    await lab.namespace(NAMESPACE)
    for number in range(DEVICES):
        meta = {"namespace": NAMESPACE, "name": f"sensor-{number:03}"}
        spec = {"model": "th-200", "site": f"site-{number % 7}", "protocol": "mqtt"}
        await lab.apply({"apiVersion": f"{GROUP}/v1", "kind": kind.name, "metadata": meta, "spec": spec})
    rules = (GROUP, kind.plural, "get,list,watch,patch")
    program = every(bridge.pause, bridge.run)
    await lab.controller(NAMESPACE, "device-bridge", program, rules, replicas=1, tag="1.22.0")
    await cluster(lab, LONG_TEMPLATE_BYTES, LOW_FACTOR)
    yield
    await lab.pause(lab.rng.uniform(3, 8))
    await lab.roll(by, NAMESPACE, "device-bridge", f"{EACH_READING}0.0", culprit=True)
