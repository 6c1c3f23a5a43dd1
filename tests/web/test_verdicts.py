"""People say what it was, by REST and on the page: kept with who and when, shown, counted, taken back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.core.findings import NONE, Opinion, Verdict
from app.core.roles import Role
from app.store import incidents, tokens, verdicts
from app.store.tokens import Purpose
from tests.web import world
from tests.web.conftest import Site, site

__all__ = ["site"]
INCIDENT = world.incident().id
FIRST, SECOND = (suspect.change.id for suspect in world.ranking().suspects[:2])


def address(change: str, incident: str = INCIDENT) -> str:
    return f"/api/v1/incidents/{incident}/verdicts/{change}"


async def page(site: Site, path: str = f"/incidents/{INCIDENT}", *, role: str = "viewer") -> str:
    async with site.client(role) as client:
        answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_a_verdict_is_kept_shown_counted_and_taken_back(site: Site) -> None:
    assert "Nobody said anything yet" in await page(site, "/accuracy")
    async with site.client("responder") as client:
        told = (await client.put(address(FIRST), json={"opinion": "not it"})).raise_for_status().json()
        told = (await client.put(address(FIRST), json={"opinion": "it"})).raise_for_status().json()
        again = (await client.get(f"/api/v1/incidents/{INCIDENT}")).json()
    (verdict,) = told["incident"]["verdicts"]
    assert (verdict["change_id"], verdict["opinion"], verdict["by"]) == (FIRST, "it", "a responder")
    assert again["incident"]["verdicts"] == [verdict], "the last that is said counts"
    seen = await page(site)
    assert "This was it, says a responder" in seen
    assert "Take back" not in seen, "a viewer says nothing"
    assert "This was it</button>" not in seen
    accuracy = await page(site, "/accuracy")
    assert "of <b>1</b> incident it is known what it was" in accuracy
    assert "<b>100 %</b>" in accuracy
    assert "these are few" in accuracy
    name = world.ranking().suspects[0].change.resource.name
    assert f'href="/changes/{FIRST}">{name}</a></td><td class="place">#1</td>' in accuracy
    assert "it was, says a responder" in accuracy
    async with site.client("responder") as client:
        taken = await client.delete(address(FIRST))
        assert taken.json()["incident"]["verdicts"] == []
        assert (await client.delete(address(FIRST))).status_code == 404


async def test_the_table_of_an_incident_tells_what_was_said_of_which_suspect(site: Site) -> None:
    of = {FIRST: "#1", NONE: "none of these", "0" * 28: f"change {'0' * 28}, no suspect now"}
    async with site.client("responder") as client:
        for change_id in of:
            opinion = "it" if change_id == FIRST else "not it"
            (await client.put(address(change_id), json={"opinion": opinion})).raise_for_status()
        lines = (await client.get(f"/api/v1/incidents/{INCIDENT}", headers={"Accept": "text/plain"})).text.splitlines()
        for change_id in of:
            await client.delete(address(change_id))
    told = " ".join(" ".join(lines).split())
    for change_id, what in of.items():
        assert f"{'This was it' if change_id == FIRST else 'Not it'} ({what}), says a responder, 20" in told
    assert max(map(len, lines)) <= 80


async def test_of_what_it_was_only_not_the_page_says_what_that_decides(site: Site) -> None:
    async with site.client("responder") as client:
        (await client.put(address(FIRST), json={"opinion": "not it"})).raise_for_status()
        told = (await client.get("/api/v1/accuracy")).json()
        table = (await client.get("/api/v1/accuracy", headers={"Accept": "text/plain"})).text
        accuracy = await page(site, "/accuracy")
        (await client.delete(address(FIRST))).raise_for_status()
    assert (told["judged"], told["unnamed"]) == (0, 1)
    first, among_three = told["ranked"][0]["first"], told["ranked"][0]["among_three"]
    assert (first["cases"], first["unnamed"], first["left_out"], first["share"]) == (1, 1, 0, 0.0)
    assert (among_three["cases"], among_three["left_out"], among_three["share"]) == (0, 1, None)
    assert "<small>of 1</small>" in accuracy
    assert '<span class="muted">not known</span> <small>of 0, 1 left out</small>' in accuracy
    assert "Of 1 incident people said only what it was not." in accuracy
    assert "at first: first in 0% (0% to 79%) of 1\nat first: among three in - of 0, 1 left out\n" in table
    assert "Of 1 incident people said only what it was not." in table


async def test_what_is_said_of_a_part_of_a_release_is_said_of_the_suspect(site: Site) -> None:
    third = world.ranking().suspects[2]
    part = third.beside[1]
    async with site.client("responder") as client:
        (await client.put(address(part.change_id), json={"opinion": "it"})).raise_for_status()
    seen = await page(site, role="responder")
    shown = seen.partition(f'id="suspect-{third.change.id}"')[2].partition("</section>")[0]
    assert "This was it, says a responder" in shown
    assert f'name="change" value="{part.change_id}"' in shown, "that is taken back"
    assert f'href="/changes/{part.change_id}">{part.resource.name}</a></td><td class="place">#3</td>' in await page(
        site, "/accuracy"
    )
    async with site.client("responder") as client:
        (await client.delete(address(part.change_id))).raise_for_status()


async def test_the_buttons_do_the_same_without_scripts(site: Site) -> None:
    seen = await page(site, role="responder")
    assert seen.count('value="it">This was it</button>') == seen.count('value="not it">Not it</button>') > 2
    async with site.client("responder") as client:
        for change, opinion in ((SECOND, "it"), ("none", "not it")):
            form = {"change": change, "opinion": opinion}
            answer = await client.post(f"/incidents/{INCIDENT}/verdicts", data=form)
            assert (answer.status_code, answer.headers["location"]) == (303, f"/incidents/{INCIDENT}")
        seen = await page(site, role="responder")
        assert "This was it, says a responder" in seen
        assert "Not it, says a responder" in seen
        for change in (SECOND, "none"):
            answer = await client.post(f"/incidents/{INCIDENT}/verdicts", data={"change": change, "opinion": ""})
            assert answer.status_code == 303
    assert "says a responder" not in await page(site, role="responder")


async def test_what_was_said_of_a_part_is_said_of_the_incident_that_it_became(site: Site) -> None:
    part = replace(world.incident(), id="0000000000ce", status="merged", merged_into=INCIDENT)
    async with site.database.write.begin() as conn:
        await incidents.save_incident(conn, part)
        for minutes, incident, change, opinion in (
            (1, INCIDENT, FIRST, Opinion.NOT_IT),
            (2, part.id, FIRST, Opinion.IT),
            (3, part.id, SECOND, Opinion.NOT_IT),
        ):
            at = world.END + timedelta(minutes=minutes)
            await verdicts.say(conn, incident, Verdict(change, opinion, "alice", at))
    async with site.client("responder") as client:
        told = (await client.get(f"/api/v1/incidents/{INCIDENT}")).json()["incident"]["verdicts"]
        assert [(one["change_id"], one["opinion"]) for one in told] == [(FIRST, "it"), (SECOND, "not it")]
        assert (await client.delete(address(FIRST))).status_code == 200
        told = (await client.get(f"/api/v1/incidents/{INCIDENT}")).json()["incident"]["verdicts"]
        assert [one["change_id"] for one in told] == [SECOND], "also what was said before of the same"
        assert (await client.delete(address(FIRST))).status_code == 404
        assert (await client.delete(address(SECOND))).status_code == 200


async def test_of_what_was_merged_nothing_is_said_but_where_to_say_it(site: Site) -> None:
    part = replace(world.incident(), id="0000000000cf", status="merged", merged_into=INCIDENT)
    async with site.database.write.begin() as conn:
        await incidents.save_incident(conn, part)
        await incidents.save_ranking(conn, replace(world.ranking(), incident_id=part.id))
        await verdicts.say(conn, part.id, Verdict(SECOND, Opinion.IT, "alice", world.END))
    path = f"/incidents/{part.id}"
    seen = await page(site, path, role="responder")
    assert "This was it, says alice" in seen, "what was said is shown"
    assert f'part of <a href="/incidents/{INCIDENT}">incident {INCIDENT}</a> now: say there what it was' in seen
    assert f"{path}/verdicts" in (await page(site, f"/incidents/{INCIDENT}", role="responder")).replace(
        INCIDENT, part.id
    )
    assert '<button class="button small" type="submit" name="opinion"' not in seen
    assert "say there what it was" not in await page(site, path)
    async with site.client("responder") as client:
        told = [
            await client.put(address(FIRST, part.id), json={"opinion": "it"}),
            await client.delete(address(SECOND, part.id)),
            await client.post(f"{path}/verdicts", data={"change": FIRST, "opinion": "it"}),
            await client.post(f"{path}/verdicts", data={"change": SECOND, "opinion": ""}),
        ]
        assert {answer.status_code for answer in told} == {409}
        assert all(f"merged into incident {INCIDENT}" in answer.text for answer in told)
        assert f'<a class="button primary" href="/incidents/{INCIDENT}">Go on there</a>' in told[-1].text
        kept = (await client.get(f"/api/v1/incidents/{INCIDENT}")).json()["incident"]["verdicts"]
        assert [one["change_id"] for one in kept] == [SECOND]
        assert (await client.delete(address(SECOND))).status_code == 200


@pytest.mark.parametrize(
    ("role", "path", "body", "status"),
    [
        ("viewer", address(FIRST), {"opinion": "it"}, 403),
        ("responder", address(FIRST, "nowhere"), {"opinion": "it"}, 404),
        ("responder", address("x"), {"opinion": "it"}, 422),
        ("responder", address(FIRST), {"opinion": "perhaps"}, 422),
        ("responder", address(FIRST), {"opinion": "it", "sure": True}, 422),
    ],
)
async def test_what_cannot_be_said_is_refused_in_words(
    site: Site, role: str, path: str, body: dict[str, object], status: int
) -> None:
    async with site.client(role) as client:
        answer = await client.put(path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


async def test_who_said_it_is_what_the_token_is_for(site: Site) -> None:
    async with site.database.write.begin() as conn:
        token = await tokens.create(conn, Role.RESPONDER, purpose=Purpose.API, now=world.END, note="Alice")
    async with site.client(None) as client:
        signed = {"Authorization": f"Bearer {token}"}
        told = (await client.put(address(SECOND), json={"opinion": "it"}, headers=signed)).raise_for_status().json()
        await client.delete(address(SECOND), headers=signed)
    assert [one["by"] for one in told["incident"]["verdicts"]] == ["Alice"]
