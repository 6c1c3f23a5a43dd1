"""What can lead to what in Kubernetes: which complaints a sort of change cannot bring about, and who refuses pods.

A ConfigMap makes programs crash and never keeps the scheduler from placing a pod; a label on a Deployment itself
changes no pod at all. Facts: https://kubernetes.io/docs/concepts/scheduling-eviction/ (what decides where pods go),
https://kubernetes.io/docs/concepts/containers/images/ (what pulling needs),
https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/ (who refuses what is created).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from app.core.edges.leads import limits_egress
from app.core.edges.loglevels import only_levels
from app.core.edges.meshes import is_policy
from app.core.edges.served import FAILS, REFUSES, SLOW
from app.core.entities import ACCESS, IMMUTABLE, WORKLOADS, Entity
from app.core.model import Change, FieldDiff, Path, Verb
from app.core.objects.actors import AUTOSCALER, is_controller, service_account
from app.core.objects.grants import only_allows_more
from app.core.objects.normalise import amount_of
from app.core.objects.pod_states import NOT_SCALED_UP, PREEMPTED
from app.core.objects.untyped import fields, objects

UNLIKELY = 0.25
"""What a match keeps where no common mechanism leads from this sort of change to this sort of complaint."""

_CONFIG = frozenset({"ConfigMap", "Secret"})
_ROUTING = frozenset({"Service", "Ingress", "HTTPRoute", "Endpoints", "EndpointSlice"})
_NETWORK = _ROUTING | {"NetworkPolicy"}
_BUDGET = frozenset({"PodDisruptionBudget"})
_SCALERS = frozenset({"HorizontalPodAutoscaler"})
AT_ONCE = ACCESS | {
    *("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService", "CustomResourceDefinition"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "FlowSchema", "PriorityLevelConfiguration"),
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    "LimitRange",
}
"""What the API server goes by itself: from the next call on."""
CALLS_NOBODY = ACCESS | _ROUTING | _BUDGET | {"ServiceAccount"}
"""What lets others call, or be called: it makes nobody call the API server more than before."""
BORNE = (
    ACCESS
    | _CONFIG
    | {
        *("ServiceAccount", "Service", "NetworkPolicy"),
        *("PersistentVolumeClaim", "PersistentVolume", "StorageClass"),
    }
)
"""What pods start with, or do not: where they came up well once it was there, they bear it."""
ADMITS = frozenset(
    {
        *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "LimitRange"),
        *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
)
"""What pods are made by, or are not: where they were made once it was there, and came up well, they bear it."""

_REFUSED = ("OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage")
"""What kubelets say of pods that they do not admit
(https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/)."""
FULL = frozenset({"FailedScheduling", "Unschedulable", "Pending", PREEMPTED, *_REFUSED})
"""What is said of pods that find no place."""
_MISCONFIGURED = ("CreateContainerConfigError", "FailedMount")
"""A ConfigMap, a Secret or a key of it is not there: no other image makes it so."""

SERVING = (FAILS, REFUSES, SLOW)
"""What is measured of a workload's answers (serving.py)."""

_UNLIKELY: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("FailedScheduling", "Unschedulable", "Pending", NOT_SCALED_UP, PREEMPTED, *_REFUSED),
        _CONFIG | _NETWORK | ACCESS | _BUDGET,
    ),
    **dict.fromkeys(
        ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"),
        frozenset({"ConfigMap", "ResourceQuota"}) | _NETWORK | ACCESS | _BUDGET | _SCALERS,
    ),
    "FailedCreate": _CONFIG | _NETWORK | _BUDGET,
    "OOMKilled": frozenset({"Secret", "ResourceQuota"}) | _NETWORK | ACCESS | _BUDGET,
    **dict.fromkeys(
        ("NodeNotReady", "MemoryPressure", "DiskPressure", "PIDPressure"), _CONFIG | _NETWORK | ACCESS | _BUDGET
    ),
    **dict.fromkeys(
        ("CrashLoopBackOff", "BackOff", "Error", "Unhealthy", "Unready"),
        frozenset({"ResourceQuota"}) | _ROUTING | _BUDGET,
    ),
    **dict.fromkeys(SERVING, frozenset({"ResourceQuota"}) | _BUDGET),
    **dict.fromkeys(_MISCONFIGURED, frozenset({"ResourceQuota"}) | _NETWORK | ACCESS | _BUDGET),
}
"""By a complaint's reason, the kinds whose changes do not bring it about."""

