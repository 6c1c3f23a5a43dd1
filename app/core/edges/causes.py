"""What a complaint says of its own cause: words of Kubernetes, Go and container runtimes that rule changes out.

"x509: certificate has expired" is the clock's doing, and "dial tcp: connection refused" while an image is pulled is the
registry's: whatever was rolled out just then is only the occasion. Words: https://pkg.go.dev/net#DNSError ,
https://pkg.go.dev/crypto/x509#CertificateInvalidError , https://kubernetes.io/docs/concepts/containers/images/ ,
https://kubernetes.io/docs/concepts/scheduling-eviction/ , https://pkg.go.dev/k8s.io/client-go/discovery .
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from app.core.edges.references import is_custom
from app.core.entities import ACCESS, WORKLOADS
from app.core.model import Change, Path, Verb
from app.core.objects.dependencies import VARIABLE
from app.core.objects.values import NUMBER

Leads = Callable[[Change], bool]
"""Whether a change can lead to complaints of one cause."""
_CLAIMS = frozenset({"StorageClass", "PersistentVolumeClaim", "PersistentVolume", "CSIDriver", "VolumeAttributesClass"})
_ADMISSION = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService"})
_CERTIFICATES = frozenset({"Secret", "Certificate", "Issuer", "ClusterIssuer", "CertificateSigningRequest"})
NAME_SERVERS = re.compile(r"coredns|kube-dns|local-?dns|dns-cache")
"""What answers for the names of a cluster, by what it is called."""
NETWORK_FAILS = re.compile(r"no route to host|network is unreachable|i/o timeout|connection timed out|connect: timeout")
"""What is said where packets do not arrive, or none comes back."""
MESHES = re.compile(r"\bmesh|envoy|istio|linkerd|ztunnel|\bl5d\b|consul-connect|kuma")
"""What calls between pods go through, by what it is called."""
NETWORKS = re.compile(
    r"cni\b|calico|canal|cilium|flannel|weave|antrea|aws-node|anetd|multus|kindnet|ovn|kube-router|tigera"
    r"|\bnetwork-(?:config|agent|plugin|operator)"
)
"""What connects pods, by what it is called: https://kubernetes.io/docs/concepts/cluster-administration/addons/ ."""
MAKES_NODES = re.compile(r"cluster-autoscaler|karpenter")
"""What adds nodes where pods find no room, by what it is called."""
NODE_KINDS = re.compile(r"(?:Node|Machine)(?:Pool|Set|Deployment|Class)|Provisioner|\w+NodeClass|\w+MachineTemplate")
"""Kinds by which nodes are made: https://karpenter.sh/docs/concepts/ , https://cluster-api.sigs.k8s.io/ ."""
PROVIDERS = re.compile(r"\bcsi\b|provisioner")
"""What makes volumes, by what it is called."""


@dataclass(frozen=True, slots=True)
class Cause:
    """``told`` is how it is said; ``leads`` which changes can be behind it, ``few`` whether these are few of
    all. ``of`` says it to a person."""

    of: str
    told: re.Pattern[str]
    leads: Leads
    few: bool = True


def _is(*kinds: str) -> Leads:
    return lambda change: change.resource.kind in kinds


def _writes(*fields: str) -> Leads:
    """Of a workload: what is new, and a change of one of these fields."""

    def leads(change: Change) -> bool:
        if change.resource.kind not in WORKLOADS:
            return False
        return change.verb is Verb.CREATE or any(not set(fields).isdisjoint(map(str, d.path)) for d in change.diffs)

    return leads


def _any(*ways: Leads) -> Leads:
    return lambda change: any(way(change) for way in ways)


def _serves_names(change: Change) -> bool:
    return NAME_SERVERS.search(change.resource.name) is not None


def _provides_volumes(change: Change) -> bool:
    return change.resource.kind in WORKLOADS | {"ConfigMap", "Secret"} and bool(PROVIDERS.search(change.resource.name))


def _connects(change: Change) -> bool:
    """Whether something of a network plugin is changed: its programs and configuration, or what it reads."""
    return NETWORKS.search(change.resource.name) is not None or is_custom(change.resource)


