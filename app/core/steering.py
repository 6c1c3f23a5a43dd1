"""Programs do as they are told: what a controller began to do after it was changed belongs to that change.

Three ways to tell one: it was rolled out or configured anew, and then did what it never did before (another sort of
write, or, where it wrote the same few objects again and again, other objects); or an object that it serves was edited,
and names the namespace in which it then wrote; or what it then wrote has that object's name.
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
from app.core.operators import SEVERAL, acting
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
    told: dict[str, Change] = {}
    orders: dict[str, list[tuple[Change, set[str]]]] = defaultdict(list)
    made: dict[str, list[Change]] = defaultdict(list)
    habits_of: dict[str, _Habits] = defaultdict(_Habits)
    for change in ordered:
        account = service_account(change.actor.name)
        if account is not None:
            habits = habits_of[change.actor.name]
            before = _latest_of(top.by_account.get(account, set()), changed, told.get(change.actor.name))
            by_itself = habits.broken_by(change, before)
            here = change.resource.namespace or ""
            served = _served(change, orders.get(here, []), made[here], top)
            cause = _ordered(change, orders.get(account[0], [])) or served or by_itself
            if change.verb is Verb.CREATE:
                made[here].append(change)
            if cause is not None and cause.resource != change.resource:
                found[change.id] = cause
            if cause is None or cause is not by_itself:
                habits.learn(change)
        if change.at - ordered[0].at >= WARMED_UP:
            changed |= dict.fromkeys(_configures(change, top), change)
            told |= dict.fromkeys(_tells(change, top), change)
        if _is_custom(change.resource.api_group) and change.resource.namespace:
            orders[change.resource.namespace].append((change, set(_namespaces(before_and_after(change, top)))))
    return found


@dataclass(slots=True)
class _Habits:
    """What a program writes. ``since`` says of what it does against its habits, and of the objects that it does it to,
    which change set that off: what goes on is not put down to whatever came in between."""

    sorts: set[Trait] = field(default_factory=set)
    objects: Counter[Resource] = field(default_factory=Counter)
    since: dict[Trait | Resource, Change] = field(default_factory=dict)

    def learn(self, change: Change) -> None:
        self.sorts.add(trait(change))
        self.objects[change.resource] += 1

    def broken_by(self, change: Change, before: Change | None) -> Change | None:
        """The change to the program that made it break its habits, where ``before`` is the latest one."""
        known = self.since.get(change.resource) or self.since.get(trait(change)) or before
        if known is None or change.at - known.at > AFTER_ITSELF or not self.breaks(change):
            return None
        self.since[trait(change)] = self.since[change.resource] = known
        return known

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


def _latest_of(keys: set[Named], changed: dict[Named, Change], told: Change | None) -> Change | None:
    found = [changed[key] for key in keys if key in changed] + ([told] if told else [])
    return max(found, key=lambda change: change.at, default=None)


def _tells(change: Change, top: Topology) -> set[str]:
    """The users to whom an edit of one of the few custom resources that they act on is a setting of theirs."""
    resource = change.resource
    if not _is_custom(resource.api_group) or is_inert(change):
        return set()
    return _by_another(change, top) if top.customs[resource.api_group, resource.kind] <= SEVERAL else set()


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


def _served(change: Change, orders: list[tuple[Change, set[str]]], made: list[Change], top: Topology) -> Change | None:
    """The last edit, by another, of the object that a program serves by writing this one: it has the same name, or is
    made and has that name and more, as none that was made before the edit had."""
    name = change.resource.name
    for order, _ in reversed(orders):
        lag, of = change.at - order.at, order.resource
        if lag > AFTER_ITSELF:
            return None
        same = lag <= AFTER_ORDERS and name == of.name and change.resource.kind != of.kind
        begun = change.verb is Verb.CREATE and name.startswith(f"{of.name}-") and not _made_before(order, made)
        if (same or begun) and not is_inert(order) and change.actor.name in _by_another(order, top):
            return order
    return None


def _made_before(order: Change, made: list[Change]) -> bool:
    return any(one.at < order.at and one.resource.name.startswith(f"{order.resource.name}-") for one in made)


def _by_another(order: Change, top: Topology) -> set[str]:
    """The users that act on a custom resource, less the one that edited it."""
    return set(acting(order.resource, top)) - {order.actor.name}


def _namespaces(value: Any) -> Iterator[str]:
    """What an object says under a key that has "namespace" in it, its own metadata left out."""
    if isinstance(value, list):
        for inner in value:
            yield from _namespaces(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "metadata":
                yield from ([inner] if "namespace" in key.lower() and isinstance(inner, str) else _namespaces(inner))
