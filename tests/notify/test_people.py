"""What people are told by mail, in Microsoft Teams and by Slack's incoming webhooks, and where that fails."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from msgspec.structs import replace as remade

from app.core.model import Batch, Outcome
from app.core.routes import Route, Routes, What
from app.core.targets import Email, SlackWebhook, Target, Teams, Webhook
from app.notify.sender import Sender
from app.notify.targets import Targets
from app.notifying import MAIL_WITHIN, REPRESENT, mail, post
from app.store import incidents, outbox
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from tests.listening import listening, stop
from tests.notify.double import mistakes
from tests.notify.test_notices import Room, rolling, room
from tests.test_tls import certificate
from tests.web import world

__all__ = ["room"]
Json = dict[str, Any]
PASSWORD = "geheim-0123"
ODD = "web <!here> <b>x</b> [click](https://evil.example) *bold* \r\nBcc: eve@evil.example"
LARGEST_CARD = 28_000


@dataclass
class People:
    """A room of which one target is told that people read."""

    room: Room
    sender: Sender

    async def passes(self, rounds: int = 8, *, apart: float = 1) -> None:
        """So many rounds, so many seconds apart."""
        for _ in range(rounds):
            self.room.clock.forward(apart)
            await self.sender.find()
            await self.sender.send()
            await self.sender.send_to_targets()

    async def failed(self) -> list[str]:
        async with self.room.database.read.connect() as conn:
            return [one.error for one in (await outbox.read_delivery(conn)).failed]


def routes_of(target: Target) -> Routes:
    return Routes((Route(target="ops", tell=(What.CHANGES, What.INCIDENTS)),), {"ops": target})


async def telling(room: Room, target: Target) -> People:
    routes = routes_of(target)
    targets = Targets(post, mail, REPRESENT, lambda: routes, room.clock)
    told = People(room, replace(room.sender, slack=None, channel="", routes=lambda: routes, targets=targets))
    await told.passes(2)
    return told


async def rolls_out_and_fails(told: People) -> str:
    """The id of the change."""
    change = told.room.change("web", diffs=world.CULPRIT.diffs, summary=ODD)
    await told.room.happens(change, rollouts=(rolling(change, updated=0),))
    await told.passes()
    ended = rolling(change, updated=3, outcome=Outcome.FAILED, ended_at=change.at + timedelta(minutes=10))
    await told.room.happens(rollouts=(ended,))
    await told.passes()
    return change.id


async def has_an_incident(told: People, database: Database) -> None:
    began = told.room.clock()
    opened = remade(world.incident(), id="e" * 12, started_at=began)
    ranking = remade(world.ranking(), incident_id=opened.id, ranked_at=began)
    async with database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, symptoms=(world.alert(),)))
        await incidents.save_incident(conn, opened)
        await ensure(conn, "rankings", [began])
        await incidents.save_ranking(conn, ranking)
    await told.passes(3)


# -- by HTTP


@dataclass
class Door:
    """Takes posts, and says what is wrong with them."""

    wrong: Callable[[Json], str]
    answers: deque[web.Response] = field(default_factory=deque)
    taken: list[Json] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.answers:
            return self.answers.popleft()
        if said := self.wrong(body):
            return web.Response(status=400, text=said)
        self.taken.append(body)
        return web.Response(status=202, text="ok")


@asynccontextmanager
async def opened(door: Door, file: Path) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/secret/path", door.answer)
    async with listening(app) as url:
        await asyncio.to_thread(file.write_text, f"{url}/secret/path\n")
        yield


def wrong_card(body: Json) -> str:
    """As Teams' workflows: one card of what Teams knows, small enough."""
    (attachment,) = body["attachments"]
    card = attachment["content"]
    texts = [run for block in card["body"] for run in block["inlines"]]
    good = (
        body["type"] == "message"
        and attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        and (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
        and {block["type"] for block in card["body"]} == {"RichTextBlock"}
        and all(run["type"] == "TextRun" and run["text"] and "\n" not in run["text"] for run in texts)
        and [action["type"] for action in card["actions"]] == ["Action.OpenUrl"]
    )
    return "" if good and len(json.dumps(body)) <= LARGEST_CARD else "BadPayload"


def wrong_slack(body: Json) -> str:
    """As Slack's incoming webhooks, of which none takes a click."""
    clickable = any(one["type"] == "actions" or "accessory" in one for one in body["blocks"])
    return "invalid_payload" if clickable or mistakes(body["blocks"]) or not body["text"] else ""


async def test_teams_is_told_by_cards_in_which_nothing_is_markup(
    room: Room, database: Database, tmp_path: Path
) -> None:
    door = Door(wrong_card)
    async with opened(door, tmp_path / "url"):
        told = await telling(room, Teams(str(tmp_path / "url")))
        change = await rolls_out_and_fails(told)
        await has_an_incident(told, database)
    assert await told.failed() == []
    first, last, incident = (one["attachments"][0]["content"] for one in door.taken)
    texts = [run["text"] for block in last["body"] for run in block["inlines"]]
    assert any("Failed after 10 min" in one for one in texts)
    assert any("<!here> <b>x</b> [click](https://evil.example)" in one for one in texts)
    assert any(run.get("fontType") == "Monospace" for block in first["body"] for run in block["inlines"])
    assert last["actions"][0]["url"].endswith(f"/changes/{change}")
    assert "None of these" in json.dumps(incident)


async def test_slack_is_told_by_an_incoming_webhook_what_it_can_show(
    room: Room, database: Database, tmp_path: Path
) -> None:
    door = Door(wrong_slack)
    async with opened(door, tmp_path / "url"):
        told = await telling(room, SlackWebhook(str(tmp_path / "url")))
        await rolls_out_and_fails(told)
        await has_an_incident(told, database)
    assert await told.failed() == []
    assert len(door.taken) == 3
    assert "&lt;!here&gt;" in str(door.taken[0])
    assert "<!here>" not in str([one for one in door.taken if "rich_text" not in str(one)])


@pytest.mark.parametrize(("kind", "wrong"), [(SlackWebhook, wrong_slack), (Teams, wrong_card)])
async def test_however_long_a_digest_is_it_is_taken(
    room: Room, tmp_path: Path, kind: type[SlackWebhook | Teams], wrong: Callable[[Json], str]
) -> None:
    door = Door(wrong)
    async with opened(door, tmp_path / "url"):
        told = await telling(room, kind(str(tmp_path / "url")))
        await room.happens(*(room.change(f"app-{n}", summary=f"{n} {'<🔥&' * 200}") for n in range(40)))
        await told.passes(70)
    assert await told.failed() == []
    assert len(door.taken) == 1
    assert "and 25 more" in str(door.taken)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((403, "invalid_token"), "make another where it was made, and write it into url_file (403)"),
        ((404, "no_service"), "its URL is good no more"),
        ((410, "channel_is_archived"), "its URL is good no more"),
        ((400, "invalid_payload"), "invalid_payload"),
    ],
)
async def test_what_is_refused_is_given_up_without_the_url(
    room: Room, tmp_path: Path, answer: tuple[int, str], said: str
) -> None:
    door = Door(wrong_slack, deque([web.Response(status=answer[0], text=answer[1])]))
    async with opened(door, tmp_path / "url"):
        told = await telling(room, SlackWebhook(str(tmp_path / "url")))
        await room.happens(room.change("web"))
        await told.passes(20)
    (why,) = await told.failed()
    assert said in why
    assert "secret/path" not in why


