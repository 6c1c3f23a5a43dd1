"""What people say in Slack is kept, whichever way it comes; what is not Slack's, or not theirs to say, is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.core.findings import NONE, Opinion
from app.core.routes import NO_ROUTES
from app.core.vitals import Listening
from app.notify import connection as connection_module
from app.notify.clicks import Clicks, clicked
from app.notify.connection import NOT_OPENED, Connection, listen
from app.notify.mutes import REACTION, Mutes
from app.notify.sender import Sender
from app.notify.slack import slack
from app.store import incidents
from app.web.deps import Slack, refuse_command, refuse_told
from app.web.routes import create_app
from tests.notify.double import APP_TOKEN, CHANNEL, NOWHERE, TOKEN, Json, Workspace, workspace
from tests.web import world
from tests.web.conftest import HOST, Site, deps, site

__all__ = ["site"]
INCIDENT = world.incident().id
FIRST, SECOND = (suspect.change.id for suspect in world.ranking().suspects[:2])
SECRET = "of-the-app-0123456789"
NOW = world.END + timedelta(minutes=5)


@pytest.fixture
async def told(site: Site) -> AsyncIterator[Workspace]:
    """A workspace in whose channel the made-up incident is told."""
    async with workspace(lambda: NOW) as made:
        made.messages.clear()
        api = slack(TOKEN, f"{made.url}api/")
        async with site.database.write.begin() as conn:
            await conn.exec_driver_sql("DELETE FROM slack_messages")
            await conn.exec_driver_sql("DELETE FROM slack_channels")
            await conn.exec_driver_sql("DELETE FROM verdicts")
        sender = Sender(site.database.write, api, CHANNEL, HOST, lambda: NOW)
        await sender.find()
        await sender.send()
        assert len(made.messages) == 1
        yield made


def clicks(site: Site, made: Workspace) -> Clicks:
    return Clicks(site.database.write, slack(TOKEN, f"{made.url}api/"), lambda: NOW, HOST)


async def said(site: Site) -> set[tuple[str, str, str]]:
    async with site.database.read.connect() as conn:
        found = await incidents.read_incident(conn, INCIDENT)
    assert found
    return {(one.change_id, one.opinion.value, one.by) for one in found[0].verdicts}


def test_what_is_clicked_is_read_of_buttons_and_menus() -> None:
    payload: Json = {
        "type": "block_actions",
        "team": {"id": "T1"},
        "user": {"id": "U1", "username": "alice", "team_id": "T1"},
        "channel": {"id": CHANNEL},
        "actions": [{"action_id": "it", "type": "button", "value": f"it/{INCIDENT}/{FIRST}"}],
    }
    click = clicked(payload)
    assert click
    assert (click.incident_id, click.change_id, click.opinion, click.name) == (INCIDENT, FIRST, Opinion.IT, "alice")
    menu = {"action_id": "judge", "type": "overflow", "selected_option": {"value": f"not_it/{INCIDENT}/none"}}
    click = clicked(payload | {"actions": [menu]})
    assert click
    assert (click.change_id, click.opinion) == (NONE, Opinion.NOT_IT)
    assert clicked(payload | {"type": "view_submission"}) is None
    assert clicked(payload | {"actions": [{"action_id": "open", "value": INCIDENT}]}) is None
    assert clicked(payload | {"actions": [{"action_id": "it", "value": f"it/{INCIDENT}/../{FIRST}"}]}) is None
    for broken in (
        {},
        {"type": "block_actions"},
        payload | {"actions": []},
        payload | {"actions": "it"},
        payload | {"actions": [None]},
        payload | {"user": {"id": 7, "username": "alice"}},
        payload | {"user": {}},
        payload | {"channel": None},
        payload | {"team": None},
    ):
        with pytest.raises(ValueError, match="no payload of Slack"):
            clicked(broken)


@pytest.mark.parametrize(
    ("of", "user_team", "is_guest"),
    [
        ({"team": {"id": "T1"}}, "T2", True),
        ({"team": {"id": "T1", "enterprise_id": "E1"}, "enterprise": {"id": "E1"}}, "E1", False),
        ({"team": {"id": "T1", "enterprise_id": "E1"}, "enterprise": {"id": "E1"}}, "E2", True),
        ({"team": {"id": "T1"}, "enterprise": None}, "E1", True),
        ({"team": None, "enterprise": {"id": "E1"}, "is_enterprise_install": True}, "E1", False),
        ({"team": None, "enterprise": {"id": "E1"}, "is_enterprise_install": True}, "T9", True),
    ],
)
def test_in_an_organisation_its_people_are_no_guests(of: Json, user_team: str, is_guest: bool) -> None:
    user = {"id": "U1", "username": "alice", "team_id": user_team}
    action = {"action_id": "it", "type": "button", "value": f"it/{INCIDENT}/{FIRST}"}
    click = clicked(of | {"type": "block_actions", "user": user, "channel": {"id": CHANNEL}, "actions": [action]})
    assert click
    assert click.is_guest is is_guest


async def state_of(connection: Connection, *, is_open: bool, why: str = "") -> Listening:
    """The first one that is so."""
    async with asyncio.timeout(20):
        while connection.state.is_open != is_open or why not in connection.state.why:  # noqa: ASYNC110 - of another's
            await asyncio.sleep(0.02)
    return connection.state


@pytest.mark.parametrize(
    ("token", "api", "why"),
    [
        ("xapp-revoked", "", "FORESHOCK_SLACK_APP_TOKEN is not good any more"),
        (APP_TOKEN, NOWHERE, "HTTPS_PROXY and FORESHOCK_SLACK_API (ClientConnectorError)"),
    ],
)
async def test_why_there_is_no_connection_is_known(
    told: Workspace, token: str, api: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Connection(told.clock)
    api, refuse = api or f"{told.url}api/", refuse_told
    taking = listen(token, api, take=refuse, show=refuse, answer=refuse_command, connection=connection)
    listening = asyncio.create_task(taking)
    try:
        state = await state_of(connection, is_open=False, why=why)
        assert state.since == told.clock()
        assert token not in state.why
    finally:
        listening.cancel()
    assert "Failed to connect" not in caplog.text, "a traceback of each attempt"


def test_a_connection_is_open_since_it_was_opened_last() -> None:
    times = iter(NOW + timedelta(minutes=n) for n in range(9))
    connection = Connection(lambda: next(times))
    assert connection.state == Listening(is_open=False, since=NOW)
    connection.note(is_open=False, why="the network")
    assert connection.state == Listening(is_open=False, since=NOW, why="the network")
    connection.note(is_open=True, why="the network")
    connection.note(is_open=True, why="the network")
    assert connection.state == Listening(is_open=True, since=NOW + timedelta(minutes=1))
    connection.note(is_open=False, why="the token")
    assert connection.state == Listening(is_open=False, since=NOW + timedelta(minutes=2), why="the token")


class Told(Connection):
    """Keeps all that it was told of."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.clock)
        self.noted: list[tuple[bool, str]] = []

    def note(self, *, is_open: bool, why: str) -> None:
        self.noted.append((is_open, why))
        super().note(is_open=is_open, why=why)


