"""Who may do what, as docs/configuration.md says. Alone in a file: the command line names them without a database."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What the bearer may do, each more than the one before."""

    VIEWER = "viewer"
    RESPONDER = "responder"
    ADMIN = "admin"
