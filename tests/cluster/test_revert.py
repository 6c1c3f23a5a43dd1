"""What is told to undo a change does undo it: real commands, given to a real kubectl, of what `foreshock serve` saw."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import orjson
import pytest
import yaml

from tests.cluster.programs import found
from tests.cluster.test_rollouts import World, world

Json = dict[str, Any]
SERVER_SIDE = {"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "annotations"}
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgetry.shop.example}
spec:
  group: shop.example
  scope: Namespaced
  names: {kind: Widget, plural: widgetry}
  versions:
    - name: v1beta2
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture(scope="module")
def lab(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    found("kubectl")
    with world(dsn, tmp_path_factory.mktemp("serve")) as one:
        yield one


def shell(lab: World, command: str, name: str = "", *, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """A command as a person pastes it, with the kubectl of the control plane; ``name`` is $N there."""
    programs = f"{Path(found('kubectl')).parent}:{os.environ['PATH']}"
    env = {**os.environ, "KUBECONFIG": str(lab.plane.kubeconfig()), "PATH": programs, "N": name}
    with NamedTemporaryFile("w", suffix=".sh") as script:  # some are longer than one argument may be
        script.write(command)
        script.flush()
        return subprocess.run(
            ["sh", script.name], env=env, input=given, capture_output=True, text=True, timeout=60, check=False
        )


def done(lab: World, command: str, name: str = "", *, given: str | None = None) -> str:
    ran = shell(lab, command, name, given=given)
    assert ran.returncode == 0, f"{command}: {ran.stderr}"
    return ran.stdout


def wanted(lab: World, what: str) -> Json | None:
    """What is wanted of an object, as it is now; None where it is not there."""
    ran = shell(lab, f"kubectl get {what} -o json")
    if ran.returncode:
        assert "NotFound" in ran.stderr, ran.stderr
        return None
    whole: Json = orjson.loads(ran.stdout)
    whole.pop("status", None)
    whole["metadata"] = {field: value for field, value in whole["metadata"].items() if field not in SERVER_SIDE}
    return whole


def newest(lab: World, name: str, count: int) -> str:
    """The id of the last change of an object, once it has so many."""
    changes = lab.until(f"{count} changes of {name}", lambda: (c := lab.changes(name))[count - 1 :] and c)
    return str(changes[-1]["id"])


def recipe(lab: World, change_id: str) -> Json:
    answer: Json = lab.rest.get(f"/api/v1/changes/{change_id}/revert").raise_for_status().json()
    return answer


def manifest(lab: World, change_id: str, which: str) -> str:
    answer = lab.rest.get(f"/api/v1/changes/{change_id}/manifest", params={"which": which})
    return answer.raise_for_status().text


MAP = "kubectl create configmap $N --from-literal=a=1 --from-literal=b=it\\'s"
ROLE = "kubectl create role $N --verb=get --verb=list --resource=pods"
DEPLOYMENT = "kubectl create deployment $N --image=r/app:v1 --replicas=1"
PAUSED = f"{DEPLOYMENT} && kubectl rollout pause deployment/$N"
IMAGE = "kubectl set image deployment/$N app=r/app:v2"
SCALED = "kubectl scale deployment/$N --replicas=3"
SEVERAL = (
    """kubectl patch deployment/$N -p '{"spec":{"replicas":2,"template":{"spec":"""
    """{"containers":[{"name":"app","env":[{"name":"A","value":"1"}]}]}}}}'"""
)
LONG = "cd $(mktemp -d) && seq 1 30000 >rules && kubectl create configmap $N --from-file=rules"
SHORT = """kubectl patch configmap/$N -p '{"data":{"rules":"1"}}'"""
SETTINGS = """kubectl patch configmap/$N -p '{"data":{"a":"2","c":"3"}}'"""
SERVICE = "kubectl create service clusterip $N --tcp=80 --tcp=9090"
PORT = """kubectl patch service/$N --type json -p '[{"op":"replace","path":"/spec/ports/0/port","value":81}]'"""
RULES = """kubectl patch role/$N --type merge -p '{"rules":[]}'"""


