"""What is kept of a line that could not be used: wherever a Secret is cut, none of its values."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.objects.redact import EXCERPT, LAST_APPLIED, Redactor

redactor = Redactor(b"a key that only the tests know..")
WINDOW = 6
"""So many characters of a value in a row are a leak."""
PLAIN = ("correct-horse-battery", "hunter2hunter2", "Zx9-vQ27-kkw1", "wrong.donkey.paper")
VALUES = (*(b64encode(word.encode()).decode() for word in PLAIN), *PLAIN)
APPLIED = json.dumps({"kind": "Secret", "apiVersion": "v1", "data": {"token": VALUES[2]}})
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "db",
        "namespace": "shop",
        "annotations": {LAST_APPLIED: APPLIED, "note": PLAIN[1]},
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
    },
    "type": "Opaque",
    "data": {"config": VALUES[0], "tls.key": VALUES[1], "verb": VALUES[2], "extra": VALUES[3]},
    "stringData": {"kind": PLAIN[0], "type": PLAIN[3], "requestURI": PLAIN[2]},
}
AUDIT = {
    "kind": "Event",
    "apiVersion": "audit.k8s.io/v1",
    "level": "RequestResponse",
    "stage": "ResponseComplete",
    "verb": "update",
    "requestObject": SECRET,
    "responseObject": SECRET,
}
WATCH = {"type": "MODIFIED", "object": SECRET}
EVENTS = {"audit": AUDIT, "watch": WATCH, "secret": SECRET}
WINDOWS = frozenset(value[n : n + WINDOW] for value in VALUES for n in range(len(value) - WINDOW + 1))


def leaks(text: str) -> set[str]:
    return {text[n : n + WINDOW] for n in range(len(text) - WINDOW + 1)} & WINDOWS


def printed(event: object) -> Iterator[str]:
    """An event as an API server, kubectl and jq print it."""
    yield json.dumps(event, separators=(",", ":"))
    yield json.dumps(event)
    for indent in (1, 2, 4, "\t"):
        yield json.dumps(event, indent=indent)


def test_the_search_finds_a_value() -> None:
    assert leaks(json.dumps(SECRET)) == WINDOWS


@pytest.mark.parametrize("name", EVENTS)
def test_no_cut_leaves_a_value(name: str) -> None:
    for form in printed(EVENTS[name]):
        whole = form.encode()
        parts = [whole[:n] for n in range(len(whole) + 1)] + [whole[n:] for n in range(len(whole))]
        found = {part: leaks(redactor.excerpt(part)) for part in (*parts, *whole.splitlines())}
        assert {part: leak for part, leak in found.items() if leak} == {}


@settings(max_examples=1500)
@given(st.sampled_from([form for event in EVENTS.values() for form in printed(event)]), st.data())
def test_no_piece_from_the_middle_leaves_a_value(form: str, data: st.DataObject) -> None:
    ends = [n for n, char in enumerate(form) if char in '{}[]",:\n ']  # where a piece may look whole
    first, last = sorted(data.draw(st.tuples(*[st.sampled_from(ends) | st.integers(0, len(form))] * 2)))
    assert leaks(redactor.excerpt(form[first : last + 1].encode())) == set()


def test_every_object_and_list_inside_leaves_no_value() -> None:
    def inside(value: object) -> Iterator[object]:
        yield value
        if isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value:
                yield from inside(part)

    parts = [json.dumps(part).encode() for event in EVENTS.values() for part in inside(event)]
    assert len(parts) > 50
    assert [part for part in parts if leaks(redactor.excerpt(part))] == []


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (
            {**AUDIT, "stage": 7, "requestURI": "/api/v1/secrets?token=hunter2hunter2", "user": {"username": "bob"}},
            ['"verb":"update"', '"stage":7', "/api/v1/secrets?token=<redacted:", '"username":"bob"', '"{…}"'],
        ),
        ({"verb": "get", "env": [{"name": "SALT"}]}, ['{"verb":"…","env":"[…]"}']),
        ({"at": 7, "type": "hunter2hunter2", "object": "x"}, ['{"at":"…","type":"…","object":"…"}']),
    ],
)
def test_what_an_event_says_of_itself_is_kept(line: object, kept: list[str]) -> None:
    found = redactor.excerpt(json.dumps(line).encode())
    assert [piece for piece in kept if piece not in found] == [], found
    assert leaks(found) == set()


@pytest.mark.parametrize("line", [b"password=hunter2hunter2", b'"hunter2hunter2"', b"[1]", b"\xff", b"", b"{" * 70_000])
def test_of_what_is_no_object_the_length_is_kept(line: bytes) -> None:
    found = redactor.excerpt(line)
    assert found.startswith(f"{len(line):,} bytes, of which nothing is kept: <redacted:")
    assert len(found) <= EXCERPT
    assert found == redactor.excerpt(line)
    assert found != redactor.excerpt(line + b"x").replace(f"{len(line) + 1:,}", f"{len(line):,}"), (
        "lines can be told apart"
    )