def _makes_nodes(change: Change) -> bool:
    named = change.resource.kind in WORKLOADS | {"ConfigMap"} and MAKES_NODES.search(change.resource.name)
    return bool(named) or NODE_KINDS.match(change.resource.kind) is not None


def _is_policy(change: Change) -> bool:
    """Whether it is a custom resource by which objects are altered as they are written."""
    return is_custom(change.resource) and re.search(r"Policy\Z|\AAssign", change.resource.kind) is not None


def _is_custom_kind(change: Change) -> bool:
    return is_custom(change.resource)


def _sets_words(change: Change) -> bool:
    """Whether a ConfigMap was changed, in more than numbers: these say nothing of who may log in, and whom to trust."""
    said = [value for diff in change.diffs for value in (diff.old, diff.new) if value is not None]
    return change.resource.kind == "ConfigMap" and not (said and all(NUMBER.fullmatch(str(value)) for value in said))


def _certifies(change: Change) -> bool:
    """Whether an update writes a certificate of one's own: whom to trust does not let one expire."""
    written = {str(d.path[-1]) for d in change.diffs if d.path}
    is_own = change.resource.kind in _CERTIFICATES and written != {"ca.crt"}
    return is_own or not written.isdisjoint(("tls.crt", "caBundle"))


def _trusts(change: Change) -> bool:
    """Whether an update writes a certificate, or whom to trust."""
    written = any(str(d.path[-1]) in ("caBundle", "ca.crt", "tls.crt") for d in change.diffs if d.path)
    return change.resource.kind in _CERTIFICATES or written


def _other_registry(change: Change) -> bool:
    """Whether an image is to be pulled from somewhere else than before."""
    return any(_registry(d.old) != _registry(d.new) for d in change.diffs if _last(d.path) == "image")


def _registry(image: object) -> str:
    return str(image).rpartition("/")[0].partition("/")[0]


def _last(path: Path) -> str:
    return str(path[-1]) if path else ""


def limits_egress(change: Change) -> bool:
    """Whether a policy says whom pods may call: a NetworkPolicy may speak of their callers alone."""
    said = f"{[(diff.path, diff.old, diff.new) for diff in change.diffs]}".lower()
    return _POLICIES(change) and (change.resource.kind != "NetworkPolicy" or "egress" in said)


