"""Senders that cannot be told what to send: what they send as it is, made into what we are told.

Flux: https://fluxcd.io/flux/components/notification/events/#event-structure (the provider ``generic`` sends it).
LaunchDarkly: https://launchdarkly.com/docs/api/webhooks (an entry of its audit log).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import urljoin

import msgspec
from msgspec import Struct

from app.core.changes.external import External, field
from app.core.model import FieldDiff, Json, Object, Verb
from app.core.objects.diff import diff
from app.core.objects.redact import decode

SITE = "https://app.launchdarkly.com/"
"""What the addresses of an entry are relative to."""
MOST = 100
"""Fields that are kept of one entry, as of any external change."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent: a change with the ``key`` that it is known again by, or why it tells of none, in words."""

    told: External | None
    key: str = ""
    left_out: str = ""


class RawInvolved(Struct):
    """The object that an event of Flux is about."""

    kind: str
    name: str
    namespace: str = ""


class RawFlux(Struct, rename="camel"):
    """An event of Flux."""

    involved_object: RawInvolved
    severity: str
    timestamp: datetime
    reason: str
    message: str = ""
    reporting_controller: str = ""
    metadata: dict[str, str] | None = None


_FLUX_VERBS = {"InstallSucceeded": Verb.CREATE, "UninstallSucceeded": Verb.DELETE}


def flux(body: bytes) -> Sent:
    """An event of Flux's notification-controller. Raises ValueError, in words, for what is none."""
    event = msgspec.convert(decode(body), RawFlux)
    if event.timestamp.tzinfo is None:
        raise ValueError("timestamp has no zone")
    if event.severity != "info":
        return Sent(None, left_out=f"its severity is not info: {event.reason[:100]} tells of no change")
    what = event.involved_object
    revision = next((value for key, value in (event.metadata or {}).items() if key.endswith("/revision")), None)
    told = External(
        "flux",
        _kind(what.kind),
        _name(f"{what.namespace}/{what.name}" if what.namespace else what.name),
        _FLUX_VERBS.get(event.reason, Verb.UPDATE),
        at=event.timestamp.astimezone(UTC),
        actor=event.reporting_controller[:253],
        summary=event.message.partition("\n")[0][:1000] or event.reason[:1000],
        fields=(field("revision", None, revision),) if revision else (),
    )
    return Sent(told, sha256(body).hexdigest())


class RawAccess(Struct):
    """What was done to what: ``updateOn`` to ``proj/default:env/production:flag/new-checkout``."""

    action: str = ""
    resource: str = ""


class RawMember(Struct):
    """Who did it."""

    email: str = ""


class RawLink(Struct):
    """An address, relative to SITE."""

    href: str = ""


class RawLaunchDarkly(Struct, rename={"id": "_id", "links": "_links", "title_verb": "titleVerb"}):
    """An entry of LaunchDarkly's audit log; ``date`` is milliseconds since 1970."""

    id: str
    date: int
    kind: str
    name: str
    accesses: list[RawAccess] = []
    description: str = ""
    title_verb: str = ""
    member: RawMember | None = None
    links: dict[str, RawLink] = {}
    previous: Json = msgspec.field(default=None, name="previousVersion")
    current: Json = msgspec.field(default=None, name="currentVersion")


def launchdarkly(body: bytes) -> Sent:
    """What LaunchDarkly's webhook sends. Raises ValueError, in words, for what is none."""
    entry = msgspec.convert(decode(body), RawLaunchDarkly)
    done = entry.accesses[0] if entry.accesses else RawAccess()
    verb = next((verb for verb in (Verb.CREATE, Verb.DELETE) if done.action.startswith(verb.value)), Verb.UPDATE)
    site = entry.links.get("site")
    told = External(
        "launchdarkly",
        "feature flag" if entry.kind == "flag" else _kind(entry.kind),
        _name(_place(done.resource) or entry.name),
        verb,
        at=_moment(entry.date),
        actor=entry.member.email[:253] if entry.member else "",
        summary=(f"{entry.title_verb} {entry.name}" if entry.title_verb else entry.description)[:1000],
        url=_address(site.href) if site and site.href else "",
        fields=_differences(entry.previous, entry.current),
    )
    return Sent(told, entry.id)


def _moment(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        raise ValueError("date is no number of milliseconds since 1970") from None


def _address(href: str) -> str:
    """The address of an entry on the site; "" for one that is no address of the web."""
    whole = urljoin(SITE, href)
    return whole if re.fullmatch(r"https?://[^\s/?#]+\S*", whole) and len(whole) <= 2000 else ""


def _place(resource: str) -> str:
    """``proj/default:env/production;tag:flag/new-checkout`` as a name: default/production/new-checkout."""
    parts = (part.partition(";")[0].partition("/")[2] for part in resource.split(":"))
    return "/".join(part for part in parts if part)


def _differences(old: Json, new: Json) -> tuple[FieldDiff, ...]:
    """What lies between two versions, without what LaunchDarkly keeps for itself."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return ()
    try:
        return diff(_told(old), _told(new))[:MOST]
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _told(version: Object) -> Object:
    return {
        key: _told(value) if isinstance(value, dict) else value
        for key, value in version.items()
        if not key.startswith("_") and key not in ("version", "lastModified", "salt", "sel")
    }


def _kind(text: str) -> str:
    """A kind as ours are written: ``HelmRelease`` as "helm release"."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower()
    return re.sub(r"[^a-z0-9]+", " ", words)[:40].strip(" 0123456789") or "object"


def _name(text: str) -> str:
    return " ".join(text.split())[:253] or "?"
