"""A write for a person that is sent twice, as by a double click or by loading the page of its answer again: one is
done, and the other says so. What a real API server makes of a write is in tests/cluster/test_acting.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from aiohttp import web

from app.collect.acting import Undoing, acting
from app.core.access import Identity
from app.core.changes.revert_write import UndoError, Write
from app.core.model import Resource
from app.core.objects.redact import Redactor
from tests.listening import listening

Json = dict[str, Any]
Verb = Literal["patch", "create", "delete"]
ALICE = Identity("alice@example.com", ("sre",))
PATH = "/api/v1/namespaces/shop/configmaps"


@dataclass
class Store:
    """Where an API server keeps one ConfigMap; each write takes a while, and is refused where another came before."""

    held: Json | None
    version: int = 1
    writes: list[str] = field(default_factory=list)
    asked_as: set[str] = field(default_factory=set)

    def shown(self) -> Json:
        metadata = {"name": "limits", "namespace": "shop", "uid": "u-1", "resourceVersion": str(self.version)}
        return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": self.held}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked_as.add(request.headers.get("Impersonate-User", ""))
        body = await request.json() if request.can_read_body else {}
        is_there = self.held is not None
        if request.method == "POST":
            if is_there:
                return refusal(409, 'configmaps "limits" already exists')
            return await self.write(request, body["data"], None)
        if not is_there:
            return refusal(404, 'configmaps "limits" not found')
        if request.method == "GET":
            return web.json_response(self.shown())
        wanted = str(body["preconditions" if request.method == "DELETE" else "metadata"]["resourceVersion"])
        held = None if request.method == "DELETE" else {**(self.held or {}), **body["data"]}
        return await self.write(request, held, wanted)

    async def write(self, request: web.Request, held: Json | None, wanted: str | None) -> web.Response:
        if "dryRun" in request.query:
            await asyncio.sleep(0.05)
            return web.json_response({**self.shown(), "data": held})
        if wanted not in (None, str(self.version)):
            return refusal(409, "the object has been modified")
        self.held, self.version = held, self.version + 1
        self.writes.append(request.method)
        return web.json_response(self.shown())


def refusal(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "code": status, "message": message}, status=status)


@asynccontextmanager
async def undoing(store: Store, verb: Verb, folder: Path) -> AsyncIterator[Undoing]:
    app = web.Application()
    for path in (PATH, f"{PATH}/limits"):
        app.router.add_route("*", path, store.answer)
    async with listening(app) as url:
        named = {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "not-in-words"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "x", **named}))
        body: Json = {} if verb == "delete" else {"data": {"most": "10"}}
        resource = Resource("prod", "", "ConfigMap", "shop", "limits")
        uid = "" if verb == "create" else "u-1"
        write = Write(verb, resource, "v1", "configmaps", body, "merge" if verb == "patch" else "", uid)
        async with acting(str(file), None, ALICE) as server:
            yield Undoing(server, write, Redactor(b"k" * 32), ALICE)


@pytest.mark.parametrize(
    ("verb", "before", "after", "said"),
    [
        ("patch", {"most": "99"}, {"most": "10"}, "nothing is left to undo: somebody undid it meanwhile, or"),
        ("delete", {"most": "99"}, None, r"\(404\): configmaps \"limits\" not found. It is gone already: somebody"),
        (
            "create",
            None,
            {"most": "10"},
            r"\(409\): configmaps \"limits\" already exists. It is there already: somebody",
        ),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_is_sent_twice_is_done_once_and_the_other_says_so(
    tmp_path: Path, verb: Verb, before: Json | None, after: Json | None, said: str, at_once: bool
) -> None:
    store = Store(before)
    async with undoing(store, verb, tmp_path) as one:
        seen = (await one.attempt(None)).seen
        if at_once:
            both = list(await asyncio.gather(one.attempt(seen), one.attempt(seen), return_exceptions=True))
        else:
            both = [await one.attempt(seen), *await asyncio.gather(one.attempt(seen), return_exceptions=True)]
    [refused] = [one for one in both if isinstance(one, BaseException)]
    with pytest.raises(UndoError, match=said) as told:
        raise refused
    assert not told.value.unsure
    assert len(store.writes) == 1
    assert store.held == after
    assert store.asked_as == {ALICE.name}
