"""An object's desired state, made part by part: equal bytes are redacted and normalised once.

Most writes touch one part of an object, and objects of one owner share most of theirs: a scaled Deployment keeps its
template, a bound pod its containers. What is remembered is found by a hash of the raw bytes, so no secret is held.
"""

from __future__ import annotations

from functools import lru_cache

from app.core.model import Object, Resource
from app.core.objects.body import Body, Part
from app.core.objects.normalise import normalise
from app.core.objects.redact import Redactor, decode
from app.core.objects.secret_names import is_secret_kind

_WHOLE = frozenset({"Secret", "ConfigMap", "Node"})
"""Kinds of which one part decides how another is treated, or whose parts are rarely twice the same."""
_LIMIT = 4 << 20
"""Raw bytes of the parts remembered; as Python's objects they take about eight times that."""
_ENTRY = 200
"""What a part costs beside its bytes, at least."""
_LARGEST = 1 << 16
"""Bytes of the largest part, and of the largest object, worth remembering: what is larger is rare."""

_Key = tuple[str, str, str, str | None, int]


class Parts:
    """Makes the states of one cluster's objects. States share their parts: none may be altered."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._known: dict[_Key, Object] = {}
        self._whole: dict[tuple[Resource, int], Object] = {}
        self._bytes = 0

    @property
    def remembered(self) -> int:
        """About how many bytes of raw parts are remembered."""
        return self._bytes

    def state(self, resource: Resource, body: Body) -> Object:
        """The object's desired state without secrets, in one spelling: all that is compared and stored of it."""
        group, kind = resource.api_group, resource.kind
        if _is_whole(kind) or self._redactor.cuts(group, kind):
            return self._made(group, kind, body.desired())
        known = self._whole.get((resource, body.hash))  # writers that fight bring the same few states again and again
        if known is not None:
            return known
        out: Object = {"metadata": {key: self._redactor.text(name) for key, name in body.name().items()}}
        for part in body.parts():
            for key, value in self._part(group, kind, part).items():
                whole = out.setdefault(key, {}) if part[1] is not None else None
                if isinstance(whole, dict) and isinstance(value, dict):
                    whole.update(value)
                else:
                    out[key] = value
        if body.size <= _LARGEST:
            self._add(5 * _ENTRY)
            self._whole[resource, body.hash] = out
        return out

    def _part(self, group: str, kind: str, part: Part) -> Object:
        """One part as the state of an object that has nothing else."""
        key, inner, raw = part
        known = (group, kind, key, inner, hash(raw))
        found = self._known.get(known)
        if found is None:
            value = decode(raw)
            found = self._made(group, kind, {key: value if inner is None else {inner: value}})
            if len(raw) <= _LARGEST:
                self._add(len(raw) + _ENTRY)
                self._known[known] = found
        return found

    def _add(self, size: int) -> None:
        """Make room: what is remembered starts again when it is full."""
        self._bytes += size
        if self._bytes > _LIMIT:
            self._known.clear()
            self._whole.clear()
            self._bytes = size

    def _made(self, group: str, kind: str, obj: Object) -> Object:
        return normalise(self._redactor.object(group, kind, obj), group, kind=kind)


@lru_cache(maxsize=4096)
def _is_whole(kind: str) -> bool:
    return kind in _WHOLE or kind.endswith("List") or is_secret_kind(kind)
