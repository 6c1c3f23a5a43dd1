"""A real API server sends its audit events to the real program, which watches it too: each write is one change."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from app.collect.api_metrics import FIRST, REMARK, ApiMetrics
from app.collect.contexts import WantedCluster
from app.collect.drops import Count, Drops, read
from app.collect.spool import Spool
from app.collect.watch import Pace
from app.core.model import ActorSource, Change, Verb
from app.store import changes, gaps, watches
from app.store.database import Database
from tests.cluster import webhook
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import wait_until
from tests.serving import program
from tests.test_audit_webhook import token_for
from tests.test_tls import certificate

CLUSTER, NAMED = "audited", "named"
DAY = timedelta(days=1)
PATIENCE = "--audit-webhook-initial-backoff=6s"
"""A batch that is not taken is sent again for 49 s, as a start of the program takes long on busy cores."""
MERGE = {"Content-Type": "application/merge-patch+json"}
KINDS = {
    "ConfigMap": "/api/v1/namespaces/default/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
}
Write = tuple[str, str, str, str]
"""Verb, kind, name, and the resourceVersion where the answer says one (of a deletion it does not)."""


def let_alice_write(plane: ControlPlane) -> None:
    subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "alice"}, "subjects": [subject], "roleRef": role}
    with plane.client() as admin:
        made = admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", json=binding)
    assert made.is_success, made.text


class Oracle:
    """Writes as alice, and knows what it wrote."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client, self._numbers = client, count()
        self.wrote = list[Write]()

    def write(self, rounds: int) -> None:
        """Each round makes an object of each kind, changes it twice, and removes every other one."""
        for _ in range(rounds):
            number = next(self._numbers)
            for kind, path in KINDS.items():
                name = f"{kind.lower()}-{number}"
                self._told("create", kind, name, self._client.post(path, json=made(kind, name)))
                for value in (1, 2):
                    patch = json.dumps({"metadata": {"labels": {"turn": str(value)}}})
                    answer = self._client.patch(f"{path}/{name}", content=patch, headers=MERGE)
                    self._told("update", kind, name, answer)
                if number % 2:
                    self._told("delete", kind, name, self._client.delete(f"{path}/{name}"))

    def generate(self, begin: str) -> None:
        """Makes an object of each kind of which the server makes up the name."""
        for kind, path in KINDS.items():
            whole: dict[str, Any] = made(kind, "generated")
            answer = self._client.post(path, json=whole | {"metadata": {"generateName": begin}})
            self._told("create", kind, answer.json()["metadata"]["name"], answer)

    def _told(self, verb: str, kind: str, name: str, answer: httpx2.Response) -> None:
        assert answer.is_success, answer.text
        version = "" if verb == "delete" else answer.json()["metadata"]["resourceVersion"]
        self.wrote.append((verb, kind, name, version))


def made(kind: str, name: str) -> dict[str, object]:
    if kind == "ConfigMap":
        return {"metadata": {"name": name}, "data": {"a": "1"}}
    labels = {"app": name}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "shop/main:1"}]}}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": pods}}


async def recorded(database: Database, cluster: str = CLUSTER) -> list[Change]:
    """The changes of KINDS in the namespace default."""
    now = datetime.now(UTC)
    async with database.read.connect() as conn:
        found = await changes.read_window(conn, cluster, now - DAY, now + DAY, limit=5000)
    return [one for one in found if one.resource.kind in KINDS and one.resource.namespace == "default"]


async def told_twice(database: Database, oracle: Oracle, cluster: str = CLUSTER) -> list[Change]:
    """What is recorded once all that was written is there, its actor known, and each update watched, or after a minute.

    What the API server tells of a write and what is watched arrive in either order.
    """
    ends = asyncio.get_running_loop().time() + 60
    while True:
        found = await recorded(database, cluster)
        is_whole = len(found) >= len(oracle.wrote) and all(
            "audit" in one.sources and ("watch" in one.sources or one.verb is not Verb.UPDATE) for one in found
        )
        if is_whole or asyncio.get_running_loop().time() > ends:
            return found
        await asyncio.sleep(0.2)


async def watched(database: Database, cluster: str = CLUSTER) -> None:
    """Wait until both kinds are watched."""
    async with asyncio.timeout(60):
        while True:
            async with database.read.connect() as conn:
                found = await watches.read(conn, cluster)
            both = [found.get(name) for name in (("", "configmaps"), ("apps", "deployments"))]
            if all(one and one.resource_version for one in both):
                return
            await asyncio.sleep(0.2)


def told(found: list[Change]) -> Counter[Write]:
    return Counter(
        (one.verb.value, one.resource.kind, one.resource.name, "" if one.verb is Verb.DELETE else one.resource_version)
        for one in found
    )


