"""/foreshock mute and 🔕: what a channel is not told of for a while, said where everybody sees it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.model import Resource
from app.core.routes import Route, Routes
from app.notify.commands import Commands
from app.notify.mutes import Mutes
from app.notify.slack import slack
from app.store import audit, notices
from app.store.audit import Wanted
from app.store.notices import Mute
from tests.notify.double import CHANNEL, NOWHERE, TEAM, TOKEN, Json, mistakes
from tests.web.conftest import HOST, NOW, Site, site

__all__ = ["site"]
TEAMS = "C0000000009"
ROUTES = Routes((Route(TEAMS, namespaces=("shop",)),))


@pytest.fixture(autouse=True)
async def _nothing_muted(site: Site) -> None:
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql("DELETE FROM slack_mutes")


async def said(site: Site, text: str, channel: str = TEAMS) -> Json:
    mutes = Mutes(site.database.write, slack(TOKEN, NOWHERE), lambda: ROUTES, lambda: NOW)
    commands = Commands(site.database.read, CHANNEL, HOST, lambda: NOW, mutes)
    asked = {"command": "/foreshock", "text": text, "channel_id": channel, "user_name": "alice", "team_id": TEAM}
    answer = await commands.answer(asked)
    assert not mistakes(answer["blocks"])
    return answer


async def muted(site: Site) -> list[Mute]:
    async with site.database.read.connect() as conn:
        return await notices.read_mutes(conn, now=NOW)


@pytest.mark.parametrize(
    ("text", "lasts", "covers", "not_covers"),
    [
        ("mute", timedelta(hours=1), ("c", "payments"), None),
        ("mute 30m", timedelta(minutes=30), ("c", None), None),
        ("mute 2h payments", timedelta(hours=2), ("c", "payments"), ("c", "cart")),
        ("mute “2h” “payments”", timedelta(hours=2), ("c", "payments"), ("c", "cart")),
        ("mute payments cluster=shop", timedelta(hours=1), ("shop", "payments"), ("d", "payments")),
    ],
)
async def test_a_channel_is_muted_for_so_long(
    site: Site, text: str, lasts: timedelta, covers: tuple[str, str | None], not_covers: tuple[str, str] | None
) -> None:
    answer = await said(site, text)
    assert answer["response_type"] == "in_channel", "it is for everybody there, so everybody is told"
    assert "They are on the timeline" in answer["text"]
    (mute,) = await muted(site)
    assert (mute.channel, mute.until, mute.said_by) == (TEAMS, NOW + lasts, "alice in Slack")
    assert mute.covers(Resource(covers[0], "apps", "Deployment", covers[1], "web"))
    if not_covers:
        assert not mute.covers(Resource(not_covers[0], "apps", "Deployment", not_covers[1], "web"))
    assert "told again" in (await said(site, "unmute"))["text"]
    assert await muted(site) == []
    assert "Nothing was muted" in (await said(site, "unmute"))["text"]
    what = "/".join(part for part in (TEAMS, mute.cluster, mute.namespace) if part)
    assert await noted(site) == [
        ("unmuted in Slack", "alice in Slack", TEAMS),
        ("muted in Slack", "alice in Slack", f"{what} until {NOW + lasts:%Y-%m-%d %H:%M} UTC"),
    ]


@pytest.mark.parametrize("before", [[], ["mute 30m payments"]])
async def test_what_is_muted_still_by_what_covers_more_is_not_said_to_be_told(site: Site, before: list[str]) -> None:
    for text in ["mute 2h", *before]:
        await said(site, text)
    answer = await said(site, "unmute payments")
    assert "16:03:45 UTC> changes in payments are still not told here: `/foreshock unmute` ends it." in answer["text"]
    await said(site, "unmute")
    await said(site, "mute 2h payments")
    answer = await said(site, "unmute payments cluster=shop")
    assert "`/foreshock unmute payments` ends it" in answer["text"]
    assert "told again" in (await said(site, "unmute payments"))["text"]
    assert await muted(site) == []


async def noted(site: Site) -> list[tuple[str, str, str]]:
    """What the audit log has of it last."""
    async with site.database.read.connect() as conn:
        return [(one.action, one.who, one.about) for one in await audit.read(conn, Wanted(), before=None, limit=2)]


@pytest.mark.parametrize(
    ("text", "channel", "says"),
    [
        ("mute 90d", TEAMS, "30 days at the most"),
        ("mute a b", TEAMS, "What is meant by"),
        ("mute paymnets", TEAMS, "Nothing is recorded of a namespace 'paymnets': nothing is muted."),
        ("mute payments cluster=shpo", TEAMS, "Nothing is recorded of a cluster 'shpo': nothing is muted."),
        ("mute 30min", TEAMS, "A length of time is written 30m, not 30min."),
        ("mute", "C0000000010", "Foreshock answers in"),
        ("what-changed", TEAMS, "Foreshock answers in"),
    ],
)
async def test_what_cannot_be_muted_is_said_to_who_asked(site: Site, text: str, channel: str, says: str) -> None:
    answer = await said(site, text, channel)
    assert answer["response_type"] == "ephemeral"
    assert says in str(answer["blocks"])
    assert await muted(site) == []


async def test_a_name_that_is_in_no_namespace_mutes_no_other(site: Site) -> None:
    node = Resource("c", "", "Node", None, "web")
    mute = Mute.of(TEAMS, node, until=NOW + timedelta(days=1), said_by="alice in Slack")
    other = Mute.of(TEAMS, replace(node, api_group="example.com"), until=mute.until, said_by=mute.said_by)
    assert mute.covers(node)
    assert not mute.covers(Resource("c", "", "Node", "shop", "web"))
    async with site.database.write.begin() as conn:
        await notices.mute(conn, mute, now=NOW)
        await notices.mute(conn, other, now=NOW)
        assert await notices.unmute(conn, mute, now=NOW) == 1
    assert await muted(site) == [other]


async def test_what_was_muted_and_is_over_is_not_ended_once_more(site: Site) -> None:
    over = Mute(TEAMS, "", "payments", "", NOW - timedelta(minutes=1), "alice in Slack")
    async with site.database.write.begin() as conn:
        await notices.mute(conn, over, now=NOW - timedelta(hours=1))
    assert "Nothing was muted" in (await said(site, "unmute payments"))["text"]


REACTED: dict[str, Any] = {
    "type": "reaction_added",
    "reaction": "no_bell",
    "user": "U1",
    "item": {"type": "message", "channel": CHANNEL, "ts": "1.0"},
}


@pytest.mark.parametrize(
    "event",
    [
        REACTED,  # below a message that is none of ours
        REACTED | {"reaction": "tada"},
        REACTED | {"item": {"type": "file", "file": "F1"}},
        {"type": "link_shared"},
    ],
)
async def test_other_reactions_mute_nothing(site: Site, event: dict[str, Any]) -> None:
    await Mutes(site.database.write, slack(TOKEN, NOWHERE), lambda: ROUTES, lambda: NOW).take({"event": event})
    assert await muted(site) == []


@pytest.mark.parametrize("missing", ["reaction", "item", "user", "type"])
async def test_what_slack_does_not_send_is_refused(site: Site, missing: str) -> None:
    event = {name: value for name, value in REACTED.items() if name != missing}
    with pytest.raises(ValueError, match="no event of Slack"):
        await Mutes(site.database.write, slack(TOKEN, NOWHERE), lambda: ROUTES, lambda: NOW).take({"event": event})