async def test_that_a_connection_is_not_opened_is_said_after_a_while(
    told: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "LOOK", 0.05)
    monkeypatch.setattr(connection_module, "OPENS_WITHIN", 0.5)
    told.sockets_at, connection, refuse = NOWHERE, Told(told), refuse_told
    taking = listen(
        APP_TOKEN, f"{told.url}api/", take=refuse, show=refuse, answer=refuse_command, connection=connection
    )
    listening = asyncio.create_task(taking)
    try:
        await state_of(connection, is_open=False, why=f"{NOT_OPENED} (ClientConnectorError)")
    finally:
        listening.cancel()
    silent = [one for one in connection.noted if one == (False, "")]
    assert len(silent) > 2, "it might have been about to open"


async def test_a_connection_that_slack_renews_is_nothing_to_be_said(
    told: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "LOOK", 0.0)
    connection, refuse = Told(told), refuse_told
    taking = listen(
        APP_TOKEN, f"{told.url}api/", take=refuse, show=refuse, answer=refuse_command, connection=connection
    )
    listening = asyncio.create_task(taking)
    try:
        for _ in range(3):
            await told.connected()
            await state_of(connection, is_open=True)
            await told.disconnect()
        await told.connected()
        await state_of(connection, is_open=True)
    finally:
        listening.cancel()
    assert (False, "") in connection.noted
    assert {why for _, why in connection.noted} == {""}


