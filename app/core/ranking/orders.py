"""Edits of custom resources as orders: what a program then writes for the object that it serves follows from them.

Two ways to tell one: the object lies in the program's own namespace and names the namespace in which it then wrote; or
what it wrote is named like the object, beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from app.core.edges.operators import acting, starts
from app.core.edges.references import is_custom
from app.core.edges.topology import Topology, before_and_after
from app.core.model import Change, Verb

AFTER_ORDERS = timedelta(seconds=30)
"""How long after an edit of the object that it serves a program's write is put down to that: it watches."""
MADE_AFTER = timedelta(minutes=5)
"""The same for what it makes by a schedule, or one after the other."""
_SUSPEND = ("spec", "suspend")


def is_order(change: Change) -> bool:
    """Whether an edit says what is to be done: labels, finalizers and a suspension do not."""
    if not is_custom(change.resource):
        return False
    return change.verb is Verb.CREATE or any(d.path[:1] == ("spec",) and d.path != _SUSPEND for d in change.diffs)


@dataclass(slots=True)
class Orders:
    """The orders given so far, found by the namespace of their object, and by its name.

    ``_made`` says since when programs have made objects there that begin with a name.
    """

    top: Topology
    _there: dict[str, list[tuple[Change, set[str]]]] = field(default_factory=lambda: defaultdict(list))
    _named: dict[tuple[str, str], list[Change]] = field(default_factory=lambda: defaultdict(list))
    _made: dict[tuple[str, str], datetime] = field(default_factory=dict)

    def give(self, change: Change) -> None:
        """Remember an order; other changes are none."""
        namespace = change.resource.namespace or ""
        if is_order(change):
            self._there[namespace].append((change, set(_namespaces(before_and_after(change, self.top)))))
            self._named[namespace, change.resource.name].append(change)

    def make(self, change: Change) -> None:
        """Remember what a program has made."""
        for start in starts(change.resource.name) if change.verb is Verb.CREATE else ():
            self._made.setdefault((change.resource.namespace or "", start), change.at)

    def behind(self, change: Change, namespace: str) -> Change | None:
        """The order that a write of a program which runs in that namespace carries out."""
        return self._sent(change, namespace) or self._served(change)

    def _sent(self, change: Change, namespace: str) -> Change | None:
        """By another, and of the name of what was written, or naming where: the last of that name, else the last. That
        of the same name may be a while ago, as programs that hand it on ask by an interval."""
        found: list[Change] = []
        for order, namespaces in reversed(self._there.get(namespace, [])):
            if change.at - order.at > MADE_AFTER:
                break
            if order.actor.name == change.actor.name:
                continue
            if order.resource.name == change.resource.name:
                return order
            if change.at - order.at <= AFTER_ORDERS and change.resource.namespace in namespaces:
                found.append(order)
        return next(iter(found), None)

    def _served(self, change: Change) -> Change | None:
        """The last order, by another, of an object with the name of what was written. Where there is none, and it was
        made: of one whose name it begins with, as nothing did that was made before the order."""
        here, name = change.resource.namespace or "", change.resource.name
        named = [order for place in {here, ""} for order in self._named.get((place, name), ())]
        if same := [order for order in named if order.resource.kind != change.resource.kind]:
            last = max(same, key=lambda order: order.at)
            return last if change.at - last.at <= AFTER_ORDERS and self._obeys(change, last) else None
        for start in starts(name) if change.verb is Verb.CREATE else ():
            first = self._made.get((here, start))
            for order in self._named.get((here, start), ())[-1:]:
                is_news = change.at - order.at <= MADE_AFTER and (first is None or first >= order.at)
                if is_news and self._obeys(change, order):
                    return order
        return None

    def _obeys(self, change: Change, order: Change) -> bool:
        return change.actor.name != order.actor.name and change.actor.name in acting(order.resource, self.top)


def _namespaces(value: Any) -> Iterator[str]:
    """What an object says under a key that has "namespace" in it, its own metadata left out."""
    if isinstance(value, list):
        for inner in value:
            yield from _namespaces(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "metadata":
                yield from ([inner] if "namespace" in key.lower() and isinstance(inner, str) else _namespaces(inner))
