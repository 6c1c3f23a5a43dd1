"""Events -> targets other than Slack's channels: signed, posted, and what their answers mean.

Nothing is tried again in here. A webhook is signed as https://github.com/standard-webhooks/standard-webhooks says
(spec/standard-webhooks.md): by its id a receiver knows what it was sent already.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from app.core.routes import Routes
from app.core.targets import Email, Teams, Webhook
from app.notify import events, message, notice, renderings
from app.notify.documents import Document, document
from app.notify.events import Represent
from app.notify.slack import BusyError, RefusedError, UnansweredError
from app.store.outbox import Letter, Shown

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64
"""Bytes of a secret, as Standard Webhooks has them."""
OVER = "410"
"""The answer of who does not want to be told any more."""
LATER = frozenset({408, 425})
"""Refusals that are none of what was sent."""
USUAL_WAIT, LONGEST_WAIT = timedelta(seconds=30), timedelta(hours=1)
WORDS = {
    400: "the receiver does not take this event",
    401: "the receiver does not take the signature: give it the secret that stands in secret_file",
    403: "the receiver does not let us in: give it the secret that stands in secret_file",
    404: "nothing is there: look at the url of the target",
    405: "what is there takes no POST: look at the url of the target",
    410: "the receiver wants no more events, so it is told none: send again once it does",
    413: "the receiver takes no event of this size",
}
_GONE = "its URL is good no more: make another where it was made, and write it into url_file"
OF_URLS = WORDS | {401: _GONE, 403: _GONE, 404: _GONE, 410: _GONE}
"""Of who lets in whoever knows the URL."""


class Answer(Protocol):
    """What somebody answered: HTTP's status, Retry-After ("": none), and what was said."""

    @property
    def status(self) -> int: ...
    @property
    def retry_after(self) -> str: ...
    @property
    def said(self) -> str: ...


Mail = Callable[[EmailMessage, Email, str, Sequence[str]], Awaitable[tuple[str, ...]]]
"""Hands a mail in at a target's server, with its password, once, for these addresses (none: all of the target's); those
for which it was not taken, though it was for others. Raises RefusedError and UnansweredError."""
Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[Answer]]
"""Posts a body with headers to a URL, once. Raises RefusedError for a URL that is not asked, and UnansweredError."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets of the routes, as these are now. ``clock`` gives aware UTC."""

    post: Post
    mail: Mail
    represent: Represent
    routes: Callable[[], Routes]
    clock: Callable[[], datetime]

    def letter(
        self, name: str, told: notice.Told | message.Told, kind: str, *, shows: Shown | None, now: datetime
    ) -> Letter:
        """The event of this type for a target, as it is sent however often: to people, what it says."""
        if isinstance(self.routes().targets.get(name), Webhook | None):
            return events.letter(told, kind, represent=self.represent, shows=shows, now=now)
        body = msgspec.json.encode(document(told)).decode()
        return Letter(f"msg_{uuid4().hex}", now, body, shows, for_people=True)

    async def send(self, name: str, letter: Letter) -> Letter | None:
        """Sends a letter, once; what of it is still owed, where only some of its recipients got it.

        Raises RefusedError, BusyError and UnansweredError.
        """
        target = self.routes().targets.get(name)
        if target is None:
            raise RefusedError("no_target", f"the file of routes has no target {name} any more: write it there again")
        if letter.for_people == isinstance(target, Webhook):
            raise RefusedError("changed", f"this was written for {name} when it was a target of another kind")
        if isinstance(target, Webhook):
            url, keys = await asyncio.to_thread(_read_webhook, target)
            answer = await self.post(url, letter.body.encode(), signed(letter, keys, at=self.clock()))
            _understand(answer, self.clock(), WORDS)
            return None
        shown = msgspec.json.decode(letter.body, type=Document)
        if isinstance(target, Email):
            password = await asyncio.to_thread(_read, target.password_file) if target.password_file else ""
            mail = renderings.mail(shown, target, key=letter.id, made_at=letter.made_at)
            only = [one for one in letter.only if one in target.to]
            if letter.only and not only:
                return None  # who is none of the recipients any more is owed nothing
            owed = await self.mail(mail, target, password, only)
            return replace(letter, shown=None, only=owed) if owed else None
        body = renderings.card(shown) if isinstance(target, Teams) else renderings.slack(shown)
        url = await asyncio.to_thread(_read, target.url_file)
        answer = await self.post(url, msgspec.json.encode(body), {"Content-Type": "application/json"})
        _understand(answer, self.clock(), OF_URLS)
        return None


