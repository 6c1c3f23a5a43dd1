"""A workspace of Slack that refuses what Slack refuses, and fails as networks do. For tests alone.

Facts are from https://docs.slack.dev: each method's own page, reference/block-kit (as slack_types/ here has it) and
apis/web-api/rate-limits.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web
from jsonschema import Draft7Validator

from tests.listening import listening

Json = dict[str, Any]

MOST_BLOCKS, MOST_TEXT, MOST_IN_ALL = 50, 40_000, 10_000
"""The last is ours, text and blocks as JSON: what Slack takes of blocks is not documented (decision 0061)."""
A_MINUTE = {
    **dict.fromkeys(("chat.update", "conversations.history", "conversations.replies", "chat.unfurl"), 50),
    "chat.postEphemeral": 100,
}
"""How often Slack lets a method be called at least, in all channels together: tiers 3 and 4."""
LOOKED = ("conversations.history", "conversations.replies")
TOKEN, APP_TOKEN = "xoxb-of-the-double", "xapp-of-the-double"
CHANNEL, TEAM = "C0123456789", "T0000000001"
NOWHERE = "http://127.0.0.1:9/api/"
"""No Slack answers there: of who is not to ask it anything."""
FAULTS = ("refused", "busy", "error", "page", "text", "lost", "hangs")
"""refused: Slack says that it could not; busy: 429; error: 500; page, text: a proxy's. Then, with the message there all
the same: lost, the connection ends without an answer; hangs, none comes in time."""


@cache
def _blocks() -> Draft7Validator:
    schema = Path(__file__).with_name("slack_types") / "blocks.schema.json"
    return Draft7Validator(json.loads(schema.read_text()))


def mistakes(blocks: list[Json]) -> list[str]:
    """What Slack would not take of these blocks, in words."""
    found = [f"/blocks/{n}: {e.message[:200]}" for n, one in enumerate(blocks) for e in _blocks().iter_errors(one)]
    if len(blocks) > MOST_BLOCKS:
        found.append(f"more than {MOST_BLOCKS} blocks")
    ids = [one["block_id"] for one in blocks if "block_id" in one]
    if len(ids) > len(set(ids)):
        found.append("block_id is not unique")
    for n, one in enumerate(blocks):
        if one.get("type") == "section" and not one.get("text") and not one.get("fields"):
            found.append(f"/blocks/{n}: a section needs text or fields")
        if one.get("type") in ("actions", "context") and not one.get("elements"):
            found.append(f"/blocks/{n}: no less than 1 element")
        actions = [element.get("action_id") for element in one.get("elements", []) if "action_id" in element]
        if len(actions) > len(set(actions)):
            found.append("action_id is not unique in its block")
    return found


def size(text: str, blocks: object) -> int:
    """The characters of a message in all, its blocks as JSON."""
    return len(text) + len(json.dumps(blocks, ensure_ascii=False))


@dataclass
class Workspace:
    """What is in the workspace, and how it answers. ``clock`` gives its time."""

    clock: Callable[[], datetime]
    channels: set[str] = field(default_factory=lambda: {CHANNEL})
    messages: list[Json] = field(default_factory=list)
    arrived: dict[str, float] = field(default_factory=dict)
    """When each message was posted, by its ts, which tells whole seconds."""
    whispers: list[Json] = field(default_factory=list)
    faults: deque[str] = field(default_factory=deque)
    """What befalls the next calls of chat.postMessage and chat.update, one each; "" nothing. Or an error of Slack's."""
    faults_of_looks: deque[str] = field(default_factory=deque)
    """The same of LOOKED."""
    sockets_at: str = ""
    """Where it says that connections are opened; "": here."""
    token: str = TOKEN
    scopes: set[str] = field(default_factory=lambda: {"chat:write", "channels:history", "links:write"})
    retry_after: str = "30"
    reads_blocks: bool = True
    """It takes a twentieth of a second for each message: a thousand of the same shape need it once."""
    asked: list[str] = field(default_factory=list)
    limited: list[str] = field(default_factory=list)
    """The methods that were called too often, each time."""
    url: str = ""
    _sockets: list[web.WebSocketResponse] = field(default_factory=list)
    _joined: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: list[str] = field(default_factory=list)
    unfurled: list[Json] = field(default_factory=list)
    answers: list[Json] = field(default_factory=list)
    """What commands were answered, each shown to who asked alone."""
    _last: dict[str, float] = field(default_factory=dict)
    _taken: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def thread(self, ts: str | None) -> list[Json]:
        """The replies under a message, or (None) the messages that are none."""
        return [one for one in self.messages if one.get("thread_ts") == ts]

    async def click(self, message: Json, value: str, **user: str) -> Json:
        """Somebody clicks a button or chooses of a menu: the payload of it, which is also sent down a connection."""
        action = next(one for one in _actions(message["blocks"]) if value in one.pop("values"))
        who = {"id": "U0000000001", "username": "alice", "name": "alice", "team_id": TEAM} | user
        payload = {
            "type": "block_actions",
            "team": {"id": TEAM, "domain": "example"},
            "user": who,
            "api_app_id": "A0000000001",
            "channel": {"id": message["channel"], "name": "incidents"},
            "container": {"type": "message", "message_ts": message["ts"], "channel_id": message["channel"]},
            "message": message,
            "actions": [action | {"block_id": "b", "action_ts": "1.0"} | _chosen(action, value)],
            "response_url": "https://hooks.slack.com/actions/x",
            "trigger_id": "1.2.3",
        }
        envelope = {"type": "interactive", "envelope_id": f"e{len(self.acknowledged)}", "payload": payload}
        for socket in self._sockets[:1]:
            await socket.send_json(envelope | {"accepts_response_payload": False})
        return payload

    async def ask(self, text: str, **other: str) -> Json:
        """Somebody writes /foreshock and ``text``: the payload of it, which is also sent down a connection.

        https://docs.slack.dev/interactivity/implementing-slash-commands .
        """
        payload = {
            "token": "deprecated",
            "team_id": TEAM,
            "team_domain": "example",
            "channel_id": CHANNEL,
            "channel_name": "incidents",
            "user_id": "U0000000001",
            "user_name": "alice",
            "command": "/foreshock",
            "text": text,
            "api_app_id": "A0000000001",
            "is_enterprise_install": "false",
            "response_url": "https://hooks.slack.com/commands/x",
            "trigger_id": "1.2.3",
        } | other
        envelope = {"type": "slash_commands", "envelope_id": f"e{len(self.acknowledged)}", "payload": payload}
        for socket in self._sockets[:1]:
            await socket.send_json(envelope | {"accepts_response_payload": True})
        return payload

    async def share(self, *urls: str, **other: str) -> Json:
        """Somebody writes a message with links: the event of it, which is also sent down a connection.

        https://docs.slack.dev/reference/events/link_shared .
        """
        event = {
            "type": "link_shared",
            "channel": CHANNEL,
            "is_bot_user_member": True,
            "user": "U0000000001",
            "message_ts": "1795000000.000100",
            "unfurl_id": "C123456.1795000000.000100.abc",
            "source": "conversations_history",
            "links": [{"domain": "foreshock.example", "url": url} for url in urls],
            "event_ts": "1795000000.000200",
        } | other
        payload = {"token": "deprecated", "team_id": TEAM, "type": "event_callback", "event": event, "event_id": "Ev1"}
        envelope = {"type": "events_api", "envelope_id": f"e{len(self.acknowledged)}", "payload": payload}
        for socket in self._sockets[:1]:
            await socket.send_json(envelope | {"accepts_response_payload": False})
        return payload

    def shown(self, answer: Json, *, to: str = "ephemeral") -> str:
        """What of an answer to a command is seen, by who asked alone or ``to`` "in_channel" by all."""
        assert answer["response_type"] == to, answer
        assert not mistakes(answer["blocks"]), mistakes(answer["blocks"])
        assert answer["text"]
        assert size(answer["text"], answer["blocks"]) <= MOST_IN_ALL
        return json.dumps(answer["blocks"], ensure_ascii=False).replace("\\n", "\n")

    async def disconnect(self) -> None:
        """Ends the connections, as Slack does every few hours."""
        for socket in self._sockets:
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested"})
            await socket.close()
        self._sockets.clear()
        self._joined.clear()

    async def connected(self) -> None:
        """Waits for a connection."""
        await asyncio.wait_for(self._joined.wait(), 20)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One call of the Web API."""
        method = request.match_info["method"]
        self.asked.append(method)
        given = dict(request.query)
        if request.can_read_body:
            is_json = request.content_type == "application/json"
            given |= (
                (await request.json())
                if is_json
                else {key: str(value) for key, value in (await request.post()).items()}
            )
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            return _no("not_authed")
        if token != (APP_TOKEN if method == "apps.connections.open" else self.token):
            return _no("invalid_auth")
        handler = getattr(self, "_" + re.sub(r"\W", "_", method), None)
        if handler is None:
            return _no("unknown_method")
        if wait := self._too_often(method):
            return _busy(f"{wait}")
        fault = self._fault_of(method)
        if refusal := self._failed(fault):
            return refusal
        done: web.Response = handler(given)
        if fault == "lost":
            assert request.transport
            request.transport.close()
        if fault == "hangs":
            await asyncio.sleep(3600)
        return done

    def _too_often(self, method: str) -> int:
        """For how many seconds a method is not to be called, for it was called too often within a minute."""
        now, taken = self.clock().timestamp(), self._taken[method]
        while taken and taken[0] <= now - 60:
            taken.popleft()
        if len(taken) >= A_MINUTE.get(method, math.inf):
            self.limited.append(method)
            return math.ceil(taken[0] + 60 - now)
        taken.append(now)
        return 0

    def _fault_of(self, method: str) -> str:
        told = self.faults if method in ("chat.postMessage", "chat.update") else self.faults_of_looks
        return told.popleft() if told and method in ("chat.postMessage", "chat.update", *LOOKED) else ""

    def _failed(self, fault: str) -> web.Response | None:
        match fault:
            case "" | "lost" | "hangs":
                return None
            case "busy":
                return _busy(self.retry_after)
            case "error":
                return web.json_response({"ok": False, "error": "internal_error"}, status=500)
            case "page":
                return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html", status=502)
            case "text":
                return web.Response(text="upstream connect error", content_type="text/plain", status=503)
            case "refused":
                return _no("fatal_error")
        return _no(fault)

    def _wrong(self, given: Json) -> web.Response | None:
        text, blocks, metadata = given.get("text", ""), given.get("blocks") or [], given.get("metadata")
        if "chat:write" not in self.scopes:
            return _no("missing_scope", needed="chat:write")
        if given.get("channel") not in self.channels:
            return _no("channel_not_found")
        if not text and not blocks:
            return _no("no_text")
        if len(text) > MOST_TEXT:
            return _no("msg_too_long")
        if self.reads_blocks and (found := mistakes(blocks)):
            return _no("invalid_blocks", errors=found)
        if size(text, blocks) > MOST_IN_ALL:
            return _no("msg_blocks_too_long")
        if metadata is not None and set(metadata) != {"event_type", "event_payload"}:
            return _no("invalid_metadata_format")
        return None

    def _chat_postMessage(self, given: Json) -> web.Response:  # noqa: N802 - Slack's name
        if refusal := self._wrong(given):
            return refusal
        channel, now = given["channel"], self.clock().timestamp()
        if now - self._last.get(channel, 0.0) < 0.99:
            self.limited.append("chat.postMessage")
            return _busy("1")
        self._last[channel] = now
        ts = f"{now:.0f}.{len(self.messages):06}"
        self.arrived[ts] = now
        kept = {key: given[key] for key in ("channel", "text", "blocks", "metadata", "thread_ts") if given.get(key)}
        self.messages.append({"type": "message", "ts": ts, "blocks": [], "edits": 0, **kept})
        return web.json_response({"ok": True, "channel": channel, "ts": ts, "message": self.messages[-1]})

    def _chat_update(self, given: Json) -> web.Response:
        if refusal := self._wrong(given):
            return refusal
        message = next((one for one in self.messages if one["ts"] == given["ts"]), None)
        if message is None or message["channel"] != given["channel"]:
            return _no("message_not_found")
        message |= {key: given[key] for key in ("text", "blocks", "metadata") if key in given}
        message["edits"] += 1
        return web.json_response({"ok": True, "channel": given["channel"], "ts": given["ts"], "text": given["text"]})

    def _chat_postEphemeral(self, given: Json) -> web.Response:  # noqa: N802
        if refusal := self._wrong(given):
            return refusal
        self.whispers.append(given)
        return web.json_response({"ok": True, "message_ts": "1.0"})

    def _chat_unfurl(self, given: Json) -> web.Response:
        if "links:write" not in self.scopes:
            return _no("missing_scope", needed="links:write")
        if not ({"channel", "ts"} <= set(given) or {"unfurl_id", "source"} <= set(given)) or not given.get("unfurls"):
            return _no("missing_unfurls")
        if found := [wrong for one in given["unfurls"].values() for wrong in mistakes(one["blocks"])]:
            return _no("cannot_unfurl_url", errors=found)
        self.unfurled.append(given)
        return web.json_response({"ok": True})

    def _conversations_history(self, given: Json) -> web.Response:
        return self._listed(given, lambda one: "thread_ts" not in one)

    def _conversations_replies(self, given: Json) -> web.Response:
        return self._listed(given, lambda one: given["ts"] in (one["ts"], one.get("thread_ts")))

    def _listed(self, given: Json, wanted: Callable[[Json], bool]) -> web.Response:
        if "channels:history" not in self.scopes:
            return _no("missing_scope", needed="channels:history")
        if given.get("channel") not in self.channels:
            return _no("channel_not_found")
        oldest, start = float(given.get("oldest", "0")), int(given.get("cursor") or 0)
        own = (one for one in reversed(self.messages) if one["channel"] == given["channel"])
        found = [one for one in own if float(one["ts"]) > oldest and wanted(one)]
        page = found[start : start + min(int(given.get("limit", 100)), 15)]
        if str(given.get("include_all_metadata", "")).lower() not in ("1", "true"):
            page = [{key: value for key, value in one.items() if key != "metadata"} for one in page]
        more = str(start + len(page)) if start + len(page) < len(found) else ""
        return web.json_response({"ok": True, "messages": page, "response_metadata": {"next_cursor": more}})

    def _apps_connections_open(self, _given: Json) -> web.Response:
        at = self.sockets_at or self.url
        return web.json_response({"ok": True, "url": at.replace("http://", "ws://") + "socket"})

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        """A connection of Socket Mode."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1, "debug_info": {"host": "double"}})
        self._sockets.append(socket)
        self._joined.set()
        async for told in socket:
            said = json.loads(told.data)
            self.acknowledged.append(said["envelope_id"])
            self.answers += [said["payload"]] if "payload" in said else []
        return socket


def _actions(blocks: list[Json]) -> list[Json]:
    """What can be clicked, each with the ``values`` that it may send."""
    found = []
    for one in blocks:
        elements = one["elements"] if one["type"] == "actions" else [one["accessory"]] if "accessory" in one else []
        for element in elements:
            values = [option["value"] for option in element.get("options", [])] or [element.get("value")]
            found.append({"type": element["type"], "action_id": element["action_id"], "values": values})
    return found


def _chosen(action: Json, value: str) -> Json:
    return {"selected_option": {"value": value}} if action["type"] == "overflow" else {"value": value}


def _busy(wait: str) -> web.Response:
    return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": wait})


def _no(error: str, **more: Any) -> web.Response:
    return web.json_response({"ok": False, "error": error, **more})


@asynccontextmanager
async def workspace(clock: Callable[[], datetime]) -> AsyncIterator[Workspace]:
    """A workspace that listens on this machine, at its ``url``."""
    made = Workspace(clock)
    app = web.Application()
    app.router.add_route("*", "/api/{method}", made.answer)
    app.router.add_get("/socket", made.socket)
    async with listening(app) as url:
        made.url = f"{url}/"
        yield made
