"""A change -> the command that undoes it, and who would undo the undoing.

Nothing here is run by us: a person reads the command, judges it and runs it. Field managers, labels and annotations are
those that Helm, Argo CD and Flux document for the objects they own.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from app.core.findings import Suspect
from app.core.model import Change, DiffSource, FieldDiff, Json, Object, Resource, Verb
from app.core.objects import kinds
from app.core.objects.diff import undo
from app.core.objects.redact_rules import TAG
from app.core.phrases import many

_ROLLED = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
_NAMED_LISTS = frozenset({"containers", "initContainers", "env", "volumes", "webhooks"})
"""Lists that a strategic merge patch merges by ``name`` (x-kubernetes-patch-merge-key of the built-in kinds)."""

_MANIFEST_LIMIT = 16_000
_HELM_RELEASE = "sh.helm.release.v1."
_HOLDS_OTHERS = {
    "Namespace": "deletes everything in the namespace",
    "CustomResourceDefinition": "deletes every object of this kind",
    "PersistentVolumeClaim": "may delete the data of the volume",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """``command`` for a shell, "" where none can be given; ``warning`` says what to mind, "" for nothing."""

    command: str
    warning: str


def revert_recipe(
    change: Change, state: Object | None = None, *, also: Sequence[Resource] = (), beside: int = 0
) -> Recipe:
    """How to undo a change. ``state`` is the object right after it, where known: it makes patches of lists possible.
    ``also`` are the objects that were made with it in one go, or got the same edit, ``beside`` is how many others were
    written with it (findings.Suspect): the command leaves those alone.

    The warning names a GitOps controller or a package manager that owns the object and would write it again.
    """
    if teller := kinds.told_by(change.resource.api_group):
        return Recipe("", f"Kubernetes does not know it: undo it where it was made, in {teller}.")
    command, caution = _command(change, state, also)
    if also and change.verb is not Verb.CREATE:
        caution = f"{caution} The same edit was made to {many(len(also), 'other')}: undo each, by its name.".strip()
    if beside:
        caution = f"{caution} Written in one go with {many(beside, 'other')}, which this does not undo.".strip()
    warnings = [caution, _follows(change), _owner(change, state)]
    return Recipe(command, " ".join(warning for warning in warnings if warning))


def suspect_recipe(suspect: Suspect) -> Recipe:
    """How to undo a suspect, with all that it is."""
    return revert_recipe(suspect.change, also=[one.resource for one in suspect.also], beside=len(suspect.beside))


def _command(change: Change, state: Object | None, also: Sequence[Resource]) -> tuple[str, str]:
    resource = change.resource
    if resource.kind == "Secret" and resource.name.startswith(_HELM_RELEASE):
        release = resource.name[len(_HELM_RELEASE) :].rpartition(".v")[0]
        return _in(f"helm rollback {shlex.quote(release)}", resource), ""
    if change.verb is Verb.CREATE:
        return _deleted([resource, *also])
    if change.verb is Verb.DELETE:
        return _recreate(change)
    return _put_back(change, state)


def _deleted(resources: Iterable[Resource]) -> tuple[str, str]:
    """A line for each namespace, and what else the deletion of some takes away."""
    lines: dict[str | None, list[str]] = {}
    holds: dict[str, str] = {}
    for resource in resources:
        lines.setdefault(resource.namespace, []).append(_target(resource))
        if told := _HOLDS_OTHERS.get(resource.kind):
            holds[resource.kind] = told
    commands = [
        f"kubectl delete {' '.join(targets)}" + (f" -n {shlex.quote(namespace)}" if namespace else "")
        for namespace, targets in lines.items()
    ]
    return "\n".join(commands), f"This {' and '.join(holds.values())}." if holds else ""


def _put_back(change: Change, state: Object | None) -> tuple[str, str]:
    resource, diffs = change.resource, change.diffs
    paths = {found.path for found in diffs}
    if change.diff_source is not DiffSource.STATES or not diffs:
        return _kubectl("edit", resource), "The values before this change were not recorded."
    if resource.kind in _ROLLED and all(path[:2] == ("spec", "template") for path in paths):
        return (
            _kubectl("rollout undo", resource),
            "This goes back one revision: right only while no newer one has been rolled out.",
        )
    if paths == {("spec", "replicas")} and isinstance(diffs[0].old, int):
        return _kubectl("scale", resource) + f" --replicas={diffs[0].old}", ""
    if resource.kind == "Node" and paths == {("spec", "unschedulable")}:
        return _kubectl("uncordon" if diffs[0].old is None else "cordon", resource), ""
    patch, kind = _patch(change, state)
    if patch is None:
        return _kubectl("edit", resource), "Put the values before back by hand: a list cannot be patched without them."
    text = orjson.dumps(patch).decode()
    if TAG.search(text):
        return _kubectl("edit", resource), "The secret value before is not kept here: take it from where it is kept."
    return _kubectl("patch", resource) + f" --type {kind} -p {shlex.quote(text)}", ""


def _patch(change: Change, state: Object | None) -> tuple[Object | None, str]:
    """The patch that sets the values before, with its type; None where a list's other items are needed, but unknown."""
    built_in = (change.resource.api_group, change.resource.kind) in kinds.BUILT_IN
    if all(_is_plain(found.path) for found in change.diffs):
        return _tree((list(found.path), _before(found)) for found in change.diffs), "merge"
    if built_in and all(_is_named(found.path) for found in change.diffs):
        return _tree((list(found.path), _before(found)) for found in change.diffs), "strategic"
    if state is None:
        return None, ""
    try:
        before = undo(reversed(change.diffs), state)
    except (KeyError, IndexError):
        return None, ""  # the state is not the one this change made
    whole: list[tuple[list[object], Json]] = []
    for found in change.diffs:
        steps = found.path[: next((i for i, step in enumerate(found.path) if not isinstance(step, str)), None)]
        whole.append((list(steps), _at(before, list(steps))))
    return _tree(whole), "merge"


