"""What changed, for a terminal: 20 lines of 80 columns whatever the cluster says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.changes.report import COUNTED, LINES, WIDTH, plain, remembered, what_changed
from app.core.model import Actor, Change, Gap, Resource, Verb

AT = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)


def a_change(
    summary: str = "image of api: v1 → v2",
    *,
    namespace: str | None = "shop",
    actor: str = "alice",
    cluster: str = "c",
) -> Change:
    return Change(
        Resource(cluster, "apps", "Deployment", namespace, "api"), AT, Verb.UPDATE, 1, Actor(actor), summary=summary
    )


def a_gap(why: str = "the watch was behind") -> Gap:
    return Gap("c", "", AT, AT + timedelta(seconds=5), why)


def report(changes: list[Change], gaps: list[Gap] | None = None) -> list[str]:
    start = AT - timedelta(minutes=30)
    text = what_changed(changes, from_at=start, to_at=AT, gaps=gaps or [], total=len(changes), recorded={"c": AT})
    assert text.endswith("\n")
    return text.splitlines()


def test_one_change_is_one_line() -> None:
    assert report([a_change(actor="system:serviceaccount:argocd:controller")]) == [
        "2026-11-20 13:30:00 to 14:00:00 UTC: 1 change",
        "TIME     NAMESPACE        CHANGE                                WHO",
        "14:00:00 shop             image of api: v1 → v2                 controller",
    ]


def test_nothing_is_said_in_words() -> None:
    assert report([]) == ["2026-11-20 13:30:00 to 14:00:00 UTC: no change was seen"]


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        (None, ["no change is recorded yet"]),
        (AT - timedelta(days=1), ["nothing was recorded", "recorded up to 2026-11-19 14:00:00 UTC"]),
        (AT - timedelta(minutes=30), ["no change was seen"]),
    ],
)
def test_no_change_is_told_from_no_record(newest: datetime | None, said: list[str]) -> None:
    text = what_changed(
        [], from_at=AT - timedelta(minutes=30), to_at=AT, gaps=[], total=0, recorded={"c": newest} if newest else {}
    )
    assert text.splitlines() == ["2026-11-20 13:30:00 to 14:00:00 UTC: " + said[0], *said[1:]]


def test_of_which_cluster_something_was_not_seen_is_said_where_there_are_several() -> None:
    start, gap = (
        AT - timedelta(minutes=30),
        replace(a_gap(), cluster="south", from_at=AT - timedelta(minutes=20), to_at=AT),
    )
    text = what_changed(
        [], from_at=start, to_at=AT, gaps=[gap], total=0, recorded={"north": AT, "south": AT - timedelta(minutes=20)}
    )
    assert text.splitlines() == [
        "2026-11-20 13:30:00 to 14:00:00 UTC: no change was seen",
        "not seen of south 11-20 13:40:00 to 14:00:00: the watch was behind",
    ]


def test_the_day_is_said_where_not_all_is_of_the_last() -> None:
    before = replace(a_change(), at=AT - timedelta(hours=15))
    text = what_changed(
        [a_change(), before], from_at=AT - timedelta(days=1), to_at=AT, gaps=[], total=2, recorded={"c": AT}
    )
    assert text.splitlines()[1:] == [
        "TIME           NAMESPACE        CHANGE                          WHO",
        "11-20 14:00:00 shop             image of api: v1 → v2           alice",
        "11-19 23:00:00 shop             image of api: v1 → v2           alice",
    ]
    assert max(map(len, text.splitlines())) <= WIDTH


def test_several_clusters_are_named() -> None:
    assert report([a_change(cluster="north"), a_change(cluster="south")])[1:] == [
        "TIME     CLUSTER    NAMESPACE    CHANGE                             WHO",
        "14:00:00 north      shop         image of api: v1 → v2              alice",
        "14:00:00 south      shop         image of api: v1 → v2              alice",
    ]


def test_what_has_no_summary_namespace_or_actor_still_has_a_line() -> None:
    assert report([a_change("", namespace=None, actor="")])[-1].split() == [
        "14:00:00", "-", "update", "Deployment", "api", "someone", "unknown",
    ]  # fmt: skip


def test_a_window_over_midnight_names_both_days() -> None:
    text = what_changed([], from_at=AT - timedelta(days=1), to_at=AT, gaps=[], total=0, recorded={"c": AT})
    assert text.startswith("2026-11-19 14:00:00 to 2026-11-20 14:00:00 UTC: ")


@pytest.mark.parametrize(("changes", "shown"), [(18, 18), (19, 18), (1000, 18)])
def test_more_than_fits_is_counted(changes: int, shown: int) -> None:
    lines = report([a_change()] * changes)
    assert len(lines) == shown + 2
    assert (f", the newest {shown}" in lines[0]) == (changes > shown)
    assert f"{changes} changes" in lines[0]
    assert (f"{changes} changes or more" in lines[0]) == (changes == COUNTED)


@pytest.mark.parametrize(("gaps", "said"), [(1, 1), (2, 2), (9, 3)])
def test_what_was_not_seen_is_said_and_takes_its_room(gaps: int, said: int) -> None:
    lines = report([a_change()] * 50, [a_gap(f"the watch was behind, {turn}") for turn in range(gaps)])
    assert len(lines) == LINES
    assert lines[-said].startswith("not seen 11-20 14:00:00 to 14:00:05: the watch was behind")
    if gaps > 2:
        assert lines[-1] == "and 7 more intervals were not seen in full"


@given(
    st.lists(
        st.builds(
            a_change,
            st.text(max_size=120),
            namespace=st.text(max_size=70),
            actor=st.text(max_size=70),
            cluster=st.text(max_size=70),
        ),
        max_size=40,
    ),
    st.text(max_size=200),
)
def test_no_name_breaks_the_table_or_steers_the_terminal(changes: list[Change], why: str) -> None:
    end = AT + timedelta(hours=1)
    text = what_changed(changes, from_at=AT, to_at=end, gaps=[a_gap(why)], total=len(changes), recorded={"c": AT})
    lines = text.split("\n")
    assert lines.pop() == ""
    assert len(lines) <= LINES
    assert all(len(line) <= WIDTH for line in lines)
    assert not set(text) & {"\x1b", "\r", "\x00", "\u202e", "\u200b", "\x9b", "\u2028"}


@pytest.mark.parametrize(("text", "expected"), [("a\x1b[2Jb", "a\ufffd[2Jb"), ("abcdefg", "abcde…"), ("", "      ")])
def test_plain(text: str, expected: str) -> None:
    assert plain(text, 6) == expected


def vague() -> Change:
    return replace(a_change(), since=AT - timedelta(minutes=5), found_in="ReplicaSet web-1")


def test_a_time_that_nobody_saw_is_marked() -> None:
    lines = report([vague(), a_change()])
    assert [line[8] for line in lines[2:4]] == ["~", " "]
    assert lines[4:] == ["~ then at the latest: nobody saw when exactly"]
    assert "~" not in "".join(report([a_change()]))


def test_what_a_cluster_remembers_says_what_it_was_found_in() -> None:
    table = remembered([vague()], cluster="shop", from_at=AT - timedelta(days=1), to_at=AT, new=1)
    head, title, row, note = table.splitlines()
    assert head.endswith("UTC: shop remembers 1 change, 1 of them new here")
    assert row.startswith(f"{AT:%Y-%m-%d %H:%M:%S}~ ")
    assert row.index("ReplicaSet web-1") == title.index("FOUND IN")
    assert note.startswith("~ then at the latest")
