"""Links to Foreshock in the channel are shown what they lead to; others, and links elsewhere, are left alone."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
from msgspec.structs import replace as replace_struct
from sqlalchemy import text

from app.core.model import Batch
from app.core.routes import NO_ROUTES, Route, Routes, What
from app.notify.connection import Connection, listen
from app.notify.links import LISTED, Links
from app.notify.slack import slack
from app.store import incidents
from app.store.record import record
from app.web.addresses import Addresses
from app.web.deps import Slack, refuse_command, refuse_told
from app.web.filters import object_path
from app.web.routes import create_app
from tests.notify.double import APP_TOKEN, CHANNEL, TOKEN, Json, Workspace, workspace
from tests.web import world
from tests.web.conftest import HOST, Site, deps, site

__all__ = ["site"]
SECRET = "of-the-app-0123456789"
NOW = world.END
INCIDENT = f"{HOST}/incidents/{world.incident().id}"
CHANGE = f"{HOST}/changes/{world.CULPRIT.id}"


@pytest.fixture
async def told() -> AsyncIterator[Workspace]:
    async with workspace(lambda: NOW) as made:
        yield made


def links(site: Site, told: Workspace, routes: Routes = NO_ROUTES) -> Links:
    asks = Addresses(lambda: NOW)
    told_by = slack(TOKEN, f"{told.url}api/")
    return Links(site.database.read, told_by, CHANNEL, HOST, lambda: NOW, asks, routes=lambda: routes)


async def unfurled(site: Site, told: Workspace, *urls: str, **other: str) -> dict[str, str]:
    await links(site, told).take(await told.share(*urls, **other))
    return {
        url: json.dumps(one, ensure_ascii=False) for shown in told.unfurled for url, one in shown["unfurls"].items()
    }


async def test_an_incident_and_a_change_are_shown(site: Site, told: Workspace) -> None:
    found = await unfurled(site, told, INCIDENT, f"{CHANGE}?from=x#diff")
    assert set(found) == {INCIDENT, f"{CHANGE}?from=x#diff"}
    assert "*open*, since" in found[INCIDENT]
    assert "Likeliest: Deployment checkout-api (" in found[INCIDENT]
    shown = found[f"{CHANGE}?from=x#diff"]
    assert "image of checkout-api: v1.41.0 → v1.42.0" in shown
    assert "Deployment in payments" in shown
    assert "spec.template.metadata.annotations" in shown
    assert told.unfurled[0]["unfurl_id"] == "C123456.1795000000.000100.abc"


async def test_an_object_is_shown_with_its_last_change(site: Site, told: Workspace) -> None:
    url = f"{HOST}{object_path(world.CULPRIT.resource)}?at=x"
    found = await unfurled(site, told, url)
    assert "*Deployment checkout-api* in payments, cluster *shop*" in found[url]
    assert "image of checkout-api: v1.41.0 → v1.42.0" in found[url]


async def test_a_list_of_changes_is_shown_with_its_newest(site: Site, told: Workspace) -> None:
    mine = f"{HOST}/changes?cluster=shop&namespace=payments&kind=deployment&text=checkout-api&from=&after=1f.2a"
    none, all_of_them = f"{HOST}/changes?namespace=nobodys", f"{HOST}/changes"
    found = await unfurled(site, told, mine, none, all_of_them)
    assert "image of checkout-api: v1.41.0 → v1.42.0>, Deployment in payments, by argocd" in found[mine]
    assert f"{HOST}/changes/{world.CULPRIT.id}|" in found[mine]
    assert "older ones" not in found[mine].lower()
    assert "No change that is recorded fits." in found[none]
    assert found[all_of_them].count("• ") == LISTED
    assert "and older ones" in found[all_of_them]


async def test_the_first_page_is_shown_with_what_is_open(site: Site, told: Workspace) -> None:
    urls = f"{HOST}/", HOST, f"{HOST}/incidents", f"{HOST}/?cluster=shop&after=1f.2a"
    found = await unfurled(site, told, *urls)
    assert set(found) == {*urls}
    for shown in found.values():
        assert f"{INCIDENT}|" in shown
        assert "*open*, since" in shown


async def test_where_nothing_is_open_that_is_said(site: Site, told: Workspace) -> None:
    async with site.database.write.begin() as conn:
        await incidents.save_incident(conn, replace_struct(world.incident(), status="resolved", resolved_at=NOW))
    found = await unfurled(site, told, f"{HOST}/")
    assert "No incident is open." in found[f"{HOST}/"]


async def test_a_control_plane_is_shown_with_who_called_then(site: Site, told: Workspace) -> None:
    page = f"{HOST}/clusters/shop/control-plane"
    day, minute = f"{page}?minus=1d", f"{page}?from={world.START:%Y-%m-%dT%H:%M:%SZ}&to={world.END:%Y-%m-%dT%H:%M:%SZ}"
    found = await unfurled(site, told, page, day, minute)
    assert "shop: the 1 h to " in found[page]
    assert "shop: the 6 h to " in found[day]
    assert "WHO" in found[minute]


async def test_a_graph_is_shown_as_a_table(site: Site, told: Workspace) -> None:
    when = f"from={world.START:%Y-%m-%dT%H:%M:%SZ}&to={world.END:%Y-%m-%dT%H:%M:%SZ}"
    calls = f"{HOST}/explore?of=calls&cluster=shop&by=verb&metric=&{when}"
    promql = f"{HOST}/explore?of=promql&promql=up%7Bjob%3D%22api%22%7D&{when}"
    nothing = f"{HOST}/explore?metric=unheard_of&{when}"
    found = await unfurled(site, told, calls, promql, nothing)
    assert "shop: rate of calls by verb, to 20" in found[calls]
    assert re.search(r"LAST +AT +HIGHEST +AT +OF\\n +[0-9.]+/s  \d\d:\d\d:\d\d", found[calls])
    told_when = f"{world.START:%Y-%m-%d %H:%M:%S} to {world.END:%H:%M:%S} UTC"
    assert f'shop: what its Prometheus answers, {told_when}, to\\nup{{job=\\"api\\"}}\\nthe page' in found[promql]
    assert "nothing was measured of it then" in found[nothing]


async def test_of_a_merged_incident_it_is_shown_where_it_went(site: Site, told: Workspace) -> None:
    part = replace_struct(world.incident(), id="0000000000ce", status="merged", merged_into=world.incident().id)
    async with site.database.write.begin() as conn:
        await incidents.save_incident(conn, part)
    url = f"{HOST}/incidents/{part.id}"
    found = await unfurled(site, told, url)
    assert f"It is a part of <{INCIDENT}|another incident> now" in found[url]
    assert "anked" not in found[url]


async def test_of_an_incident_whose_ranking_is_forgotten_no_suspect_is_shown(site: Site, told: Workspace) -> None:
    async with site.database.write.begin() as conn:
        await conn.execute(text("DELETE FROM rankings"))
    found = await unfurled(site, told, INCIDENT)
    assert "No suspect of it is known." in found[INCIDENT]


@pytest.mark.parametrize(
    "url",
    [
        f"{HOST}/accuracy",
        f"{HOST}/?cluster=nobodys",
        f"{HOST}/?kind=x",
        f"{HOST}/changes?kinds=Deployment",
        f"{HOST}/changes?from=2026-11-21T14:00:00Z&to=2026-11-21T13:00:00Z",
        f"{HOST}/changes?namespace=%00",
        f"{HOST}/changes/new",
        f"{HOST}/objects/shop/apps/Deployment/payments/nobody",
        f"{HOST}/objects/shop/apps/Deployment/payments",
        f"{HOST}/objects/%00/apps/Deployment/-/%F0%9F%92%A5",
        f"{HOST}/clusters/shop",
        f"{HOST}/explore",
        f"{HOST}/explore?metric=a-b",
        f"{HOST}/explore?of=calls&cluster=nobodys",
        f"{HOST}/clusters/nobodys/control-plane",
        f"{HOST}/clusters/shop/control-plane?minus=2h&from=2026-11-21T14:00:00Z",
        f"{HOST}/clusters/shop/control-plane?to=yesterday",
        f"{HOST}/incidents/{'0' * 12}",
        f"{HOST}/changes/{'0' * 28}",
        f"{HOST}/incidents/{world.incident().id}/../../x",
        f"{HOST}.evil.example/incidents/{world.incident().id}",
        "https://elsewhere.example/incidents/0123456789ab",
    ],
)
async def test_what_leads_to_nothing_known_is_left_alone(site: Site, told: Workspace, url: str) -> None:
    assert await unfurled(site, told, url) == {}
    assert told.asked == []


@pytest.mark.parametrize(("cluster", "shows"), [("shop", True), ("annex", False)])
async def test_where_incidents_of_a_cluster_are_told_links_to_that_alone_are_shown(
    site: Site, told: Workspace, cluster: str, shows: bool
) -> None:
    async with site.database.write.begin() as conn:
        await record(conn, Batch("annex", changes=(replace_struct(world.a_change(cluster="annex"), at=NOW),)))
    of_shop = [
        INCIDENT,
        CHANGE,
        f"{HOST}{object_path(world.CULPRIT.resource)}",
        f"{HOST}/changes?cluster=shop",
        f"{HOST}/clusters/shop/control-plane",
    ]
    routes = Routes((Route("C0000000009", (What.INCIDENTS,), clusters=(cluster,)),))
    try:
        one = links(site, told, routes)
        await one.take(await told.share(*of_shop, channel="C0000000009"))
        await one.take(await told.share(f"{HOST}/changes", f"{HOST}/explore", channel="C0000000009"))
    finally:
        async with site.database.write.begin() as conn:
            await conn.exec_driver_sql(
                "DELETE FROM recorded WHERE cluster_id = (SELECT id FROM clusters WHERE name = 'annex')"
            )
    found = {url for shown in told.unfurled for url in shown["unfurls"]}
    assert found == (set(of_shop) if shows else set()), "what may be of several clusters is not shown"


async def test_elsewhere_nothing_is_shown(site: Site, told: Workspace) -> None:
    assert await unfurled(site, told, INCIDENT, channel="C9999999999") == {}


async def test_without_the_scope_it_is_only_noted(site: Site, told: Workspace) -> None:
    told.scopes.clear()
    assert await unfurled(site, told, INCIDENT) == {}
    assert told.asked == ["chat.unfurl"]


async def test_of_a_message_that_is_older_the_place_is_its_channel(site: Site, told: Workspace) -> None:
    payload = await told.share(INCIDENT)
    del payload["event"]["unfurl_id"], payload["event"]["source"]
    await links(site, told).take(payload)
    assert (told.unfurled[0]["channel"], told.unfurled[0]["ts"]) == (CHANNEL, "1795000000.000100")


async def test_another_event_is_left_alone(site: Site, told: Workspace) -> None:
    await links(site, told).take({"event": {"type": "app_mention"}})
    assert told.asked == []


@pytest.mark.parametrize("broken", [{}, {"event": None}, {"event": {"type": "link_shared"}}])
async def test_what_slack_does_not_send(site: Site, told: Workspace, broken: Json) -> None:
    with pytest.raises(ValueError, match="no event of Slack"):
        await links(site, told).take(broken)


async def test_by_the_connection(site: Site, told: Workspace) -> None:
    api, show, connection = f"{told.url}api/", links(site, told).take, Connection(told.clock)
    taking = listen(APP_TOKEN, api, take=refuse_told, show=show, answer=refuse_command, connection=connection)
    listening = asyncio.create_task(taking)
    try:
        await told.connected()
        await told.share(INCIDENT)
        async with asyncio.timeout(20):
            while not told.acknowledged:  # noqa: ASYNC110 - of another's list
                await asyncio.sleep(0.02)
    finally:
        listening.cancel()
    assert set(told.unfurled[0]["unfurls"]) == {INCIDENT}


async def test_that_slack_signs(site: Site, told: Workspace) -> None:
    told_by = replace(
        deps(site.database),
        clock=lambda: NOW,
        slack=Slack(CHANNEL, signing_secret=SECRET),
        take_event=links(site, told).take,
    )

    async def post(payload: object, *, secret: str = SECRET) -> httpx2.Response:
        body, at = json.dumps(payload).encode(), f"{NOW.timestamp():.0f}"
        signature = hmac.digest(secret.encode(), f"v0:{at}:".encode() + body, "sha256").hex()
        headers = {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={signature}"}
        sent = headers | {"Content-Type": "application/json"}
        return await outside.post("/intake/slack", content=body, headers=sent)

    transport = httpx2.ASGITransport(app=create_app(told_by), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url=HOST) as outside:
        asked = await post({"type": "url_verification", "token": "deprecated", "challenge": "3eZbrw1a"})
        assert (asked.status_code, asked.text) == (200, "3eZbrw1a")
        assert (await post(await told.share(INCIDENT))).status_code == 200
        assert (await post(await told.share(INCIDENT), secret="another-of-16-letters")).status_code == 401
        assert (await post([])).status_code == 400
    assert len(told.unfurled) == 1
