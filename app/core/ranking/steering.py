"""Programs do as they are told: what a controller began to do after it was changed belongs to that change.

It, or what is of the same product, was rolled out or configured anew, or something was edited that it reads (heard.py),
and then it did what it never did before: another sort of write, or, where it wrote the same few objects again and
again, other objects. Or an object that it serves was edited (orders.py), or it renders what was edited (rendered.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.core.edges.heard import HEARD, Heard
from app.core.edges.leads import MAKES_NODES
from app.core.edges.mechanism import is_cosmetic, is_inert, only_image, only_scales, wakes
from app.core.edges.operators import SEVERAL, acting, addressed, referers
from app.core.edges.references import is_custom
from app.core.edges.topology import Named, Topology, readers
from app.core.entities import WORKLOADS
from app.core.model import Change, Resource, Verb
from app.core.objects.actors import deploys, service_account
from app.core.objects.untyped import objects, part
from app.core.ranking.orders import Orders, is_order
from app.core.ranking.refreshed import Refreshes
from app.core.ranking.rendered import Sources
from app.core.traits import Trait, trait

AFTER_ITSELF = timedelta(minutes=5)
"""How long after its own change a program's first new sort of write is put down to that."""
UNNEEDED = timedelta(minutes=20)
"""The same for what adds and takes away nodes: a node has been unneeded, or another is new, for ten minutes by then
(https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-does-scale-down-work)."""
ENOUGH = 8
"""Writes from which on a program has habits."""
RARELY = 0.1
"""An object that it had not written yet is another one at most this often."""
WARMED_UP = timedelta(seconds=10)
"""A window must have been seen this long before a program was told something for what it then does to be new, or
``AFTER_ITSELF`` until it does that."""


def set_off(ordered: list[Change], top: Topology) -> dict[str, Change]:
    """By the id of a program's change: the change that set it off. ``ordered`` by time."""
    if not ordered:
        return {}
    found: dict[str, Change] = {}
    changed: dict[Named, Change] = {}
    told: dict[str, Change] = {}
    marks: dict[Resource, Change] = {}
    orders, sources, heard, fresh = Orders(top), Sources(), Heard(top, since=ordered[0].at), Refreshes(top)
    habits_of: dict[str, _Habits] = defaultdict(_Habits)
    for change in ordered:
        account = service_account(change.actor.name)
        if account is not None:
            habits = habits_of[change.actor.name]
            anew = _latest(*(changed[key] for key in _kin(account, top) if key in changed))
            before = _latest(anew, told.get(change.actor.name), _heard(change, anew, heard), _marked(change, marks))
            before = before if before and _is_seen(ordered[0].at, before, change) else None
            is_told = before is not None and before.resource == change.resource
            is_decided = not is_told and (
                (habits.begins and _deploys(change, top)) or (before is anew and habits.applies(change))
            )
            by_itself = None if is_decided else habits.broken_by(change, before)
            cause = _latest(orders.behind(change, account[0]), sources.behind(change), by_itself, fresh.behind(change))
            orders.make(change)
            if cause is not None and (cause.resource != change.resource or is_cosmetic(cause)):
                found[change.id] = cause
            if cause is None or cause is not by_itself:
                habits.learn(change)
        own = top.by_account.get(account, set()) if account else set()
        told |= dict.fromkeys(_tells(change, top), change)
        if not is_inert(change):
            changed |= dict.fromkeys(_configures(change, top) - own, change)  # its own status tells it nothing
            heard.tell(change)
        if is_cosmetic(change):
            marks[change.resource] = change
        orders.give(change)
        sources.give(change)
        fresh.give(change)
    return found


def _is_seen(begins: datetime, told: Change, act: Change) -> bool:
    """Whether a window was seen long enough, before a program was told something, or until it acted, to say what is
    new."""
    return told.at - begins >= WARMED_UP or act.at - begins > AFTER_ITSELF


def _heard(change: Change, anew: Change | None, heard: Heard) -> Change | None:
    """What its writer had heard just before. A program that starts looks at all that it reads, not only at what was
    edited just then; one that applies what people wrote hears of that elsewhere, and not from others' rollouts."""
    edit = heard.by(change) if anew is None or change.at - anew.at > HEARD else None
    return None if edit and edit.resource.kind in WORKLOADS and deploys(change.actor.name) else edit


def _marked(change: Change, marks: dict[Resource, Change]) -> Change | None:
    """The label or annotation that somebody else put on what a program then deletes: by such it knows what is its own
    (https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/), or not wanted any more."""
    mark = marks.get(change.resource) if change.verb is Verb.DELETE else None
    return mark if mark is not None and mark.actor.name != change.actor.name else None


