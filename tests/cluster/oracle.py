"""Somebody who writes to an API server, at random from a seed, and remembers each write that was done.

Every writer has names of its own and waits for each answer. Where none comes it looks what became of the object, so
that it is known of every write whether it was done.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2

from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import wait_until

CREATE, UPDATE, DELETE = "create", "update", "delete"
MERGE = {"Content-Type": "application/merge-patch+json"}
NAMES = 6
"""Of each kind, for each writer: few, so that names are used again."""
ASK_AGAIN_SECONDS = 0.3
GROUP = "faults.example"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""Widgets, which may hold anything."""
PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Widget": f"/apis/{GROUP}/v1/namespaces/{{}}/widgets",
}
"""Of the objects of a kind in a namespace."""
API_VERSIONS = {"ConfigMap": "v1", "Deployment": "apps/v1", "Widget": f"{GROUP}/v1"}


@dataclass(frozen=True, slots=True)
class Write:
    """A write that was done between ``before`` and ``after``, by the clock of this machine.

    ``resource_version`` is the one that it made; 0 of a deletion, which the API server does not tell. ``place`` is its
    place among the writes to objects of this kind and name.
    """

    kind: str
    name: str
    uid: str
    verb: str
    resource_version: int
    before: datetime
    after: datetime
    place: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What there is one of: an object is created and deleted once, and each update has its version."""
        return self.uid, self.verb, self.resource_version if self.verb == UPDATE else 0


@dataclass(slots=True)
class Oracle:
    """What was written to one namespace."""

    namespace: str
    _writes: list[Write] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, write: Write) -> None:
        with self._lock:
            self._writes.append(write)

    def writes(self) -> list[Write]:
        """Those that are done so far."""
        with self._lock:
            return list(self._writes)


def content(kind: str, number: int) -> dict[str, Any]:
    """What an object of a kind holds beside its metadata; another number makes it another state."""
    if kind == "ConfigMap":
        return {"data": {"value": f"v{number}", "kept": "always"}}
    if kind == "Widget":
        return {"spec": {"size": number, "parts": [{"name": "a", "count": number % 7}]}}
    container = {"name": "app", "image": f"registry.example/app:v{number}"}
    labels = {"app": "faults"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {"spec": {"replicas": number % 5, "selector": {"matchLabels": labels}, "template": template}}


class Writer:
    """One who writes, one thing after the other."""

    def __init__(self, client: httpx2.Client, oracle: Oracle, *, number: int, seed: int) -> None:
        self._client, self._oracle, self._number = client, oracle, number
        self._draw = random.Random(seed * 1000 + number)
        self._there: dict[tuple[str, str], dict[str, Any]] = {}
        self._places: dict[tuple[str, str], int] = {}
        self._count = 0

    def run(self, until: threading.Event, pause: float) -> None:
        """Write, ``pause`` seconds apart on average, ``until`` that is set."""
        while not until.wait(self._draw.uniform(0, 2 * pause)):
            self.step()

    def step(self) -> None:
        """One thing that somebody does: one write, or two at once."""
        kind = self._draw.choice(list(PATHS))
        name = f"{kind.lower()}-{self._number}-{self._draw.randrange(NAMES)}"
        there = self._there.get((kind, name))
        if there is None:
            self._create(kind, name)
            if self._draw.random() < 0.2:
                self._delete(kind, name)
            return
        match self._draw.choices(("update", "label", "nothing", "delete", "again"), (10, 4, 1, 2, 3))[0]:
            case "update":
                self._patch(kind, name, content(kind, self._next()))
            case "label":
                self._patch(kind, name, {"metadata": {"labels": {"turn": f"n{self._next()}"}}})
            case "nothing":
                self._patch(kind, name, {"metadata": {"labels": there["metadata"].get("labels")}})
            case "delete":
                self._delete(kind, name)
            case _:
                self._delete(kind, name)
                if (kind, name) not in self._there:  # else it is still there, and would seem to be created again
                    self._create(kind, name)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _create(self, kind: str, name: str) -> None:
        meta = {"name": name, "labels": {"turn": "first"}}
        body = {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": meta, **content(kind, self._next())}
        before = datetime.now(UTC)
        answer = self._send("POST", self._path(kind), json=body)
        made = answer or self._get(kind, name)
        if made:
            self._there[kind, name] = made
            self._note(kind, name, CREATE, made, before=before)

    def _patch(self, kind: str, name: str, patch: dict[str, Any]) -> None:
        """A patch that changes nothing makes no version: then nothing is noted."""
        if (kind, name) not in self._there:
            return
        before, known = datetime.now(UTC), _version(self._there[kind, name])
        answer = self._send("PATCH", f"{self._path(kind)}/{name}", json=patch, headers=MERGE)
        found = answer or self._get(kind, name)
        assert found, f"{kind} {name}, which nobody else touches, is gone"
        self._there[kind, name] = found
        if _version(found) != known:
            self._note(kind, name, UPDATE, found, before=before)

    def _delete(self, kind: str, name: str) -> None:
        if (kind, name) not in self._there:
            return
        before = datetime.now(UTC)
        if self._send("DELETE", f"{self._path(kind)}/{name}") is None and self._get(kind, name):
            return
        self._note(kind, name, DELETE, self._there.pop((kind, name)), before=before)

    def _path(self, kind: str) -> str:
        return PATHS[kind].format(self._oracle.namespace)

    def _send(self, method: str, path: str, **more: Any) -> dict[str, Any] | None:
        """The answer; None where nobody knows yet whether it was done."""
        try:
            answer = self._client.request(method, path, **more)
        except httpx2.TransportError:
            return None
        if answer.status_code >= 500 or answer.status_code in (404, 409, 429):
            return None  # 404: the kind is not served yet, after a restart; 409: an earlier try was done
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def _get(self, kind: str, name: str) -> dict[str, Any] | None:
        """The object as it is; None where there is none. Waits for as long as the API server cannot tell."""
        while True:
            try:
                answer = self._client.get(f"{self._path(kind)}/{name}")
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.is_success:
                found: dict[str, Any] = answer.json()
                return found
            if answer is not None and answer.status_code == 404 and name in answer.text:
                return None
            time.sleep(ASK_AGAIN_SECONDS)

    def _note(self, kind: str, name: str, verb: str, obj: dict[str, Any], *, before: datetime) -> None:
        place = self._places[kind, name] = self._places.get((kind, name), -1) + 1
        uid, version = obj["metadata"]["uid"], 0 if verb == DELETE else _version(obj)
        self._oracle.note(Write(kind, name, uid, verb, version, before, datetime.now(UTC), place))


def _version(obj: dict[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


def define_widgets(plane: ControlPlane) -> None:
    """Make their kind, and wait until it is served."""
    with plane.client() as admin:
        made = admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=DEFINITION)
        assert made.status_code in (201, 409), made.text
        wait_until(lambda: admin.get(PATHS["Widget"].format("default")).is_success, "Widgets are served")


def there(plane: ControlPlane, namespace: str) -> dict[str, dict[str, Any]]:
    """What there is of the oracle's kinds in a namespace, by uid, as the API server has it."""
    found = dict[str, dict[str, Any]]()
    with plane.client() as admin:
        for kind, path in PATHS.items():
            answer = admin.get(path.format(namespace))
            assert answer.is_success, answer.text
            found |= {one["metadata"]["uid"]: {"kind": kind, **one} for one in answer.json()["items"]}
    return found


@contextmanager
def writing(
    plane: ControlPlane, namespace: str, *, seed: int, writers: int = 3, pause: float = 0.15
) -> Iterator[Oracle]:
    """So many write to a namespace, which is made, for the length of the block."""
    with plane.client() as admin:
        made = admin.post("/api/v1/namespaces", json={"metadata": {"name": namespace}})
        assert made.status_code in (201, 409), made.text
        oracle, ended, errors = Oracle(namespace), threading.Event(), list[BaseException]()

        def write(number: int) -> None:
            try:
                with plane.client() as client:
                    Writer(client, oracle, number=number, seed=seed).run(ended, pause)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(number,), name=f"writer {number}") for number in range(writers)]
        for thread in threads:
            thread.start()
        try:
            yield oracle
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]
