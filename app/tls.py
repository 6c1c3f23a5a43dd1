"""The certificate that `serve` speaks https with, checked before anything starts."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from app.failures import Expected


class TlsError(Expected):
    """The certificate or its key cannot be used; the message says which file and why."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Two PEM files: the certificate, with those that lead to its root behind it, and its key."""

    cert: Path
    key: Path

    def check(self) -> None:
        """Raises TlsError, in words, where a server could not start with them."""
        for path, option in ((self.cert, "--tls-cert"), (self.key, "--tls-key")):
            try:
                path.read_bytes()
            except OSError as error:
                raise TlsError(f"{option} {path} cannot be read: {error.strerror}") from None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key, password=_no_password)
        except ssl.SSLError as error:
            why = (error.reason or str(error)).replace("_", " ").lower()
            raise TlsError(
                f"--tls-cert {self.cert} and --tls-key {self.key} cannot be used together: {why}; both are PEM files,"
                " the key is of that certificate and has no password"
            ) from None


def _no_password() -> str:
    """Answers OpenSSL, which would ask the terminal."""
    return ""
