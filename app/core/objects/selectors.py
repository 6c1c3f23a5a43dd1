"""Label selectors of Kubernetes: whom they select, and by which labels.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def selects(selector: Any, labels: dict[str, str]) -> bool:
    """Whether a label selector (matchLabels and matchExpressions, or a plain map) selects these labels.

    An empty selector selects everything, as it does for NetworkPolicies; callers decide about absent ones.
    """
    if not isinstance(selector, dict):
        return False
    plain = selector.get("matchLabels", {} if "matchExpressions" in selector else selector) or {}
    if not isinstance(plain, dict):  # a custom resource may hold anything
        return False
    if any(labels.get(key) != value for key, value in plain.items()):
        return False
    for term in terms(selector):
        value, operator, listed = labels.get(str(term.get("key"))), str(term.get("operator")), term.get("values")
        wanted = listed if isinstance(listed, list) else []
        holds = {
            "In": value in wanted,
            "NotIn": value not in wanted,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }.get(operator, True)
        if not holds:
            return False
    return True


def terms(selector: dict[str, Any]) -> list[dict[str, Any]]:
    terms = selector.get("matchExpressions")
    return [term for term in terms if isinstance(term, dict)] if isinstance(terms, list) else []


def keys_of(selectors: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The label keys that selectors ask for."""
    for selector in selectors:
        yield from selector.get("matchLabels") or {}
        yield from (str(term.get("key")) for term in terms(selector))
