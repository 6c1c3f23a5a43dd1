"""What people are told by mail, and where that fails."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from msgspec.structs import replace as remade

from app.core.routes import Route, Routes
from app.core.targets import Email, Target
from app.notify.targets import Targets
from app.notifying import MAIL_WITHIN, REPRESENT, mail, post
from app.store import outbox
from app.store.database import Database
from tests.listening import stop
from tests.notify.room import Room, room
from tests.notify.test_people import has_an_incident, rolls_out_and_fails, routes_of, telling
from tests.test_tls import certificate

__all__ = ["room"]
PASSWORD = "geheim-0123"


@dataclass
class Post:
    """A server for mail: over TLS, for who has the password. ``says`` is what it answers to the next mails, "" takes
    them; "lost" takes one, and ends the connection before it says so, "late" says so after half a second."""

    taken: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    says: deque[str] = field(default_factory=deque)
    refuses: frozenset[str] = frozenset()
    why: str = "550 5.1.1 no such user"

    async def handle_RCPT(  # noqa: N802 - the library's name and arguments
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuses:
            return self.why
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        said = self.says.popleft() if self.says else ""
        if said not in ("", "lost", "late"):
            return said
        content = envelope.content
        assert isinstance(content, bytes)
        self.taken.append(message_from_bytes(content, policy=policy.default))
        self.recipients.append(list(envelope.rcpt_tos))
        if said == "lost":
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        if said == "late":
            await asyncio.sleep(0.5)
        return "250 OK"

    @property
    def ids(self) -> list[str]:
        return [str(one["Message-ID"]) for one in self.taken]


def authenticated(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
    good = isinstance(data, LoginPassword) and (data.login, data.password) == (b"foreshock", PASSWORD.encode())
    return AuthResult(success=good, handled=False)


@dataclass
class Office:
    post: Post
    target: Email


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    cert, key = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    made, loop = Post(), asyncio.get_running_loop()

    def protocol() -> SMTP:
        return SMTP(
            made,
            hostname="mail.example",
            tls_context=tls,
            require_starttls=True,
            auth_required=True,
            authenticator=authenticated,
            loop=loop,
        )

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    target = Email(
        to=("oncall@example.com", "lead@example.com"),
        sender="foreshock@example.com",
        host="127.0.0.1",
        port=server.sockets[0].getsockname()[1],
        user="foreshock",
        password_file=str(tmp_path / "password"),
        ca_file=str(cert),
    )
    yield Office(made, target)
    await stop(server)


async def test_mail_says_what_happened_in_text_and_html(room: Room, database: Database, office: Office) -> None:
    told = await telling(room, office.target)
    change = await rolls_out_and_fails(told)
    await has_an_incident(told, database)
    assert await told.failed() == []
    first, last, incident = office.post.taken
    assert office.post.recipients[0] == ["oncall@example.com", "lead@example.com"]
    assert first["Bcc"] is None
    assert str(first["Subject"]).startswith("[Foreshock] 🔵 web <!here> <b>x</b>")
    assert first["References"] == last["References"] != incident["References"]
    assert len(set(office.post.ids)) == 3
    text, html = (last.get_body((kind,)) for kind in ("plain", "html"))
    assert text
    assert html
    assert f"/changes/{change}" in text.get_content()
    assert "Failed after 10 min" in text.get_content()
    assert "<b>" not in html.get_content()
    assert "&lt;b&gt;x&lt;/b&gt;" in html.get_content()
    said = incident.get_body(("plain",))
    assert said
    assert "1. checkout-api" in said.get_content()
    assert "To undo it, in the cluster shop (see first: kubectl config current-context):" in said.get_content()


@pytest.mark.parametrize("fault", ["451 4.3.0 later", "421 4.3.2 going down", "lost"])
async def test_mail_that_is_not_taken_is_sent_again_as_the_same(room: Room, office: Office, fault: str) -> None:
    office.post.says.append(fault)
    told = await telling(room, office.target)
    await room.happens(room.change("web"))
    await told.passes(40)
    assert len(set(office.post.ids)) == 1
    assert len(office.post.ids) == (2 if fault == "lost" else 1)
    assert await told.failed() == []


async def test_mail_that_takes_too_long_is_sent_again_as_the_same(
    room: Room, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.notifying.MAIL_WITHIN", 0.3)
    office.post.says.append("late")
    told = await telling(room, office.target)
    await room.happens(room.change("web"))
    await told.passes(40)
    assert (len(office.post.ids), len(set(office.post.ids))) == (2, 1)
    assert await told.failed() == []


def test_a_mail_takes_less_time_than_it_is_its_senders_alone() -> None:
    assert timedelta(seconds=MAIL_WITHIN) < outbox.CLAIM


async def test_mail_that_is_refused_is_given_up_with_what_was_said(room: Room, office: Office) -> None:
    office.post.says.append("554 5.7.1 looks like\tspam")
    told = await telling(room, office.target)
    await room.happens(room.change("web"))
    await told.passes(20)
    assert await told.failed() == ["127.0.0.1 said 554 5.7.1 looks like spam (554)"]


async def test_who_of_several_does_not_get_it_is_named(room: Room, office: Office) -> None:
    office.post.refuses = frozenset({"lead@example.com"})
    told = await telling(room, office.target)
    await room.happens(room.change("web"))
    await told.passes(20)
    (why,) = await told.failed()
    assert "lead@example.com: 550 5.1.1 no such user" in why
    assert office.post.recipients == [["oncall@example.com"]]


@pytest.mark.parametrize("why", ["550 5.1.1 no such user", "452 4.2.2 mailbox full"])
async def test_who_got_it_is_told_what_comes_after_it_and_nothing_twice(room: Room, office: Office, why: str) -> None:
    office.post.refuses, office.post.why = frozenset({"lead@example.com"}), why
    told = await telling(room, office.target)
    await rolls_out_and_fails(told)
    await told.passes(400)
    assert office.post.recipients == [["oncall@example.com"]] * 2
    assert len(set(office.post.ids)) == 2


async def test_who_is_no_recipient_any_more_is_owed_nothing(room: Room, office: Office) -> None:
    office.post.refuses = frozenset({"lead@example.com"})
    told = await telling(room, office.target)
    await room.happens(room.change("web"))
    await told.passes(20)
    targets = Targets(
        post, mail, REPRESENT, lambda: routes_of(remade(office.target, to=("oncall@example.com",))), room.clock
    )
    told.sender = replace(told.sender, targets=targets)
    async with room.database.write.begin() as conn:
        await outbox.try_again(conn, "", now=room.clock())
    await told.passes(20)
    assert await told.failed() == []
    assert office.post.recipients == [["oncall@example.com"]]


async def test_who_takes_it_later_gets_it_alone(room: Room, office: Office) -> None:
    office.post.refuses, office.post.why = frozenset({"lead@example.com"}), "452 4.2.2 mailbox full"
    told = await telling(room, office.target)
    await room.happens(room.change("web"))
    await told.passes(20)
    office.post.refuses = frozenset()
    await told.passes(40)
    assert office.post.recipients == [["oncall@example.com"], ["lead@example.com"]]
    assert len(set(office.post.ids)) == 1
    assert await told.failed() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"password_file": "OTHER"}, "look at user and password_file: 127.0.0.1 said 535"),
        ({"password_file": "/nowhere/password"}, "/nowhere/password: No such file or directory"),
        ({"user": "", "password_file": None}, "look at user and password_file: 127.0.0.1 said 530"),
        ({"security": "none", "user": "", "password_file": None}, "127.0.0.1 said 530"),
        ({"host": "169.254.169.254"}, "which is not asked"),
    ],
)
async def test_what_is_wrong_with_a_target_is_said(
    room: Room, office: Office, tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    (tmp_path / "other").write_text("another")
    wrong = {name: str(tmp_path / "other") if value == "OTHER" else value for name, value in wrong.items()}
    told = await telling(room, remade(office.target, **wrong))
    await room.happens(room.change("web"))
    await told.passes(20)
    (why,) = await told.failed()
    assert said in why
    assert PASSWORD not in why
    assert office.post.taken == []


@pytest.mark.parametrize("wrong", [{"ca_file": None}, {"security": "tls"}, {"port": 9}])
async def test_what_may_pass_is_tried_again(room: Room, office: Office, wrong: dict[str, Any]) -> None:
    told = await telling(room, remade(office.target, **wrong))
    await room.happens(room.change("web"))
    await told.passes(20)
    assert (await told.failed(), office.post.taken) == ([], [])
    routes = Routes((Route(target="ops"),), {"ops": office.target})
    assert told.sender.targets
    told.sender = replace(told.sender, targets=replace(told.sender.targets, routes=lambda: routes))
    await told.passes(200)
    assert len(office.post.taken) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"to": ()},
        {"to": ("a@b.example\nBcc: c@d.example",)},
        {"to": ("somebody",)},
        {"to": ("a@b.example\n",)},
        {"to": ("a..b@b.example",)},
        {"to": ("a@b..example",)},
        {"sender": "x"},
        {"host": "mail example"},
        {"port": 0},
        {"user": "x"},
        {"password_file": "/x"},
        {"user": "x", "password_file": "/x", "security": "none"},
    ],
)
def test_a_target_of_mail_is_written_whole(wrong: dict[str, Any]) -> None:
    good = {"kind": "email", "to": ["a@b.example"], "from": "c@d.example", "host": "mail.example"}
    assert msgspec.convert(good, Target)
    named = {"from" if name == "sender" else name: value for name, value in wrong.items()}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(good | named, Target)
