"""Where else than in Slack's channels something is told: what a file of routes says of each target. Pure.

No secret stands there: a target names the file that holds it, which is read whenever something is sent, so that what is
renewed in it counts.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

TargetName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,62}\Z", description="a name like on-call")]
FilePath = Annotated[str, Meta(pattern=r"^/[^\x00\n]+\Z", description="an absolute path")]
_ATOM, _LABEL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+", "[A-Za-z0-9-]+"
Mailbox = Annotated[
    str,
    Meta(pattern=rf"^{_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})*\Z", max_length=254, description="a mail address"),
]
"""A dot-atom and a domain (RFC 5322, 3.4.1): of anything else no mail can be made."""
Security = Literal["starttls", "tls", "none"]
"""How a connection for mail is encrypted: after it began, from its first byte, or not at all."""


class Webhook(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="webhook"):
    """A URL that is sent signed events (https://github.com/standard-webhooks/standard-webhooks).

    ``secret_file`` holds a secret (whsec_…), or two with a space or a line between them while one takes the other's
    place: then each event is signed with both. ``url_file`` is instead of ``url`` where that is a secret itself.
    """

    LABEL: ClassVar[str] = "a webhook"
    secret_file: FilePath
    url: str = ""
    url_file: FilePath | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if bool(self.url) == (self.url_file is not None):
            raise ValueError("a webhook needs one of url and url_file")
        if self.url and not _is_url(self.url):
            raise ValueError("url: http:// or https:// and a host are needed, and no user")


class Teams(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="teams"):
    """A workflow of Microsoft Teams that posts what it is sent into a channel. Its URL is a secret."""

    LABEL: ClassVar[str] = "Microsoft Teams"
    url_file: FilePath


class SlackWebhook(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="slack_webhook"):
    """An incoming webhook of Slack (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks), for who
    may not install an app. Its URL is a secret."""

    LABEL: ClassVar[str] = "an incoming webhook"
    url_file: FilePath


class Email(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="email", rename={"sender": "from"}):
    """Mail to some addresses, handed in at ``host``. ``password_file`` holds the password of ``user``, ``ca_file`` the
    certificates that are trusted there instead of the system's."""

    LABEL: ClassVar[str] = "mail"
    to: Annotated[tuple[Mailbox, ...], Meta(min_length=1, max_length=50)]
    sender: Mailbox
    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_-]+\Z", max_length=253, description="a host's name")]
    port: Annotated[int, Meta(ge=1, le=65535)] = 587
    security: Security = "starttls"
    user: str = ""
    password_file: FilePath | None = None
    ca_file: FilePath | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if bool(self.user) != (self.password_file is not None):
            raise ValueError("a user needs a password_file, and the other way round")
        if self.user and self.security == "none":
            raise ValueError("a password is not sent without encryption: security is starttls or tls")


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        known = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False
    return known and url.username is None and text.isprintable() and " " not in text


Target = Webhook | Teams | SlackWebhook | Email


def is_target(place: str) -> bool:
    """Whether that is a target's name, not the ID of a channel: those begin with a capital letter."""
    return place[:1].islower()
