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
        ("application/json;q=0.9,text/plain", JSON),  # Grafana's Infinity, which takes no table
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


@pytest.mark.parametrize("hostile", ['"' * 300_001, '"\\' * 150_000, '"a' * 150_001, '"\\"' * 100_000])
def test_of_quotes_that_do_not_end_none_is_looked_through_twice(hostile: str) -> None:
    """Longer than any header that is taken: with each quote looked through anew this takes a quarter of an hour."""
    assert preferred(hostile, ALL) is None


def test_what_is_offered_first_is_the_default() -> None:
    assert preferred("", (TEXT, JSON)) == preferred("*/*", (TEXT, JSON)) == TEXT
