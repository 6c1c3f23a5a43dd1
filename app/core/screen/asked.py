"""What an address asks for."""

from __future__ import annotations


class AddressError(Exception):
    """No page could answer an address; the message says why."""
