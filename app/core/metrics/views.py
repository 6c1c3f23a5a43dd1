"""Saved views: questions of the explorer under names that a team shares, and those that come along."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

MOST_VIEWS = 200
LONGEST_NAME = 80
ASKED = ("of", "metric", "measure", "by", "where", "quantile", "most", "promql")
"""What a view keeps of an address: neither the cluster nor the time."""


@dataclass(frozen=True, slots=True)
class View:
    """A name and the explorer's query without cluster and time. ``id`` None: it comes along, and stays."""

    id: int | None
    name: str
    query: str


def _shipped(name: str, by: str, where: str) -> View:
    return View(None, name, urlencode({"of": "calls", "by": by, "where": where}))


SHIPPED = (
    _shipped("ServiceAccount writes by caller", "user", "resource=serviceaccounts,verb=create|update|patch|delete"),
    _shipped("LIST by caller", "user,resource", "verb=list"),
    _shipped("410 and 429 by caller", "user,code", "code=410|429"),
    _shipped("Pods created by controller", "user", "verb=create,resource=pods,code=2*"),
)


class MisnamedError(ValueError):
    """A view cannot be called so. The message says why."""


def named(text: str) -> str:
    """A view's name as it is kept: one line. Raises MisnamedError."""
    name = " ".join(text.split())
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise MisnamedError(f"a view's name has 1 to {LONGEST_NAME} printable characters")
    if name.casefold() in {view.name.casefold() for view in SHIPPED}:
        raise MisnamedError(f"{name!r} is the name of a view that comes along: choose another")
    return name
