"""What is followed is told in order, whatever ends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.client.following import follow
from app.client.output import Output
from app.client.server import RefusedError, Server

GAP = {"cluster": "shop", "kind": "Deployment", "from_at": "2026-01-01T12:00:00Z", "to_at": "2026-01-01T12:05:00Z"}


class Ending(Server):
    """Tells of a gap, and then why it does not go on."""

    def __init__(self) -> None:
        """It asks nobody."""

    def lines(self, *_path: str, silent: float, **_asked: object) -> Iterator[dict[str, Any]]:
        yield {"gap": GAP | {"why": "the API server was away"}}
        yield {"problem": {"status": 422, "detail": "what follows is too long"}}


def test_what_was_not_seen_is_told_before_the_server_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RefusedError, match="too long"):
        follow(Ending(), Output.TABLE, "changes", limit=1)
    assert "the API server was away" in capsys.readouterr().out
