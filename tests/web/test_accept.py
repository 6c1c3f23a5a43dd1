"""What a client would rather read, by its Accept."""

from __future__ import annotations

import pytest

from app.web.accept import JSON, NDJSON, TEXT, preferred

ALL = (JSON, TEXT, NDJSON)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/plain", TEXT),
        ("TEXT/Plain; charset=utf-8", TEXT),
        ("text/*", TEXT),
        ("application/*", JSON),
        ("application/x-ndjson", NDJSON),
        ("application/json;q=0.5, text/plain;q=0.9", TEXT),
        ("application/json ; q=0.5,text/plain ; q=0.4", JSON),
        ("text/plain, application/json", JSON),  # of equals what is offered first
        ("*/*;q=0.1, application/x-ndjson", NDJSON),
        ("*/*, application/json;q=0", TEXT),  # what is named is weighed by its name
        ("application/*;q=0, */*;q=0.1", TEXT),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", JSON),  # a browser
        ('text/html;level="1,2", text/plain;q=0.3', TEXT),
        ("text/plain;q=nan, application/x-ndjson;q=0.001", NDJSON),
        ("text/plain;q=2, application/json;q=much", None),
        ("text/html", None),
        ("application/json;q=0", None),
        ("nonsense", None),
        (",", None),
    ],
)
def test_the_heaviest_is_preferred(accept: str, expected: str | None) -> None:
    assert preferred(accept, ALL) == expected


@pytest.mark.parametrize("hostile", ['"' * 64_001, '"\\' * 32_000, '"a' * 32_001, '"\\"' * 20_000, "," * 64_000])
def test_what_is_made_to_take_long_takes_as_long_as_it_is(hostile: str) -> None:
    assert preferred(hostile, ALL) is None


def test_what_is_offered_first_is_the_default() -> None:
    assert preferred("", (TEXT, JSON)) == preferred("*/*", (TEXT, JSON)) == TEXT
