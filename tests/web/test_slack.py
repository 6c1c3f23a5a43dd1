"""The page of how Slack is told: what is not set up, waits, or failed with what to do, and sending that again."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import httpx2
import pytest
from sqlalchemy import insert, select

from app.core.routes import Quiet, Route, Routes, What
from app.core.targets import Webhook
from app.core.vitals import Listening
from app.store import audit, deliveries, notices, outbox, slack_tables
from app.store.notices import Mute
from app.web.deps import Slack
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import HOST, NOW, Site, deps, site

__all__ = ["site"]
CHANNEL = "C0123456789"
BY_SOCKET = "clicks and questions come by Socket Mode"
SHUT = Listening(is_open=False, since=NOW - timedelta(minutes=2), why="the token is not good any more (invalid_auth)")
INCIDENT = world.incident().id
WHY = "the channel is archived: unarchive it, or name another one in FORESHOCK_SLACK_CHANNEL (is_archived)"


def is_heard() -> Listening:
    return Listening(is_open=True, since=NOW)


def asking(site: Site, slack: Slack, *, role: str = "viewer") -> httpx2.AsyncClient:
    """A client of a site that tells Slack so."""
    app = create_app(replace(deps(site.database), slack=slack))
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {site.bearer[role]}"}
    return httpx2.AsyncClient(transport=transport, base_url=HOST, headers=headers)


async def keep(site: Site, *messages: dict[str, Any]) -> None:
    """The only messages that there are."""
    fixed = {"incident_id": INCIDENT, "channel": CHANNEL, "body": "", "attempts": 1, "not_before": NOW, "ts": None}
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql("DELETE FROM slack_messages")
        await outbox.name_channel(conn, CHANNEL, now=NOW)
        for part, message in enumerate(messages):
            await conn.execute(insert(slack_tables.messages).values(**fixed | {"part": part, "error": ""} | message))


async def page(client: httpx2.AsyncClient) -> str:
    answer = await client.get("/slack")
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_it_says_how_to_set_it_up(site: Site) -> None:
    async with asking(site, Slack()) as client:
        seen = await page(client)
        assert 'href="/slack"' in (await client.get("/")).text
    assert "Slack is not set up" in seen
    assert "FORESHOCK_SLACK_TOKEN=xoxb-… FORESHOCK_SLACK_CHANNEL=C0123456789" in seen


@pytest.mark.parametrize(
    ("slack", "words"),
    [
        (Slack(CHANNEL, listening=is_heard), BY_SOCKET),
        (Slack(CHANNEL, signing_secret="s" * 20), "clicks and questions come to <b>/intake/slack</b>"),
        (Slack(CHANNEL), "“This was it” does nothing yet"),
        (Slack(CHANNEL, listening=lambda: SHUT), "the token is not good any more (invalid_auth)."),
        (Slack(CHANNEL, listening=lambda: SHUT, signing_secret="s" * 20), "do not come to this process"),
        (
            Slack(CHANNEL, listening=lambda: Listening(is_open=False, since=NOW)),
            "the connection is being opened. Unless another",
        ),
    ],
)
async def test_it_says_whether_anything_waits_and_how_clicks_come(site: Site, slack: Slack, words: str) -> None:
    await keep(site, {"ts": "1.0", "attempts": 0}, {"body": "Resolved."})
    async with asking(site, slack) as client:
        seen = await page(client)
    assert words in seen
    assert ("come by Socket Mode" in seen) == (words == BY_SOCKET)
    assert "<b>1</b> message there" in seen
    assert "1 waiting" in seen
    assert "everything got through" not in seen
    assert "s" * 20 not in seen


async def test_it_says_that_everything_got_through_once_nothing_waits(site: Site) -> None:
    await keep(site, {"ts": "1.0", "attempts": 0})
    async with asking(site, Slack(CHANNEL)) as client:
        seen = await page(client)
    assert "none waiting" in seen
    assert "everything got through" in seen


NOT_REACHED = "Slack is not reached: look at the network (ClientConnectorError)"


@pytest.mark.parametrize(("seconds", "is_late"), [(30, False), (90, True)])
async def test_what_is_tried_in_vain_for_a_while_is_said_everywhere(site: Site, seconds: int, *, is_late: bool) -> None:
    """A queue that moves is no alarm."""
    since = NOW - timedelta(seconds=seconds)
    put_off = {"put_off": NOT_REACHED, "put_off_since": since}
    await keep(site, {"ts": "1.0", "attempts": 0}, {"body": "Resolved."} | put_off)
    async with asking(site, Slack(CHANNEL)) as client:
        seen, listed = await page(client), (await client.get("/")).text
        told = (await client.get("/api/v1/deliveries")).json()
    assert "1 waiting" in seen
    assert (NOT_REACHED in seen, f"</a>, to {CHANNEL}</span>" in listed) == (is_late, is_late)
    assert NOT_REACHED not in listed, "a mail server's words name addresses"
    assert ("1 message tried in vain since" in listed) == is_late
    why = {"channel": CHANNEL, "messages": 1, "why": NOT_REACHED}
    assert [{name: one[name] for name in why} for one in told["late"]] == [why] * is_late
    assert (told["waiting"], told["items"]) == (1, [])


async def test_what_is_not_sent_any_more_is_not_said_to_wait(site: Site) -> None:
    """Of an incident that was told up to eight days ago nothing is tried any more."""
    put_off = {"put_off": NOT_REACHED, "put_off_since": NOW - timedelta(hours=1)}
    await keep(site, put_off)
    async with site.database.read.connect() as conn:
        for at, waits in ((NOW, 1), (NOW + outbox.KEPT, 0)):
            delivery = await deliveries.read_delivery(conn, suspected=False, now=at)
            assert (delivery.waiting, len(delivery.late)) == (waits, waits)


async def test_it_says_where_links_of_messages_lead_nowhere(site: Site) -> None:
    app = create_app(
        replace(deps(site.database, public_url="http://127.0.0.1:8000"), slack=Slack(CHANNEL, listening=is_heard))
    )
    headers = {"Authorization": f"Bearer {site.bearer['viewer']}"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HOST, headers=headers) as client:
        seen = await page(client)
    assert "Links in messages lead nowhere" in seen
    assert "http://127.0.0.1:8000" in seen
    async with asking(site, Slack(CHANNEL, listening=is_heard)) as client:
        assert "lead nowhere" not in await page(client)


async def test_what_failed_stands_there_and_is_sent_again_when_asked(site: Site) -> None:
    await keep(site, {"error": WHY}, {"error": WHY, "body": "x"})
    async with asking(site, Slack(CHANNEL, listening=is_heard)) as client:
        seen = await page(client)
        assert seen.count(WHY) == 2
        assert f'href="/incidents/{INCIDENT}"' in seen
        assert "its message" in seen
        assert "a reply" in seen
        assert "again</button>" not in seen, "a viewer sends nothing"
        assert (await client.post("/slack/again")).status_code == 403
    async with asking(site, Slack(CHANNEL, listening=is_heard), role="responder") as client:
        seen = await page(client)
        assert seen.count("Send again</button>") == 2
        assert "Send all again</button>" in seen
        answer = await client.post("/slack/again", data={"message": f"{INCIDENT}/1"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/slack")
        assert (await page(client)).count(WHY) == 1
        assert (await client.post("/slack/again")).status_code == 303
        seen = await page(client)
        assert WHY not in seen
        assert "1 waiting" in seen, "the reply waits for its message"
        for message in (f"{INCIDENT}/x", "1", f"{INCIDENT}/1/2", "", "' OR 1=1"):
            assert (await client.post("/slack/again", data={"message": message})).status_code == 422, message


async def test_who_forgets_a_message_is_bothered_by_it_no_more(site: Site) -> None:
    """Nor does it go along where all are sent again."""
    await keep(site, {"error": WHY}, {"error": WHY, "body": "x"})
    first, second = ({"message": f"{INCIDENT}/{part}"} for part in range(2))
    async with asking(site, Slack(CHANNEL)) as client:
        assert "Forget</button>" not in await page(client), "a viewer forgets nothing"
        assert (await client.post("/slack/forget", data=first)).status_code == 403
    async with asking(site, Slack(CHANNEL), role="responder") as client:
        assert (await page(client)).count("Forget</button>") == 2
        for _ in range(2):
            answer = await client.post("/slack/forget", data=first)
            assert (answer.status_code, answer.headers["location"]) == (303, "/slack")
        assert (await page(client)).count(WHY) == 1
        assert "1 message not told</a>" in (await client.get("/")).text
        assert (await client.post("/slack/forget", data=second)).status_code == 303
        assert '<a href="/slack">Slack</a>' in (await client.get("/")).text
        assert (await client.post("/slack/again")).status_code == 303
        assert [error for *_, error in await kept(site)] == [WHY, WHY]
        for message in ("", f"{INCIDENT}/x", "' OR 1=1"):
            assert (await client.post("/slack/forget", data={"message": message})).status_code == 422, message
        assert (await client.post("/slack/forget")).status_code == 422
    async with site.database.read.connect() as conn:
        found = await audit.read(conn, audit.Wanted(action=audit.Action.FORGOTTEN), before=None, limit=9)
    assert sorted(one.about for one in found) == [f"{INCIDENT}/0", f"{INCIDENT}/1"], "once each"


@pytest.mark.parametrize(
    ("messages", "part", "days", "status", "over"),
    [
        ([{"ts": None}], 0, 6, "open", ""),
        ([{"ts": None}], 0, 8, "open", outbox.OLD),
        ([{"ts": "1.0"}], 0, 8, "open", outbox.OLD),
        ([{"ts": "1.0", "error": ""}, {"body": "x"}], 1, 8, "open", ""),
        ([{"ts": None}, {"body": "x"}], 1, 8, "open", outbox.OLD),
        ([{"ts": None}], 0, 1, "merged", outbox.MERGED),
        ([{"ts": "1.0"}], 0, 1, "merged", ""),
    ],
    ids=["new", "old", "an old edit", "a reply to what is there", "an old reply", "a part", "an edit of a part"],
)
async def test_what_nobody_would_send_is_not_sent_again(
    site: Site, messages: list[dict[str, Any]], part: int, days: int, status: str, over: str
) -> None:
    await keep(site, *({"error": WHY} | message for message in messages))
    set_to = "UPDATE incidents SET started_at = '{}', status = '{}' WHERE id = '{}'"
    was = world.incident()
    async with site.database.write.begin() as conn:
        began = NOW - timedelta(days=days)
        await conn.exec_driver_sql(set_to.format(began.isoformat(), status, INCIDENT))
    key = {"message": f"{INCIDENT}/{part}"}
    async with asking(site, Slack(CHANNEL), role="responder") as client:
        assert over in await page(client)
        answer = await client.post("/slack/again", data=key)
        assert answer.status_code == (409 if over else 303)
        assert over.casefold() in answer.text.casefold()
        assert not over or "none waiting" in await page(client), "what is not sent does not wait"
        await client.post("/slack/again")
        assert {error for _, number, _, error in await kept(site) if number == part} == {WHY if over else ""}
    async with site.database.write.begin() as conn:
        await conn.exec_driver_sql(set_to.format(was.started_at.isoformat(), was.status, INCIDENT))


ROUTES = Routes(
    (
        Route(CHANNEL, labels={"team": "payments"}),
        Route("C0000000002", namespaces=("pay*",), quiet=Quiet("00:00", "00:00")),
        Route("C0000000003", tell=(What.INCIDENTS,), severities=("critical",)),
    )
)


def routed(routes: Routes = ROUTES, error: str = "") -> Slack:
    return Slack(CHANNEL, listening=is_heard, routes=lambda: routes, routes_error=lambda: error)


async def asked(site: Site, query: str, slack: Slack | None = None, *, status: int = 200) -> str:
    async with asking(site, slack or routed()) as client:
        answer = await client.get(f"/slack{query}")
    assert answer.status_code == status, answer.text
    return " ".join(re.sub("<[^>]*>", " ", unescape(answer.text)).split())


async def test_the_list_of_incidents_says_how_many_messages_are_not_told(site: Site) -> None:
    await keep(site, {"error": WHY}, {"error": WHY})
    async with asking(site, Slack(CHANNEL)) as client:
        assert 'href="/slack">2 messages not told</a>' in (await client.get("/")).text
    await keep(site, {"ts": "1.0"})
    async with asking(site, Slack(CHANNEL)) as client:
        assert 'href="/slack">Slack</a>' in (await client.get("/")).text


OTHER, THIRD = "C0000000002", "C0000000003"


@pytest.mark.parametrize(
    ("slack", "goes"),
    [
        (Slack(OTHER), OTHER),
        (Slack(OTHER, routes=lambda: Routes((Route(THIRD, tell=(What.INCIDENTS,)),))), THIRD),
        (Slack(OTHER, routes=lambda: Routes((Route(CHANNEL, tell=(What.CHANGES,)),))), CHANNEL),
        (Slack(""), CHANNEL),
    ],
    ids=["another channel", "a route to a third", "the first is still told of changes", "none"],
)
async def test_what_a_channel_that_is_gone_was_not_told_goes_to_the_one_named_now(
    site: Site, slack: Slack, goes: str
) -> None:
    """As a message of its own, with a thread of its own."""
    await keep(site, {"ts": "1.0", "error": WHY, "shown": {"version": "v"}}, {"ts": "2.0", "body": "Resolved."})
    async with asking(site, slack, role="responder") as client:
        assert (await client.post("/slack/again", data={"message": f"{INCIDENT}/1"})).status_code == 303
        assert await kept(site) == [(CHANNEL, 0, "1.0", WHY), (CHANNEL, 1, "2.0", "")]
        assert (await client.post("/slack/again", data={"message": f"{INCIDENT}/0"})).status_code == 303
    first = [(CHANNEL, 0, "1.0", ""), (CHANNEL, 1, "2.0", "")]
    assert await kept(site) == (first if goes == CHANNEL else [(goes, 0, None, "")])


async def kept(site: Site) -> list[tuple[str, int, str | None, str]]:
    c = slack_tables.messages.c
    async with site.database.read.connect() as conn:
        return [tuple(row) for row in await conn.execute(select(c.channel, c.part, c.ts, c.error).order_by(c.part))]


async def test_it_shows_the_routes_and_why_a_newer_file_is_not_taken(site: Site) -> None:
    seen = await asked(site, "")
    assert "label team=payments" in seen
    assert "quiet 00:00 to 00:00 UTC" in seen
    assert "severities critical" in seen
    assert "routes.yaml:1: no good" in await asked(site, "", routed(error="routes.yaml:1: no good"))
    assert "routes: [{channel: C0123456789}]" in await asked(site, "", routed(Routes()))


async def test_a_channel_that_another_route_tells_at_once_does_not_wait(site: Site) -> None:
    routes = Routes((*ROUTES.routes, Route("C0000000002", kinds=("Deployment",))))
    seen = await asked(site, "?namespace=payments&kind=Deployment&name=web", routed(routes))
    assert "after the quiet hours" not in seen


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?namespace=payments&kind=Deployment&name=web", "To C0000000002 , in one message after the quiet hours"),
        ("?namespace=cart&kind=Deployment", "Nowhere. No route fits."),
        ("?namespace=cart", "no: the namespace is not pay*"),
        ("?namespace=cart", "no: neither it nor its namespace has the label team"),
        ("?namespace=cart", "no: it does not tell of changes"),
        ("?kind=node&namespace=payments", "no: it is in no namespace, and only pay* is told"),
        ("?kind=configmaps&namespace=payments", "Nowhere. Changes of ConfigMap are on the timeline alone."),
        ("?kind=nodes&namespace=payments", "no: it is in no namespace, and only pay* is told"),
        ("?kind=ConfigMap&namespace=payments", "Nowhere. Changes of ConfigMap are on the timeline alone."),
        (f"?change={world.CULPRIT.id}", "To C0000000002"),
        (f"?change=https://foreshock.example/changes/{world.CULPRIT.id}?x=1", "To C0000000002"),
    ],
)
async def test_it_says_where_a_change_would_go_and_why_not(site: Site, query: str, says: str) -> None:
    assert says in await asked(site, query)


async def test_without_slack_nothing_goes_to_its_channels(site: Site) -> None:
    pager = {"pager": Webhook("/etc/foreshock/secret", url="https://hooks.example.com/x")}
    both = (What.CHANGES, What.INCIDENTS)
    routes = Routes((Route(CHANNEL, tell=both), Route(target="pager", tell=both, kinds=("Node",))), pager)
    without = Slack(routes=lambda: routes)
    for query, goes in (
        ("?kind=Deployment", "Nowhere. Slack is not set up: set FORESHOCK_SLACK_TOKEN and FORESHOCK_SLACK_CHANNEL."),
        ("?kind=Node", "To pager , at once."),
        ("?severity=critical", "To pager , at once."),
    ):
        seen = await asked(site, query, without)
        assert goes in seen, query
        assert "no: Slack is not set up" in seen, query
        assert f"To {CHANNEL}" not in seen, query
        async with asking(site, without) as client:
            told = (await client.get(f"/api/v1/routing{query}")).json()
        assert told["items"][0]["why_not"].startswith("Slack is not set up")
        assert told["places"] in (None, ["pager"])


async def test_routes_that_can_never_tell_are_remarked_on(site: Site) -> None:
    silent = Routes((Route(CHANNEL, kinds=("Deploymnt",), clusters=("nosuchcluster",)), Route(CHANNEL)))
    seen = await asked(site, "", routed(silent))
    assert "no kind is called Deploymnt: is Deployment meant?" in seen
    cluster = f"nothing is recorded yet of a cluster nosuchcluster; known are {world.CLUSTER}"
    assert cluster in seen
    async with asking(site, routed(silent)) as client:
        first, second = (await client.get("/api/v1/routes")).json()["items"]
    assert cluster in first["remarks"]
    assert second["remarks"] == []


async def test_a_kind_may_be_asked_of_as_routes_name_it(site: Site) -> None:
    for kind in ("Deployment", "deployment", "deployments"):
        seen = await asked(site, f"?kind={kind}", routed(Routes((Route(CHANNEL, kinds=("Deployment",)),))))
        assert f"To {CHANNEL}" in seen, kind


async def test_what_is_muted_says_so(site: Site) -> None:
    until = NOW + timedelta(hours=1)
    async with site.database.write.begin() as conn:
        mute = Mute("C0000000002", "", "payments", "", until, "alice in Slack")
        await notices.mute(conn, mute, now=NOW)
    seen = await asked(site, "?namespace=payments")
    assert "Not to C0000000002 , muted there until" in seen
    assert "by alice in Slack" in seen
    async with site.database.write.begin() as conn:
        await notices.unmute(conn, mute, now=NOW)


async def test_a_target_that_is_turned_off_is_not_said_to_be_told_at_once(site: Site) -> None:
    pager = Route(target="pager", tell=(What.CHANGES, What.INCIDENTS))
    slack = routed(Routes((pager,), {"pager": Webhook("/etc/foreshock/secret", url="https://hooks.example.com/x")}))
    assert "To pager , at once." in await asked(site, "?kind=Deployment", slack)
    async with site.database.write.begin() as conn:
        await outbox.name_channel(conn, "pager", now=NOW)
        await outbox.turn_off(conn, "pager", "it answered 410 Gone")
    for query in ("?kind=Deployment", "?severity=critical"):
        seen = await asked(site, query, slack)
        assert "To pager , once somebody presses Send again: it is turned off." in seen
        assert "waits: it is turned off" in seen
        assert "To pager , at once" not in seen


CRITICAL = Route("C0000000003", tell=(What.INCIDENTS,), severities=("critical",))
MANY = Routes((CRITICAL, Route("C0000000004", tell=(What.INCIDENTS,)), Route("C0000000005")))


@pytest.mark.parametrize(
    ("routes", "query", "says"),
    [
        (ROUTES, "?severity=critical", "To C0000000003 , at once. critical Incident"),
        (ROUTES, "?severity=warning", f"To {CHANNEL} , at once."),
        (ROUTES, "?severity=warning", "no: the severity is not critical"),
        (ROUTES, "?severity=critical&namespace=cart", "no: it does not tell of incidents"),
        (MANY, "?severity=critical", "no: a route above tells it in a channel, and one is enough"),
        (MANY, "?severity=info", "To C0000000004 , at once."),
    ],
)
async def test_it_says_where_an_incident_would_go(site: Site, routes: Routes, query: str, says: str) -> None:
    assert says in await asked(site, query, routed(routes))


async def test_rest_says_who_is_told_of_an_incident(site: Site) -> None:
    async with asking(site, routed(MANY)) as client:
        told = (await client.get("/api/v1/routing?severity=critical")).json()
    assert told["places"] == ["C0000000003"]
    assert [one["tells"] for one in told["items"]] == [True, False, False]


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("?severity=critical&kind=Pod", 422, "is of no change"),
        ("?change=nonsense", 404, "There is no change of this id"),
        (f"?change={'f' * 28}", 404, "There is no change of this id"),
        ("?team=payments", 422, "team"),
        ("?namespace=" + "x" * 300, 422, "253"),
    ],
)
async def test_what_cannot_be_asked_is_refused(site: Site, query: str, status: int, says: str) -> None:
    assert says in await asked(site, query, status=status)
