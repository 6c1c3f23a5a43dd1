"""A Foreshock elsewhere, over HTTP: the token goes to its URL and nowhere else.

The standard library's client: at 03:00 it is there in a twentieth of a second, and it heeds the proxies of the
environment (https_proxy, no_proxy), without which many a laptop reaches nothing. No redirect is followed.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from urllib.error import URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, getproxies, proxy_bypass

from app.client.environment import CA_FILE, TOKEN, TOKEN_FILE, URL
from app.client.transport import IN_ALL, PREFIX, WITHIN, Answer, UnreachableError
from app.failures import Expected

_AT_ONCE = 1 << 16


class AddressError(Expected):
    """What is said of the server, its token or its certificates cannot be used; the message says what and why."""


class Http:
    """REST at a URL."""

    def __init__(self, url: str, token: str, *, ca_file: Path | None = None) -> None:
        """``ca_file`` has certificates, in PEM, that are trusted besides the system's. Raises AddressError."""
        self._parts_of_url = _checked(url)
        self.name = url.rstrip("/")
        self._token = token
        self._opener = OpenerDirector()
        own = is_loopback(self.host)  # what is meant for this machine is no proxy's business
        self._proxies = {} if own or proxy_bypass(self.host) else getproxies()
        for handler in (ProxyHandler(self._proxies), HTTPHandler(), HTTPSHandler(context=_trusting(ca_file))):
            self._opener.add_handler(handler)

    @property
    def host(self) -> str:
        """The host of its URL."""
        return self._parts_of_url.hostname or ""

    @property
    def is_overheard(self) -> bool:
        """Whether the token goes over a network in the clear."""
        return self._parts_of_url.scheme == "http" and not is_loopback(self.host)

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        silent: float = WITHIN,
        in_all: float | None = IN_ALL,
    ) -> Answer:
        """As Transport. A redirect is an answer like any other."""
        credential = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = Request(  # noqa: S310 - the scheme is looked at, and the opener knows no other
            self.name + path, data=body or None, method=method, headers={**headers, **credential}
        )
        until = None if in_all is None else monotonic() + in_all
        try:
            response = self._opener.open(request, timeout=silent)
        except UnicodeError:
            raise AddressError(f"{URL} is {self.name!r}: {self.host} is no host's name") from None
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        named = {name.lower(): value for name, value in response.headers.items()}
        kind = named.get("content-type", "").partition(";")[0].strip().lower()
        return Answer(response.status, kind, named, self._parts(response, until))

    def _parts(self, response: HTTPResponse, until: float | None) -> Iterator[bytes]:
        with response:
            try:
                while part := response.read1(_AT_ONCE):
                    yield part
                    if until is not None and monotonic() > until:
                        raise TimeoutError
            except (OSError, HTTPException) as error:
                raise self._unreachable(error) from None
            if response.length:  # read1 takes an early end for the end
                raise UnreachableError(f"{self.name} ended the connection in the middle of an answer")

    def _unreachable(self, error: Exception) -> Expected:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return AddressError(
                f"{self.name} shows a certificate that is not trusted: {reason.verify_message}."
                f" Where it is of an authority of your own, --ca-file or {CA_FILE} names that in a PEM file"
            )
        if isinstance(reason, TimeoutError):
            why = "it does not answer in time"
        elif isinstance(reason, ssl.SSLError):
            why = f"no TLS could be agreed on ({(reason.reason or 'no reason').replace('_', ' ').lower()})"
        else:
            why = (getattr(reason, "strerror", None) or str(reason) or "it ended the connection").rstrip(".")
        if proxy := self._proxies.get(scheme := self._parts_of_url.scheme):
            return UnreachableError(
                f"{self.name} cannot be reached by way of the proxy {_place(proxy)}: {why}. Is {scheme}_proxy right,"
                f" and {URL}? Where no proxy is to be asked, no_proxy names {self.host}"
            )
        return UnreachableError(
            f"{self.name} cannot be reached: {why}. Is {URL} right, and does this machine reach it (VPN, proxy)?"
        )


def _place(proxy: str) -> str:
    """Host and port of a proxy, without what it is asked with."""
    return proxy.rpartition("@")[2].rpartition("//")[2].rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether this names our own machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise AddressError(f"{URL}: {error}") from None
    if parts.username is not None or parts.password is not None:  # not to be repeated
        raise AddressError(f"{URL} holds a user or a password, which do not belong there: {TOKEN_FILE} names a token")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise AddressError(f"{URL} is {url!r}: http:// or https:// and a host are needed")
    if parts.query or parts.fragment or " " in url:
        raise AddressError(f"{URL} is {url!r}: it has no query and no fragment")
    if parts.path.rstrip("/").endswith(PREFIX):
        raise AddressError(f"{URL} is {url!r}: leave out {PREFIX} at its end, which is asked for anyway")
    return parts


def _trusting(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # as are ssl's
            why = "it holds no certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise AddressError(f"--ca-file {ca_file}: {why}") from None
    return context


def token_of(file: Path | None, given: str) -> str:
    """The token of a file, else ``given``, that of the environment; "" where there is neither. Raises AddressError."""
    if file is not None and given:
        raise AddressError(f"{TOKEN} and {TOKEN_FILE} are both set: which of them is meant? Unset the other")
    told = given
    if file is not None:
        try:
            told = file.read_text(encoding="utf-8-sig")  # PowerShell and Notepad write a mark before it
        except OSError as error:
            raise AddressError(f"{TOKEN_FILE} {file}: {error.strerror}") from None
        except ValueError:
            told = "\0"
    token = told.strip()
    if not token.isprintable() or not token.isascii() or " " in token or (file is not None and not token):
        where = f"{TOKEN_FILE} {file}" if file is not None else TOKEN
        raise AddressError(f"{where} holds no token of one line")
    return token
