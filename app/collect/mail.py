"""The one client that hands mail to an SMTP server which an operator names (RFC 5321): once, and never to an address
that is not to be asked."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage

import aiosmtplib
from aiosmtplib import SMTPException, SMTPRecipientsRefused, SMTPResponseException

from app.collect.outbound import EndpointError, OutboundError, refuse
from app.core.targets import Security

WITHIN = 20.0
"""Seconds for each step: a server may look at a mail before it takes it."""


NAMED = 5
"""Recipients that are named of those for which a mail was not taken."""


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """Where mail is handed in. ``ca_file`` "": the certificates of the system."""

    host: str
    port: int
    security: Security
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""


async def hand_in(message: EmailMessage, server: SmtpServer, to: Sequence[str] = ()) -> tuple[str, ...]:
    """Hands a mail in for all of its recipients, or for those ``to`` names; the ones for which it was not taken, though
    it was for others.

    Raises EndpointError for an address that is not asked, OutboundError where it was taken for none: ``status`` is
    SMTP's code, 0 without one, and ``unsent`` where nobody can have got it.
    """
    try:
        tls = None if server.security == "none" else ssl.create_default_context(cafile=server.ca_file or None)
    except OSError as error:
        raise OutboundError(f"ca_file {server.ca_file} cannot be read: {error.strerror}", unsent=True) from None
    sock = await _connected(server.host, server.port)
    try:
        refused, _ = await aiosmtplib.send(
            message,
            recipients=to or None,
            hostname=server.host,
            sock=sock,
            use_tls=server.security == "tls",
            start_tls=server.security == "starttls",
            tls_context=tls,
            username=server.user or None,
            password=server.password or None,
            timeout=WITHIN,
        )
    except SMTPRecipientsRefused as error:
        found = {one.recipient: (one.code, one.message) for one in error.recipients}
        # What one of them may take later is tried again, for all of them.
        raise OutboundError(_refused(found), status=min(one.code for one in error.recipients), unsent=True) from None
    except SMTPResponseException as error:
        raise OutboundError(_said(error.code, error.message), status=error.code, unsent=True) from None
    except (SMTPException, TimeoutError, ValueError) as error:  # ValueError: it cannot be written so
        raise OutboundError(f"{server.host}: {error}") from None
    except OSError as error:
        raise OutboundError(f"{server.host}: {error.strerror or error}") from None
    return tuple(refused)


async def _connected(host: str, port: int) -> socket.socket:
    """A connection to the first address of a name that answers; each is looked at before."""
    loop, error = asyncio.get_running_loop(), OSError("no address")
    try:
        refuse(host, host)
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for *_, address in found:
            refuse(host, str(address[0]))
    except EndpointError:
        raise
    except (OSError, UnicodeError) as failed:  # UnicodeError: what stands there is no host's name
        why = failed.strerror if isinstance(failed, OSError) else "it is no host's name"
        raise OutboundError(f"{host} is not known: {why}", unsent=True) from None
    for family, kind, proto, _, address in found:
        sock = socket.socket(family, kind, proto)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(WITHIN):
                await loop.sock_connect(sock, address)
        except (OSError, TimeoutError) as failed:
            sock.close()
            error = failed if isinstance(failed, OSError) and failed.strerror else OSError("it does not answer")
        else:
            return sock
    raise OutboundError(f"{host}:{port} cannot be reached: {error.strerror or error}", unsent=True)


def _refused(found: Mapping[str, tuple[int, str]]) -> str:
    """Who does not get it, and why: some of them, where they are many."""
    said = [f"{address}: {_said(*why)}" for address, why in list(found.items())[:NAMED]]
    return "; ".join([*said, f"and {len(found) - NAMED} more"] if len(found) > NAMED else said)


def _said(code: int, message: str) -> str:
    return f"{code} {' '.join(message.split())[:200]}"
