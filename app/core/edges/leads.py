"""Which changes can lead to what complaints say of their own cause: by kind, by what they write, by what is called so.

causes.py says what is told of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.core.edges.references import is_custom
from app.core.edges.settings import differing
from app.core.entities import WORKLOADS
from app.core.model import Change, FieldDiff, Path, Verb
from app.core.objects.grants import enlarges
from app.core.objects.values import NUMBER

Leads = Callable[[Change], bool]
"""Whether a change can lead to complaints of one cause."""


@dataclass(frozen=True, slots=True)
class Cause:
    """``told`` is how it is said; ``leads`` which changes can be behind it, ``few`` whether these are few of
    all. ``of`` says it to a person."""

    of: str
    told: re.Pattern[str]
    leads: Leads
    few: bool = True


CLAIMS = frozenset({"StorageClass", "PersistentVolumeClaim", "PersistentVolume", "CSIDriver", "VolumeAttributesClass"})
"""By what volumes are provided."""
ADMISSION = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService"})
"""What the API server asks others by."""
_CERTIFICATES = frozenset({"Secret", "Certificate", "Issuer", "ClusterIssuer", "CertificateSigningRequest"})
NAME_SERVERS = re.compile(r"coredns|kube-dns|local-?dns|dns-cache")
"""What answers for the names of a cluster, by what it is called."""
MESHES = re.compile(r"\bmesh|envoy|istio|linkerd|ztunnel|\bl5d\b|consul-connect|kuma")
"""What calls between pods go through, by what it is called."""
NETWORKS = re.compile(
    r"cni\b|calico|canal|cilium|flannel|weave|antrea|aws-node|anetd|multus|kindnet|ovn|kube-router|tigera"
    r"|ip-masq|\bnetwork-(?:config|agent|plugin|operator)"
)
"""What connects pods, by what it is called: https://kubernetes.io/docs/concepts/cluster-administration/addons/ ."""
MAKES_NODES = re.compile(r"cluster-autoscaler|karpenter")
"""What adds nodes where pods find no room, by what it is called."""
NODE_KINDS = re.compile(r"(?:Node|Machine)(?:Pool|Set|Deployment|Class)|Provisioner|\w+NodeClass|\w+MachineTemplate")
"""Kinds by which nodes are made: https://karpenter.sh/docs/concepts/ , https://cluster-api.sigs.k8s.io/ ."""
REGISTRIES = re.compile(
    r"\A(?!.*(?:pull|cred|login|auth|schema|model-|service-)).*(?:\bregistry\b|\bharbor\b|\bquay\b|\bnexus\b|artifactory|\bzot\b"
    r"|\b(?:image|tag)s?-(?:clean|prun|purg|reap|retention|delet|expir))"
)
"""What gives out images, by what it is called, where a cluster has its own, and what takes old ones away there; not
what it is asked with, nor registries of schemas, models or services."""
PROVIDERS = re.compile(r"\bcsi\b|provisioner")
"""What makes volumes, by what it is called."""


def is_a(*kinds: str) -> Leads:
    """Of objects of these kinds."""
    return lambda change: change.resource.kind in kinds


def writes(*fields: str) -> Leads:
    """Of a workload: what is new, and a change of one of these fields."""

    def leads(change: Change) -> bool:
        if change.resource.kind not in WORKLOADS:
            return False
        return change.verb is Verb.CREATE or any(not set(fields).isdisjoint(map(str, d.path)) for d in change.diffs)

    return leads


_MORE = frozenset({"parallelism", "resources", "schedule", "concurrencyPolicy", "suspend"})


def wants_more(change: Change) -> bool:
    """Whether it makes an object, or says how many pods there are to be, or how much they ask for."""
    steps = {str(step) for diff in change.diffs for step in diff.path}
    return change.verb is Verb.CREATE or bool(steps & _MORE) or any("eplica" in step for step in steps)


def any_of(*ways: Leads) -> Leads:
    """In any of these ways."""
    return lambda change: any(way(change) for way in ways)


