"""Each request is made once: aiohttp would repeat one that was refused or cut off, at once, to who suffers already."""

from __future__ import annotations

import os
import re
from errno import ECONNRESET
from ssl import SSLCertVerificationError

from aiohttp import (
    ClientConnectionError,
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientHandlerType,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ClientSSLError,
    ServerDisconnectedError,
)

_OF_OPENSSL = re.compile(r"\[(?:SSL|X509)(?:: \w+)?\] (.+) \(_ssl\.c:\d+\)")
"""What ssl makes of OpenSSL's reason: its constant, the same in words, and a line of ssl's source."""


class LostError(ClientConnectionError):
    """A connection that could not be made, or was cut: aiohttp would try this request again."""


async def once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """A middleware of aiohttp."""
    try:
        return await handler(request)
    except ClientSSLError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise LostError(in_words(error)) from error


def unsaid(said: str, authorization: str, password: str = "") -> str:
    """What somebody says who was sent this header, without the credential in it, nor the ``password`` that it was made
    of: some repeat what they refuse, and what they say is shown to people."""
    for secret in (authorization.partition(" ")[2], password):
        said = said.replace(secret, "<redacted:token>") if secret else said
    return said


def in_words(error: Exception) -> str:
    """Why a request failed, for an operator: what the system says, and of the libraries' names for it only those that
    say more."""
    if isinstance(error, LostError):
        return str(error)
    if isinstance(error, ClientConnectorCertificateError):
        why = _said(error.certificate_error)
        return f"{error.host}:{error.port} shows a certificate that is not to be trusted: {why}"
    if isinstance(error, ClientConnectorError):
        return f"{error.host}:{error.port} cannot be reached: {_said(error.os_error)}"
    if isinstance(error, ServerDisconnectedError):
        return "it ended the connection without an answer"
    return _said(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


def _said(error: Exception) -> str:
    """Of a connection that cannot be made asyncio says the address in the place of the reason. What has no number of
    the system's, or says more than that (a resolver, outbound.refuse), is told as it is."""
    if isinstance(error, SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and (error.strerror or "").startswith("Connect call failed") and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, ConnectionResetError):  # asyncio's own has no number
        return os.strerror(ECONNRESET)
    said = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return found[1] if (found := _OF_OPENSSL.fullmatch(said)) else said
