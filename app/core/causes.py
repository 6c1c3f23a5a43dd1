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

from app.core.dependencies import VARIABLE
from app.core.entities import WORKLOADS
from app.core.mechanism import ACCESS
from app.core.model import Change, Path, Verb

Leads = Callable[[Change], bool]
"""Whether a change can lead to complaints of one cause."""
_CLAIMS = frozenset({"StorageClass", "PersistentVolumeClaim", "PersistentVolume", "CSIDriver", "VolumeAttributesClass"})
_ADMISSION = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService"})
_CERTIFICATES = frozenset({"Secret", "Certificate", "Issuer", "ClusterIssuer", "CertificateSigningRequest"})
NAME_SERVERS = re.compile(r"coredns|kube-dns|local-?dns|dns-cache")
"""What answers for the names of a cluster, by what it is called."""
PROVIDERS = re.compile(r"\bcsi\b|provisioner")
"""What makes volumes, by what it is called."""


@dataclass(frozen=True, slots=True)
class Cause:
    """``told`` is how it is said; ``leads`` which changes can be behind it. ``of`` says it to a person."""

    of: str
    told: re.Pattern[str]
    leads: Leads


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


_POLICIES = _is("NetworkPolicy", "GlobalNetworkPolicy", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy")
_ON_NODES = _is("DaemonSet", "Node")
_PULL = r"(?:pull(?:ing)? (?:and unpack )?image|ErrImagePull).*"

NAMES = Cause(
    "a name that is not resolved",
    re.compile(r"\blookup \S+.*(?:no such host|server misbehaving|i/o timeout)|name resolution|SERVFAIL|NXDOMAIN"),
    _any(
        _is("Service"),
        _POLICIES,
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
PORTS = Cause(
    "a port of the nodes that is taken",
    re.compile(r"didn't have free ports"),
    _any(_is("Node"), _writes("ports", "hostNetwork", "replicas", "affinity", "nodeSelector", "tolerations")),
)
LINKED = Cause(
    "a variable that pods have since a Service is there",
    VARIABLE,
    _any(_is("Service"), _writes("env", "envFrom", "args", "command", "enableServiceLinks")),
)
"""Not of CAUSES: the words alone do not say it (linked.py)."""
CAUSES = (
    Cause(
        "a certificate, a token or a licence that ran out",
        re.compile(r"has expired|\bexpired\b|is not yet valid", re.IGNORECASE),
        _trusts,
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
        _any(_is("Secret", "ServiceAccount", "MutatingWebhookConfiguration"), _writes("image", "imagePullSecrets")),
    ),
    Cause(
        "an image that does not exist",
        re.compile(_PULL + r"(?:not found|manifest unknown|does not exist)", re.IGNORECASE | re.DOTALL),
        _any(_is("MutatingWebhookConfiguration"), _writes("image")),
    ),
    VOLUMES,
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
        re.compile(r"untolerated taint|didn't match Pod's node (?:affinity|selector)"),
        _any(_is("Node"), _writes("tolerations", "affinity", "nodeSelector", "runtimeClassName")),
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
    PORTS,
    NAMES,
)
"""The first that fits counts."""


def cause_of(texts: Iterable[str]) -> Cause | None:
    """What all of these messages say to be the cause; None where they differ, or say nothing of it."""
    found = {next((cause.of for cause in CAUSES if cause.told.search(text)), "") for text in texts}
    return next((cause for cause in CAUSES if found == {cause.of}), None)
