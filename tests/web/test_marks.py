"""What a dashboard marks: everything of its time, newest first, and nothing in it is markup."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import yaml
from msgspec.structs import replace

from app.core.model import Batch, Gap
from app.store import incidents
from app.store.database import Database
from app.store.record import record
from app.web import marks
from app.web.accept import INFINITY
from tests.test_docs import ROOT
from tests.web import world
from tests.web.conftest import Site


async def asked(site: Site, **query: str) -> list[dict[str, Any]]:
    async with site.client() as grafana:
        answer = await grafana.get("/api/v1/annotations", params=query)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["freshness"]
    items: list[dict[str, Any]] = told["items"]
    assert items == sorted(items, key=lambda one: datetime.fromisoformat(one["time"]), reverse=True)
    return items


async def test_changes_incidents_and_gaps_of_a_time_are_marked(site: Site) -> None:
    async with site.database.write.begin() as conn:
        end = world.END - timedelta(minutes=1)
        gap = Gap(world.CLUSTER, "", end - timedelta(minutes=1), end, "it was <down>")
        await record(conn, Batch(world.CLUSTER, gaps=(gap,)))
    between = {"from": world.START.isoformat(), "to": (world.END + timedelta(hours=1)).isoformat()}
    items = await asked(site, cluster=world.CLUSTER, **between)
    sorts = {one["tags"].partition(",")[0] for one in items}
    assert sorts == {"change", "incident", "gap"}
    (incident,) = (one for one in items if f"/incidents/{world.incident().id}" in one["text"])
    assert (incident["title"], incident["tags"].partition(",")[0]) == (world.incident().title, "incident")
    assert datetime.fromisoformat(incident["time_end"]) == world.END, "it goes on, and is drawn until now"
    (change,) = (one for one in items if world.CULPRIT.id in one["text"])
    assert change["tags"].split(",") == ["change", world.CLUSTER, "payments", "Deployment"]
    assert change["time_end"] is None
    (gap_told,) = (one for one in items if one["tags"].startswith("gap") and "&lt;down&gt;" in one["text"])
    assert gap_told["time_end"] is not None


async def test_a_namespace_a_kind_and_another_time_narrow_them(site: Site) -> None:
    of = await asked(site, cluster=world.CLUSTER, namespace="payments", kind="Deployment")
    assert {tuple(one["tags"].split(",")[1:4]) for one in of if one["tags"].startswith("change")} == {
        (world.CLUSTER, "payments", "Deployment")
    }
    assert await asked(site, cluster=world.CLUSTER, namespace="nowhere") == [
        one for one in await asked(site, cluster=world.CLUSTER) if one["tags"].startswith("gap")
    ]
    before = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    assert [one for one in await asked(site, **before) if not one["tags"].startswith("gap")] == []
    assert len([one for one in await asked(site, limit="1") if one["tags"].startswith("change")]) == 1


async def test_an_incident_that_goes_on_is_marked_however_long_ago_its_alerts_began(
    site: Site, database: Database
) -> None:
    began = world.END - timedelta(hours=6)
    alert = replace(world.alert(), at=began, fingerprint="f6")
    goes_on = replace(world.incident(), id="f" * 12, started_at=began, alerts=(alert,), title="Goes on")
    ended = replace(goes_on, id="a" * 12, status="resolved", resolved_at=began + timedelta(hours=1), title="Ended")
    async with database.write.begin() as conn:
        for one in (goes_on, ended):
            await incidents.save_incident(conn, one)
    last_hour = {"from": (world.END - timedelta(hours=1)).isoformat(), "to": world.END.isoformat()}
    titles = [one["title"] for one in await asked(site, cluster=world.CLUSTER, **last_hour)]
    assert "Goes on" in titles
    assert "Ended" not in titles
    (marked,) = (one for one in await asked(site, cluster=world.CLUSTER, **last_hour) if one["title"] == "Goes on")
    assert datetime.fromisoformat(marked["time_end"]) == world.END


async def test_without_a_beginning_no_incident_after_the_end_is_marked(site: Site) -> None:
    until = world.incident().started_at
    for to_at, there in ((until, False), (until + timedelta(seconds=1), True)):
        items = await asked(site, cluster=world.CLUSTER, to=to_at.isoformat())
        assert any(world.incident().id in one["text"] for one in items) is there


async def test_those_that_are_only_suspected_take_no_place_of_others(site: Site, database: Database) -> None:
    suspected = replace(
        world.incident(), id="e" * 12, status="suspected", started_at=world.END - timedelta(seconds=1), alerts=()
    )
    async with database.write.begin() as conn:
        await incidents.save_incident(conn, suspected)
    between = {"from": world.START.isoformat(), "to": world.END.isoformat()}
    items = await asked(site, cluster=world.CLUSTER, limit="1", **between)
    assert [world.incident().id in one["text"] for one in items if one["tags"].startswith("incident")] == [True]


async def test_what_is_wrong_is_refused(site: Site) -> None:
    async with site.client() as grafana:
        for query in ("from=yesterday", "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "limit=0", "since=1h"):
            assert (await grafana.get(f"/api/v1/annotations?{query}")).status_code == 422, query
        iso = quote(datetime(2026, 1, 1, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"))
        assert (await grafana.get(f"/api/v1/annotations?from={iso}")).status_code == 200, "as Grafana writes times"


def test_nothing_of_a_cluster_is_markup_or_another_tag() -> None:
    odd = '<img src=x onerror=alert(1)> "x", &y'
    resource = replace(world.CULPRIT.resource, name=odd, namespace="a,b")
    change = replace(world.CULPRIT, resource=resource, summary=odd, actor=replace(world.CULPRIT.actor, name=odd))
    incident = replace(world.incident(), title=odd)
    for one in (
        marks.of_change(change, "https://f.example"),
        marks.of_incident(incident, "https://f.example", until=world.END),
    ):
        assert "<img" not in one.title + one.text
        assert one.text.count("<a href=") == 1
    assert marks.of_change(change, "").tags.split(",")[2] == "a b"


def test_the_file_that_is_shipped_provisions_the_data_source() -> None:
    (source,) = yaml.safe_load((ROOT / "deploy" / "grafana" / "datasource.yaml").read_text())["datasources"]
    assert source["type"] == "yesoreyeram-infinity-datasource"
    assert source["jsonData"]["allowedHosts"] == [source["url"]]
    assert source["secureJsonData"] == {"bearerToken": "$FORESHOCK_TOKEN"}


async def test_each_question_of_the_dashboard_that_is_shipped_is_answered(site: Site) -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text())
    (marked,) = dashboard["annotations"]["list"]
    assert [one["text"] for one in marked["target"]["columns"]] == ["time", "timeEnd", "title", "text", "tags"]
    targets = [marked["target"], *(target for panel in dashboard["panels"] for target in panel["targets"])]
    assert len(targets) == 5
    for target in targets:
        assert target["datasource"] == {"type": "yesoreyeram-infinity-datasource", "uid": "foreshock"}
        assert (target["type"], target["parser"], target["source"]) == ("json", "backend", "url")
        url = target["url"].replace("${__from:date:iso}", f"{world.START:%Y-%m-%dT%H:%M:%S}.000Z")
        url = url.replace("${__to:date:iso}", f"{world.END:%Y-%m-%dT%H:%M:%S}.000Z")
        async with site.client() as grafana:
            answer = await grafana.get(url, headers={"Accept": INFINITY})
        assert answer.status_code == 200, answer.text
        (first, *_) = answer.json()[target["root_selector"]]
        for column in target["columns"]:
            held: Any = first
            for step in column["selector"].split("."):
                assert step in held, column
                held = held[step]


async def test_each_address_and_column_of_the_manual_is_there(site: Site) -> None:
    rows = [row.split("|")[1:-1] for row in (ROOT / "docs" / "grafana.md").read_text().splitlines() if "`/api/" in row]
    tables = [row for row in rows if len(row) == 3]
    assert len(tables) == 4
    async with site.client() as grafana:
        for _, address, columns in tables:
            url = address.strip().strip("`").replace("cluster=prod", f"cluster={world.CLUSTER}")
            url = url.replace("${__from:date:iso}", f"{world.START:%Y-%m-%dT%H:%M:%S}.000Z")
            url = url.replace("${__to:date:iso}", f"{world.END:%Y-%m-%dT%H:%M:%S}.000Z")
            answer = await grafana.get(url, headers={"Accept": INFINITY})
            assert answer.status_code == 200, f"{url}: {answer.text}"
            for column in re.findall("`([a-z_.]+)`", columns):
                found = answer.json()["items"][0]
                for step in column.split("."):
                    assert step in found, f"{url}: {column}"
                    found = found[step]


async def test_incidents_of_other_namespaces_take_no_place_of_those_that_are_asked_for(
    site: Site, database: Database
) -> None:
    scope = replace(world.incident().scope, namespaces=("ledger",))
    first = replace(world.incident(), id="1" * 12, scope=scope, title="Of the ledger")
    later = world.incident().started_at + timedelta(seconds=1)
    others = [
        replace(world.incident(), id=f"{n:012x}", started_at=later, status=status, title=f"Other {n}")
        for n, status in enumerate(("open", "suspected"), 2)
    ]
    async with database.write.begin() as conn:
        for one in (first, *others):
            await incidents.save_incident(conn, one)
    window = {"from": world.START.isoformat(), "to": world.END.isoformat()}
    for times in ({}, window):
        asked_for = await asked(site, cluster=world.CLUSTER, namespace="ledger", limit="1", **times)
        assert [one["title"] for one in asked_for if one["tags"].startswith("incident")] == ["Of the ledger"]
    newest = await asked(site, cluster=world.CLUSTER, limit="1", **window)
    assert [one["title"] for one in newest if one["tags"].startswith("incident")] == ["Other 2"]
