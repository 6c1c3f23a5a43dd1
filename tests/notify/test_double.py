"""The double refuses what Slack refuses of blocks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.notify.double import mistakes


def said(text: str, kind: str = "mrkdwn") -> dict[str, Any]:
    return {"type": kind, "text": text}


def menu(options: int) -> dict[str, Any]:
    choices = [{"text": said(f"Choice {n}", "plain_text"), "value": str(n)} for n in range(options)]
    return {"type": "section", "text": said("x"), "accessory": {"type": "overflow", "options": choices}}


@pytest.mark.parametrize(
    ("fits", "refused"),
    [
        ({"type": "section", "text": said("x")}, {"type": "section", "text": said("")}),
        ({"type": "section", "text": said("x" * 3000)}, {"type": "section", "text": said("x" * 3001)}),
        ({"type": "section", "fields": [said("x" * 2000)]}, {"type": "section", "fields": [said("x" * 2001)]}),
        ({"type": "section", "fields": [said("x")] * 10}, {"type": "section", "fields": [said("x")] * 11}),
        ({"type": "section", "fields": [said("x")]}, {"type": "section"}),
        ({"type": "context", "elements": [said("x")]}, {"type": "context", "elements": []}),
        ({"type": "header", "text": said("x" * 150, "plain_text")}, {"type": "header", "text": said("x" * 151)}),
        (menu(5), menu(6)),
        ({"type": "divider"}, {"type": "actions", "elements": []}),
    ],
)
def test_blocks_beyond_a_limit_are_refused(fits: dict[str, Any], refused: dict[str, Any]) -> None:
    assert mistakes([fits]) == []
    assert mistakes([refused])
