"""Who follows changes with a limited token is told of their clusters alone, also of what is recorded meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.model import Batch
from app.core.roles import Role, Scope
from app.store import tokens
from app.store.database import Database
from app.store.record import record
from app.store.tokens import Purpose
from app.web.follow import Followers
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import NOW, Site, deps
from tests.web.test_follow import following, fresh, ids

PLACES = [["shop"], ["shop", "shop/payments"], ["shop/payments"], ["shop", "bank/vault"]]


@pytest.fixture
async def site(database: Database) -> Site:
    made = Site(create_app(replace(deps(database), scoped=database.scoped)), database)
    made.app.state.followers = Followers(every=timedelta(milliseconds=20), told_every=timedelta(milliseconds=60))
    async with database.write.begin() as conn:
        await record(conn, Batch("bank", changes=(world.a_change("vault", cluster="bank", namespace="vault"),)))
        for places in PLACES:
            scope = Scope.parse(places)
            made.bearer[" ".join(places)] = await tokens.create(
                conn, Role.VIEWER, purpose=Purpose.API, now=NOW, scope=scope
            )
    return made


async def tell(site: Site) -> str:
    """Records a change of each cluster, that of the other one first; the id of the one that is of the shop."""
    theirs, own = fresh(cluster="bank", namespace="vault"), fresh()
    for cluster, change in (("bank", theirs), ("shop", own)):
        async with site.database.write.begin() as conn:
            await record(conn, Batch(cluster, changes=(change,)))
    return own.id


@pytest.mark.parametrize("places", ["shop", "shop shop/payments"])
async def test_who_follows_is_told_of_their_cluster_alone(site: Site, places: str) -> None:
    before = await tell(site)
    async with following(site, token=site.bearer[places]) as client:
        first, end = await client.until_fresh()
        assert before in ids(first)
        assert {line["change"]["resource"]["cluster"] for line in first} == {"shop"}
        assert {one["cluster"] for one in end["freshness"]} == {"shop"}
        own = await tell(site)
        assert (await client.next("change"))["change"]["id"] == own
        _, end = await client.until_fresh()
    own = await tell(site)
    async with following(site, f"since={end['after']}", token=site.bearer[places]) as client:
        assert (await client.next("change"))["change"]["id"] == own


@pytest.mark.parametrize("places", ["shop/payments", "shop bank/vault"])
async def test_who_reaches_a_part_is_refused(site: Site, places: str) -> None:
    async with following(site, token=site.bearer[places]) as client:
        refused = await client.line()
        assert (client.status, refused["field"]) == (403, "cluster")


async def test_a_token_that_is_revoked_ends_it(site: Site) -> None:
    async with following(site, token=site.bearer["shop"]) as client:
        await client.until_fresh()
        async with site.database.write.begin() as conn:
            await tokens.revoke(conn, site.bearer["shop"], now=NOW)
        assert (await client.next("problem"))["problem"]["status"] == 401
