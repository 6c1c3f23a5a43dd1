"""Custom resources: what they refer to, and who lists and watches them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from app.core.counted import Calls
from app.core.entities import only_reacts
from app.core.model import Resource
from app.core.objects.actors import service_account
from app.core.objects.kinds import BUILT_IN
from app.core.objects.selectors import terms
from app.core.objects.untyped import fields

_CHOOSES_NODES = re.compile(r"(?:node|peer)Selector\Z", re.IGNORECASE)
_LABEL = re.compile(r"\bhas\(\s*([\w./-]+)\s*\)|([\w./-]+)\s*(?:==|!=|\b(?:not\s+)?in\s*\{)")
"""A label in a selector of Calico: https://docs.tigera.io/calico/latest/reference/resources/bgppeer#selector ."""
_REFERS = frozenset({"name", "namespace"})
"""What stands under nothing else but a name, under the name of a kind, refers too: ``server: {name: grpc}``."""
Reference = tuple[str, str, str]  # (kind, "" where none is said; namespace; name)
Watched = dict[tuple[str, str], set[str]]
"""By (api group, plural): the users that list or watch it."""
Reading = dict[tuple[str, str, str], set[str]]
"""By (api group, plural, namespace, "" for all): the programs that read it over the API."""
FEW = 12
"""Whoever watches more kinds than this does not do so to act on them: GitOps, backups, dashboards."""


def is_custom(resource: Resource) -> bool:
    """Whether a CustomResourceDefinition makes its kind. Gateway API is defined so, for all its name."""
    group = resource.api_group
    own = group.endswith(".k8s.io") and group != "gateway.networking.k8s.io" and (group, resource.kind) in BUILT_IN
    return "." in group and not own


def references(state: dict[str, Any], namespace: str) -> Iterator[Reference]:
    """What the spec of an object refers to in fields called ...Ref, ...Refs and ...Reference, at any depth."""
    yield from _references(state.get("spec"), namespace)


def _references(value: Any, namespace: str) -> Iterator[Reference]:
    if isinstance(value, list):
        for inner in value:
            yield from _references(inner, namespace)
    elif isinstance(value, dict):
        for key, inner in value.items():
            many = inner if key.endswith("Refs") and isinstance(inner, list) else ()
            refs = [inner] if key.endswith(("Ref", "Reference")) else many
            kind = _kind(key.removesuffix("Reference")) if key.endswith("Reference") else ""
            for ref in refs:
                if isinstance(ref, dict) and isinstance(ref.get("name"), str):
                    yield str(ref.get("kind") or kind), str(ref.get("namespace") or namespace), ref["name"]
            if not refs and isinstance(inner, dict) and inner.keys() <= _REFERS and isinstance(inner.get("name"), str):
                yield _kind(key), str(inner.get("namespace") or namespace), inner["name"]
            yield from _references(inner, namespace)


def _kind(key: str) -> str:
    """What kind a field is called after: ``server`` is a Server, ``passwordSecret`` a Secret."""
    return "Secret" if key.endswith("Secret") else key[:1].upper() + key[1:]


def makes_secrets(resource: Resource) -> bool:
    """Whether a custom resource is called after the Secrets that are made by it, and not of those that it reads."""
    return resource.kind.endswith("Secret") and not resource.kind.endswith("PushSecret")


def secret_made(resource: Resource, state: dict[str, Any]) -> str:
    """The Secret that an operator makes by a custom resource: as a Certificate says it, and as one that is called after
    Secrets does, whose own name is meant where it says none (https://external-secrets.io/latest/api/externalsecret/ ,
    https://developer.hashicorp.com/vault/docs/deploy/kubernetes/vso/api-reference); "" where it makes none."""
    spec = fields(state.get("spec"))
    if secret := spec.get("secretName"):
        return str(secret)
    if not makes_secrets(resource):
        return ""
    said = fields(spec.get("target")).get("name") or fields(spec.get("destination")).get("name")
    return str(said or resource.name)


def node_labels(value: Any) -> Iterator[str]:
    """The label keys by which it chooses nodes, in fields called ...nodeSelector or peerSelector, at any depth."""
    for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from node_labels(inner)
    for key, selector in value.items() if isinstance(value, dict) else ():
        if _CHOOSES_NODES.search(key):
            yield from _keys(selector)


def _keys(selector: Any) -> Iterator[str]:
    if isinstance(selector, str):
        yield from (one or other for one, other in _LABEL.findall(selector))
    elif isinstance(selector, dict):
        yield from (str(term["key"]) for term in terms(selector) if "key" in term)
        yield from fields(selector.get("matchLabels")) or (selector if "matchExpressions" not in selector else ())


def watched(calls: Calls) -> Watched:
    """Who lists or watches which custom kinds, without Kubernetes' own controllers and those who watch everything."""
    found: Watched = defaultdict(set)
    kinds: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for key in calls.keys:
        if key.verb in ("list", "watch") and key.code < 400 and "." in key.api_group and not only_reacts(key.user):
            kinds[key.user].add((key.api_group, key.resource))
    for user, seen in kinds.items():
        for kind in seen if len(seen) <= FEW else ():
            found[kind].add(user)
    return found


def reading(calls: Calls) -> Reading:
    """Which programs read what over the API, without Kubernetes' own controllers and those who read everything."""
    found: Reading = defaultdict(set)
    kinds: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for key in calls.keys:
        is_read = key.verb in ("get", "list", "watch") and key.code < 400
        if is_read and service_account(key.user) and not only_reacts(key.user):
            kinds[key.user].add((key.api_group, key.resource, key.namespace))
    for user, seen in kinds.items():
        for kind in seen if len({plural for _, plural, _ in seen}) <= FEW else ():
            found[kind].add(user)
    return found
