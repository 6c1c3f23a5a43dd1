"""The one line that a person reads about a change: its most telling field first, at most LIMIT characters.

It says what was done to what; who did it is beside it on every page.
"""

from __future__ import annotations

import orjson
from msgspec import Struct

from app.core.created import details, helm_release
from app.core.diff import ORDER
from app.core.grants import grants_changed
from app.core.model import FieldDiff, Json, Object, Path, Resource, Verb
from app.core.redact_rules import WHOLE_TAG

LIMIT = 120
_VALUE = 44
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
    phrases = [_phrase(resource, found) for found in diffs if not (granted and _is_grant(found.path))]
    if granted:
        phrases.append(_Phrase(0, "", "", f"{subject} {granted}"))
    return _line(subject, sorted(phrases, key=lambda phrase: phrase.weight))


def subject_of(resource: Resource) -> str:
    """A resource as people call it: workloads by their name alone, others with their kind."""
    release = helm_release(resource)
    if release:
        return release
    if resource.kind.endswith("WebhookConfiguration"):
        return f"webhook {resource.name}"
    return resource.name if resource.kind in _WORKLOADS else f"{resource.kind} {resource.name}"


def clip(text: str, limit: int = LIMIT) -> str:
    """At most ``limit`` characters, on one line."""
    text = " ".join(text.split())
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


def _is_grant(path: Path) -> bool:
    return bool(path) and path[0] in ("rules", "subjects", "roleRef")


def _phrase(resource: Resource, found: FieldDiff) -> _Phrase:
    path = found.path
    names = [step for step in path if isinstance(step, str)]
    last = names[-1] if names else ""
    special = _special(resource, found, names)
    if special is not None:
        return special
    if last == "image" and any(name in ("containers", "initContainers") for name in names):
        container = _item(path, ("containers", "initContainers"))
        whose = "" if container in ("", resource.name) else f" ({container})"
        return _Phrase(1, f"image{whose}", _images(found))
    return _Phrase(_weight(names), _label(path, names), _moved(found))


def _special(resource: Resource, found: FieldDiff, names: list[str]) -> _Phrase | None:
    """Fields that have a word of their own."""
    subject = subject_of(resource)
    if names[-1:] == [ORDER]:
        return _Phrase(4, f"order of {names[-2]}", f"{_keys(found.old)} → {_keys(found.new)}")
    if names[-1:] == [_RESTARTED]:
        return _Phrase(3, "", "", f"restart of {subject}")
    if resource.kind == "Node":
        if names == ["spec", "unschedulable"]:
            return _Phrase(0, "", "", f"{subject} {'cordoned' if found.new is True else 'uncordoned'}")
        if names[-1:] == ["kubeletVersion"]:
            return _Phrase(0, "kubelet", _moved(found))
    if names == ["spec", "suspend"] and resource.kind in ("CronJob", "Job"):
        return _Phrase(0, "", "", f"{subject} {'suspended' if found.new is True else 'resumed'}")
    if names == ["spec", "paused"]:
        return _Phrase(0, "", "", f"{subject} {'paused' if found.new is True else 'resumed'}")
    if names[-1:] == ["caBundle"]:
        return _Phrase(2, "caBundle", _moved(found))
    return None


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
            return step[0][1]
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
        return f"{_one(names[-1])} {here[0][1]}"
    item = next((step[0][1] for step in reversed(path) if isinstance(step, tuple)), "")
    label = names[-1] if names else "everything"
    if len(names) > 1 and (label in _GENERIC or label.isdigit()):
        label = f"{names[-2]}.{label}"
    container = _item(path, ("containers", "initContainers"))
    if "Probe" in "".join(names) and not label.endswith("Probe"):
        probe = next(name for name in names if "Probe" in name)
        label = f"{probe} {names[-1]}"
    return f"{label} ({item})" if item and not container else label


def _keys(order: Json) -> str:
    """The items of a list by their keys, in their order."""
    items = [item for item in order if isinstance(item, dict)] if isinstance(order, list) else []
    return _short(", ".join(" ".join(str(value) for value in item.values() if value) for item in items))


def _one(plural: str) -> str:
    if plural.endswith("ies"):
        return plural[:-3] + "y"
    return plural[:-1] if plural.endswith("s") and not plural.endswith("ss") else plural


def _moved(found: FieldDiff) -> str:
    if found.op == "add" or (found.old is None and found.op != "remove"):
        return f" set to {value_text(found.new)}"
    if found.op == "remove":
        was = value_text(found.old)
        return f" removed (was {was})" if found.old is not None else " removed"
    old, new = value_text(found.old), value_text(found.new)
    if old == new:
        return " changed" if old != _HIDDEN else " changed (hidden)"
    return f"{old} → {new}"


_HIDDEN = "hidden"


def value_text(value: Json) -> str:
    """A value in a few characters: a scalar as it is, a list by its items, an object by its fields, a secret not."""
    if isinstance(value, str):
        return _HIDDEN if WHOLE_TAG.match(value) else _short(value) if value else '""'
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        if all(isinstance(item, str | int | float) for item in value):
            return _short(", ".join(str(item) for item in value)) if value else "none"
        named = [item for item in value if isinstance(item, dict) and isinstance(item.get("name"), str)]
        if named and len(named) == len(value):
            return _short(", ".join(_named(item) for item in named))
        return f"{len(value)} item{'s' if len(value) != 1 else ''}"
    if isinstance(value.get("name"), str):
        return _short(_named(value))
    return _short(orjson.dumps(value).decode().replace('"', ""))


def _named(item: Object) -> str:
    """A named item of a list: an environment variable with its value, anything else by its name."""
    value = item.get("value")
    return f"{item['name']}={value_text(value)}" if isinstance(value, str) else str(item["name"])


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _VALUE else text[: _VALUE - 1] + "…"


def image_parts(image: str) -> tuple[str, str]:
    """(repository, tag or short digest) of an image reference; the tag is "latest" where none is given."""
    reference, at, digest = image.partition("@")
    head, slash, tail = reference.rpartition("/")
    name, colon, tag = tail.partition(":")
    shown = tag if colon else digest.partition(":")[2][:12] if at else "latest"
    return head + slash + name, shown


def _images(found: FieldDiff) -> str:
    """Tags where only the tag moved; whole references where the repository did."""
    if not isinstance(found.old, str) or not isinstance(found.new, str):
        return _moved(found) if not isinstance(found.new, str) else f" set to {image_parts(found.new)[1]}"
    (before, old), (after, new) = image_parts(found.old), image_parts(found.new)
    if before != after:
        return f"{_tail(found.old)} → {_tail(found.new)}"
    if old == new:
        digests = found.old.partition("@")[2], found.new.partition("@")[2]
        old, new = (f"{tag}@{digest.partition(':')[2][:8]}" for tag, digest in zip((old, new), digests, strict=True))
    return f"{old} → {new}"


def _tail(image: str) -> str:
    return image if len(image) <= _VALUE else "…" + image[-_VALUE + 1 :]