async def test_a_click_by_the_connection_is_kept_and_acknowledged(site: Site, told: Workspace) -> None:
    take, answer = clicks(site, told).take, refuse_command
    connection = Connection(told.clock)
    api = f"{told.url}api/"
    taking = listen(APP_TOKEN, api, take=take, show=refuse_told, answer=answer, connection=connection)
    listening = asyncio.create_task(taking)
    try:
        await told.connected()
        assert await state_of(connection, is_open=True) == Listening(is_open=True, since=told.clock())
        await told.click(told.messages[0], f"it/{INCIDENT}/{FIRST}")
        await told.disconnect()
        await told.connected()
        await told.click(told.messages[0], f"not_it/{INCIDENT}/{NONE}", username="bob")
        async with asyncio.timeout(20):
            while len(told.acknowledged) < 2:  # noqa: ASYNC110 - of another's list
                await asyncio.sleep(0.02)
    finally:
        listening.cancel()
    assert await said(site) == {(FIRST, "it", "alice in Slack"), (NONE, "not it", "bob in Slack")}


async def test_who_is_of_another_workspace_says_nothing(site: Site, told: Workspace) -> None:
    payload = await told.click(told.messages[0], f"it/{INCIDENT}/{FIRST}", team_id="T9999999999")
    await clicks(site, told).take(payload)
    assert await said(site) == set()
    (whisper,) = told.whispers
    assert (whisper["user"], whisper["channel"]) == ("U0000000001", CHANNEL)
    assert "Only members of the workspace" in whisper["text"]


async def test_of_an_incident_that_is_forgotten_they_are_told_so(site: Site, told: Workspace) -> None:
    payload = await told.click(told.messages[0], f"it/{INCIDENT}/{FIRST}")
    payload["actions"][0]["value"] = f"it/{'0' * 12}/{FIRST}"
    await clicks(site, told).take(payload)
    assert "does not know this incident any more" in told.whispers[0]["text"]
    told.channels.clear()
    await clicks(site, told).take(payload)  # who cannot be told is not a reason to fail


async def test_of_an_incident_that_was_merged_they_are_led_to_the_other(site: Site, told: Workspace) -> None:
    payload = await told.click(told.messages[0], f"it/{INCIDENT}/{FIRST}")
    part = replace(world.incident(), status="merged", merged_into="1" * 12)
    for incident, asks in ((part, f"it/{INCIDENT}/{FIRST}"), (part, f"more/{INCIDENT}"), (world.incident(), "")):
        async with site.database.write.begin() as conn:
            await incidents.save_incident(conn, incident)
        payload["actions"][0]["value"] = asks
        await clicks(site, told).take(payload)
    assert await said(site) == set()
    verdict, more = (whisper["text"] for whisper in told.whispers)
    onward = f"It is a part of <{HOST}/incidents/{'1' * 12}|another incident> now, where its alerts are."
    assert verdict == f"{onward} Say it of that one: nothing was kept of this."
    assert more == onward


