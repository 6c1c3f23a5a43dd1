"""What roles, bindings and quotas allow, and what was gained or lost between two of them."""

from __future__ import annotations

from collections import defaultdict

from app.core.model import Change, DiffSource, FieldDiff, Json, Object, Verb
from app.core.objects.normalise import amount_of

Grant = tuple[str, str, str]  # api group, resource (or URL), verb
_ROLES = frozenset({"Role", "ClusterRole"})
CONSTRAINTS = "constraints.gatekeeper.sh"
"""https://open-policy-agent.github.io/gatekeeper/website/docs/howto"""
_VOLUMES = frozenset({"PersistentVolumeClaim", "PersistentVolume"})
_BINDINGS = frozenset({"RoleBinding", "ClusterRoleBinding"})


def grants_changed(kind: str, old: Object | None, new: Object | None) -> str:
    """ "lost list on endpoints; gained get on pods", or "" where nothing of that is known to have changed."""
    if old is None or new is None:
        return ""
    if kind in _ROLES:
        before, after = rules_of(old), rules_of(new)
        parts = [
            f"{word} {_rights(rights)}"
            for word, rights in (("lost", before - after), ("gained", after - before))
            if rights
        ]
        return "; ".join(parts)
    if kind in _BINDINGS:
        was, now = subjects_of(old), subjects_of(new)
        parts = [f"{word} {_names(names)}" for word, names in (("lost", was - now), ("gained", now - was)) if names]
        return "; ".join(parts)
    return ""


def only_allows_more(change: Change) -> bool:
    """Whether a role, a binding, a quota or a policy leaves everybody all that they had: nobody is refused by that."""
    if change.diff_source is not DiffSource.STATES:
        return False
    if change.resource.kind in _ROLES | _BINDINGS:
        return change.verb is Verb.CREATE or all(_only_adds(diff) for diff in change.diffs)
    if change.resource.kind == "ResourceQuota":
        return change.verb is Verb.UPDATE and all(_raises(diff) for diff in change.diffs)
    if change.resource.kind == "NetworkPolicy":
        return change.verb is Verb.UPDATE and bool(change.diffs) and all(_opens(diff) for diff in change.diffs)
    return False


def accepts_more(change: Change) -> bool:
    """Whether a definition only gets fields that may be left out, or one of Gatekeeper's constraints only leaves out
    more namespaces: what was taken before is taken."""
    if change.diff_source is not DiffSource.STATES or change.verb is not Verb.UPDATE or not change.diffs:
        return False
    if change.resource.kind == "CustomResourceDefinition":
        return all(map(_is_optional, change.diffs))
    return change.resource.api_group == CONSTRAINTS and all(map(_leaves_out_more, change.diffs))


def _is_optional(diff: FieldDiff) -> bool:
    """Whether it is a new property of a schema, with nothing that is set by itself
    (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting)."""
    if diff.path[:1] == ("metadata",):
        return True
    return diff.op == "add" and diff.path[-2:-1] == ("properties",) and not _has_key(diff.new, "default")


def _leaves_out_more(diff: FieldDiff) -> bool:
    if diff.path[:1] == ("metadata",):
        return True
    return diff.path[:3] == ("spec", "match", "excludedNamespaces") and (diff.op == "add" or _only_adds(diff))


def _has_key(value: Json, key: str) -> bool:
    if isinstance(value, dict):
        return key in value or any(_has_key(inner, key) for inner in value.values())
    return isinstance(value, list) and any(_has_key(inner, key) for inner in value)


def loosens(change: Change) -> bool:
    """Whether a disruption budget lets more pods go at once: it is deleted, or its number is another in that sense."""
    if change.resource.kind != "PodDisruptionBudget":
        return False
    return change.verb is Verb.DELETE or any(map(_lets_go, change.diffs))


def _lets_go(diff: FieldDiff) -> bool:
    """A share is more than a number of pods that it replaces, mostly: budgets that are numbers are small ones."""
    if diff.path not in (("spec", "maxUnavailable"), ("spec", "minAvailable")):
        return False
    old, new = ((str(side).endswith("%"), amount_of(str(side).rstrip("%"))) for side in (diff.old, diff.new))
    more = new > old if None not in (old[1], new[1]) else False
    return more if diff.path[-1] == "maxUnavailable" else not more and diff.old != diff.new


