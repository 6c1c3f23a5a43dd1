"""Which Foreshock a command asks, and about what: the options that all share, and what kubectl's context says."""

from __future__ import annotations

import inspect
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from app.client import completion
from app.client.environment import CA_FILE, CLUSTER, TOKEN, TOKEN_FILE, URL
from app.client.kubeconfig import cluster_of, files, read
from app.client.server import RefusedError, Server
from app.client.transport import Transport
from app.failures import Expected

Cluster = Annotated[
    str | None,
    typer.Option(envvar=CLUSTER, help="Only this cluster.", metavar="NAME", autocompletion=completion.clusters),
]
TheCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        envvar=CLUSTER,
        help="Which cluster; may be left out where there is one.",
        metavar="NAME",
        autocompletion=completion.clusters,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="Only this namespace.", metavar="NAME", autocompletion=completion.namespaces
    ),
]

WRITTEN = {
    "minus": "TIME",
    "by": "--by",
    "started_at": "--since",
    "namespaces": "--namespace",
    "workloads": "--workload",
    "nodes": "--node",
    "cluster": "--cluster",
    "severity": "--severity",
    "verb": "--verb",
    "Idempotency-Key": "--key",
    "id": "ID",
}
"""What REST calls otherwise than a command line does -> what is written there."""
SAID_OTHERWISE = {
    "a request with this key came before, and told something else": (
        "--key: it was used before, and something else was said; to say the same again, say --since as a time: 30m is"
        " another one each time"
    ),
    "start again without it": "start again without --after",
    "say which": "say which with --namespace",
}
"""How what REST says ends, where it names what is not written at a command line -> what is said there instead."""
SHOWN_BY = {"change_id": "changes -o wide", "incident_id": "incident list"}
"""An id that REST may not know -> the command that lists those there are."""


class NotSetError(Expected):
    """Nothing says which Foreshock is to be asked, or with what token; the message says how to."""


@dataclass(frozen=True, slots=True)
class Program:
    """The command that is called. ``here`` opens REST of this machine's own database, where that is asked when no URL
    is given; ``of_kubectl``: kubectl's context says which cluster and namespace."""

    here: Callable[[], AbstractContextManager[Transport]] | None = None
    of_kubectl: bool = False

    def command(self, group: typer.Typer, name: str, function: Callable[..., None]) -> None:
        """Registers ``function``, which is given a Server and its own options, with the options that all share."""
        group.command(name=name)(self._whole(function))

    def _whole(self, function: Callable[..., None]) -> Callable[..., None]:
        own = [*inspect.signature(function, eval_str=True).parameters.values()][1:]
        names = {one.name for one in own}
        takes_context = self.of_kubectl and "cluster" in names
        shared = [*_parameters(_connection)]
        if takes_context:
            shared += _parameters(_asked)
            shared += [one for one in _parameters(_in_context) if one.name != "all_namespaces" or "namespace" in names]

        def command(**given: Any) -> None:
            connection = {one.name: given.pop(one.name) for one in _parameters(_connection)}
            context = {one.name: given.pop(one.name) for one in shared if one.name in given and one.name not in names}
            with self._connected(**connection) as server:
                if takes_context:
                    is_by_variable = context.pop("asked").get_parameter_source("cluster").name == "ENVIRONMENT"
                    if is_by_variable and context["context"] is not None:
                        given["cluster"] = None  # what is named here goes before what is set for all that is asked
                    _fill_in(server, given, **context)
                try:
                    function(server, **given)
                except RefusedError as error:
                    error.args = (_as_written(error),)
                    raise

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        keyword = inspect.Parameter.KEYWORD_ONLY
        command.__signature__ = inspect.Signature([one.replace(kind=keyword) for one in [*own, *shared]])  # type: ignore[attr-defined]
        return command

    @contextmanager
    def _connected(self, url: str | None, token_file: Path | None, ca_file: Path | None) -> Iterator[Server]:
        """The Foreshock that is meant. Raises NotSetError, http.AddressError and what ``here`` raises."""
        if url:
            yield Server(connect(url, token_file, ca_file))
        elif self.here is None:
            raise NotSetError(f"{URL} is not set: it says where Foreshock is, as https://foreshock.example")
        else:
            with self.here() as transport:
                yield Server(transport)


def _as_written(error: RefusedError) -> str:
    """What is refused, by the name under which it was written at the command line; of an id, where there are some."""
    said, name = str(error), error.field.partition(".")[0]
    if error.status == 404 and name in SHOWN_BY:
        return f"{said}: `{SHOWN_BY[name]}` shows those there are"
    for ending, instead in SAID_OTHERWISE.items():
        if said.endswith(ending):
            return said.removesuffix(ending).removeprefix(f"{error.field}: ") + instead
    is_named = name in WRITTEN and said.startswith(f"{error.field}: ")
    return WRITTEN[name] + said.removeprefix(error.field) if is_named else said


def connect(url: str, token_file: Path | None, ca_file: Path | None) -> Transport:
    """The Foreshock at a URL; what is unsafe about it is said on stderr. Raises NotSetError, http.AddressError."""
    from app.client.http import Http, token_of  # noqa: PLC0415 - help need not wait for it

    token = token_of(token_file, os.environ.get(TOKEN, "").strip())
    if not token:
        raise NotSetError(
            f"no token is set: {TOKEN_FILE} names a file that holds one; on the server,"
            " `foreshock token create --role viewer` makes it"
        )
    found = Http(url, token, ca_file=ca_file)
    if token_file is not None and token_file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        note(f"others on this machine can read {token_file}: chmod 600 {token_file}")
    if found.is_overheard:
        note(f"the token goes to {found.host} in the clear, for everybody on the way to read: use https://")
    return found


def note(text: str) -> None:
    """Says something beside the answer, on stderr."""
    print(f"foreshock: {text}", file=sys.stderr)


def _parameters(function: Callable[..., None]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function, eval_str=True).parameters.values())


def _connection(
    url: Annotated[
        str | None, typer.Option(envvar=URL, metavar="URL", help="Where Foreshock is, as https://foreshock.example.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar=TOKEN_FILE, help="A file with the token, for your eyes alone (chmod 600).")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(envvar=CA_FILE, help="Certificates, PEM, that are trusted besides the system's.")
    ] = None,
) -> None:
    """The options that say which Foreshock is asked: read by their names."""


def _in_context(
    kubeconfig: Annotated[Path | None, typer.Option(help="Which kubeconfig; else as kubectl finds it.")] = None,
    context: Annotated[
        str | None,
        typer.Option(help="Which of its contexts; else the current one.", autocompletion=completion.contexts),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Every namespace, and what stands in none.")
    ] = False,
) -> None:
    """The options that say of which cluster and namespace, as kubectl has them: read by their names."""


def _asked(asked: typer.Context) -> None:
    """What tells who said an option."""


def _fill_in(
    server: Server,
    given: dict[str, Any],
    *,
    kubeconfig: Path | None,
    context: str | None,
    all_namespaces: bool = True,
) -> None:
    """Has ``given`` say the cluster and namespace of kubectl's context where it says none. Raises ContextError."""
    needs_namespace = not all_namespaces and given["namespace"] is None
    if given["cluster"] is not None and not needs_namespace:
        return
    found = read(files(kubeconfig), context)
    told = []
    if given["cluster"] is None:
        given["cluster"] = cluster_of(found, server.clusters())
        told.append(f"cluster {given['cluster']}")
    if needs_namespace:
        given["namespace"] = found.namespace
        told.append(f"namespace {found.namespace} alone (-A: every namespace, and what stands in none)")
    note(f"{', '.join(told)}, as the context {found.name} says")
