"""Which changes chat is told of: a table of those that are and of those that are not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.changes.told import is_told, never_told
from app.core.model import Actor, ActorSource, Change, DiffSource, FieldDiff, Json, Verb
from app.core.objects.actors import AUTOSCALER
from tests.web.world import a_change

KEDA = "system:serviceaccount:keda:keda-operator"
REPLICAS = ("spec", "replicas")


def change(kind: str, group: str, *path: str, old: Json = 1, new: Json = 2, **more: object) -> Change:
    namespace = None if kind in {"Node", "Namespace", "MutatingWebhookConfiguration", "APIService"} else "shop"
    diffs = (FieldDiff(path, "replace", old, new),) if path else ()
    return replace(a_change("x", kind=kind, api_group=group, namespace=namespace, diffs=diffs), **more)


def scaled(to: int, actor: str = "alice") -> Change:
    return change("Deployment", "apps", *REPLICAS, old=3, new=to, actor=Actor(actor, ActorSource.AUDIT))


def untold(actor: str) -> Change:
    return change("Deployment", "apps", diff_source=DiffSource.NONE, actor=Actor(actor, ActorSource.AUDIT))


ADMISSION = "admissionregistration.k8s.io"
HOOKS = ("webhooks", "clientConfig")
TOLD = {
    "an image": a_change(),
    "a new Deployment": change("Deployment", "apps", verb=Verb.CREATE),
    "a deleted StatefulSet": change("StatefulSet", "apps", verb=Verb.DELETE),
    "a person scales to nothing": scaled(0),
    "Argo CD scales to nothing": scaled(0, "system:serviceaccount:argocd:argocd-application-controller"),
    "a CronJob is suspended": change("CronJob", "batch", "spec", "suspend", new=True),
    "a CronJob's image": change("CronJob", "batch", "spec", "jobTemplate", "image"),
    "a webhook's failure policy": change("MutatingWebhookConfiguration", ADMISSION, "webhooks", "failurePolicy"),
    "a node is cordoned": change("Node", "", "spec", "unschedulable", new=True),
    "a kubelet's version": change("Node", "", "status", "nodeInfo", "kubeletVersion"),
    "a namespace is deleted": change("Namespace", "", verb=Verb.DELETE),
    "a quota": change("ResourceQuota", "", "spec", "hard", "pods"),
    "a feature flag": change("flag", "external:launchdarkly", "on"),
    "what was written is not known": change("Deployment", "apps", diff_source=DiffSource.NONE),
    "a release of Helm": a_change("sh.helm.release.v1.web.v7", kind="Secret", api_group="", verb=Verb.CREATE),
}
NOT_TOLD = {
    "a person scales up": scaled(9),
    "an autoscaler to nothing": scaled(0, AUTOSCALER),
    "KEDA to nothing": scaled(0, KEDA),
    "what another change began": replace(a_change(), begun_by="0" * 28),
    "what the cluster remembers": replace(a_change(), sources=frozenset({"history"}), found_in="ReplicaSet x"),
    "a ConfigMap": change("ConfigMap", "", "data", "x"),
    "a ServiceAccount": change("ServiceAccount", "", "metadata", "annotations", "x"),
    "a certificate renewed": change("MutatingWebhookConfiguration", ADMISSION, *HOOKS, "caBundle"),
    "an APIService's certificate": change("APIService", "apiregistration.k8s.io", "spec", "caBundle"),
    "a label alone": change("Deployment", "apps", "metadata", "labels", "x"),
    "a node's label": change("Node", "", "metadata", "labels", "x"),
    "a node comes": change("Node", "", verb=Verb.CREATE),
    "what an autoscaler wrote is not known": untold(AUTOSCALER),
    "what KEDA wrote is not known": untold(KEDA),
    "what a controller wrote is not known": untold("system:serviceaccount:kube-system:deployment-controller"),
    "a node of which nobody says what": change("Node", "", diff_source=DiffSource.NONE),
    "a namespace's label": change("Namespace", "", "metadata", "labels", "x"),
    "a CronJob's history limit": change("CronJob", "batch", "spec", "successfulJobsHistoryLimit"),
    "a Helm release's label": a_change("sh.helm.release.v1.web.v7", kind="Secret", api_group=""),
    "a custom resource": change("Widget", "example.com", "spec", "x"),
}


@pytest.mark.parametrize("which", TOLD)
def test_it_is_told(which: str) -> None:
    assert is_told(TOLD[which])


@pytest.mark.parametrize("which", NOT_TOLD)
def test_it_is_not_told(which: str) -> None:
    assert not is_told(NOT_TOLD[which])


def test_of_some_kinds_nothing_is_ever_told() -> None:
    assert never_told("configmap")
    assert never_told("Widget")
    assert not never_told("deployment")
    assert not never_told("NetworkPolicy"), "one of several groups is"
