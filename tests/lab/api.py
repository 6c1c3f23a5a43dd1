"""How the laboratory talks to the API server: paths of kinds, callers with a name, a world that is watched."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
RETRY_SECONDS, GONE_SECONDS = 0.5, 10.0
"""Before a watch that broke is opened again, and one of a kind that is not served any more."""

_NAMESPACED = {
    "/api/v1": "Pod Service ConfigMap Secret ServiceAccount Event ResourceQuota LimitRange PersistentVolumeClaim",
    "/apis/apps/v1": "Deployment ReplicaSet DaemonSet StatefulSet",
    "/apis/batch/v1": "Job CronJob",
    "/apis/autoscaling/v2": "HorizontalPodAutoscaler",
    "/apis/policy/v1": "PodDisruptionBudget",
    "/apis/networking.k8s.io/v1": "NetworkPolicy Ingress",
    "/apis/rbac.authorization.k8s.io/v1": "Role RoleBinding",
    "/apis/discovery.k8s.io/v1": "EndpointSlice",
    "/apis/coordination.k8s.io/v1": "Lease",
}
_CLUSTER = {
    "/api/v1": "Node Namespace PersistentVolume",
    "/apis/storage.k8s.io/v1": "StorageClass CSIDriver",
    "/apis/networking.k8s.io/v1": "IngressClass",
    "/apis/node.k8s.io/v1": "RuntimeClass",
    "/apis/apiregistration.k8s.io/v1": "APIService",
    "/apis/rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding",
    "/apis/scheduling.k8s.io/v1": "PriorityClass",
    "/apis/apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "/apis/flowcontrol.apiserver.k8s.io/v1": "FlowSchema PriorityLevelConfiguration",
    "/apis/admissionregistration.k8s.io/v1": "ValidatingWebhookConfiguration MutatingWebhookConfiguration"
    " ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
}


@dataclass(frozen=True)
class Kind:
    """A kind as the API server has it."""

    name: str
    root: str
    namespaced: bool

    @property
    def plural(self) -> str:
        """Its resource, as RBAC calls it."""
        lower = self.name.lower()
        return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}es" if lower.endswith("s") else f"{lower}s"

    @property
    def group(self) -> str:
        """Its API group; empty for the core."""
        return self.root.split("/")[2] if self.root.startswith("/apis/") else ""

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Of one object, or of the list in a namespace or of all."""
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.root}{within}/{self.plural}" + (f"/{name}" if name else "")


KINDS = {
    name: Kind(name, root, is_namespaced)
    for is_namespaced, groups in ((True, _NAMESPACED), (False, _CLUSTER))
    for root, names in groups.items()
    for name in names.split()
}
UNWATCHED = ("Secret", "Lease")
"""What a recording does not watch; Endpoints are not among KINDS."""