_POLICIES = _is("NetworkPolicy", "GlobalNetworkPolicy", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy")
_ON_NODES = _is("DaemonSet", "Node")
_PULL = r"(?:pull(?:ing)? (?:and unpack )?image|ErrImagePull).*"

NETWORK = Cause(
    "a network that pods do not get",
    re.compile(
        r"(?:failed to setup network|network plugin|plugin type=|NetworkPlugin|cni).*sandbox|sandbox.*(?:network|cni)",
        re.IGNORECASE | re.DOTALL,
    ),
    _any(
        _ON_NODES,
        _connects,
        _is(*ACCESS),
        _is("RuntimeClass"),
        _writes("hostNetwork", "annotations", "runtimeClassName"),
    ),
)
NAMES = Cause(
    "a name that is not resolved",
    re.compile(
        r"\blookup \S+.*(?:no such host|server misbehaving|i/o timeout)|name resolution|SERVFAIL|NXDOMAIN|EAI_AGAIN"
        r"|ENOTFOUND|UnknownHost|(?:couldn't|could not|cannot|unable to|failed to) resolve (?:host|server|name|address)"
        r"|host not found|[Nn]o resolvable"
    ),
    _any(
        _is("Service"),
        limits_egress,
        _ON_NODES,
        _serves_names,
        _writes("env", "envFrom", "args", "command", "dnsPolicy", "dnsConfig"),
    ),
)
VOLUMES = Cause(
    "a volume that nobody provides",
    re.compile(r"unbound immediate PersistentVolumeClaims|storageclass\S* .*not found|no persistent volumes avail"),
    _any(_is(*_CLAIMS), _writes("volumes", "volumeClaimTemplates"), _provides_volumes),
)
AWAY = Cause(
    "a volume that is where pods may not be",
    re.compile(r"didn't match PersistentVolume's node affinity|volume node affinity conflict"),
    _any(
        _is(*_CLAIMS, "Node"),
        _provides_volumes,
        _makes_nodes,
        _writes("volumes", "volumeClaimTemplates", "affinity", "nodeSelector", "topologySpreadConstraints"),
    ),
)
PORTS = Cause(
    "a port of the nodes that is taken",
    re.compile(r"didn't have free ports"),
    _any(_is("Node"), _writes("ports", "hostNetwork", "replicas", "affinity", "nodeSelector", "tolerations")),
)
TRUST = Cause(
    "a certificate that is not trusted",
    re.compile(
        r"x509: |certificate.verify.failed|unable to (?:get local issuer|verify the first) certificate|self.signed"
        r"|PKIX path|unknown (?:certificate )?authority|unknown ca\b|certificate is (?:valid for|not trusted)"
        r"|UnknownIssuer|invalid peer certificate|bad certificate|no required SSL certificate",
        re.IGNORECASE,
    ),
    _any(
        _trusts,
        _sets_words,
        _is_custom_kind,
        _is(*_ADMISSION),
        _writes("env", "envFrom", "args", "command", "volumes", "volumeMounts"),
    ),
    few=False,
)
CREDENTIALS = Cause(
    "who is not let in",
    re.compile(
        r"authentication failed|authenticationerror|password|invalid (?:api )?(?:key|token|credential|grant|client)"
        r"|unauthori[sz]ed|\b401\b|access ?denied|WRONGPASS|NOAUTH|bad credentials|not authori[sz]ed|login failed"
        r"|NoCredential|locate credentials"
        r"|\bjwt|invalid.{0,2}(?:audience|issuer|signature)|token (?:is|was) (?:invalid|not valid)",
        re.IGNORECASE,
    ),
    _any(
        _is("Secret", "ServiceAccount", *ACCESS),
        _sets_words,
        _is_custom_kind,
        _writes("env", "envFrom", "args", "command", "volumes", "volumeMounts", "serviceAccountName"),
    ),
    few=False,
)
DISK = Cause(
    "a disk that is full",
    re.compile(r"no space left on device|disk (?:is )?full|ENOSPC|disk quota exceeded", re.IGNORECASE),
    _any(
        _is("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "ConfigMap", "Node", "DaemonSet"),
        _is_custom_kind,
        _writes(
            "image", "env", "envFrom", "args", "command", "volumes", "volumeClaimTemplates", "resources", "replicas"
        ),
    ),
    few=False,
)
LINKED = Cause(
    "a variable that pods have since a Service is there",
    VARIABLE,
    _any(_is("Service"), _writes("env", "envFrom", "args", "command", "enableServiceLinks")),
)
"""Not of CAUSES: the words alone do not say it (linked.py)."""
OUTSIDE = Cause(
    "a server outside of the cluster that does not answer",
    re.compile(
        r"timed? ?out|timeout|deadline exceeded|refused|reset by peer|unreachable|no route to host|unavailable"
        r"|maintenance|bad gateway|internal server error|\b50[0234]\b",
        re.IGNORECASE,
    ),
    _any(
        limits_egress,
        _ON_NODES,
        _serves_names,
        _connects,
        _is("ConfigMap", "Endpoints", "EndpointSlice"),
        _writes("env", "envFrom", "args", "command", "dnsPolicy", "dnsConfig", "hostNetwork"),
    ),
    few=False,
)
"""Nor of CAUSES (outside.py). Not in its words: 401 and 429, which a caller may bring about himself."""
NODES_MADE = Cause(
    "nodes that nobody makes",
    re.compile(r"max node group size reached|exceed limits for nodepool|no instance type (?:met|satisf)"),
    _any(_is("Node"), _makes_nodes, _writes("tolerations", "affinity", "nodeSelector", "resources")),
)
PROGRAM = Cause(
    "a program that cannot be run",
    re.compile(r"exec format error|executable file not found|exec: .*(?:no such file|permission denied)"),
    _any(
        _is("Node", "MutatingWebhookConfiguration"),
        _makes_nodes,
        _writes("image", "command", "args", "volumes", "volumeMounts", "nodeSelector", "affinity", "securityContext"),
    ),
)
RUNTIME = Cause(
    "a container runtime that nodes do not have",
    re.compile(r'no runtime for "|(?:failed to get|find) (?:sandbox )?runtime|RuntimeHandler "[^"]*" not supported'),
    _any(_ON_NODES, _is("RuntimeClass"), _makes_nodes, _writes("runtimeClassName")),
)
PROVIDER = Cause(
    "a provider of volumes that fails",
    re.compile(
        r"(?:volume|attach|provision|disk).*(?:googleapi: Error 5|backendError|InternalError|InternalFailure"
        r"|ServiceUnavailable|Internal error\. Please try again|RequestLimitExceeded|InsufficientCapacity)",
        re.IGNORECASE | re.DOTALL,
    ),
    _any(_is("StorageClass", "CSIDriver"), _provides_volumes),
)
SCHEMA = Cause(
    "a database that has other tables than is asked for",
    re.compile(
        r"unknown column|no such (?:column|table)|(?:column|relation|table) \S+ (?:does not|doesn.t) exist"
        r"|undefined (?:column|table)|invalid column name|invalid object name|unknown collection",
        re.IGNORECASE,
    ),
    _any(_is("Job", "CronJob"), _is_custom_kind, _writes("image", "env", "args", "command")),
)
EXHAUSTED = Cause(
    "what a process may have, and gives nothing back of",
    re.compile(
        r"too many open files|\bEMFILE\b|\bENFILE\b|unable to create (?:new )?native thread|can't start new thread"
        r"|pthread_create.*failed|failed to create new OS thread|fork: .*resource temporarily unavailable"
        r"|inotify (?:instances|watches)|inotify_add_watch|file watchers reached",
        re.IGNORECASE,
    ),
    _any(
        _ON_NODES,
        _makes_nodes,
        _is("MutatingWebhookConfiguration"),
        _writes("image", "env", "envFrom", "args", "command", "resources", "securityContext"),
    ),
    few=False,
)
"""A limit of the operating system (getrlimit(2), inotify(7)). It takes a while to be reached."""
UNREADABLE = Cause(
    "what another version wrote",
    re.compile(
        r"WRONGTYPE|(?:de)?serializationexception|deserializ\w+ (?:key|value|record|message|payload|object)"
        r"|unknown magic byte|unpickl\w+|InvalidClassException|incompatible (?:schema|with an earlier schema)"
        r"|unknown (?:wire type|enum value)",
        re.IGNORECASE,
    ),
    _any(_is("Job", "CronJob"), _is_custom_kind, _writes("image", "env", "args", "command")),
)
"""Of a store, a queue or a cache that several read: https://redis.io/docs/latest/develop/reference/protocol-spec/ ,
https://kafka.apache.org/documentation/ (RecordDeserializationException)."""
USED_UP = Cause(
    "what was paid for and is used up",
    re.compile(
        r"(?:monthly|daily) (?:\w+ )?(?:quota|limit)|insufficient_quota|quota_exceeded|exceeded your (?:current )?quota"
        r"|(?:plan|subscription) (?:limit|quota|allows)|maximum credits exceeded|payment required"
        r"|wraparound|must be vacuumed within|reached maximum value of sequence|failed to read auto-increment value"
        r"|integer out of range",
        re.IGNORECASE,
    ),
    _any(
        _is("Job", "CronJob", "HorizontalPodAutoscaler", "Secret", "ConfigMap"),
        _writes("env", "envFrom", "args", "command", "replicas"),
    ),
    few=False,
)
"""As those say who sell calls: Stripe, SendGrid, OpenAI. It is the sum of a month, and no release of today's. So are
the numbers of a database's rows and transactions
(https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND)."""
CONFLICT = Cause(
    "programs that write the same object",
    re.compile(r"the object has been modified; please apply your changes to the latest version"),
    _is(*WORKLOADS, *ACCESS, "ConfigMap", "Secret", "MutatingWebhookConfiguration", "CustomResourceDefinition"),
    few=False,
)
"""How the API server refuses what was read before somebody else wrote: one write of the object refuses one, a program
that writes it again and again refuses many
(https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions)."""
RIGHTS = Cause(
    "a right that is missing",
    re.compile(r"is forbidden: User \S+ cannot \w+ resource"),
    _any(
        _is("ServiceAccount", "Namespace", *ACCESS),
        _is_custom_kind,
        _writes("image", "env", "envFrom", "args", "command", "serviceAccountName"),
    ),
    few=False,
)
"""How the API server refuses (https://kubernetes.io/docs/reference/access-authn-authz/rbac/). It names what was asked
for, which has no part in it."""
HARDWARE = Cause(
    "a machine that is ill",
    re.compile(
        r"Link is (?:Up - 10{1,2}Mbps|Down)|I/O error, dev|Machine check|\bmce: |\bEDAC\b|NVRM: Xid|Uncorrectable"
        r"|Remounting filesystem read-only|EXT4-fs error|nvme\S* .*(?:timeout|failed)|link flap",
        re.IGNORECASE,
    ),
    _is("Node"),
)
"""As the kernel says it, and node-problem-detector tells it (https://github.com/kubernetes/node-problem-detector)."""
CAUSES = (
    HARDWARE,
    RIGHTS,
    PROGRAM,
    RUNTIME,
    PROVIDER,
    SCHEMA,
    Cause(
        "a certificate, a token or a licence that ran out",
        re.compile(r"has expired|\bexpired\b|is not yet valid", re.IGNORECASE),
        _certifies,
    ),
    Cause(
        "a registry that does not answer",
        re.compile(
            _PULL + r"(?:connection refused|connection reset|i/o timeout|deadline exceeded|TLS handshake timeout"
            r"|\b50[0234]\b|\b429\b|toomanyrequests|no route to host)",
            re.IGNORECASE | re.DOTALL,
        ),
        _any(_other_registry, _ON_NODES, _is("MutatingWebhookConfiguration"), _serves_names),
    ),
    Cause(
        "a right to pull that is missing",
        re.compile(_PULL + r"(?:unauthorized|denied|forbidden|\b40[13]\b|no basic auth)", re.IGNORECASE | re.DOTALL),
        _any(
            _is("Secret", "ServiceAccount", "MutatingWebhookConfiguration", "Node"),
            _makes_nodes,
            _writes("image", "imagePullSecrets"),
        ),
    ),
    Cause(
        "an image that does not exist",
        re.compile(_PULL + r"(?:not found|manifest unknown|does not exist)", re.IGNORECASE | re.DOTALL),
        _any(_is("MutatingWebhookConfiguration", "MutatingAdmissionPolicy"), _is_policy, _writes("image")),
    ),
    VOLUMES,
    AWAY,
    Cause(
        "configuration that is not there",
        re.compile(r"(?:configmap|secret) \S+ not found|couldn't find key", re.IGNORECASE),
        _any(
            _is("ConfigMap", "Secret", "ExternalSecret", "SealedSecret", "Certificate", "Namespace"),
            _writes("env", "envFrom", "volumes"),
        ),
    ),
    Cause(
        "nodes that do not let a pod in",
        re.compile(
            r"untolerated taint|didn't match Pod's node (?:affinity|selector)|(?:were unschedulable|spread constr)"
        ),
        _any(
            _is("Node"),
            _writes("tolerations", "affinity", "nodeSelector", "topologySpreadConstraints", "runtimeClassName"),
        ),
    ),
    Cause(
        "an API that nothing serves",
        re.compile(r"complete list of server APIs|stale GroupVersion discovery"),
        _any(_is("APIService", "CustomResourceDefinition", "Service"), _POLICIES, _is(*WORKLOADS), _trusts),
    ),
    Cause(
        "finalizers that nobody takes away",
        re.compile(r"has finalizers remaining"),
        _any(_is("CustomResourceDefinition", "ServiceAccount"), _is(*ACCESS), _is(*WORKLOADS)),
    ),
    NODES_MADE,
    Cause(
        "a budget that allows no disruption",
        re.compile(r"violate the pod's disruption budget"),
        _any(_is("PodDisruptionBudget"), _is(*WORKLOADS)),
    ),
    Cause(
        "a token that is not there",
        re.compile(r"serviceaccount/token: no such file"),
        _any(
            _is("ServiceAccount", "MutatingWebhookConfiguration"),
            _writes("automountServiceAccountToken", "serviceAccountName", "volumes", "volumeMounts"),
        ),
    ),
    PORTS,
    NETWORK,
    NAMES,
    TRUST,
    EXHAUSTED,
    DISK,
    USED_UP,
    CREDENTIALS,
    CONFLICT,
    UNREADABLE,
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
