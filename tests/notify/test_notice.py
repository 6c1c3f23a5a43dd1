"""What Slack shows of changes and rollouts: as kept here, within its limits, and nothing that names can break."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.findings import Spark
from app.core.metrics.turning import Moved
from app.core.model import NOBODY, Change, FieldDiff, Outcome, Progress, Rollout, Verb
from app.notify.notice import Item, Told, diff_lines, followed, look_again, message, news, shown
from app.store.arrivals import Arrival, Place
from app.store.notices import Notice
from tests.notify.double import MOST_IN_ALL, mistakes, size
from tests.notify.test_message import BAD, as_json, parts, strings
from tests.web import world

URL = "https://foreshock.example"
GOLDEN = Path(__file__).with_name("golden")
AT = world.CULPRIT_AT
REACH = ("payments/checkout-web", "payments/cart")


def told(*items: Item, seen: frozenset[str] = frozenset()) -> Told:
    arrived = tuple(Arrival(1, Place(), world.CLUSTER, one.change.at, one.change.key) for one in items)
    notice = Notice(7, "C0123456789", AT, AT, AT, len(items) > 1, REACH, seen, arrived)
    return Told(notice, items, URL)


def rollout(outcome: Outcome, *, updated: int = 2, reason: str = "", seconds: float | None = None) -> Rollout:
    change = world.CULPRIT
    progress = (Progress(AT, 5, updated, updated),)
    ended = AT + timedelta(seconds=seconds) if seconds is not None else None
    return Rollout(change.resource, change.uid, 3, AT, outcome, ended, change.id, progress=progress, reason=reason)


def item(outcome: Outcome, **more: object) -> Item:
    return Item(world.CULPRIT, rollout(outcome, **more), REACH)  # type: ignore[arg-type]


WEBHOOK = world.a_change(
    "istio-sidecar-injector",
    at=AT,
    kind="MutatingWebhookConfiguration",
    api_group="admissionregistration.k8s.io",
    namespace=None,
    actor="alice@shop.example",
    diffs=(FieldDiff(("webhooks", (("name", "inject.istio.io"),), "failurePolicy"), "replace", "Ignore", "Fail"),),
    summary="failurePolicy of istio-sidecar-injector: Ignore → Fail",
)
LONG = replace(
    WEBHOOK,
    diffs=(
        FieldDiff(("spec", "rules"), "replace", [{"n": n} for n in range(40)], [{"n": n + 100} for n in range(40)]),
    ),
)
MANY = tuple(
    Item(
        world.a_change(f"app-{n}", at=AT + timedelta(seconds=n), version=str(n)),
        rollout([Outcome.COMPLETE, Outcome.RUNNING, Outcome.FAILED][n % 3], seconds=9) if n % 2 else None,
    )
    for n in range(40)
)
CASES = {
    "rollout-started": told(item(Outcome.RUNNING, updated=0)),
    "rollout-running": told(item(Outcome.RUNNING)),
    "rollout-complete": told(item(Outcome.COMPLETE, seconds=42)),
    "rollout-failed": told(item(Outcome.FAILED, seconds=600, reason="ProgressDeadlineExceeded")),
    "rollout-back": told(item(Outcome.ROLLED_BACK, seconds=90)),
    "rollout-waits": told(item(Outcome.RUNNING, reason="is paused")),
    "change": told(Item(WEBHOOK)),
    "change-unseen": told(Item(replace(WEBHOOK, since=AT - timedelta(minutes=5), actor=NOBODY))),
    "change-long": told(Item(LONG)),
    "change-created": told(Item(replace(WEBHOOK, verb=Verb.CREATE, diffs=(FieldDiff((), "add", None, {"a": 1}),)))),
    "digest": told(*MANY),
}


@pytest.mark.parametrize("name", CASES)
def test_messages_are_as_they_were_looked_at(name: str) -> None:
    """A difference is to be looked at; ``python -m tests.notify.test_notice`` keeps what is sent now."""
    found = message(CASES[name])
    assert not mistakes(list(found.blocks))
    assert as_json(found) == (GOLDEN / f"notice-{name}.json").read_text()


def named(name: str) -> Change:
    return replace(
        world.CULPRIT,
        summary=name,
        resource=replace(world.CULPRIT.resource, name=name, namespace=name, cluster=name),
        actor=replace(world.CULPRIT.actor, name=name),
        diffs=(FieldDiff((name, (("name", name),)), "replace", name, {name: name}),) * 9,
    )


def check(name: str) -> None:
    one = Item(named(name), replace(rollout(Outcome.FAILED, seconds=5), reason=name), (name,) * 9)
    for whole in (told(one), told(*(one,) * 40)):
        found = message(whole)
        blocks = list(found.blocks)
        assert not mistakes(blocks)
        assert size(found.text, blocks) <= MOST_IN_ALL
        line = Spark(name, "/s", 0.0, 5, (1.0,), None)
        said, _ = followed(whole, (Moved(name, line, one.change.at, 0.1, 40.0, harm=True),))
        for text in [text for kind, text in strings(blocks) if kind == "mrkdwn"] + [found.text, said]:
            rest = re.sub("<[^>]*>", "", text)
            for link in re.findall("<[^>]*>", text):
                assert re.fullmatch(rf"<{URL}/[^|<>]*\|[^|<>]*>|<!date\^\d+\^[^|<>]*\|[^|<>]*>", link), text
            assert "<" not in rest
            assert ">" not in rest
            assert "\u202e" not in text
        assert all(part.get("verbatim") for part in parts(blocks) if part.get("type") == "mrkdwn")


@pytest.mark.parametrize("name", BAD)
def test_no_name_pings_anybody_or_breaks_the_message(name: str) -> None:
    check(name)


@given(st.text(min_size=1, max_size=400))
def test_nor_does_any_text(name: str) -> None:
    check(name)


def test_news_is_that_it_failed_or_was_rolled_back() -> None:
    running = CASES["rollout-running"]
    before = shown(running, message(running))
    assert news(before, running) == ""
    assert news(before, CASES["rollout-complete"]) == ""
    assert news(before, CASES["rollout-failed"]) == "Failed after 10 min: ProgressDeadlineExceeded."
    assert news(before, CASES["rollout-back"]) == "Rolled back."


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (item(Outcome.SUPERSEDED, seconds=90), "Replaced by a newer rollout after 1 min 30 s"),
        (item(Outcome.SUPERSEDED, seconds=9, reason="Deployment deleted"), "Over after 9 s: Deployment deleted"),
        (item(Outcome.ROLLED_BACK, seconds=9, reason="it was stuck"), "Rolled back: it was stuck"),
        (item(Outcome.COMPLETE, seconds=9, reason="some stay"), "Rolled out in 9 s: some stay"),
    ],
)
def test_how_a_rollout_ended_is_said_as_it_was(one: Item, said: str) -> None:
    assert one.state_sentence == said


@pytest.mark.parametrize("outcome", [Outcome.COMPLETE, Outcome.FAILED])
def test_how_long_a_rollout_took_that_began_unseen_is_not_said(outcome: Outcome) -> None:
    seen = item(outcome, seconds=0)
    unseen = replace_item(seen, since=AT - timedelta(minutes=5))
    words = {Outcome.COMPLETE: ("Rolled out in 0 s", "Rolled out"), Outcome.FAILED: ("Failed after 0 s", "Failed")}
    assert (seen.state_sentence, unseen.state_sentence) == words[outcome]


def replace_item(one: Item, **more: object) -> Item:
    return Item(replace(one.change, **more), one.rollout, one.reach)


def test_of_a_digest_it_is_said_what_failed_by_its_name_and_once() -> None:
    fails = [one for one in MANY if one.is_failed]
    before = replace(shown(CASES["digest"], message(CASES["digest"])), failed=())
    said = news(before, CASES["digest"]).splitlines()
    assert len(said) == 6
    assert said[0].startswith("• ")
    assert ": Failed after 9 s" in said[0]
    assert said[-1] == f"and {len(fails) - 5} more"
    assert news(shown(CASES["digest"], message(CASES["digest"])), CASES["digest"]) == ""
    one_more = told(*(Item(one.change, rollout(Outcome.COMPLETE)) if one is fails[0] else one for one in MANY))
    assert news(shown(one_more, message(one_more)), CASES["digest"]).count("•") == 1


def test_what_followed_is_said_once() -> None:
    line = Spark("PATCH serviceaccounts", "/s", AT.timestamp(), 5, (0.1, 40.0), None)
    moved = Moved("archetype-controller", line, AT + timedelta(seconds=20), 0.1, 40.0, harm=False)
    said, names = followed(CASES["rollout-running"], (moved,))
    assert said == ("Since this rollout:\n• PATCH serviceaccounts by archetype-controller: 0.1/s → 40/s, 20 s later")
    again = told(item(Outcome.COMPLETE, seconds=42), seen=frozenset(names))
    assert followed(again, (moved,)) == ("", ())


def test_what_can_still_change_is_looked_at_again() -> None:
    def after(which: str, **later: float) -> float | None:
        now = AT + timedelta(**later)
        found = look_again(CASES[which], now)
        return None if found is None else (found - now).total_seconds()

    assert after("rollout-running", seconds=3) == 2
    assert after("rollout-running", minutes=5) == 5
    assert after("rollout-running", hours=2) == 60
    assert after("rollout-running", days=8) is None
    assert after("rollout-complete", seconds=100) == 80, "for what followed"
    assert after("rollout-complete", minutes=11) is None
    assert after("change", seconds=6) == 29, "for who did it"
    assert after("digest", minutes=1) == 5, "some of it goes on"


def test_a_long_value_is_shown_where_it_differs() -> None:
    old, new = (f"https://{'a' * 60}.example/{mark}/{'b' * 60}" for mark in ("one", "two"))
    change = replace(WEBHOOK, diffs=(FieldDiff(("spec", "url"), "replace", old, new),))
    removed, added = list(diff_lines(change))[-2:]
    assert (old[:100] in removed, new[:100] in added) == (True, True)


if __name__ == "__main__":
    for name, case in CASES.items():
        (GOLDEN / f"notice-{name}.json").write_text(as_json(message(case)))
