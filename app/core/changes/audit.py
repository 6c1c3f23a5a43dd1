"""One audit event (audit.k8s.io/v1) -> the call it was, the request it made, the object it wrote.

Field facts: https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/ . Bodies stay raw bytes until the
tracker needs them: decoding only what is read is what makes a large log cheap to import (bench/).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import urlsplit

import msgspec

from app.core.changes.annotations import RawAnnotations, waited_for
from app.core.changes.sightings import GENERATED, Sighting
from app.core.model import SLOT_SECONDS, Actor, CallKey, ListClass, Resource, Verb
from app.core.objects.actors import actor_from_audit, user_agent_family
from app.core.objects.kinds import kind_of
from app.core.objects.redact import Redactor
from app.core.objects.redact_rules import TAG

READS = frozenset({"get", "list", "watch", "head", "options"})
COUNTED_ONLY = frozenset({("", "nodes", "status"), ("coordination.k8s.io", "leases", "")})
"""Heartbeats: writes that are counted but not kept as rows (one every ten seconds and node)."""


class RawExtra(msgspec.Struct, gc=False):
    pods: list[str] = msgspec.field(default=[], name="authentication.kubernetes.io/pod-name")


class RawUser(msgspec.Struct, gc=False):
    username: str = ""
    extra: RawExtra | None = None


class RawReference(msgspec.Struct, gc=False):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    apiGroup: str = ""  # noqa: N815 - the wire's name
    subresource: str = ""


class RawDetails(msgspec.Struct, gc=False):
    """What a Status is about: of a deletion it says the uid, at every level."""

    name: str = ""
    uid: str = ""


class RawStatus(msgspec.Struct, gc=False):
    code: int = 0
    message: str = ""
    details: RawDetails | None = None


class RawAuditEvent(msgspec.Struct, gc=False):
    """The fields that are read. Bodies are left as raw JSON."""

    stage: str
    verb: str
    requestReceivedTimestamp: datetime  # noqa: N815
    stageTimestamp: datetime  # noqa: N815
    auditID: str = ""  # noqa: N815
    requestURI: str = ""  # noqa: N815
    userAgent: str = ""  # noqa: N815
    user: RawUser = msgspec.field(default_factory=RawUser)
    impersonatedUser: RawUser | None = None  # noqa: N815
    objectRef: RawReference | None = None  # noqa: N815
    responseStatus: RawStatus | None = None  # noqa: N815
    annotations: RawAnnotations | None = None
    requestObject: msgspec.Raw = msgspec.Raw()  # noqa: N815
    responseObject: msgspec.Raw = msgspec.Raw()  # noqa: N815


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    generateName: str = ""  # noqa: N815
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815


class _Peek(msgspec.Struct, gc=False):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    items: msgspec.Raw = msgspec.Raw()
    details: RawDetails | None = None


class _DeleteOptions(msgspec.Struct, gc=False):
    dryRun: list[str] | None = None  # noqa: N815


_decoder = msgspec.json.Decoder(RawAuditEvent)
_peek = msgspec.json.Decoder(_Peek)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_delete_options = msgspec.json.Decoder(_DeleteOptions)

_MADE_UP = "[bcdfghjklmnpqrstvwxz2456789]"
"""What generated names end with: https://pkg.go.dev/k8s.io/apimachinery/pkg/util/rand ."""
_NUMBERS_AND_HASHES = re.compile(
    rf"\b{_MADE_UP}{{6,10}}-{_MADE_UP}{{5}}\b|[0-9a-f]{{8,10}}-[a-z0-9]{{5}}\b|[0-9a-f]{{8}}-[0-9a-f-]{{27}}"
    r"|\b[0-9a-f]{12,}\b|\d+"
)
_SUBJECT = re.compile(
    r'^(?P<sort>\S+ )"[^"]+"(?P<why> is forbidden: | is invalid: | already exists)'
    r'|^(?P<conflict>Operation cannot be fulfilled on \S+ )"[^"]+"'
)
"""How the API server begins: with the one object that it refuses. One that is "not found" tells more, and is kept."""
_VERSION = re.compile(r"(?:^|&)resourceVersion=([^&]*)")
_QUOTED = re.compile(r'"([^"]{1,253})"')
_UNSET = msgspec.Raw()


def decode(line: bytes) -> RawAuditEvent:
    """Decode one line. Raises msgspec.ValidationError or msgspec.DecodeError on what is no audit event."""
    return _decoder.decode(line)


def slot_of(at: datetime) -> int:
    """The start of the slot that a moment lies in, epoch seconds."""
    return int(at.timestamp()) // SLOT_SECONDS * SLOT_SECONDS


