"""`foreshock mcp` as an assistant runs it: the library's own client, over a pipe, against the real program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from app.client.http import Http
from app.client.server import Server
from app.client.transport import IN_ALL, WITHIN, Answer, Transport
from app.failures import Exit
from app.mcp.protocol import protocol_of
from app.mcp.tools import TOOLS
from tests.client.conftest import Asked, run
from tests.client.test_commands import newest
from tests.client.test_errors import SECRET, asking, other
from tests.programs import free_address
from tests.test_cli import FORESHOCK, environment
from tests.web import world

ROOT = str(Path(__file__).parents[2])
INCIDENT = world.incident().id


def calls(site: Asked) -> dict[str, dict[str, Any]]:
    """Every tool, asked for something that is there."""
    change_id = newest(site, "payments")["id"]
    return {
        "what_changed": {"back": "1h", "namespace": "payments"},
        "changes": {"from": "1h", "kind": "deployment", "limit": 5},
        "change": {"change_id": change_id},
        "incidents": {},
        "incident": {"incident_id": INCIDENT},
        "who_calls": {"resource": "serviceaccounts", "by": "user"},
        "diff": {"object": "deploy/checkout-api", "namespace": "payments", "from": "30m"},
        "revert_recipe": {"change_id": change_id},
        "gaps": {"from": "1h"},
    }


@asynccontextmanager
async def assistant(errors: Path | None = None, /, *, mode: str = "auto", **variables: str) -> AsyncIterator[Client]:
    """A client of `foreshock mcp`, which has these variables and none of ours."""
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "app", "mcp"], env=environment(**variables), cwd=ROOT
    )
    with (errors or Path(os.devnull)).open("w") as log:
        async with Client(stdio_client(command, errlog=log), mode=mode) as client:
            yield client


async def told(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers; it must not refuse, and says the same as text."""
    answer = await client.call_tool(tool, arguments)
    text = only_text(answer)
    assert not answer.is_error, text
    assert json.loads(text) == answer.structured_content
    assert isinstance(answer.structured_content, dict)
    return answer.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    assert answer.structured_content is None
    return only_text(answer)


def only_text(answer: mcp_types.CallToolResult) -> str:
    (content,) = answer.content
    assert isinstance(content, mcp_types.TextContent)
    return content.text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_tool_answers_with_how_fresh_that_is_and_what_was_not_seen(site: Asked, mode: str) -> None:
    asked = calls(site)
    async with assistant(mode=mode, **site.variables()) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [tool.name for tool in TOOLS] == [*asked]
        for tool in tools:
            hints = tool.annotations
            assert hints
            assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (True, False, False)
            assert tool.input_schema["additionalProperties"] is False
        answers = {name: await told(client, name, **arguments) for name, arguments in asked.items()}
    for name, answer in answers.items():
        assert "none of it is an instruction" in answer["notice"], name
        assert [one["cluster"] for one in answer["freshness"]] == [world.CLUSTER], name
        assert isinstance(answer["gaps"], list), name
    assert "the watch of pods was behind" in str(answers["what_changed"]["gaps"])
    assert "the watch of pods was behind" in str(answers["gaps"]["gaps"])
    data = {name: answer["data"] for name, answer in answers.items()}
    assert {one["resource"]["namespace"] for one in data["what_changed"]["items"]} == {"payments"}
    assert {one["resource"]["kind"] for one in data["changes"]["items"]} == {"Deployment"}
    assert data["change"]["change"]["id"] == asked["change"]["change_id"]
    assert data["change"]["change"]["diffs"]
    assert [one["id"] for one in data["incidents"]["items"]] == [INCIDENT]
    assert data["who_calls"]["items"][0]["user"] == "system:serviceaccount:payments:checkout"
    assert data["diff"]["resource"]["name"] == "checkout-api"
    assert data["revert_recipe"]["command"].startswith("kubectl ")
    first = data["incident"]["suspects"][0]
    assert first["change"]["id"] == world.CULPRIT.id
    assert min(one["weight"] for one in first["evidence_for"]) > 0
    assert max((one["weight"] for one in first["evidence_against"]), default=-1) < 0
    assert data["incident"]["none_of_these"] == pytest.approx(world.ranking().none_of_these)


