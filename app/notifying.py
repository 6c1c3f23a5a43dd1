"""What tells Slack and other targets, and what Slack tells, put together of the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from functools import partial
from typing import Any, Never

from pydantic import SecretStr

from app.collect import outbound
from app.collect.mail import SmtpServer, hand_in
from app.collect.outbound import EndpointError, OutboundError
from app.core.findings import Incident, Ranking
from app.core.routes import NO_ROUTES, Routes
from app.core.targets import Email
from app.core.vitals import Listening
from app.notify import routes_file
from app.notify.clicks import Clicks
from app.notify.commands import Commands
from app.notify.connection import Connection, listen
from app.notify.events import Json, Represent
from app.notify.links import Links
from app.notify.mutes import Mutes
from app.notify.sender import Sender
from app.notify.slack import RefusedError, UnansweredError, slack
from app.notify.targets import Targets
from app.settings import Settings
from app.store import outbox
from app.store.database import Database
from app.store.incidents import FirstSuspect
from app.supervise import Worker
from app.web import shapes
from app.web.addresses import Addresses
from app.written import Written

MAIL_WITHIN = 25.0
"""Seconds for all steps of a mail: less than a message is its sender's alone (outbox.CLAIM)."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What is done with what Slack tells; with an app-level token by a connection that we open."""

    clicks: Clicks
    commands: Commands
    links: Links
    mutes: Mutes
    app_token: str
    api: str
    connection: Connection

    async def hear(self, payload: dict[str, Any]) -> None:
        """Does what an event of Slack's asks for."""
        await self.links.take(payload)
        await self.mutes.take(payload)

    def listening(self) -> Listening | None:
        """Whether that connection is open; None where none is wanted."""
        return self.connection.state if self.app_token else None

    async def listen(self) -> Never:
        """Takes clicks, answers commands and hears events, for ever."""
        take, answer = self.clicks.take, self.commands.answer
        told = self.connection
        await listen(self.app_token, self.api, take=take, show=self.hear, answer=answer, connection=told)


@dataclass(frozen=True, slots=True)
class Notifier:
    """What tells; ``heard`` None where there is no Slack."""

    sender: Sender
    routes: Written[Routes]
    heard: Heard | None

    def workers(self) -> tuple[Worker, ...]:
        """What is done again and again, by one process at a time."""
        sender = self.sender
        done = {"notices": sender.find, "Slack": sender.send, "targets": sender.send_to_targets}
        return tuple(Worker(name, partial(self._where_told, work), outbox.EACH) for name, work in done.items())

    async def _where_told(self, work: Callable[[], Awaitable[None]]) -> None:
        """Without Slack, and until there is a file of routes, nobody is told, and PostgreSQL is asked nothing."""
        self.routes()
        if self.sender.slack is not None or self.routes.was_there:
            await work()


def notifier_of(settings: Settings, database: Database, *, url: str, clock: Callable[[], datetime]) -> Notifier:
    """Who is told as the settings say, and a file of routes, whenever that is written. Raises
    routes_file.RoutesError."""
    path = settings.routes_file or settings.data_dir / "routes.yaml"
    told = slack(secret(settings.slack_token), str(settings.slack_api)) if settings.slack_token else None
    channel = settings.slack_channel or ""
    routes = Written(path, routes_file.read, without=None if settings.routes_file else NO_ROUTES)
    targets = Targets(post, mail, REPRESENT, routes, clock)
    suspected = settings.slack_suspected
    sender = Sender(database.write, told, channel, url, clock, suspected=suspected, routes=routes, targets=targets)
    if told is None:
        return Notifier(sender, routes, None)
    mutes = Mutes(database.write, told, routes, clock)
    heard = Heard(
        Clicks(database.write, told, clock, url),
        Commands(database.read, channel, url, clock, mutes),
        Links(database.read, told, channel, url, clock, Addresses(clock), routes=routes),
        mutes,
        app_token=secret(settings.slack_app_token),
        api=str(settings.slack_api),
        connection=Connection(clock),
    )
    return Notifier(sender, routes, heard)


def secret(value: SecretStr | None) -> str:
    """What a setting holds, "" where it is not set."""
    return value.get_secret_value() if value else ""


async def post(url: str, body: bytes, headers: Mapping[str, str]) -> outbound.Answer:
    """Posts what a target is told. Raises RefusedError and UnansweredError."""
    try:
        return await outbound.deliver(url, body, headers)
    except EndpointError as error:
        raise RefusedError("url", str(error)) from None
    except OutboundError as error:
        raise UnansweredError(str(error), maybe_there=not error.unsent) from None


async def mail(message: EmailMessage, to: Email, password: str, only: Sequence[str]) -> tuple[str, ...]:
    """Hands a mail in, for all or ``only`` for some; those for which it was not taken, though it was for others. Raises
    RefusedError and UnansweredError."""
    server = SmtpServer(to.host, to.port, to.security, to.user, password, to.ca_file or "")
    try:
        async with asyncio.timeout(MAIL_WITHIN):
            return await hand_in(message, server, only)
    except TimeoutError:
        raise UnansweredError(f"{to.host} took longer than {MAIL_WITHIN:.0f} s", maybe_there=True) from None
    except EndpointError as error:
        raise RefusedError("host", str(error).removeprefix("url: ")) from None
    except OutboundError as error:
        if error.status >= 500:
            hint = "look at user and password_file: " if error.status in (530, 534, 535) else ""
            raise RefusedError(str(error.status), f"{hint}{to.host} said {error}") from None
        raise UnansweredError(str(error), maybe_there=not error.unsent) from None


def _incident(incident: Incident, ranking: Ranking | None) -> Json:
    return shapes.Incident.of(incident, FirstSuspect.of(ranking)).model_dump(mode="json")


REPRESENT = Represent(
    change=lambda one: shapes.Change.of(one).model_dump(mode="json"),
    rollout=lambda one: shapes.Rollout.of(one).model_dump(mode="json"),
    incident=_incident,
    suspect=lambda one: shapes.Suspect.of(one).model_dump(mode="json"),
)