def enlarges(change: Change) -> bool:
    """Whether a volume, or the claim to one, only becomes larger: whatever it is used for has more room."""
    told = [diff for diff in change.diffs if diff.path[:1] != ("metadata",)]
    return change.resource.kind in _VOLUMES and bool(told) and all(map(_is_larger, told))


def _is_larger(diff: FieldDiff) -> bool:
    return diff.path[-1:] == ("storage",) and _is_more(diff)


def _opens(diff: FieldDiff) -> bool:
    """Whether a policy only lets in, or out, more than it did: where nobody, or no port, is said, that is everybody."""
    if diff.path[:1] == ("metadata",):
        return True
    if diff.path[:2] not in (("spec", "ingress"), ("spec", "egress")):
        return False
    if diff.path[2:] == () and isinstance(diff.old, list) and isinstance(diff.new, list):  # all rules, written anew
        return bool(diff.old) and all(rule in diff.new for rule in diff.old)
    if diff.op != "add":
        return False
    return len(diff.path) > 2 and isinstance(diff.path[-1], int | tuple)  # one more rule, peer or port beside others


def _only_adds(diff: FieldDiff) -> bool:
    if diff.path[-1:] == ("resourceNames",) and None in (diff.old, diff.new):  # without names it is for all of them
        return diff.new is None
    if diff.path[:2] == ("metadata", "labels"):  # by which a role's rules are a part of an aggregated one
        return diff.op == "add"
    if diff.path[:1] == ("metadata",) or diff.op == "add":
        return True
    if not (isinstance(diff.old, list) and isinstance(diff.new, list)):
        return False
    return all(item in diff.new for item in diff.old)


def _raises(diff: FieldDiff) -> bool:
    if diff.path[:1] == ("metadata",):
        return True
    return diff.path[:2] == ("spec", "hard") and (diff.op == "remove" or _is_more(diff))


def _is_more(diff: FieldDiff) -> bool:
    """Whether an amount became no smaller."""
    old, new = amount_of(str(diff.old)), amount_of(str(diff.new))
    return old is not None and new is not None and new >= old


def rules_of(role: Object) -> frozenset[Grant]:
    """Everything that a role's rules grant, one by one. Rules narrowed to names show them: "secrets/my-secret"."""
    found: set[Grant] = set()
    rules = role.get("rules")
    for rule in rules if isinstance(rules, list) else ():
        if not isinstance(rule, dict):
            continue
        names = _texts(rule.get("resourceNames"))
        for verb in _texts(rule.get("verbs")):
            found.update(("", url, verb) for url in _texts(rule.get("nonResourceURLs")))
            for group in _texts(rule.get("apiGroups")) or [""]:
                for resource in _texts(rule.get("resources")):
                    found.update((group, f"{resource} {name}", verb) for name in names)
                    if not names:
                        found.add((group, resource, verb))
    return frozenset(found)


def subjects_of(binding: Object) -> frozenset[str]:
    """Whom a binding names, as people write it: "ServiceAccount ns/name", "Group dev"."""
    subjects = binding.get("subjects")
    return frozenset(
        f"{s.get('kind')} {str(s['namespace']) + '/' if s.get('namespace') else ''}{s.get('name')}"
        for s in (subjects if isinstance(subjects, list) else ())
        if isinstance(s, dict)
    )


def role_of(binding: Object) -> str:
    """The role that a binding gives: "ClusterRole admin"."""
    ref = binding.get("roleRef")
    return f"{ref.get('kind')} {ref.get('name')}" if isinstance(ref, dict) else ""


def _texts(value: Json) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _rights(rights: frozenset[Grant]) -> str:
    """Rights by their verbs: "list, watch on endpoints"; the resources with the same verbs together."""
    verbs: dict[str, list[str]] = defaultdict(list)
    for _, resource, verb in sorted(rights):
        if verb not in verbs[resource]:
            verbs[resource].append(verb)
    resources: dict[str, list[str]] = defaultdict(list)
    for resource, held in verbs.items():
        resources["every verb" if held == ["*"] else ", ".join(held)].append(resource)
    return ", ".join(f"{held} on {_names(names)}" for held, names in list(resources.items())[:2]) + (
        " and more" if len(resources) > 2 else ""
    )


def _names(names: frozenset[str] | list[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
