"""What the controllers and agents of the laboratory do all day: LIST and WATCH, polls, renewals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import httpx2

from tests.lab.api import Json, now, path, stamp
from tests.lab.apps import Process, Program

LONGEST_BACKOFF = 8.0


def both(*programs: Program) -> Program:
    """All of them at once; when one ends, so does the process."""

    async def run(process: Process) -> None:
        async with asyncio.TaskGroup() as group:
            for one in programs:
                group.create_task(_unwrapped(one, process))

    async def alone(process: Process) -> None:
        try:
            await run(process)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    return alone


async def _unwrapped(program: Program, process: Process) -> None:
    await program(process)


def informer(where: str, *, seconds: int = 600, backoff: float = 1.0) -> Program:
    """LIST, then WATCH from there, as client-go: one that is too old or refused begins anew, after a back-off.

    ``where`` may have selectors.
    """

    async def run(process: Process) -> None:
        wait = backoff
        while True:
            listed = await process.api.call("GET", where)
            if listed.ok:
                wait = backoff
                await _watch(process, where, listed.body["metadata"]["resourceVersion"], seconds)
            else:
                await asyncio.sleep(wait * process.rng.uniform(0.8, 1.2))
                wait = min(wait * 2, LONGEST_BACKOFF)

    return run


async def _watch(process: Process, where: str, version: str, seconds: int) -> None:
    """Until it is too old or breaks."""
    while True:
        query = f"watch=1&resourceVersion={version}&timeoutSeconds={seconds}&allowWatchBookmarks=true"
        url = f"{where}{'&' if '?' in where else '?'}{query}"
        try:
            async with process.api.client.stream("GET", url, headers=process.api.headers, timeout=None) as lines:
                if not lines.is_success:
                    process.api.counts[lines.status_code] += 1
                    return
                async for line in lines.aiter_lines():
                    event = json.loads(line)
                    if event.get("type") == "ERROR":
                        process.api.counts[event["object"].get("code", 500)] += 1
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
        except httpx2.TransportError:
            await asyncio.sleep(1)
            return


async def changes(
    process: Process,
    where: str,
    told: Callable[[Json], None],
    *,
    of_all: bool = False,
    reads: Callable[[Json], bool] = lambda one: True,
) -> None:
    """LIST once, then what a WATCH tells, without end; ``of_all`` what is listed is told too.

    One object that it does not read, as its client's types are others, fails the whole list, and ends a watch.
    """
    while True:
        listed = await process.api.call("GET", where)
        if listed.ok and all(map(reads, listed.body["items"])):
            for one in listed.body["items"] if of_all else ():
                told(one)
            query = f"watch=1&resourceVersion={listed.body['metadata']['resourceVersion']}&timeoutSeconds=600"
            try:
                async with process.api.client.stream(
                    "GET", f"{where}?{query}", headers=process.api.headers, timeout=None
                ) as lines:
                    async for line in lines.aiter_lines():
                        event = json.loads(line)
                        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                            if not reads(event["object"]):
                                break
                            told(event["object"])
            except httpx2.TransportError:
                pass
        await asyncio.sleep(1)


def every(seconds: float | Callable[[Process], float], work: Callable[[Process], Awaitable[None]]) -> Program:
    """``work`` again and again, with so long a pause, give or take a tenth."""

    async def run(process: Process) -> None:
        while True:
            await work(process)
            pause = seconds(process) if callable(seconds) else seconds
            await asyncio.sleep(pause * process.rng.uniform(0.9, 1.1))

    return run


def getting(*places: str) -> Callable[[Process], Awaitable[None]]:
    """GET each, whatever is answered."""

    async def work(process: Process) -> None:
        for where in places:
            await process.api.call("GET", where)

    return work


def leading(namespace: str, name: str) -> Program:
    """Renews a Lease, as whoever leads."""
    leases = path("Lease", namespace)

    async def work(process: Process) -> None:
        spec = {"holderIdentity": process.see().pod["metadata"]["name"], "renewTime": f"{stamp(now())[:-1]}000Z"}
        done = await process.api.call("PATCH", f"{leases}/{name}", {"spec": {**spec, "leaseDurationSeconds": 15}})
        if done.status == 404:
            await process.api.call(
                "POST", leases, {"metadata": {"name": name}, "spec": {**spec, "leaseDurationSeconds": 15}}
            )

    return every(4.0, work)


def writing(namespace: str, name: str, key: str) -> Callable[[Process], Awaitable[None]]:
    """A status that it keeps in a ConfigMap."""

    async def work(process: Process) -> None:
        done = await process.api.call("PATCH", path("ConfigMap", namespace, name), {"data": {key: stamp(now())}})
        if done.status == 404:
            body = {"metadata": {"name": name}, "data": {key: stamp(now())}}
            await process.api.call("POST", path("ConfigMap", namespace), body)

    return work


async def lagging(process: Process) -> None:
    """Wait until what is new about a process shows."""
    await asyncio.sleep(max(0.0, process.lag - (now() - process.started).total_seconds()))


async def tell(process: Process, about: Json, kind: str, reason: str, message: str, *, by: str) -> None:
    """An Event about an object that has its ``kind``; ``kind`` is Normal or Warning, ``by`` who tells it."""
    body = event(about, kind, reason, message, by=by)
    await process.api.call("POST", path("Event", about["metadata"]["namespace"]), body)


def event(about: Json, kind: str, reason: str, message: str, *, by: str) -> Json:
    """What is told so."""
    second, meta = f"{stamp(now())[:19]}Z", about["metadata"]
    who = {key: meta[key] for key in ("namespace", "name", "uid")}
    return {
        "metadata": {"generateName": f"{meta['name']}."},
        "involvedObject": {"apiVersion": "v1", "kind": about["kind"], **who},
        "type": kind,
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": second,
        "lastTimestamp": second,
        "source": {"component": by},
    }
