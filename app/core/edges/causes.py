"""What a complaint says of its own cause: words of Kubernetes, Go and container runtimes that rule changes out.

"x509: certificate has expired" is the clock's doing, and "dial tcp: connection refused" while an image is pulled is the
registry's: whatever was rolled out just then is only the occasion. Words: https://pkg.go.dev/net#DNSError ,
https://pkg.go.dev/crypto/x509#CertificateInvalidError , https://kubernetes.io/docs/concepts/containers/images/ ,
https://kubernetes.io/docs/concepts/scheduling-eviction/ , https://pkg.go.dev/k8s.io/client-go/discovery .
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from app.core.edges import said
from app.core.edges.leads import (
    CLAIMS,
    ON_NODES,
    POLICIES,
    Cause,
    any_of,
    certifies,
    connects,
    gives_images,
    is_a,
    is_altering,
    keeps_records,
    limits_egress,
    makes_nodes,
    names_hosts,
    other_registry,
    other_repository,
    provides_volumes,
    serves_names,
    sets_calls,
    tells_calls,
    trusts,
    wants_more,
    writes,
)
from app.core.edges.program_causes import (
    CREDENTIALS,
    DISK,
    EXHAUSTED,
    FILE,
    KEPT,
    KEPT_IN,
    NAMES,
    OPTION,
    PART,
    PROTOCOL,
    SCHEMA,
    SETTING,
    TRACKED,
    TRUST,
    TURNED_AWAY,
    UNACKNOWLEDGED,
    UNFIT,
    UNPARSED,
    UNREADABLE,
    USED_UP,
)
from app.core.entities import ACCESS, WORKLOADS
from app.core.objects.dependencies import VARIABLE

_PULL = r"(?:pull(?:ing)? (?:and unpack )?image|ErrImagePull).*"

NETWORK = Cause(
    "a network that pods do not get",
    re.compile(
        r"(?:failed to setup network|network plugin|plugin type=|NetworkPlugin|cni).*sandbox|sandbox.*(?:network|cni)",
        re.IGNORECASE | re.DOTALL,
    ),
    any_of(
        ON_NODES,
        makes_nodes,
        connects,
        is_a(*ACCESS),
        is_a("RuntimeClass"),
        writes("hostNetwork", "annotations", "runtimeClassName"),
    ),
)
VOLUMES = Cause(
    "a volume that nobody provides",
    re.compile(
        r"unbound immediate PersistentVolumeClaims|storageclass\S* .*not found|no persistent volumes avail"
        r"|waits for volumes or devices there"
    ),
    any_of(is_a(*CLAIMS), writes("volumes", "volumeClaimTemplates"), provides_volumes),
)
AWAY = Cause(
    "a volume that is where pods may not be",
    re.compile(r"didn't match PersistentVolume's node affinity|volume node affinity conflict"),
    any_of(
        is_a(*CLAIMS, "Node"),
        provides_volumes,
        makes_nodes,
        writes("volumes", "volumeClaimTemplates", "affinity", "nodeSelector", "topologySpreadConstraints"),
    ),
)
NOT_LET_IN = Cause(
    "nodes that do not let a pod in",
    re.compile(r"untolerated taint|didn't match Pod's node (?:affinity|selector)|(?:were unschedulable|spread constr)"),
    any_of(
        is_a("Node"),
        writes("tolerations", "affinity", "nodeSelector", "topologySpreadConstraints", "runtimeClassName"),
    ),
)
PORTS = Cause(
    "a port of the nodes that is taken",
    re.compile(r"didn't have free ports"),
    any_of(is_a("Node"), writes("ports", "hostNetwork", "replicas", "affinity", "nodeSelector", "tolerations")),
)
LINKED = Cause(
    "a variable that pods have since a Service is there",
    VARIABLE,
    any_of(is_a("Service"), writes("env", "envFrom", "args", "command", "enableServiceLinks")),
)
"""Not of CAUSES: the words alone do not say it (linked.py)."""
EXPIRED = Cause(
    "a certificate, a token or a licence that ran out",
    said.RAN_OUT,
    certifies,
)
RECORDS = Cause(
    "a record of a name that is not there",
    NAMES.told,
    any_of(NAMES.leads, keeps_records, names_hosts),
)
"""Nor of CAUSES (probed.py). Of a host that the cluster serves to the outside: who keeps its records, and by what."""
THEIRS = Cause("a certificate of a server outside that ran out", EXPIRED.told, any_of(serves_names, ON_NODES))
"""Nor of CAUSES (outside.py). Another server may answer by that name; what is trusted has no part in it."""
ROOTS = Cause(
    "a server outside by an authority that is not trusted",
    said.UNKNOWN_AUTHORITY,
    any_of(TRUST.leads, writes("image")),
    few=False,
)
"""Nor of CAUSES (outside.py). Which public authorities a program trusts, its image brings
(https://pkg.go.dev/crypto/x509#SystemCertPool)."""
OUTSIDE = Cause(
    "a server outside of the cluster that does not answer",
    re.compile(
        rf"{said.UNANSWERED.pattern}|{said.UNREACHED.pattern}|{said.CUT_OFF.pattern}|unreachable|unavailable"
        r"|maintenance|bad gateway|internal server error|\b50[0234]\b",
        re.IGNORECASE,
    ),
    any_of(
        limits_egress,
        ON_NODES,
        serves_names,
        connects,
        sets_calls,
        is_a("Endpoints", "EndpointSlice"),
        tells_calls,
        writes("dnsPolicy", "dnsConfig", "hostNetwork"),
    ),
    few=False,
)
"""Nor of CAUSES (outside.py). Not in its words: 401 and 429, which a caller may bring about himself."""
NODES_MADE = Cause(
    "nodes that nobody makes",
    re.compile(r"max node group size reached|exceed limits for nodepool|no instance type (?:met|satisf)"),
    any_of(is_a("Node"), makes_nodes, writes("tolerations", "affinity", "nodeSelector", "resources")),
)
NODES_TAKEN = Cause(
    "nodes that are taken away, or made anew",
    re.compile(r"(?:Evicted pod|Disrupting Node\S*): (?:Underutilized|Empty|Drifted|Expired)|DisruptionTerminating"),
    any_of(is_a("Node", "NodeClaim"), makes_nodes),
)
"""As Karpenter says it (https://karpenter.sh/docs/concepts/disruption/)."""
PROGRAM = Cause(
    "a program that cannot be run",
    re.compile(r"exec format error|executable file not found|exec: .*(?:no such file|permission denied)"),
    any_of(
        is_a("Node", "MutatingWebhookConfiguration"),
        makes_nodes,
        writes("image", "command", "args", "volumes", "volumeMounts", "nodeSelector", "affinity", "securityContext"),
    ),
)
RUNTIME = Cause(
    "a container runtime that nodes do not have",
    re.compile(r'no runtime for "|(?:failed to get|find) (?:sandbox )?runtime|RuntimeHandler "[^"]*" not supported'),
    any_of(ON_NODES, is_a("RuntimeClass"), makes_nodes, writes("runtimeClassName")),
)
RUN_OUT = Cause(
    "a node whose container runtime has run out of something",
    re.compile(
        r"(?:fail|unable).{0,80}(?:containerd|sandbox|\bshim\b|\brunc\b|OCI runtime).{0,400}(?:too many open files"
        r"|resource temporarily unavailable|cannot allocate memory|input/output error)",
        re.IGNORECASE | re.DOTALL,
    ),
    any_of(ON_NODES, makes_nodes),
)
"""As it says itself, before anything of a pod runs (https://github.com/containerd/containerd)."""
PROVIDER = Cause(
    "a provider of volumes that fails",
    re.compile(
        r"(?:volume|attach|provision|disk).*(?:googleapi: Error 5|backendError|InternalError|InternalFailure"
        r"|ServiceUnavailable|Internal error\. Please try again|RequestLimitExceeded|InsufficientCapacity)",
        re.IGNORECASE | re.DOTALL,
    ),
    any_of(is_a("StorageClass", "CSIDriver"), provides_volumes),
)
CONFLICT = Cause(
    "programs that write the same object",
    re.compile(r"the object has been modified; please apply your changes to the latest version"),
    is_a(*WORKLOADS, *ACCESS, "ConfigMap", "Secret", "MutatingWebhookConfiguration", "CustomResourceDefinition"),
    few=False,
)
"""How the API server refuses what was read before somebody else wrote: one write of the object refuses one, a program
that writes it again and again refuses many
(https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions)."""
RIGHTS = Cause(
    "a right that is missing",
    re.compile(r"is forbidden: (?:User \S+ cannot \w+ resource|cannot set blockOwnerDeletion)"),
    any_of(
        is_a("ServiceAccount", "Namespace", *ACCESS),
        writes("image", "env", "envFrom", "args", "command", "serviceAccountName"),
    ),
    few=False,
)
"""How the API server refuses (https://kubernetes.io/docs/reference/access-authn-authz/rbac/). It names what was asked
for, which has no part in it."""
QUOTA = Cause(
    "a quota that is used up",
    re.compile(r"exceeded quota: "),
    any_of(is_a("ResourceQuota", "LimitRange", "Namespace", "MutatingWebhookConfiguration"), wants_more),
)
"""https://kubernetes.io/docs/concepts/policy/resource-quotas/"""
UNSAID = Cause(
    "what a quota asks pods to say",
    re.compile(r"failed quota: .*must specify"),
    any_of(
        is_a("ResourceQuota", "LimitRange", "Namespace", "MutatingWebhookConfiguration", "ConfigMap"),
        is_altering,
        writes("resources", "containers", "initContainers", "image"),
    ),
    few=False,
)
"""Another pod of the same is refused like the first: not for being one more
(https://kubernetes.io/docs/concepts/policy/resource-quotas/#requests-vs-limits)."""
INVALID = Cause(
    "what the API server does not take",
    re.compile(
        r"is invalid: .*(?:Too many: \d+: must have at most|Unsupported value|Required value|Invalid value"
        r"|field is immutable|failed rule)",
        re.DOTALL,
    ),
    any_of(
        is_a("CustomResourceDefinition", "ConfigMap", "Secret", "MutatingWebhookConfiguration"),
        is_altering,
        writes("image", "env", "envFrom", "args", "command"),
    ),
    few=False,
)
"""What is there was taken: other rules are to blame, or who writes
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation)."""
NEIGHBOURS = Cause(
    "pods that are not to be beside others",
    re.compile(r"didn't satisfy existing pods anti-affinity"),
    writes("affinity"),
)
BUDGETS = Cause(
    "a pod with several budgets",
    re.compile(r"(?:matches multiple|has more than one) PodDisruptionBudget"),
    any_of(is_a("PodDisruptionBudget"), writes("labels")),
)
HARDWARE = Cause(
    "a machine that is ill",
    re.compile(
        r"Link is (?:Up - 10{1,2}Mbps|Down)|I/O error, dev|Machine check|\bmce: |\bEDAC\b|NVRM: Xid|Uncorrectable"
        r"|Remounting filesystem read-only|EXT4-fs error|nvme\S* .*(?:timeout|failed)|link flap",
        re.IGNORECASE,
    ),
    is_a("Node"),
)
"""As the kernel says it, and node-problem-detector tells it (https://github.com/kubernetes/node-problem-detector)."""
REGISTRY = Cause(
    "a registry that does not answer",
    re.compile(
        _PULL + r"(?:connection refused|connection reset|i/o timeout|deadline exceeded|TLS handshake timeout"
        r"|\b50[0234]\b|\b429\b|toomanyrequests|no route to host)",
        re.IGNORECASE | re.DOTALL,
    ),
    any_of(other_registry, ON_NODES, is_a("MutatingWebhookConfiguration"), serves_names, gives_images),
)
PULLING = Cause(
    "a right to pull that is missing",
    re.compile(_PULL + r"(?:unauthorized|denied|forbidden|\b40[13]\b|no basic auth)", re.IGNORECASE | re.DOTALL),
    any_of(
        is_a("Secret", "ServiceAccount", "MutatingWebhookConfiguration", "Node"),
        makes_nodes,
        gives_images,
        other_repository,
        writes("imagePullSecrets"),
    ),
)
NO_IMAGE = Cause(
    "an image that does not exist",
    re.compile(_PULL + r"(?:not found|manifest unknown|does not exist)", re.IGNORECASE | re.DOTALL),
    any_of(is_a("MutatingWebhookConfiguration", "MutatingAdmissionPolicy"), is_altering, gives_images, writes("image")),
)
CAUSES = (
    HARDWARE,
    RIGHTS,
    QUOTA,
    UNSAID,
    INVALID,
    NEIGHBOURS,
    BUDGETS,
    PROGRAM,
    RUNTIME,
    RUN_OUT,
    PROVIDER,
    SCHEMA,
    UNACKNOWLEDGED,
    EXPIRED,
    REGISTRY,
    PULLING,
    NO_IMAGE,
    VOLUMES,
    AWAY,
    Cause(
        "configuration that is not there",
        re.compile(r"(?:configmap|secret) \S+ not found|couldn't find key", re.IGNORECASE),
        any_of(
            is_a("ConfigMap", "Secret", "ExternalSecret", "SealedSecret", "Certificate", "Namespace"),
            writes("env", "envFrom", "volumes"),
        ),
    ),
    NOT_LET_IN,
    Cause(
        "an API that nothing serves",
        re.compile(
            r"complete list of server APIs|stale GroupVersion discovery|no matches for kind"
            r"|could not find the requested resource"
        ),
        any_of(
            is_a("APIService", "CustomResourceDefinition", "Service"),
            POLICIES,
            writes("image", "args", "command"),
            trusts,
        ),
    ),
    Cause(
        "finalizers that nobody takes away",
        re.compile(r"has finalizers remaining"),
        any_of(is_a("CustomResourceDefinition", "ServiceAccount"), is_a(*ACCESS), is_a(*WORKLOADS)),
    ),
    NODES_MADE,
    NODES_TAKEN,
    Cause(
        "a budget that allows no disruption",
        re.compile(r"violate the pod's disruption budget"),
        any_of(is_a("PodDisruptionBudget"), is_a(*WORKLOADS)),
    ),
    Cause(
        "a token that is not there",
        re.compile(r"serviceaccount/token: no such file"),
        any_of(
            is_a("ServiceAccount", "MutatingWebhookConfiguration"),
            writes("automountServiceAccountToken", "serviceAccountName", "volumes", "volumeMounts"),
        ),
    ),
    PORTS,
    NETWORK,
    NAMES,
    TRUST,
    KEPT_IN,
    TRACKED,
    EXHAUSTED,
    DISK,
    USED_UP,
    PART,
    KEPT,
    SETTING,
    FILE,
    TURNED_AWAY,
    CREDENTIALS,
    PROTOCOL,
    CONFLICT,
    UNREADABLE,
    UNFIT,
    UNPARSED,
    OPTION,
)
"""The first that fits counts."""


def cause_of(texts: Iterable[str], *, of_those_that_say: bool = False) -> Cause | None:
    """What all of these messages say to be the cause, or all ``of_those_that_say``; None where they differ, or say
    nothing of it."""
    found = {_told(text) for text in texts}
    found -= {""} if of_those_that_say else set()
    found -= {VOLUMES.of} if len(found) > 1 else set()  # each claim is unbound at first: what else is said says more
    return next((cause for cause in CAUSES if found == {cause.of}), None)


@lru_cache(maxsize=4096)
def _told(text: str) -> str:
    """The cause that a message says, by what it is called; "" for none. Complaints repeat the same messages."""
    return next((cause.of for cause in CAUSES if cause.told.search(text)), "")
