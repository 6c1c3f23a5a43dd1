"""Changes by which a client asks more of what it calls: more often, more at once, again and again, or without a cache.

What it calls complains then, or others that call the same do, and never the client itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from app.core.edges.front_doors import PROXIES
from app.core.edges.mechanism import halts, is_cosmetic, only_image
from app.core.edges.settings import parts
from app.core.edges.topology import Topology, pod_spec
from app.core.entities import READ, WORKLOADS, Add
from app.core.model import Change, FieldDiff, Verb
from app.core.objects.dependencies import Named, hosts
from app.core.objects.dependencies import told as dependencies_told

_HOW_MUCH = re.compile(
    r"retr(?:y|ies)|attempt|backoff|interval|period|poll|refresh|sync|cron|schedul|every|cache|ttl|max.?age|expir"
    r"|batch|page|limit|chunk|concurren|parallel|worker|thread|pool|connections?\b|rate|qps|rps|burst|prefetch|fetch"
    r"|timeout|threshold|percent|shards?\b|consumers?\b|(?<![a-z])keep(?!.?alive)|retain|retention",
    re.IGNORECASE,
)
"""Names of settings that say how much, how often, how many at once, or for how long it is kept."""
_TRIES = re.compile(r"retr(?:y|ies)|attempt", re.IGNORECASE)
"""Names of those of them that say how often is tried again."""
_MIGRATES = re.compile(r"migrat|flyway|liquibase|alembic|schema")
"""How jobs are called that change the tables of a database."""
_WHEN = frozenset({"schedule", "timeZone", "concurrencyPolicy", "suspend", "startingDeadlineSeconds"})
_SETTINGS = frozenset({"env", "args", "command", "data"})
_ONCE = frozenset({"Job", "CronJob"})
FURTHER = 3
"""How far the burden is passed on."""


def burdens(change: Change) -> bool:
    """Whether a workload, by an update of it or of its configuration, may ask more of what it calls; what works
    something off asks as much as it can. Of how many pods there are candidates.py says so."""
    if change.verb is Verb.CREATE:
        return change.resource.kind in _ONCE
    return change.verb is Verb.UPDATE and any(_asks_more(diff, change.resource.kind) for diff in change.diffs)


_CLEARS = re.compile(
    r"(?:\A|[-_.])(?:clean|clear(?!ing)|curat|purg|prun|reap|retention|delet|remov|archiv|trim|compact|vacuum|housekeep"
    r"|sweep|evict|janitor|garbage|gc(?:\Z|[-_])|log-?rot|shrink)",
    re.IGNORECASE,
)
"""How jobs are called that take away what is no longer needed."""


def clears_no_more(change: Change) -> bool:
    """Whether a job that takes away what others keep runs no more: it is suspended, or deleted."""
    ends = halts(change) or change.verb is Verb.DELETE
    return change.resource.kind == "CronJob" and ends and _CLEARS.search(change.resource.name) is not None


def tries_again(change: Change) -> bool:
    """Whether it says how often is tried again what fails: of a mesh or a gateway, of others than its own clients."""
    return any(_TRIES.search(str(step)) for diff in change.diffs for step in diff.path)


def _asks_more(diff: FieldDiff, kind: str) -> bool:
    if kind in WORKLOADS and not _WHEN.isdisjoint(str(step) for step in diff.path):
        return not (diff.path[-1:] == ("suspend",) and diff.new is True)
    if not any(step in _SETTINGS for step in diff.path if isinstance(step, str)):
        return False
    return any(_HOW_MUCH.search(text) for text in _texts(diff))


def _texts(diff: FieldDiff) -> Iterator[str]:
    """What was set: its name, or where a whole text was written, what of its lines differs."""
    yield from (str(step) for step in diff.path)
    yield from parts(diff)


def sent_more(change: Change, backend: str, servers: Iterable[Named], add: Add) -> None:
    """Add the servers behind one of a route's backends as burdened, where that is sent twice as much as before, or more
    (https://gateway-api.sigs.k8s.io/guides/traffic-splitting/)."""
    weights = (d for d in change.diffs if d.path[-1:] == ("weight",) and (("name", backend),) in d.path)
    if any(isinstance(d.new, int) and d.new >= max(1, 2 * int(str(d.old or 0))) for d in weights):
        for server in servers:
            add(("burdens", *server), READ)


_CACHES = re.compile(r"redis|memcache|cache\b|cache-|varnish|valkey|dragonfly|hazelcast")
"""What keeps answers for others, by what it is called."""


def burdened(change: Change, keys: set[Named], top: Topology, add: Add, hops: float) -> None:
    """Add what the workloads call, and what that calls, as burdened; and who else calls the same. A cache burdens what
    else its clients call."""
    acts = not is_cosmetic(change)
    if acts:
        _hand_on(change, keys, top, add, hops)
        _keep_less({key for key in keys if _CACHES.search(key[1])}, top, add, hops)
    if burdens(change):
        _pass_on(keys, keys, top, add, hops)
        for client in _told_the_same(keys, top) - keys:
            add(("shares", *client), hops + 1)
        for key in keys if change.verb is Verb.CREATE else ():
            _works(key, top, add, hops)
    if clears_no_more(change):
        for server in _called(keys, top):
            add(("uncleared", *server), hops + 1)
    elif change.verb is not Verb.DELETE and acts:  # where more is asked, it may be by whoever is new
        _call_anew(change, keys, top, add, hops)
        for server in _called(keys, top):
            add(("asks", *server), hops + 1)
            _write_anew(change, server, keys, top, add, hops)
    if change.verb is Verb.UPDATE and acts and any(PROXIES.search(name) for _, name in keys):
        _behind_doors(top, add, hops)


def _works(job: Named, top: Topology, add: Add, hops: float) -> None:
    """Add what a job works for, and who reads the tables that it changes."""
    server = None if top.upstream.get(job) else _named_after(job, top)
    if server is not None:
        add(("burdens", *server), hops + 2)
    if _MIGRATES.search(job[1]):
        _migrate(job, server, top, add, hops)


def _called(keys: set[Named], top: Topology) -> set[Named]:
    return {server for key in keys for server in top.upstream.get(key, ())}


def _keep_less(caches: set[Named], top: Topology, add: Add, hops: float) -> None:
    """What caches no longer keep their clients ask for where it is kept."""
    users = {client for key in caches for service in top.fronts.get(key, ()) for client in top.clients[service]}
    if users:
        _pass_on(users, caches, top, add, hops + 1)


def _call_anew(change: Change, keys: set[Named], top: Topology, add: Add, hops: float) -> None:
    """Add what an update says to call, and what stood there did not: all that these clients ask is more."""
    namespace = change.resource.namespace or ""
    for diff in change.diffs if keys and change.verb is Verb.UPDATE else ():
        name = str(diff.path[-1]) if diff.path else ""
        before, now = (set(hosts(name, str(text), namespace, known=top.services)) for text in (diff.old, diff.new))
        for server, services in top.fronts.items() if now - before else ():
            if services & (now - before) and server not in keys:
                add(("burdens", *server), hops + 1)


def _behind_doors(top: Topology, add: Add, hops: float) -> None:
    """Add what stands behind the doors of the cluster: who serves them says to whom it goes, and how much."""
    behind = {service for services in top.doors.values() for service in services}
    for server, fronts in top.fronts.items():
        if fronts & behind:
            add(("burdens", *server), hops + 1)


def _told_the_same(keys: set[Named], top: Topology) -> set[Named]:
    """Who is told the same address: of a server outside, which counts the calls of all of them together."""
    return set[Named]().union(*(top.told[address] for key in keys for address in top.outside.get(key, ())))


def _write_anew(change: Change, server: Named, keys: set[Named], top: Topology, add: Add, hops: float) -> None:
    """Add a server of which a new version may hold more, and who else calls it, as it may write there in a form of its
    own."""
    if only_image(change):
        add(("occupies", *server), hops + 1)
        for client in {client for service in top.fronts.get(server, ()) for client in top.clients[service]} - keys:
            add(("beside", *client), hops + 1)


_HANDED_ON = re.compile(
    r"(?:\A|_|-)(?:topic|queue|stream|subject|channel|exchange|bucket|table|collection|index)s?(?:_NAME)?\Z",
    re.IGNORECASE,
)
"""Names of settings that say through what one hands things on to others."""
_NAMED = re.compile(r"(?=.*[a-z])(?!(?:true|false|yes|no|on|off|none)\Z)[a-z][\w.-]{2,}", re.IGNORECASE)
MANY_TOLD = 5
"""What more workloads than these are told is a word, and nobody's topic."""


def _hand_on(change: Change, keys: set[Named], top: Topology, add: Add, hops: float) -> None:
    """Add who is told to read, or write, the same topic or queue as a new version, which may write there in a form of
    its own."""
    told = dependencies_told(pod_spec(top.states.get(change.resource, {}))) if only_image(change) else ()
    texts = {text for name, text in told if _HANDED_ON.search(name) and _NAMED.fullmatch(text)}
    shared = [found for text in texts if len(found := top.told.get(text, set[Named]())) <= MANY_TOLD]
    for client in set[Named]().union(*shared) - keys:
        add(("beside", *client), hops + 1)


def _migrate(job: Named, whose: Named | None, top: Topology, add: Add, hops: float) -> None:
    """Add who else calls the databases whose tables a job changes: they know them as they were."""
    for database in top.upstream.get(job) or top.upstream.get(whose or job, set()):
        for client in {client for service in top.fronts.get(database, ()) for client in top.clients[service]} - {job}:
            add(("migrated", *client), hops + 1)


def _named_after(job: Named, top: Topology) -> Named | None:
    """The workload of its namespace with whose name a job's begins, and for which it mostly works."""
    namespace, name = job
    found = [key for key in top.in_namespace.get(namespace, ()) if name.startswith(f"{key[1]}-")]
    return max(found, key=lambda key: len(key[1]), default=None)


def _pass_on(keys: set[Named], beside: set[Named], top: Topology, add: Add, hops: float) -> None:
    border, seen = set(keys), keys | beside
    for step in range(FURTHER):
        border = {server for client in border for server in top.upstream.get(client, ())} - seen
        seen |= border
        for server in border:
            add(("burdens", *server), hops + 1 + step)
            for service in top.fronts.get(server, ()):
                for client in top.clients.get(service, set()) - seen:
                    add(("shares", *client), hops + 1.5 + step)
