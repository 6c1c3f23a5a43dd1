"""`foreshock mcp`. Imports nothing of the protocol before it runs: help does not wait for it."""

from __future__ import annotations

from app.client.server import Server
from app.failures import Expected


class NotInstalledError(Expected):
    """The protocol's library is not installed; the message says how to."""


def mcp(server: Server) -> None:
    """Answer an assistant over the Model Context Protocol, on standard input and output; read-only."""
    try:
        from app.mcp.protocol import serve  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise NotInstalledError(
            "the library of the Model Context Protocol is not installed: pip install 'foreshock[mcp]'"
        ) from None
    serve(server)