def path(kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """The path of an object, or of a list, of one of KINDS."""
    return KINDS[kind].path(namespace, name)


@dataclass(frozen=True)
class Answer:
    """What came back; status 0 when nothing did, and ``body`` has the reason as its message."""

    status: int
    body: Json
    audit_id: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


@dataclass
class Caller:
    """Somebody with a token and a user agent. Counts what it was answered, by status, and its bytes."""

    client: httpx2.AsyncClient
    user: str
    token: str
    agent: str
    counts: Counter[int] = field(default_factory=Counter)
    received: int = 0
    acts_for: tuple[str, str] | None = None
    """The user and the group as which it asks, where it impersonates somebody."""

    @property
    def headers(self) -> dict[str, str]:
        own = {"Authorization": f"Bearer {self.token}", "User-Agent": self.agent}
        if self.acts_for is None:
            return own
        user, group = self.acts_for
        return {**own, "Impersonate-User": user, "Impersonate-Group": group}

    async def call(self, method: str, where: str, body: Any = None, *, patch: str = MERGE) -> Answer:
        """One request. A refusal or a failed connection is an Answer too: the caller's program knows what to do."""
        headers = self.headers
        if body is not None:
            headers["Content-Type"] = patch if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        try:
            answer = await self.client.request(method, where, content=content, headers=headers)
        except httpx2.TransportError as error:
            self.counts[0] += 1
            return Answer(0, {"message": repr(error)})
        self.counts[answer.status_code] += 1
        self.received += len(answer.content)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        told = answer.json() if is_json else {"message": answer.text}
        return Answer(answer.status_code, told, answer.headers.get("audit-id", ""))

    async def must(self, method: str, where: str, body: Any = None, *, patch: str = MERGE) -> Answer:
        """The same where the laboratory itself depends on it. Raises RefusedError."""
        answer = await self.call(method, where, body, patch=patch)
        if not answer.ok:
            raise RefusedError(f"{self.user}: {method} {where}: {answer.status} {answer.body.get('message', '')}")
        return answer


class RefusedError(Exception):
    """The API server did not take what a scenario rests on."""


def now() -> datetime:
    """The time of this machine, which is the cluster's."""
    return datetime.now(UTC)


def stamp(at: datetime) -> str:
    """As the recordings write a time: UTC, milliseconds, Z."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


Key = tuple[str, str]
"""Namespace (empty for what has none) and name."""


class World:
    """Every object of the watched kinds as it is now. ``told`` hears each event with the time at which it came."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._objects: dict[str, dict[Key, Json]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.told: Callable[[str, str, Json], None] = lambda at, kind, thing: None

    def __getitem__(self, kind: str) -> Mapping[Key, Json]:
        return self._objects.get(kind, {})

    def everything(self) -> list[Json]:
        """Every object, by kind."""
        return [thing for objects in self._objects.values() for thing in objects.values()]

    async def watch(self, kind: Kind) -> None:
        """LIST, then WATCH until ``close``; returns after the first LIST. Raises RefusedError."""
        version = await self._list(kind)
        self._tasks.append(asyncio.create_task(self._follow(kind, version)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _list(self, kind: Kind) -> str:
        body = (await self.caller.must("GET", kind.path())).body
        api = {"apiVersion": body["apiVersion"], "kind": kind.name}
        before = self._objects.get(kind.name)
        self._objects[kind.name] = {_key(thing): {**api, **thing} for thing in body["items"]}
        if before is not None:
            self._tell_missed(before, self._objects[kind.name])
        return str(body["metadata"]["resourceVersion"])

    def _tell_missed(self, before: Mapping[Key, Json], after: Mapping[Key, Json]) -> None:
        """What happened while there was no watch, as far as two lists tell it."""
        at = stamp(now())
        for key in before.keys() - after.keys():
            self.told(at, "DELETED", before[key])
        for key, thing in after.items():
            if key not in before:
                self.told(at, "ADDED", thing)
            elif before[key]["metadata"]["resourceVersion"] != thing["metadata"]["resourceVersion"]:
                self.told(at, "MODIFIED", thing)

    async def _follow(self, kind: Kind, version: str) -> None:
        while True:
            try:
                version = await self._stream(kind, version)
            except (httpx2.TransportError, RefusedError):  # the API server restarts, in some scenarios
                await asyncio.sleep(RETRY_SECONDS)

    async def _stream(self, kind: Kind, version: str) -> str:
        """Until the stream ends; returns from where to go on. The version that is too old lists again."""
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "900"}
        headers = self.caller.headers
        async with self.caller.client.stream("GET", kind.path(), params=query, headers=headers, timeout=None) as lines:
            if lines.status_code == httpx2.codes.NOT_FOUND:  # its CustomResourceDefinition was deleted
                self._objects[kind.name] = {}
                await asyncio.sleep(GONE_SECONDS)
                return version
            if not lines.is_success:  # it has just started, and its caches are not filled
                await asyncio.sleep(RETRY_SECONDS)
                return version
            async for line in lines.aiter_lines():
                event = json.loads(line)
                thing = event["object"]
                if event.get("type") not in ("ADDED", "MODIFIED", "DELETED"):
                    return await self._list(kind)
                version = thing["metadata"]["resourceVersion"]
                self._take(kind, event["type"], thing)
        return version

    def _take(self, kind: Kind, what: str, thing: Json) -> None:
        objects = self._objects[kind.name]
        if what == "DELETED":
            objects.pop(_key(thing), None)
        else:
            objects[_key(thing)] = thing
        self.told(stamp(now()), what, thing)


def _key(thing: Json) -> Key:
    meta = thing["metadata"]
    return meta.get("namespace", ""), meta["name"]
