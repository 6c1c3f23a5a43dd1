"""The doctor at a real API server, as people of several kinds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.collect.contexts import WantedCluster
from app.collect.diagnosis import Finding, Level
from app.collect.doctor import examine
from app.collect.rbac import manifest
from app.failures import Exit
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_rbac import DEPLOY, apply, kubeconfig_of_account

CERTIFICATE_AUTHORITY = "certificate-authority"


def now() -> datetime:
    return datetime.now(UTC)


async def found(
    kubeconfig: Path, *, clock: Callable[[], datetime] = now, add: tuple[str, ...] = ()
) -> dict[str, Finding]:
    """The findings by what was looked at."""
    cluster = WantedCluster("test", str(kubeconfig), add=add)
    return {one.check: one for one in await examine(cluster, clock=clock, recorded={})}


def changed(plane: ControlPlane, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of the admin's kubeconfig in which something is otherwise."""
    content = json.loads(plane.kubeconfig("admin").read_text())
    change(content)
    path = plane.folder / "changed.kubeconfig"
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def account(control_plane: ControlPlane) -> Path:
    """As whom Foreshock is meant to look."""
    apply(control_plane, (DEPLOY / "rbac.yaml").read_text())
    return kubeconfig_of_account(control_plane)


async def test_the_account_of_the_manifest_lacks_nothing_but_an_audit_log(account: Path) -> None:
    said = await found(account)
    assert {check for check, one in said.items() if one.level is not Level.OK} == {"audit"}
    assert "as system:serviceaccount:foreshock:foreshock" in said["connection"].said
    assert said["version"].said.startswith("Kubernetes v1.")
    assert said["streaming lists"].said.startswith("yes")


async def test_who_may_too_little_is_told_what_will_not_be_seen(control_plane: ControlPlane) -> None:
    said = await found(control_plane.kubeconfig("alice"))
    lacks = said["permissions"]
    assert lacks.level is Level.PROBLEM
    assert "configmaps, events" in lacks.said
    assert "what goes wrong" in lacks.unseen
    assert "--clusterrole=foreshock --user=alice" in lacks.fix
    assert said["least privilege"].level is Level.OK


async def test_a_kind_alone_that_may_not_be_watched_is_named(control_plane: ControlPlane) -> None:
    apply(control_plane, manifest(exclude=["pods"], namespace="less"))
    said = await found(kubeconfig_of_account(control_plane, "less"))
    assert said["permissions"].said.endswith("kinds: pods")
    assert said["permissions"].fix == "foreshock rbac --namespace less | kubectl apply -f -"
    apply(control_plane, (DEPLOY / "rbac.yaml").read_text())


async def test_what_holds_in_one_namespace_alone_is_not_enough(control_plane: ControlPlane, namespace: str) -> None:
    role = {"metadata": {"name": "pods"}, "rules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}]}
    binding = {
        "metadata": {"name": "pods"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"},
        "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    with control_plane.client() as admin:
        for plural, one in (("roles", role), ("rolebindings", binding)):
            path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}"
            assert admin.post(path, json=one).is_success
    assert "pods" in (await found(control_plane.kubeconfig("bob")))["permissions"].said


async def test_who_may_too_much_is_told_so(control_plane: ControlPlane) -> None:
    said = await found(control_plane.kubeconfig("admin"))
    assert said["permissions"].level is Level.OK
    assert said["least privilege"].level is Level.WARNING
    assert "anything" in said["least privilege"].said


async def test_names_that_are_not_served_are_a_warning(account: Path) -> None:
    said = await found(account, add=("workflow", "leases.coordination.k8s.io"))
    assert said["kinds"].level is Level.WARNING
    assert said["kinds"].said.endswith("watched: workflow")
    assert said["permissions"].said.endswith("kinds: leases.coordination.k8s.io")
    assert "foreshock rbac --add workflow --add leases.coordination.k8s.io" in said["permissions"].fix


async def test_a_token_that_is_not_known_is_a_problem(control_plane: ControlPlane) -> None:
    def wrong(content: dict[str, Any]) -> None:
        content["users"][0]["user"]["token"] = "nobody's"

    [one] = (await found(changed(control_plane, wrong))).values()
    assert (one.check, one.level, one.unseen) == ("connection", Level.PROBLEM, "anything")
    assert "401" in one.said
    assert "nobody's" not in one.said + one.fix
    assert "auth whoami" in one.fix


def asked_as(kubeconfig: Path, folder: Path, user: dict[str, Any]) -> dict[str, str]:
    """Writes a copy of a kubeconfig, ``config``, with another user; the user that it had."""
    content = yaml.safe_load(kubeconfig.read_text())
    had: dict[str, str] = content["users"][0]["user"]
    content["users"][0]["user"] = user
    (folder / "config").write_text(json.dumps(content))
    return had


async def test_a_token_in_a_file_that_ends_its_line_is_taken(account: Path, tmp_path: Path) -> None:
    token = asked_as(account, tmp_path, {"tokenFile": str(tmp_path / "token")})["token"]
    (tmp_path / "token").write_text(f"{token}\n")
    assert (await found(tmp_path / "config"))["permissions"].level is Level.OK
    (tmp_path / "token").write_text("nobody's\nand another\n")
    [one] = (await found(tmp_path / "config")).values()
    assert (one.level, "one line" in one.said, "nobody's" in one.said) == (Level.PROBLEM, True, False)


@pytest.mark.parametrize("plugin", [["nowhere-to-be-found"], ["false"], ["echo", "hello"]])
async def test_a_plugin_that_makes_no_credential_is_said_and_nobody_asks_as_nobody(
    account: Path, tmp_path: Path, plugin: list[str]
) -> None:
    command = {"command": plugin[0], "args": plugin[1:], "interactiveMode": "Never"}
    asked_as(account, tmp_path, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **command}})
    [one] = (await found(tmp_path / "config")).values()
    assert (one.check, one.level, "plugin (exec)" in one.said) == ("connection", Level.PROBLEM, True)


