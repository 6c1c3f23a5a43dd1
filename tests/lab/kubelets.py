"""Nodes and their kubelets: pods are pulled, started, restarted and probed, and told of as kubelets tell.

As in a kubelet: a missing ConfigMap or Secret keeps a container from starting, an image is pulled once per node, a
container that ends is started again after a back-off that doubles. Their seconds stand for minutes.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID
from zlib import crc32

from tests.lab import plugins
from tests.lab.api import Caller, Json, World, now, path
from tests.lab.apps import App, Container, CrashError, Outside, Problem, Process, diagnose, is_done
from tests.lab.disks import Disks
from tests.lab.inits import are_done
from tests.lab.manifests import (
    always_pulled,
    env_keys,
    followed,
    images,
    is_let_through,
    mounted,
    mounts_token,
    place,
    sleeps_before_end,
)
from tests.lab.memory import Memory
from tests.lab.registry import Registry
from tests.lab.rooms import Rooms
from tests.lab.sandboxes import Running, Sandbox
from tests.lab.stalls import Stalls
from tests.lab.statuses import Statuses, done, node_conditions, pod_status, second, waiting
from tests.lab.volumes import held_elsewhere, lacking_driver

ROUND_SECONDS = 0.5
LEASE_SECONDS = 4.0
BACKOFF_SECONDS, LONGEST_BACKOFF = 2.0, 16.0
RETRY_SECONDS = 4.0
"""Before a kubelet looks again for what a container waits for."""
REFRESHED = 0.15
"""How often a kubelet reads a mounted Secret anew: a share of its rounds."""


class Kubelets:
    """Every node of the laboratory. ``callers`` has the kubelet of each."""

    def __init__(self, world: World, callers: dict[str, Caller], apps: dict[str, App], outside: Outside) -> None:
        self._world, self._callers, self._apps, self._outside = world, callers, apps, outside
        self._pods: dict[str, Sandbox] = {}
        self._statuses = Statuses(callers, outside)
        self._memory = Memory(world, apps, outside)
        self._registry = Registry(outside)
        self._rooms = Rooms(world, outside, self._statuses)
        self._stalls = Stalls(self._statuses, outside)
        self._disks = Disks(world, self._pods, self._statuses, outside)
        self._pulled: set[tuple[str, str]] = set()
        self.lag = 0.0
        self.rng = random.Random(0)
        self.counts: dict[str, list[Caller]] = {}
        """The callers that an image's programs had so far."""

    async def run(self) -> None:
        """For ever."""
        await asyncio.gather(self._beat(), self._go_round())

    async def _beat(self) -> None:
        """Their leases, which wait for no pod."""
        while True:
            await asyncio.gather(*(self._statuses.renew(name) for name in self._alive()))
            await asyncio.sleep(LEASE_SECONDS)

    async def _go_round(self) -> None:
        while True:
            self._memory.look()
            await asyncio.gather(*(self._see_to(name) for name in self._alive()))
            self._forget()
            await asyncio.sleep(ROUND_SECONDS)

    def stop(self) -> None:
        for sandbox in self._pods.values():
            if sandbox.task:
                sandbox.task.cancel()

    def _alive(self) -> Iterator[str]:
        silent = self._outside.dead_nodes | self._outside.silent_nodes | self._memory.thrashing()
        return (name for name in self._callers if name not in silent)

    def running(self) -> Iterator[Running]:
        """What runs and is reached: the first container of each pod whose image is known."""
        unreached = self._outside.dead_nodes | self._outside.cut_off | self._memory.thrashing()
        for pod in self._world["Pod"].values():
            sandbox, app = self._pods.get(pod["metadata"]["uid"]), self._app(images(pod)[0])
            is_up = sandbox and sandbox.phase == "up" and pod["spec"].get("nodeName") not in unreached
            if app and sandbox and sandbox.started and is_up:
                yield Running(self._see(pod, sandbox), app, sandbox.started, sandbox.problem, sandbox.is_beside)

    async def register(self, name: str, *, cpu: str = "16") -> None:
        """Raises RefusedError."""
        kubelet = self._callers[name]
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "pool": "general"}
        await kubelet.must("POST", path("Node"), {"metadata": {"name": name, "labels": labels}})
        room = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        status = {"status": {"capacity": room, "allocatable": room, "conditions": node_conditions()}}
        await kubelet.must("PATCH", f"{path('Node', None, name)}/status", status)

    async def join(self, name: str, version: str, labels: dict[str, str]) -> None:
        """A machine that was not there boots, and its node joins. Raises RefusedError."""
        await self.register(name)
        await self._callers[name].must("PATCH", path("Node", None, name), {"metadata": {"labels": labels}})
        await self.update(name, version)
        self._outside.dead_nodes.discard(name)

    async def allot(self, name: str, memory: str) -> None:
        """A node's kubelet has so much for pods from now on. Raises RefusedError."""
        status = {"status": {"allocatable": {"memory": memory}}}
        await self._callers[name].must("PATCH", f"{path('Node', None, name)}/status", status)

    def expire(self, name: str) -> None:
        """The certificate of a node's kubelet is over: what it asks for is unauthorized, what it runs goes on."""
        self._callers[name].token = "expired"

    async def update(self, name: str, version: str) -> None:
        """A node's kubelet is of another version; what runs there goes on. Raises RefusedError."""
        kubelet = self._callers[name]
        kubelet.agent = f"kubelet/{version} (linux/amd64) kubernetes/93248f9"
        status = {"status": {"nodeInfo": {"kubeletVersion": version}}}
        await kubelet.must("PATCH", f"{path('Node', None, name)}/status", status)

    async def run_kernel(self, name: str, version: str) -> None:
        """A node's kubelet tells of which kernel it runs on. Raises RefusedError."""
        status = {"status": {"nodeInfo": {"kernelVersion": version}}}
        await self._callers[name].must("PATCH", f"{path('Node', None, name)}/status", status)

    async def run_on(self, name: str, architecture: str) -> None:
        """A node's kubelet tells of which kind its processors are. Raises RefusedError."""
        kubelet = self._callers[name]
        kubelet.agent = re.sub(r"linux/\w+", f"linux/{architecture}", kubelet.agent)
        labels = {"metadata": {"labels": {"kubernetes.io/arch": architecture}}}
        await kubelet.must("PATCH", path("Node", None, name), labels)
        status = {"status": {"nodeInfo": {"architecture": architecture}}}
        await kubelet.must("PATCH", f"{path('Node', None, name)}/status", status)

    def crash(self, name: str) -> None:
        """A machine stops, and all that runs there with it."""
        self._outside.dead_nodes.add(name)
        for sandbox in self._of(name):
            if sandbox.task:
                sandbox.task.cancel()

    async def come_back(self, name: str, *, rebooted: bool = False) -> None:
        """A kubelet is heard again: it tells of its node and of all its pods, which a ``rebooted`` one starts anew."""
        for sandbox in self._of(name):
            sandbox.well = False
            if rebooted and sandbox.phase == "up":
                sandbox.phase, sandbox.said = "down", ""
                sandbox.restarts[0] += 1
        await self._statuses.tell_node(name, node_conditions())
        if rebooted:
            boot = f"boot id: {UUID(int=self.rng.getrandbits(128), version=4)}"
            await self._statuses.warn_of_node(name, "Rebooted", f"Node {name} has been rebooted, {boot}")
        self._outside.dead_nodes.discard(name)
        self._outside.silent_nodes.discard(name)

    def _of(self, node: str) -> list[Sandbox]:
        here = (pod["metadata"]["uid"] for pod in self._world["Pod"].values() if pod["spec"].get("nodeName") == node)
        return [self._pods[uid] for uid in here if uid in self._pods]

    # -- pods

    async def _survive(self, node: str, victim: str) -> None:
        """The kernel has ended who had most of a full memory: its kubelet is there again, and tells how all is."""
        await self._statuses.tell_node(node, node_conditions())
        for uid, sandbox in list(self._pods.items()):  # of other nodes some come meanwhile
            pod = next((one for one in self._world["Pod"].values() if one["metadata"]["uid"] == uid), None)
            if pod is None or pod["spec"].get("nodeName") != node:
                continue
            sandbox.well = False  # what was told of it while the kubelet was silent is to be put right
            if uid == victim and sandbox.phase == "up":
                process = pod["spec"]["containers"][0]["name"]
                await self._statuses.tell_out_of_memory(node, process, crc32(uid.encode()) % 30000)
                await self._fall(node, pod, sandbox, Problem("oom", "system OOM"), index=0)

    async def _thrash(self, node: str) -> None:
        """Its containers need more memory than it has: the kernel says whom it kills, and nobody gets a turn."""
        await self._statuses.tell_out_of_memory(node, "java", self.rng.randrange(4000, 60000))
        self._outside.silent_nodes.add(node)

    async def _see_to(self, node: str) -> None:
        if self._memory.is_overcommitted(node):
            await self._thrash(node)
            return
        await self._disks.look(node)
        if victim := self._memory.victim(node):
            await self._survive(node, victim)
        await self._statuses.drain(node)
        is_held = await self._stalls.hold(node)
        for pod in [one for one in self._world["Pod"].values() if one["spec"].get("nodeName") == node]:
            sandbox = self._pods.setdefault(pod["metadata"]["uid"], Sandbox())
            if is_held:
                sandbox.well = False  # what is told of it meanwhile is to be put right
            elif node in self._outside.hung and sandbox.phase == "new":
                continue
            elif "deletionTimestamp" in pod["metadata"]:
                if sandbox.phase != "gone" and not (sandbox.end_again and now() < sandbox.end_again):
                    await self._end(node, pod, sandbox)
            elif sandbox.phase != "gone" and not (sandbox.again and now() < sandbox.again):
                await self._go_on(node, pod, sandbox)

    def _forget(self) -> None:
        there = {pod["metadata"]["uid"] for pod in self._world["Pod"].values()}
        for uid in [uid for uid in self._pods if uid not in there]:
            if task := self._pods.pop(uid).task:
                task.cancel()

    async def _end(self, node: str, pod: Json, sandbox: Sandbox) -> None:
        if sandbox.ends is None:
            sandbox.ends = _later(sleeps_before_end(pod))
        if now() < sandbox.ends or not self._statuses.may_ask(node):
            return
        if sandbox.task:
            sandbox.task.cancel()
        if failure := sandbox.started and self._outside.unplugged(node, pod):
            await self._warn(node, pod, "FailedKillPod", f'error killing pod: failed to "KillPodSandbox": {failure}')
            sandbox.phase, sandbox.end_again = "ended", _later(RETRY_SECONDS)
            return
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        done = await self._callers[node].call("DELETE", place(pod), body)
        if done.status in (200, 404, 409):
            self._rooms.leave(node, pod)
            sandbox.phase = "gone"
        else:
            sandbox.end_again = _later(RETRY_SECONDS)

    async def _go_on(self, node: str, pod: Json, sandbox: Sandbox) -> None:
        match sandbox.phase:
            case "new":
                if not sandbox.again and not await self._rooms.admit(node, pod):
                    sandbox.phase = "gone"
                elif (
                    await self._mount(node, pod, sandbox)
                    and await self._connect(node, pod, sandbox)
                    and await self._pull(node, pod, sandbox)
                    and await are_done(self._world, self._statuses, node, pod, sandbox)
                ):
                    await self._start(node, pod, sandbox)
            case "down" if pod["spec"].get("restartPolicy") == "Never":  # it ended with its machine
                ended = {"terminated": {"exitCode": 255, "reason": "Unknown", "finishedAt": second()}}
                sandbox.restarts[0] = 0
                if await self._tell(node, pod, sandbox, {"state": ended, "ready": False}, phase="Failed"):
                    sandbox.phase = "gone"
            case "down":
                if await self._pull(node, pod, sandbox):
                    await self._start(node, pod, sandbox)
            case "up":
                await self._probe(node, pod, sandbox)

    async def _mount(self, node: str, pod: Json, sandbox: Sandbox) -> bool:
        """Read what the pod mounts; whether all of it is there."""
        missing = lacking_driver(self._outside.drivers, pod)
        if volume := held_elsewhere(self._world, pod):
            missing = f"Unable to attach or mount volumes: unmounted volumes=[{volume}]: timed out waiting"
        if missing:
            await self._tell(node, pod, sandbox, waiting("ContainerCreating", ""))
            await self._warn(node, pod, "FailedMount", missing)
            sandbox.again = _later(RETRY_SECONDS)
            return False
        for kind, name in mounted(pod):
            found = await self._callers[node].call("GET", path(kind, pod["metadata"]["namespace"], name))
            if not found.ok:
                await self._wait_for(node, pod, sandbox, f'{kind.lower()} "{name}" not found')
                return False
            (sandbox.config if kind == "ConfigMap" else sandbox.secret).update(found.body.get("data", {}))
        for kind, name, key in env_keys(pod):
            found = await self._callers[node].call("GET", path(kind, pod["metadata"]["namespace"], name))
            if key not in found.body.get("data", {}):
                missing = f"couldn't find key {key} in {kind} {pod['metadata']['namespace']}/{name}"
                await self._wait_for(node, pod, sandbox, missing if found.ok else f'{kind.lower()} "{name}" not found')
                return False
        if refusal := self._outside.refusing(node, pod):
            await self._wait_for(node, pod, sandbox, refusal)
        return not refusal

    async def _connect(self, node: str, pod: Json, sandbox: Sandbox) -> bool:
        """Give a pod an address; whether there was one."""
        if not (failure := plugins.refusal(self._world, self._outside, node, pod)):
            sandbox.pool = sandbox.pool or self._outside.pools[node]
            return True
        # as it has no address, its status is not told as that of others is
        await self._warn(node, pod, "FailedCreatePodSandBox", f"Failed to create pod sandbox: {failure}")
        sandbox.again = _later(RETRY_SECONDS)
        return False

    async def _wait_for(self, node: str, pod: Json, sandbox: Sandbox, reason: str) -> None:
        """What its container needs is not there yet."""
        await self._tell(node, pod, sandbox, waiting("CreateContainerConfigError", reason))
        await self._warn(node, pod, "Failed", f"Error: {reason}")
        sandbox.again = _later(RETRY_SECONDS)

    async def _pull(self, node: str, pod: Json, sandbox: Sandbox) -> bool:
        asked = always_pulled(pod)
        lacking = [image for image in images(pod) if image in asked or (node, image) not in self._pulled]
        denied, home = self._outside.denied, pod["metadata"]["namespace"]
        for one in pod["spec"].get("imagePullSecrets", ()) if lacking else ():
            found = await self._callers[node].call("GET", path("Secret", home, one["name"]))
            self._outside.credentials[home, one["name"]] = found.body.get("data", {})
        refusals = {image: self._registry.refusal(image, node) or denied(image, pod) for image in lacking}
        self._pulled |= {(node, image) for image, refusal in refusals.items() if not refusal}
        if not any(refusals.values()):
            return True
        image, reason = next((image, refusal) for image, refusal in refusals.items() if refusal)
        failure = f'Failed to pull image "{image}": {reason}'
        told = waiting("ImagePullBackOff", f'Back-off pulling image "{image}": {reason}')
        phase = "Running" if any(sandbox.restarts.values()) else "Pending"  # what runs beside goes on
        await self._tell(node, pod, sandbox, told, phase=phase, index=images(pod).index(image))
        await self._warn(node, pod, "Failed", failure)
        sandbox.again = _later(RETRY_SECONDS)
        return False

    async def _start(self, node: str, pod: Json, sandbox: Sandbox) -> None:
        running = {"state": {"running": {"startedAt": second()}}, "ready": False, "started": True}
        if await self._tell(node, pod, sandbox, running, phase="Running"):
            sandbox.phase, sandbox.well, sandbox.since, sandbox.again = (
                "up",
                False,
                None,
                _later(self.rng.uniform(0.5, 1.5)),
            )
            sandbox.started, sandbox.problem = now(), None
            app = self._app(images(pod)[0])
            if app and app.program:
                sandbox.task = asyncio.create_task(self._run_program(node, pod, sandbox, app))

    async def _probe(self, node: str, pod: Json, sandbox: Sandbox) -> None:
        """Tell what the container is like now, if that is news."""
        await self._refresh(node, pod, sandbox)
        index, problem = self._trouble(pod, sandbox)
        if problem is None:
            sandbox.since = sandbox.problem = None
            ended = [is_done(self._app(image), sandbox.age) for image in images(pod)]
            if all(ended):
                await self._complete(node, pod, sandbox)
                return
            if ended[0]:  # a sidecar goes on
                if sandbox.said != "done":
                    await self._tell(node, pod, sandbox, done(), phase="Running")
                    sandbox.said = "done"
                return
            await self._tell_ready(node, pod, sandbox)
            return
        sandbox.since = sandbox.since or now()
        shows_at_once = problem.kind == "starting" or problem.at_once
        if not shows_at_once and (now() - sandbox.since).total_seconds() < self.lag:
            await self._tell_ready(node, pod, sandbox)
            return
        sandbox.problem, sandbox.is_beside = problem, index > 0
        if problem.kind in ("unready", "starting"):
            has_started = problem.kind == "unready"
            running = {"state": {"running": {"startedAt": second()}}, "ready": False, "started": has_started}
            if sandbox.said != problem.kind:
                sandbox.well = False
                await self._tell(node, pod, sandbox, running, phase="Running", index=index)
                sandbox.said = problem.kind
            await self._warn(node, pod, "Unhealthy", f"{'Readiness' if has_started else 'Startup'} {problem.message}")
            sandbox.again = _later(RETRY_SECONDS)
            return
        await self._fall(node, pod, sandbox, problem, index=index)

    async def _refresh(self, node: str, pod: Json, sandbox: Sandbox) -> None:
        """Read its Secrets anew, now and then: what is gone stays as it was read."""
        for kind, name in followed(pod):
            if kind == "Secret" and self.rng.random() < REFRESHED:
                found = await self._callers[node].call("GET", path(kind, pod["metadata"]["namespace"], name))
                sandbox.secret.update(found.body.get("data", {}) if found.ok else {})

    def _trouble(self, pod: Json, sandbox: Sandbox) -> tuple[int, Problem | None]:
        """Which of its containers is not well, and why; the first one that is not."""
        if sandbox.task and sandbox.task.done() and not sandbox.task.cancelled():
            error = sandbox.task.exception()
            if error and not isinstance(error, CrashError):
                raise error
            return 0, Problem("crash", str(error or "the program ended"))
        outside = self._outside
        for index, image in enumerate(images(pod)):
            if app := self._app(image):
                container = self._see(pod, sandbox, index=index)
                running = self._running(app.image)
                found = diagnose(
                    app,
                    container,
                    self._world,
                    running=running,
                    cut_off=outside.cut_off | self._memory.thrashing(),
                    apart=outside.apart,
                    resolver_up=outside.resolver_up,
                )
                if found:
                    return index, found
        return 0, None

    def _app(self, image: str) -> App | None:
        return self._apps.get(image.rsplit(":", 1)[0])

    async def _complete(self, node: str, pod: Json, sandbox: Sandbox) -> None:
        """The work of a Job is done."""
        if await self._tell(node, pod, sandbox, done(), phase="Succeeded"):
            sandbox.phase = "gone"

    def _running(self, image: str) -> int:
        return sum(
            images(pod)[0].rsplit(":", 1)[0] == image and pod.get("status", {}).get("phase") == "Running"
            for pod in self._world["Pod"].values()
            if "deletionTimestamp" not in pod["metadata"]
        )

    async def _fall(self, node: str, pod: Json, sandbox: Sandbox, problem: Problem, *, index: int) -> None:
        """The container ended: told, and started again after a while."""
        if sandbox.task:
            sandbox.task.cancel()
        code, reason = {"oom": (137, "OOMKilled"), "killed": (137, "Error")}.get(problem.kind, (1, "Error"))
        message = problem.message if problem.kind == "crash" else ""
        ended = {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": second()}}
        if pod["spec"].get("restartPolicy") == "Never":
            if await self._tell(node, pod, sandbox, {"state": ended, "ready": False}, phase="Failed", index=index):
                sandbox.phase = "gone"
            return
        sandbox.phase, sandbox.well = "down", False
        sandbox.restarts[index] += 1
        wait = min(BACKOFF_SECONDS * 2 ** (sandbox.restarts[index] - 1), LONGEST_BACKOFF)
        sandbox.again = _later(wait)
        back_off = waiting("CrashLoopBackOff", f"back-off {wait:g}s restarting failed container")
        await self._tell(node, pod, sandbox, {**back_off, "lastState": ended}, phase="Running", index=index)
        if problem.kind == "killed":
            await self._warn(node, pod, "Unhealthy", f"{problem.probe} {problem.message}")
        await self._warn(node, pod, "BackOff", "Back-off restarting failed container")

    # -- programs

    def _see(self, pod: Json, sandbox: Sandbox, *, index: int = 0) -> Container:
        """Its ConfigMaps as they are now, those that follow: what is gone stays as it was read."""
        config = dict(sandbox.config)
        for kind, name in followed(pod):
            if kind == "ConfigMap":
                config.update(self._world["ConfigMap"].get((pod["metadata"]["namespace"], name), {}).get("data") or {})
        tag = images(pod)[index].rsplit(":", 1)[1]
        return Container(pod, tag, config, sandbox.secret, index, sandbox.age)

    async def _run_program(self, node: str, pod: Json, sandbox: Sandbox, app: App) -> None:
        """With a token as the kubelet asks for one: bound to the pod."""
        assert app.program
        meta = pod["metadata"]
        if not mounts_token(pod):
            raise CrashError("open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory")
        reference = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        account = pod["spec"]["serviceAccountName"]
        where = f"{path('ServiceAccount', meta['namespace'], account)}/token"
        given = await self._callers[node].call("POST", where, {"spec": {"boundObjectRef": reference}})
        if not given.ok:
            raise CrashError(f"no token: {given.body.get('message')}")
        tag = images(pod)[0].rsplit(":", 1)[1]
        user = f"system:serviceaccount:{meta['namespace']}:{account}"
        agent = f"{app.agent or app.image.rsplit('/', 1)[1]}/{tag}"
        caller = Caller(self._callers[node].client, user, given.body["status"]["token"], agent)
        self.counts.setdefault(app.image, []).append(caller)
        await app.program(Process(caller, lambda: self._see(pod, sandbox), self.rng, now(), self.lag))

    # -- what is told

    async def _tell(
        self, node: str, pod: Json, sandbox: Sandbox, container: Json, *, phase: str = "Pending", index: int = 0
    ) -> bool:
        """Write a pod's status, ``container`` of that one of its containers; whether it was taken."""
        uid = pod["metadata"]["uid"]
        address = f"{sandbox.pool or self._outside.pools[node]}.{int(uid[:2], 16)}.{int(uid[2:4], 16) or 1}"
        status = pod_status(pod, container, index, sandbox.restarts, phase=phase, address=address)
        sandbox.said = "ready" if container.get("ready") else "told"
        return await self._statuses.tell(node, pod, status)

    async def _tell_ready(self, node: str, pod: Json, sandbox: Sandbox) -> None:
        """Its containers are ready, if that is news; it is itself once its gates are open."""
        is_open = is_let_through(pod)
        if not sandbox.well and (is_open or sandbox.said != "ready"):
            running = {"state": {"running": {"startedAt": second()}}, "ready": True, "started": True}
            sandbox.well = await self._tell(node, pod, sandbox, running, phase="Running") and is_open

    async def _warn(self, node: str, pod: Json, reason: str, message: str) -> None:
        about = {"kind": "Pod", **{k: pod["metadata"][k] for k in ("namespace", "name", "uid")}}
        await self._statuses.warn(node, about, reason, message)


def _later(seconds: float) -> datetime:
    return now() + timedelta(seconds=seconds)
