"""What is asked in Slack is answered to who asked alone, whichever way it comes, and in one channel only."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from msgspec.structs import replace as changed
from sqlalchemy.ext.asyncio import create_async_engine

from app.core.model import Batch
from app.core.routes import NO_ROUTES, Route, Routes, What
from app.notify import commands as module
from app.notify.commands import Commands
from app.notify.connection import Connection, listen
from app.notify.mutes import Mutes
from app.notify.slack import slack
from app.store import incidents
from app.store.record import record
from app.web.deps import Slack, refuse_command, refuse_told
from app.web.routes import create_app
from tests.notify.double import APP_TOKEN, CHANNEL, NOWHERE, TOKEN, Json, Workspace, workspace
from tests.web import world
from tests.web.conftest import HOST, Site, deps, site

__all__ = ["site"]
SECRET = "of-the-app-0123456789"
NOW = world.END


@pytest.fixture
async def told() -> AsyncIterator[Workspace]:
    """A workspace in one of whose channels incidents are told."""
    async with workspace(lambda: NOW) as made:
        yield made


def commands(site: Site, routes: Routes = NO_ROUTES, home: str = CHANNEL, now: datetime = NOW) -> Commands:
    mutes = Mutes(site.database.write, slack(TOKEN, NOWHERE), lambda: routes, lambda: now)
    return Commands(site.database.read, home, HOST, lambda: now, mutes)


async def answered(site: Site, told: Workspace, text: str, **other: str) -> str:
    return told.shown(await commands(site).answer(await told.ask(text, **other)))


@pytest.mark.parametrize("text", ["what-changed", "incident", "who-calls", "mute 1h"])
async def test_a_database_that_is_slow_or_away_is_said_before_slack_gives_up(
    site: Site, told: Workspace, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.WITHIN < 3
    monkeypatch.setattr(module, "WITHIN", 0.2)
    asking = answered(site, told, text)
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql("LOCK TABLE clusters, slack_mutes IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(4):  # PostgreSQL itself gives up after five seconds
            shown = await asking
    assert "database does not answer in time: ask again" in shown
    away = create_async_engine("postgresql+psycopg://127.0.0.1:1/nobody")
    lost = replace(commands(site), engine=away, mutes=replace(commands(site).mutes, engine=away))
    assert "database does not answer in time" in told.shown(await lost.answer(await told.ask(text)))


async def test_what_changed(site: Site, told: Workspace) -> None:
    shown = await answered(site, told, "what-changed")
    assert "2026-11-20 13:33:45 to 14:03:45 UTC: 91 changes, the newest" in shown
    assert "TIME     NAMESPACE        CHANGE" in shown
    shown = await answered(site, told, "what-changed payments 2m cluster=shop")
    rows = [line.split() for line in shown.split("\n")[2:] if line[:2] == "14"]
    assert len(rows) > 3
    assert {row[1] for row in rows} == {"payments"}
    assert f"{HOST}/changes?cluster=shop&namespace=payments&from=2026-11-20T14%3A01%3A45" in shown


async def test_what_a_link_leads_to_shows_the_same(site: Site, told: Workspace) -> None:
    shown = await answered(site, told, "what-changed payments 2m cluster=shop")
    address = shown.split(f"<{HOST}")[1].split("|")[0]
    page = await site.client("viewer").get(address)
    assert page.status_code == 200
    assert "v1.42.0" in page.text


async def test_incidents(site: Site, told: Workspace) -> None:
    shown = await answered(site, told, "incident")
    assert f"<{HOST}/incidents/{world.incident().id}|" in shown
    assert "Likeliest: Deployment checkout-api (" in shown
    assert "for 31 s" in shown
    answer = await commands(site).answer(await told.ask("incident"))
    assert answer["text"] == "one incident open"
    assert "No incident is open" not in shown


async def test_more_incidents_than_are_listed(site: Site, told: Workspace) -> None:
    async with site.database.write.begin() as conn:
        for number in range(11):
            one = changed(world.incident(), id=f"{number:012x}", title=f"<!here> & <b>{number}</b>", alerts=())
            await incidents.save_incident(conn, one)
    shown = await answered(site, told, "incidents")
    assert "Those that began last." in shown
    assert "&lt;!here&gt; &amp; &lt;b&gt;" in shown
    assert "<!here>" not in shown
    assert "Not ranked yet." in shown
    answer = await commands(site).answer(await told.ask("incidents"))
    assert answer["text"] == "More than 10 incidents open"
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql("DELETE FROM incidents WHERE starts_with(id, '0000000000')")


async def test_who_calls(site: Site, told: Workspace) -> None:
    shown = await answered(site, told, "who-calls 1m")
    assert "shop: the 1 min to 2026-11-20 14:03:45 UTC, beside the 1 min before" in shown
    lines = shown.split("\n")
    (title,) = [line for line in lines if "BEFORE/s" in line]
    assert title.split() == ["NOW/s", "BEFORE/s", "FAILED/s", "WHO", "VERB", "WHAT"]
    figures = [line.split() for line in lines[lines.index(title) + 1 :]]
    assert figures[0][:3] == ["40", "0", "4"], shown
    assert "nobody called for it" in await answered(site, told, "who-calls 1m nodes")
    assert "recorded no further" not in shown


@pytest.mark.parametrize("name", ["serviceaccount", "ServiceAccounts", "sa"])
async def test_who_calls_for_what_is_named_as_to_kubectl(site: Site, told: Workspace, name: str) -> None:
    shown = await answered(site, told, f"who-calls 1m {name}")
    assert shown == await answered(site, told, "who-calls 1m serviceaccounts")
    assert "nobody called for it" not in shown


async def test_that_nobody_counted_is_not_that_nobody_called(site: Site, told: Workspace) -> None:
    later = commands(site, now=NOW + timedelta(minutes=7))
    shown = told.shown(await later.answer(await told.ask("who-calls 5m")))
    assert "the audit log is recorded no further" in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "what-changed [30m] [namespace]"),
        ("help", "who-calls [5m] [resource]"),
        ("reboot now", "There is no command 'reboot'."),
        ("<!channel>", "There is no command '&lt;!channel&gt;'."),
        ("what-changed 5m 10m", "One length of time"),
        ("what-changed cluster=a cluster=b", "and one cluster"),
        ("what-changed payments growth", "What is meant by 'growth'?"),
        ("what-changed 999999d", "is not between 5 seconds and 400 days"),
        ("what-changed 1s", "is not between 5 seconds and 400 days"),
        ("what-changed 1h1d", "is no length of time"),
        ("what-changed 30M", "A length of time is written 30m, not 30M."),
        ("what-changed 2hours", "A length of time is written 2h, not 2hours."),
        ("what-changed 3scale", "no namespace '3scale' is recorded"),
        ("what-changed &lt;payment&gt;", "no namespace '&lt;payment&gt;' is recorded; the nearest: payments"),
        ("“”", "what-changed [30m] [namespace]"),
        ("what-changed payment", "no namespace 'payment' is recorded; the nearest: payments"),
        ("what-changed cluster=moon", "there is no cluster 'moon'"),
        ("who-calls 7h", "Calls of at most 6 h"),
        ("who-calls unicorns", "no resource 'unicorns' is known, and none was ever called"),
        (
            "who-calls serviceacounts",
            "no resource 'serviceacounts' is known, and none was ever called; the nearest: serv",
        ),
        ("incident payments", "only cluster=NAME can be said"),
        ("incident cluster=moon", "there is no cluster 'moon'"),
        ("what-changed \x00", "must not hold the character U+0000"),
    ],
)
async def test_what_is_not_understood_is_said(site: Site, told: Workspace, text: str, words: str) -> None:
    shown = await answered(site, told, text)
    assert words in shown
    assert "<!channel>" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "what-changed “2m” ‘payments’ cluster=“shop”",
        "what-changed\u00a02m\u202fpayments cluster=shop",
        "What-Changed \u200b2m `payments`\u200e cluster=shop",
    ],
)
async def test_what_keyboards_put_around_words_is_no_part_of_them(site: Site, told: Workspace, text: str) -> None:
    """Smart quotes, no-break spaces, and what is pasted and not seen."""
    shown = await answered(site, told, text)
    assert "namespace=payments" in shown
    assert "cluster=shop" in shown


async def test_with_several_clusters_one_is_named(site: Site, told: Workspace) -> None:
    async with site.database.write.begin() as conn:
        await record(conn, Batch("annex", changes=(changed(world.a_change(cluster="annex"), at=NOW),)))
    try:
        assert "Say which cluster: cluster=annex" in await answered(site, told, "who-calls")
        assert "annex: the 5 min to" in await answered(site, told, "who-calls cluster=annex")
        assert "it takes an audit log" in await answered(site, told, "who-calls cluster=annex")
    finally:
        async with site.database.write.begin() as conn:
            await conn.exec_driver_sql(
                "DELETE FROM recorded WHERE cluster_id = (SELECT id FROM clusters WHERE name = 'annex')"
            )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("what-changed here", "91 changes, the newest"),
        ("what-changed Here", "91 changes, the newest"),
        ("what-changed payments 2m here", "namespace=payments"),
        ("incident here", "Likeliest: Deployment checkout-api ("),
        ("who-calls 1m cluster=shop here", "shop: the 1 min to"),
    ],
)
async def test_with_here_the_channel_sees_the_answer(site: Site, told: Workspace, text: str, words: str) -> None:
    assert words in told.shown(await commands(site).answer(await told.ask(text)), to="in_channel")


@pytest.mark.parametrize("text", ["reboot here", "what-changed here 5m", "what-changed 5m 10m here", "what-changed"])
async def test_what_is_not_understood_or_not_for_all_is_told_to_who_asked(
    site: Site, told: Workspace, text: str
) -> None:
    assert await answered(site, told, text)


async def test_elsewhere_here_shows_nobody_anything(site: Site, told: Workspace) -> None:
    shown = await answered(site, told, "what-changed here", channel_id="C9999999999")
    assert "checkout-api" not in shown


async def test_elsewhere_nothing_is_told(site: Site, told: Workspace) -> None:
    shown = await answered(site, told, "what-changed", channel_id="C9999999999")
    assert f"Foreshock answers in <#{CHANNEL}>, and where all incidents" in shown
    assert "checkout-api" not in shown


@pytest.fixture
async def annex(site: Site) -> AsyncIterator[None]:
    """A second cluster."""
    async with site.database.write.begin() as conn:
        await record(conn, Batch("annex", changes=(changed(world.a_change(cluster="annex"), at=NOW),)))
    yield
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql(
            "DELETE FROM recorded WHERE cluster_id = (SELECT id FROM clusters WHERE name = 'annex')"
        )


@pytest.mark.usefixtures("annex")
@pytest.mark.parametrize(
    ("clusters", "text", "says", "never"),
    [
        (("shop",), "what-changed", "cluster=shop", "cluster=annex"),
        (("shop",), "what-changed cluster=shop", "cluster=shop", "annex"),
        (("shop",), "incident", "checkout-api", "annex"),
        (("annex",), "incident", "No incident is open", "checkout-api"),
        (("annex",), "what-changed", "cluster=annex", "checkout-api"),
        (("annex",), "what-changed cluster=shop", "it may be asked of annex", "checkout-api"),
        (("annex",), "what-changed cluster=moon", "it may be asked of annex", "shop"),
        (("*",), "incident", "checkout-api", "Not here"),
        (("nobodys",), "incident", "where all incidents or all changes of a cluster are told", "checkout-api"),
    ],
)
async def test_where_incidents_of_a_cluster_are_told_it_may_be_asked_of_that_alone(
    site: Site, told: Workspace, clusters: tuple[str, ...], text: str, says: str, never: str
) -> None:
    routes = Routes((Route("C0000000009", (What.INCIDENTS,), clusters=clusters),))
    answer = await commands(site, routes, home="").answer(await told.ask(text, channel_id="C0000000009"))
    shown = told.shown(answer)
    assert says in shown
    assert never not in shown.replace("what-changed", "")
    assert "<#>" not in shown


@pytest.mark.parametrize("missing", ["text", "channel_id", "command"])
async def test_what_slack_does_not_send_is_refused(site: Site, told: Workspace, missing: str) -> None:
    payload = await told.ask("incident")
    payload[missing] = {} if missing != "command" else ""
    with pytest.raises(ValueError, match="no slash command of Slack"):
        await commands(site).answer(payload)


async def test_a_command_by_the_connection_is_answered(site: Site, told: Workspace) -> None:
    take, answer = refuse_told, commands(site).answer
    api, connection = f"{told.url}api/", Connection(told.clock)
    taking = listen(APP_TOKEN, api, take=take, show=refuse_told, answer=answer, connection=connection)
    listening = asyncio.create_task(taking)
    try:
        await told.connected()
        await told.ask("incident")
        await told.ask("what-changed", channel_id="")
        async with asyncio.timeout(20):
            while len(told.acknowledged) < 2:  # noqa: ASYNC110 - of another's list
                await asyncio.sleep(0.02)
    finally:
        listening.cancel()
    elsewhere, here = sorted((told.shown(one) for one in told.answers), key=lambda shown: "checkout-api" in shown)
    assert "checkout-api" in here
    assert f"answers in <#{CHANNEL}>, and where" in elsewhere


def signed(payload: Json) -> dict[str, Any]:
    body = urlencode(payload).encode()
    at = f"{NOW.timestamp():.0f}"
    signature = hmac.digest(SECRET.encode(), f"v0:{at}:".encode() + body, "sha256").hex()
    headers = {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={signature}"}
    return {"content": body, "headers": headers | {"Content-Type": "application/x-www-form-urlencoded"}}


async def test_a_command_that_slack_signs_is_answered(site: Site, told: Workspace) -> None:
    told_by = replace(
        deps(site.database),
        clock=lambda: NOW + timedelta(seconds=1),
        slack=Slack(CHANNEL, signing_secret=SECRET),
        answer_command=commands(site).answer,
    )
    transport = httpx2.ASGITransport(app=create_app(told_by), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url=HOST) as outside:
        answer = await outside.post("/intake/slack", **signed(await told.ask("")))
        assert answer.status_code == 200
        assert "what-changed [30m]" in told.shown(answer.json())
        unsigned = await outside.post("/intake/slack", content=signed(await told.ask("incident"))["content"])
        assert unsigned.status_code == 401
        assert "checkout-api" not in unsigned.text
        broken = await outside.post("/intake/slack", **signed({"command": "/foreshock", "text": "incident"}))
        assert broken.status_code == 400


async def test_who_tells_slack_nothing_answers_nothing() -> None:
    with pytest.raises(ValueError, match="is told nothing by Slack"):
        await refuse_command({})
