"""What kinds of objects there are, and how each is treated: told, on the timeline, kept as state, or never stored.

Kinds, plurals and scopes of the built-in API are those of Kubernetes 1.36 (`kubectl api-resources`); the well-known
custom ones are those of the projects' own CRDs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from app.core.model import Object


class Policy(StrEnum):
    """What a write to a kind becomes."""

    TOLD = "told"  # a change, on the timeline and told in chat
    TIMELINE = "timeline"  # a change, on the timeline
    STATE = "state"  # kept as the last known state; never a change
    NEVER = "never"  # not stored


class Lane(StrEnum):
    """The lane of the timeline in which changes of a kind are drawn."""

    ROLLOUTS = "rollouts"
    CONFIG = "config"
    ACCESS = "access"
    CUSTOM = "custom"
    CAPACITY = "capacity"
    EXTERNAL = "external"


EXTERNAL = "external:"
"""Begins the API group of what Kubernetes does not know, with who told of it behind: external:terraform. No API group
can hold a colon, and no kind of Kubernetes is written in small letters throughout, as these kinds are."""


@dataclass(frozen=True, slots=True)
class KindInfo:
    """One kind: its names in URLs and in bodies, its scope, its treatment."""

    api_group: str
    kind: str
    plural: str
    namespaced: bool
    policy: Policy
    lane: Lane


_TABLE = """
- Namespace namespaces cluster told config
- Node nodes cluster told capacity
- ConfigMap configmaps ns timeline config
- Secret secrets ns timeline config
- ServiceAccount serviceaccounts ns timeline access
- Service services ns timeline access
- ResourceQuota resourcequotas ns told capacity
- LimitRange limitranges ns told capacity
- PersistentVolume persistentvolumes cluster timeline capacity
- PersistentVolumeClaim persistentvolumeclaims ns timeline capacity
- ReplicationController replicationcontrollers ns timeline rollouts
- PodTemplate podtemplates ns timeline config
- Pod pods ns state rollouts
- Event events ns never rollouts
- Endpoints endpoints ns never access
- Binding bindings ns never rollouts
- ComponentStatus componentstatuses cluster never capacity
apps Deployment deployments ns told rollouts
apps StatefulSet statefulsets ns told rollouts
apps DaemonSet daemonsets ns told rollouts
apps ReplicaSet replicasets ns state rollouts
apps ControllerRevision controllerrevisions ns never rollouts
batch CronJob cronjobs ns told rollouts
batch Job jobs ns timeline rollouts
autoscaling HorizontalPodAutoscaler horizontalpodautoscalers ns timeline capacity
autoscaling.k8s.io VerticalPodAutoscaler verticalpodautoscalers ns timeline capacity
policy PodDisruptionBudget poddisruptionbudgets ns timeline capacity
rbac.authorization.k8s.io Role roles ns timeline access
rbac.authorization.k8s.io RoleBinding rolebindings ns timeline access
rbac.authorization.k8s.io ClusterRole clusterroles cluster timeline access
rbac.authorization.k8s.io ClusterRoleBinding clusterrolebindings cluster timeline access
networking.k8s.io NetworkPolicy networkpolicies ns told access
networking.k8s.io Ingress ingresses ns timeline access
networking.k8s.io IngressClass ingressclasses cluster timeline access
networking.k8s.io IPAddress ipaddresses cluster never access
networking.k8s.io ServiceCIDR servicecidrs cluster timeline access
gateway.networking.k8s.io Gateway gateways ns timeline access
gateway.networking.k8s.io GatewayClass gatewayclasses cluster timeline access
gateway.networking.k8s.io HTTPRoute httproutes ns timeline access
gateway.networking.k8s.io GRPCRoute grpcroutes ns timeline access
gateway.networking.k8s.io ReferenceGrant referencegrants ns timeline access
admissionregistration.k8s.io MutatingWebhookConfiguration mutatingwebhookconfigurations cluster told access
admissionregistration.k8s.io ValidatingWebhookConfiguration validatingwebhookconfigurations cluster told access
admissionregistration.k8s.io ValidatingAdmissionPolicy validatingadmissionpolicies cluster told access
admissionregistration.k8s.io ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings cluster told access
admissionregistration.k8s.io MutatingAdmissionPolicy mutatingadmissionpolicies cluster told access
admissionregistration.k8s.io MutatingAdmissionPolicyBinding mutatingadmissionpolicybindings cluster told access
apiextensions.k8s.io CustomResourceDefinition customresourcedefinitions cluster told config
apiregistration.k8s.io APIService apiservices cluster told access
scheduling.k8s.io PriorityClass priorityclasses cluster told capacity
flowcontrol.apiserver.k8s.io FlowSchema flowschemas cluster told capacity
flowcontrol.apiserver.k8s.io PriorityLevelConfiguration prioritylevelconfigurations cluster told capacity
storage.k8s.io StorageClass storageclasses cluster timeline capacity
storage.k8s.io CSIDriver csidrivers cluster timeline capacity
storage.k8s.io CSINode csinodes cluster never capacity
storage.k8s.io CSIStorageCapacity csistoragecapacities ns never capacity
storage.k8s.io VolumeAttachment volumeattachments cluster never capacity
storage.k8s.io VolumeAttributesClass volumeattributesclasses cluster timeline capacity
node.k8s.io RuntimeClass runtimeclasses cluster timeline capacity
resource.k8s.io DeviceClass deviceclasses cluster timeline capacity
resource.k8s.io ResourceClaim resourceclaims ns timeline capacity
resource.k8s.io ResourceClaimTemplate resourceclaimtemplates ns timeline capacity
resource.k8s.io ResourceSlice resourceslices cluster never capacity
certificates.k8s.io CertificateSigningRequest certificatesigningrequests cluster never access
certificates.k8s.io ClusterTrustBundle clustertrustbundles cluster timeline access
certificates.k8s.io PodCertificateRequest podcertificaterequests ns never access
coordination.k8s.io Lease leases ns never config
coordination.k8s.io LeaseCandidate leasecandidates ns never config
discovery.k8s.io EndpointSlice endpointslices ns never access
events.k8s.io Event events ns never rollouts
authentication.k8s.io TokenReview tokenreviews cluster never access
authentication.k8s.io TokenRequest tokenrequests ns never access
authentication.k8s.io SelfSubjectReview selfsubjectreviews cluster never access
authorization.k8s.io SubjectAccessReview subjectaccessreviews cluster never access
authorization.k8s.io SelfSubjectAccessReview selfsubjectaccessreviews cluster never access
authorization.k8s.io SelfSubjectRulesReview selfsubjectrulesreviews cluster never access
authorization.k8s.io LocalSubjectAccessReview localsubjectaccessreviews ns never access
metrics.k8s.io PodMetrics pods ns never capacity
metrics.k8s.io NodeMetrics nodes cluster never capacity
internal.apiserver.k8s.io StorageVersion storageversions cluster never config
storagemigration.k8s.io StorageVersionMigration storageversionmigrations cluster timeline config
argoproj.io Rollout rollouts ns told rollouts
argoproj.io Application applications ns told rollouts
argoproj.io ApplicationSet applicationsets ns timeline custom
argoproj.io AppProject appprojects ns timeline access
argoproj.io AnalysisRun analysisruns ns never custom
argoproj.io Workflow workflows ns never custom
helm.toolkit.fluxcd.io HelmRelease helmreleases ns told rollouts
kustomize.toolkit.fluxcd.io Kustomization kustomizations ns told rollouts
crd.projectcalico.org GlobalNetworkPolicy globalnetworkpolicies cluster told access
crd.projectcalico.org NetworkPolicy networkpolicies ns told access
crd.projectcalico.org FelixConfiguration felixconfigurations cluster told access
crd.projectcalico.org IPAMBlock ipamblocks cluster never access
crd.projectcalico.org IPAMHandle ipamhandles cluster never access
crd.projectcalico.org BlockAffinity blockaffinities cluster never access
projectcalico.org GlobalNetworkPolicy globalnetworkpolicies cluster told access
projectcalico.org NetworkPolicy networkpolicies ns told access
projectcalico.org FelixConfiguration felixconfigurations cluster told access
cilium.io CiliumNetworkPolicy ciliumnetworkpolicies ns told access
cilium.io CiliumClusterwideNetworkPolicy ciliumclusterwidenetworkpolicies cluster told access
cilium.io CiliumEndpoint ciliumendpoints ns never access
cilium.io CiliumEndpointSlice ciliumendpointslices cluster never access
cilium.io CiliumIdentity ciliumidentities cluster never access
cilium.io CiliumNode ciliumnodes cluster never access
cert-manager.io Certificate certificates ns timeline config
cert-manager.io CertificateRequest certificaterequests ns never config
acme.cert-manager.io Order orders ns never config
acme.cert-manager.io Challenge challenges ns never config
wgpolicyk8s.io PolicyReport policyreports ns never access
wgpolicyk8s.io ClusterPolicyReport clusterpolicyreports cluster never access
"""


def _rows() -> Iterator[KindInfo]:
    for line in _TABLE.strip().splitlines():
        group, kind, plural, scope, policy, lane = line.split()
        yield KindInfo(
            "" if group == "-" else group,
            kind,
            plural,
            namespaced=scope == "ns",
            policy=Policy(policy),
            lane=Lane(lane),
        )


BUILT_IN: dict[tuple[str, str], KindInfo] = {(row.api_group, row.kind): row for row in _rows()}
"""By (api_group, kind)."""

_BY_PLURAL: dict[tuple[str, str], KindInfo] = {(row.api_group, row.plural): row for row in BUILT_IN.values()}
_NEVER_KIND = re.compile(r"(Lease|Review|Metrics|EndpointSlice)$")


def info(api_group: str, kind: str) -> KindInfo:
    """How a kind is treated. A kind not in the table is a custom resource: on the timeline, in its own lane."""
    return BUILT_IN.get((api_group, kind)) or _custom(api_group, kind)


@lru_cache(maxsize=4096)
def _custom(api_group: str, kind: str) -> KindInfo:
    if api_group.startswith(EXTERNAL):
        return KindInfo(api_group, kind, plural_guess(kind), namespaced=True, policy=Policy.TOLD, lane=Lane.EXTERNAL)
    policy = Policy.NEVER if _NEVER_KIND.search(kind) else Policy.TIMELINE
    return KindInfo(api_group, kind, plural_guess(kind), namespaced=True, policy=policy, lane=Lane.CUSTOM)


@lru_cache(maxsize=4096)
def policy(api_group: str, kind: str) -> Policy:
    """What a write to this kind becomes."""
    return info(api_group, kind).policy


def named(api_group: str, plural: str) -> str:
    """A kind as `kubectl api-resources -o name` prints it: ``secrets``, ``workflows.argoproj.io``."""
    return f"{plural}.{api_group}" if api_group else plural


def told_by(api_group: str) -> str:
    """Who told of what Kubernetes does not know, as "terraform"; "" for an API group of Kubernetes."""
    return api_group.removeprefix(EXTERNAL) if api_group.startswith(EXTERNAL) else ""


def lane(api_group: str, kind: str) -> Lane:
    """Where its changes are drawn."""
    return info(api_group, kind).lane


@lru_cache(maxsize=4096)
def kind_of(api_group: str, resource: str) -> str:
    """The kind of a plural resource as audit events and URLs name it; subresources are ignored.

    A plural that is not in the table is guessed ("components" → "Component"): inner capitals cannot be known from
    a URL, so a custom resource's bodies or its CRD (Kinds.learn) say better.
    """
    plural = resource.partition("/")[0]
    known = _BY_PLURAL.get((api_group, plural))
    return known.kind if known else _singular(plural).capitalize()


def _singular(plural: str) -> str:
    if plural.endswith("ies") and len(plural) > 4:
        return plural[:-3] + "y"
    if plural.endswith(("sses", "xes", "ches", "shes")):
        return plural[:-2]
    return plural[:-1] if plural.endswith("s") and not plural.endswith("ss") else plural


def plural_guess(kind: str) -> str:
    """The plural that Kubernetes' tools would derive from a kind (k8s.io/apimachinery UnsafeGuessKindToResource)."""
    low = kind.lower()
    if low.endswith(("s", "x", "ch", "sh")):
        return low + "es"
    return low[:-1] + "ies" if low.endswith("y") and low[-2:-1] not in "aeiou" else low + "s"


