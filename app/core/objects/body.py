"""A whole object's JSON, read only as far as needed: what is compared stays raw bytes until it differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from sys import intern

import msgspec
import orjson

from app.core.model import Json, Object, Resource
from app.core.objects.redact import decode
from app.core.objects.redact_text import clean

_NO_RAW = msgspec.Raw()


class RawMeta(msgspec.Struct, gc=False):
    """The part of metadata that is read; maps stay raw."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the wire's name
    generation: int | None = None
    creationTimestamp: datetime | None = None  # noqa: N815
    deletionTimestamp: str | None = None  # noqa: N815
    labels: msgspec.Raw = _NO_RAW
    annotations: msgspec.Raw = _NO_RAW
    ownerReferences: msgspec.Raw = _NO_RAW  # noqa: N815
    finalizers: msgspec.Raw = _NO_RAW
    managedFields: msgspec.Raw = _NO_RAW  # noqa: N815


class RawOwner(msgspec.Struct, gc=False):
    kind: str = ""
    name: str = ""
    apiVersion: str = ""  # noqa: N815
    controller: bool | None = None


class RawNode(msgspec.Struct, gc=False):
    nodeInfo: msgspec.Raw = _NO_RAW  # noqa: N815


class RawWhole(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An object that has no more than most have: read at one look."""

    metadata: RawMeta
    kind: msgspec.Raw = _NO_RAW
    apiVersion: msgspec.Raw = _NO_RAW  # noqa: N815
    spec: msgspec.Raw = _NO_RAW
    status: msgspec.Raw = _NO_RAW

    def desired(self) -> int:
        """As Body.hash; the two are not to be compared."""
        return _hash(self.metadata, (self.spec,), node=self.status if self.kind == _NODE else _NO_RAW)

    def as_before(self) -> AsBefore:
        """What is new of it where its desired state is as before."""
        meta = self.metadata
        return AsBefore(
            meta.namespace,
            meta.name,
            meta.uid,
            int(meta.resourceVersion),
            meta.generation,
            meta.creationTimestamp,
            meta.deletionTimestamp is not None,
            bytes(self.status),
        )


_whole = msgspec.json.Decoder(RawWhole)
_top = msgspec.json.Decoder(dict[str, msgspec.Raw])
_meta = msgspec.json.Decoder(RawMeta)
_owners = msgspec.json.Decoder(list[RawOwner])
_node = msgspec.json.Decoder(RawNode)
_NODE = msgspec.Raw(b'"Node"')
_NAMESPACE = msgspec.Raw(b'"Namespace"')
_BITS = (1 << 60) - 1
"""Of a hash: as many as Python holds in 32 bytes, where one more takes 48."""
_BETWEEN = b"\0"
"""Never in JSON as it is sent."""
_GOING = b"deleting"
_SKIPPED = frozenset({"metadata", "status", "kind", "apiVersion"})
Part = tuple[str, str | None, bytes]
"""A piece of an object's raw JSON: its key, the key within that (None: the whole of it), its bytes."""


def small_hash(told: str | bytes) -> int:
    """A hash that takes little room: many are held."""
    return hash(told) & _BITS


def _hash(meta: RawMeta, rest: Iterable[bytes | msgspec.Raw], *, node: msgspec.Raw) -> int:
    """A hash of all that can be desired state, byte for byte: of metadata, the ``rest``, and a ``node``'s status."""
    going = b"" if meta.deletionTimestamp is None else _GOING
    info = _node.decode(node).nodeInfo if node else b""
    parts = meta.labels, meta.annotations, meta.ownerReferences, meta.finalizers, going, *rest, info
    return small_hash(_BETWEEN.join(parts))


class AsBefore(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A newer version of an object whose desired state is as it was told before: what is read of it beside that."""

    namespace: str
    name: str
    uid: str
    version: int
    generation: int | None
    created: datetime | None
    deleting: bool
    raw: bytes

    def status(self) -> bytes:
        """As Body.status."""
        return self.raw


class Body:
    """One object as received, of ``size`` bytes. ``hash`` covers all that can be desired state, byte for byte."""

    __slots__ = ("_managed", "_meta", "_top", "hash", "size", "uid", "version")

    def __init__(self, top: dict[str, msgspec.Raw], meta: RawMeta, *, size: int) -> None:
        self.size = size
        self._top = top
        self._meta = meta
        self.uid = meta.uid
        self.version = int(meta.resourceVersion) if meta.resourceVersion.isdigit() else 0
        rest = [part for key, raw in top.items() if key not in _SKIPPED for part in (key.encode(), raw)]
        self.hash = _hash(meta, rest, node=top.get("status", _NO_RAW) if top.get("kind") == _NODE else _NO_RAW)
        self._managed: list[Json] | None = None

    @property
    def api_version(self) -> bytes:
        """The version of its API that it is written in, as JSON."""
        return bytes(self._top.get("apiVersion", b""))

    @property
    def generation(self) -> int | None:
        return self._meta.generation

    @property
    def created(self) -> datetime | None:
        return self._meta.creationTimestamp

    @property
    def deleting(self) -> bool:
        return self._meta.deletionTimestamp is not None

    @property
    def finalizers(self) -> bool:
        """Whether something has to be done before it can go. Namespaces say so in their spec, too."""
        own = bytes(self._meta.finalizers) not in (b"", b"null", b"[]")
        return own or (self._top.get("kind") == _NAMESPACE and b'"finalizers"' in self.spec())

    def status(self) -> bytes:
        """The raw status, empty where there is none."""
        return bytes(self._top.get("status", b""))

    def spec(self) -> bytes:
        return bytes(self._top.get("spec", b""))

    def managed_fields(self) -> list[Json]:
        if self._managed is None:
            raw = bytes(self._meta.managedFields)
            found = orjson.loads(raw) if raw else None
            self._managed = found if isinstance(found, list) else []
        return self._managed

    def untouched_at(self, at: datetime) -> bool:
        """Whether managedFields say that nobody wrote the desired state at that time (they keep whole seconds)."""
        since = (at.astimezone(UTC) - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return "" < self.last_written() < since

    def last_written(self) -> str:
        """When managedFields say that somebody last wrote the desired state; "" where they do not."""
        entries = [e for e in self.managed_fields() if isinstance(e, dict) and e.get("subresource") != "status"]
        return max((str(e["time"]) for e in entries if isinstance(e.get("time"), str)), default="")

    def written_at(self) -> datetime | None:
        """As last_written, as a time; None where there is none that can be read."""
        try:
            found = msgspec.convert(self.last_written(), datetime)
        except msgspec.ValidationError:
            return None
        return found if found.tzinfo else None

    def owner(self, resource: Resource) -> Resource | None:
        """The controlling owner (or the only one), in the object's own namespace."""
        raw = bytes(self._meta.ownerReferences)
        owners = _owners.decode(raw) if raw and raw != b"null" else []
        chosen = next((owner for owner in owners if owner.controller), owners[0] if len(owners) == 1 else None)
        if chosen is None:
            return None
        group = chosen.apiVersion.rpartition("/")[0]
        return Resource(resource.cluster, intern(group), intern(chosen.kind), resource.namespace, chosen.name)

    def name(self) -> dict[str, str]:
        """The metadata that says which object it is."""
        meta = self._meta
        return {"name": meta.name, "namespace": meta.namespace} if meta.namespace else {"name": meta.name}

    def _metadata(self) -> Iterator[tuple[str, bytes]]:
        meta = self._meta
        for key, raw in (
            ("labels", meta.labels),
            ("annotations", meta.annotations),
            ("ownerReferences", meta.ownerReferences),
            ("finalizers", meta.finalizers),
        ):
            if bytes(raw):
                yield key, bytes(raw)

    def parts(self) -> Iterator[Part]:
        """All that can be desired state, but for the name: (key, None, raw) or, where a write often touches one of
        several inner keys, (key, inner key, raw)."""
        for inner, raw in self._metadata():
            yield "metadata", inner, raw
        for key, value in self._top.items():
            if key in _SKIPPED:
                continue
            raw = bytes(value)
            inner_values = _top.decode(raw) if key == "spec" and raw[:1] == b"{" else {}
            if not inner_values or "value" in inner_values:  # a ``value`` is judged by the ``name`` beside it
                yield key, None, raw
            else:
                for inner, inner_value in inner_values.items():
                    yield key, inner, bytes(inner_value)

    def desired(self) -> Object:
        """The object without managedFields and status (a Node keeps its nodeInfo), decoded."""
        obj: Object = {key: decode(bytes(raw)) for key, raw in self._top.items() if key not in ("metadata", "status")}
        obj["metadata"] = {**self.name(), **{key: decode(raw) for key, raw in self._metadata()}}
        if obj.get("kind") == "Node" and "status" in self._top:
            info = bytes(_node.decode(self._top["status"]).nodeInfo)
            obj["status"] = {"nodeInfo": decode(info) if info else None}
        return obj


Shown = Body | AsBefore


def read_body(raw: bytes) -> Body | None:
    """Read an object. None for what is no object with metadata: it then counts as not recorded."""
    whole = read_whole(raw)
    if whole is None:
        return _read_other(raw)
    given = (("kind", whole.kind), ("apiVersion", whole.apiVersion), ("spec", whole.spec), ("status", whole.status))
    return Body({key: value for key, value in given if value}, whole.metadata, size=len(raw))


def read_whole(raw: bytes) -> RawWhole | None:
    """Read an object that has no more than most have. None for any other."""
    try:
        return _whole.decode(raw)
    except (msgspec.MsgspecError, ValueError):
        return None


def _read_other(raw: bytes) -> Body | None:
    try:
        top = _top.decode(raw)
        meta = top.get("metadata")
        return Body(top, _meta.decode(meta), size=len(raw)) if meta is not None else None
    except (msgspec.MsgspecError, ValueError):
        return _read_odd(raw)


def _read_odd(raw: bytes) -> Body | None:
    """JSON that a strict parser refuses (lone surrogates, numbers out of range), put into strict JSON first."""
    try:
        obj = decode(raw)
        strict = msgspec.json.encode(_strict(obj, 0))
        top = _top.decode(strict)
        return Body(top, _meta.decode(top["metadata"]), size=len(raw)) if "metadata" in top else None
    except (msgspec.MsgspecError, ValueError, KeyError, RecursionError):
        return None


def _strict(value: Json, depth: int) -> Json:
    if depth > 200:
        return None
    if isinstance(value, dict):
        return {clean(key): _strict(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_strict(inner, depth + 1) for inner in value]
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124 - NaN
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return str(value)
    return value
