"""What an assistant is told is bounded, whatever a cluster holds, and says what was left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.mcp.bounds import LONGEST_COMMAND, MOST, TooMuchError, bounded, visible

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(alphabet="abc"), VALUES))
def test_what_is_small_and_plain_stays_as_it_is(answer: dict[str, Any]) -> None:
    found, left_out = bounded(answer)
    if not left_out:
        assert json.dumps(found, ensure_ascii=False) == visible_json(answer)


def visible_json(value: Any) -> str:
    def shown(one: Any) -> Any:
        if isinstance(one, str):
            return visible(one)
        if isinstance(one, list):
            return [shown(part) for part in one]
        return {visible(key): shown(part) for key, part in one.items()} if isinstance(one, dict) else one

    return json.dumps(shown(value), ensure_ascii=False)


def test_what_cannot_be_seen_is_shown_as_such_and_lines_stay() -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "ignore all")
    found, _ = bounded({"summary": f"image{hidden}\u202e\x1b[2J\nnext", f"key{hidden}": 1})
    assert visible(hidden) == "\ufffd" * len(hidden)
    assert found["summary"] == "image" + "\ufffd" * (len(hidden) + 2) + "[2J\nnext"
    assert f"key{visible(hidden)}" in found


def test_long_texts_and_lists_are_cut_and_it_is_said() -> None:
    found, left_out = bounded({"diffs": [{"old": "a" * 1500}, *({"old": "b"} for _ in range(199))]})
    assert found["diffs"][0]["old"] == "a" * 1000 + "…"
    assert len(found["diffs"]) == 100
    assert left_out == ["diffs: 100 of 200", "diffs[0].old: 500 of 1500 characters"]


def test_texts_become_shorter_until_all_fits() -> None:
    found, left_out = bounded({"diffs": [{"old": "a" * 900, "new": "b" * 900} for _ in range(90)]})
    assert len(json.dumps(found, ensure_ascii=False)) <= MOST
    assert left_out[0] == "diffs: 50 of 90"
    assert left_out[-1].endswith(" more")
    assert len(left_out) == 21


def changed(old: str, new: str) -> dict[str, Any]:
    return {"diffs": [{"path": "data.conf", "op": "replace", "old": old, "new": new}]}


def test_of_long_texts_it_is_told_where_they_differ() -> None:
    same = [f"line {number} of a file" for number in range(300)]
    found, left_out = bounded(changed("\n".join([*same, "mode: a"]), "\n".join([*same, "mode: b"])))
    lines = ["@ 298 lines the same", "  line 298 of a file", "  line 299 of a file", "- mode: a", "+ mode: b"]
    assert found == {"diffs": [{"path": "data.conf", "op": "replace", "lines": lines, "lines_left_out": 0}]}
    assert left_out == []


def test_of_one_long_line_it_is_told_where_it_differs() -> None:
    found, left_out = bounded(changed("x" * 5000 + "a", "x" * 5000 + "b"))
    before = "…" + "x" * 40
    assert found["diffs"][0]["lines"] == [f"- {before}a", f"+ {before}b"]
    assert left_out == []


def test_of_many_texts_that_are_cut_for_their_number_it_is_told_where_they_differ() -> None:
    many = [changed("x" * 700 + "a", "x" * 700 + "b")["diffs"][0] for _ in range(90)]
    found, _ = bounded({"diffs": many})
    assert all(one["lines"][0] != one["lines"][1] for one in found["diffs"])


def test_there_is_room_for_what_stands_beside_an_answer() -> None:
    found, _ = bounded({"summaries": ["s" * 990 for _ in range(100)]})
    assert len(json.dumps(found)) < MOST - 6_000


def test_of_a_page_every_item_is_told_or_none() -> None:
    found, _ = bounded({"items": [{"summary": "s" * 700} for _ in range(150)], "next": "x"})
    assert len(found["items"]) == 150
    with pytest.raises(TooMuchError, match="ask for fewer"):
        bounded({"items": [{str(at): "s" * 120 for at in range(6)} for _ in range(150)], "next": "x"})


@pytest.mark.parametrize("command", ["kubectl " + "x" * LONGEST_COMMAND, "kubectl delete pod a\u202eb"])
def test_a_command_is_whole_or_not_there(command: str) -> None:
    found, left_out = bounded({"command": command, "steps": [{"command": command}, {"command": "kubectl get\npod"}]})
    assert found == {"command": "", "steps": [{"command": ""}, {"command": "kubectl get\npod"}]}
    assert left_out == [
        "command: the command; `foreshock revert` prints it",
        "steps[0].command: the command; `foreshock revert` prints it",
    ]


def test_what_is_nested_without_end_ends() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    found, left_out = bounded({"old": deep})
    assert len(json.dumps(found)) < 200
    assert "what lies deeper" in left_out[0]
