"""Secret values -> fingerprints, before anything is compared, stored, logged or shown.

A secret becomes ``<redacted:xxxxxxxx>``: eight hex digits of a keyed hash, so that a changed secret still shows as
changed and nobody without the key can test a guess. Redacting twice is redacting once. What a rule cannot handle is
dropped, not let through. Also takes out what PostgreSQL cannot store: NUL, lone surrogates, numbers that are none.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Callable

import orjson

from app.core.model import Json, Object
from app.core.objects import redact_rules as rules
from app.core.objects import secret_names, yaml_text
from app.core.objects.kinds import kind_of
from app.core.objects.own_rules import NO_RULES, Kinds, OwnRules
from app.core.objects.redact_text import BENIGN, TextRedactor, clean

MAX_DEPTH = 64
LEVELS = 1000
"""Of JSON that are read; orjson reads 1,024."""
TOO_DEEP = "<redacted:too-deep>"
UNREADABLE = "<redacted:unreadable>"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SECRET_ANNOTATIONS = frozenset({"openshift.io/token-secret.value"})
_NEVER_STORED = frozenset({"serviceaccounts/token", "tokenreviews", "tokenrequests", "certificatesigningrequests"})
_BIG = 1 << 63
_HELM_STORAGE = "sh.helm.release.v1."
_SPECIAL = frozenset({"value", "caBundle", LAST_APPLIED})
"""Keys whose value is not judged by them."""
_SMALL = 1000
"""Numbers from here on may be secret: smaller ones count something."""
_READABLE = 1 << 16
EXCERPT = 400
"""Characters of a bad line that are kept."""


def decode(body: bytes) -> Json:
    """Decode JSON as the outside sends it: also what strict parsers refuse (lone surrogates, 1e100000, NaN).

    Raises ValueError on what is no JSON at all, or is nested too deeply to read.
    """
    try:
        return orjson.loads(body)  # type: ignore[no-any-return]
    except orjson.JSONDecodeError:
        try:
            found: Json = json.loads(body)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if _is_deeper(found, LEVELS):  # how deep it goes itself is another matter in each version of Python
            raise ValueError("nested too deeply") from None
        return found


def _is_deeper(value: Json, levels: int) -> bool:
    inside = [value]
    for _ in range(levels):
        containers = [one.values() if isinstance(one, dict) else one for one in inside if isinstance(one, dict | list)]
        inside = [inner for container in containers for inner in container]
    return any(isinstance(one, dict | list) for one in inside)


class Redactor(TextRedactor):
    """Redacts objects, patches, and what says nothing of its parts."""

    def __init__(self, key: bytes, own: OwnRules = NO_RULES) -> None:
        super().__init__(key, own)
        self._kinds = Kinds(own.kinds) if own.kinds else None
        self._kept: set[tuple[str, str]] = set()

    def cuts(self, api_group: str, kind: str) -> bool:
        """Whether an object of this kind is cut down to its metadata by a rule of this installation's own."""
        return self._kinds is not None and self._kinds.hold(api_group, kind)

    def is_closed(self, api_group: str, kind: str) -> bool:
        """Whether only the metadata of an object of this kind is kept, and of what refers to secrets what it names."""
        by_name = secret_names.is_secret_kind(kind) if api_group else kind == "Secret"
        return by_name or self.cuts(api_group, kind)

    def object(self, api_group: str, kind: str, obj: Object) -> Object:
        """A copy of an object (or a patch of one) without its secrets. ``kind`` decides, not what the body claims."""
        try:
            found = self._object(api_group, kind, obj)
        except RecursionError:
            return {"metadata": UNREADABLE}
        return found

    def patch(self, api_group: str, resource: str, patch: Json) -> Json:
        """A request body without its secrets: a JSON Patch array, or a merge, strategic or apply patch.

        ``resource`` is the plural of the URL, with its subresource. None for what is never stored (token requests).
        """
        if resource in _NEVER_STORED or resource.partition("/")[0] in _NEVER_STORED:
            return None
        kind = kind_of(api_group, resource)
        if isinstance(patch, list):
            return [self._operation(api_group, kind, op) for op in patch[:10_000]]
        if isinstance(patch, dict):
            return self.object(api_group, kind, patch)
        return None

    def label(self, name: str, value: str) -> str:
        """A label's value, of an alert or a series: secret by its name or by its shape.

        A label ``secret`` holds the name of a Secret, as kube-state-metrics and cert-manager say it.
        """
        return self.text(value) if name == "secret" else self._leaf(clean(value), name, 0)

    def excerpt(self, line: bytes) -> str:
        """What is kept of a line that could not be used, to show a person: at most EXCERPT characters.

        Of a JSON object the keys of its top level, with the values of an audit event's envelope where it says that it
        is one. Of everything else only how long it is, and a fingerprint: it may be the middle of a Secret, cut by a
        log's rotation or printed over several lines, and nobody can say which of its words is a value.
        """
        try:
            found = decode(line) if len(line) <= _READABLE else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            tag = f"<redacted:{hmac.digest(self._key, line, 'sha256').hex()[:8]}>"
            return f"{len(line):,} bytes, of which nothing is kept: {tag}"
        version = found.get("apiVersion")
        is_event = isinstance(version, str) and version.startswith(rules.AUDIT_VERSION)
        return self.text(_dump(self._outline(found, rules.ENVELOPE if is_event else {})))[:EXCERPT]

    def _outline(self, found: Object, known: rules.Envelope) -> Object:
        """The keys of an object; of what they hold only ``known``, and else whether it is an object or a list."""
        out: Object = {}
        for raw_key, value in found.items():
            key, shape = clean(raw_key), known.get(raw_key)
            if isinstance(value, dict):
                out[key] = self._outline(value, shape) if isinstance(shape, dict) else "{…}"
            elif isinstance(value, list):
                out[key] = "[…]"
            elif shape is None or isinstance(shape, dict):
                out[key] = "…"
            else:
                out[key] = (
                    self.uri(value) if key == "requestURI" and isinstance(value, str) else self._walk(value, key, 1)
                )
        return out

    # -- objects

    def _object(self, api_group: str, kind: str, obj: Object) -> Object:
        listed = obj.get("items")
        if kind.endswith("List") and isinstance(listed, list):
            inner = kind[: -len("List")]
            items: Json = [
                (self._object(api_group, inner, i) if inner else self._document(i, "", 1))
                if isinstance(i, dict)
                else UNREADABLE
                for i in listed
            ]
            return {**{k: self._walk(v, k, 1) for k, v in obj.items() if k != "items"}, "items": items}
        secret = kind == "Secret" and api_group == ""
        metadata_only = not secret and self.is_closed(api_group, kind)
        refers = secret_names.only_refers(api_group, kind) and not self.cuts(api_group, kind)
        helm = kind == "ConfigMap" and _is_helm_storage(obj)
        out: Object = {}
        for raw_key, value in obj.items():
            key = clean(raw_key)
            if key == "metadata" and isinstance(value, dict):
                out[key] = self._metadata(api_group, kind, value, closed=secret or metadata_only)
            elif key in ("apiVersion", "kind", "type"):
                out[key] = self._walk(value, "", 1)
            elif secret and key != "immutable":
                out[key] = self._values(value)
            elif metadata_only and refers and key == "spec":
                out[key] = self._walk(value, key, 1, closed=True)
            elif metadata_only:
                out[key] = self.fingerprint(value)
            elif kind == "ConfigMap" and key in ("data", "binaryData"):
                out[key] = self._values(value) if helm or key == "binaryData" else self._config(value)
            elif kind == "CustomResourceDefinition":
                out[key] = self._walk(value, "", 1, by_key=_never)
            else:
                out[key] = self._walk(value, key, 1)
        return out

    def _metadata(self, api_group: str, kind: str, metadata: Object, *, closed: bool) -> Object:
        out: Object = {}
        for key, value in metadata.items():
            if key != "annotations" or not isinstance(value, dict):
                out[clean(key)] = self._walk(value, "", 2)
                continue
            annotations: Object = {}
            for raw_name, text in value.items():
                name = clean(raw_name)
                if not isinstance(text, str):
                    annotations[name] = self._walk(text, name, 3)
                elif name in SECRET_ANNOTATIONS:
                    annotations[name] = self.fingerprint(text)
                elif name == LAST_APPLIED or (closed and text[:1] in "{["):
                    annotations[name] = self._embedded_object(api_group, kind, text)
                else:
                    annotations[name] = self._leaf(text, name, 3)
            out[key] = annotations
        return out

    def _embedded_object(self, api_group: str, kind: str, text: str) -> str:
        """An object inside an annotation, by the kind around it. What cannot be read is dropped."""
        if rules.WHOLE_TAG.match(text):
            return text
        try:
            inner = decode(text.encode("utf-8", "replace"))
        except ValueError:
            return self.fingerprint(text)
        if not isinstance(inner, dict):
            return self.fingerprint(text)
        return _dump(self.object(api_group, kind, inner))

    def _values(self, value: Json) -> Json:
        if isinstance(value, dict):
            return {clean(key): None if v is None else self.fingerprint(v) for key, v in value.items()}
        return None if value is None else self.fingerprint(value)

    def _config(self, data: Json) -> Json:
        if not isinstance(data, dict):
            return self._walk(data, "data", 2)
        return {
            clean(k): self.fingerprint(v)
            if isinstance(v, str) and secret_names.is_secret_file(k)
            else self._walk(v, k, 2)
            for k, v in data.items()
        }

    def _walk(
        self,
        value: Json,
        key: str,
        depth: int,
        *,
        closed: bool = False,
        by_key: Callable[[str], bool] = secret_names.opens_secret,
    ) -> Json:
        """``closed``: under a secretive key, where leaves are secret unless their own key is that of a reference."""
        if self._names and by_key is not _never and self._names.holds(key):
            return self._whole(value)
        if isinstance(value, str):
            if by_key is _never:
                return self.text(value)
            return (
                self.fingerprint(value)
                if closed and not secret_names.is_plain_leaf(key)
                else self._leaf(value, key, depth)
            )
        if isinstance(value, dict):
            return TOO_DEEP if depth >= MAX_DEPTH else self._dict(value, depth, closed=closed, by_key=by_key)
        if isinstance(value, list):
            return TOO_DEEP if depth >= MAX_DEPTH else self._list(value, key, depth, closed=closed, by_key=by_key)
        if value is None or value is True or value is False:
            return value
        return self._number(value, key, depth, closed=closed)

    def _whole(self, value: Json) -> Json:
        """All that stands under a name of one's own. That there is nothing, or a switch, tells no secret."""
        return value if value is None or value is True or value is False or value == "" else self.fingerprint(value)

    def _number(self, value: float, key: str, depth: int, *, closed: bool) -> Json:
        """Numbers under secretive keys are secret too, but for small ones, which count something."""
        small = -_SMALL < value < _SMALL
        if (closed and not secret_names.is_plain_leaf(key)) or (secret_names.opens_secret(key) and not small):
            return self.fingerprint(value)
        storable = -_BIG <= value < _BIG if isinstance(value, int) else math.isfinite(value)
        if storable:
            return value
        return self.fingerprint(value) if secret_names.is_secret_file(key) else self._leaf(str(value), key, depth)

    def _dict(self, value: Object, depth: int, *, closed: bool, by_key: Callable[[str], bool]) -> Object:
        if by_key is not _never and value.get("kind") == "Secret" and ("data" in value or "stringData" in value):
            return self._object("", "Secret", value)  # one that stands in a list, or in what makes it
        out: Object = {}
        plain = not closed and by_key is not _never
        counts = plain and self._names is None
        for raw_key, inner in value.items():
            kind = type(inner)
            if (plain and kind is str and (raw_key, inner) in self._kept and raw_key not in _SPECIAL) or (
                counts and kind is int and -_SMALL < inner < _SMALL and raw_key.isalnum()  # type: ignore[operator]
            ):
                out[raw_key] = inner
                continue
            key = raw_key if raw_key.isascii() and "\0" not in raw_key else clean(raw_key)
            if closed and kind is dict and key in secret_names.FREE:
                out[key] = self._values(inner)
            elif kind is dict or kind is list:
                out[key] = self._walk(inner, key, depth + 1, closed=closed or by_key(key), by_key=by_key)
            elif key == "value" and isinstance(inner, str | int | float) and kind is not bool:
                out[key] = self._walk(inner, key if closed else _named(value), depth + 1, closed=closed)
            elif key in _SPECIAL and isinstance(inner, str) and inner:
                out[key] = self.fingerprint(inner)
            elif plain and isinstance(inner, str):
                out[key] = self._leaf(inner, key, depth + 1)
            else:
                out[key] = self._walk(inner, key, depth + 1, closed=closed, by_key=by_key)
        return out

    def _list(
        self, value: list[Json], key: str, depth: int, *, closed: bool, by_key: Callable[[str], bool]
    ) -> list[Json]:
        if key in ("args", "command") and not closed:
            return self._arguments(value, depth)
        return [self._walk(item, key, depth + 1, closed=closed, by_key=by_key) for item in value]

    def _arguments(self, items: list[Json], depth: int) -> list[Json]:
        out: list[Json] = []
        hide = False
        for item in items:
            if not isinstance(item, str):
                out.append(self._walk(item, "", depth + 1))
            elif hide and not item.startswith("-"):
                out.append(self.fingerprint(item))
            else:
                out.append(rules.SHORT_P.sub(self._tail, self.text(item)))
            hide = isinstance(item, str) and (item == "-p" or self._is_flag(item))
        return out

    def _is_flag(self, item: str) -> bool:
        return rules.FLAG.match(item) is not None or (
            self._names is not None and self._names.flag.match(item) is not None
        )

    def _leaf(self, value: str, key: str, depth: int) -> str:
        if (key, value) in self._kept:
            return value
        if self._names and self._names.holds(key):
            return self.fingerprint(value) if value else value
        if key and secret_names.is_digest(key, value):
            return value
        if key and secret_names.is_secretive(key, value):
            return self._hidden(key, value)
        if value[:1] in ("{", "[") and value[-1:] in ("}", "]") and len(value) > 2:
            found = self._embedded(value, key, depth)
        elif "\n" in value and depth < MAX_DEPTH // 2 and self._may_hide(value):
            found = self._yaml(clean(value), key, depth)
        else:
            found = self.text(value)
        if found == value and len(value) <= 512 and clean(key) == key:  # _dict takes what is kept as it is
            if len(self._kept) >= BENIGN:
                self._kept.clear()
            self._kept.add((key, value))
        return found

    def _embedded(self, text: str, key: str, depth: int) -> str:
        """JSON inside a string: redacted as JSON. The text is kept as it was where nothing in it is secret."""
        if depth >= MAX_DEPTH // 2:
            return self.fingerprint(text)
        try:
            inner = decode(text.encode("utf-8", "replace"))
        except ValueError:
            return self.text(text)
        if not isinstance(inner, dict | list):
            return self.text(text)
        found = self._document(inner, key, depth)
        return self.text(text) if found == inner else _dump(found)

    def _yaml(self, text: str, key: str, depth: int) -> str:
        """YAML inside a text, of several lines: redacted where it stands."""
        try:
            found = yaml_text.judged(text, lambda inner: self._document(inner, key, depth), self.text)
            return self.text(text) if found is None else found
        except (LookupError, ValueError):
            return self.fingerprint(text)

    def _document(self, inner: Json, key: str, depth: int) -> Json:
        """What a text holds: by its own kind, if it is an object of Kubernetes."""
        kind = inner.get("kind") if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or not isinstance(kind, str):
            return self._walk(inner, key, depth + 1)
        version = inner.get("apiVersion")
        return self._object(version.rpartition("/")[0] if isinstance(version, str) else "", kind, inner)

    # -- JSON Patch

    def _operation(self, api_group: str, kind: str, operation: Json) -> Json:
        """One operation of a JSON Patch (RFC 6902): its value is redacted as if it stood at its path."""
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            return UNREADABLE
        out: Object = {k: self._walk(v, "", 2) for k, v in operation.items() if k in ("op", "path", "from")}
        if "value" not in operation:
            return out
        steps = [part.replace("~1", "/").replace("~0", "~") for part in str(operation["path"]).split("/")[1:]]
        value = operation["value"]
        if len(steps) > MAX_DEPTH - 8 or (steps[-1:] == ["value"] and not isinstance(value, dict)):
            out["value"] = self.fingerprint(value)
            return out
        nested: Json = value
        for step in reversed(steps):
            nested = {step: nested}
        if not isinstance(nested, dict):
            out["value"] = self._walk(value, "", 2)
            return out
        found: Json = self.object(api_group, kind, nested)
        for step in steps:
            if isinstance(found, dict) and step in found:
                found = found[step]
        out["value"] = found
        return out


def _never(_key: str) -> bool:
    return False


def _named(value: Object) -> str:
    """What says what the ``value`` in an object is: the ``name`` or ``key`` beside it."""
    return next((one for one in (value.get("name"), value.get("key")) if one and isinstance(one, str)), "value")


def _dump(value: Json) -> str:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, separators=(",", ":"))


def _is_helm_storage(obj: Object) -> bool:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return isinstance(name, str) and name.startswith(_HELM_STORAGE)