@dataclass(slots=True)
class _Habits:
    """What a program writes. ``since`` says of what it does against its habits, and of the objects that it does it to,
    which change set that off: what goes on is not put down to whatever came in between."""

    sorts: Counter[Trait] = field(default_factory=Counter)
    objects: Counter[Resource] = field(default_factory=Counter)
    made: Counter[tuple[str, str]] = field(default_factory=Counter)
    since: dict[Trait | Resource, Change] = field(default_factory=dict)

    @property
    def begins(self) -> bool:
        """Whether it has written nothing yet, as far as is known."""
        return not self.sorts

    def applies(self, change: Change) -> bool:
        """Whether a program that applies what people wrote goes on as ever: a new sort of write is news of it only
        where it has written much, and hardly anything once; or where it only takes out what is there, as one does that
        sees to fields since its new version that it left alone before."""
        once = sum(count == 1 for count in self.sorts.values())
        is_settled = self.sorts.total() >= ENOUGH and once <= RARELY * self.sorts.total()
        return change.verb is not Verb.DELETE and deploys(change.actor.name) and not (is_settled or _takes_out(change))

    def learn(self, change: Change) -> None:
        self.sorts[trait(change)] += 1
        self.objects[change.resource] += 1
        self.made[change.resource.api_group, change.resource.kind] += change.verb is Verb.CREATE

    def broken_by(self, change: Change, before: Change | None) -> Change | None:
        """The change to the program that made it break its habits, where ``before`` is the latest one."""
        known = self.since.get(change.resource) or self.since.get(trait(change)) or before
        if (
            known is None
            or change.at - known.at > _waits(change)
            or not (self.breaks(change) or _unseen(change, known))
        ):
            return None
        self.since[trait(change)] = self.since[change.resource] = known
        return known

    def breaks(self, change: Change) -> bool:
        """Whether it never did so before.

        That the next write is of an object never written before has about the share of those written once as its
        chance (Good and Turing: I. J. Good, Biometrika 40, 1953).
        """
        if trait(change) not in self.sorts:
            return not self._ends(change)
        once = sum(count == 1 for count in self.objects.values())
        is_habitual = self.objects.total() >= ENOUGH and once <= RARELY * self.objects.total()
        return is_habitual and change.resource not in self.objects

    def _ends(self, change: Change) -> bool:
        """Whether it only takes away what it makes all the time: a sign-up's trial ends as it began. Who applies what
        people wrote takes away what they did."""
        made = self.made[change.resource.api_group, change.resource.kind]
        return change.verb is Verb.DELETE and made >= ENOUGH and not deploys(change.actor.name)


def _waits(change: Change) -> timedelta:
    """How long after its own change a program's first new sort of write is put down to that."""
    is_of_nodes = change.resource.kind == "Node" and MAKES_NODES.search(change.actor.name)
    return UNNEEDED if is_of_nodes else AFTER_ITSELF


def _takes_out(change: Change) -> bool:
    return change.verb is Verb.UPDATE and bool(change.diffs) and all(diff.new is None for diff in change.diffs)


def _unseen(change: Change, release: Change) -> bool:
    """Whether a new version wrote what nobody sees: it may be other than what the old one wrote."""
    is_hidden = change.resource.kind == "Secret" and change.verb is Verb.UPDATE and not change.diffs
    return is_hidden and only_image(release)


def _latest(*changes: Change | None) -> Change | None:
    return max((change for change in changes if change), key=lambda change: change.at, default=None)


def _kin(account: Named, top: Topology) -> set[Named]:
    """What runs as an account, and what is of the same product, beside it: argocd-repo-server tells
    argocd-application-controller what to apply, and whatever else acts from a namespace that is called argocd."""
    namespace, name = account
    products = {name.partition("-")[0], namespace.partition("-")[0]}
    return top.by_account.get(account, set()) | {
        key for key in top.in_namespace.get(namespace, ()) if key[1].partition("-")[0] in products
    }


def _tells(change: Change, top: Topology) -> set[str]:
    """The users to whom an edit is a setting of theirs: of one of the few custom resources that they act on, or to
    which those refer that they do, as a Kustomization to a GitRepository; or of an annotation with their name."""
    resource = change.resource
    if not is_order(change) or top.customs[resource.api_group, resource.kind] > SEVERAL:
        return addressed(change, top)
    concerned = (resource, *(one for one in referers(resource, top) if is_custom(one)))
    return addressed(change, top) | {user for one in concerned for user in acting(one, top)} - {change.actor.name}


def _deploys(change: Change, top: Topology) -> bool:
    """Whether a program rolls out a new image that somebody else decided on: no custom resource owns the workload or
    has its name, as those do by which an operator decides."""
    if not any(diff.path[-1:] == ("image",) for diff in change.diffs) or _is_operand(change, top):
        return False
    return not top.customs_named.get((change.resource.namespace or "", change.resource.name))


def _is_operand(change: Change, top: Topology) -> bool:
    owners = objects(part(top.states.get(change.resource), "metadata", "ownerReferences"))
    return any("." in str(owner.get("apiVersion", "")).partition("/")[0] for owner in owners)


def _configures(change: Change, top: Topology) -> set[Named]:
    """The workloads that this change, which is not inert, rolls out or configures anew."""
    resource = change.resource
    if (only_scales(change) and not wakes(change)) or change.verb is Verb.DELETE:
        return set()
    if resource.kind in WORKLOADS:
        return {(resource.namespace or "", resource.name)}
    if resource.kind in ("ConfigMap", "Secret"):
        return readers(resource, top)
    return top.by_config.get((resource.kind, resource.namespace or "", resource.name), set())
