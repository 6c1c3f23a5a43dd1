"""Slack's Web API as far as it is used: post, edit, look up, whisper, unfurl; and what its refusals mean.

Nothing is tried again in here: whether a message may be there already is for the sender to know.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import aiohttp
import msgspec
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from app.notify.slack_words import BUSY, PASSING, UNKNOWN, UNSURE, WORDS
from app.store.outbox import Due

Json = dict[str, Any]

LONGEST = 10_000
"""Characters of a message in all, its blocks as JSON: some 13,000 are refused, and which exactly Slack does not say
(docs/decisions/0061)."""
TIMEOUT = 10
"""Seconds that Slack is waited for; less than outbox.CLAIM."""
SKEW = timedelta(minutes=5)
"""How far our clock may be ahead of Slack's when a message is looked up."""
PAGES = 20
EVENT = "foreshock_message"
NOT_REACHED = "Slack is not reached: look at the network, at HTTPS_PROXY and FORESHOCK_SLACK_API"


@dataclass(frozen=True, slots=True)
class Message:
    """``text`` is what notifications and screen readers say; ``blocks`` are Block Kit's, none for a plain line."""

    text: str
    blocks: tuple[Json, ...] = ()

    @property
    def size(self) -> int:
        return len(self.text) + len(json.dumps(self.blocks, ensure_ascii=False))

    @property
    def digest(self) -> str:
        """Of two that show the same it is the same."""
        return sha256(msgspec.json.encode((self.text, self.blocks))).hexdigest()[:32]


def fitting(made: Callable[[int], Message], most: int) -> Message:
    """The message made with ``most`` of what it can do without, or with as many as leave it within LONGEST."""
    found = made(most)
    while most and found.size > LONGEST:
        most -= 1
        found = made(most)
    return found


class RefusedError(Exception):
    """Slack, or a target, does not take it, now or later. ``code`` is its own word, the message says what to do."""

    def __init__(self, code: str, words: str = "") -> None:
        super().__init__(f"{words or WORDS.get(code, UNKNOWN)} ({code})")
        self.code = code


class BusyError(Exception):
    """Slack, or a target, took nothing and is to be asked again after ``wait``. ``method`` is which one of Slack's was
    called too often, "" of a target."""

    def __init__(self, wait: timedelta, method: str = "") -> None:
        super().__init__(f"it asks to wait for {wait.total_seconds():.0f} s")
        self.wait = wait
        self.method = method


class UnansweredError(Exception):
    """Nobody answered, or nothing that can be read; where ``maybe_there``, what was sent may be there all the same."""

    def __init__(self, why: str, *, maybe_there: bool) -> None:
        super().__init__(why)
        self.maybe_there = maybe_there


@dataclass(frozen=True, slots=True)
class Slack:
    """One app in one workspace. All raise RefusedError, BusyError and UnansweredError."""

    web: AsyncWebClient

    async def post(self, due: Due, message: Message) -> str:
        """Posts it, in a thread where it is a reply; its ts."""
        posting = self.web.chat_postMessage(
            channel=due.channel,
            text=message.text,
            blocks=list(message.blocks) or None,
            thread_ts=due.thread_ts,
            metadata={"event_type": EVENT, "event_payload": {"key": due.key}},
            unfurl_links=False,
            unfurl_media=False,
        )
        return str((await _answer(posting))["ts"])

    async def edit(self, due: Due, message: Message) -> None:
        """Puts ``message`` in the place of what was posted: twice is as once."""
        metadata = {"event_type": EVENT, "event_payload": {"key": due.key}}
        blocks = list(message.blocks)
        await _answer(
            self.web.chat_update(
                channel=due.channel, ts=due.ts or "", text=message.text, blocks=blocks, metadata=metadata
            )
        )

    async def find(self, due: Due, *, since: datetime) -> str | None:
        """The ts of what may have been posted ``since`` though nobody answered; None where it is not there."""
        oldest = str((since - SKEW).timestamp())
        asked: Json = {"channel": due.channel, "oldest": oldest, "limit": 200, "include_all_metadata": True}
        for _ in range(PAGES):
            found = await _answer(
                self.web.conversations_replies(ts=due.thread_ts, **asked)
                if due.thread_ts
                else self.web.conversations_history(**asked)
            )
            for one in found["messages"]:
                told = one.get("metadata") or {}
                if told.get("event_type") == EVENT and told.get("event_payload", {}).get("key") == due.key:
                    return str(one["ts"])
            cursor = (found.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return None
            asked["cursor"] = cursor
        raise UnansweredError(f"more than {PAGES * 200} messages came since it was posted", maybe_there=True)

    async def unfurl(self, place: Mapping[str, str], shown: Mapping[str, Json]) -> None:
        """Shows below links what they lead to; ``place`` says in which message, as Slack's event does."""
        await _answer(self.web.api_call("chat.unfurl", json={**place, "unfurls": dict(shown)}))

    async def whisper(self, channel: str, user: str, message: Message) -> None:
        """Says something to one person in a channel."""
        blocks = list(message.blocks) or None
        await _answer(self.web.chat_postEphemeral(channel=channel, user=user, text=message.text, blocks=blocks))


def slack(token: str, url: str) -> Slack:
    """Slack at ``url`` (https://slack.com/api/) with the app's bot token. HTTPS_PROXY is heeded, by Slack's library."""
    return Slack(AsyncWebClient(token=token, base_url=url, timeout=TIMEOUT, retry_handlers=[]))


async def _answer(asked: Awaitable[AsyncSlackResponse]) -> Mapping[str, Any]:
    try:
        data = (await asked).data
    except SlackApiError as error:
        raise _meaning(error) from error
    except aiohttp.ClientConnectorError as error:  # nothing was sent
        raise UnansweredError(f"{NOT_REACHED} ({type(error).__name__})", maybe_there=False) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UnansweredError(f"Slack did not answer: {type(error).__name__}", maybe_there=True) from error
    except AttributeError as error:  # slack_sdk takes text/plain, a proxy's mostly, for an answer of Slack
        raise UnansweredError("what answered was not Slack", maybe_there=True) from error
    if not isinstance(data, dict):
        raise UnansweredError("what answered was not Slack", maybe_there=True)
    return data


def _meaning(error: SlackApiError) -> Exception:
    """What an error of Slack's library means: it holds an answer, or what could not be read of one."""
    answer = error.response
    if not isinstance(answer, AsyncSlackResponse):
        return UnansweredError("what answered was not Slack", maybe_there=True)
    code = answer.data.get("error", "") if isinstance(answer.data, dict) else ""
    if answer.status_code == 429 or code in BUSY:
        return BusyError(_wait(answer.headers.get("Retry-After", "")), answer.api_url.rpartition("/")[2])
    if answer.status_code >= 500 or code in UNSURE or not code:
        return UnansweredError(f"Slack answered {code or answer.status_code}", maybe_there=True)
    if code in PASSING:
        return UnansweredError(f"{PASSING[code]} ({code})", maybe_there=False)
    return RefusedError(code)


def _wait(told: str) -> timedelta:
    """Retry-After in seconds, within a second and an hour; half a minute where it says nothing."""
    return timedelta(seconds=min(max(float(told), 1), 3600) if told.isdecimal() else 30)
