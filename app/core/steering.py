"""Programs do as they are told: what a controller began to do after it was changed belongs to that change.

Two ways to tell one: it was rolled out or configured anew, and then did what it never did before (another sort of
write, or, where it wrote the same few objects again and again, other objects); or an object that it serves was edited
and names the namespace in which it then wrote.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from app.core.actors import service_account
from app.core.entities import WORKLOADS
from app.core.mechanism import is_inert
from app.core.model import Change, Resource, Verb
from app.core.topology import Named, Topology, before_and_after
from app.core.traits import Trait, trait

AFTER_ITSELF = timedelta(minutes=5)
"""How long after its own change a program's first new sort of write is put down to that."""
AFTER_ORDERS = timedelta(seconds=30)
"""How long after an edit of the object that it serves a program's write is put down to that: it watches."""
ENOUGH = 8
"""Writes from which on a program has habits."""
RARELY = 0.1
"""An object that it had not written yet is another one at most this often."""
WARMED_UP = timedelta(seconds=10)
"""A window must have been seen this long before a sort of write is new."""


def set_off(ordered: list[Change], top: Topology) -> dict[str, Change]:
    """By the id of a program's change: the change that set it off. ``ordered`` by time."""
    found: dict[str, Change] = {}
    changed: dict[Named, Change] = {}
    orders: dict[str, list[tuple[Change, set[str]]]] = defaultdict(list)
    habits_of: dict[str, _Habits] = defaultdict(_Habits)
    for change in ordered:
        account = service_account(change.actor.name)
        if account is not None:
            habits = habits_of[change.actor.name]
            before = _latest_of(top.by_account.get(account, set()), changed)
            by_itself = before if before and change.at - before.at <= AFTER_ITSELF and habits.breaks(change) else None
            cause = _ordered(change, orders.get(account[0], [])) or by_itself
            if cause is not None and cause.resource != change.resource:
                found[change.id] = cause
            if cause is None or cause is not by_itself:
                habits.learn(change)
        for key in _configures(change, top):
            if change.at - ordered[0].at >= WARMED_UP:
                changed[key] = change
        if _is_custom(change.resource.api_group) and change.resource.namespace:
            orders[change.resource.namespace].append((change, set(_namespaces(before_and_after(change, top)))))
    return found


@dataclass(slots=True)
class _Habits:
    """What a program writes."""

    sorts: set[Trait] = field(default_factory=set)
    objects: Counter[Resource] = field(default_factory=Counter)

    def learn(self, change: Change) -> None:
        self.sorts.add(trait(change))
        self.objects[change.resource] += 1

    def breaks(self, change: Change) -> bool:
        """Whether it never did so before.

        That the next write is of an object never written before has about the share of those written once as its
        chance (Good and Turing: I. J. Good, Biometrika 40, 1953).
        """
        if trait(change) not in self.sorts:
            return True
        once = sum(count == 1 for count in self.objects.values())
        is_habitual = self.objects.total() >= ENOUGH and once <= RARELY * self.objects.total()
        return is_habitual and change.resource not in self.objects


def _is_custom(api_group: str) -> bool:
    """Whether a kind is somebody's own: the groups of Kubernetes have no dot, or end in k8s.io."""
    return "." in api_group and not api_group.endswith("k8s.io")


def _latest_of(keys: set[Named], changed: dict[Named, Change]) -> Change | None:
    return max((changed[key] for key in keys if key in changed), key=lambda c: c.at, default=None)


def _configures(change: Change, top: Topology) -> set[Named]:
    """The workloads that this change rolls out or configures anew."""
    resource = change.resource
    if is_inert(change) or change.verb is Verb.DELETE:
        return set()
    if resource.kind in WORKLOADS:
        return {(resource.namespace or "", resource.name)}
    return top.by_config.get((resource.kind, resource.namespace or "", resource.name), set())


def _ordered(change: Change, orders: list[tuple[Change, set[str]]]) -> Change | None:
    """The last edit of an object, in the program's own namespace and by another, that names where this was written."""
    for order, namespaces in reversed(orders):
        if change.at - order.at > AFTER_ORDERS:
            return None
        if order.actor.name != change.actor.name and change.resource.namespace in namespaces:
            return order
    return None


def _namespaces(value: Any) -> Iterator[str]:
    """What an object says under a key that has "namespace" in it, its own metadata left out."""
    if isinstance(value, list):
        for inner in value:
            yield from _namespaces(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "metadata":
                yield from ([inner] if "namespace" in key.lower() and isinstance(inner, str) else _namespaces(inner))
