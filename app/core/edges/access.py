"""Who may do what, and whom a change to that touches: ServiceAccounts, roles, bindings, flow control."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from app.core.edges.mechanism import is_identity, refuser
from app.core.edges.throttling import EVERYBODY, matched
from app.core.edges.topology import State, Topology, subject_users
from app.core.edges.touching import touched_workloads
from app.core.entities import CLUSTER, READ, Add, workload
from app.core.model import Change, DiffSource, Resource, Verb
from app.core.objects.actors import service_account
from app.core.objects.diff import undo
from app.core.objects.grants import Grant, rules_of
from app.core.objects.untyped import fields, items, objects, part

_INTO_PODS = {("automountServiceAccountToken",), ("imagePullSecrets",), ("secrets",)}
"""What of a ServiceAccount goes into the pods that run as it, as a part of their configuration."""


def account(change: Change, _states: list[State], top: Topology, add: Add) -> None:
    """A ServiceAccount: whoever runs as it; without it no pod of theirs is let in."""
    key = (change.resource.namespace or "", change.resource.name)
    add(("user", f"system:serviceaccount:{key[0]}:{key[1]}"), 0)
    add(refuser("ServiceAccount", key[0]), 0 if change.verb is Verb.DELETE else 2)
    into_pods = is_identity(change) or any(diff.path[:1] in _INTO_PODS for diff in change.diffs)
    touched_workloads(top, top.by_account.get(key, set()), add, READ if into_pods else 1)


def role(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """A role: its subjects, and what they may no longer do."""
    resource = change.resource
    where = "" if resource.kind == "ClusterRole" else (resource.namespace or "")
    users = top.subjects.get((resource.kind, where, resource.name), set())
    lost = lost_access(change, states)
    for diff in change.diffs:  # its rules were a part of those that are made by that label
        if resource.kind == "ClusterRole" and diff.path[:2] == ("metadata", "labels") and diff.op != "add":
            for whole in top.aggregated.get(str(diff.path[-1]), ()):
                users = users | top.subjects.get(("ClusterRole", "", whole), set())
                lost |= {(group, plural.partition(" ")[0], verb) for s in states for group, plural, verb in rules_of(s)}
    if change.diff_source is not DiffSource.STATES:
        # What the role allowed before was not recorded: it may have lost anything.
        for user in users or {"*"}:
            add(("access", _whoever(user), "*", "*", "*"), 1)
    gained = gained_access(change, states)
    for user in users:
        add(("user", user), 1)
        for group, plural, verb in lost:
            add(("access", _whoever(user), group, plural, verb), 0)
        _may(user, gained, add)
    _workloads_of_users(users, top, add)


def _whoever(user: str) -> str:
    """Who is in a group only the authenticator knows: whoever is now refused just this, or does it, may be."""
    return "*" if user.startswith("group:") else user


def _may(user: str, gained: Iterable[Grant], add: Add) -> None:
    for group, plural, verb in gained:
        add(("gained", _whoever(user), group, plural, verb), 0)


def binding(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """A binding: its subjects, who may have lost all that its role allows."""
    users: set[str] = set()
    for state in states:
        users |= subject_users(state, change.resource.namespace)
    for diff in change.diffs:  # subjects that were added or taken away
        for value in (diff.old, diff.new):
            if diff.path[:1] == ("subjects",) and isinstance(value, dict):
                users |= subject_users({"subjects": [value]}, change.resource.namespace)
            if diff.path[:1] == ("subjects",) and isinstance(value, list):
                users |= subject_users({"subjects": value}, change.resource.namespace)
    lost = change.verb.value == "delete" or any(d.op != "add" for d in change.diffs)
    for user in users:
        add(("user", user), 1)
        if lost:
            add(("access", _whoever(user), "*", "*", "*"), 0)
        else:
            _may(user, _allowed(states, change.resource, top), add)
    _workloads_of_users(users, top, add)


def _workloads_of_users(users: set[str], top: Topology, add: Add) -> None:
    for user in users:
        account_of = service_account(user)
        for key in top.by_account.get(account_of, set()) if account_of else ():
            add(workload(*key), 1)


def _allowed(bindings: list[State], resource: Resource, top: Topology) -> set[Grant]:
    """What the roles allow that these bindings, as they are of one object, give."""
    found: set[Grant] = set()
    for ref in (fields(binding.get("roleRef")) for binding in bindings):
        kind, namespace = str(ref.get("kind")), None if ref.get("kind") == "ClusterRole" else resource.namespace
        role = replace(resource, kind=kind, namespace=namespace, name=str(ref.get("name")))
        found |= {_plain(grant) for grant in rules_of(top.states.get(role, {}))}
    return found


def lost_access(change: Change, states: list[State]) -> set[Grant]:
    """The (group, resource, verb) that a change to a role took away, for some names at least. All of them for a
    delete."""
    before, after = (rules_of({"rules": rules}) for rules in rules_before_and_after(change, states))
    lost = {_plain(grant) for grant in before - after}
    return lost - after  # what is allowed for all names now is allowed for those that it was


def gained_access(change: Change, states: list[State]) -> set[Grant]:
    """The (group, resource, verb) that a change to a role allows and that it did not allow before."""
    before, after = (rules_of({"rules": rules}) for rules in rules_before_and_after(change, states))
    return {_plain(grant) for grant in after - before} - before


def _plain(grant: Grant) -> Grant:
    """For whichever names of the resource it is."""
    group, resource, verb = grant
    return group, resource.partition(" ")[0], verb


def rules_before_and_after(change: Change, states: list[State]) -> tuple[list[Any], list[Any]]:
    """A role's rules on both sides of the change, from its diffs; unchanged items do not matter for a loss."""
    old: list[Any] = []
    new: list[Any] = []
    for diff in change.diffs:
        if not diff.path:
            old += _rules(diff.old)
            new += _rules(diff.new)
        elif diff.path[0] == "rules":
            whole = len(diff.path) <= 2
            for value, side in ((diff.old, old), (diff.new, new)):
                if whole and value is not None:
                    side.extend(value if isinstance(value, list) else [value])
                elif states and not whole:
                    side.append(_rule_with(states[0], diff.path, value))
    if new and change.verb.value == "update" and states:
        new += items(states[0].get("rules"))
    return old, new


