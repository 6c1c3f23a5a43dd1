"""What an operator fetches or signs anew belongs to the edit that told it where from, however long it waited.

A store of secrets that is turned elsewhere, or an issuer with another root, does nothing by itself. With the next
refresh, or as a certificate is due, its operator writes the Secret that is made by it; and what reloads those that read
a Secret then has their pods made anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.core.edges.mechanism import only_restarts
from app.core.edges.operators import SEVERAL, acting
from app.core.edges.references import references
from app.core.edges.topology import Topology
from app.core.entities import WORKLOADS
from app.core.model import Change, Resource, Verb
from app.core.objects.actors import acts_by_itself, service_account
from app.core.objects.untyped import objects, part
from app.core.ranking.orders import is_order

RELOADED = timedelta(seconds=30)
"""How long after a ConfigMap or a Secret was written pods that read it are made anew because of that: who does so
watches, and waits a little, as more may follow."""
_FILLED = frozenset({"Secret", "ConfigMap"})
_RELOADER = "STAKATER_"
"""The variable that Reloader writes into a template for what it saw anew (https://docs.stakater.com/reloader)."""


@dataclass(slots=True)
class Refreshes:
    """The last order for each custom resource, and the last write of each ConfigMap and Secret: by whom, and when."""

    top: Topology
    _told: dict[Resource, Change] = field(default_factory=dict)
    _wrote: dict[tuple[str, Resource], datetime] = field(default_factory=dict)
    _last: dict[Resource, Change] = field(default_factory=dict)

    def give(self, change: Change) -> None:
        """Remember an order, or what was written."""
        if is_order(change):
            self._told[change.resource] = change
        if change.resource.kind in _FILLED:
            self._last[change.resource] = change
            self._wrote[change.actor.name, change.resource] = change.at

    def behind(self, change: Change) -> Change | None:
        """What a program wrote because of: the order by which a Secret is filled, where this is its first write since;
        the ConfigMap or Secret of which it has the readers read anew."""
        if not acts_by_itself(change.actor.name) or change.verb is Verb.DELETE:
            return None
        return self._filled(change) if change.resource.kind in _FILLED else self._reloaded(change)

    def _filled(self, change: Change) -> Change | None:
        before = self._wrote.get((change.actor.name, change.resource))
        orders = [
            order
            for filler in fillers(change.resource, self.top)
            if self._serves(change.actor.name, filler)
            for one in (filler, *self._referred(filler))
            if (order := self._told.get(one)) and order.actor.name != change.actor.name
        ]
        last = max(orders, key=lambda order: order.at, default=None)
        return last if last is not None and (before is None or before < last.at) else None

    def _serves(self, user: str, custom: Resource) -> bool:
        """Whether a program acts on a custom resource: it lists or watches its kind; or, where it runs is not known,
        its account is called like its API group."""
        if user in acting(custom, self.top):
            return True
        account = service_account(user)
        return account is not None and custom.api_group.partition(".")[0] in account

    def _referred(self, custom: Resource) -> Iterator[Resource]:
        """The custom resources to which one refers, beside it or in no namespace. Where what it says was not kept, that
        may be each of the few others of its API group that were told something."""
        state = self.top.states.get(custom, {})
        if not isinstance(state.get("spec"), dict):
            for one in self._told:
                is_near = one.api_group == custom.api_group and one.namespace in (None, custom.namespace)
                if is_near and one.kind != custom.kind and self.top.customs[one.api_group, one.kind] <= SEVERAL:
                    yield one
        for kind, namespace, name in references(state, custom.namespace or ""):
            for where in {namespace, ""}:
                for other in self.top.customs_named.get((where, name), ()):
                    if kind in ("", other.kind) and other != custom:
                        yield other

    def _reloaded(self, change: Change) -> Change | None:
        if change.resource.kind not in WORKLOADS or not reloads(change):
            return None
        cluster, here = change.resource.cluster, change.resource.namespace or ""
        read = (Resource(cluster, "", *named) for named in self.top.reads.get((here, change.resource.name), ()))
        edits = [edit for one in read if (edit := self._last.get(one)) and change.at - edit.at <= RELOADED]
        return max(edits, key=lambda edit: edit.at, default=None)


def reloads(change: Change) -> bool:
    """Whether an update of a workload only has its pods read anew what they read."""
    return only_restarts(change) or (
        change.verb is Verb.UPDATE
        and bool(change.diffs)
        and all(any(_RELOADER in str(step) for step in diff.path) for diff in change.diffs)
    )


def fillers(resource: Resource, top: Topology) -> Iterator[Resource]:
    """The custom resources by which a Secret or a ConfigMap is written: its owners, those beside it that say so, and,
    by convention, one of the same name."""
    here = resource.namespace or ""
    named = {
        (str(owner.get("kind")), str(owner.get("name")))
        for owner in objects(part(top.states.get(resource), "metadata", "ownerReferences"))
    }
    named |= top.fills_secret.get((here, resource.name), set()) if resource.kind == "Secret" else set()
    for other in {one for _, name in named for one in top.customs_named.get((here, name), ())}:
        if (other.kind, other.name) in named:
            yield other
    yield from (one for one in top.customs_named.get((here, resource.name), ()) if (one.kind, one.name) not in named)
