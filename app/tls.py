"""Certificates that are shown with their keys, by `serve` or by who asks a target, told in words where unusable."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from app.failures import Expected


class TlsError(Expected):
    """The certificate or its key cannot be used; the message says which file and why."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Two PEM files: the certificate, with those that lead to its root behind it, and its key, which may be the same.

    ``called`` is how an operator names them.
    """

    cert: Path
    key: Path
    called: tuple[str, str] = ("--tls-cert", "--tls-key")

    def check(self) -> None:
        """Raises TlsError where a server could not start with them."""
        self.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def load(self, context: ssl.SSLContext) -> None:
        """Have ``context`` show them. Raises TlsError."""
        (cert, key), both = self.called, (self.cert, self.key)
        for path, called in zip(both, self.called, strict=True):
            try:
                path.read_bytes()
            except OSError as error:
                raise TlsError(f"{called} {path} cannot be read: {error.strerror}") from None
        try:
            context.load_cert_chain(*both, password=_no_password)
        except ssl.SSLError as error:
            why = (error.reason or str(error)).replace("_", " ").lower()
            raise TlsError(
                f"{cert} {self.cert} and {key} {self.key} cannot be used together: {why}; both are PEM files,"
                " the key is of that certificate and has no password"
            ) from None


def _no_password() -> str:
    """Answers OpenSSL, which would ask the terminal."""
    return ""
