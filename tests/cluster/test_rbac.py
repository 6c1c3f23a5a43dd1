"""deploy/rbac.yaml on a real API server: enough for all that is followed, and not more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from app.collect.apiserver import ApiServer
from app.collect.cluster import Following
from app.collect.discovery import discover
from app.collect.rbac import manifest
from app.collect.words import Blind, Served, Synced, Word
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import wait_until
from tests.cluster.test_watch import BRISK, api_of

DEPLOY = Path(__file__).parents[2] / "deploy"
CLUSTER_SCOPED = {
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "PriorityLevelConfiguration": "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
}
EVERYBODYS = {"selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews"}


def apply(plane: ControlPlane, text: str) -> None:
    """As `kubectl apply --server-side` does."""
    with plane.client() as admin:
        for one in yaml.safe_load_all(text):
            meta = one["metadata"]
            folder = CLUSTER_SCOPED.get(one["kind"]) or f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts"
            answer = admin.patch(
                f"{folder}/{meta['name']}",
                params={"fieldManager": "test", "fieldValidation": "Strict"},
                content=yaml.safe_dump(one),
                headers={"Content-Type": "application/apply-patch+yaml"},
            )
            assert answer.is_success, answer.text


def kubeconfig_of_account(plane: ControlPlane, namespace: str = "foreshock") -> Path:
    """A kubeconfig with a token of the ServiceAccount."""
    with plane.client() as admin:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/foreshock/token"
        answer = admin.post(path, json={"spec": {"expirationSeconds": 3600}})
    assert answer.is_success, answer.text
    content = yaml.safe_load(plane.kubeconfig("admin").read_text())
    content["users"][0]["user"]["token"] = answer.json()["status"]["token"]
    found = plane.folder / f"{namespace}-account.kubeconfig"
    found.write_text(yaml.safe_dump(content))
    return found


@asynccontextmanager
async def account(plane: ControlPlane, namespace: str = "foreshock") -> AsyncIterator[ApiServer]:
    api = await ApiServer.of_kubeconfig(str(kubeconfig_of_account(plane, namespace)))
    try:
        yield api
    finally:
        await api.close()


def rules_of(plane: ControlPlane, user: str) -> list[dict[str, Any]]:
    """What the API server says that somebody may, in all namespaces."""
    with plane.client() as admin:
        answer = admin.post(
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            json={"spec": {"namespace": "no-such-namespace"}},
            headers={"Impersonate-User": user, "Impersonate-Group": "system:authenticated"},
        )
    assert answer.is_success, answer.text
    assert answer.json()["status"]["incomplete"] is False
    found: list[dict[str, Any]] = answer.json()["status"]["resourceRules"]
    return found


def test_the_manifest_in_deploy_is_what_the_kinds_followed_need() -> None:
    assert (DEPLOY / "rbac.yaml").read_text() == manifest(), "run: foreshock rbac > deploy/rbac.yaml"


async def test_the_account_can_watch_every_kind_that_is_followed(control_plane: ControlPlane) -> None:
    apply(control_plane, (DEPLOY / "rbac.yaml").read_text())
    blind, synced, news = list[str](), set[Served](), asyncio.Event()

    def tell(served: Served | None, word: Word) -> None:
        if isinstance(word, Blind):
            blind.append(f"{served and served.path}: {word.why}")
        if isinstance(word, Synced) and served:
            synced.add(served)
        news.set()

    async with account(control_plane) as api, asyncio.timeout(120):
        wanted = set((await discover(api)).kinds)
        following = asyncio.create_task(Following(api, tell, since={}, pace=BRISK).run())
        while not blind and synced < wanted:
            news.clear()
            await news.wait()
        following.cancel()
        await asyncio.wait([following])
    assert not blind
    assert len(wanted) > 30
    assert ("", "Secret") not in {(one.api_group, one.kind) for one in wanted}


def test_the_account_may_write_nothing_and_read_no_secrets(control_plane: ControlPlane) -> None:
    apply(control_plane, (DEPLOY / "rbac.yaml").read_text())
    rules = rules_of(control_plane, "system:serviceaccount:foreshock:foreshock")
    own = [rule for rule in rules if not EVERYBODYS.issuperset(rule["resources"])]
    assert {verb for rule in own for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert not {"*", "secrets"} & {resource for rule in own for resource in rule["resources"]}
    assert "*" not in {group for rule in own for group in rule["apiGroups"]}


def test_the_requests_of_the_account_have_a_share_of_their_own(control_plane: ControlPlane) -> None:
    apply(control_plane, (DEPLOY / "rbac.yaml").read_text())
    token = yaml.safe_load(kubeconfig_of_account(control_plane).read_text())["users"][0]["user"]["token"]
    with control_plane.client() as client:
        level = client.get(f"{CLUSTER_SCOPED['PriorityLevelConfiguration']}/foreshock").json()

        def has_it() -> bool:
            answer = client.get("/api/v1/pods", headers={"Authorization": f"Bearer {token}"})
            return bool(answer.headers["X-Kubernetes-PF-PriorityLevel-UID"] == level["metadata"]["uid"])

        wait_until(has_it, "the API server has taken the FlowSchema up")


async def test_what_an_operator_adds_is_allowed(control_plane: ControlPlane) -> None:
    apply(control_plane, manifest(add=["secrets", "leases.coordination.k8s.io"], exclude=["pods"], namespace="other"))
    rules = rules_of(control_plane, "system:serviceaccount:other:foreshock")
    readable = {resource for rule in rules for resource in rule["resources"]}
    assert {"secrets", "leases", "nodes"} < readable
    assert "pods" not in readable
    apply(control_plane, (DEPLOY / "rbac.yaml").read_text())
    async with api_of(control_plane) as api:
        found = await discover(api, add=["secrets", "leases.coordination.k8s.io"], exclude=["pods"])
    assert not found.unserved
    assert {one.plural for one in found.kinds} >= {"secrets", "leases"}
