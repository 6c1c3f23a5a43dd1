"""Where an app is told whom it calls: in its environment, in its configuration, or nowhere that its manifest shows.

It is what developers and charts write. What a container reaches does not rest on it: that, ``App.upstreams`` says.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tests.lab.api import Json
from tests.lab.apps import App

IN_ENV, IN_CONFIG, NOWHERE = range(3)
PLACES = (IN_ENV,) * 4 + (IN_CONFIG, NOWHERE)
"""The last is compiled in, found by a registry, or in a Secret."""


@dataclass(frozen=True)
class Protocol:
    """How a server is spoken to, whose name has one of the ``words``; ``roles`` are what its clients call it."""

    scheme: str
    port: int
    roles: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()


HTTP, HTTPS = Protocol("http", 80), Protocol("https", 443)
PROTOCOLS = (
    Protocol("mysql", 3306, ("DB", "MYSQL"), frozenset({"mysql"})),
    Protocol("redis", 6379, ("REDIS", "CACHE"), frozenset({"redis", "cache"})),
    Protocol("mongodb", 27017, ("MONGO",), frozenset({"mongo"})),
    Protocol("cassandra", 9042, ("CASSANDRA",), frozenset({"cassandra"})),
    Protocol("amqp", 5672, ("BUS", "BROKER"), frozenset({"bus"})),
    Protocol("smtp", 587, ("SMTP",), frozenset({"smtp"})),
    Protocol("postgres", 5432, ("DB", "DATABASE"), frozenset({"db", "database", "postgres", "pgbouncer"})),
)


def protocol(host: str, usual: Protocol = HTTP) -> Protocol:
    """By the words of a name: what looks after databases is not one."""
    words = re.split(r"[.-]", host)
    if words[-1] == "operator":
        return usual
    return next((one for one in PROTOCOLS if one.words & set(words)), usual)


@dataclass
class Told:
    """What an app's manifest and its ConfigMap say of whom it calls."""

    env: list[Json] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)


def told(app: App, namespace: str, name: str, *, env: Sequence[Json], has_config: bool, chance: random.Random) -> Told:
    """Beside the ``env`` that it has: whom that names already is not told again."""
    values = [str(one.get("value", "")) for one in env]
    taken = {str(one["name"]) for one in env}
    places = [place for place in PLACES if has_config or place != IN_CONFIG]
    found, urls = Told(list(env)), {}
    for host, short, spoken in _called(app, namespace, chance):
        if any(re.search(rf"(?<![\w-]){re.escape(short)}(?![\w-])", value) for value in values):
            continue
        base = _base(short)
        url = _url(spoken, host, name, chance)
        place = chance.choice(places)
        if place == IN_ENV:
            variables = _variables(base, spoken, host, url, taken, chance)
            taken |= set(variables)
            found.env += [{"name": key, "value": value} for key, value in variables.items()]
        elif place == IN_CONFIG:
            urls[base.lower().replace("_", "-")] = url
    if urls:
        found.config = _file(urls, chance)
    return found


def _called(app: App, namespace: str, chance: random.Random) -> Iterable[tuple[str, str, Protocol]]:
    """Each as its host is written, as it would be found in another's values, and how it is spoken to."""
    for home, name in app.upstreams:
        there = f"{name}.{home}"
        near = (name, name, there) if home == namespace else (there, f"{there}.svc")
        yield chance.choice((*near, f"{there}.svc.cluster.local")), name, protocol(name)
    for host in app.abroad:
        yield host, host, protocol(host, HTTPS)


def _base(host: str) -> str:
    """What its variables are called after."""
    labels = host.removeprefix("api.").split(".")
    return labels[0].upper().replace("-", "_")


def _url(spoken: Protocol, host: str, client: str, chance: random.Random) -> str:
    """A database is named after its client, as the client's user is; a password is no one's business here."""
    of_http = spoken in (HTTP, HTTPS)
    port = "" if of_http and chance.random() < 0.5 else f":{spoken.port}"
    owner = client.replace("-", "_")
    user = f"{owner}@" if spoken.scheme in ("postgres", "mysql") else ""
    path = {"postgres": f"/{owner}", "mysql": f"/{owner}", "mongodb": f"/{owner}", "redis": "/0"}
    return f"{spoken.scheme}://{user}{host}{port}{path.get(spoken.scheme, '')}"


def _variables(
    base: str, spoken: Protocol, host: str, url: str, taken: AbstractSet[str], chance: random.Random
) -> dict[str, str]:
    """As a developer would call them: after whom they name, or after what that is to the app."""
    prefix = chance.choice((base, *spoken.roles))
    if any(one.startswith(f"{prefix}_") for one in taken):
        prefix = base
    form = chance.choice(("url", "url", "url", "parts", "parts", "address"))
    if form == "url":
        last = ("URL", "URL", "BASE_URL", "SERVICE_URL", "ENDPOINT") if not spoken.roles else ("URL", "URL", "URI")
        return {f"{prefix}_{chance.choice(last)}": url}
    if form == "address":
        return {f"{prefix}_{chance.choice(('ADDR', 'ADDRESS'))}": f"{host}:{spoken.port}"}
    port = {f"{prefix}_PORT": str(spoken.port)} if chance.random() < 0.7 else {}
    return {f"{prefix}_HOST": host, **port}


def _file(urls: dict[str, str], chance: random.Random) -> dict[str, str]:
    """One of the files that programs read at their start, by its name."""
    if chance.random() < 0.5:
        lines = (f"clients.{name}.url={url}\n" for name, url in urls.items())
        return {"application.properties": f"server.port=8080\n{''.join(lines)}"}
    blocks = (f"  {name}:\n    url: {url}\n" for name, url in urls.items())
    return {"application.yaml": f"server:\n  port: 8080\nclients:\n{''.join(blocks)}"}