async def test_each_write_is_one_change_by_its_actor_though_serve_is_killed_and_stopped_in_between(
    dsn: str, database: Database, tmp_path: Path
) -> None:
    cert, key = certificate(tmp_path)
    data_dir = tmp_path / "data"
    token = token_for(dsn, CLUSTER)
    tls = ("--tls-cert", str(cert), "--tls-key", str(key))
    with program(dsn, data_dir, "--port", "0", *tls) as (serve, address), ExitStack() as stack:
        port = str(urlsplit(address).port)
        plane = stack.enter_context(
            webhook.telling(tmp_path, address, PATIENCE, cluster=CLUSTER, token=token, cert=cert)
        )
        let_alice_write(plane)
        webhook.follow(plane, data_dir, CLUSTER)
        await watched(database)
        oracle = Oracle(stack.enter_context(plane.client("alice")))
        oracle.write(5)
        serve.send_signal(signal.SIGKILL)
        serve.wait()
        oracle.write(5)
        with program(dsn, data_dir, "--port", port, *tls):
            await told_twice(database, oracle)
            oracle.write(5)
        oracle.write(5)
        with program(dsn, data_dir, "--port", port, *tls):
            oracle.write(5)
            found = await told_twice(database, oracle)
        with plane.client() as admin:
            metrics = admin.get("/metrics").text
        async with database.read.connect() as conn:
            blind = await gaps.read_window(conn, CLUSTER, datetime.now(UTC) - DAY, datetime.now(UTC))
    assert 'apiserver_audit_error_total{plugin="webhook"}' not in metrics, "the API server gave up"
    expected = Counter(oracle.wrote)
    assert told(found) - expected == Counter(), "phantoms and doubles"
    assert expected - told(found) == Counter(), "lost"
    assert {(one.actor.name, one.actor.source) for one in found} == {("alice", ActorSource.AUDIT)}
    assert Counter(one.verb for one in found if one.sources == {"audit", "watch"})[Verb.UPDATE] == 100
    assert not [one for one in blind if one.kind in ("", *KINDS)], blind


async def test_a_name_that_the_server_makes_up_is_found_though_the_request_does_not_say_it(
    dsn: str, database: Database, tmp_path: Path
) -> None:
    """At the level Metadata the audit log says nothing of such a name, at Request how it begins."""
    cert, key = certificate(tmp_path)
    data_dir = tmp_path / "data"
    token = token_for(dsn, NAMED)
    rules = [
        {"level": "Metadata", "resources": [{"group": "", "resources": ["configmaps"]}]},
        {"level": "Request", "resources": [{"group": "apps", "resources": ["deployments"]}]},
    ]
    policy = tmp_path / "poorer.yaml"
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    flags = (PATIENCE, f"--audit-policy-file={policy}")
    with ExitStack() as stack:
        _, address = stack.enter_context(
            program(dsn, data_dir, "--port", "0", "--tls-cert", str(cert), "--tls-key", str(key))
        )
        plane = stack.enter_context(webhook.telling(tmp_path, address, *flags, cluster=NAMED, token=token, cert=cert))
        let_alice_write(plane)
        webhook.follow(plane, data_dir, NAMED)
        await watched(database, NAMED)
        oracle = Oracle(stack.enter_context(plane.client("alice")))
        for number in range(10):
            oracle.generate(f"run-{number % 2}-")
        found = await told_twice(database, oracle, NAMED)
    assert told(found) == Counter(oracle.wrote)
    assert {(one.actor.name, *sorted(one.sources)) for one in found} == {("alice", "audit", "watch")}


def said_by(admin: httpx2.Client) -> Count:
    return read(admin.get("/metrics").content, datetime.now(UTC))


async def test_what_the_api_server_drops_is_read_from_its_metrics_and_who_may_not_is_told(
    tmp_path: Path,
) -> None:
    """Nobody listens where it sends to: it gives up after five tries."""
    cert, _ = certificate(tmp_path)
    nowhere = "https://127.0.0.1:9"
    brief = ("--audit-webhook-initial-backoff=10ms", "--audit-webhook-batch-max-wait=100ms")
    with webhook.telling(tmp_path, nowhere, *brief, cluster=CLUSTER, token="none", cert=cert) as plane:
        with plane.client() as admin:
            wait_until(lambda: said_by(admin).dropped > 0, "the API server gives up")
            found = said_by(admin)
        with Spool(tmp_path / "spool", most_bytes=1 << 20, key=b"k" * 32) as spool:

            async def sleep(wait: timedelta) -> None:
                if wait != FIRST:
                    raise asyncio.CancelledError

            bob = WantedCluster(CLUSTER, str(plane.kubeconfig("bob")))
            asking = ApiMetrics(bob.connect, Drops(spool, is_told=lambda: True), pace=Pace(sleep=sleep))
            with pytest.raises(asyncio.CancelledError):
                await asking.run()
    assert asking.remarks == (REMARK,)
    assert timedelta() < datetime.now(UTC) - datetime.fromtimestamp(found.started, UTC) < timedelta(minutes=5)