def serves_names(change: Change) -> bool:
    return NAME_SERVERS.search(change.resource.name) is not None


RECORDS = re.compile(r"external-?dns|octodns")
"""What keeps the records of public names, by what it is called."""


def keeps_records(change: Change) -> bool:
    return RECORDS.search(change.resource.name) is not None


_HOSTS = frozenset({"host", "hosts", "hostname", "hostnames"})
_OF_RECORDS = re.compile(r"external-?dns|dnsName", re.IGNORECASE)


_HELD = re.compile(r"selectPolicy|paused", re.IGNORECASE)
_DOWN = re.compile(r"scale-?down|scale-in", re.IGNORECASE)
_NO_MORE = frozenset({"Disabled", "true", "True"})
_UP = "scaleUp"


def scales_no_more(change: Change) -> bool:
    """Whether an autoscaler is told to make no more pods, whatever is asked, or only slowly: it goes, its scaling up is
    disabled or bounded, it is paused (https://keda.sh/docs/latest/concepts/scaling-deployments/#pausing-autoscaling),
    or it goes no longer by what it went by.
    """
    if change.resource.kind not in {"HorizontalPodAutoscaler", "ScaledObject"}:
        return False
    said = (
        (path, value)
        for diff in change.diffs
        for path, value in _leaves(diff.path, diff.new)
        if _HELD.search(str(path[-1])) and not any(_DOWN.search(str(step)) for step in path)
    )
    no_more = change.verb is Verb.DELETE or any(str(value) in _NO_MORE or str(value).isdecimal() for _, value in said)
    return no_more or any(map(_scales_slower, change.diffs)) or any(map(_measures_no_more, change.diffs))


def _measures_no_more(diff: FieldDiff) -> bool:
    """Whether something is no longer measured by which an autoscaler made pods."""
    return diff.path[:1] == ("spec",) and diff.path[1:2] in (("metrics",), ("triggers",)) and diff.new is None


def _scales_slower(diff: FieldDiff) -> bool:
    """Whether it bounds how many pods an autoscaler adds at once, or has it wait for longer before that
    (https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#scaling-policies)."""
    if not isinstance(diff.new, dict | list | int) or _UP not in f"{diff.path} {diff.new}":
        return False
    if not (isinstance(diff.old, int) and isinstance(diff.new, int)):
        return diff.old is None
    return diff.new < diff.old if diff.path[-1] == "value" else diff.new > diff.old


