"""deploy/kubernetes.yaml on a real API server, which lets no pod in that could do harm."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import httpx2
import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_rbac import DEPLOY, apply

NAMESPACE = "foreshock-restricted"
FOLDERS = {
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Service": "/api/v1/namespaces/{}/services",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}


def written(name: str) -> str:
    """A file of deploy/, for a namespace of the test's own."""
    return (DEPLOY / name).read_text().replace("namespace: foreshock\n", f"namespace: {NAMESPACE}\n")


@pytest.fixture(scope="module")
def admin(control_plane: ControlPlane) -> Iterator[httpx2.Client]:
    """In a namespace that takes pods of the strictest standard alone
    (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""
    with control_plane.client() as client:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        made = client.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE, "labels": labels}})
        assert made.is_success, made.text
        accounts = yaml.safe_load_all(written("rbac.yaml"))
        apply(control_plane, yaml.safe_dump_all([one for one in accounts if one["kind"] == "ServiceAccount"]))
        yield client


def pod() -> Any:
    deployment = next(one for one in yaml.safe_load_all(written("kubernetes.yaml")) if one["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    return {"metadata": {"name": "tried", **template["metadata"]}, "spec": template["spec"]}


def tried(admin: httpx2.Client, body: Any) -> httpx2.Response:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    return admin.post(path, json=body, params={"dryRun": "All", "fieldValidation": "Strict"})


def test_the_api_server_takes_every_part(admin: httpx2.Client) -> None:
    parts = list(yaml.safe_load_all(written("kubernetes.yaml")))
    assert {one["kind"] for one in parts} == set(FOLDERS)
    for one in parts:
        made = admin.post(FOLDERS[one["kind"]].format(NAMESPACE), json=one, params={"fieldValidation": "Strict"})
        assert made.is_success, made.text
        assert "warning" not in made.headers, made.headers["warning"]


def test_its_pod_is_of_the_strictest_standard(admin: httpx2.Client) -> None:
    made = tried(admin, pod())
    assert made.is_success, made.text
    (container,) = made.json()["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    writable = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert writable == {"/var/lib/foreshock", "/tmp"}
    for field in ("allowPrivilegeEscalation", "capabilities"):
        laxer = deepcopy(pod())
        del laxer["spec"]["containers"][0]["securityContext"][field]
        assert tried(admin, laxer).status_code == 403, f"without {field} it would not be"
    root = deepcopy(pod())
    root["spec"]["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0}
    assert tried(admin, root).status_code == 403


def test_what_it_needs_is_named_alike_in_both_files() -> None:
    spec = pod()["spec"]
    accounts = {one["metadata"]["name"] for one in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text())}
    assert spec["serviceAccountName"] in accounts
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    (user,) = {spec["securityContext"][field] for field in ("runAsUser", "runAsGroup", "fsGroup")}
    assert f"USER {user}:{user}\n" in dockerfile
    (container,) = spec["containers"]
    assert "FORESHOCK_DATA_DIR=/var/lib/foreshock " in dockerfile
    assert {one["name"] for one in container["env"]} == {"DATABASE_URL", "FORESHOCK_PUBLIC_URL"}
