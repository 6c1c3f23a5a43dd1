"""A write to an API server for a person, as that person: tried as a dry run first, and done where that shows what they
were shown.

https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/ and
https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import ClientTimeout

from app.collect.apiserver import CONNECT_SECONDS, ApiServer, CredentialsError, RefusedError, UnreachableError
from app.core.access import Identity
from app.core.changes.revert_write import Tried, UndoError, Write
from app.core.model import Json, Object
from app.core.objects.diff import diff
from app.core.objects.normalise import normalise
from app.core.objects.redact import Redactor, decode

WITHIN = ClientTimeout(total=15.0, sock_connect=CONNECT_SECONDS)
"""An API server gives its webhooks 10 seconds, where they do not say otherwise."""
CREDENTIALS_SECONDS = 15.0
"""For the program that a kubeconfig may name."""
ATTEMPTS = 5
"""At an object whose status is written all the time."""
MANAGER = "foreshock"
"""Who owns the fields that are set (metadata.managedFields)."""
_TYPE = {"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json"}
_VALUE = re.compile(r"((?:Invalid|Unsupported|Duplicate) value:) (?:\"(?:[^\"\\]|\\.)*\"|.*?(?=: |$))", re.DOTALL)
"""As apimachinery writes the value of a field that it does not take (pkg/util/validation/field)."""
_TWICE = "somebody undid it meanwhile, or this was sent twice"
_ALREADY = {("delete", 404): f". It is gone already: {_TWICE}", ("create", 409): f". It is there already: {_TWICE}"}
"""What a refusal means to who wants to have it so, by the write and HTTP's status."""
_METHOD = {"patch": "PATCH", "create": "POST", "delete": "DELETE"}


@asynccontextmanager
async def acting(kubeconfig: str, context: str | None, who: Identity) -> AsyncIterator[ApiServer]:
    """An API server that is asked as somebody, with a credential that may impersonate them. Raises UndoError."""
    try:
        async with asyncio.timeout(CREDENTIALS_SECONDS):
            server = await ApiServer.of_kubeconfig(kubeconfig, context)
    except CredentialsError as error:
        raise UndoError(f"there is no way to the API server: {error}") from None
    except TimeoutError:
        raise UndoError(f"what {kubeconfig} has run for its credentials takes too long") from None
    server.acting = (("Impersonate-User", who.name), *(("Impersonate-Group", one) for one in who.groups))
    try:
        yield server
    finally:
        await server.close()


