"""Whose word counts of where a request comes from: nobody's, unless it is said."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.serving import program

TRIES = 100


@pytest.mark.parametrize(("trusted", "limited"), [("", True), ("10.0.0.0/8", True), ("127.0.0.1", False)])
def test_who_guesses_from_this_machine_cannot_choose_an_address(
    dsn: str, tmp_path: Path, trusted: str, limited: bool
) -> None:
    more = {"FORWARDED_ALLOW_IPS": trusted} if trusted else {}
    with program(dsn, tmp_path / "data", "--port", "0", **more) as (_, address), httpx2.Client() as client:
        guesses = [
            client.get(
                f"{address}/api/v1/gaps",
                headers={"Authorization": f"Bearer fs_{n:043}", "X-Forwarded-For": f"7.7.{n // 50}.{n}"},
            ).status_code
            for n in range(TRIES)
        ]
    assert set(guesses) == ({401, 429} if limited else {401})