def _rules(value: Any) -> list[Any]:
    return items(fields(value).get("rules"))


def _rule_with(state: State, path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The rule at ``path`` as it was with ``value`` in one of its lists, or without that list."""
    rules = objects(state.get("rules"))
    index = path[1] if isinstance(path[1], int) else 0
    rule = dict(rules[index]) if index < len(rules) else {}
    if len(path) >= 3 and isinstance(path[2], str):
        rule[path[2]] = value if isinstance(value, list) else [] if value is None else [value]
    return rule


def flow(change: Change, states: list[State], top: Topology, add: Add) -> None:
    """FlowSchemas and priority levels: the users whom a schema names, or named before, may be queued or refused (429);
    one hop on others of its level, which have what these leave them, and two whoever shares the server."""
    add(("throttle",), 0)
    add(CLUSTER, 2)
    schemas = top.of_kind[change.resource.api_group, "FlowSchema"]
    if change.resource.kind == "PriorityLevelConfiguration":
        states = [state for state in schemas if _level_of(state) == change.resource.name]
        for state in states:
            add(("object", "FlowSchema", "", state["metadata"]["name"]), 0)
    else:
        states = [*states, *_before(change, top)]
    levels = set(map(_level_of, states))
    users = {user for state in states for user in _flow_users(state)}
    for user in users:
        add(("user", user), 1)
        add(matched(user), 0)
    for user in {user for state in schemas if _level_of(state) in levels for user in _flow_users(state)}:
        add(matched(user), 1)
    add(EVERYBODY, 2 if users else 0)  # where nobody is named, anybody may be meant
    _workloads_of_users(users, top, add)


def _before(change: Change, top: Topology) -> list[State]:
    """An object as it was before an update, where that can be told."""
    try:
        before = undo(reversed(change.diffs), top.states[change.resource]) if change.verb is Verb.UPDATE else None
    except (KeyError, IndexError, TypeError):
        return []  # it is not known, or was changed again
    return [before] if isinstance(before, dict) else []


def _level_of(schema: State) -> str:
    return str(part(schema, "spec", "priorityLevelConfiguration", "name") or "")


def _flow_users(schema: State) -> Iterator[str]:
    """The users and groups ("group:NAME") that a FlowSchema's rules name."""
    for rule in objects(part(schema, "spec", "rules")):
        for subject in objects(rule.get("subjects")):
            account = fields(subject.get("serviceAccount"))
            if account and account.get("name") == "*":
                yield f"group:system:serviceaccounts:{account.get('namespace')}"
            elif account:
                yield f"system:serviceaccount:{account.get('namespace')}:{account.get('name')}"
            if subject.get("user"):
                yield str(subject["user"].get("name"))
            if subject.get("group"):
                yield f"group:{subject['group'].get('name')}"
