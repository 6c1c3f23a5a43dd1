"""The one line that a person reads about a change: its most telling field first, at most LIMIT characters.

It says what was done to what; who did it is beside it on every page.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from app.core.model import FieldDiff, Object, Path, Resource, Verb
from app.core.objects.created import details, helm_words
from app.core.objects.diff import ORDER, diff
from app.core.objects.grants import grants_changed
from app.core.objects.values import images, keys_text, moved, name_of
from app.core.phrases import straight

LIMIT = 120
_PAST = {Verb.CREATE: "created", Verb.DELETE: "deleted", Verb.UPDATE: "written"}
_WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job", "Rollout", "ReplicaSet"})
_GENERIC = frozenset(
    {
        "name",
        "value",
        "type",
        "key",
        "enabled",
        "mode",
        "path",
        "kind",
        "namespace",
        "operator",
        "effect",
        "matchLabels",
    }
)
_RESTARTED = "kubectl.kubernetes.io/restartedAt"


NOT_RECORDED = "its content was not recorded"
TRUNCATED = "its content was too large for the audit log"


class _Phrase(Struct, frozen=True, gc=False):
    """One field's part of the line. ``weight``: the smallest is told first."""

    weight: int
    label: str
    rest: str
    whole: str = ""
    """A sentence that needs no subject put to it."""

    def first(self, subject: str) -> str:
        return self.whole or f"{self.label} of {subject}{self.rest if self.rest.startswith(' ') else ': ' + self.rest}"

    def later(self) -> str:
        return self.whole or f"{self.label} {self.rest.lstrip()}"


def summary(
    resource: Resource,
    verb: Verb,
    diffs: tuple[FieldDiff, ...],
    *,
    old: Object | None,
    new: Object | None,
    unknown: str = NOT_RECORDED,
) -> str:
    """What was done to what, without who: "image of payments-api: v1.41.0 → v1.42.0".

    ``old`` and ``new`` are the states around it, where they are known; ``unknown`` is why a write has no diffs.
    """
    subject = subject_of(resource)
    if verb is not Verb.UPDATE:
        state = new if verb is Verb.CREATE else old
        more = details(resource, state) if state and verb is Verb.CREATE else ""
        whole = f"{resource.kind} {resource.name}" if subject == resource.name else subject
        return clip(f"{whole} {_PAST[verb]}{': ' if more else ''}{more}")
    if not diffs:
        return clip(f"{subject} written ({unknown})")
    granted = grants_changed(resource.kind, old, new)
    phrases = [_phrase(resource, found) for found in _paired(diffs) if not (granted and _is_grant(found.path))]
    if granted:
        phrases.append(_Phrase(0, "", "", f"{subject} {granted}"))
    return _line(subject, sorted(phrases, key=lambda phrase: phrase.weight))


@lru_cache(maxsize=4096)
def subject_of(resource: Resource) -> str:
    """A resource as people call it: workloads by their name alone, others with their kind."""
    release = helm_words(resource)
    if release:
        return release
    if resource.kind.endswith("WebhookConfiguration"):
        return f"webhook {resource.name}"
    return resource.name if resource.kind in _WORKLOADS else f"{resource.kind} {resource.name}"