@pytest.mark.parametrize(
    "server", ["", "shop.example:6443", "https://[::1", "https://shop.example:99999", "https://a..b"]
)
async def test_a_server_that_is_none_is_said(control_plane: ControlPlane, server: str) -> None:
    def wrong(content: dict[str, Any]) -> None:
        content["clusters"][0]["cluster"]["server"] = server

    [one] = (await found(changed(control_plane, wrong))).values()
    assert (one.check, one.level) == ("connection", Level.PROBLEM)


async def test_a_certificate_of_somebody_else_is_a_problem(control_plane: ControlPlane) -> None:
    [one] = (
        await found(
            changed(control_plane, lambda content: content["clusters"][0]["cluster"].pop(CERTIFICATE_AUTHORITY))
        )
    ).values()
    assert one.level is Level.PROBLEM
    assert "not to be trusted" in one.said
    assert "--certificate-authority" in one.fix


async def test_an_address_where_nobody_listens_is_a_problem(control_plane: ControlPlane) -> None:
    def elsewhere(content: dict[str, Any]) -> None:
        content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"

    [one] = (await found(changed(control_plane, elsewhere))).values()
    assert one.level is Level.PROBLEM
    assert "https://127.0.0.1:1" in one.said
    assert "curl" in one.fix


async def test_a_kubeconfig_that_is_none_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("")
    [one] = (await found(path)).values()
    assert (one.level, str(path) in one.said) == (Level.PROBLEM, True)


@pytest.mark.parametrize(("off", "said"), [(-3600, "ahead of ours"), (3600, "behind ours")])
async def test_a_clock_that_is_off_is_a_warning(account: Path, off: int, said: str) -> None:
    one = (await found(account, clock=lambda: now() + timedelta(seconds=off)))["clock"]
    assert (one.level, said in one.said) == (Level.WARNING, True), one


@pytest.fixture
def apiserver_pod(control_plane: ControlPlane) -> Iterator[None]:
    """The API server's own pod, as kubeadm has it."""
    command = ["kube-apiserver", "--audit-policy-file=/p", "--event-ttl=2h0m0s"]
    pod = {
        "metadata": {"name": "kube-apiserver-a", "labels": {"component": "kube-apiserver"}},
        "spec": {"containers": [{"name": "kube-apiserver", "image": "kube-apiserver", "command": command}]},
    }
    pods = "/api/v1/namespaces/kube-system/pods"
    with control_plane.client() as admin:
        admin.post("/api/v1/namespaces/kube-system/serviceaccounts", json={"metadata": {"name": "default"}})
        made = admin.post(pods, json=pod)
        assert made.is_success, made.text
        yield
        admin.delete(f"{pods}/kube-apiserver-a?gracePeriodSeconds=0")


@pytest.mark.usefixtures("apiserver_pod")
async def test_the_flags_of_an_api_server_in_a_pod_are_read(account: Path) -> None:
    said = await found(account)
    assert "no --audit-webhook-config-file" in said["audit"].said
    assert "2h0m0s" in said["events"].said


def test_the_command_says_it_in_words_or_json_and_by_its_exit_code(
    control_plane: ControlPlane, account: Path, tmp_path: Path
) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "app", "doctor", *arguments]
        ours = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        ours |= {"FORESHOCK_DATA_DIR": str(tmp_path / "none"), "KUBECONFIG": f"{tmp_path}/nothing:{account}"}
        return subprocess.run(command, env=ours, capture_output=True, text=True, timeout=60, check=False)

    read = run("--json")
    assert read.returncode == Exit.WARNED, read.stderr
    [(cluster, findings)] = json.loads(read.stdout).items()
    assert cluster == "admin"  # the context's name
    assert {one["level"] for one in findings} == {"ok", "warning"}
    assert not (tmp_path / "none").exists()

    told = run("--kubeconfig", str(control_plane.kubeconfig("alice")))
    assert told.returncode == Exit.BLIND
    assert told.stdout.startswith("alice\n  ok       connection")
    assert "fix: foreshock rbac" in told.stdout

    strange = run("--context", "nowhere")
    assert strange.returncode == Exit.BLIND
    assert "nowhere" in strange.stdout

    nothing = run("--kubeconfig", str(tmp_path / "none"))
    assert nothing.returncode == Exit.WRONG_USE
