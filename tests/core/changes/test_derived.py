"""What controllers do because of a change is linked to it, in whatever order it is told."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from app.core.model import Actor, Verb
from app.core.objects.actors import actor_from_audit
from tests.core.learning import a_deployment, an_object, audited, changes, learn, listed, seen, told

COLLECTOR = actor_from_audit({"username": "system:serviceaccount:kube-system:generic-garbage-collector"})
REPLICATOR = actor_from_audit({"username": "system:serviceaccount:platform:replicator"})
KEDA = actor_from_audit({"username": "system:serviceaccount:keda:keda-operator"})
ELSEWHERE = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "source", "uid": "uid-source", "controller": True}]


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_what_the_garbage_collector_deletes_follows_from_who_gave_it_its_owners(order: tuple[int, ...]) -> None:
    copy = an_object("ConfigMap", "ca", version=5, data={"ca.crt": "x"})
    owned = an_object("ConfigMap", "ca", version=6, data={"ca.crt": "x"}, meta={"ownerReferences": ELSEWHERE})
    deletion = (
        seen(owned, 5.01, verb=Verb.DELETE),
        told("ConfigMap", "ca", 5, verb=Verb.DELETE, actor=COLLECTOR, uid="uid-ca"),
    )
    given, gone = changes(
        learn(listed(copy), audited(owned, 4, actor=REPLICATOR), *(deletion[number] for number in order))
    )
    assert gone.actor == COLLECTOR
    assert gone.begun_by == given.id


@pytest.mark.parametrize(("is_argo", "kind"), [(True, "Rollout"), (False, "Deployment")])
def test_a_pod_whose_replica_set_was_not_seen_is_of_what_is_called_so(is_argo: bool, kind: str) -> None:
    owner = [{"kind": "ReplicaSet", "name": "web-5d4f8c7b9d", "apiVersion": "apps/v1", "controller": True}]
    waiting = {"waiting": {"reason": "ImagePullBackOff"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "a", "image": "a", "state": waiting}]}
    pod = an_object("Pod", "web-5d4f8c7b9d-abcde", version=2, meta={"ownerReferences": owner}, status=status, spec={})
    rollout = listed(an_object("Rollout", "web", api="argoproj.io/v1alpha1", version=1, spec={"replicas": 1}))
    found = learn(*([rollout] if is_argo else []), seen(pod, 1))
    (symptom,) = found[-1].symptoms
    assert symptom.workload is not None
    assert (symptom.workload.kind, symptom.workload.name) == (kind, "web")


def test_what_a_person_deletes_follows_from_nothing() -> None:
    owned = an_object("ConfigMap", "ca", version=6, data={"ca.crt": "x"}, meta={"ownerReferences": ELSEWHERE})
    _, gone = changes(
        learn(audited(owned, 4, verb=Verb.CREATE, actor=REPLICATOR), told("ConfigMap", "ca", 5, verb=Verb.DELETE))
    )
    assert gone.begun_by is None


@pytest.mark.parametrize(("kind", "name"), [("ConfigMap", "source"), ("Namespace", "shop"), ("Namespace", "other")])
def test_what_nobody_is_known_to_have_deleted_goes_with_its_owner_or_its_namespace(kind: str, name: str) -> None:
    owned = an_object("ConfigMap", "ca", version=6, data={"ca.crt": "x"}, meta={"ownerReferences": ELSEWHERE})
    above = an_object(kind, name, version=5, namespace=None if kind == "Namespace" else "shop")
    first, gone = changes(
        learn(listed(owned), listed(above), seen(above, 4, verb=Verb.DELETE), seen(owned, 5, verb=Verb.DELETE))
    )
    assert gone.begun_by == (None if name == "other" else first.id)


FLUX = {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
HELM = {"helm.toolkit.fluxcd.io/name": "apps"}
ARGO = {"argocd.argoproj.io/tracking-id": "argocd_apps:apps/Deployment:shop/web"}


@pytest.mark.parametrize(
    ("api", "kind", "namespace", "labels", "annotations"),
    [
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "flux-system", FLUX, {}),
        ("helm.toolkit.fluxcd.io/v2", "HelmRelease", "shop", HELM, {}),
        ("argoproj.io/v1alpha1", "Application", "argocd", {}, ARGO),
        ("argoproj.io/v1alpha1", "Application", "argocd", {"app.kubernetes.io/instance": "apps"}, {}),
        ("argoproj.io/v1alpha1", "Application", "argocd", {"argocd.argoproj.io/instance": "apps"}, {}),
    ],
)
@pytest.mark.parametrize(("part", "follows"), [("spec", True), ("data", False)])
def test_what_is_pruned_follows_from_what_its_gitops_controller_was_told(
    api: str, kind: str, namespace: str, labels: object, annotations: object, part: str, follows: bool
) -> None:
    def told_to(path: str, version: int) -> object:
        return an_object(kind, "apps", version=version, api=api, namespace=namespace, **{part: {"path": path}})

    tended = a_deployment(version=5, meta={"labels": labels, "annotations": annotations})
    edit, gone = changes(
        learn(
            listed(tended),
            listed(told_to("./all", 4)),
            audited(told_to("./some", 6), 4),
            seen(tended, 6, verb=Verb.DELETE),
        )
    )
    assert gone.begun_by == (edit.id if follows else None)


@pytest.mark.parametrize(("part", "follows"), [("spec", True), ("data", False)])
def test_what_an_operators_object_no_longer_asks_for_goes_with_its_edit(part: str, follows: bool) -> None:
    def a_set(version: int, names: list[str]) -> object:
        more: dict[str, Any] = {part: {"names": names}}
        return an_object("Fleet", "web", version=version, api="fleet.example/v1", **more)

    owner = [{"apiVersion": "fleet.example/v1", "kind": "Fleet", "name": "web", "uid": "u", "controller": True}]
    owned = an_object("ConfigMap", "ca", version=5, data={"ca.crt": "x"}, meta={"ownerReferences": owner})
    edit, gone = changes(
        learn(
            listed(owned), listed(a_set(4, ["a", "b"])), audited(a_set(6, ["a"]), 4), seen(owned, 6, verb=Verb.DELETE)
        )
    )
    assert gone.begun_by == (edit.id if follows else None)


@pytest.mark.parametrize("labels", [None, [], "apps", 7, {"kustomize.toolkit.fluxcd.io/name": 7}])
def test_odd_labels_name_nobody(labels: object) -> None:
    odd = a_deployment(version=5, meta={"labels": labels, "annotations": labels})
    (gone,) = changes(learn(listed(odd), seen(odd, 6, verb=Verb.DELETE)))
    assert gone.begun_by is None


@pytest.mark.parametrize(("replicas", "image", "follows"), [(9, "r/web:v1", True), (9, "r/web:v2", False)])
def test_a_custom_autoscaler_scales_as_it_was_told(replicas: int, image: str, follows: bool) -> None:
    def scaler(version: int, most: int) -> object:
        spec = {"scaleTargetRef": {"name": "web"}, "maxReplicaCount": most}
        return an_object("ScaledObject", "web", version=version, api="keda.sh/v1alpha1", spec=spec)

    scaled = a_deployment(version=9, replicas=replicas, image=image)
    edit, scaling = changes(
        learn(
            listed(a_deployment(version=5)),
            listed(scaler(6, 2)),
            audited(scaler(7, 20), 1),
            audited(scaled, 4, actor=KEDA),
        )
    )
    assert scaling.begun_by == (edit.id if follows else None)


@pytest.mark.parametrize(("actor", "shown"), [(KEDA, False), (REPLICATOR, True)])
def test_a_custom_autoscaler_at_work_decides_nothing(actor: Actor, shown: bool) -> None:
    spec = {"scaleTargetRef": {"name": "web"}}
    scaler = an_object("ScaledObject", "web", version=6, api="keda.sh/v1alpha1", spec=spec)
    scaled = audited(a_deployment(version=9, replicas=9), 4, actor=actor)
    assert bool(changes(learn(listed(a_deployment(version=5)), listed(scaler), scaled))) is shown


@pytest.mark.parametrize(("part", "follows"), [("spec", True), ("meta", False)])
def test_what_an_operator_does_follows_from_what_its_kind_has_become(part: str, follows: bool) -> None:
    def definition(version: int, **parts: Any) -> Any:
        api = "apiextensions.k8s.io/v1"
        names = {"names": {"kind": "Pool", "plural": "pools"}, "group": "imaging.example"}
        parts["spec"] = names | parts.get("spec", {})
        name = "pools.imaging.example"
        return an_object("CustomResourceDefinition", name, version=version, api=api, namespace=None, **parts)

    owner = [{"apiVersion": "imaging.example/v1", "kind": "Pool", "name": "ct", "uid": "uid-ct", "controller": True}]
    changed = {"spec": {"scope": "Namespaced"}} if part == "spec" else {"meta": {"labels": {"rev": "2"}}}
    edit, scaling = changes(
        learn(
            listed(definition(4)),
            listed(an_object("Pool", "ct", version=5, api="imaging.example/v1", spec={})),
            listed(a_deployment(version=6, meta={"ownerReferences": owner})),
            audited(definition(7, **changed), 1),
            audited(a_deployment(version=8, replicas=1, meta={"ownerReferences": owner}), 3, actor=REPLICATOR),
        )
    )
    assert scaling.begun_by == (edit.id if follows else None)


@pytest.mark.parametrize("verb", [Verb.DELETE, Verb.UPDATE])
def test_with_a_definition_go_all_objects_of_its_kind(verb: Verb) -> None:
    group, plural = "keda.sh", "scaledobjects"
    meta: dict[str, Any] = {"group": group, "names": {"kind": "ScaledObject", "plural": plural}}
    definition = an_object(
        "CustomResourceDefinition",
        f"{plural}.{group}",
        version=5,
        api="apiextensions.k8s.io/v1",
        namespace=None,
        spec={**meta, "versions": []},
    )
    scaler = an_object("ScaledObject", "web", version=6, api=f"{group}/v1", spec={"scaleTargetRef": {"name": "web"}})
    written = an_object(
        "CustomResourceDefinition",
        f"{plural}.{group}",
        version=7,
        api="apiextensions.k8s.io/v1",
        namespace=None,
        spec={**meta, "versions": [{"name": "v1"}]},
    )
    root, gone = changes(
        learn(listed(definition), listed(scaler), audited(written, 4, verb=verb), seen(scaler, 5, verb=Verb.DELETE))
    )
    assert gone.begun_by == (root.id if verb is Verb.DELETE else None)


LABELED = {"meta": {"labels": {"team": "maps"}}}


@pytest.mark.parametrize(
    ("api", "kind", "edit", "follows"),
    [
        ("fleet.example/v1", "Fleet", {"spec": {"size": 3}}, True),
        ("fleet.example/v1", "Fleet", {"meta": {"annotations": {"fleet.example/restarted-at": "5"}}}, True),
        ("fleet.example/v1", "Fleet", LABELED, False),
        ("fleet.example/v1", "Fleet", {**LABELED, "spec": {"size": 3}}, True),
        ("apps/v1", "StatefulSet", LABELED, True),
        ("networking.k8s.io/v1", "Ingress", LABELED, True),
    ],
)
def test_an_operator_goes_by_no_labels_of_custom_resources(
    api: str, kind: str, edit: dict[str, Any], follows: bool
) -> None:
    """What is made of Kubernetes' own objects takes them over."""
    owner = [{"apiVersion": api, "kind": kind, "name": "web", "uid": "uid-web", "controller": True}]
    before: dict[str, Any] = {"spec": {"size": 2}}
    edited, written = changes(
        learn(
            listed(an_object(kind, "web", version=4, api=api, **before)),
            listed(a_deployment("made", version=5, meta={"ownerReferences": owner})),
            audited(an_object(kind, "web", version=6, api=api, **(before | edit)), 1),
            audited(a_deployment("made", version=7, replicas=3, meta={"ownerReferences": owner}), 3, actor=REPLICATOR),
        )
    )
    assert written.begun_by == (edited.id if follows else None)
