"""HTTP to one API server: each call is made once, bodies stay raw bytes.

Credentials and TLS are kubernetes.aio's: a kubeconfig, also with OIDC, or a pod's own
ServiceAccount. Its typed client, its Watch and its retries are not used (docs/decisions/0017), and its
plugins (exec) neither: it waits for one for ever (exec_plugin.py).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any, Self

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSSLError, ClientTimeout
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger
from multidict import CIMultiDict
from yaml import YAMLError
from yarl import URL

from app.collect.exec_plugin import PluginError, credential
from app.collect.once import in_words, once, unsaid
from app.failures import Expected, told
from app.home import at_home

CONNECT_SECONDS = 10.0
AT_ONCE = ClientTimeout(total=60.0, sock_connect=CONNECT_SECONDS)
"""For an answer that is read at once."""
UNBOUNDED = 0
"""Connections of a client, in aiohttp's terms: each kind that is watched holds one for good. Of the 100 that are usual
none was left in a cluster of many custom resources, for the further kinds and for all else that is asked."""
RENEWED_EVERY = 10.0
"""Seconds between two tries to have another credential in place of one that is refused."""
LONGEST_WAIT = 3600.0
"""Seconds that an API server can have us wait."""
ANSWERED = frozenset({200, 201})
"""The latter of what was POSTed."""
LONGEST_LINE = 16 << 20
"""A longer one cannot be an object of Kubernetes (etcd refuses 1.5 MiB)."""


class CredentialsError(Expected):
    """There is no way to an API server in the kubeconfig or the pod; the message says why."""


class RefusedError(Exception):
    """The API server answered, but not with what was asked: ``status`` is HTTP's, ``retry_after`` in seconds.

    ``causes`` are the reasons of a Status' details.
    """

    def __init__(
        self, status: int, message: str, *, retry_after: float = 0.0, causes: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(f"{status} {message}")
        self.status, self.message, self.retry_after, self.causes = status, message, retry_after, causes


class UnreachableError(Exception):
    """No answer, or one that stopped in its midst; the message says how."""


class SilentError(UnreachableError):
    """An answer was begun, and then nothing came for longer than was waited for."""


class UntrustedError(UnreachableError):
    """There is somebody, whose certificate is not the one that was to be expected."""


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    message: str = ""
    details: _Details | None = None


_status = msgspec.json.Decoder(_Status)


class ApiServer:
    """One API server and who we are there. ``acting`` are the headers that say for whom we ask, where that is somebody
    else."""

    def __init__(
        self,
        client: ApiClient,
        *,
        credential: str = "the credential",
        renewed: Callable[[], Awaitable[ApiClient]] | None = None,
    ) -> None:
        """``credential`` says in words which it is, and what to do where it is refused. ``renewed`` reads it anew, or
        has it made anew; it may raise CredentialsError."""
        self._credential, self._renewed = credential, renewed
        self.acting: tuple[tuple[str, str], ...] = ()
        self._renewing, self._renewed_at = asyncio.Lock(), -math.inf
        self._client, self._certificate = _named(client), _certificate(client)

    @classmethod
    async def of_kubeconfig(cls, path: str, context: str | None = None) -> Self:
        """The cluster of a context, the current one where none is named. ``path`` may be several, as in KUBECONFIG.

        Raises CredentialsError.
        """

        async def client() -> ApiClient:
            return await _client_of(path, context)

        place = f"context {context}" if context else "its current context"
        of = f"the credential of kubeconfig {path}, {place}: renew it"
        return cls(await client(), credential=of, renewed=client)

    @classmethod
    def of_pod(cls) -> Self:
        """The cluster that this process runs in, as its ServiceAccount. Raises CredentialsError."""
        configuration = Configuration(connection_pool_maxsize=UNBOUNDED)
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            credential = "the token of this pod's ServiceAccount: restart the pod"
            return cls(ApiClient(configuration), credential=credential)
        except (ConfigException, OSError) as error:
            raise CredentialsError(f"not in a pod of Kubernetes: {error}") from None

    @property
    def url(self) -> str:
        """Where it is."""
        return str(self._client.configuration.host)

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = "application/json",
        patience: ClientTimeout = AT_ONCE,
    ) -> bytes:
        """The body of an answer. Raises RefusedError, UnreachableError."""
        async with self._asked(path, query, accept=accept, patience=patience) as response:
            return await response.read()

    async def dated(self, path: str) -> tuple[bytes, datetime | None]:
        """The body of an answer and its Date, in whole seconds, where it has one. Raises as ``get``."""
        async with self._asked(path, {}) as response:
            try:
                date = parsedate_to_datetime(response.headers.get("Date", ""))
            except ValueError:
                date = None
            return await response.read(), date if date and date.tzinfo else None

    async def review(self, path: str, spec: Mapping[str, Any]) -> bytes:
        """The answer to a question that is POSTed, of authentication.k8s.io or authorization.k8s.io: nothing is stored.

        Raises as ``get``.
        """
        async with self._asked(path, {}, method="POST", body={"spec": spec}) as response:
            return await response.read()

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any],
        *,
        content_type: str,
        patience: ClientTimeout,
    ) -> bytes:
        """The answer to a write: nothing that follows a cluster sends one. Raises as ``get``."""
        asked = self._asked(path, query, method=method, body=body, content_type=content_type, patience=patience)
        async with asked as response:
            return await response.read()

    async def lines(self, path: str, query: Mapping[str, str], *, quiet: timedelta) -> AsyncGenerator[list[bytes]]:
        """The lines of an answer as they come, several at a time, each whole; what is cut off is never given.

        First come none, when the answer is begun. Raises RefusedError, UnreachableError, and SilentError when nothing
        came for ``quiet``.
        """
        patience = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=quiet.total_seconds())
        rest = b""
        async with self._asked(path, query, patience=patience) as response:
            yield []
            chunks = response.content.iter_any()
            while True:
                try:
                    chunk = await anext(chunks, b"")
                except TimeoutError:
                    raise SilentError(f"nothing was said for {quiet.total_seconds():.0f} s") from None
                if not chunk:
                    return
                *found, rest = (rest + chunk).split(b"\n")
                if len(rest) > LONGEST_LINE:
                    raise UnreachableError(f"a line of more than {LONGEST_LINE >> 20} MiB")
                if whole := [line for line in found if line]:
                    yield whole

    @asynccontextmanager
    async def _asked(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = "application/json",
        patience: ClientTimeout = AT_ONCE,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[ClientResponse]:
        _, url, headers, sent, _ = await self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": accept, "Content-Type": content_type},
            body=body,
            auth_settings=[],
        )
        if credential := await self._authorization():
            headers["authorization"] = credential
        whole = CIMultiDict(headers)  # of a header that comes several times a dict would keep one
        whole.extend(self.acting)
        client = self._client
        try:
            response: ClientResponse = (
                await client.call_api(method, url, whole, sent, _request_timeout=patience)
            ).response
            if response.status == HTTPStatus.UNAUTHORIZED and await self._renew(client, credential):
                response.release()
                whole["authorization"] = await self._authorization()
                headers["authorization"] = whole["authorization"]
                response = (await self._client.call_api(method, url, whole, sent, _request_timeout=patience)).response
            async with response:
                if response.status not in ANSWERED:
                    raise await self._refused(response, authorization=headers.get("authorization", ""))
                yield response
        except TimeoutError:
            raise UnreachableError(f"{URL(url).host} says nothing any more") from None
        except ClientSSLError as error:
            raise UntrustedError(in_words(error)) from None
        except (ClientError, OSError, UnicodeError) as error:  # UnicodeError: what stands there is no host's name
            raise UnreachableError(in_words(error)) from None

    async def _authorization(self) -> str:
        """The header that says who we are, "" where a certificate does. Raises UnreachableError."""
        found = await self._client.configuration.get_api_key_with_prefix("BearerToken")
        credential = str(found or "").strip()  # a file of a token mostly ends its line
        if not credential.isprintable():
            raise UnreachableError(f"no token is sent that is not one line: {self._credential}")
        return credential

    async def _renew(self, refused: ApiClient, credential: str) -> bool:
        """Whether there is another credential than the one that was refused: tokens end, and files are written anew.

        Raises UnreachableError where none is made. A credential that is refused for good is not made at each request.
        """
        if self._renewed is None:
            return False
        async with self._renewing:
            if self._client is not refused or await self._authorization() != credential:
                return True
            if monotonic() - self._renewed_at < RENEWED_EVERY:
                return False
            self._renewed_at = monotonic()
            try:
                client = _named(await self._renewed())
            except CredentialsError as error:
                raise UnreachableError(f"the credential is refused, and there is no other: {error}") from None
            if _certificate(client) == self._certificate:
                refused.configuration.api_key = client.configuration.api_key
                await client.close()  # type: ignore[no-untyped-call]
                return await self._authorization() != credential
            self._client, self._certificate = client, _certificate(client)
            await refused.close()  # type: ignore[no-untyped-call]  # what it still brings is asked for anew
            return True

    async def _refused(self, response: ClientResponse, *, authorization: str) -> RefusedError:
        try:
            said = _status.decode(await response.read())
        except msgspec.MsgspecError:
            said = _Status()
        after = response.headers.get("Retry-After", "")
        wait = min(float(after), LONGEST_WAIT) if after.isdecimal() else 0.0
        causes = frozenset(cause.reason for cause in said.details.causes) if said.details else frozenset[str]()
        message = unsaid(said.message or response.reason or "", authorization)
        if response.status == HTTPStatus.UNAUTHORIZED:  # it says no more than that
            message = f"{message}: the API server refuses {self._credential}"
        return RefusedError(response.status, message, retry_after=wait, causes=causes)


def _certificate(client: ApiClient) -> bytes:
    """Who connections say that we are; empty where only each request does."""
    file = client.configuration.cert_file
    return Path(file).read_bytes() if file else b""


def _named(client: ApiClient) -> ApiClient:
    """Says who asks, and asks once."""
    client.configuration.client_session_kwargs = {"middlewares": (once,)}
    client.user_agent = f"foreshock/{version('foreshock')}"
    return client


async def _client_of(path: str, context: str | None) -> ApiClient:
    """Of a context of a kubeconfig, as it says now. Raises CredentialsError."""
    _check_there(path)
    configuration = Configuration(connection_pool_maxsize=UNBOUNDED)
    try:
        merged = KubeConfigMerger(path).config  # type: ignore[no-untyped-call]
        loader = KubeConfigLoader(config_dict=merged, config_base_path=None, active_context=context)  # type: ignore[no-untyped-call]
        user = loader._user  # noqa: SLF001 - as in the library's refresh_token
        if user and "exec" in user:  # the library waits for ever, and asks as nobody where it fails
            user.value = await credential(user.value["exec"])
        await loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        _check_usable(path, configuration)
        return ApiClient(configuration)
    except PluginError as error:
        raise CredentialsError(f"{path}: {error}") from None
    except (ConfigException, OSError, ValueError) as error:  # OSErrors of ssl: what is there is no certificate
        raise CredentialsError(f"{path}: no usable kubeconfig: {error}") from None
    except YAMLError as error:
        raise CredentialsError(f"{path}: no usable kubeconfig: {told(error)}") from None
    except (AttributeError, TypeError, RecursionError):
        raise CredentialsError(f"{path}: no usable kubeconfig: there is nothing in it, or not in its place") from None


def _check_usable(path: str, configuration: Configuration) -> None:
    """Raises CredentialsError."""
    try:
        server = URL(str(configuration.host))
        known = server.scheme in ("http", "https") and bool(server.host)
    except ValueError:
        known = False
    if not known:
        raise CredentialsError(f"{path}: no usable kubeconfig: its server is no URL: https:// and a host are needed")


def _check_there(kubeconfig: str) -> None:
    if not any(at_home(part).is_file() for part in kubeconfig.split(":")):
        raise CredentialsError(f"{kubeconfig}: there is no such kubeconfig")
