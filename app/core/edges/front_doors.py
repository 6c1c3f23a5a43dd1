"""Hosts that a cluster serves to the outside, behind which its own workloads call it too: of Ingresses and routes.

What a client is told, https://wallet.example.com, is the way to a Service as well as that one's own name is:
https://kubernetes.io/docs/concepts/services-networking/ingress/ ,
https://gateway-api.sigs.k8s.io/reference/spec/#httproute .
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from app.core.alerted import text_of
from app.core.findings import Incident
from app.core.model import Resource
from app.core.objects.dependencies import LONGEST

DOORS = frozenset({"Ingress", "HTTPRoute", "GRPCRoute", "TLSRoute"})
PROXIES = re.compile(r"ingress|haproxy|traefik|envoy|contour|kong\b|skipper|ambassador|nginx-(?:controller|gateway)")
"""What serves Ingresses and routes, by what it is called: all that comes from outside goes through it."""
_HOST = re.compile(r"(?<![\w.@-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}(?![\w.-])")


def served(state: dict[str, Any]) -> set[str]:
    """The hosts that an Ingress or a route says to serve; wildcards are left out."""
    rules = (rule.get("host") for rule in _listed(state, "rules") if isinstance(rule, dict))
    return {host for host in (*rules, *_listed(state, "hostnames")) if isinstance(host, str) and "*" not in host}


def _listed(state: dict[str, Any], name: str) -> list[Any]:
    """A list in the spec: others' kinds of the same name (Knative's Ingress) may hold anything there."""
    spec = state.get("spec")
    found = spec.get(name) if isinstance(spec, dict) else None
    return found if isinstance(found, list) else []


def named(text: str, hosts: Iterable[str]) -> set[str]:
    """Those of the hosts that a text names."""
    return set(_HOST.findall(text[:LONGEST])) & set(hosts)


def said(incident: Incident) -> str:
    """All that the alerts of an incident say, in messages and labels."""
    return " ".join(f"{one.message} {text_of(one.labels)}" for one in incident.alerts)


def backends(value: Any) -> Iterator[str]:
    """The names of the Services that an Ingress or a route leads to, at any depth."""
    if isinstance(value, dict):
        service = value.get("service")
        if isinstance(service, dict) and isinstance(service.get("name"), str):
            yield service["name"]
        for key, inner in value.items():
            if key == "backendRefs" and isinstance(inner, list):
                yield from (ref["name"] for ref in inner if isinstance(ref, dict) and isinstance(ref.get("name"), str))
            yield from backends(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from backends(inner)


def certificates(state: dict[str, Any]) -> set[str]:
    """The Secrets whose certificates an Ingress shows."""
    names = (one.get("secretName") for one in _listed(state, "tls") if isinstance(one, dict))
    return {name for name in names if isinstance(name, str)}


def is_door(resource: Resource) -> bool:
    return resource.kind in DOORS
