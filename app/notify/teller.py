"""Which channels are told of which changes, and what each of these messages is to show now.

Two steps, each a transaction of its own: what arrived since becomes notices, and notices that are due are looked at.
sender.py sends what differs from what is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.changes.told import is_told
from app.core.edges.touched import SERVES, touched
from app.core.metrics.turning import SOON
from app.core.model import Change
from app.core.routes import Labels, Routes, What, wanted_by
from app.core.screen.aftermath import moved
from app.core.targets import is_target
from app.notify import events, notice
from app.notify.notice import Item, Told
from app.store import arrivals, notices, objects, outbox, rollouts, series, undoing
from app.store.arrivals import Arrival, Place
from app.store.labels import labels_of
from app.store.notices import Notice
from app.store.timeline import ChangeFilter

AT_ONCE = 2000
"""Changes that are seen to in one transaction."""
BESIDE = 300
"""Objects of a namespace that are looked over for what a change reaches."""
HERE = 0
"""Stands for no cluster: that routing has begun, though nothing arrived yet."""
OWN, ALL = ChangeFilter(), ChangeFilter(derived="shown")

Both = tuple[Arrival, Change]


@dataclass(frozen=True, slots=True)
class Teller:
    """``routes`` gives them as they are now, ``url`` is where people reach us, ``clock`` gives aware UTC."""

    engine: AsyncEngine
    routes: Callable[[], Routes]
    url: str
    clock: Callable[[], datetime]

    async def route(self) -> None:
        """Makes notices of what arrived since the last time; of what arrived while there were no routes, none."""
        routes = self.routes()
        more = True
        while more:
            async with self.engine.begin() as conn:
                places = await notices.read_places(conn)
                if not routes.of(What.CHANGES):
                    if places:
                        await notices.forget_places(conn)
                    return
                await outbox.name_places(conn, routes.places, now=self.clock())
                if not places:
                    await notices.write_places(conn, {HERE: Place()} | await arrivals.read_places(conn, None))
                    return
                arrived = await arrivals.read_after(conn, places, None, most=AT_ONCE)
                if arrived:
                    await self._route(conn, routes, await arrivals.read_changes(conn, arrived, OWN))
                    await notices.write_places(conn, {one.cluster_id: one.place for one in arrived})
                more = len(arrived) >= AT_ONCE

    async def _route(self, conn: AsyncConnection, routes: Routes, found: Sequence[Both]) -> None:
        """What was made while nobody told is told late, within outbox.LATEST; what was made before a channel was told
        of anything is on the timeline alone."""
        now = self.clock()
        told = [(one, change) for one, change in found if change.at > now - outbox.LATEST and is_told(change)]
        if not told:
            return
        asked = [change.resource for _, change in told] if routes.ask_labels(What.CHANGES) else []
        labels = await labels_of(conn, asked)
        mutes = await notices.read_mutes(conn, now=now)
        of: dict[tuple[str, datetime | None], list[Both]] = defaultdict(list)
        for one, change in told:
            for channel, held_until in wanted_by(routes, change.resource, labels.get(change.resource, Labels()), now):
                if not any(mute.channel == channel and mute.covers(change.resource) for mute in mutes):
                    of[channel, held_until].append((one, change))
        for (channel, held_until), both in of.items():
            since = await outbox.name_channel(conn, channel, now=now) - outbox.BEFORE
            fresh = [(one, change) for one, change in both if change.at > since]
            await notices.tell(conn, channel, fresh, held_until=held_until, now=now)

    async def look(self) -> None:
        """Finds what the messages that are due are to show, and what their threads are to be told."""
        async with self.engine.begin() as conn:
            now = self.clock()
            await notices.drop_muted(conn, now=now)
            for told in await self.read(conn, await notices.read_due(conn, now=now)):
                names: Collection[str] = ()
                edits = not is_target(told.notice.channel)
                if edits and told.items and notice.is_time_to_follow(told, now):
                    names = await self._follow(conn, told, now)
                again_at = notice.look_again(told, now) if told.items else None
                version = ""
                if told.items:
                    version = notice.message(told).digest if edits else events.stage(told)
                await notices.looked(conn, told.notice, version, again_at=again_at, followed=names)

    async def read(self, conn: AsyncConnection, found: Sequence[Notice]) -> list[Told]:
        """Notices with their changes, and the rollouts that these began, as they are now. Two queries, and for a
        single change, the first time, what it reaches, and where its rollout failed what bears on undoing it."""
        arrived = [one for told in found for one in told.arrived]
        changes = dict(await arrivals.read_changes(conn, arrived, ALL))
        began = await rollouts.begun_by(conn, changes.values())
        read = []
        for told in found:
            own = [changes[one] for one in told.arrived if one in changes]
            reach = told.reach
            if reach is None and len(own) == 1 and not told.digest:
                reach = await _reach(conn, own[0])
                await notices.keep_reach(conn, told.id, reach)
            items = [Item(change, began.get(change.id), reach or ()) for change in own]
            if len(items) == 1 and items[0].is_failed:
                items = [replace(items[0], known=await undoing.read_known(conn, items[0].change))]
            read.append(Told(told, tuple(items), self.url))
        return read

    async def _follow(self, conn: AsyncConnection, told: Told, now: datetime) -> Sequence[str]:
        """Tells the thread what moved since the change; the names of the lines that it is told of."""
        change = told.items[0].change
        beside = await objects.load_beside(conn, change.resource, SERVES, most=BESIDE)
        who = touched(change, beside.states.values())
        window = {"start": change.at - SOON, "end": min(change.at + SOON, now)}
        measured = await series.read_around(conn, change.resource.cluster, who.users, near=who.namespaces, **window)
        said, names = notice.followed(told, moved(change.at, measured, who))
        if said:
            await outbox.say(conn, told.notice.channel, said, notice_id=told.notice.id, now=now)
        return names


async def _reach(conn: AsyncConnection, change: Change) -> tuple[str, ...]:
    """The workloads beside its own that a change reaches, the nearest first."""
    beside = await objects.load_beside(conn, change.resource, SERVES, most=BESIDE)
    found = touched(change, beside.states.values()).workloads
    own = (change.resource.namespace, change.resource.name)
    return tuple(
        f"{namespace}/{name}"
        for (_, namespace, name), _ in sorted(found.items(), key=lambda item: (item[1], item[0]))
        if (namespace, name) != own
    )
