"""The credential of a kubeconfig: made by a plugin that may hang, and had anew once it is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from app.collect import apiserver, exec_plugin
from app.collect.apiserver import ApiServer, CredentialsError, RefusedError, UnreachableError
from app.collect.exec_plugin import PluginError, credential
from tests.listening import listening

VERSION = "client.authentication.k8s.io/v1"


class Keeper:
    """An API server that knows one token at a time."""

    def __init__(self) -> None:
        self.url, self.token, self.asked = "", "first", list[str]()

    async def answer(self, request: web.Request) -> web.Response:
        said = request.headers.get("Authorization", "")
        self.asked.append(said)
        return web.json_response({}, status=200 if said == f"Bearer {self.token}" else 401)

    def kubeconfig(self, folder: Path, user: dict[str, Any]) -> str:
        (folder / "config").write_text(
            json.dumps(
                {
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": user}],
                }
            )
        )
        return str(folder / "config")


@pytest.fixture
async def keeper() -> AsyncIterator[Keeper]:
    found = Keeper()
    app = web.Application()
    app.router.add_get("/{path:.*}", found.answer)
    async with listening(app) as url:
        found.url = url
        yield found


def plugin(script: str) -> dict[str, Any]:
    return {"command": "sh", "args": ["-c", script], "apiVersion": VERSION}


def printed(token: str) -> str:
    """A script that prints a credential; ``token`` is the shell's."""
    return f'printf \'{{"apiVersion":"{VERSION}","kind":"ExecCredential","status":{{"token":"%s"}}}}\' "{token}"'


async def test_a_plugin_that_hangs_is_ended_with_all_it_started_and_said_to_be(tmp_path: Path) -> None:
    hangs = plugin(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    with pytest.raises(PluginError) as told:
        await credential(hangs, within=0.5)
    assert str(told.value) == (
        "the plugin (exec) that makes the credential, sh, did not end within 0.5 s, and was ended: run it by hand, as"
        " kubectl does, and see what it waits for"
    )
    pid = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(10):
        while _runs(pid):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no profile >&2; exit 3", "failed (3): no profile"),
        ("exit 3", "failed (3): it says nothing"),
        ("echo hello", "what is no ExecCredential"),
        (f'echo \'{{"apiVersion":"{VERSION}","kind":"ExecCredential","status":{{}}}}\'', "neither a token nor"),
        (printed("x").replace("/v1", "/v9"), f"answers as {VERSION[:-1]}9, and {VERSION} is asked for"),
    ],
)
async def test_what_is_wrong_with_a_plugin_is_said_at_the_start(
    keeper: Keeper, tmp_path: Path, script: str, said: str
) -> None:
    path = keeper.kubeconfig(tmp_path, {"exec": plugin(script)})
    with pytest.raises(CredentialsError) as told:
        await ApiServer.of_kubeconfig(path)
    assert str(told.value).startswith(f"{path}: the plugin (exec) that makes the credential, sh,")
    assert said in str(told.value)


async def test_a_plugin_that_is_not_there_or_not_said_in_full_is_said() -> None:
    with pytest.raises(PluginError, match="nowhere-to-be-found, cannot be run: No such file"):
        await credential({"command": "nowhere-to-be-found", "apiVersion": VERSION})
    with pytest.raises(PluginError, match="`command`"):
        await credential({"apiVersion": VERSION})


async def test_a_plugin_is_asked_again_once_its_token_has_ended(keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    path = keeper.kubeconfig(tmp_path, {"exec": plugin(printed(f"$(cat {tmp_path}/token)"))})
    api = await ApiServer.of_kubeconfig(path)
    try:
        await api.get("/version", {})
        keeper.token = "second"
        (tmp_path / "token").write_text("second")
        await asyncio.gather(*(api.get("/version", {}) for _ in range(5)))
        assert keeper.asked.count("Bearer second") == 5
    finally:
        await api.close()


async def test_a_file_of_a_token_is_read_again_once_that_is_refused(keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    api = await ApiServer.of_kubeconfig(keeper.kubeconfig(tmp_path, {"tokenFile": str(tmp_path / "token")}))
    try:
        await api.get("/version", {})
        keeper.token = "second"
        (tmp_path / "token").write_text("second\n")
        await api.get("/version", {})
        assert keeper.asked == ["Bearer first", "Bearer first", "Bearer second"]
    finally:
        await api.close()


async def test_a_credential_that_is_refused_for_good_is_not_made_at_each_request(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keeper.kubeconfig(tmp_path, {"exec": plugin(f"echo >> {tmp_path}/runs; {printed('first')}")})
    api = await ApiServer.of_kubeconfig(path)
    keeper.token = "another"
    try:
        for _ in range(3):
            with pytest.raises(RefusedError, match=r"401 .*the API server refuses the credential of kubeconfig"):
                await api.get("/version", {})
        assert (tmp_path / "runs").read_text() == "\n\n"
        monkeypatch.setattr(apiserver, "RENEWED_EVERY", 0)
        hangs = {"exec": plugin("sleep 600")}
        keeper.kubeconfig(tmp_path, hangs)
        monkeypatch.setattr(exec_plugin.credential, "__kwdefaults__", {"within": 0.2})
        with pytest.raises(UnreachableError, match=r"there is no other: .* did not end within 0\.2 s"):
            await api.get("/version", {})
    finally:
        await api.close()
