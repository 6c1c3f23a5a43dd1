"""What a cluster may be called: it stands in addresses, in titles and on one line."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 100


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


def alerts_alone(name: str, others: Iterable[str]) -> str:
    """What to say of a cluster of which nothing but alerts was ever told: whoever mistypes it in the address of a
    webhook has made one. ``others`` are those that more is told of."""
    near = get_close_matches(name, list(others), n=1)
    meant = f"is {near[0]} meant" if near else "is that its name"
    return f"only alerts were ever told of it: {meant}, in the address that they are sent to?"
