"""How well each cluster is followed stands on its page, in REST, on every page's head and among the gaps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from app.core.model import Batch, Gap
from app.core.watching import Unseen, Watching
from app.store import codes, collectors, seen
from app.store.collectors import Standing
from app.store.record import record
from app.web.cluster_pages import MOST_GAPS
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
