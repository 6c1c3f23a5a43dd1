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

from app.core.findings import NONE, Also, Evidence, Incident, Opinion, Ranking, Verdict
from app.core.model import Gap
from app.notify.message import Told, message, news, reply, shown
from app.notify.slack import Message
from app.store.outbox import Shown
from tests.notify.double import MOST_IN_BLOCKS, Json, mistakes
from tests.web import world

URL = "https://foreshock.example"
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
CASES = {
    "ranked": told(),
    "moved": told(moved()),
    "none-leads": told(NONE_LEADS),
    "not-ranked": told(None, first=None),
    "resolved": told(status="resolved", resolved_at=world.ALERT_AT + timedelta(minutes=42), verdicts=VERDICTS),
    "merged": told(status="merged", merged_into="0" * 12),
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
    incident = replace(
        world.incident(title=name),
        cluster=name,
        severity=name,
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
    assert len(json.dumps(blocks, ensure_ascii=False)) < MOST_IN_BLOCKS
    said = news(Shown("v", "open", SECOND), whole)
    marked = [text for kind, text in strings(blocks) if kind == "mrkdwn"] + [found.text, said, reply(said).text]
    for text in marked:
        links = re.findall("<[^>]*>", text)
        rest = re.sub("<[^>]*>", "", text)
        assert all(re.fullmatch(rf"<{URL}/[^|<>]*\|[^|<>]*>|<!date\^\d+\^[^|<>]*\|[^|<>]*>", one) for one in links), (
            text
        )
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
