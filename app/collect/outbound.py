"""The one client for what an operator names in clusters.yaml: Prometheus, Alertmanager, targets with /metrics; and in
routes.yaml, webhooks.

What is asked goes nowhere else: no redirect is followed, no proxy of the environment is used, and a name is resolved
once, to an address that is looked at before anything is sent to it (OWASP's Server Side Request Forgery Prevention).
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import msgspec
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
    encode_basic_auth,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from app.collect.once import in_words, once, unsaid
from app.tls import Tls, TlsError

WITHIN = ClientTimeout(total=10.0)
MOST_BYTES = 10 << 20
MOST_HEADER = 8192
_NAT64 = ip_network("64:ff9b::/96")
"""RFC 6052."""
_METADATA = (
    ip_network("fd00:ec2::/32"),  # AWS: docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
    ip_network("fd20:ce::254/128"),  # Google: cloud.google.com/compute/docs/metadata/querying-metadata
    ip_network("100.100.100.200/32"),  # Alibaba: alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata
    ip_network("168.63.129.16/32"),  # Azure: learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    ip_network("192.0.0.192/32"),  # Oracle's older images: docs.oracle.com/iaas, gettingmetadata
)
"""What clouds answer at besides link-local addresses (169.254.169.254), which all of them do."""
SAID = 300
"""Characters of what an endpoint says of a request that are told on."""


class EndpointError(ValueError):
    """What is written of an endpoint cannot be used; the message says why."""


class OutboundError(Exception):
    """Nobody answered, or not with what was asked for; the message says so without a credential.

    ``status`` is HTTP's, 0 without an answer; ``unsent`` where nothing was sent at all.
    """

    def __init__(self, message: str, *, status: int = 0, unsent: bool = False) -> None:
        super().__init__(message)
        self.status, self.unsent = status, unsent


class Answer(NamedTuple):
    """What somebody answered to what was posted: HTTP's status, Retry-After, and the beginning of what was said."""

    status: int
    retry_after: str
    said: str


class TooMuchError(OutboundError):
    """The answer is larger than is read."""


class Endpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where something is and who we are there. Files are read at each request: what is renewed in them counts.

    ``token_file`` holds a bearer token, ``password_file`` the password of ``username`` (HTTP's basic authentication);
    ``ca_file`` the certificates that are trusted there besides the system's. ``server_name`` is whom its certificate is
    for, where that is not the host of ``url``, as Prometheus' tls_config has it.
    ``cert_file`` is the certificate that we show, in PEM, and ``key_file`` its key, where that is a file of its own.
    ``headers`` are sent with each request, as ``X-Scope-OrgID`` for Mimir; no secret belongs there.

    ``trusts``, ``names`` and ``shows`` are how an operator writes ``ca_file``, ``server_name`` and ``cert_file``, ""
    for what cannot be written.
    """

    trusts: ClassVar[str] = "ca_file"
    names: ClassVar[str] = "server_name"
    shows: ClassVar[str] = "cert_file"
    url: str
    token_file: str = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    headers: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Raises EndpointError."""
        try:
            url = URL(self.url)
            port = url.port
        except ValueError as error:
            raise EndpointError(f"url: {error}") from None
        if url.scheme not in ("http", "https") or not url.host or not port:
            raise EndpointError("url: http:// or https:// and a host are needed")
        if url.user is not None or url.password is not None:
            raise EndpointError(
                "url: no user and no password belong there: write a token into a file, as token_file, or a password, as"
                " password_file beside username"
            )
        if url.query_string or url.fragment:
            raise EndpointError("url: no query and no fragment belong there")
        refuse(url.host, url.host)
        for name, value in self.headers.items():
            if not name.isascii() or not name.replace("-", "").isalnum() or not value.isprintable():
                raise EndpointError(f"headers: {name!r} is no header of one line")
        self._check_who(url)

    def _check_who(self, url: URL) -> None:
        if self.key_file and not self.cert_file:
            raise EndpointError("key_file: a cert_file belongs to it")
        for name in ("cert_file", "server_name"):
            if getattr(self, name) and url.scheme != "https":
                raise EndpointError(f"{name}: a certificate is shown over https:// alone")
        if bool(self.username) != bool(self.password_file):
            raise EndpointError("username: a password_file belongs to it, and to that a username")
        if self.username and (self.token_file or not self.username.isprintable() or ":" in self.username):
            raise EndpointError("username: it is one line without a colon, and nobody has a token_file beside it")


def refuse(host: str, address: str) -> None:
    """Raises EndpointError for an address that nobody's Prometheus has: of this machine, where ``host`` does not say so
    outright, or of its cloud's metadata, in whatever form."""
    try:
        found = _within(ip_address(address.partition("%")[0]))
    except ValueError:
        return  # a name: what it resolves to is looked at
    is_nowhere = found.is_link_local or found.is_multicast or found.is_unspecified
    if is_nowhere or any(found in network for network in _METADATA):
        raise EndpointError(f"url: {host} is at {address}, which is not asked: credentials of clouds are there")
    if found.is_loopback and host != "localhost" and not _is_address(host):
        raise EndpointError(f"url: {host} is at {address}: write localhost where this machine is meant")


def _within(found: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address that is asked in the end: of IPv4 within IPv6, by a mapping, NAT64 or 6to4."""
    if isinstance(found, IPv4Address):
        return found
    if found in _NAT64:
        return IPv4Address(int(found) & 0xFFFFFFFF)
    return found.ipv4_mapped or found.sixtofour or found


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class _Checked(AbstractResolver):
    """Resolves a name, once, to addresses that may be asked: what is connected to is one of these."""

    def __init__(self) -> None:
        self._system = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        try:
            found = await self._system.resolve(host, port, family)
        except UnicodeError:
            raise OSError(errno.EINVAL, f"{host} is no host's name") from None
        for one in found:
            try:
                refuse(host, one["host"])
            except EndpointError as error:
                raise OSError(errno.EACCES, str(error)) from None
        return found

    async def close(self) -> None:
        await self._system.close()


def _session(tls: ssl.SSLContext | bool = True) -> ClientSession:
    """To be closed. ``tls`` True: the certificates of the system."""
    return ClientSession(
        connector=TCPConnector(resolver=_Checked(), ssl=tls),
        cookie_jar=DummyCookieJar(),
        timeout=WITHIN,
        trust_env=False,
        middlewares=(once,),
        max_line_size=MOST_HEADER,
    )


class Outbound:
    """One endpoint, to be closed."""

    def __init__(self, endpoint: Endpoint, session: ClientSession) -> None:
        self._endpoint, self._session = endpoint, session

    @classmethod
    @asynccontextmanager
    async def to(cls, endpoint: Endpoint) -> AsyncIterator[Self]:
        """For the length of the block. Raises OutboundError where its files cannot be read."""
        tls = await asyncio.to_thread(_tls, endpoint)
        async with _session(tls) as session:
            yield cls(endpoint, session)

    async def get(self, path: str, *, most: int = MOST_BYTES, accept: str = "application/json") -> bytes:
        """The body of an answer. ``path`` is put behind the endpoint's url, "" for that itself.

        Raises OutboundError, and TooMuchError beyond ``most`` bytes.
        """
        return await self._ask("GET", path, None, most, accept)

    async def post(
        self, path: str, form: Mapping[str, str], *, most: int = MOST_BYTES, authorization: str = ""
    ) -> bytes:
        """The answer to a form: a query of any length. ``authorization`` is the header, where it is no bearer token's.

        Raises as ``get``.
        """
        return await self._ask("POST", path, form, most, "application/json", authorization)

    async def _ask(
        self, method: str, path: str, form: Mapping[str, str] | None, most: int, accept: str, authorization: str = ""
    ) -> bytes:
        url = URL(self._endpoint.url.rstrip("/") + path)
        headers = {**self._endpoint.headers, "Accept": accept}
        secret = ""
        if authorization:
            headers["Authorization"] = authorization
        elif file := self._endpoint.token_file or self._endpoint.password_file:
            secret = await asyncio.to_thread(_read, file)
            basic = self._endpoint.username and encode_basic_auth(self._endpoint.username, secret, "utf-8")
            headers["Authorization"] = basic or f"Bearer {secret}"
        try:
            async with self._session.request(
                method,
                url,
                data=form,
                headers=headers,
                allow_redirects=False,
                server_hostname=self._endpoint.server_name or None,
            ) as response:
                body = await _body(response, most)
        except TimeoutError:
            raise OutboundError(f"{url.host} did not answer within {WITHIN.total:.0f} s") from None
        except ClientConnectorCertificateError as error:
            raise OutboundError(f"{in_words(error).rstrip('.')}{_remedy(error, self._endpoint)}") from None
        except (ClientError, OSError) as error:
            raise OutboundError(f"{in_words(error)}{_unshown(error, self._endpoint)}") from None
        if response.status in range(300, 400):
            raise OutboundError(
                f"{url.host} answers with a redirect ({response.status}), which is not followed: write the url where"
                " it leads to",
                status=response.status,
            )
        if response.status != 200:
            said = shortened(unsaid(_reason(body), headers.get("Authorization", ""), secret))
            raise OutboundError(
                f"{url.host} answers {response.status} {response.reason}: {said}", status=response.status
            )
        return body


async def deliver(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Posts ``body`` once, and follows no redirect. ``url`` may be a secret: neither an error nor what is answered
    repeats more than its host.

    Raises EndpointError for a URL that is not asked, OutboundError where nobody answered.
    """
    try:
        to = URL(url)
        known = to.scheme in ("http", "https") and bool(to.host and to.port) and to.user is None
    except ValueError:
        known = False
    if not known:
        raise EndpointError("url: http:// or https:// and a host are needed, and no user")
    refuse(to.host or "", to.host or "")
    async with _session() as session:
        try:
            async with session.post(to, data=body, headers=headers, allow_redirects=False) as response:
                said = unsaid((await response.content.read(4096)).decode("utf-8", "replace"), "", url)
                said = said.replace(to.raw_path_qs, "<redacted:url>") if to.raw_path_qs != "/" else said
                return Answer(response.status, response.headers.get("Retry-After", ""), shortened(said))
        except TimeoutError:
            raise OutboundError(f"{to.host} did not answer within {WITHIN.total:.0f} s") from None
        except (ClientError, OSError) as error:
            unsent = isinstance(error, ClientConnectorError) or isinstance(error.__cause__, ClientConnectorError)
            raise OutboundError(in_words(error), unsent=unsent) from None


class _Refusal(msgspec.Struct):
    """How Prometheus and what has its API (``error``), or a program of Kubernetes (``message``), says what is wrong; of
    more words around it a reader has nothing."""

    error: str = ""
    message: str = ""


_refusal = msgspec.json.Decoder(_Refusal)


def _reason(body: bytes) -> str:
    try:
        told = _refusal.decode(body)
    except ValueError:  # as are msgspec's
        told = _Refusal()
    return told.error or told.message or body.decode("utf-8", "replace")


def shortened(said: str) -> str:
    """What an endpoint says, on one line, without its middle where it is long: some repeat the question before they say
    what is wrong with it."""
    said = " ".join(said.split())
    return said if len(said) <= SAID else f"{said[: SAID // 2]} … {said[-SAID // 2 :]}"


async def _body(response: ClientResponse, most: int) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_chunked(1 << 16):
        size += len(part)
        if size > most:
            raise TooMuchError(f"{response.url.host} answers with more than {most >> 20} MiB", status=response.status)
        parts.append(part)
    return b"".join(parts)


_UNSIGNED = {18, 19, 20, 21}
_MISNAMED = {62, 64}
"""OpenSSL's numbers (x509_vfy.h, X509_V_ERR_) of a certificate that nobody who is trusted signed, and of one that is
for another host or address."""


def _remedy(error: ClientConnectorCertificateError, endpoint: Endpoint) -> str:
    """What an operator can write against a certificate that is not to be trusted, "" where it is the other side's."""
    code = getattr(error.certificate_error, "verify_code", 0)
    if code in _UNSIGNED and endpoint.ca_file:
        return f"; nobody of {endpoint.ca_file} ({endpoint.trusts}) signed it"
    if code in _UNSIGNED:
        return f"; write the certificate of who signed it into a file, as {endpoint.trusts}"
    if code in _MISNAMED and endpoint.names:
        return f"; write whom it is for as {endpoint.names}"
    return ""


_ALERT = re.compile("alert .*(certificate|handshake failure|unknown ca)")
"""What a server says of a certificate that it was not shown, or does not take, in OpenSSL's words for TLS' alerts (RFC
8446, 6.2): up to TLS 1.2 mostly bad_certificate or handshake_failure, certificate_required since 1.3."""


def _unshown(error: ClientError | OSError, endpoint: Endpoint) -> str:
    """What an operator can write where the other side wants to see a certificate, or may want to: some end the
    connection without a word, and of TLS 1.3 that is after it was made, so that it seems to be of the request."""
    if URL(endpoint.url).scheme != "https" or not endpoint.shows:
        return ""
    is_said = _ALERT.search(in_words(error)) is not None
    cause = error.__cause__ or error
    cause = cause.os_error if isinstance(cause, ClientConnectorError) else cause
    is_cut = isinstance(cause, ConnectionResetError | ServerDisconnectedError)
    if not is_said and not is_cut and getattr(cause, "errno", None) not in (errno.ECONNRESET, errno.EPIPE):
        return ""
    if endpoint.cert_file:
        return (
            f"; it {'does' if is_said else 'may'} not take the certificate in {endpoint.cert_file} ({endpoint.shows})"
        )
    return (
        f"; it {'wants' if is_said else 'may want'} to see a certificate: write one as {endpoint.shows}, with its key"
    )


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    """Whom we trust, and who we are. Raises OutboundError."""
    context = ssl.create_default_context()
    if endpoint.ca_file:
        try:
            context.load_verify_locations(endpoint.ca_file)
        except OSError as error:  # as are ssl's
            raise OutboundError(f"{endpoint.trusts} {endpoint.ca_file}: {in_words(error)}") from None
    if endpoint.cert_file:
        files = Path(endpoint.cert_file), Path(endpoint.key_file or endpoint.cert_file)
        try:
            Tls(*files, called=("cert_file", "key_file")).load(context)
        except TlsError as error:
            raise OutboundError(str(error)) from None
    return context


def _read(file: str) -> str:
    """The token or the password that stands there. Raises OutboundError."""
    try:
        secret = Path(file).read_text(encoding="utf-8-sig").strip()  # Windows writes a mark before it
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "what stands there is no text"
        raise OutboundError(f"{file}: {reason}") from None
    if not secret or not secret.isprintable():
        raise OutboundError(f"{file}: what stands there is no token or password of one line")
    return secret
