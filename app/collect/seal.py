"""What lies in a spool is unreadable without the database, which has the key: its secrets are still in it.

AES-256 in counter mode, a random nonce for each record: bytes can be sealed as they come, and a record's first ones
once more. Records that are written together share a keystream, of which each has its own blocks. A frame's crc32 tells
what was damaged; whoever can write the spool's files is not kept out by this.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_bytes

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

NONCE = 16
"""Bytes before what is sealed: a block of AES, where the counter begins."""
_PADDING = bytes(NONCE)
_COUNTS = 1 << 8 * NONCE
"""The counter begins again at 0."""


class Sealing:
    """One record that is being sealed: its ``nonce``, then what ``add`` answers."""

    def __init__(self, key: bytes) -> None:
        self._key, self.nonce = key, token_bytes(NONCE)
        self._context = self._begin()

    def _begin(self) -> CipherContext:
        return Cipher(AES256(self._key), CTR(self.nonce)).encryptor()

    def add(self, part: bytes) -> bytes:
        """The next part, sealed."""
        return self._context.update(part)

    def first(self, head: bytes) -> bytes:
        """What stands in place of the first bytes."""
        return self._begin().update(head)


def sealed(key: bytes, payloads: Sequence[bytes]) -> list[bytes]:
    """Records as a whole. One keystream runs through all of them, each begins at a block of it and names that one: to
    set a cipher up takes ten times as long as to seal a kilobyte."""
    first = int.from_bytes(token_bytes(NONCE))
    context = Cipher(AES256(key), CTR(first.to_bytes(NONCE))).encryptor()
    whole = context.update(b"".join([payload + _PADDING[: -len(payload) % NONCE] for payload in payloads]))
    records, at = list[bytes](), 0
    for payload in payloads:
        nonce = (first + at // NONCE) % _COUNTS
        records.append(nonce.to_bytes(NONCE) + whole[at : at + len(payload)])
        at += len(payload) + -len(payload) % NONCE
    return records


class Opening:
    """Opens records, one after the other: of those that were sealed together the keystream goes on.

    With another key than they were sealed with, what comes out makes no sense.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._next = b""
        self._context: CipherContext | None = None

    def opened(self, record: bytes) -> bytes:
        """What was sealed."""
        nonce, length = record[:NONCE], len(record) - NONCE
        if self._context is None or nonce != self._next:
            self._context = Cipher(AES256(self._key), CTR(nonce)).decryptor()
        padding = -length % NONCE
        self._next = ((int.from_bytes(nonce) + (length + padding) // NONCE) % _COUNTS).to_bytes(NONCE)
        found = self._context.update(record[NONCE:] + _PADDING[:padding])
        return found[:length] if padding else found
