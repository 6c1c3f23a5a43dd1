"""Watches of a real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Self

import httpx2
import pytest

from app.collect.apiserver import ApiServer, CredentialsError
from app.collect.discovery import discover
from app.collect.watch import Pace, follow
from app.collect.words import Begun, Blind, Reached, Resumed, Saw, Served, Word
from tests.cluster.control_plane import ControlPlane, running

CONFIG_MAPS = Served("", "v1", "ConfigMap", "configmaps")
BRISK = Pace(
    shortest=timedelta(milliseconds=50),
    longest=timedelta(milliseconds=200),
    refused=timedelta(milliseconds=50),
    spread=timedelta(milliseconds=50),
    apart=timedelta(),
)


@asynccontextmanager
async def api_of(plane: ControlPlane, user: str = "admin") -> AsyncIterator[ApiServer]:
    api = await ApiServer.of_kubeconfig(str(plane.kubeconfig(user)))
    try:
        yield api
    finally:
        await api.close()


class Watched:
    """The words of a watch, one by one; those about other namespaces and bookmarks are passed over."""

    def __init__(self, api: ApiServer, namespace: str, since: str = "", *, pace: Pace = BRISK) -> None:
        self.namespace, self.version = namespace, since
        self._watch = follow(api, CONFIG_MAPS, since=since, lists=asyncio.Semaphore(2), pace=pace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._watch.aclose()

    async def next(self) -> str:
        while True:
            async with asyncio.timeout(60):
                told = await anext(self._watch)
            if isinstance(told, Saw):
                metadata = json.loads(told.object)["metadata"]
                if metadata["namespace"] == self.namespace:
                    self.version = told.resource_version
                    return f"{told.type} {metadata['name']}{' first' if told.first else ''}"
            elif not isinstance(told, Reached | Begun | Resumed):
                return type(told).__name__

    async def until(self, word: str) -> list[str]:
        """All words up to this one."""
        found = [await self.next()]
        while found[-1] != word:
            found.append(await self.next())
        return found


def make(admin: httpx2.Client, namespace: str, name: str) -> None:
    made = admin.post(f"/api/v1/namespaces/{namespace}/configmaps", json={"metadata": {"name": name}})
    assert made.status_code == 201, made.text


async def test_hundreds_of_kinds_are_watched_and_all_else_is_answered_beside(control_plane: ControlPlane) -> None:
    """Each watch holds a connection for good, and custom resources alone are often more than a hundred."""
    async with api_of(control_plane) as api, AsyncExitStack() as held:
        watches = [await held.enter_async_context(Watched(api, "hundreds")) for _ in range(150)]
        async with asyncio.timeout(120):
            await asyncio.gather(*(one.until("Synced") for one in watches))
            assert b"gitVersion" in await api.get("/version", {})


async def test_what_is_served_and_says_something_is_found_in_two_calls(control_plane: ControlPlane) -> None:
    async with api_of(control_plane) as api:
        found = await discover(api)
    kinds = {(one.api_group, one.kind): one.path for one in found.kinds}
    assert kinds["apps", "Deployment"] == "/apis/apps/v1/deployments"
    assert kinds["", "Event"] == "/api/v1/events"
    assert ("coordination.k8s.io", "Lease") not in kinds
    assert ("events.k8s.io", "Event") not in kinds
    assert found.stale == ()


async def test_what_there_is_is_streamed_and_what_happens_follows(control_plane: ControlPlane, namespace: str) -> None:
    with control_plane.client() as admin:
        make(admin, namespace, "old")
        async with api_of(control_plane) as api, Watched(api, namespace) as watched:
            assert await watched.until("Synced") == ["ADDED old first", "Synced"]
            make(admin, namespace, "new")
            path = f"/api/v1/namespaces/{namespace}/configmaps/new"
            merge = {"Content-Type": "application/merge-patch+json"}
            assert admin.patch(path, json={"data": {"a": "1"}}, headers=merge).is_success
            assert admin.delete(path).is_success
            assert [await watched.next() for _ in range(3)] == ["ADDED new", "MODIFIED new", "DELETED new"]


async def test_from_where_it_was_a_watch_goes_on_without_a_list(control_plane: ControlPlane, namespace: str) -> None:
    with control_plane.client() as admin:
        make(admin, namespace, "one")
        async with api_of(control_plane) as api:
            async with Watched(api, namespace) as watched:
                await watched.until("Synced")
                make(admin, namespace, "two")
                assert await watched.next() == "ADDED two"
            make(admin, namespace, "meanwhile")
            async with Watched(api, namespace, since=watched.version) as again:
                assert await again.next() == "ADDED meanwhile"


async def test_a_version_that_is_too_old_loses_what_happened_and_tells_what_there_is() -> None:
    with running() as plane, plane.client() as admin:
        make(admin, "default", "old")
        async with api_of(plane) as api, Watched(api, "default") as watched:
            await watched.until("Synced")
            make(admin, "default", "seen")
            assert await watched.next() == "ADDED seen"
        for number in range(3):
            make(admin, "default", f"missed-{number}")
        plane.compact()
        plane.apiserver.restart()
        async with api_of(plane) as api, Watched(api, "default", since=watched.version) as again:
            words = await again.until("Synced")
    assert words[0] == "Lost"
    assert {"ADDED old first", "ADDED seen first", "ADDED missed-2 first"} <= set(words)


async def test_a_version_still_to_come_is_a_history_that_was_lost(control_plane: ControlPlane, namespace: str) -> None:
    """As after etcd was restored: a watch from there would say nothing for ever."""
    with control_plane.client() as admin:
        make(admin, namespace, "there")
    brief = replace(BRISK, quiet=timedelta(seconds=8))
    async with api_of(control_plane) as api, Watched(api, namespace, since="999999999", pace=brief) as watched:
        assert await watched.until("Synced") == ["Lost", "ADDED there first", "Synced"]


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_of_the_api_server_is_survived(kill: bool) -> None:
    with running() as plane, plane.client() as admin:
        async with api_of(plane) as api, Watched(api, "default") as watched:
            await watched.until("Synced")
            make(admin, "default", "before")
            assert await watched.next() == "ADDED before"
            plane.apiserver.restart(kill=kill)
            make(admin, "default", "after")
            words = list[str]()
            while not any("after" in word for word in words):
                words.append(await watched.next())
    assert "ADDED before" not in words


async def test_who_may_not_is_told_so_in_the_api_servers_words(control_plane: ControlPlane) -> None:
    async with api_of(control_plane, "bob") as api:
        watch = follow(api, CONFIG_MAPS, since="", lists=asyncio.Semaphore(2), pace=BRISK)
        async with aclosing(watch), asyncio.timeout(30):
            assert isinstance(await anext(watch), Begun)
            told: Word = await anext(watch)
    assert isinstance(told, Blind)
    assert 'configmaps is forbidden: User "bob" cannot watch resource' in told.why


async def test_a_kubeconfig_that_is_none_is_said_in_words(control_plane: ControlPlane) -> None:
    broken = control_plane.folder / "broken.kubeconfig"
    broken.write_text("contexts: 7\n")
    for path in (str(broken), str(control_plane.folder / "missing")):
        with pytest.raises(CredentialsError, match=r"no (usable|such) kubeconfig"):
            await ApiServer.of_kubeconfig(path)
