"""Of two who write of an incident what they read, one does: If-Match."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from app.core.model import Batch
from app.store.reach import AUDIT_LOG, WATCH
from app.store.record import record
from tests.web import world
from tests.web.conftest import Site
from tests.web.test_by_hand import PATH, hands, opened

__all__ = ["hands"]


async def test_what_somebody_else_changed_since_is_not_written_over(hands: Site) -> None:
    path = f"{PATH}/{(await opened(hands))['id']}"
    async with hands.client("responder") as client:
        read = (await client.get(path)).headers["etag"]
        assert (await client.patch(path, json={"severity": "error"}, headers={"If-Match": read})).status_code == 200
        stale = await client.patch(path, json={"status": "resolved"}, headers={"If-Match": read})
        verdict = f"{path}/verdicts/none"
        others = [
            await client.put(verdict, json={"opinion": "it"}, headers={"If-Match": read}),
            await client.delete(verdict, headers={"If-Match": read}),
            await client.post(f"{path}/merge", json={"into": world.incident().id}, headers={"If-Match": '"odd"'}),
        ]
        now = await client.get(path)
        assert (stale.status_code, stale.json()["field"]) == (412, "If-Match")
        assert "read it again" in stale.json()["detail"]
        assert stale.headers["content-type"] == "application/problem+json"
        assert [one.status_code for one in others] == [412] * 3
        assert (now.json()["incident"]["status"], now.json()["incident"]["verdicts"]) == ("open", [])
        among = {"If-Match": f'"odd", {now.headers["etag"]}'}
        assert (await client.patch(path, json={"status": "resolved"}, headers=among)).status_code == 200
        assert (await client.patch(path, json={"status": "open"}, headers={"If-Match": "*"})).status_code == 200
        assert (await client.patch(path, json={"status": "resolved"})).status_code == 200
        gone = await client.patch(f"{PATH}/000000000000", json={"status": "open"}, headers={"If-Match": "*"})
    assert gone.status_code == 404


async def test_of_two_who_write_what_they_read_at_once_one_does(hands: Site) -> None:
    path = f"{PATH}/{(await opened(hands))['id']}"
    async with hands.client("responder") as client:
        held = {"If-Match": (await client.get(path)).headers["etag"]}
        titles = [f"Title {number}" for number in range(4)]
        answers = await asyncio.gather(*(client.patch(path, json={"title": one}, headers=held) for one in titles))
    assert sorted(one.status_code for one in answers) == [200, 412, 412, 412]


async def test_of_two_who_say_at_once_what_it_was_of_what_they_read_one_does(hands: Site) -> None:
    path = f"{PATH}/{(await opened(hands))['id']}"
    suspects = [f"{number:028x}" for number in range(4)]
    async with hands.client("responder") as client:
        held = {"If-Match": (await client.get(path)).headers["etag"]}
        said = (client.put(f"{path}/verdicts/{one}", json={"opinion": "it"}, headers=held) for one in suspects)
        answers = await asyncio.gather(*said)
        verdicts = (await client.get(path)).json()["incident"]["verdicts"]
    assert sorted(one.status_code for one in answers) == [200, 412, 412, 412]
    assert len(verdicts) == 1


async def test_a_tag_is_good_for_a_write_for_as_long_as_the_incident_is_the_same(hands: Site) -> None:
    """Its answer has another tag by each minute, as it says how fresh it is."""
    path = f"{PATH}/{(await opened(hands))['id']}"
    async with hands.client("responder") as client:
        read = await client.get(path)
        async with hands.database.write.begin() as conn:
            at = world.END + timedelta(minutes=2)
            await record(conn, Batch(cluster=world.CLUSTER, read_to=((WATCH, at), (AUDIT_LOG, at))))
        later = await client.get(path)
        assert later.headers["etag"] != read.headers["etag"]
        assert later.json()["incident"] == read.json()["incident"]
        held = {"If-Match": read.headers["etag"]}
        assert (await client.patch(path, json={"status": "resolved"}, headers=held)).status_code == 200
