"""Who acted as somebody else is named first, wherever a change is shown."""

from __future__ import annotations

import re

from msgspec.structs import replace

from app.core.model import Actor, ActorSource, Batch
from app.store.record import record
from tests.web import world
from tests.web.conftest import Site


async def test_who_impersonates_somebody_is_named_before_whom(empty_site: Site) -> None:
    change = replace(world.CULPRIT, actor=Actor("bob", ActorSource.AUDIT, impersonator="root-admin"))
    async with empty_site.database.write.begin() as conn:
        await record(conn, Batch(cluster=world.CLUSTER, changes=(change,)))
    async with empty_site.client() as client:
        for path in ("/changes", f"/changes/{change.id}"):
            page = (await client.get(path)).raise_for_status().text
            shown = " ".join(re.sub(r"<[^>]+>", "", page).split())
            assert "root-admin as bob" in shown, path
