"""The header that makes a request harmless to send again."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

from fastapi import Header

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="sent again with the same key, a request changes nothing and is answered the same",
        examples=["deploy-1234"],
    ),
]

OPENED = "an incident by hand"
"""Whose keys are those of incidents that are opened by hand, over REST or at the command line."""


def key_of(key: str | None, *whose: str) -> bytes | None:
    """What stands for a key and for ``whose`` it is: two that number their requests alike do not meet."""
    return None if key is None else sha256("\0".join((*whose, key.strip('"'))).encode("utf-8", "replace")).digest()
