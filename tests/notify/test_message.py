"""What Slack shows of an incident: as it is kept here, within Slack's limits, and nothing that names can break."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.changes.revert import suspect_recipe
from app.core.findings import NONE, Also, Evidence, Incident, Opinion, Ranking, Suspect, Verdict
from app.core.model import Gap
from app.notify.blocks import link_out
from app.notify.message import Told, message, more, news, reply, shown
from app.notify.slack import LONGEST, Message
from app.store.outbox import Shown
from tests.notify.double import MOST_IN_ALL, Json, mistakes, size
from tests.web import world

URL, BOOKS = "https://foreshock.example", "https://runbooks.example/"
GOLDEN = Path(__file__).with_name("golden")
RANKED = world.ranking()
FIRST, SECOND, THIRD = (one.change.id for one in RANKED.suspects)
NONE_LEADS = replace(
    RANKED,
    none_of_these=0.6,
    suspects=tuple(replace(one, probability=one.probability / 3) for one in RANKED.suspects),
)
BAD = (
    *("<!here>", "<!channel>", "<@U0000000001>", "<https://evil.example|click>", "&lt;!here&gt;", "@channel #general"),
    *(
        "```\nrm -rf /\n```",
        "*bold* _x_ ~y~ `z`",
        "\u202egnp.exe",
        "a\x00b\x1b[31m",
        "x" * 5000,
        "<" * 5000,
        "|" * 50,
        "<>&\"'",
    ),
    "<!date^0^{date}|never>",
)


def told(ranking: Ranking | None = RANKED, *, first: Ranking | None = RANKED, **fields: object) -> Told:
    incident = replace(world.incident(), **fields)
    return Told(incident, ranking, first, (world.gap(),) if ranking else (), URL)


def moved() -> Ranking:
    """The second suspect has overtaken the first."""
    one, two, three = RANKED.suspects
    return replace(
        RANKED,
        suspects=(replace(two, rank=1, probability=0.6), replace(one, rank=2, probability=0.3), three),
        ranked_at=world.ALERT_AT + timedelta(minutes=10),
    )


VERDICTS = (
    Verdict(FIRST, Opinion.IT, "alice in Slack", world.END),
    Verdict(SECOND, Opinion.NOT_IT, "bob", world.END),
)
RUNBOOK = f"{BOOKS}KubePodCrashLooping?team=payments&v=2#steps"
CASES = {
    "ranked": told(),
    "runbook": told(alerts=(replace(world.alert(), annotations=(("runbook_url", RUNBOOK),)),)),
    "moved": told(moved()),
    "none-leads": told(NONE_LEADS),
    "not-ranked": told(None, first=None),
    "resolved": told(status="resolved", resolved_at=world.ALERT_AT + timedelta(minutes=42), verdicts=VERDICTS),
    "merged": told(status="merged", merged_into="0" * 12),
    "onset-wide": told(replace(RANKED, onset=replace(RANKED.onset, low=RANKED.onset.at - timedelta(minutes=9)))),
    "no-suspects": told(replace(RANKED, suspects=(), none_of_these=1.0, not_measured=())),
}


@pytest.mark.parametrize("name", CASES)
def test_messages_are_as_they_were_looked_at(name: str) -> None:
    """A difference is to be looked at; ``python -m tests.notify.test_message`` keeps what is sent now."""
    found = message(CASES[name])
    assert not mistakes(list(found.blocks))
    assert as_json(found) == (GOLDEN / f"{name}.json").read_text()


def as_json(found: Message) -> str:
    return json.dumps({"text": found.text, "blocks": found.blocks}, ensure_ascii=False, indent=1) + "\n"


def strings(part: object) -> list[tuple[str, str]]:
    """Every text of some blocks, with the type of what it stands in."""
    if isinstance(part, dict):
        kind = str(part.get("type"))
        own = [(kind, part["text"])] if isinstance(part.get("text"), str) else []
        return own + [found for value in part.values() for found in strings(value)]
    return [found for one in part for found in strings(one)] if isinstance(part, (list, tuple)) else []


def named(name: str) -> tuple[Incident, Ranking]:
    """The incident with a name in every place that takes one."""
    one, *others = RANKED.suspects
    change = replace(
        one.change,
        summary=name,
        resource=replace(one.change.resource, name=name, namespace=name),
        actor=replace(one.change.actor, name=name),
    )
    suspect = replace(one, change=change, evidence=(Evidence("x", 1.0, name), Evidence("y", -1.0, name)))
    ranking = replace(
        RANKED,
        suspects=(suspect, *others),
        not_measured=(name, name),
        onset=replace(RANKED.onset, found_in=name),
    )
    said = replace(world.alert(), message=name, annotations=(("runbook_url", f"{BOOKS}{name}"),))
    incident = replace(
        world.incident(title=name),
        cluster=name,
        severity=name,
        alerts=(said,),
        scope=replace(world.incident().scope, namespaces=(name,) * 9),
        verdicts=(Verdict(FIRST, Opinion.IT, name, world.END), Verdict(NONE, Opinion.IT, name, world.END)),
    )
    return incident, ranking


def check(name: str) -> None:
    incident, ranking = named(name)
    gap = Gap("shop", "", world.START, world.END, name)
    whole = Told(incident, ranking, RANKED, (gap, gap), URL)
    found = message(whole)
    blocks = list(found.blocks)
    assert not mistakes(blocks)
    assert size(found.text, blocks) <= MOST_IN_ALL
    said = news(Shown("v", "open", SECOND), whole)
    marked = [text for kind, text in strings(blocks) if kind == "mrkdwn"] + [found.text, said, reply(said).text]
    for text in marked:
        links = re.findall("<[^>]*>", text)
        rest = re.sub("<[^>]*>", "", text)
        ours, theirs = rf"<{URL}/[^|<>]*\|[^|<>]*>|<!date\^\d+\^[^|<>]*\|[^|<>]*>", f"<{BOOKS}[^|<>]*\\|Runbook>"
        assert all(re.fullmatch(f"{ours}|{theirs}", one) for one in links), text
        assert "<" not in rest
        assert ">" not in rest
        assert "\u202e" not in text
    assert all(part.get("verbatim") for part in parts(blocks) if part.get("type") == "mrkdwn")


def parts(part: object) -> list[Json]:
    if isinstance(part, dict):
        return [part, *(found for value in part.values() for found in parts(value))]
    return [found for one in part for found in parts(one)] if isinstance(part, (list, tuple)) else []


@pytest.mark.parametrize("name", BAD)
def test_no_name_pings_anybody_or_breaks_the_message(name: str) -> None:
    check(name)


@given(st.text(min_size=1, max_size=400))
def test_nor_does_any_text(name: str) -> None:
    check(name)


def codes(blocks: object) -> list[str]:
    return [text for part in parts(blocks) if part.get("type") == "rich_text" for _, text in strings(part)]


def test_each_suspect_has_the_command_that_undoes_it_also_where_none_of_these_leads() -> None:
    for case in (told(), told(NONE_LEADS)):
        found = codes(message(case).blocks)
        assert found == [suspect_recipe(one).command for one in RANKED.suspects[:2]]
        assert found[0] == "kubectl rollout undo deployments.apps/checkout-api -n payments"
        assert "Apply it again from where it is declared" in as_json(message(case)), "of the third no command is known"


def test_where_there_is_no_room_the_commands_of_the_last_suspects_are_on_the_page() -> None:
    wide = tuple(quoted(RANKED.suspects[0], rank, 108) for rank in (1, 2, 3))
    found = message(told(replace(RANKED, suspects=wide), alerts=()))
    assert found.size <= LONGEST
    assert codes(found.blocks) == [suspect_recipe(one).command for one in wide[:2]]
    assert as_json(found).count("How to undo it is long, and on the page.") == 1


def quoted(suspect: Suspect, rank: int, length: int) -> Suspect:
    """A suspect whose names are quotation marks, each of which JSON writes with two characters."""
    name = '"' * length
    words = ('"' * 60 + " ") * 9
    change = suspect.change
    change = replace(
        change,
        resource=replace(change.resource, name=name, namespace=name),
        summary=words,
        actor=replace(change.actor, name=name),
    )
    return replace(suspect, rank=rank, change=change, evidence=(Evidence("x", 1.0, words),) * 2)


def test_of_a_long_name_both_ends_are_told_and_addresses_are_whole() -> None:
    first = RANKED.suspects[0]
    named = replace(first.change.resource, name=f"checkout-{'x' * 240}-blue", namespace=f"shop-{'n' * 240}-eu")
    change = replace(first.change, resource=named, summary=f"image of {named.name}: v1 → v2")
    found = message(told(replace(RANKED, suspects=(replace(first, change=change),))))
    for text in (found.text, as_json(found)):
        assert re.search(r"checkout-x+…x+-blue", text)
    assert re.search(r"shop-n+…n+-eu", as_json(found))
    assert "-blue: v1 → v2" in as_json(found), "and what was done"
    address = f"https://example.org/{'a' * 300}/end"
    assert link_out(address, "there") == f"<{address}|there>"


def test_it_says_what_would_flip_the_rank_of_the_first_alone() -> None:
    words = "Without the evidence “load” it would be behind “none of these”."
    assert RANKED.suspects[1].would_flip
    assert as_json(message(told())).count("Without the evidence") == 1
    assert words in as_json(message(told()))
    still = replace(RANKED, suspects=(replace(RANKED.suspects[0], would_flip=""), *RANKED.suspects[1:]))
    assert "Without the evidence" not in as_json(message(told(still)))


def test_of_an_onset_that_is_not_known_to_a_minute_both_ends_are_told() -> None:
    low, high = (f"{at:%H:%M:%S} UTC" for at in (RANKED.onset.at - timedelta(minutes=9), RANKED.onset.high))
    facts = as_json(message(CASES["onset-wide"]))
    assert re.search(rf"onset between <[^>]*{low}> and <[^>]*{high}>, found in PATCH", facts)


def test_who_asks_for_more_is_shown_how_to_undo_each_as_far_as_there_is_room() -> None:
    one = RANKED.suspects[1]
    many = tuple(replace(one, rank=n) for n in range(1, 14))
    found = more("0" * 12, replace(RANKED, suspects=many), url=URL, known={})
    assert not mistakes(list(found.blocks))
    assert codes(found.blocks) == [suspect_recipe(one).command] * 7
    wide = tuple(quoted(RANKED.suspects[0], suspect.rank, 108) for suspect in many)
    found = more("0" * 12, replace(RANKED, suspects=wide), url=URL, known={})
    assert found.size <= LONGEST
    assert 0 < len(codes(found.blocks)) < 7
    assert not mistakes(list(found.blocks))


def test_news_is_what_leads_now_and_whether_it_is_over() -> None:
    before = shown(told(), "v")
    assert (before.status, before.leader) == ("open", FIRST)
    assert news(before, told()) == ""
    second = RANKED.suspects[1].change.resource.name
    assert news(before, told(moved())) == (
        f"Now likeliest: ConfigMap {second} (60 %, T−42 s). Before it was Deployment checkout-api, now 2nd with 30 %."
    )
    assert news(before, told(NONE_LEADS)).startswith("Now likeliest: none of the changes that were seen (60 %). Before")
    assert news(Shown("v", "open", NONE), told()).endswith("Before it was none of these, now 4 %.")
    assert news(Shown("v", "open", "gone"), told()).endswith("What led before is no suspect any more.")
    ended = told(status="resolved", resolved_at=world.ALERT_AT + timedelta(minutes=42))
    assert news(before, ended) == "Resolved after 42 min."
    assert news(shown(ended, "v"), told()) == "Open again."
    assert news(shown(told(None, first=None), "v"), told()) == "", "what is ranked for the first time has not moved"


def test_of_what_was_written_in_one_go_another_part_that_leads_is_no_news() -> None:
    before = shown(told(), "v")
    first, second, third = RANKED.suspects
    also = Also(FIRST, first.change.at, first.change.resource)
    swapped = replace(RANKED, suspects=(replace(second, rank=1, probability=0.9, beside=(also,)), third))
    assert news(before, told(swapped)) == ""
    assert "at first" not in as_json(message(told(swapped))).partition(third.change.id)[0]
    verdict = Verdict(FIRST, Opinion.NOT_IT, "Alice", world.ALERT_AT)
    assert "Not it, says *Alice*" in as_json(message(told(swapped, verdicts=(verdict,))))
    release = replace(swapped.suspects[0], rank=2)
    overtaken = replace(swapped, suspects=(replace(third, rank=1, probability=0.99), release))
    assert "now 2nd" in news(before, told(overtaken))


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, case in CASES.items():
        (GOLDEN / f"{name}.json").write_text(as_json(message(case)))