class Undoing:
    """One write that undoes a change, as ``who`` the server is asked as."""

    def __init__(self, server: ApiServer, write: Write, redactor: Redactor, who: Identity) -> None:
        self._server, self._write, self._redactor, self._who = server, write, redactor, who

    async def attempt(self, seen: str | None) -> Tried:
        """What a dry run would alter; where that is what was ``seen``, what the write itself did. Raises UndoError."""
        for _ in range(ATTEMPTS):
            try:
                return await self._once(seen)
            except _ConflictError as error:
                last = error
        raise UndoError(f"{ATTEMPTS} times somebody wrote it in between: {last}")

    async def _once(self, seen: str | None) -> Tried:
        """The same. Raises _ConflictError, too."""
        before = None if self._write.verb == "create" else await self._read()
        tried = self._tried(before, await self._send(before, dry_run=True))
        if seen is None:
            return tried
        if not tried.diffs:
            raise UndoError(f"nothing is left to undo: {_TWICE}")
        if tried.seen != seen:
            raise UndoError("it would do something else now than it showed: look at that first")
        return self._tried(before, await self._send(before, dry_run=False))

    async def _read(self) -> Object:
        write = self._write
        try:
            found = _object(await self._server.get(write.path, {}, patience=WITHIN))
        except (RefusedError, UnreachableError) as error:
            raise self._error(error) from None
        uid = _metadata(found).get("uid")
        if write.uid and uid != write.uid:
            raise UndoError(
                "the object there is another one of the same name: was it made anew, or is this another cluster?"
            )
        return found

    async def _send(self, before: Object | None, *, dry_run: bool) -> Object:
        """What is answered: the object as it is then, or would be; of one that is gone, nothing of it."""
        query = {} if self._write.verb == "delete" else {"fieldManager": MANAGER}
        query |= {"dryRun": "All"} if dry_run else {}  # of a DELETE in its body, too: here where a proxy drops that
        body, content_type = self._body(before, dry_run=dry_run)
        try:
            answer = await self._server.send(
                _METHOD[self._write.verb],
                self._write.path,
                query | ({} if self._write.verb == "delete" else {"fieldValidation": "Strict"}),
                body,
                content_type=content_type,
                patience=WITHIN,
            )
        except RefusedError as error:
            told = self._error(error, unsure=not dry_run and not 400 <= error.status < 500)
            raise (_ConflictError(str(told)) if error.status == 409 and before is not None else told) from None
        except UnreachableError as error:
            raise self._error(error, unsure=not dry_run) from None
        return _object(answer, unsure=not dry_run)

    def _body(self, before: Object | None, *, dry_run: bool) -> tuple[Mapping[str, Any], str]:
        """The body of the request, and its type: good for the object as it was read alone."""
        write, metadata = self._write, _metadata(before)
        version = metadata.get("resourceVersion")
        if write.verb == "create":
            return write.body, "application/json"
        if write.verb == "delete":
            conditions = {"uid": metadata.get("uid"), "resourceVersion": version}
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
            return options | {"propagationPolicy": "Background"} | ({"dryRun": ["All"]} if dry_run else {}), (
                "application/json"
            )
        return _with_version(write.body, version), _TYPE[write.patch]

    def _tried(self, before: Object | None, after: Object) -> Tried:
        write = self._write
        then = None if write.verb == "delete" else self._shown(after)
        diffs = diff(self._shown(before) if before is not None else None, then)
        alters = _as_asked(then, write.body) if write.verb == "create" else diffs
        told = msgspec.json.encode((write.verb, write.path, write.body, alters), order="sorted")
        stays = _stays(after) if write.verb == "delete" else ""
        return Tried(self._who, diffs, sha256(told).hexdigest(), stays)

    def _shown(self, whole: Object) -> Json:
        resource = self._write.resource
        redacted = self._redactor.object(resource.api_group, resource.kind, whole)
        return normalise(redacted, resource.api_group, kind=resource.kind)

    def _said(self, message: str) -> str:
        """A refusal without the values that it repeats: which field, and why, is enough."""
        return self._redactor.text(_VALUE.sub(r"\1 <left out>", message))

    def _error(self, error: RefusedError | UnreachableError, *, unsure: bool = False) -> UndoError:
        """In words; what the API server says may repeat values. ``unsure``: it may have been done all the same, as
        where its store took too long (504)."""
        why = f"the API server did not answer: {error}"
        if isinstance(error, RefusedError):
            said = self._said(error.message)
            of_ours = error.status == HTTPStatus.UNAUTHORIZED  # that says itself who refuses what
            why = f"{error.status} {said}" if of_ours else f"the API server refuses it ({error.status}): {said}"
            why += _ALREADY.get((self._write.verb, error.status), "")
        return UndoError(f"{why}. It may have been done or not: look at the object" if unsure else why, unsure=unsure)


class _ConflictError(Exception):
    """Somebody wrote the object since it was read; the message is the API server's."""


def _with_version(patch: Object, version: Json) -> Object:
    """The patch, refused unless the object is in this version."""
    return {**patch, "metadata": {**_metadata(patch), "resourceVersion": version}}


def _metadata(whole: Object | None) -> Object:
    found = (whole or {}).get("metadata")
    return found if isinstance(found, dict) else {}


def _object(answer: bytes, *, unsure: bool = False) -> Object:
    try:
        found = decode(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        why = "the API server answered with what is no object"
        raise UndoError(f"{why}. It may have been done or not: look at the object" if unsure else why, unsure=unsure)
    return found


def _as_asked(made: Json, asked: Json) -> Json:
    """A new object as it counts as the one that was shown: what was asked for with its values, of what the API server
    makes up (which is another each time: the address of a Service, say) the fields alone."""
    if isinstance(made, dict):
        values = asked if isinstance(asked, dict) else {}
        return {field: _as_asked(value, values.get(field)) for field, value in made.items()}
    if isinstance(made, list):
        items = asked if isinstance(asked, list) else []
        return [_as_asked(item, items[at] if at < len(items) else None) for at, item in enumerate(made)]
    return None if asked is None else made


def _stays(answer: Object) -> str:
    """Until what an object stays that was deleted; "" where it is gone. Who deletes gets the object itself while
    something keeps it (https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/)."""
    metadata = _metadata(answer)
    if not metadata.get("deletionTimestamp"):
        return ""
    finalizers = metadata.get("finalizers")
    names = [str(one) for one in finalizers] if isinstance(finalizers, list) else []
    return f"its finalizers are taken away: {', '.join(names)}" if names else "its grace period ends"