def signed(payload: object, *, secret: str = SECRET, late: float = 0) -> dict[str, Any]:
    """A request as Slack signs it."""
    body = urlencode({"payload": json.dumps(payload)}).encode()
    at = f"{NOW.timestamp() + late:.0f}"
    signature = hmac.digest(secret.encode(), f"v0:{at}:".encode() + body, "sha256").hex()
    headers = {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={signature}"}
    return {"content": body, "headers": headers | {"Content-Type": "application/x-www-form-urlencoded"}}


def client(site: Site, made: Workspace, *, secret: str = SECRET) -> httpx2.AsyncClient:
    """Somebody outside, without a token."""
    told_by = dataclasses.replace(
        deps(site.database),
        clock=lambda: NOW,
        slack=Slack(CHANNEL, signing_secret=secret),
        take_click=clicks(site, made).take,
    )
    transport = httpx2.ASGITransport(app=create_app(told_by), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=HOST)


async def test_a_click_that_slack_signs_is_kept(site: Site, told: Workspace) -> None:
    payload = await told.click(told.messages[0], f"not_it/{INCIDENT}/{SECOND}")
    async with client(site, told) as outside:
        for _ in range(2):  # twice is as once
            answer = await outside.post("/intake/slack", **signed(payload))
            assert (answer.status_code, answer.content) == (200, b"")
    assert await said(site) == {(SECOND, "not it", "alice in Slack")}


async def test_what_is_not_signed_just_now_is_refused(site: Site, told: Workspace) -> None:
    payload = await told.click(told.messages[0], f"it/{INCIDENT}/{FIRST}")
    good = signed(payload)
    wrong = [
        (signed(payload, secret="another-secret-of-16"), "is FORESHOCK_SLACK_SIGNING_SECRET the app's?"),
        (signed(payload, late=-301), "more than five minutes off"),
        (signed(payload, late=301), "more than five minutes off"),
        (good | {"content": good["content"] + b"&x=1"}, "is not that of this body"),
        (good | {"headers": good["headers"] | {"X-Slack-Request-Timestamp": "soon"}}, "is no time in seconds"),
        (good | {"headers": good["headers"] | {"X-Slack-Request-Timestamp": "9" * 5000}}, "is no time in seconds"),
        (good | {"headers": good["headers"] | {"X-Slack-Signature": b"v0=\xc3\xa9"}}, "is not that of this body"),
        (good | {"headers": {}}, "is no time in seconds"),
    ]
    async with client(site, told) as outside:
        for request, words in wrong:
            answer = await outside.post("/intake/slack", **request)
            assert answer.status_code == 401
            assert words in answer.json()["detail"]
            assert SECRET not in answer.text
    async with client(site, told, secret="") as outside:
        answer = await outside.post("/intake/slack", **good)
    assert answer.status_code == 401
    assert "FORESHOCK_SLACK_SIGNING_SECRET is not set" in answer.json()["detail"]
    assert await said(site) == set()


@pytest.mark.parametrize(
    "payload", [None, [], "x", {}, {"type": "block_actions"}, {"type": "block_actions", "actions": 1}]
)
async def test_what_slack_does_not_send_is_refused(site: Site, told: Workspace, payload: object) -> None:
    async with client(site, told) as outside:
        answer = await outside.post("/intake/slack", **signed(payload))
    assert answer.status_code == 400
    assert "this is not what Slack sends" in answer.json()["detail"]


async def test_who_asks_for_more_is_shown_the_other_suspects(site: Site, told: Workspace) -> None:
    one = world.ranking().suspects[0]
    many = tuple(replace(one, rank=n, probability=0.9 / n) for n in range(1, 14))
    async with site.database.write.begin() as conn:
        at = world.ALERT_AT + timedelta(minutes=30)
        await incidents.save_ranking(conn, replace(world.ranking(), suspects=many, ranked_at=at))
    at_first = told.messages[0]
    assert "Show more" not in str(at_first["blocks"]), "there were no more"
    later = Sender(site.database.write, clicks(site, told).slack, CHANNEL, HOST, lambda: NOW + timedelta(seconds=5))
    await later.find()
    await later.send()
    payload = await told.click(told.messages[0], f"more/{INCIDENT}")
    await clicks(site, told).take(payload)
    (shown,) = told.whispers
    assert shown["user"] == "U0000000001"
    blocks = str(shown["blocks"])
    assert [f"*{n}.  <" in blocks for n in range(3, 12)] == [False, *[True] * 7, False]
    assert blocks.count("kubectl rollout undo deployments.apps/checkout-api -n payments") == 7
    assert f"3 others <{HOST}/incidents/{INCIDENT}|on the page>" in blocks
    assert await said(site) == set()
    async with site.database.write.begin() as conn:
        await conn.execute(text("DELETE FROM rankings"))
    await clicks(site, told).take(payload)
    assert "its ranking, of" in str(told.whispers[-1]), "it was said that the incident is not known any more"


async def test_a_reaction_to_an_incident_mutes_nothing_and_who_reacted_is_told(site: Site, told: Workspace) -> None:
    mutes = Mutes(site.database.write, clicks(site, told).slack, lambda: NO_ROUTES, lambda: NOW)
    item = {"type": "message", "channel": CHANNEL, "ts": told.messages[0]["ts"]}
    for kind in ("reaction_added", "reaction_removed"):
        await mutes.take({"event": {"type": kind, "reaction": REACTION, "user": "U0000000001", "item": item}})
    (whisper,) = told.whispers
    assert whisper["user"] == "U0000000001"
    assert "incidents are told at any time: nothing is muted" in whisper["text"]
