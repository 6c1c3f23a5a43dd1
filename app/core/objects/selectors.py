"""Label selectors of Kubernetes: whom they select, and by which labels.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from app.core.objects.untyped import fields, items, objects


def selects(selector: Any, labels: dict[str, str]) -> bool:
    """Whether a label selector (matchLabels and matchExpressions, or a plain map) selects these labels.

    An empty selector selects everything, as it does for NetworkPolicies; callers decide about absent ones.
    """
    if not isinstance(selector, dict):
        return False
    plain = plainly(selector)
    if not isinstance(plain, dict):
        return False
    if any(labels.get(key) != value for key, value in plain.items()):
        return False
    for term in terms(selector):
        value, operator = labels.get(str(term.get("key"))), str(term.get("operator"))
        wanted = items(term.get("values"))
        holds = {
            "In": value in wanted,
            "NotIn": value not in wanted,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }.get(operator, True)
        if not holds:
            return False
    return True


def plainly(selector: dict[str, Any]) -> Any:
    """The labels that a selector asks for with just these values, as it says so."""
    return selector.get("matchLabels", {} if "matchExpressions" in selector else selector) or {}


def terms(selector: dict[str, Any]) -> list[dict[str, Any]]:
    return objects(selector.get("matchExpressions"))


def keys_of(selectors: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The label keys that selectors ask for."""
    for selector in selectors:
        yield from fields(selector.get("matchLabels"))
        yield from (str(term.get("key")) for term in terms(selector))