_NEXT_ROLLOUT = {
    ("spec", field)
    for field in (
        *("strategy", "updateStrategy", "revisionHistoryLimit", "progressDeadlineSeconds", "minReadySeconds"),
        *("successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
    )
}
ILL = frozenset(
    {
        *("CrashLoopBackOff", "BackOff", "Error", "Unhealthy", "Unready", "OOMKilled"),
        *("ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "CreateContainerError"),
    }
)
_PROBED = frozenset({"Unhealthy", "Unready"})
"""What fewer pods complain of that have more to do."""
_JOBS = frozenset({"BackoffLimitExceeded", "DeadlineExceeded", "Failed"})
"""What a Job complains of that does not come to its end."""
WHILE_RUNNING = frozenset(
    {"CrashLoopBackOff", "BackOff", "Error", "Unhealthy", "Unready", "BackoffLimitExceeded", *SERVING}
)
"""What a workload complains of when something that it calls fails; it is placed, pulled and started all the same."""
BEFORE_RUNNING = frozenset(
    {
        *("FailedScheduling", "Unschedulable", "Pending", "FailedCreate", "FailedMount", "FailedAttachVolume"),
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"),
    }
)
"""What a pod complains of before it runs: where all pods of a rollout did once, it is not that rollout's doing."""
_LABELS, _ANNOTATIONS = ("metadata", "labels"), ("metadata", "annotations")
_OWN_METADATA = {_LABELS, _ANNOTATIONS}
_AUTOSCALER = frozenset({AUTOSCALER, "kube-controller-manager"})
"""Who writes how many pods there are for an autoscaler, by audit log or as a field manager."""
_NODES_GO = re.compile(
    r"node-controller|node-lifecycle|cloud-controller|cloud-node|termination-handler|interruption|:kured$|:draino$"
)
"""Who deletes Nodes whose machines are gone, or empties those that a provider takes back."""
_RESTARTS = re.compile(r"restart|reload|checksum|^[^/]*$", re.IGNORECASE)
"""Keys of annotations that are written into a pod template so that pods be made anew, and those without a prefix, which
are private to who writes them, so that no program acts by them:
https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/#syntax-and-character-set ,
https://helm.sh/docs/howto/charts_tips_and_tricks/#automatically-roll-deployments ."""
_DECIDES = {"Namespace": {_LABELS, _ANNOTATIONS}, "Node": {_LABELS}}
"""What of a kind's own labels and annotations others may act by: topology.ignores tells whether anybody does."""
_CALLED = frozenset({"Ingress", "Service", "Gateway", "HTTPRoute"})
_TELLS = re.compile(
    r"(?:kubernetes|k8s|haproxy(?:-ingress)?|traefik|konghq|projectcontour|cert-manager|metallb)\.\w+(?:\.\w+)*/"
    r"|cloud\.google\.com/|azure-load-balancer|aws-load-balancer|istio\.io/|linkerd\.io/|cilium\.io/"
)
"""Keys of annotations by which who serves Ingresses, makes load balancers and certificates, or is a mesh, is told what
to do:
https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/annotations/ ,
https://cert-manager.io/docs/usage/ingress/ ."""
_INERT = ACCESS | {
    *("Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job", "ReplicaSet", "ConfigMap", "Secret", "Service"),
    *("PodDisruptionBudget", "HorizontalPodAutoscaler", "CustomResourceDefinition", "Node"),
    *("StorageClass", "PriorityClass", "RuntimeClass", "IngressClass", "PersistentVolumeClaim"),
}
"""Kinds by whose own labels and annotations nothing decides what becomes of pods."""


def plausible(change: Change, reason: str, *, refused: str) -> float:
    """How much of a match with a complaint of this reason stands: all of it, or UNLIKELY.

    ``refused`` is the sort of object that refused what could not be made ("" where that is not known): another
    object's change is then only the occasion, unless it asks for more than before.
    """
    if change.resource.kind in _UNLIKELY.get(reason, ()) or (reason in _MISCONFIGURED and only_image(change)):
        return UNLIKELY
    if reason in FULL and only_image(change):
        return UNLIKELY  # it asks for no more than before: a rollout is when it shows that there is no room
    # More pods may well make an app answer wrongly; that there may be more does not.
    is_harmless = reason in ILL or (reason in SERVING and only_bounds(change))
    if (is_harmless and only_adds(change)) or (change.resource.kind in ACCESS and only_allows_more(change)):
        return UNLIKELY
    if reason in ILL and _limits_callers(change):
        return UNLIKELY  # the kubelet may call them, whatever a policy says
    if reason in (ILL - _PROBED) | _JOBS and (cordons(change) or only_levels(change)):
        return UNLIKELY  # pods that come up elsewhere show what they start with; who logs more ends no sooner
    is_new_home = change.resource.kind == "Namespace" and change.verb is Verb.CREATE
    if (reason != "FailedCreate" and (is_new_home or _only_lets_in(change))) or _opens(change):
        return UNLIKELY
    if refused and not change.resource.kind.endswith(refused) and not _asks_for_more(change):
        return UNLIKELY
    return 1.0


def _limits_callers(change: Change) -> bool:
    """Whether a NetworkPolicy says who may call pods, and nothing of whom these may call."""
    if change.resource.kind != "NetworkPolicy" or limits_egress(change):
        return False
    return bool(change.diffs) and all(not diff.path or diff.path[:2] == ("spec", "ingress") for diff in change.diffs)


def _only_lets_in(change: Change) -> bool:
    """Whether only what pod security lets into a namespace changed: what is let in runs as before."""
    paths = [diff.path for diff in change.diffs]
    return change.resource.kind == "Namespace" and all(
        path[:2] == _LABELS and path[2:] and str(path[2]).startswith("pod-security.kubernetes.io/") for path in paths
    )


def takes_ports(change: Change) -> bool:
    """Whether a Service gets ports on the nodes, of which there are only so many
    (https://kubernetes.io/docs/concepts/services-networking/service/#type-nodeport)."""
    if change.resource.kind != "Service":
        return False
    made = fields(next((diff.new for diff in change.diffs if not diff.path), None))
    ports = objects(fields(made.get("spec")).get("ports"))
    given = any(diff.path[-1:] == ("nodePort",) and diff.new for diff in change.diffs)
    return given or any(port.get("nodePort") for port in ports)


def cordons(change: Change) -> bool:
    """Whether a Node takes no further pods from now on, as before it is drained
    (https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/)."""
    return change.resource.kind == "Node" and any(
        diff.path == ("spec", "unschedulable") and diff.new is True for diff in change.diffs
    )


def _opens(change: Change) -> bool:
    """Whether a Node only takes more pods than before: it is uncordoned."""
    return (
        change.resource.kind == "Node"
        and bool(change.diffs)
        and all(diff.path == ("spec", "unschedulable") and not diff.new for diff in change.diffs)
    )


def is_borne(change: Change, came_up: tuple[datetime, datetime] | None) -> bool:
    """Whether this was made, and then the pods that complain came up well with it, between two times."""
    if change.verb is not Verb.CREATE or came_up is None:
        return False
    since, by = came_up
    kind = change.resource.kind
    return (kind in BORNE and change.at <= by) or (kind in ADMITS and change.at <= since)


def only_scales(change: Change) -> bool:
    """Whether only the number of pods changed."""
    return bool(change.diffs) and all(diff.path == ("spec", "replicas") for diff in change.diffs)


def wakes(change: Change) -> bool:
    """Whether a workload of which nothing ran is given pods: it does from then on what it does."""
    return any(diff.path == ("spec", "replicas") and diff.old == 0 and bool(diff.new) for diff in change.diffs)


def only_adds(change: Change) -> bool:
    """Whether only pods were added, or may be: another one of the same sort is as well as the others. Where some go,
    those that stay have more to do."""
    return (only_scales(change) or only_bounds(change)) and all(
        _replicas(diff.new) > _replicas(diff.old) for diff in change.diffs
    )


def only_bounds(change: Change) -> bool:
    """Whether only how many pods an autoscaler may want changed: Kubernetes' own, or KEDA's
    (https://keda.sh/docs/latest/reference/scaledobject-spec/)."""
    bounds = {("spec", f"{side}Replica{of}") for side in ("min", "max") for of in ("s", "Count")}
    return bool(change.diffs) and all(diff.path in bounds for diff in change.diffs)


def _replicas(value: object) -> int:
    """One where none are said, as of all workloads that have replicas
    (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/deployment-v1/#DeploymentSpec)."""
    return value if isinstance(value, int) else 1


_SAME = (
    (re.compile(r"[Hh]ealth.?[Cc]heck|target-health"), re.compile(r"health-?check", re.IGNORECASE)),
    (
        re.compile(r"timed? ?out|timeout|deadline|\b504\b|went away|broken pipe|cancel", re.IGNORECASE),
        re.compile(r"time-?_?out|deadline", re.IGNORECASE),
    ),
)
"""What is complained of, and what the fields are called that say it: how a load balancer asks who is well, how long
somebody waits."""
_PROBE = re.compile(r"(Liveness|Readiness|Startup) probe failed")


def only_reacts_to(change: Change) -> str:
    """In words, that a change only reacts: an autoscaler's, or that a Node is deleted whose machine went; else ""."""
    if only_scales(change) and (change.actor.name in _AUTOSCALER or _scales_out(change)):
        return "An autoscaler did as it was told: it reacts."
    if is_controller(change.actor) and not by_schedule(change):
        return "Kubernetes' own controllers do as objects say."
    goes = cordons(change) or (change.resource.kind == "Node" and change.verb is Verb.DELETE)
    if goes and _NODES_GO.search(change.actor.name):
        return "It only says that a machine is gone, or goes."
    return ""


def _scales_out(change: Change) -> bool:
    """Whether a program that is called a scaler added pods. One that takes some away may do so by the clock, and too
    many (kube-downscaler)."""
    account = service_account(change.actor.name)
    return account is not None and "scaler" in account[1] and only_adds(change)


def by_schedule(change: Change) -> bool:
    """Whether a Job is made as its CronJob says: with nothing new in it."""
    made = next((diff.new for diff in change.diffs if not diff.path), None)
    metadata = made.get("metadata") if isinstance(made, dict) and change.resource.kind == "Job" else None
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    return isinstance(owners, list) and any(isinstance(one, dict) and one.get("kind") == "CronJob" for one in owners)


def hits(change: Change, reason: str, said: str) -> bool:
    """Whether an update is of the very thing that is complained of: less memory where it runs out, another probe where
    that fails."""
    if change.verb is not Verb.UPDATE:
        return False
    if reason == "OOMKilled":
        return any(_is_of_most_memory(diff.path) and _is_less(diff) for diff in change.diffs)
    probes = {f"{sort.lower()}Probe" for sort in _PROBE.findall(said)}
    if any(not probes.isdisjoint(map(str, diff.path)) for diff in change.diffs):
        return True
    return any(says.search(said) and any(map(sets.search, _steps(change))) for says, sets in _SAME)


def _is_of_most_memory(path: Path) -> bool:
    """Whether it is how much memory a container may have: its own limit, or one that it is given, as by a LimitRange or
    a VerticalPodAutoscaler (its maxAllowed)."""
    return path[-1:] == ("memory",) and not {"requests", "defaultRequest"} & set(map(str, path))


def _steps(change: Change) -> Iterator[str]:
    """What the fields are called that a change writes; probes have time limits of their own."""
    paths = ([str(step) for step in diff.path] for diff in change.diffs)
    return (step for path in paths if not any(one.endswith("Probe") for one in path) for step in path)


def is_less_patient(change: Change) -> bool:
    """Whether calls are waited for less long, or no longer done without, and nothing else: those that are answered in
    time pass as before."""
    told = [diff for diff in change.diffs if diff.path[:1] != ("metadata",)]
    return bool(told) and all(map(_is_less_patient, told))


def _is_less_patient(diff: FieldDiff) -> bool:
    if diff.path[-1:] == ("failurePolicy",):
        return diff.new == "Fail"
    waits = diff.path[-1:] == ("timeoutSeconds",)
    return waits and isinstance(diff.old, int) and isinstance(diff.new, int) and diff.new < diff.old


def _is_less(diff: FieldDiff) -> bool:
    old, new = (amount_of(value) if isinstance(value, str) else None for value in (diff.old, diff.new))
    return old is not None and new is not None and new < old


def only_image(change: Change) -> bool:
    """Whether only which images run changed, and what the objects and the pods are labelled with."""
    told = [diff for diff in change.diffs if "metadata" not in diff.path]
    return bool(told) and all(diff.path[-1:] == ("image",) for diff in told)


def _asks_for_more(change: Change) -> bool:
    """Whether a write makes an object, or touches how many pods there are or what quotas and pod security look at."""
    looked_at = {
        *("replicas", "parallelism", "concurrencyPolicy", "schedule", "suspend", "minReplicas", "maxReplicas"),
        *("resources", "securityContext", "serviceAccountName", "priorityClassName"),
    }
    return change.verb is Verb.CREATE or any(looked_at & set(map(str, diff.path)) for diff in change.diffs)


def only_restarts(change: Change) -> bool:
    """Whether an update only has a workload's pods made anew: what they do not bear was there before."""
    return (
        change.verb is Verb.UPDATE
        and bool(change.diffs)
        and all(
            "template" in d.path and "annotations" in d.path and _RESTARTS.search(str(d.path[-1])) for d in change.diffs
        )
    )


_IDENTITY = re.compile(r"role-arn|iam\.gke\.io|workload\.identity|vault\.")
"""Annotation keys of a ServiceAccount by which a cloud, or a vault, knows who its pods are:
https://docs.aws.amazon.com/eks/latest/userguide/associate-service-account-role.html ,
https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity ,
https://azure.github.io/azure-workload-identity/docs/topics/service-account-labels-and-annotations.html ."""


_DEFAULT = re.compile(r"is-default-class\Z")
"""The annotation by which a StorageClass or an IngressClass is everybody's who names none:
https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass ."""


def is_identity(change: Change) -> bool:
    """Whether a change decides who the pods of a ServiceAccount are, outside the cluster."""
    return change.resource.kind == "ServiceAccount" and any(map(_IDENTITY.search, _annotations(change)))


def is_default(change: Change) -> bool:
    """Whether a change decides which class is everybody's who names none."""
    by_field = any(diff.path == ("globalDefault",) for diff in change.diffs)
    return by_field or any(map(_DEFAULT.search, _annotations(change)))


def is_default_class(state: dict[str, Any]) -> bool:
    """Whether a class is everybody's who names none."""
    annotations = fields(fields(state.get("metadata")).get("annotations"))
    by_annotation = any(_DEFAULT.search(key) and value == "true" for key, value in annotations.items())
    return by_annotation or state.get("globalDefault") is True


def _annotations(change: Change) -> list[str]:
    """The keys of the annotations that changed."""
    return [str(d.path[2]) for d in change.diffs if d.path[:2] == _ANNOTATIONS and d.path[2:]]


def is_cosmetic(change: Change) -> bool:
    """Whether only labels or annotations of the object itself changed; those of a Namespace and the labels of a
    Node decide much, and some of a ServiceAccount and of a class."""
    if change.verb is not Verb.UPDATE:
        return False
    paths = {diff.path[:2] for diff in change.diffs if diff.path}
    if not paths or not paths <= _OWN_METADATA:
        return False
    if _is_private(change):
        return True
    if change.resource.kind in _CALLED and any(map(_TELLS.search, _annotations(change))):
        return False
    if paths & _DECIDES.get(change.resource.kind, set()):
        return False
    return not is_identity(change) and not is_default(change)


def only_labels(change: Change) -> bool:
    """Whether only labels of the object itself changed: by annotations programs are told things, too."""
    return bool(change.diffs) and all(diff.path[:2] == _LABELS for diff in change.diffs)


def is_inert(change: Change) -> bool:
    """Whether nothing acts upon a change: it is cosmetic, or says of a workload how its next rollout is to go."""
    if change.resource.kind not in _INERT and not is_policy(change.resource):
        return _is_private(change)
    return is_cosmetic(change) or is_for_next_rollout(change) or _is_private(change)


def _is_private(change: Change) -> bool:
    """Whether only annotations without a prefix changed: these are private to who writes them, and no program's."""
    if not change.diffs or change.diffs[0].path[:2] != _ANNOTATIONS:
        return False
    keys = _annotations(change)
    return len(keys) == len(change.diffs) and not any("/" in key for key in keys)


def is_for_next_rollout(change: Change) -> bool:
    """Whether an update only says how the next rollout of a workload is to go."""
    paths = {diff.path[:2] for diff in change.diffs if diff.path}
    return change.verb is Verb.UPDATE and bool(paths) and paths <= _NEXT_ROLLOUT


def halts(change: Change) -> bool:
    """Whether an update stops what a workload runs: it suspends it, or scales it to zero."""
    if change.resource.kind not in WORKLOADS:
        return False
    return any(
        (diff.path == ("spec", "suspend") and diff.new is True)
        or (diff.path == ("spec", "replicas") and diff.new == 0 and bool(diff.old))
        for diff in change.diffs
    )


def is_other_quota(change: Change, text: str) -> bool:
    """Whether a quota was changed in what the messages do not say is exceeded."""
    changed = [str(diff.path[2]) for diff in change.diffs if diff.path[:2] == ("spec", "hard") and diff.path[2:]]
    is_told = change.resource.kind == "ResourceQuota" and "exceeded quota" in text and "requested:" in text
    return is_told and bool(changed) and not any(name in text for name in changed)


_REFUSALS = (
    (re.compile(r"violates PodSecurity|because it is being terminated"), "Namespace"),
    (re.compile(r"exceeded quota|must specify (?:limits|requests)|failed quota"), "ResourceQuota"),
    (
        re.compile(r"(?:minimum|maximum) \S+ usage per (?:Container|Pod)|limit to request ratio per (?:Container|Pod)"),
        "LimitRange",
    ),
    (re.compile(r"serviceaccount \S+ not found|looking up service account"), "ServiceAccount"),
    (re.compile(r"no PriorityClass with name"), "PriorityClass"),
    (re.compile(r"admission webhook|failed calling webhook"), "WebhookConfiguration"),
    (re.compile(r"ValidatingAdmissionPolicy"), "ValidatingAdmissionPolicy"),
    (re.compile(r"field is immutable when `immutable` is set"), IMMUTABLE),
)


def refused_by(text: str) -> str | None:
    """The sort of object that refused what the API server or a controller says could not be made."""
    return next((kind for pattern, kind in _REFUSALS if pattern.search(text)), None)


def refuser(kind: str, namespace: str) -> Entity:
    """What objects of this kind in this namespace ("" for the cluster) refuse."""
    return ("refuses", kind, namespace)
