"""The program that a kubeconfig may name to make a credential (``exec``): run, waited for, and ended.

Its form: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from app.core.changes.report import tame

WITHIN = 30.0
"""Seconds that it may take: some ask a cloud for it, or start an interpreter first. Nobody can be asked meanwhile."""
_SAID = 200
"""Characters of what it complains of that are told on."""


class PluginError(Exception):
    """It made no credential; the message says which program, and why."""


class _Variable(msgspec.Struct):
    name: str
    value: str


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Made(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _Status


async def credential(wanted: object, *, within: float = WITHIN) -> dict[str, str]:
    """What stands for ``exec`` in a kubeconfig's user: a token, or a client's certificate and its key.

    Raises PluginError, also where the program has not ended ``within`` so many seconds: it is ended then.
    """
    try:
        run = msgspec.convert(wanted, _Exec)
    except msgspec.ValidationError as error:
        raise PluginError(f"the plugin (exec) that makes the credential is not said in full: {error}") from None
    said = await _answer(run, within)
    try:
        made = msgspec.json.decode(said, type=_Made)
    except msgspec.MsgspecError:
        raise PluginError(f"{_which(run)} answers with what is no ExecCredential: run it by hand") from None
    if made.api_version != run.api_version:
        raise PluginError(f"{_which(run)} answers as {tame(made.api_version)}, and {run.api_version} is asked for")
    if made.status.token:
        return {"token": made.status.token}
    if made.status.client_certificate_data and made.status.client_key_data:
        certificate, key = made.status.client_certificate_data.encode(), made.status.client_key_data.encode()
        return {
            "client-certificate-data": b64encode(certificate).decode(),
            "client-key-data": b64encode(key).decode(),
        }
    raise PluginError(f"{_which(run)} answers with neither a token nor a certificate and its key: run it by hand")


async def _answer(run: _Exec, within: float) -> bytes:
    """What it prints. Raises PluginError."""
    try:
        process = await asyncio.create_subprocess_exec(
            run.command,
            *(run.args or ()),
            env=_environment(run),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # so that whatever it starts ends with it
        )
    except OSError as error:
        raise PluginError(f"{_which(run)} cannot be run: {error.strerror}") from None
    try:
        async with asyncio.timeout(within):
            said, complaint = await process.communicate()
    except TimeoutError:
        raise PluginError(
            f"{_which(run)} did not end within {within:g} s, and was ended: run it by hand, as kubectl does, and see"
            " what it waits for"
        ) from None
    finally:
        await _end(process)
    if process.returncode:
        words = tame(" ".join(complaint.decode("utf-8", "replace").split())[:_SAID])
        raise PluginError(f"{_which(run)} failed ({process.returncode}): {words or 'it says nothing'}")
    return said


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _environment(run: _Exec) -> Mapping[str, str]:
    asked: dict[str, Any] = {"apiVersion": run.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    own = {one.name: one.value for one in run.env or ()}
    return {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(asked)}


def _which(run: _Exec) -> str:
    """Its arguments are not told: they may hold a secret."""
    return f"the plugin (exec) that makes the credential, {tame(run.command)},"