async def test_what_nobody_confirmed_is_sent_again(room: Room, tmp_path: Path) -> None:
    late = [web.Response(status=429, headers={"Retry-After": "3"}), web.Response(status=500), web.Response(status=503)]
    door = Door(wrong_card, deque(late))
    async with opened(door, tmp_path / "url"):
        told = await telling(room, Teams(str(tmp_path / "url")))
        await room.happens(room.change("web"))
        await told.passes(200)
    assert len(door.taken) == 1
    assert await told.failed() == []


async def test_a_target_that_became_another_is_not_sent_what_was_written_for_the_first(
    room: Room, tmp_path: Path
) -> None:
    door = Door(wrong_card, deque([web.Response(status=500)]))
    async with opened(door, tmp_path / "url"):
        told = await telling(room, Teams(str(tmp_path / "url")))
        await room.happens(room.change("web"))
        await told.passes(4)
        routes = Routes((Route(target="ops"),), {"ops": Webhook(secret_file="/nowhere", url="http://127.0.0.1:9/")})
        assert told.sender.targets
        told.sender = replace(told.sender, targets=replace(told.sender.targets, routes=lambda: routes))
        await told.passes(30)
    (why,) = await told.failed()
    assert "a target of another kind" in why


# -- by mail


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
    assert "To undo it:" in said.get_content()


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