def _is_plain(path: tuple[object, ...]) -> bool:
    return bool(path) and all(isinstance(step, str) for step in path)


def _is_named(path: tuple[object, ...]) -> bool:
    return all(
        isinstance(step, str) or (isinstance(step, tuple) and step[0][0] == "name" and path[at - 1] in _NAMED_LISTS)
        for at, step in enumerate(path)
    )


def _before(found: FieldDiff) -> Json:
    """The value to set: null removes a field, ``$patch: delete`` an item of a named list."""
    last = found.path[-1]
    if isinstance(last, tuple):
        return {**dict(last), "$patch": "delete"} if found.op == "add" else found.old
    return None if found.op == "add" else found.old


def _at(state: Json, steps: list[object]) -> Json:
    for step in steps:
        state = state.get(str(step)) if isinstance(state, dict) else None
    return state


def _tree(values: Iterable[tuple[list[object], Json]]) -> Object:
    """Paths with values -> one nested document; items of named lists carry their name."""
    root: Object = {}
    for path, value in values:
        here: Json = root
        for at, step in enumerate(path):
            last = at == len(path) - 1
            if isinstance(here, list):
                key = dict(step) if isinstance(step, tuple) else {}
                item = next((i for i in here if isinstance(i, dict) and key.items() <= i.items()), None)
                if item is None or last:
                    item = value if last and isinstance(value, dict) else dict(key)
                    here.append(item)
                here = item
            elif isinstance(here, dict):
                if last:
                    here[str(step)] = value
                else:
                    empty: Json = [] if isinstance(path[at + 1], tuple) else {}
                    here = here.setdefault(str(step), empty)
    return root


def _recreate(change: Change) -> tuple[str, str]:
    """An object that is gone: applied again from its last state where that is whole, else from its source."""
    resource = change.resource
    old = change.diffs[0].old if change.diffs else None
    if (resource.api_group, resource.kind) not in kinds.BUILT_IN or not isinstance(old, dict):
        return "", "Apply it again from where it is declared: what it held is not known here well enough."
    version = "v2" if resource.kind == "HorizontalPodAutoscaler" else "v1"
    group = f"{resource.api_group}/{version}" if resource.api_group else version
    manifest = orjson.dumps({"apiVersion": group, "kind": resource.kind, **old}, option=orjson.OPT_INDENT_2).decode()
    if TAG.search(manifest) or len(manifest) > _MANIFEST_LIMIT or "\nEND\n" in manifest:
        return "", "Apply it again from where it is declared: secret or long values are not kept here."
    return f"kubectl apply -f - <<'END'\n{manifest}\nEND", "The last known state, without what the server had added."


def _kubectl(what: str, resource: Resource) -> str:
    if what in ("cordon", "uncordon"):
        return f"kubectl {what} {shlex.quote(resource.name)}"
    return _in(f"kubectl {what} {_target(resource)}", resource)


def _target(resource: Resource) -> str:
    """``deployments.apps/web``, quoted for a shell."""
    plural = kinds.plural_of(resource.api_group, resource.kind)
    kind = f"{plural}.{resource.api_group}" if resource.api_group else plural
    return shlex.quote(f"{kind}/{resource.name}")


def _in(command: str, resource: Resource) -> str:
    return f"{command} -n {shlex.quote(resource.namespace)}" if resource.namespace else command


def _follows(change: Change) -> str:
    return "It follows from another change: undo that one, or a controller makes this again." if change.begun_by else ""


def _owner(change: Change, state: Object | None) -> str:
    """Who would write the object again, from its labels and annotations, else from who wrote it."""
    whole = state or next((part for d in change.diffs if not d.path for part in (d.new, d.old) if part), None)
    metadata = whole.get("metadata") if isinstance(whole, dict) else None
    marks: dict[str, str] = {}
    for field in ("labels", "annotations"):
        found = metadata.get(field) if isinstance(metadata, dict) else None
        if isinstance(found, dict):
            marks |= {name: value for name, value in found.items() if isinstance(value, str)}
    actor = f"{change.actor.name} {change.actor.user_agent}".lower()
    if any(name.startswith("argocd.argoproj.io/") for name in marks) or "argocd" in actor or "argo-cd" in actor:
        return "Argo CD owns it: revert it in Git, or pause the sync first, else it is written again."
    flux = next((name for name in marks if name.split("/")[0].endswith(".toolkit.fluxcd.io")), "")
    if flux or any(name in actor for name in ("kustomize-controller", "helm-controller", "flux")):
        return "Flux owns it: revert it in Git, or suspend the reconciliation first, else it is written again."
    release = marks.get("meta.helm.sh/release-name", "")
    if release or marks.get("app.kubernetes.io/managed-by") == "Helm" or change.actor.user_agent.lower() == "helm":
        named = f" {release}" if release else ""
        return f"It belongs to the Helm release{named}: `helm rollback` keeps its history right."
    return ""
