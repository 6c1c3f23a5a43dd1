"""All kinds of one cluster, each with a watch of its own, as its API server serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, KeysView, Mapping
from datetime import timedelta
from typing import Never

import msgspec
import structlog

from app.collect import permissions
from app.collect.apiserver import ApiServer, RefusedError, UnreachableError
from app.collect.desired import Desired
from app.collect.discovery import Discovered, DiscoveryError, discover
from app.collect.watch import Horizon, Pace, follow
from app.collect.words import Blind, Lost, Moved, Saw, Served, Word, reached
from app.store.watches import Name

EVERY = timedelta(minutes=10)
"""Between two looks at what is served; CustomResourceDefinitions and APIServices that change bring the next one on."""
SOON = timedelta(seconds=2)
"""After such a change: the API server needs a moment to serve what was defined, and several often come together."""
LOST = "what happened lately cannot be told one by one: all objects of the kind are asked for"
"""What the log says where an API server cannot go on from where a watch was."""
DEFINE_KINDS = frozenset(
    {("apiextensions.k8s.io", "CustomResourceDefinition"), ("apiregistration.k8s.io", "APIService")}
)
AT_ONCE = 2
"""Kinds of which everything is asked for at the same time: each costs the API server memory (KEP-3157)."""

log = structlog.get_logger()

Tell = Callable[[Served | None, Word], None]
"""Takes what a watch tells of a kind, in order; with None what is told of all kinds. It must not wait for anything."""


class Following:
    """The watches of one cluster, beginning from ``since``: what was told last of each kind, by its resourceVersion.

    ``add`` and ``exclude`` as in discovery.discover, ``desired`` as in watch.follow.
    """

    def __init__(
        self,
        api: ApiServer,
        tell: Tell,
        *,
        since: Mapping[Name, str],
        pace: Pace | None = None,
        add: Collection[str] = (),
        exclude: Collection[str] = (),
        desired: Desired | None = None,
    ) -> None:
        self._api, self._tell, self._pace = api, tell, pace or Pace()
        self._add, self._exclude = add, exclude
        self._unserved: tuple[str, ...] = ()
        self._is_excess_told = False
        self._excess = ""
        self._reached = dict(since)
        self._lists = asyncio.Semaphore(AT_ONCE)
        self._watches: dict[Name, tuple[Served, asyncio.Task[None]]] = {}
        self._look = asyncio.Event()
        self._horizon = Horizon()
        self._desired = desired or Desired()

    async def run(self) -> Never:
        """Until cancelled. Raises what a bug raises."""
        failures = 0
        async with asyncio.TaskGroup() as group:
            while True:
                self._look.clear()
                try:
                    self._adopt(await discover(self._api, add=self._add, exclude=self._exclude), group)
                except (RefusedError, UnreachableError, DiscoveryError) as error:
                    failures += 1
                    self._tell(None, Blind(self._pace.clock(), str(error)))
                    await self._pace.sleep(self._pace.pause(failures, error))
                    continue
                failures = 0
                if not self._is_excess_told:
                    await self._tell_of_excess()
                await self._until_next_look()

    @property
    def kinds(self) -> KeysView[Name]:
        """Those that are watched."""
        return self._watches.keys()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What an operator should know of how the cluster is followed."""
        unserved = f"not served, so neither added nor excluded: {', '.join(self._unserved)}" if self._unserved else ""
        return tuple(filter(None, (self._excess, unserved)))

    def again(self, served: Served) -> None:
        """Begin a kind anew, with all of its objects."""
        self._reached.pop(served.name, None)
        if watched := self._watches.pop(served.name, None):
            watched[1].cancel()
            self._look.set()

    async def _tell_of_excess(self) -> None:
        """Say in the log, once, what we may do there and need not."""
        self._is_excess_told = True
        try:
            words = await permissions.excess(self._api, await permissions.allowed(self._api), add=self._add)
        except (RefusedError, UnreachableError, msgspec.MsgspecError) as error:
            log.info("whether more is allowed than is needed cannot be known", server=self._api.url, error=str(error))
            return
        if words:
            self._excess = permissions.said_of_excess(words)
            log.warning(self._excess, server=self._api.url)

    async def _until_next_look(self) -> None:
        waiting = [asyncio.ensure_future(self._look.wait()), asyncio.ensure_future(self._pace.sleep(EVERY))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        if self._look.is_set():
            await self._pace.sleep(SOON)

    def _adopt(self, found: Discovered, group: asyncio.TaskGroup) -> None:
        """Watch what is served now, and what is not no longer. A kind that moved to another version goes on there."""
        if found.unserved not in ((), self._unserved):
            said = "kinds to be added or excluded are not among those that are served and can be watched"
            log.warning(said, server=self._api.url, kinds=found.unserved)
        self._unserved = found.unserved
        now = {served.name: served for served in found.kinds}
        for name, (served, task) in list(self._watches.items()):
            if now.get(name) != served and served.api_group not in found.stale:
                task.cancel()
                del self._watches[name]
        for name, served in now.items():
            if name not in self._watches:
                self._watches[name] = served, group.create_task(self._watch(served), name=f"watch {served.path}")

    async def _watch(self, served: Served) -> None:
        name = served.name
        async for told in follow(
            self._api,
            served,
            since=self._reached.get(name, ""),
            lists=self._lists,
            pace=self._pace,
            horizon=self._horizon,
            desired=self._desired,
        ):
            if isinstance(told, Lost):
                log.info(LOST, kind=served.path, server=self._api.url, why=told.why)
                self._reached.pop(name, None)
            elif version := reached(told):
                self._reached[name] = version
            self._tell(served, told)
            happened = isinstance(told, Moved) or (isinstance(told, Saw) and not told.first)
            if happened and (served.api_group, served.kind) in DEFINE_KINDS:
                self._look.set()
