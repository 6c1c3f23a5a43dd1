"""What a cluster may be called: it stands in addresses, in titles and on one line."""

from __future__ import annotations

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