def is_counted(event: RawAuditEvent) -> bool:
    """Each request is counted once: a watch when it starts, everything else when it ends (or panics)."""
    if event.verb == "watch":
        return event.stage == "ResponseStarted" or (event.stage == "ResponseComplete" and code_of(event) >= 400)
    return event.stage in ("ResponseComplete", "Panic")


def code_of(event: RawAuditEvent) -> int:
    """The HTTP status of a call; 500 of one that made the API server panic, 0 where none was recorded."""
    if event.stage == "Panic":
        return 500
    return event.responseStatus.code if event.responseStatus else 0


@lru_cache(maxsize=8192)
def error_template(message: str) -> str:
    """A failed call's message with what names one single object taken out, so that equal failures count together.

    Names in quotes are kept when they look like a class of things (a webhook, a quota, a resource) and dropped
    when they carry a generated suffix; numbers and hashes become #.
    """

    def quoted(match: re.Match[str]) -> str:
        return f'"{_NUMBERS_AND_HASHES.sub("#", match.group(1))}"'

    alike = _SUBJECT.sub(r'\g<sort>\g<conflict>"*"\g<why>', TAG.sub("<redacted>", message))
    return _NUMBERS_AND_HASHES.sub("#", _QUOTED.sub(quoted, alike))[:240]


def list_class(verb: str, uri: str) -> ListClass:
    """What a LIST or a watch asked for, from its query string: see model.ListClass. NOT_A_LIST where it did not ask for
    all there is, and where the URI was not told.

    https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists
    """
    if verb == "watch":
        return ListClass.STREAM if "sendInitialEvents=true" in uri else ListClass.NOT_A_LIST
    return _list_class(uri.partition("?")[2]) if verb == "list" and uri else ListClass.NOT_A_LIST


@lru_cache(maxsize=4096)
def _list_class(query: str) -> ListClass:
    if "continue=" in query:
        return ListClass.CONTINUE
    version = _VERSION.search(query)
    if version is None:
        return ListClass.QUORUM
    return {"": ListClass.QUORUM, "0": ListClass.CACHE}.get(version.group(1), ListClass.EXACT)


def pod_of(user: RawUser) -> str:
    """The pod that a bound ServiceAccount token was made for, "" for every other user."""
    return user.extra.pods[0] if user.extra and user.extra.pods else ""


def call_key(event: RawAuditEvent, redactor: Redactor) -> CallKey:
    """What this call is counted by. A refusal is told without its secrets; one about a kind of which only the
    metadata is kept, not at all: servers repeat what they refuse."""
    ref = event.objectRef
    resource, group, namespace = "", "", ""
    if ref:
        resource = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
        group, namespace = ref.apiGroup, ref.namespace
    else:
        resource = redactor.uri(urlsplit(event.requestURI).path)[:100] if event.requestURI.startswith("/") else ""
    code = code_of(event)
    message = ""
    if event.responseStatus and code >= 400 and not (ref and redactor.is_closed(group, kind_of(group, ref.resource))):
        message = redactor.text(event.responseStatus.message)
    return CallKey(
        user=event.user.username or "system:anonymous",
        pod=pod_of(event.user),
        user_agent=user_agent_family(event.userAgent),
        verb=event.verb,
        api_group=group,
        resource=resource,
        namespace=namespace,
        code=code,
        list_class=list_class(event.verb, event.requestURI),
        error=error_template(message) if message else "",
        waited_for=waited_for(event.annotations) if event.annotations else "",
    )


def latency_us(event: RawAuditEvent) -> int:
    """Microseconds between the request's arrival and this stage; 0 for a clock that went back."""
    # Not divided by a microsecond, which takes longer: this is done for every line of a log.
    took = event.stageTimestamp - event.requestReceivedTimestamp
    return (took.days * 86_400 + took.seconds) * 1_000_000 + took.microseconds if took.days >= 0 else 0


def is_write(event: RawAuditEvent) -> bool:
    return event.verb not in READS and event.objectRef is not None


