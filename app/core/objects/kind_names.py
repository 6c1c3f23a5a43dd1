"""The names by which people call a kind of object: its kind in any case, its plural, and kubectl's short one.

Short names are those that `kubectl api-resources` of Kubernetes 1.36 lists; those of a custom resource stand in its
CustomResourceDefinition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.core.model import Object
from app.core.objects.kinds import BUILT_IN, KindInfo, Kinds

SHORT = {
    "cm": "configmaps",
    "cs": "componentstatuses",
    "ep": "endpoints",
    "ev": "events",
    "svc": "services",
    "sa": "serviceaccounts",
    "no": "nodes",
    "ns": "namespaces",
    "po": "pods",
    "pv": "persistentvolumes",
    "pvc": "persistentvolumeclaims",
    "rc": "replicationcontrollers",
    "quota": "resourcequotas",
    "limits": "limitranges",
    "deploy": "deployments",
    "sts": "statefulsets",
    "ds": "daemonsets",
    "rs": "replicasets",
    "cj": "cronjobs",
    "hpa": "horizontalpodautoscalers",
    "pdb": "poddisruptionbudgets",
    "ing": "ingresses",
    "netpol": "networkpolicies",
    "sc": "storageclasses",
    "pc": "priorityclasses",
    "crd": "customresourcedefinitions",
    "crds": "customresourcedefinitions",
    "csr": "certificatesigningrequests",
    "ip": "ipaddresses",
    "vac": "volumeattributesclasses",
}
SUBRESOURCES = frozenset(
    {"approval", "attach", "binding", "ephemeralcontainers", "eviction", "exec", "finalize", "log"}
    | {"portforward", "proxy", "resize", "scale", "status", "token"}
)
"""What Kubernetes serves below an object."""


def built_in(word: str, group: str | None) -> list[KindInfo]:
    """The kinds of our own table that ``word`` may mean, in this API group, or in any where it is None."""
    low = word.lower()
    names = {low, SHORT.get(low, low)}
    return [
        row
        for row in BUILT_IN.values()
        if group in (None, row.api_group) and not names.isdisjoint((row.kind.lower(), row.plural))
    ]


def called(word: str) -> str:
    """The kind of Kubernetes' own that a word means; the word itself where it means none: it may be a custom one."""
    found = {row.kind for row in built_in(word, None)}
    return found.pop() if len(found) == 1 else word


def custom(word: str, definitions: Iterable[Object]) -> Iterator[KindInfo]:
    """The custom kinds that ``word`` may mean, by their CustomResourceDefinitions."""
    low = word.lower()
    for one in definitions:
        spec = one.get("spec")
        names = spec.get("names") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(names, dict):
            continue
        group, kind, short = spec.get("group"), names.get("kind"), names.get("shortNames")
        called = {str(names.get("plural")), str(kind).lower(), *(short if isinstance(short, list) else ())}
        if low in called and isinstance(group, str) and isinstance(kind, str):
            learnt = Kinds()
            learnt.learn(one)
            yield learnt.info(group, kind)
