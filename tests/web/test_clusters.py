"""How well each cluster is followed stands on its page, in REST, on every page's head and among the gaps."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from app.core.incidents.bundles import bundle
from app.core.model import Batch, Gap
from app.core.watching import Unseen, Watching
from app.store import codes, collectors, incidents, seen
from app.store.collectors import Standing
from app.store.record import record
from app.web.cluster_pages import MOST_GAPS
from tests.core.factories import an_alert
from tests.web import world
from tests.web.conftest import Site, deps, site

__all__ = ["site"]
NOW = datetime.now(UTC)
SILENT = Unseen("Pod", NOW - timedelta(minutes=5), "the API server says nothing any more")


@pytest.fixture
async def live(site: Site) -> AsyncIterator[str]:
    """A cluster that is followed, but for its pods; forgotten after the test."""
    name = f"live-{uuid4().hex[:8]}"
    async with site.database.write.begin() as conn:
        epoch = await collectors.take(conn, name, "me")
        assert epoch
        watching = Watching("v1.36.3", 64, (SILENT,), 4096, ("it may write Deployments",))
        await collectors.renew(conn, name, epoch, watching)
    yield name
    async with site.database.write.begin() as conn:
        await collectors.leave(conn, name, epoch, standing=Standing.ENDED)


async def test_the_page_says_what_is_followed_and_what_is_not_seen(site: Site, live: str) -> None:
    async with site.client() as client:
        page = (await client.get("/clusters")).text
        changes = (await client.get("/changes")).text
    for said in (
        live,
        world.CLUSTER,
        "v1.36.3, 64 kinds watched",
        "not all is seen",
        SILENT.why,
        "may write",
        "4.1 kB",
    ):
        assert said in page, said
    assert f"{live}: not all seen since" in changes


async def test_rest_says_it_and_every_answer_has_it_among_its_gaps(site: Site, live: str) -> None:
    async with site.client() as client:
        told = (await client.get("/api/v1/clusters")).json()
        now = (await client.get("/api/v1/gaps", params={"cluster": live})).json()["items"]
        before = (await client.get("/api/v1/gaps", params={"cluster": live, "to": "2026-01-01T00:00:00Z"})).json()
    found = {one["name"]: one for one in told["items"]}
    assert (found[live]["followed"], found[live]["server"], found[live]["kinds"]) == (True, "v1.36.3", 64)
    assert [gap["kind"] for gap in found[live]["unseen"]] == ["Pod"]
    assert found[world.CLUSTER] == {
        "name": world.CLUSTER, "followed": False, "server": "", "kinds": 0, "unseen": [], "remarks": [],
    }  # fmt: skip
    assert [(gap["kind"], gap["why"]) for gap in now] == [("Pod", f"not seen for now: {SILENT.why}")]
    assert before["items"] == []


async def test_a_cluster_whose_collector_is_gone_is_not_seen_at_all(site: Site, live: str) -> None:
    async with site.database.write.begin() as conn:
        await conn.execute(
            text("UPDATE collectors SET renewed_at = renewed_at - interval '1 hour' WHERE cluster_id = :id"),
            {"id": await codes.cluster(conn, live)},
        )
    async with site.client() as client:
        (gap,) = (await client.get("/api/v1/gaps", params={"cluster": live})).json()["items"]
    assert gap["kind"] == ""
    assert "no collector follows" in gap["why"]


async def test_a_cluster_that_is_followed_no_longer_is_only_told_of(site: Site, live: str) -> None:
    async with site.database.write.begin() as conn:
        epoch = await collectors.epoch_of(conn, live, "me")
        assert epoch
        await collectors.leave(conn, live, epoch, standing=Standing.ENDED)
    async with site.client() as client:
        found = {one["name"]: one for one in (await client.get("/api/v1/clusters")).json()["items"]}
        page = (await client.get("/changes")).text
    assert not found[live]["followed"]
    assert "not all seen" not in page


async def test_the_demo_is_one_click_away_for_who_may_write(site: Site) -> None:
    async def replayed() -> str:
        return "/incidents/1f3a9c0b7d21"

    made = site.app.state.deps
    site.app.state.deps = replace(deps(site.database), replay_demo=replayed)
    try:
        async with site.client("admin") as admin, site.client("viewer") as viewer:
            answer = await admin.post("/demo")
            refused = await viewer.post("/demo")
    finally:
        site.app.state.deps = made
    assert (answer.status_code, answer.headers["location"]) == (303, "/incidents/1f3a9c0b7d21")
    assert refused.status_code == 403


async def test_gaps_of_one_cluster_hide_none_of_another(site: Site) -> None:
    quiet, noisy = (f"{word}-{uuid4().hex[:8]}" for word in ("quiet", "noisy"))
    ago = [NOW - timedelta(minutes=n) for n in range(2 * seen.MOST_GAPS)]
    async with site.database.write.begin() as conn:
        at = NOW - timedelta(days=2)
        await record(conn, Batch(quiet, gaps=(Gap(quiet, "", at, at + timedelta(hours=1), "the quiet one slept"),)))
        await record(conn, Batch(noisy, gaps=tuple(Gap(noisy, "Pod", one, one, "it blinked") for one in ago)))
    async with site.client() as client:
        page = (await client.get("/clusters")).text
    assert "the quiet one slept" in page
    assert "it blinked" in page


async def test_what_is_beyond_the_first_gaps_can_be_unfolded(site: Site, live: str) -> None:
    silent = tuple(Unseen(f"Kind{n:02}", SILENT.since, f"it is silent, {n}") for n in range(MOST_GAPS + 3))
    ago = [NOW - timedelta(days=2, minutes=n) for n in range(MOST_GAPS + 1)]
    async with site.database.write.begin() as conn:
        epoch = await collectors.epoch_of(conn, live, "me")
        assert epoch
        await collectors.renew(conn, live, epoch, Watching("v1.36.3", 64, silent, 0, ()))
        blinks = tuple(Gap(live, "Pod", at, at, f"it blinked, {n}") for n, at in enumerate(ago))
        await record(conn, Batch(live, gaps=blinks))
    async with site.client() as client:
        page = (await client.get("/clusters")).text
    kinds, older = (folded.split("</details>")[0] for folded in page.split("<details>")[1:3])
    assert "and 3 more kinds" in kinds
    assert all(f"Kind{n}" in kinds for n in range(MOST_GAPS, MOST_GAPS + 3))
    assert f"Kind{MOST_GAPS - 1}" not in kinds
    assert "and 1 older gap of this week" in older
    assert f"it blinked, {MOST_GAPS}" in older


KINDS = tuple(f"Kind{n:02}" for n in range(26))


async def told(site: Site, name: str) -> tuple[list[str], list[str]]:
    """The lines of what was not seen of a cluster: on the page, and below a table of changes."""
    async with site.client() as client:
        page = (await client.get("/clusters")).text
        table = (await client.get("/api/v1/changes", params={"cluster": name}, headers={"Accept": "text/plain"})).text
    card = page.split(f">{name}</h2>")[1].split("</section>")[0]
    words = re.sub(r"<[^>]+>", "", card.replace("<li", "|<li").replace("</summary>", "|"))
    return [line.strip() for line in words.split("|")], [line for line in table.splitlines() if "not seen" in line]


async def test_what_was_not_seen_of_many_kinds_for_one_reason_is_said_once(site: Site) -> None:
    name, at = f"restarted-{uuid4().hex[:8]}", datetime(NOW.year, NOW.month, NOW.day, 9, tzinfo=UTC) - timedelta(days=2)
    day, dated = f"{at.day} {at:%b}", f"{at:%m-%d}"
    gaps = [Gap(name, kind, at, at + timedelta(seconds=n), "it was restarted") for n, kind in enumerate(KINDS)]
    gaps.append(Gap(name, "Pod", at, at + timedelta(seconds=5), "its watch was behind"))
    later = at + timedelta(hours=1)
    gaps += [Gap(name, kind, later, later + timedelta(seconds=1), "it was restarted") for kind in KINDS[:2]]
    async with site.database.write.begin() as conn:
        await record(conn, Batch(name, gaps=tuple(gaps)))
    page, table = await told(site, name)
    whole = "Kind00, Kind01, Kind02 and 23 more kinds"
    assert [line for line in page if "restarted" in line or "behind" in line] == [
        f"Kind00, Kind01 {day} 10:00:00 to {day} 10:00:01: it was restarted",
        f"Pod {day} 09:00:00 to {day} 09:00:05: its watch was behind",
        f"{whole} within {day} 09:00:00 to {day} 09:00:25: it was restarted",
    ]
    assert f"Kind25 {day} 09:00:00 to {day} 09:00:25" in page, "each with its own times"
    assert sorted(table) == [
        f"not seen (2 kinds) {dated} 10:00:00 to 10:00:01: it was restarted",
        f"not seen (26 kinds) {dated} 09:00:00 to 09:00:25: it was restarted",
        f"not seen {dated} 09:00:00 to 09:00:05: its watch was behind",
    ]


async def test_what_is_not_seen_of_many_kinds_now_is_said_once(site: Site, live: str) -> None:
    since = SILENT.since.replace(microsecond=0)
    silent = tuple(Unseen(kind, since + timedelta(seconds=n), SILENT.why) for n, kind in enumerate(KINDS))
    async with site.database.write.begin() as conn:
        epoch = await collectors.epoch_of(conn, live, "me")
        assert epoch
        await collectors.renew(conn, live, epoch, Watching("v1.36.3", 64, silent, 0, ()))
    page, table = await told(site, live)
    begun = f"{since.day} {since:%b %H:%M:%S}"
    (line,) = [line for line in page if SILENT.why in line]
    assert line.endswith(
        f"Kind00, Kind01, Kind02 and 23 more kinds since {begun} or later: not seen for now: {SILENT.why}"
    )
    assert len(table) == 1
    assert table[0].startswith("not seen (26 kinds) ")


async def test_of_an_incident_with_many_alerts_a_list_has_the_first_and_itself_all(site: Site) -> None:
    cluster, start = f"many-{uuid4().hex[:8]}", world.END
    alerts = [an_alert(start + timedelta(milliseconds=n), namespace=f"ns{n:03}") for n in range(300)]
    (incident,) = bundle(alerts, [], cluster=cluster)
    async with site.database.write.begin() as conn:
        await codes.cluster(conn, cluster)
        await incidents.save_incident(conn, incident)
    async with site.client() as client:
        (listed,) = (await client.get("/api/v1/incidents", params={"cluster": cluster})).json()["items"]
        whole = (await client.get(f"/api/v1/incidents/{incident.id}")).json()["incident"]
        page = (await client.get("/", params={"cluster": cluster})).text
    assert (listed["alert_count"], len(listed["alerts"]), len(whole["alerts"])) == (300, 20, 300)
    assert listed == whole | {"alerts": whole["alerts"][:20]}
    assert "<span>ns000, ns001 and 298 more</span>" in page