def several(kind: str) -> str:
    """The plural of a kind as a person writes it: Ingresses, NetworkPolicies."""
    low, guess = kind.lower(), plural_guess(kind)
    kept = len(kind) if guess.startswith(low) else len(kind) - 1
    return kind[:kept] + guess[kept:]


def plural_of(api_group: str, kind: str) -> str:
    """The plural of a kind, e.g. for a URL or for kubectl."""
    return info(api_group, kind).plural


class Kinds:
    """The kinds of one cluster: the table, plus what its CRDs and its objects' bodies teach.

    ``add`` and ``exclude`` are what its operator wants otherwise, by the names that ``named`` gives. A kind in both is
    excluded.
    """

    def __init__(self, *, add: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        self._add, self._exclude = frozenset(add), frozenset(exclude)
        self._plurals: dict[tuple[str, str], str] = {}
        self._by_plural: dict[tuple[str, str], KindInfo] = {}
        self._by_kind: dict[tuple[str, str], KindInfo] = {}
        self._by_guess: dict[tuple[str, str], str] = {}

    def learn(self, crd: Object) -> None:
        """Take names and scope from a CustomResourceDefinition. One without names teaches nothing."""
        spec = crd.get("spec")
        names = spec.get("names") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(names, dict):
            return
        group, kind, plural = spec.get("group"), names.get("kind"), names.get("plural")
        if not (isinstance(group, str) and isinstance(kind, str) and isinstance(plural, str)):
            return
        base = info(group, kind)
        learnt = KindInfo(group, kind, plural, spec.get("scope") != "Cluster", base.policy, base.lane)
        self._by_plural[group, plural] = learnt
        self._by_kind[group, kind] = learnt
        self._by_guess[group, kind_of(group, plural)] = kind

    def serves(self, api_group: str, kind: str, plural: str) -> None:
        """The API server said what the plural of a kind is."""
        self._plurals[api_group, kind] = plural

    def policy(self, api_group: str, kind: str) -> Policy:
        """What a write to this kind becomes: an excluded one is not stored, an added one at least a change."""
        usual = policy(api_group, kind)
        if not self._add and not self._exclude:
            return usual
        name = named(api_group, self._plurals.get((api_group, kind)) or self.info(api_group, kind).plural)
        if name in self._exclude:
            return Policy.NEVER
        return Policy.TIMELINE if usual is Policy.NEVER and name in self._add else usual

    def seen(self, api_group: str, kind: str) -> None:
        """A body named its kind: the capitals that a plural cannot tell."""
        if (api_group, kind) not in BUILT_IN:
            self._by_guess[api_group, kind_of(api_group, plural_guess(kind))] = kind

    def kind_of(self, api_group: str, resource: str) -> str:
        """As kind_of, with what was learnt."""
        learnt = self._by_plural.get((api_group, resource.partition("/")[0]))
        return learnt.kind if learnt else self.spelled(api_group, kind_of(api_group, resource))

    def spelled(self, api_group: str, kind: str) -> str:
        """A guessed kind with the capitals that a body has shown; any other kind as it is."""
        return self._by_guess.get((api_group, kind), kind)

    def info(self, api_group: str, kind: str) -> KindInfo:
        """As info, with what was learnt."""
        return self._by_kind.get((api_group, kind)) or info(api_group, kind)
