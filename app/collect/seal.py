"""What lies in a spool is unreadable without the database, which has the key: its secrets are still in it.

AES-256 in counter mode, a random nonce for each record: bytes can be sealed as they come, and a record's first ones
once more. A frame's crc32 tells what was damaged; whoever can write the spool's files is not kept out by this.
"""

from __future__ import annotations

from secrets import token_bytes

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

NONCE = 16
"""Bytes before what is sealed: a block of AES, where the counter begins."""


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


def sealed(key: bytes, payload: bytes) -> bytes:
    """A record as a whole."""
    sealing = Sealing(key)
    return sealing.nonce + sealing.add(payload)


def opened(key: bytes, record: bytes) -> bytes:
    """What was sealed; with another key, nothing that makes sense."""
    context = Cipher(AES256(key), CTR(record[:NONCE])).decryptor()
    return context.update(record[NONCE:])
