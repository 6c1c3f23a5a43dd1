"""The command that undoes a change, and the same as a dry run.

Options: https://kubernetes.io/docs/reference/kubectl/generated/ (--dry-run=server of delete, patch, scale, apply,
cordon, uncordon, taint and rollout undo; edit has none), https://helm.sh/docs/helm/helm_rollback/ and helm_uninstall/
(of --dry-run Helm 3 takes no value, and Helm 4 needs none),
https://argo-rollouts.readthedocs.io/en/stable/generated/kubectl-argo-rollouts/kubectl-argo-rollouts/ (undo, abort:
neither has one).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_
from unicodedata import category

import orjson
from msgspec.structs import replace

from app.core.changes.recipe import Known, Step
from app.core.changes.revert_owned import without_gone
from app.core.changes.revert_patch import NOT_WHOLE, patch_of
from app.core.changes.revert_rollout import why_not
from app.core.changes.revert_since import port_taken, unplaced
from app.core.model import Change, DiffSource, Object, ObjectState, Resource, Verb
from app.core.objects import api_versions, kinds
from app.core.objects.manifest import as_asked
from app.core.objects.owners import is_sync
from app.core.objects.redact_rules import TAG
from app.core.objects.revisions import TEMPLATE
from app.core.objects.taints import words_back
from app.core.objects.untyped import part

_ROLLED = frozenset(("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet"))
_ARGO = ("argoproj.io", "Rollout")
_STOP = (
    "While it is under way, this stops it at once and the pods of before take over; the template stays, so that it does"
    " not hold"
)
_SERVER = " --dry-run=server"
_SEALED = (
    "The {kind} is immutable, which the API server never takes back: delete it and make it anew as it was (its manifest"
    " before this change can be downloaded), then restart what reads it."
)
_NOT_WHOLE = (
    "Apply it again from where it is declared: secret values{which} are not kept here. Where it is declared nowhere,"
    " download its manifest before this change, as foreshock revert {id} --manifest prints it, put in what it says is"
    " missing, and apply that."
)
_LONG = (
    "It is too long for a command here: download its manifest before this change, as foreshock revert {id} --manifest"
    " prints it, and apply that."
)
_SYNCED = (
    "It asked Argo CD for a sync, and another write to the application came since: argocd app rollback goes back to a"
    " version that argocd app history lists, and takes back all that was synced since."
)
_MANIFEST_LIMIT = 16_000
_ARGUMENT = 1 << 17
"""Bytes that Linux takes as one argument of a program, less one (MAX_ARG_STRLEN, execve(2))."""
_HELM_RELEASE = "sh.helm.release.v1."
_HELM_KEEPS = 10
"""Revisions of a release, unless --history-max says otherwise."""
HOLDS_OTHERS = {
    "Namespace": "deletes everything in the namespace",
    "CustomResourceDefinition": "deletes every object of this kind",
    "PersistentVolumeClaim": "may delete the data of the volume",
}

_LOST = {
    "Namespace": "What was in it does not come back with it.",
    "CustomResourceDefinition": "Its objects do not come back with it.",
    "PersistentVolumeClaim": "Its data does not come back with it: by its reclaim policy the volume was deleted, or is"
    " Released and takes no claim until its claimRef is taken away.",
}
"""What is gone with a deleted object for good
(https://kubernetes.io/docs/concepts/storage/persistent-volumes/#reclaiming)."""
_STORAGE = ("spec", "resources", "requests", "storage")
_GROWN = "No claim is made smaller than its volume: where that has grown by now, the API server refuses this."


@dataclass(frozen=True, slots=True)
class Command:
    """``text`` for a shell, "" where none can be given; ``dry_run`` of it, "" where there is none; what to mind, and
    how to see beforehand what it brings."""

    text: str
    caution: str = ""
    dry_run: str = ""
    looks: tuple[Step, ...] = ()


def command(change: Change, known: Known, also: Sequence[Resource]) -> Command:
    """What undoes a change; ``also`` are objects that were made with it in one go."""
    resource = change.resource
    if is_helm_release(resource):
        return _helm(change, known)
    if is_sync(change):
        return Command("", _SYNCED)
    if change.verb is Verb.CREATE:
        return _deleted([resource, *also], known)
    if change.verb is Verb.DELETE:
        return _recreate(change, known)
    return _put_back(change, known)


def is_helm_release(resource: Resource) -> bool:
    """Whether it is the object in which Helm keeps a revision of a release."""
    return resource.kind in ("Secret", "ConfigMap") and resource.name.startswith(_HELM_RELEASE)


def helm_release(resource: Resource) -> tuple[str, int]:
    """The release and its revision that Helm keeps in an object of this name; 0 where the name has none."""
    release, _, number = resource.name.removeprefix(_HELM_RELEASE).rpartition(".v")
    return release, int(number) if number.isascii() and number.isdigit() else 0


def releases_beside(resource: Resource) -> tuple[Resource, ...]:
    """The objects in which Helm would keep the revisions before and after this one; none for what is no such object."""
    _, number = helm_release(resource)
    if not is_helm_release(resource) or not number:
        return ()
    oldest = max(number - 1 - _HELM_KEEPS, 0)
    return tuple(_revision(resource, at) for at in (number + 1, *range(number - 1, oldest, -1)))


def _revision(resource: Resource, number: int) -> Resource:
    return replace(resource, name=f"{_HELM_RELEASE}{helm_release(resource)[0]}.v{number}")


def _helm(change: Change, known: Known) -> Command:
    """Helm makes an object for each revision of a release: an install, an upgrade or a rollback."""
    resource = change.resource
    release, number = helm_release(resource)
    if change.verb is Verb.DELETE:
        gone = "Helm forgot this revision of the release, or the release was uninstalled: then install it again."
        return Command("", gone)
    newer = known.others.get(_revision(resource, number + 1)) if number else None
    is_newer = newer is not None and newer.deleted_at is None
    caution = f"Revision {number + 1} was released since: this takes it back, too." if is_newer else ""
    if number == 1:
        first = "It was the first revision: this removes all that the release made."
        return _helm_command(f"uninstall {shlex.quote(release)}", resource, f"{first} {caution}".strip())
    to = number - 1
    while to > 0 and _went_wrong(known.others.get(_revision(resource, to))):
        to -= 1
    if number and not to:
        return Command("", f"No revision of {release} before this one went well: there is none to go back to.")
    before = known.others.get(_revision(resource, to)) if number else None
    if before is not None and before.deleted_at is not None:
        forgot = f"Helm keeps revision {to} of {release} no more (it keeps ten, --history-max)"
        return Command("", f"{forgot}: upgrade to the chart and the values of before.")
    if number and to < number - 1:
        caution = f"Revision {number - 1} did not go well: this goes back to {to}, the last that did. {caution}".strip()
    exact = f" {to}" if number else ""
    looks = _helm_looks(resource, release, to) if number else ()
    return _helm_command(f"rollback {shlex.quote(release)}{exact}", resource, caution, looks)


def _went_wrong(revision: ObjectState | None) -> bool:
    """Whether Helm says of a revision that it failed, or was never through: a rollback would bring even that
    (https://github.com/helm/helm/blob/main/pkg/release/common/status.go)."""
    status = part(revision.state, "metadata", "labels", "status") if revision is not None else None
    return isinstance(status, str) and (status == "failed" or status.startswith("pending-"))


def _helm_looks(resource: Resource, release: str, to: int) -> tuple[Step, ...]:
    """What shows what a rollback brings: Helm's own dry run says no more than that it would succeed."""
    manifest = _in(f"helm get manifest {shlex.quote(release)} --revision {to}", resource)
    return (
        Step(
            f"See whether revision {to} went well: Helm brings back what failed, too",
            _in(f"helm history {shlex.quote(release)}", resource),
        ),
        Step("See what it would change", f"{manifest} | {_in('kubectl diff', resource)} -f -"),
    )


def _helm_command(what: str, resource: Resource, caution: str, looks: tuple[Step, ...] = ()) -> Command:
    text = _in(f"helm {what}", resource)
    return Command(text, caution, f"{text} --dry-run", looks)


def _kubectl(text: str, caution: str = "") -> Command:
    return Command(text, caution, text + _SERVER)


def _edit(resource: Resource, known: Known, caution: str) -> Command:
    return Command(_in(f"kubectl edit {target(resource, known)}", resource), caution)


def _deleted(resources: Iterable[Resource], known: Known) -> Command:
    """A line for each namespace, and what else the deletion of some takes away."""
    lines: dict[str | None, list[str]] = {}
    holds: dict[str, str] = {}
    for resource in resources:
        lines.setdefault(resource.namespace, []).append(target(resource, known))
        if told := HOLDS_OTHERS.get(resource.kind):
            holds[resource.kind] = told
    commands = [
        f"kubectl delete {' '.join(targets)}" + (f" -n {shlex.quote(namespace)}" if namespace else "")
        for namespace, targets in lines.items()
    ]
    caution = f"This {' and '.join(holds.values())}." if holds else ""
    return Command("\n".join(commands), caution, "\n".join(line + _SERVER for line in commands))


def _put_back(change: Change, known: Known) -> Command:
    resource, diffs = change.resource, change.diffs
    paths = {found.path for found in diffs}
    if change.diff_source is not DiffSource.STATES or not diffs:
        return _edit(resource, known, "The values before this change were not recorded.")
    reason = ""
    if (resource.api_group, resource.kind) in _ROLLED and all(path[:2] == TEMPLATE for path in paths):
        reason = why_not(change, known)
        if not reason:
            caution = "This goes back one revision: right only while no newer one has been rolled out."
            text = _in(f"kubectl rollout undo {target(resource, known)}", resource)
            return _kubectl(text, caution if known.last is None else "")
    if paths == {("spec", "replicas")} and isinstance(diffs[0].old, int):
        return _kubectl(f"{_in(f'kubectl scale {target(resource, known)}', resource)} --replicas={diffs[0].old}")
    if resource.kind == "Node" and paths == {("spec", "unschedulable")}:
        what = "uncordon" if diffs[0].old is None else "cordon"
        return _kubectl(f"kubectl {what} {shlex.quote(resource.name)}")
    if resource.kind == "Node" and (words := words_back(change)) and not any(map(TAG.search, words)):
        return _kubectl(f"kubectl taint nodes {shlex.join([resource.name, *words])} --overwrite")
    if any(path[:2] in NOT_WHOLE for path in paths):
        return _edit(resource, known, "Put back by hand what it altered: of such a list not all is recorded.")
    if is_sealed(change, known):
        return Command("", _SEALED.format(kind=resource.kind))
    if (resource.api_group, resource.kind) == _ARGO and any(path[:2] == TEMPLATE for path in paths):
        return _of_argo(change, known, whole=all(path[:2] == TEMPLATE for path in paths))
    return _patched(change, known, reason)


def _of_argo(change: Change, known: Known, *, whole: bool) -> Command:
    """The template of a Rollout of Argo's: a patch takes nothing but kubectl. Where none is whole, Argo's own command
    has the template before from a ReplicaSet; ``whole``: nothing but the template was changed."""
    resource = change.resource
    looks = (Step(_STOP, argo("abort", resource)),)
    found = with_(_patched(change, known, ""), looks=looks)
    if found.dry_run or not whole or known.state is None or why_not(change, known):
        return found
    return Command(argo("undo", resource), looks=looks)


def argo(what: str, resource: Resource) -> str:
    """A command of Argo's plugin."""
    return _in(f"kubectl argo rollouts {what} {shlex.quote(resource.name)}", resource)


def is_sealed(change: Change, known: Known) -> bool:
    """Whether the API server takes no edit of what was altered, as of an immutable ConfigMap
    (https://kubernetes.io/docs/concepts/configuration/configmap/#configmap-immutable)."""
    if change.resource.api_group or change.resource.kind not in ("ConfigMap", "Secret"):
        return False
    if any(found.path == ("immutable",) and found.new is True for found in change.diffs):
        return True
    is_now = (known.state or {}).get("immutable") is True
    return is_now and any(found.path[:1] and found.path[0] != "metadata" for found in change.diffs)


def _patched(change: Change, known: Known, reason: str) -> Command:
    """The values before, set again; ``reason`` is why not by going back a revision, "" where none is kept."""
    resource = change.resource
    patch, kind = patch_of(change, known)
    if patch is None:
        by_hand = "Put the values before back by hand: a list cannot be patched without them."
        return _edit(resource, known, f"{reason} {by_hand}".strip())
    text = _visible(orjson.dumps(patch).decode())
    if TAG.search(text):
        kept = "The secret value before is not kept here: take it from where it is kept."
        return _edit(resource, known, f"{reason} {kept}".strip())
    start = f"{_in(f'kubectl patch {target(resource, known)}', resource)} --type {kind}"
    instead = f"{reason} This sets the values before instead." if reason else ""
    is_grown = resource.kind == "PersistentVolumeClaim" and any(found.path == _STORAGE for found in change.diffs)
    grown = _GROWN if is_grown else ""
    caution = " ".join(filter(None, (instead, grown, _placed(change, known))))
    if len(text.encode()) < _ARGUMENT:
        return _kubectl(f"{start} -p {shlex.quote(text)}", caution)
    whole, dry = (f"{start}{dry} --patch-file /dev/stdin <<'END'\n{text}\nEND" for dry in ("", _SERVER))
    return Command(whole, caution, dry)


def _placed(change: Change, known: Known) -> str:
    """Where an item comes back that was taken out of a list whose order counts, for some at least; "" for none."""
    if port_taken(change):
        return "Where in ports it stood is not recorded: this puts it last."
    lists = unplaced(change)
    where = "last" if known.state is not None else "before others, perhaps"
    return f"Where in {lists} it stood is not recorded, and the order counts: this puts it {where}." if lists else ""


def _recreate(change: Change, known: Known) -> Command:
    """An object that is gone: applied again from its last state where that is whole, else from its source."""
    whole, owners = last_state(change, known)
    if whole is None:
        return Command("", "Apply it again from where it is declared: what it held is not known here well enough.")
    manifest = _visible(orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode())
    if TAG.search(manifest):
        which = " (all of binaryData counts as such)" if "binaryData" in whole else ""
        return Command("", _NOT_WHOLE.format(which=which, id=change.id))
    if len(manifest) > _MANIFEST_LIMIT:
        return Command("", _LONG.format(id=change.id))
    lost = _LOST.get(change.resource.kind, "")
    caution = " ".join(filter(None, ("The last known state, without what the server had added.", lost, owners)))
    ways = (f"kubectl apply{dry} -f - <<'END'\n{manifest}\nEND" for dry in ("", _SERVER))
    return Command(next(ways), caution, next(ways))


def last_state(change: Change, known: Known) -> tuple[Object | None, str]:
    """What a deleted object was last, as it is applied again; None where that is not known, or not its apiVersion. And
    what to mind of its owners."""
    old = change.diffs[0].old if change.diffs else None
    found = version(change.resource, known)
    if not found or not isinstance(old, dict):
        return None, ""
    whole = as_asked({"apiVersion": found, "kind": change.resource.kind, **old})
    return without_gone(whole, change.resource, known)


def version(resource: Resource, known: Known) -> str:
    """The apiVersion in which an object was recorded; "" where that is not known."""
    then = api_versions.served((known.definition.then if known.definition else None) or {})
    defined = api_versions.whole(resource.api_group, then[0]) if then else ""
    return api_versions.built_in(resource.api_group, resource.kind) or defined


def _visible(json: str) -> str:
    """JSON without characters that steer a terminal or turn around what it shows: each has another spelling in JSON."""
    return "".join(c if c == "\n" or category(c) not in {"Cc", "Cf", "Zl", "Zp"} else _escaped(c) for c in json)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def plural(resource: Resource, known: Known) -> str:
    """What the API server calls all objects of the kind: of a custom one as its definition says, where that is known,
    for a plural of its own nobody can guess."""
    defined, suffix = known.definition, f".{resource.api_group}"
    if defined is not None and defined.kind == resource.kind and defined.name.endswith(suffix):
        return defined.name.removesuffix(suffix)
    return kinds.plural_of(resource.api_group, resource.kind)


def target(resource: Resource, known: Known) -> str:
    """``deployments.apps/web``, quoted for a shell."""
    return shlex.quote(f"{kinds.named(resource.api_group, plural(resource, known))}/{resource.name}")


def _in(text: str, resource: Resource) -> str:
    return f"{text} -n {shlex.quote(resource.namespace)}" if resource.namespace else text
