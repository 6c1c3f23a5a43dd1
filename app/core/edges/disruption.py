"""Whether a budget lets pods go: https://kubernetes.io/docs/tasks/run-application/configure-pdb/ ."""

from __future__ import annotations

from collections.abc import Iterable

from app.core.edges.topology import State, Topology
from app.core.objects.selectors import selects
from app.core.objects.untyped import fields

_ALL = "100%"


def lets_some_go(budgets: Iterable[State], namespace: str, top: Topology) -> bool:
    """Whether each of these budgets leaves pods that may go, as long as all that are wanted are well. Where it is not
    known how many are wanted none is taken to."""
    return all(_lets_some_go(fields(state.get("spec")), namespace, top) for state in budgets)


def _lets_some_go(spec: State, namespace: str, top: Topology) -> bool:
    here = top.in_namespace.get(namespace, ())
    wanted = sum(top.wanted[key] for key in here if selects(spec.get("selector") or {}, top.labels[key]))
    at_least, at_most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(at_least, int):
        return at_least < wanted
    return wanted > 0 and at_least != _ALL and at_most not in (0, "0", "0%")