def _leaves(path: Path, value: object) -> Iterator[tuple[Path, object]]:
    """What stands at the ends of a value, each with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves((*path, str(key)), inner)
    elif path:
        yield path, value


def names_hosts(change: Change) -> bool:
    """Whether an Ingress or a route is made or goes, or says for which hosts it is, or what is recorded of them."""
    is_whole = change.verb in (Verb.CREATE, Verb.DELETE)
    leaves = (leaf for diff in change.diffs for value in (diff.old, diff.new) for leaf in _leaves(diff.path, value))
    said = any(str(path[-1]) in _HOSTS or _OF_RECORDS.search(str(path[-1])) for path, _ in leaves)
    return change.resource.kind in {"Ingress", "Gateway", "HTTPRoute", "DNSEndpoint"} and (is_whole or said)


def provides_volumes(change: Change) -> bool:
    return change.resource.kind in WORKLOADS | {"ConfigMap", "Secret"} and bool(PROVIDERS.search(change.resource.name))


def fills_volumes(change: Change) -> bool:
    """Whether a volume, or the claim to one, is another: but where it only becomes larger."""
    return change.resource.kind in {"PersistentVolumeClaim", "PersistentVolume"} and not enlarges(change)


def connects(change: Change) -> bool:
    """Whether something of a network plugin is changed: its programs and configuration, or what it reads."""
    return NETWORKS.search(change.resource.name) is not None or is_custom(change.resource)


def makes_nodes(change: Change) -> bool:
    named = change.resource.kind in WORKLOADS | {"ConfigMap"} and MAKES_NODES.search(change.resource.name)
    return bool(named) or NODE_KINDS.match(change.resource.kind) is not None


def is_altering(change: Change) -> bool:
    """Whether it is a custom resource by which objects are altered as they are written."""
    return is_custom(change.resource) and re.search(r"Policy\Z|\AAssign", change.resource.kind) is not None


def is_custom_kind(change: Change) -> bool:
    return is_custom(change.resource)


def sets_words(change: Change) -> bool:
    """Whether a ConfigMap was changed, in more than numbers: these say nothing of who may log in, and whom to trust."""
    said = [value for diff in change.diffs for value in (diff.old, diff.new) if value is not None]
    return change.resource.kind == "ConfigMap" and not (said and all(NUMBER.fullmatch(str(value)) for value in said))


def says_who(change: Change) -> bool:
    """Whether a custom resource was changed in more than numbers, which say nothing of who may log in, or of whom to
    trust."""
    said = [value for diff in change.diffs for value in (diff.old, diff.new) if value is not None]
    return is_custom(change.resource) and not (said and all(NUMBER.fullmatch(str(value)) for value in said))


_OF_CALLS = re.compile(r"\d|[./:]|\A(?:true|false|on|off|yes|no)\Z", re.IGNORECASE)
"""What a setting has in it that may say whom to call, or how: a number, a name of several parts, a switch."""


def sets_calls(change: Change) -> bool:
    """Whether an update of a ConfigMap may say whom to call, or how: not where one plain word became another."""
    if change.resource.kind != "ConfigMap":
        return False
    said = [str(value) for diff in change.diffs for value in (diff.old, diff.new) if value is not None]
    return not said or any(map(_OF_CALLS.search, said))


_TELLS = frozenset({"env", "envFrom", "args", "command"})


def tells_calls(change: Change) -> bool:
    """Whether a workload is new, or told whom to call, or how, by its variables or arguments: not by one plain word in
    the place of another, or of none."""
    if change.resource.kind not in WORKLOADS or change.verb is Verb.CREATE:
        return change.resource.kind in WORKLOADS
    told = (diff for diff in change.diffs if not _TELLS.isdisjoint(map(str, diff.path)))
    values = (value for diff in told for value in (diff.old, diff.new) if value is not None)
    said = (str(value.get("value", value) if isinstance(value, dict) else value) for value in values)
    return any(map(_OF_CALLS.search, said))


_OF_PARTS = re.compile(
    r"path|plugin|module|extension|import|require|librar|class|agent|opts|options|driver|preload|\bLD_", re.IGNORECASE
)
"""Names of settings, and what stands in them, that say what a program loads, and from where."""


def sets_parts(change: Change) -> bool:
    """Whether a ConfigMap is changed by which a program may be told what to load."""
    said = (str(text) for diff in change.diffs for text in (diff.path, diff.old, diff.new))
    return change.resource.kind == "ConfigMap" and (not change.diffs or any(map(_OF_PARTS.search, said)))


_OF_KERNEL = re.compile(
    r"\b(?:net\.(?:core|ipv[46]|netfilter|bridge|unix|nf_conntrack)|fs\.(?:file-max|nr_open|inotify|aio|epoll|pipe|mqueue)"
    r"|vm\.[a-z]+_\w+|kernel\.(?:pid_max|threads-max|sem|shm\w+|msg\w+|keys))\b"
)
"""Names of the kernel's settings (https://docs.kernel.org/admin-guide/sysctl/)."""


def tunes_kernel(change: Change) -> bool:
    """Whether an update of what runs on nodes, or of configuration, sets what the kernel lets every process have."""
    is_of_nodes = change.resource.kind in ("DaemonSet", "ConfigMap") or is_custom(change.resource)
    return is_of_nodes and change.verb is Verb.UPDATE and any(map(_OF_KERNEL.search, _differing(change)))


