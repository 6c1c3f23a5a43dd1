"""What the Tab key offers: names that the server knows, within a second; nothing where it does not answer."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from app.client.environment import CA_FILE, CLUSTER, TOKEN, TOKEN_FILE, URL
from app.client.server import Server
from app.core.model import Verb
from app.core.screen.told_apart import BY
from app.core.severities import BY_HAND
from app.failures import Expected

WITHIN = 1.0
"""Seconds that a person waits for the Tab key."""
_LOOKED_AT = 200
"""Of the newest changes, in which namespaces and kinds are looked for."""
Offer = tuple[str, str]
"""A value, and what it is."""
_NO_WORD = re.compile(r"[^\w.:@+-]")
_NO_TEXT = re.compile(r"[^\w .,:;/@=+%→()-]")
"""Titles and summaries are anybody's words, and shells evaluate what Tab offers: zsh does so twice."""


def clusters(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The clusters that the server knows."""
    return _offered(ctx, incomplete, lambda server: ((name, "") for name in server.clusters()))


def namespaces(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Namespaces in which something changed lately."""
    return _of_newest(ctx, incomplete, "namespace")


def kinds(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Kinds of what changed lately."""
    return _of_newest(ctx, incomplete, "kind")


def verbs(incomplete: str) -> list[str]:
    """What may be done to an object."""
    return [verb.value for verb in Verb if verb.value.startswith(incomplete)]


def severities(incomplete: str) -> list[str]:
    """How bad a person may say that an incident is."""
    return [one for one in BY_HAND if one.startswith(incomplete)]


def by(incomplete: str) -> list[str]:
    """What calls are told apart by, behind the last comma, without what stands before it."""
    before, comma, begun = incomplete.rpartition(",")
    named = before.split(",")
    return [f"{before}{comma}{name}" for name in BY if name.startswith(begun) and name not in named]


def incidents(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The newest incidents, with their titles."""

    def found(server: Server) -> Iterator[Offer]:
        for one in server.json("incidents", limit=50)["items"]:
            yield one["id"], f"{one['status']}: {one['title']}"

    return _offered(ctx, incomplete, found)


def changes(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The newest changes, with what they are."""

    def found(server: Server) -> Iterator[Offer]:
        for one in server.json("changes", limit=50)["items"]:
            yield one["id"], f"{one['at'][11:19]} {one['summary']}"

    return _offered(ctx, incomplete, found)


def contexts(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The contexts of kubectl."""
    from app.client.kubeconfig import files, names  # noqa: PLC0415 - commands need not wait for it

    try:
        found = names(files(ctx.params.get("kubeconfig")))
    except Expected:
        return []
    return [(name, "") for name in found if name.startswith(incomplete)]


def _of_newest(ctx: typer.Context, incomplete: str, part: str) -> list[Offer]:
    def found(server: Server) -> Iterator[Offer]:
        newest = server.json("changes", cluster=_said(ctx, "cluster", CLUSTER), limit=_LOOKED_AT)["items"]
        for name in sorted({change["resource"][part] or "" for change in newest}):
            yield name, ""

    return _offered(ctx, incomplete, found)


def _offered(ctx: typer.Context, incomplete: str, find: Callable[[Server], Iterator[Offer]]) -> list[Offer]:
    from app.client.http import Http, token_of  # noqa: PLC0415 - the same

    url = _said(ctx, "url", URL)
    if not url:
        return []
    token_file, ca_file = _said(ctx, "token_file", TOKEN_FILE), _said(ctx, "ca_file", CA_FILE)
    try:
        token = token_of(Path(token_file) if token_file else None, os.environ.get(TOKEN, "").strip())
        http = Http(url, token, ca_file=Path(ca_file) if ca_file else None)
        found = list(find(Server(http, silent=WITHIN, in_all=WITHIN)))
    except (Expected, LookupError, TypeError):  # the latter two: what answers is no Foreshock
        return []
    return [
        (value, _NO_TEXT.sub("", about))
        for value, about in found
        if value and value.startswith(incomplete) and not _NO_WORD.search(value)
    ]


def _said(ctx: typer.Context, option: str, variable: str) -> str:
    """An option that stands before what is completed, else its variable."""
    return str(ctx.params.get(option) or os.environ.get(variable, ""))
