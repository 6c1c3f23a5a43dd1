"""`foreshock mcp` whose input ends right behind the last request, as a script writes it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.client.conftest import Asked
from tests.test_cli import FORESHOCK, PATIENCE, environment

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "script", "version": "1"}}


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_what_was_asked_before_the_end_is_answered(site: Asked) -> None:
    messages = [
        request(1, "initialize", **HELLO),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *(request(number, "tools/call", name="what_changed", arguments={"limit": 1}) for number in (2, 3, 4)),
        request(5, "tools/call", name="incident", arguments={"incident_id": "none"}),
        request(6, "tools/call", name="no_such_tool", arguments={}),
    ]
    done = subprocess.run(
        [*FORESHOCK, "mcp"],
        input="".join(json.dumps(one) + "\n" for one in messages),
        env=environment(**site.variables()),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert sorted(answers) == [1, 2, 3, 4, 5, 6]
    assert all(answers[number]["result"]["structuredContent"]["data"]["items"] for number in (2, 3, 4))
    assert answers[5]["result"]["isError"] is True
    assert "there is no such tool" in answers[6]["error"]["message"]
