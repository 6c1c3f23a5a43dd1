"""A change -> the command that undoes it, and who would undo that."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import orjson

from app.core.kinds import info
from app.core.model import Change, DiffSource, FieldDiff, Json, Object, Verb
from app.core.owners import Keeper, keeper_of
from app.core.redact_rules import TAG

_ROLLED_OUT = frozenset({"Deployment", "StatefulSet", "DaemonSet"})


@dataclass(frozen=True, slots=True)
class Recipe:
    """``command`` is to be read before it is run; "" where none is safe to give. ``warning`` says what to mind."""

    command: str
    warning: str = ""


def revert_recipe(change: Change, state: Object | None = None) -> Recipe:
    """How to undo a change by hand. ``state`` is the object's last known state: it tells who keeps the object."""
    keeper = keeper_of(state, change)
    warning = _warning(keeper)
    command, caution = _command(change)
    return Recipe(command, " ".join(part for part in (caution, warning) if part))


def _warning(keeper: Keeper | None) -> str:
    if keeper is None:
        return ""
    name = f" {keeper.name}" if keeper.name else ""
    if keeper.tool == "argocd":
        return f"Argo CD application{name} keeps this object: with automatic sync it will put its own state back. Revert in Git."
    if keeper.tool == "flux":
        return (
            f"Flux{name} keeps this object: it will put its own state back at the next reconciliation. Revert in Git."
        )
    return f"Helm release{name} keeps this object: the next upgrade overwrites the edit. Consider helm rollback{name}."


def _command(change: Change) -> tuple[str, str]:
    target = _target(change)
    if change.verb is Verb.CREATE:
        return f"kubectl delete {target}", "Deleting also deletes what the object owns."
    if change.verb is Verb.DELETE:
        return _recreate(change)
    if change.diff_source is DiffSource.NONE:
        return "", "What was changed was not recorded: restore the object from its source."
    if any(_is_hidden(found.old) for found in change.diffs):
        return "", "The value before was secret and is not kept: restore it from its source."
    if change.diff_source is DiffSource.PATCH and any(found.old is None for found in change.diffs):
        return "", "The state before was not seen: restore the object from its source."
    touched = {found.path[:2] for found in change.diffs}
    if change.resource.kind in _ROLLED_OUT and touched == {("spec", "template")}:
        return f"kubectl rollout undo {target}", "It goes back one revision: check kubectl rollout history first."
    if touched == {("spec", "replicas")} and change.diffs[0].old is not None:
        return f"kubectl scale {target} --replicas={change.diffs[0].old}", ""
    if change.resource.kind == "Node" and touched == {("spec", "unschedulable")}:
        return f"kubectl {'uncordon' if change.diffs[0].new is True else 'cordon'} {change.resource.name}", ""
    patch = _merge_patch(change.diffs)
    if patch is None:
        return f"kubectl edit {target}", "Items of a list were changed: undo them by hand, as the diff shows."
    return f"kubectl patch {target} --type merge -p {shlex.quote(orjson.dumps(patch).decode())}", ""


def _target(change: Change) -> str:
    resource = change.resource
    row = info(resource.api_group, resource.kind)
    kind = f"{row.plural}.{resource.api_group}" if resource.api_group else row.plural
    short = resource.kind.lower() if resource.kind in _ROLLED_OUT else kind
    where = f" -n {shlex.quote(resource.namespace)}" if resource.namespace else ""
    return f"{short}/{shlex.quote(resource.name)}{where}"


def _recreate(change: Change) -> tuple[str, str]:
    before = change.diffs[0].old if change.diffs else None
    if not isinstance(before, dict):
        return "", "The object was not seen before it was deleted: restore it from its source."
    resource = change.resource
    if resource.kind == "Secret" or TAG.search(orjson.dumps(before).decode()):
        return "", "It held secret values, which are not kept: restore it from its source."
    return (
        f"kubectl apply -f {shlex.quote(resource.name)}.yaml",
        "Save the last known state as that file first; what the object owned is gone.",
    )


def _is_hidden(value: Json) -> bool:
    return value is not None and TAG.search(orjson.dumps(value).decode()) is not None


def _merge_patch(diffs: tuple[FieldDiff, ...]) -> Object | None:
    """A JSON merge patch (RFC 7386) that sets every field back; None where a path goes through a list."""
    patch: Object = {}
    for found in diffs:
        if not found.path or not all(isinstance(step, str) for step in found.path):
            return None
        here = patch
        for step in found.path[:-1]:
            inner = here.setdefault(str(step), {})
            if not isinstance(inner, dict):
                return None
            here = inner
        here[str(found.path[-1])] = None if found.op == "add" else found.old
    return patch
