"""What a diff shows of long values: the lines that differ, and little else."""

from __future__ import annotations

from math import isqrt

import pytest

from app.core.changes.hunks import COMPARED, LINES, Hunk, first_difference, hunks
from app.core.model import FieldDiff


def _text(*lines: str) -> str:
    return "\n".join(lines) + "\n"


NUMBERED = [f"line {number}" for number in range(300)]


def _of(old: object, new: object, op: str = "replace") -> Hunk:
    (found,) = hunks([FieldDiff(("data", "file"), op, old, new)])  # type: ignore[arg-type]
    return found


def _signs(hunk: Hunk) -> str:
    return "".join(line.sign for line in hunk.lines)


def test_one_line_of_three_hundred_is_seen_at_once() -> None:
    changed = [*NUMBERED[:200], "other", *NUMBERED[201:]]
    hunk = _of(_text(*NUMBERED), _text(*changed))
    assert _signs(hunk) == "@  -+  @"
    assert [line.text for line in hunk.lines] == [
        "198 lines the same",
        "line 198",
        "line 199",
        "line 200",
        "other",
        "line 201",
        "line 202",
        "97 lines the same",
    ]
    assert hunk.left_out == 0


@pytest.mark.parametrize(
    ("old", "new", "op", "signs"),
    [
        ("a", "b", "replace", "-+"),
        (None, "a\nb", "add", "++"),
        ("a\nb", None, "remove", "--"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "replace", "  -+ "),
        ("a\n", "a", "replace", "@"),
        ("", "a", "replace", "-+"),
        (_text("a", "b"), _text("a", "x", "b"), "replace", " + "),
    ],
)
def test_signs(old: object, new: object, op: str, signs: str) -> None:
    assert _signs(_of(old, new, op)) == signs


def test_what_would_turn_a_line_around_is_spelled_out() -> None:
    hunk = _of("user: a", "user: a\u202e\u2066 // nimda\u2069", "replace")
    assert [line.text for line in hunk.lines] == ["user: a", r"user: a\u202e\u2066 // nimda\u2069"]


def test_what_is_too_long_is_counted() -> None:
    found = _of(_text(*NUMBERED), _text(*reversed(NUMBERED)))
    assert len(found.lines) == LINES
    assert found.left_out > 300
    twice = [str(number // 2) for number in range(isqrt(COMPARED) + 1)]
    assert _signs(_of(_text("a", *twice, "b"), _text("c", *twice, "d"))) == "-" * LINES


def test_every_third_line_of_many_is_seen_where_it_stands() -> None:
    huge = [f"line {number}" for number in range(20_000)]
    hunk = _of(_text(*huge), _text(*(f"{line}!" if at % 3 == 0 else line for at, line in enumerate(huge))))
    assert _signs(hunk) == "-+  " * (LINES // 4)
    assert hunk.left_out == 20_000 + 6667 - LINES


def test_lines_that_moved_are_gone_here_and_new_there() -> None:
    moved = [*NUMBERED[:100], *NUMBERED[150:], *NUMBERED[100:150]]
    hunk = _of(_text(*NUMBERED), _text(*moved))
    assert _signs(hunk) == "@  " + "-" * 50 + "  @  " + "+" * 50


@pytest.mark.parametrize("at", [0, 1, 40_000, 49_999])
def test_one_line_of_fifty_thousand_is_seen_at_once(at: int) -> None:
    huge = [f"line {number}" for number in range(50_000)]
    hunk = _of(_text(*huge), _text(*huge[:at], "other", *huge[at + 1 :]))
    told = [line.text for line in hunk.lines if line.sign in "-+"]
    assert told == [f"line {at}", "other"]
    assert len(hunk.lines) <= 8
    same = sum(int(line.text.split()[0].replace(",", "")) for line in hunk.lines if line.sign == "@")
    assert same + _signs(hunk).count(" ") == len(huge) - 1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (_text("a", "  zone x", "c"), _text("a", "  zone y", "c"), ("zone x", "zone y")),
        (_text("a", "c"), _text("a", "b", "c"), ("", "b")),
        (_text("a", "b", "c"), _text("a", "c"), ("b", "")),
        (_text("a", "b", "c", "d"), _text("x", "y", "c", "d"), ("a", "x")),
    ],
)
def test_a_long_texts_change_is_told_by_where_it_begins(old: str, new: str, expected: tuple[str, str]) -> None:
    assert first_difference(old, new) == expected