def signed(letter: Letter, keys: Sequence[bytes], *, at: datetime) -> dict[str, str]:
    """The headers of an event: a signature by each key, for receivers that know only one of two."""
    stamp = str(int(at.timestamp()))
    what = f"{letter.id}.{stamp}.{letter.body}".encode()
    made = (base64.b64encode(hmac.digest(key, what, sha256)).decode() for key in keys)
    return {
        "Content-Type": "application/json",
        "User-Agent": "Foreshock",
        "webhook-id": letter.id,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(f"v1,{one}" for one in made),
    }


def keys_of(text: str) -> list[bytes]:
    """The secrets of a file. Raises ValueError, which repeats none of them."""
    keys = []
    for one in text.split():
        try:
            key = base64.b64decode(one.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if not one.startswith(PREFIX) or not SHORTEST <= len(key) <= LONGEST:
            raise ValueError(f"a secret is {PREFIX} and {SHORTEST} to {LONGEST} bytes in base64")
        keys.append(key)
    if not 1 <= len(keys) <= 2:
        raise ValueError("one secret is needed, or two while one takes the other's place")
    return keys


def _read_webhook(target: Webhook) -> tuple[str, list[bytes]]:
    """The URL and the secrets of now. Raises RefusedError."""
    url = _read(target.url_file) if target.url_file else target.url
    try:
        return url, keys_of(_read(target.secret_file))
    except ValueError as error:
        raise RefusedError("no_secret", f"{target.secret_file}: {error}: write it there, and send again") from None


def _read(file: str) -> str:
    """What a file holds. Raises RefusedError."""
    try:
        return Path(file).read_text(encoding="utf-8-sig").strip()  # Windows writes a mark before it
    except UnicodeDecodeError:
        raise RefusedError("no_secret", f"{file}: what stands there is no text") from None
    except OSError as error:
        raise RefusedError("no_secret", f"{file}: {error.strerror}: write it there, and send again") from None


def _understand(answer: Answer, now: datetime, words: Mapping[int, str]) -> None:
    """Raises RefusedError, in ``words``, BusyError and UnansweredError for what is no acceptance."""
    status = answer.status
    if 200 <= status < 300:
        return
    if status == 429 or (status == 503 and answer.retry_after):
        raise BusyError(_wait(answer.retry_after, now))
    if status >= 500 or status in LATER:
        raise UnansweredError(f"the receiver answered {status}", maybe_there=True)
    if 300 <= status < 400:
        raise RefusedError(str(status), "it answers with a redirect, which is not followed: write the url it leads to")
    if status in words and status != 400:
        raise RefusedError(str(status), words[status])
    why = f": it says “{answer.said}”" if answer.said else ", and does not say why: its log may"
    raise RefusedError(str(status), f"{words[400]}{why}")


def _wait(told: str, now: datetime) -> timedelta:
    """Retry-After, as seconds or as a moment (RFC 9110, 10.2.3), within a second and an hour."""
    if told.isdecimal():
        wait = timedelta(seconds=min(float(told), 86400))  # an int of thousands of digits is refused
    else:
        try:
            moment = parsedate_to_datetime(told)
        except (ValueError, OverflowError):
            return USUAL_WAIT
        wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta(seconds=1)), LONGEST_WAIT)
