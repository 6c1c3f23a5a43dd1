"""A change is undone from its page, on a real API server: as who asks, after a dry run, and only what that showed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_rbac import DEPLOY, apply
from tests.serving import program

Json = dict[str, Any]
CLUSTER = "admin"
"""As the context is called that is followed."""
ALICE, BOB, EVE = "alice@example.com", "bob@example.com", "eve@example.com"
DAVE = "dave@example.com"
SYSTEM = "system:admin"
WITHIN = 30.0
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
CANARY = "Qz7-hunter2-canary-9fK"
ACCESS = {
    "groups": {"sre": {"role": "operator"}, "shop": {"role": "responder"}},
    "users": {**{one: {"role": "operator"} for one in (BOB, DAVE, EVE)}, SYSTEM: {"role": "admin"}},
}


@dataclass(frozen=True)
class World:
    """A cluster, and who looks at it with a browser that a proxy lets through."""

    plane: ControlPlane
    admin: httpx2.Client
    address: str
    reverts: Path
    namespace: str = "default"

    @contextmanager
    def browser(self, user: str, groups: str = "") -> Iterator[httpx2.Client]:
        told = {"X-Forwarded-User": user, "X-Forwarded-Groups": groups}
        with httpx2.Client(base_url=self.address, headers=told, timeout=30, trust_env=False) as found:
            yield found

    def path(self, kind: str, name: str = "") -> str:
        group = "/apis/apps/v1" if kind == "deployments" else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def make(self, kind: str, name: str, **more: Any) -> None:
        made = self.admin.post(self.path(kind), json={"metadata": {"name": name}, **more})
        assert made.is_success, made.text

    def edit(self, kind: str, name: str, patch: Json, headers: dict[str, str] = MERGE) -> None:
        done = self.admin.patch(self.path(kind, name), content=json.dumps(patch), headers=headers)
        assert done.is_success, done.text

    def read(self, kind: str, name: str) -> Json | None:
        found = self.admin.get(self.path(kind, name))
        return found.json() if found.is_success else None

    def change(self, name: str, count: int) -> str:
        """The id of the last of so many changes of an object."""

        def seen() -> list[Json]:
            with self.browser(ALICE, "sre") as alice:
                asked = {"limit": "1000", "text": name, "namespace": self.namespace}
                found = alice.get("/api/v1/changes", params=asked)
            if found.status_code == 404:
                return []  # nothing was seen yet in a namespace of this name
            found.raise_for_status()
            items: list[Json] = [one for one in found.json()["items"] if one["resource"]["name"] == name]
            return items if len(items) >= count else []

        return str(until(f"{count} changes of {name}", seen)[0]["id"])


def until(what: str, holds: Callable[[], Any]) -> Any:
    ends = time.monotonic() + WITHIN
    while not (found := holds()):
        assert time.monotonic() < ends, what
        time.sleep(0.1)
    return found


def account(plane: ControlPlane, admin: httpx2.Client) -> Path:
    """A kubeconfig of the account that may act for people, as deploy/reverts-rbac.yaml has it."""
    apply(plane, (DEPLOY / "reverts-rbac.yaml").read_text())
    path = "/api/v1/namespaces/foreshock/serviceaccounts/foreshock-reverts/token"
    answer = admin.post(path, json={"spec": {"expirationSeconds": 3600}})
    assert answer.is_success, answer.text
    content = yaml.safe_load(plane.kubeconfig("admin").read_text())
    content["users"][0]["user"]["token"] = answer.json()["status"]["token"]
    found = plane.folder / "reverts.kubeconfig"
    found.write_text(yaml.safe_dump(content))
    return found


def allow(admin: httpx2.Client, kind: str, name: str, *resources: str, rule: Json | None = None) -> None:
    """Who may read and write these in the namespace, or do what a rule says."""
    root = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    role = re.sub("[^a-z]", "-", name)
    rule = rule or {"apiGroups": ["", "apps"], "resources": resources, "verbs": ["get", "patch", "create", "delete"]}
    group = "rbac.authorization.k8s.io"
    subject = {"apiGroup": group, "kind": kind, "name": name}
    reference = {"apiGroup": group, "kind": "Role", "name": role}
    for what, told in (
        ("Role", {"rules": [rule]}),
        ("RoleBinding", {"roleRef": reference, "subjects": [subject]}),
    ):
        body = {"apiVersion": f"{group}/v1", "kind": what, "metadata": {"name": role}, **told}
        applied = admin.patch(
            f"{root}/{what.lower()}s/{role}",
            params={"fieldManager": "test"},
            content=json.dumps(body),
            headers={"Content-Type": "application/apply-patch+yaml"},  # there already, where another module has it
        )
        assert applied.is_success, applied.text


def may_be_acted_for(lab: World, person: str) -> None:
    """As Alice may, whom deploy/reverts-rbac.yaml names."""
    name = re.sub("[^a-z]", "-", person)
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["users"],
        "verbs": ["impersonate:user-info"],
        "resourceNames": [person],
    }
    subject = {"kind": "ServiceAccount", "namespace": "foreshock", "name": "foreshock-reverts"}
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    told = (("ClusterRole", {"rules": [rule]}), ("ClusterRoleBinding", {"roleRef": reference, "subjects": [subject]}))
    for kind, more in told:
        one = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, **more}
        apply(lab.plane, yaml.safe_dump(one))


@pytest.fixture(scope="module")
def lab(dsn: str, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("serve")
    with control_plane.client() as admin:
        kubeconfig = account(control_plane, admin)
        allow(admin, "Group", "sre", "configmaps", "deployments")
        (folder / "access.yaml").write_text(json.dumps(ACCESS))
        reverts = folder / "reverts.yaml"
        reverts.write_text(json.dumps({CLUSTER: {"kubeconfig": str(kubeconfig), "groups": ["sre"]}}))
        where = {
            "KUBECONFIG": str(control_plane.kubeconfig()),
            "FORESHOCK_CLUSTERS_FILE": "",
            "FORESHOCK_REVERTS_FILE": str(reverts),
            "FORESHOCK_PROXY_USER_HEADER": "X-Forwarded-User",
            "FORESHOCK_PROXY_GROUPS_HEADER": "X-Forwarded-Groups",
            "FORESHOCK_TRUSTED_PROXIES": "127.0.0.1",
        }
        with program(dsn, folder, "--port", "0", **where) as (_, address):
            yield World(control_plane, admin, address, reverts)


def shown(answer: httpx2.Response) -> str:
    """What a page says, in words."""
    main = answer.text.partition("<main")[2]
    return " ".join(unescape(re.sub("<[^>]*>", " ", main)).split())


def seen_in(answer: httpx2.Response) -> str:
    found = re.search('name="seen" value="([0-9a-f]{64})"', answer.text)
    assert found, shown(answer)
    return found[1]


def tried(browser: httpx2.Client, change_id: str) -> httpx2.Response:
    return browser.post(f"/changes/{change_id}/dry-run")


def done(browser: httpx2.Client, change_id: str, seen: str) -> httpx2.Response:
    return browser.post(f"/changes/{change_id}/undo", data={"seen": seen})


def container(image: str, **more: Any) -> Json:
    return {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": image, **more}]}}}}


def deployment(name: str) -> Json:
    env = [{"name": "DB_PASSWORD", "value": CANARY}]
    labels = {"app": name}
    spec = container("r/app:v1", env=env)["spec"]
    spec["template"]["metadata"] = {"labels": labels}
    return {"spec": {"replicas": 2, "selector": {"matchLabels": labels}, **spec}}


def wanted(state: Json | None) -> Json | None:
    return state and {field: state.get(field) for field in ("spec", "data")}


UPDATES = [
    ("values", "configmaps", {"data": {"a": "1", "b": "2"}}, {"data": {"a": "9", "b": None, "c": "3"}}, MERGE),
    ("scaled", "deployments", deployment("scaled"), {"spec": {"replicas": 7}}, MERGE),
    ("rolled", "deployments", deployment("rolled"), container("r/app:v2", tty=True), STRATEGIC),
]


@pytest.mark.parametrize(("name", "kind", "made", "edit", "headers"), UPDATES)
def test_a_dry_run_is_shown_and_then_done(
    lab: World, name: str, kind: str, made: Json, edit: Json, headers: dict[str, str]
) -> None:
    lab.make(kind, name, **made)
    lab.change(name, 1)
    before = lab.read(kind, name)
    lab.edit(kind, name, edit, headers)
    change_id = lab.change(name, 2)
    changed = lab.read(kind, name)
    with lab.browser(ALICE, "sre, staff") as alice:
        page = alice.get(f"/changes/{change_id}")
        assert "Try it from here a dry run, as alice@example.com" in shown(page)
        answer = tried(alice, change_id)
        assert answer.status_code == 200, shown(answer)
        assert "This would undo it" in shown(answer)
        assert lab.read(kind, name) == changed, "a dry run changes nothing"
        end = done(alice, change_id, seen_in(answer))
        assert end.status_code == 200, shown(end)
        assert "Undone" in shown(end)
        assert wanted(lab.read(kind, name)) == wanted(before)
        for one in (page, answer, end):
            assert CANARY not in one.text
        lab.change(name, 3)
        assert "It cannot be undone from here: the values before are there again" in shown(
            alice.get(f"/changes/{change_id}")
        )
        assert tried(alice, change_id).status_code == 409
    written = [
        one
        for one in lab.plane.audited()
        if one["verb"] == "patch" and "impersonatedUser" in one and one["objectRef"]["name"] == name
    ]
    assert {one["user"]["username"] for one in written} == {"system:serviceaccount:foreshock:foreshock-reverts"}
    assert {one["impersonatedUser"]["username"] for one in written} == {ALICE}
    assert {group for one in written for group in one["impersonatedUser"]["groups"]} == {
        "sre",
        "system:authenticated",
    }


def test_what_was_made_is_deleted_and_what_was_deleted_is_made(lab: World) -> None:
    lab.make("configmaps", "made", data={"a": "1"})
    made = lab.change("made", 1)
    with lab.browser(ALICE, "sre") as alice:
        answer = tried(alice, made)
        assert "delete configmaps/made -n default" in shown(answer)
        assert lab.read("configmaps", "made") is not None
        assert "Undone" in shown(done(alice, made, seen_in(answer)))
        assert lab.read("configmaps", "made") is None
        gone = lab.change("made", 2)
        answer = tried(alice, gone)
        assert "create configmaps/made -n default" in shown(answer)
        assert lab.read("configmaps", "made") is None
        assert "Undone" in shown(done(alice, gone, seen_in(answer)))
    assert (lab.read("configmaps", "made") or {})["data"] == {"a": "1"}


def test_what_is_secret_is_shown_of_no_object(lab: World) -> None:
    """All of it stands in the difference here."""
    lab.make("deployments", "secretive", **deployment("secretive"))
    made = lab.change("secretive", 1)
    with lab.browser(ALICE, "sre") as alice:
        answer = tried(alice, made)
        assert "DB_PASSWORD" in answer.text
        assert CANARY not in answer.text
        end = done(alice, made, seen_in(answer))
        assert "Undone" in shown(end)
        assert CANARY not in end.text
        gone = tried(alice, lab.change("secretive", 2))
    assert gone.status_code == 409
    assert CANARY not in gone.text


def edited(lab: World, name: str) -> str:
    """A map whose value of "a" was 1 and is 2: the change."""
    lab.make("configmaps", name, data={"a": "1"})
    lab.change(name, 1)
    lab.edit("configmaps", name, {"data": {"a": "2"}})
    return lab.change(name, 2)


def test_what_would_do_something_else_by_now_is_not_done(lab: World) -> None:
    change_id = edited(lab, "moved")
    with lab.browser(ALICE, "sre") as alice:
        seen = seen_in(tried(alice, change_id))
        lab.edit("configmaps", "moved", {"data": {"a": "3"}})
        answer = done(alice, change_id, seen)
        assert answer.status_code == 409
        assert "It would do something else now than it showed" in shown(answer)
        assert (lab.read("configmaps", "moved") or {})["data"] == {"a": "3"}
        lab.change("moved", 3)
        again = tried(alice, change_id)
        assert "changed the same fields" in shown(again), "it is told what else goes with it"
        assert "Undone" in shown(done(alice, change_id, seen_in(again)))
    assert (lab.read("configmaps", "moved") or {})["data"] == {"a": "1"}


def test_what_else_is_written_meanwhile_stays(lab: World) -> None:
    change_id = edited(lab, "beside")
    with lab.browser(ALICE, "sre") as alice:
        seen = seen_in(tried(alice, change_id))
        lab.edit("configmaps", "beside", {"data": {"other": "x"}})
        assert "Undone" in shown(done(alice, change_id, seen))
    assert (lab.read("configmaps", "beside") or {})["data"] == {"a": "1", "other": "x"}


def test_nobody_may_more_than_they_may_in_the_cluster(lab: World) -> None:
    """Bob may be an operator of Foreshock; the API server knows him, and lets him do nothing. Eve it does not know."""
    may_be_acted_for(lab, BOB)
    change_id = edited(lab, "theirs")
    with lab.browser(BOB, "sre-lookalike") as bob, lab.browser(EVE) as eve, lab.browser(ALICE, "sre") as alice:
        seen = seen_in(tried(alice, change_id))
        for answer in (tried(bob, change_id), done(bob, change_id, seen)):
            assert answer.status_code == 409
            assert f'User "{BOB}" cannot get resource "configmaps"' in shown(answer)
        for answer in (tried(eve, change_id), done(eve, change_id, seen)):
            assert answer.status_code == 409
            assert "impersonate" in shown(answer)
    assert (lab.read("configmaps", "theirs") or {})["data"] == {"a": "2"}


def test_the_account_itself_may_nothing(lab: World) -> None:
    token = yaml.safe_load((lab.plane.folder / "reverts.kubeconfig").read_text())["users"][0]["user"]["token"]
    with lab.plane.client() as itself:
        itself.headers["Authorization"] = f"Bearer {token}"
        secrets = "/api/v1/namespaces/default/secrets"
        assert itself.get(lab.path("configmaps")).status_code == 403
        assert itself.get(secrets, headers={"Impersonate-User": "admin"}).status_code == 403
        reads = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}
        allow(lab.admin, "User", ALICE, rule=reads)
        as_alice = {"Impersonate-User": ALICE}
        assert itself.get(lab.path("configmaps", "nothing"), headers=as_alice).status_code == 403
        refused = itself.get(f"{secrets}/nothing", headers=as_alice)
        assert refused.status_code == 403, "she may read them, but the account not for her"
        assert "impersonate-on:user-info:get" in refused.text
        master = {"Impersonate-User": ALICE, "Impersonate-Group": "system:masters"}
        assert itself.get(secrets, headers=master).status_code == 403
        assert itself.get(lab.path("configmaps"), headers={"Impersonate-User": SYSTEM}).status_code == 403


def test_who_is_no_operator_or_has_no_name_undoes_nothing(lab: World) -> None:
    change_id = edited(lab, "closed")
    with lab.browser("carol@example.com", "shop") as carol:
        assert "Try it from here" not in carol.get(f"/changes/{change_id}").text
        assert tried(carol, change_id).status_code == 403
        assert done(carol, change_id, "0" * 64).status_code == 403
    with lab.browser(SYSTEM) as system:
        assert "is a name that Kubernetes keeps for itself" in shown(system.get(f"/changes/{change_id}"))
        assert tried(system, change_id).status_code == 403
    with lab.browser(ALICE, "sre") as alice:
        foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
        assert alice.post(f"/changes/{change_id}/dry-run", headers=foreign).status_code == 403
        assert alice.post(f"/changes/{change_id}/undo", data={}).status_code == 422
        assert alice.get(f"/changes/{change_id}/undo").status_code in (404, 405)
    assert (lab.read("configmaps", "closed") or {})["data"] == {"a": "2"}


def test_what_the_cluster_refuses_is_told_before_it_is_asked_for(lab: World) -> None:
    change_id = edited(lab, "guarded")
    root = "/apis/admissionregistration.k8s.io/v1"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["UPDATE"]}]
    said = f"password={CANARY} may not be one again"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "one", "expression": "object.metadata.name == 'guarded'"}],
        "validations": [{"expression": "object.data.a != '1'", "message": said}],
    }
    binding = {"policyName": "guarded", "validationActions": ["Deny"]}
    for kind, body in (("validatingadmissionpolicies", spec), ("validatingadmissionpolicybindings", binding)):
        made = lab.admin.post(f"{root}/{kind}", json={"metadata": {"name": "guarded"}, "spec": body})
        assert made.is_success, made.text
    path, back = lab.path("configmaps", "guarded"), json.dumps({"data": {"a": "1"}})
    until(
        "the policy holds",
        lambda: lab.admin.patch(path, content=back, headers=MERGE, params={"dryRun": "All"}).status_code == 422,
    )
    with lab.browser(ALICE, "sre") as alice:
        answer = tried(alice, change_id)
        assert answer.status_code == 409
        assert "may not be one again" in shown(answer)
        assert CANARY not in answer.text


def test_each_step_is_in_the_audit_log(lab: World) -> None:
    change_id = edited(lab, "noted")
    with lab.browser(ALICE, "sre") as alice, lab.browser(SYSTEM) as admin:
        seen = seen_in(tried(alice, change_id))
        done(alice, change_id, "0" * 64)
        done(alice, change_id, seen)
        entries = admin.get("/api/v1/audit", params={"who": ALICE, "limit": "5"}).json()["items"]
    about = f"{change_id} in {CLUSTER}, as {ALICE}: patch configmaps/noted -n default"
    assert [(one["action"], one["about"].startswith(about)) for one in entries][::-1] == [
        ("revert tried", True),
        ("revert begun", True),
        ("revert failed", True),
        ("revert begun", True),
        ("revert done", True),
    ]


def test_where_the_file_names_no_cluster_or_no_way_nothing_is_undone(lab: World) -> None:
    change_id = edited(lab, "unnamed")
    kept = lab.reverts.read_text()
    with lab.browser(ALICE, "sre") as alice:
        lab.reverts.write_text("{}")
        assert "Try it from here" not in alice.get(f"/changes/{change_id}").text
        assert tried(alice, change_id).status_code == 403
        lab.reverts.write_text(json.dumps({CLUSTER: {"kubeconfig": "/nowhere/at-all"}}))
        answer = tried(alice, change_id)
        assert answer.status_code == 409
        assert "/nowhere/at-all: there is no such kubeconfig" in shown(answer)
        lab.reverts.write_text("{")
        assert tried(alice, change_id).status_code == 403, "what is no good is off"
        lab.reverts.write_text("")
        assert tried(alice, change_id).status_code == 403
        lab.reverts.unlink()
        assert tried(alice, change_id).status_code == 403
        lab.reverts.write_text(kept)
        assert tried(alice, change_id).status_code == 200