_OF_ROOM = re.compile(r"(?:kube|system)-?reserved|eviction-?hard|max-?pods|reserved-?system-?cpus", re.IGNORECASE)
"""What kubelets are told by which less of a node is left for pods
(https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/)."""


def sets_room(change: Change) -> bool:
    """Whether an update says how much of a node is kept from pods, or how many it takes, or how large a pool may be."""
    if change.verb is not Verb.UPDATE or change.resource.kind in WORKLOADS:
        return False
    is_pool = NODE_KINDS.match(change.resource.kind) is not None
    is_said = any(map(_OF_ROOM.search, _differing(change)))
    return is_said or (is_pool and any("limits" in diff.path for diff in change.diffs))


def _differing(change: Change) -> Iterator[str]:
    """What an update changed, with what it is called."""
    return (f"{diff.path} {told}" for diff in change.diffs for told in differing(diff))


def meshes(change: Change) -> bool:
    """Whether something of a mesh is changed, by what it or its namespace is called."""
    return MESHES.search(f"{change.resource.namespace} {change.resource.name}") is not None


def certifies(change: Change) -> bool:
    """Whether an update writes a certificate of one's own: whom to trust does not let one expire."""
    written = {str(d.path[-1]) for d in change.diffs if d.path}
    is_own = change.resource.kind in _CERTIFICATES and written != {"ca.crt"}
    return is_own or not written.isdisjoint(("tls.crt", "caBundle"))


def trusts(change: Change) -> bool:
    """Whether an update writes a certificate, or whom to trust."""
    written = any(str(d.path[-1]) in ("caBundle", "ca.crt", "tls.crt") for d in change.diffs if d.path)
    return change.resource.kind in _CERTIFICATES or written


def other_registry(change: Change) -> bool:
    """Whether an image is to be pulled from somewhere else than before."""
    return any(_registry(d.old) != _registry(d.new) for d in change.diffs if _last(d.path) == "image")


def other_repository(change: Change) -> bool:
    """Whether a workload is new, or an image is another one than before and not only another tag or digest of it: the
    right to pull is given by repository (https://distribution.github.io/distribution/spec/auth/scope/)."""
    if change.resource.kind not in WORKLOADS:
        return False
    images = [diff for diff in change.diffs if _last(diff.path) == "image"]
    return change.verb is Verb.CREATE or any(repository(str(d.old)) != repository(str(d.new)) for d in images)


def repository(image: str) -> str:
    """An image's name without its tag and digest."""
    path, _, name = image.partition("@")[0].rpartition("/")
    return f"{path}/{name.partition(':')[0]}"


_OF_MIRRORS = re.compile(r"\[host\.\"https?://|registry-mirrors|\[\[registry|\.registry\.(?:mirrors|configs)")


def gives_images(change: Change) -> bool:
    """Whether something of a registry is changed, by what it is called, or of where nodes ask for images first
    (https://github.com/containerd/containerd/blob/main/docs/hosts.md)."""
    is_one = REGISTRIES.search(change.resource.name) is not None and change.resource.kind != "DaemonSet"
    return is_one or lists_mirrors(change)


def lists_mirrors(change: Change) -> bool:
    """Whether configuration says to container runtimes where they find images."""
    said = (value for diff in change.diffs for value in (diff.old, diff.new) if isinstance(value, str))
    return change.resource.kind == "ConfigMap" and any(map(_OF_MIRRORS.search, said))


def _registry(image: object) -> str:
    return str(image).rpartition("/")[0].partition("/")[0]


def _last(path: Path) -> str:
    return str(path[-1]) if path else ""


def limits_egress(change: Change) -> bool:
    """Whether a policy says whom pods may call: a NetworkPolicy may speak of their callers alone."""
    said = f"{[(diff.path, diff.old, diff.new) for diff in change.diffs]}".lower()
    return POLICIES(change) and (change.resource.kind != "NetworkPolicy" or "egress" in said)


POLICIES = is_a("NetworkPolicy", "GlobalNetworkPolicy", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy")
ON_NODES = is_a("DaemonSet", "Node")