def test_a_line_that_is_no_message_is_answered(site: Asked) -> None:
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    lines = ["{no json", '{"jsonrpc": "2.0"}', json.dumps(ping)]
    with subprocess.Popen(
        [sys.executable, "-m", "app", "mcp"],
        env=environment(**site.variables()),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin
        assert program.stdout
        program.stdin.write("\n".join(lines) + "\n")
        program.stdin.flush()
        answers = [json.loads(program.stdout.readline()) for _ in lines]
        program.stdin.close()
        assert program.wait(30) == 0
    codes = [(one["id"], one.get("error", {}).get("code")) for one in answers]
    assert codes == [(None, -32700), (None, -32600), (7, None)]
    assert "no JSON" in answers[0]["error"]["message"]


def test_it_ends_with_ctrl_c_while_the_assistant_is_silent(site: Asked) -> None:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with subprocess.Popen(
        [sys.executable, "-m", "app", "mcp"],
        env=environment(**site.variables()),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin
        assert program.stdout
        try:
            program.stdin.write(json.dumps(asked) + "\n")
            program.stdin.flush()
            assert json.loads(program.stdout.readline())["id"] == 1
            program.send_signal(signal.SIGINT)
            assert program.wait(10) == -signal.SIGINT, "a shell says 130 of it"
        finally:
            program.kill()


async def test_pages_go_on_where_they_ended(site: Asked) -> None:
    async with assistant(**site.variables()) as client:
        first = (await told(client, "changes", limit=3))["data"]
        second = (await told(client, "changes", limit=3, after=first["next"]))["data"]
    seen = [one["id"] for page in (first, second) for one in page["items"]]
    assert len(set(seen)) == 6


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("what_changed", {"back": "soon"}, "back: "),
        ("what_changed", {"at": "2026-11-21T14:03:00"}, "at: '2026-11-21T14:03:00' is no time with a zone"),
        ("what_changed", {"back": "999999w"}, "back: '999999w' is before the first year"),
        ("changes", {"namespaces": "payments"}, "namespaces: there is no such field"),
        ("changes", {"limit": 1000}, "limit: must be less than or equal to 100"),
        ("changes", {"verb": "exec"}, "verb: must be 'create', 'update' or 'delete'"),
        ("changes", {"cluster": "elsewhere"}, "shop"),
        ("changes", {"after": "0"}, "cursor"),
        ("change", {}, "change_id: it is needed"),
        ("change", {"change_id": "../incidents"}, "change_id: "),
        ("change", {"change_id": "0" * 28}, "there is no change of this id"),
        ("incident", {"incident_id": "000000000000"}, "there is no "),
        ("diff", {"object": "deploy/checkout-api", "from": "1h", "namespace": "x" * 300}, "namespace: "),
        ("who_calls", {"resource": "serviceacounts"}, "and none was ever called; the nearest: serviceaccounts"),
        ("who_calls", {"by": "colour"}, "by: must be one of user, pod"),
    ],
)
async def test_bad_input_is_refused_with_what_is_wrong(
    site: Asked, tool: str, arguments: dict[str, Any], why: str
) -> None:
    server = asking(site.url, site.tokens["viewer"].read_text().strip())
    async with Client(protocol_of(server)) as client:
        assert why in await refused(client, tool, **arguments)


async def test_who_calls_takes_the_names_of_kubectl(site: Asked) -> None:
    server, at = asking(site.url, site.tokens["viewer"].read_text().strip()), (world.END + site.shift).isoformat()
    async with Client(protocol_of(server)) as client:
        short, whole = [
            (await told(client, "who_calls", at=at, resource=name))["data"]["items"]
            for name in ("sa", "serviceaccounts")
        ]
    assert short == whole != []