@pytest.mark.parametrize(
    ("name", "kind", "made", "edit", "how"),
    [
        ("scaled", "deployment", DEPLOYMENT, SCALED, "kubectl scale"),
        ("rolled", "deployment", DEPLOYMENT, IMAGE, "kubectl rollout undo"),
        ("paused", "deployment", PAUSED, IMAGE, "kubectl patch"),
        ("several", "deployment", DEPLOYMENT, SEVERAL, "kubectl patch"),
        ("edited", "configmap", MAP, SETTINGS, "kubectl patch"),
        ("long", "configmap", LONG, SHORT, "kubectl patch"),
        ("ruled", "role", ROLE, RULES, "kubectl patch"),
        ("ported", "service", SERVICE, PORT, "kubectl patch"),
        ("gone", "configmap", MAP, "kubectl delete configmap/$N", "kubectl apply"),
    ],
)
def test_what_is_told_undoes_it_and_its_dry_run_does_nothing(
    lab: World, name: str, kind: str, made: str, edit: str, how: str
) -> None:
    what = f"{kind}/{name}"
    done(lab, made, name)
    newest(lab, name, 2 if made == PAUSED else 1)
    before, count = wanted(lab, what), len(lab.changes(name))
    done(lab, edit, name)
    change_id = newest(lab, name, count + 1)
    changed = wanted(lab, what)
    assert changed != before
    told = recipe(lab, change_id)
    assert told["command"].startswith(how), told
    done(lab, told["dry_run"])
    assert wanted(lab, what) == changed
    done(lab, told["command"])
    assert wanted(lab, what) == before
    newest(lab, name, count + 2)
    assert recipe(lab, change_id)["command"] == "", "nothing is left to undo"


def test_a_job_that_was_deleted_is_made_again(lab: World) -> None:
    done(lab, "kubectl create job again --image=r/app:v1")
    newest(lab, "again", 1)
    done(lab, "kubectl delete job/again")
    change_id = newest(lab, "again", 2)
    told = recipe(lab, change_id)
    done(lab, told["dry_run"])
    done(lab, "kubectl apply --dry-run=server -f -", given=manifest(lab, change_id, "before"))
    done(lab, told["command"])
    assert wanted(lab, "job/again") is not None


def test_what_finalizers_keep_is_told_to_be_going(lab: World) -> None:
    done(lab, MAP, "kept")
    done(lab, """kubectl patch configmap/kept -p '{"metadata":{"finalizers":["shop.example/keep"]}}'""")
    newest(lab, "kept", 2)
    done(lab, "kubectl delete configmap/kept --wait=false")
    change_id = newest(lab, "kept", 3)
    told = recipe(lab, change_id)
    assert told["command"] == ""
    assert "It is being deleted" in told["warnings"][0]["text"]
    done(lab, """kubectl patch configmap/kept --type merge -p '{"metadata":{"finalizers":null}}'""")
    lab.until("kept to be gone", lambda: recipe(lab, change_id)["command"].startswith("kubectl apply"))


def test_a_rollout_that_is_not_the_last_is_undone_by_its_own_values(lab: World) -> None:
    done(lab, DEPLOYMENT, "twice")
    newest(lab, "twice", 1)
    done(lab, "kubectl set image deployment/twice app=r/app:v2")
    first = newest(lab, "twice", 2)
    done(lab, "kubectl set env deployment/twice MODE=fast")
    newest(lab, "twice", 3)
    told = recipe(lab, first)
    assert told["command"].startswith("kubectl patch deployments.apps/twice")
    assert "newer template" in told["warnings"][0]["text"]
    done(lab, told["dry_run"])
    done(lab, told["command"])
    state = wanted(lab, "deployment/twice")
    assert state is not None
    (container,) = state["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["env"]) == ("r/app:v1", [{"name": "MODE", "value": "fast"}])


def test_a_created_object_is_deleted(lab: World) -> None:
    done(lab, MAP, "made")
    told = recipe(lab, newest(lab, "made", 1))
    done(lab, told["dry_run"])
    assert wanted(lab, "configmap/made") is not None
    done(lab, told["command"])
    assert wanted(lab, "configmap/made") is None


def test_kubectl_finds_no_difference_to_the_manifest_after(lab: World) -> None:
    done(lab, DEPLOYMENT, "same")
    newest(lab, "same", 1)
    done(lab, "kubectl set image deployment/same app=r/app:v2")
    change_id = newest(lab, "same", 2)
    assert done(lab, "kubectl diff -f -", given=manifest(lab, change_id, "after")) == ""
    differs = shell(lab, "kubectl diff -f -", given=manifest(lab, change_id, "before"))
    lines = [line[1:].strip() for line in differs.stdout.splitlines() if line[:1] in "+-" and line[1:2] == " "]
    assert sorted(line for line in lines if not line.startswith("generation")) == [
        "- image: r/app:v1",
        "- image: r/app:v2",
    ]
    done(lab, "kubectl apply -f -", given=manifest(lab, change_id, "before"))
    assert "r/app:v1" in done(lab, "kubectl get deployment/same -o yaml")


def test_a_custom_resource_comes_back_in_the_version_that_its_definition_serves(lab: World) -> None:
    done(lab, "kubectl apply -f - && kubectl wait --for condition=established crd/widgetry.shop.example", given=CRD)
    widget = {"apiVersion": "shop.example/v1beta2", "kind": "Widget", "metadata": {"name": "odd"}, "spec": {"n": 1}}
    done(lab, "kubectl create -f -", given=orjson.dumps(widget).decode())
    newest(lab, "odd", 1)
    done(lab, 'kubectl patch widgetry/odd --type merge -p \'{"spec":{"n":2}}\'')
    change_id = newest(lab, "odd", 2)
    told = recipe(lab, change_id)
    assert told["command"].startswith("kubectl patch widgetry.shop.example/odd")
    assert yaml.safe_load(manifest(lab, change_id, "before"))["apiVersion"] == "shop.example/v1beta2"
    done(lab, told["dry_run"])
    done(lab, told["command"])
    before = wanted(lab, "widgetry/odd")
    assert before is not None
    assert before["spec"] == {"n": 1}
    done(lab, "kubectl delete widgetry/odd")
    told = recipe(lab, newest(lab, "odd", 4))
    done(lab, told["dry_run"])
    done(lab, told["command"])
    assert wanted(lab, "widgetry/odd") == before


CRON = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: tidied}
spec:
  schedule: "@daily"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          initContainers: [{name: one, image: "r:1"}, {name: two, image: "r:1"}, {name: three, image: "r:1"}]
          containers: [{name: app, image: "r:1", env: [{name: A, value: "1"}, {name: B, value: $(A)}, {name: C}]}]