def event_key(cluster: str, event: RawAuditEvent) -> int:
    """A 63-bit key of the event's content. The auditID alone is the client's to choose, so it cannot identify."""
    parts = (
        cluster,
        event.auditID,
        event.stage,
        event.requestReceivedTimestamp.isoformat(),
        event.verb,
        event.requestURI,
        event.user.username,
        event.impersonatedUser.username if event.impersonatedUser else "",
    )
    return int.from_bytes(blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


def is_kept(event: RawAuditEvent) -> bool:
    """Whether a request is kept as a row of its own: writes but for heartbeats."""
    ref = event.objectRef
    return is_write(event) and ref is not None and (ref.apiGroup, ref.resource, ref.subresource) not in COUNTED_ONLY


@lru_cache(maxsize=4096)
def _actor(username: str, pod: str, user_agent: str, impersonated: str) -> Actor:
    extra: dict[str, object] = {"authentication.kubernetes.io/pod-name": [pod]} if pod else {}
    return actor_from_audit(
        {"username": username, "extra": extra},
        user_agent=user_agent,
        impersonated={"username": impersonated} if impersonated else None,
    )


def actor_of(event: RawAuditEvent) -> Actor:
    """Who made the request, as an Actor known from the audit log."""
    impersonated = event.impersonatedUser.username if event.impersonatedUser else ""
    return _actor(event.user.username, pod_of(event.user), event.userAgent, impersonated)


def sightings(cluster: str, event: RawAuditEvent) -> list[Sighting]:
    """The objects that a successful write touched: none for reads, failures, dry runs and connects."""
    code = code_of(event)
    ref = event.objectRef
    if event.stage != "ResponseComplete" or ref is None or not is_write(event) or not 200 <= code < 300:
        return []
    if _is_dry_run(event):
        return []
    at = event.requestReceivedTimestamp.astimezone(UTC)
    request = bytes(event.requestObject)
    response = bytes(event.responseObject)
    peek = _peek.decode(response) if response and response != b"null" else _Peek()
    if event.verb == "deletecollection":
        return _collection(cluster, event, peek, at=at)
    verb = _verb(event.verb, code)
    if verb is None:
        return []
    whole = response if peek.kind and peek.kind != "Status" and not peek.items else None
    patch: bytes | None = request or None
    # At level Request an object was sent, not a patch. It is no state: it lacks defaults, its version is the last one.
    sent = _peek.decode(request) if whole is None and request and event.verb in ("create", "update") else _Peek()
    scale = ref.subresource == "scale"
    kind = next((k for k in (peek.kind, sent.kind) if k and k != "Status" and not ref.subresource), "")
    details = peek.details or (event.responseStatus.details if event.responseStatus else None)
    uid = peek.metadata.uid or ref.uid or (details.uid if details else "")
    return [
        Sighting(
            resource=Resource(
                cluster=cluster,
                api_group=ref.apiGroup,
                kind=kind or kind_of(ref.apiGroup, ref.resource),
                namespace=_namespace(ref, peek),
                name=ref.name or _name(peek, sent),
            ),
            at=at,
            source="audit",
            verb=verb,
            body=None if scale else whole,
            patch=None if verb is Verb.DELETE else (whole if scale and not patch else patch),
            subresource=ref.subresource,
            uid=uid,
            resource_version=peek.metadata.resourceVersion if peek.kind != "Status" else "",
            actor=actor_of(event),
            audit_id=event.auditID[:100],
            truncated=event.annotations is not None and event.annotations.truncated == "true",
        )
    ]


def _is_dry_run(event: RawAuditEvent) -> bool:
    """Whether nothing was to be done. A delete says so in its body, which level Metadata does not record."""
    if "dryRun=" in event.requestURI:
        return True
    options = bytes(event.requestObject) if event.verb in ("delete", "deletecollection") else b""
    return b'"dryRun"' in options and bool(_delete_options.decode(options).dryRun)


def _name(peek: _Peek, sent: _Peek) -> str:
    """The name that the answer says; of a generated one, where the answer was not recorded, what it begins with."""
    known = peek.metadata.name or (peek.details.name if peek.details else "") or sent.metadata.name
    return known or f"{sent.metadata.generateName}{GENERATED}"


def _namespace(ref: RawReference, peek: _Peek) -> str | None:
    """The object's namespace. A request for a Namespace says its own name there, which is in none."""
    if ref.resource == "namespaces" and not ref.apiGroup:
        return None
    return ref.namespace or peek.metadata.namespace or None


def _verb(verb: str, code: int) -> Verb | None:
    if verb == "delete":
        return Verb.DELETE
    if verb == "create" or (verb in ("patch", "update") and code == 201):
        return Verb.CREATE
    return Verb.UPDATE if verb in ("patch", "update") else None


def _collection(cluster: str, event: RawAuditEvent, peek: _Peek, *, at: datetime) -> list[Sighting]:
    """One DELETE for each item of a deletecollection's answer; none where the answer was not recorded."""
    ref = event.objectRef
    if ref is None or not peek.items or bytes(peek.items) in (b"", b"null"):
        return []
    found = []
    for item in _items.decode(peek.items):
        meta = _peek.decode(item).metadata
        found.append(
            Sighting(
                resource=Resource(
                    cluster, ref.apiGroup, kind_of(ref.apiGroup, ref.resource), meta.namespace or None, meta.name
                ),
                at=at,
                source="audit",
                verb=Verb.DELETE,
                body=bytes(item),
                uid=meta.uid,
                resource_version=meta.resourceVersion,
                actor=actor_of(event),
                audit_id=event.auditID[:100],
            )
        )
    return found