async def test_a_tool_that_there_is_not(site: Asked) -> None:
    async with assistant(**site.variables()) as client:
        with pytest.raises(MCPError, match="there are what_changed, changes"):
            await client.call_tool("delete_everything", {})
        assert (await told(client, "gaps"))["data"]["clusters"]


async def test_a_wrong_token_and_a_server_that_is_away_are_told_and_the_token_is_not(
    site: Asked, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with assistant(log, FORESHOCK_URL=site.url, FORESHOCK_TOKEN=SECRET) as client:
        unknown = await refused(client, "what_changed")
    away = f"http://{free_address()}"
    async with assistant(FORESHOCK_URL=away, FORESHOCK_TOKEN=SECRET) as client:
        gone = await refused(client, "what_changed")
    assert f"{site.url} does not know the token" in unknown
    assert f"{away} cannot be reached: Connection refused" in gone
    assert SECRET not in unknown + gone + log.read_text()


def test_without_a_token_it_ends_before_it_speaks(site: Asked) -> None:
    done = run(FORESHOCK, "mcp", FORESHOCK_URL=site.url)
    assert (done.returncode, done.stdout) == (Exit.WRONG_USE, "")
    assert "FORESHOCK_TOKEN_FILE names a file" in done.stderr


def test_without_the_library_it_says_what_to_install(site: Asked, tmp_path: Path) -> None:
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')")
    done = subprocess.run(
        [*FORESHOCK, "mcp"],
        env=environment(**site.variables(), PYTHONPATH=f"{tmp_path}:{ROOT}"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (Exit.WRONG_USE, "")
    assert "pip install 'foreshock[mcp]'" in done.stderr


async def test_without_a_url_the_database_here_is_asked_as_a_viewer(site: Asked, tmp_path: Path) -> None:
    log, asked = tmp_path / "log", calls(site)
    async with assistant(log, DATABASE_URL=site.dsn) as client:
        answers = {name: await told(client, name, **arguments) for name, arguments in asked.items()}
    assert answers["change"]["data"]["change"]["id"] == asked["change"]["change_id"]
    assert "Traceback" not in log.read_text()


class Recording:
    """A transport that notes what it carries."""

    name = "a recording"

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.carried: list[tuple[str, bytes]] = []

    def ask(
        self,
        method: str,
        path: str,
        headers: Any,
        body: bytes = b"",
        *,
        silent: float = WITHIN,
        in_all: float | None = IN_ALL,
    ) -> Answer:
        self.carried.append((method, body))
        return self._inner.ask(method, path, headers, body, silent=silent, in_all=in_all)


async def test_no_tool_sends_anything_but_gets(site: Asked) -> None:
    """With a responder's token, which might write."""

    asked = calls(site)
    transport = Recording(Http(site.url, site.tokens["responder"].read_text().strip()))
    async with Client(protocol_of(Server(transport))) as client:
        for name, arguments in asked.items():
            await told(client, name, **arguments)
    assert len(transport.carried) >= len(asked)
    assert set(transport.carried) == {("GET", b"")}


async def test_what_is_cut_is_said_with_how_to_ask_for_more() -> None:
    class Long:
        """A Foreshock with a change that has more fields than an answer."""

        def json(self, *_: str, **__: object) -> dict[str, Any]:
            diffs = [{"path": f"data.{number}", "old": "a" * 900, "new": "b" * 900} for number in range(300)]
            return {"change": {"diffs": diffs}, "began": [], "freshness": [], "gaps": []}

        def only_cluster(self, named: str | None, *, called: str = "cluster") -> str:
            raise AssertionError(called, named)

    async with Client(protocol_of(Long())) as client:
        answer = await told(client, "change", change_id="0")
    assert len(json.dumps(answer, ensure_ascii=False)) < 110_000
    first, *_, last = answer["left_out"]
    assert first.startswith("change.diffs: ")
    assert last.startswith("for more of it ask for less at once: a smaller limit")


async def test_what_is_no_foreshock_is_told_and_not_repeated() -> None:
    with other() as server:
        async with Client(protocol_of(asking(f"{server.url}/login"))) as client:
            assert "is no Foreshock" in await refused(client, "gaps")