"""
WITHOUT = """
spec:
  jobTemplate:
    spec:
      template:
        spec:
          initContainers: [{name: one, image: "r:2"}, {name: two, $patch: delete}]
          containers: [{name: app, env: [{name: B, $patch: delete}]}]
"""
TURNED = """
spec:
  jobTemplate:
    spec:
      template:
        spec:
          $setElementOrder/initContainers: [{name: three}, {name: one}]
"""


@pytest.mark.parametrize("since", ["", TURNED])
def test_what_was_taken_out_of_a_list_comes_back_last_and_disturbs_no_order(lab: World, since: str) -> None:
    name = "turned" if since else "tidied"
    done(lab, "kubectl create -f -", given=CRON.replace("tidied", name))
    newest(lab, name, 1)
    done(lab, f'kubectl patch cronjob/{name} -p "$(cat)"', given=WITHOUT)
    change_id = newest(lab, name, 2)
    if since:
        done(lab, f'kubectl patch cronjob/{name} -p "$(cat)"', given=since)
        newest(lab, name, 3)
    told = recipe(lab, change_id)
    assert "Where in initContainers and env it stood is not recorded" in told["warnings"][0]["text"]
    done(lab, told["dry_run"])
    done(lab, told["command"])
    state = wanted(lab, f"cronjob/{name}")
    assert state is not None
    pod = state["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    order = ["three", "one", "two"] if since else ["one", "three", "two"]
    assert [(one["name"], one["image"]) for one in pod["initContainers"]] == [(one, "r:1") for one in order]
    assert [one["name"] for one in pod["containers"][0]["env"]] == ["A", "C", "B"]


def test_an_object_whose_owner_is_gone_is_made_without_it(lab: World) -> None:
    done(lab, MAP, "owning")
    newest(lab, "owning", 1)
    uid = done(lab, "kubectl get configmap/owning -o jsonpath={.metadata.uid}")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owning", "uid": uid}
    owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [reference]}}
    done(lab, "kubectl create -f -", given=orjson.dumps({**owned, "data": {"a": "1"}}).decode())
    newest(lab, "owned", 1)
    done(lab, "kubectl delete configmap/owned")
    change_id = newest(lab, "owned", 2)
    assert uid in recipe(lab, change_id)["command"], "its owner is there"
    done(lab, "kubectl delete configmap/owning")
    newest(lab, "owning", 2)
    told = recipe(lab, change_id)
    assert "Its owner ConfigMap owning is gone" in told["warnings"][0]["text"]
    done(lab, told["command"])
    state = wanted(lab, "configmap/owned")
    assert state is not None
    assert (state["data"], state["metadata"].get("ownerReferences")) == ({"a": "1"}, None)


def test_who_applies_by_the_server_meets_a_conflict_afterwards(lab: World) -> None:
    """As the documentation says: the fields belong to who wrote them last."""

    def applied(a: str, *more: str) -> subprocess.CompletedProcess[str]:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "served"}, "data": {"a": a}}
        command = " ".join(("kubectl apply --server-side --field-manager=ci -f -", *more))
        return shell(lab, command, given=orjson.dumps(body).decode())

    assert applied("1").returncode == 0
    newest(lab, "served", 1)
    assert applied("2").returncode == 0
    done(lab, recipe(lab, newest(lab, "served", 2))["command"])
    refused = applied("3")
    assert refused.returncode != 0
    assert 'conflict with "kubectl-patch"' in refused.stderr
    assert applied("3", "--force-conflicts").returncode == 0
