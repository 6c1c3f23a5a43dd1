"""What a cluster may be called: it stands in addresses, in titles and on one line."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum

LONGEST = 100
MOST_NAMED = 20
"""Clusters that are named to who asked for another."""


def cluster_name(text: str) -> str:
    """The text, if a cluster may be called so. Raises ValueError, in words."""
    if not text.strip():
        raise ValueError("a cluster needs a name")
    if len(text) > LONGEST:
        raise ValueError(f"the name of a cluster has at most {LONGEST} characters; this one has {len(text):,}")
    if not text.isprintable() or text != text.strip():
        raise ValueError("the name of a cluster is one line without spaces around it")
    if "/" in text or text in (".", ".."):
        raise ValueError("the name of a cluster stands in addresses: it holds no / and is more than dots")
    return text


def unknown(name: str, known: Iterable[str]) -> str:
    """What to say to who names a cluster of which nothing is recorded. ``known`` are those that they may know of."""
    named = ", ".join(sorted(known)[:MOST_NAMED])
    return f"there is no cluster {name!r}: {f'known are {named}' if named else 'nothing is recorded yet'}"


def alerts_alone(name: str, others: Iterable[str]) -> str:
    """What to say of a cluster of which nothing but alerts was ever told: whoever mistypes it in the address of a
    webhook has made one. ``others`` are those that more is told of."""
    near = get_close_matches(name, list(others), n=1)
    meant = f"is {near[0]} meant" if near else "is that its name"
    return f"only alerts were ever told of it: {meant}, in the address that they are sent to?"


class About(StrEnum):
    """What a remark on a cluster is about."""

    ALERTS = "alerts"
    SAMPLES = "samples"
    AHEAD = "samples ahead"
    UNREADABLE = "unreadable"


_WORDS = {
    About.ALERTS: "alerts that were sent are not taken",
    About.SAMPLES: "samples that were sent are not taken",
    About.AHEAD: "samples are sent of times to come",
    About.UNREADABLE: "some of what was told cannot be read, and stands in quarantine",
}


def remark(about: About, why: str, *, since: datetime, at: datetime) -> str:
    """What to say of a cluster of which something came that is not as it should be. ``at``: the last time."""
    last = f", last {at:%Y-%m-%d %H:%M}" if at > since else ""
    return f"{_WORDS[about]}, since {since:%Y-%m-%d %H:%M}{last} (UTC): {why}"