def clip(text: str, limit: int = LIMIT) -> str:
    """At most ``limit`` characters, on one line."""
    text = straight(" ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _line(subject: str, phrases: list[_Phrase]) -> str:
    line = phrases[0].first(subject)
    seen = {line}
    left = len(phrases) - 1
    for phrase in phrases[1:]:
        part = phrase.later()
        if part in seen:
            left -= 1
            continue
        seen.add(part)
        if len(line) + len(part) + 2 > LIMIT - (11 if left > 1 else 0):
            break
        line, left = f"{line}, {part}", left - 1
    if not left:
        return clip(line)
    more = f", +{left} more"
    return clip(line, limit=LIMIT - len(more)) + more


def _paired(diffs: tuple[FieldDiff, ...]) -> list[FieldDiff]:
    """``diffs`` where an item that came and one that went in its place are the same but for one field: as that field.

    An item's key is one of its fields: a port with another number is another item.
    """
    told = list(diffs)
    if len(told) < 2:
        return told
    places: dict[Path, list[FieldDiff]] = {}
    for found in diffs:
        if found.op != "replace" and found.path and isinstance(found.path[-1], tuple):
            places.setdefault(found.path[:-1], []).append(found)
    for path, items in places.items():
        old, new = (next((item for item in items if item.op == op), None) for op in ("remove", "add"))
        if old is None or new is None or len(items) != 2:
            continue
        inner = diff(old.old, new.new)
        if len(inner) == 1 and len(inner[0].path) == 1:
            told[told.index(new)] = FieldDiff((*path, *inner[0].path), inner[0].op, inner[0].old, inner[0].new)
            told.remove(old)
    return told


def _is_grant(path: Path) -> bool:
    return bool(path) and path[0] in ("rules", "subjects", "roleRef")


def _phrase(resource: Resource, found: FieldDiff) -> _Phrase:
    path = found.path
    names, weight, label = _place(path)
    special = _special(resource, found, names)
    if special is not None:
        return special
    if names[-1:] == ["image"] and ("containers" in names or "initContainers" in names):
        container = _item(path, ("containers", "initContainers"))
        whose = "" if container in ("", resource.name) else f" ({container})"
        return _Phrase(1, f"image{whose}", images(found))
    return _Phrase(weight, label, moved(found))


@lru_cache(maxsize=4096)
def _place(path: Path) -> tuple[list[str], int, str]:
    """The fields on the way, how early a change there is told, and its name. Most changes are in a few places."""
    names = [step for step in path if isinstance(step, str)]
    return names, _weight(names), _label(path, names)


def _special(resource: Resource, found: FieldDiff, names: list[str]) -> _Phrase | None:
    """Fields that have a word of their own."""
    subject, last = subject_of(resource), names[-1] if names else ""
    if last == ORDER:
        return _Phrase(4, f"order of {names[-2]}", f"{keys_text(found.old)} → {keys_text(found.new)}")
    if last == _RESTARTED:
        return _Phrase(3, "", "", f"restart of {subject}")
    if last == "caBundle":
        return _Phrase(2, "caBundle", moved(found))
    if resource.kind == "Node":
        if names == ["spec", "unschedulable"]:
            return _Phrase(0, "", "", f"{subject} {'cordoned' if found.new is True else 'uncordoned'}")
        if last == "kubeletVersion":
            return _Phrase(0, "kubelet", moved(found))
    if names == ["operation"] and resource.kind == "Application" and isinstance(found.new, dict):
        return _Phrase(0, "", "", _sync(subject, found.new))
    if names == ["spec", "suspend"]:  # of a Job, a CronJob, what Flux reconciles
        return _Phrase(0, "", "", f"{subject} {'suspended' if found.new is True else 'resumed'}")
    if names == ["spec", "paused"]:
        return _Phrase(0, "", "", f"{subject} {'paused' if found.new is True else 'resumed'}")
    return None


def _sync(subject: str, asked: Object) -> str:
    """To what somebody asked Argo CD to sync an application."""
    sync, who = asked.get("sync"), asked.get("initiatedBy")
    told = (sync.get("revision") or sync.get("revisions")) if isinstance(sync, dict) else None
    revisions = ", ".join(map(str, told)) if isinstance(told, list) else str(told or "")
    user = who.get("username") if isinstance(who, dict) else None
    said = f"sync of {subject}{' to ' + revisions if revisions else ''}"
    return f"{said}, asked for by {user}" if user else said


def _weight(names: list[str]) -> int:
    if not names:
        return 5
    if names[-1] == "replicas":
        return 2
    if names[0] == "metadata" or "annotations" in names or "labels" in names:
        return 7
    if names[0] == "status":
        return 8
    return 3 if names[-1] in ("failurePolicy", "timeoutSeconds", "targetRevision", "version", "revision") else 4


def _item(path: Path, lists: tuple[str, ...]) -> str:
    """The name of the item of one of these lists that the path goes through."""
    for index, step in enumerate(path[1:], 1):
        if path[index - 1] in lists and isinstance(step, tuple):
            return name_of(step)
    return ""


def _label(path: Path, names: list[str]) -> str:
    template = "pod " if "template" in names[:-1] else ""
    for group, word in (("annotations", "annotation"), ("labels", "label")):
        if group in names[:-1]:
            return f"{template}{word} {names[-1].rpartition('/')[2]}"
    if names[:1] in (["data"], ["stringData"], ["binaryData"]) and len(names) > 1:
        return names[-1]
    env = _item(path, ("env",))
    if env:
        return f"env {env}"
    if len(names) > 2 and names[-2] in ("limits", "requests") and "resources" in names:
        return f"{names[-1]} {names[-2][:-1]}"
    here = path[-1] if path else ""
    if isinstance(here, tuple):
        return f"{_one(names[-1])} {name_of(here)}"
    item = next((name_of(step) for step in reversed(path) if isinstance(step, tuple)), "")
    label = names[-1] if names else "everything"
    if len(names) > 1 and (label in _GENERIC or label.isdigit()):
        label = f"{names[-2]}.{label}"
    container = _item(path, ("containers", "initContainers"))
    if "Probe" in "".join(names) and not label.endswith("Probe"):
        probe = next(name for name in names if "Probe" in name)
        label = f"{probe} {names[-1]}"
    return f"{label} ({item})" if item and not container else label


def _one(plural: str) -> str:
    if plural.endswith("ies"):
        return plural[:-3] + "y"
    if plural.endswith(("sses", "ches", "shes", "xes", "iases")):
        return plural[:-2]
    return plural[:-1] if plural.endswith("s") and not plural.endswith("ss") else plural
