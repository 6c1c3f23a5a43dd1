"""The commands of who is on call. Each is given the Server that it asks; reach.py adds the options that all share."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from app.client import completion, incidents
from app.client.export import Exported, export
from app.client.following import follow
from app.client.output import Output, OutputOption, shown
from app.client.reach import Cluster, Namespace, Program, TheCluster, note
from app.client.server import RefusedError, Server
from app.client.times import TimeError, is_time, length, moment, now

At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Until when: 2026-11-21T14:03:00Z, or 30m for as long ago; now when left out."),
]
From = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="Since when: 2026-11-21T14:03:00Z, or 30m for as long ago.")
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Until when; now when left out.")]
USUAL, USUAL_CALLS = "30m", "5m"


class Order(StrEnum):
    """By what callers are sorted."""

    CALLS = "calls"
    LATENCY = "latency"


def add_to(program: typer.Typer, called: Program) -> None:
    """Registers every command with ``program``."""
    for name, function in (
        ("what-changed", what_changed),
        ("changes", changes),
        ("suspects", suspects),
        ("who-calls", who_calls),
        ("diff", diff),
        ("revert", revert),
        ("export", exported),
    ):
        called.command(program, name, function)
    group = typer.Typer(help="Incidents: what is open, and by hand.", no_args_is_help=True)
    incidents.add_to(group, called)
    program.add_typer(group, name="incident")


def what_changed(
    server: Server,
    since: Annotated[
        str, typer.Argument(metavar="TIME", help="How far back: 30s, 2h, 1d; or since when: 2026-11-21T14:03:00Z.")
    ] = USUAL,
    at: At = None,
    namespace: Namespace = None,
    cluster: Cluster = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what changed lately, newest first."""
    _check_words([since], "--at", "--namespace", "--cluster", "--output")
    to_at = moment(at, now=now(), called="--at") if at else None
    minus = length(since, until=to_at or now().isoformat(), called="TIME")
    _print(
        shown(
            server, output, "what-changed",
            table="Changes", minus=minus, at=to_at, namespace=namespace, cluster=cluster,
        )
    )  # fmt: skip


def changes(
    server: Server,
    from_at: From = None,
    to_at: To = None,
    kind: Annotated[
        str | None, typer.Option(help="Only of this kind, as Deployment.", autocompletion=completion.kinds)
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Only by who is called so.")] = None,
    verb: Annotated[
        str | None, typer.Option(help="Only create, update or delete.", autocompletion=completion.verbs)
    ] = None,
    text: Annotated[str | None, typer.Option(help="Only with this in the summary, which names the object.")] = None,
    derived: Annotated[bool, typer.Option("--derived", help="Also what controllers wrote because of another.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, max=1000, help="How many; 100, or with --follow 20.")] = None,
    after: Annotated[str | None, typer.Option(help="Go on where the page before ended, as it says.")] = None,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on with each as it is recorded.")] = False,
    namespace: Namespace = None,
    cluster: Cluster = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print changes, newest first; with --follow, the newest last, and then each as it is recorded."""
    wanted = {
        **_window(from_at, to_at),
        "kind": kind,
        "actor": actor,
        "verb": verb,
        "text": text,
        "derived": "shown" if derived else None,
        "namespace": namespace,
        "cluster": cluster,
    }
    if following:
        if after:
            raise typer.BadParameter("--after is of pages: --follow begins with the newest")
        _note_unknown(server, namespace=namespace, kind=kind, cluster=cluster)
        follow(server, output, "changes", limit=limit or 20, **wanted)
    else:
        _print(shown(server, output, "changes", table="Changes", limit=limit, after=after, **wanted))


def suspects(
    server: Server,
    incident_id: Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.incidents)],
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what preceded an incident, ranked, with the evidence for (+) and against (-)."""
    _print(shown(server, output, "incidents", incident_id, "suspects", table="Suspects"))


def who_calls(
    server: Server,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="RESOURCE TIME", help="As kubectl names it: pods, deploy, pods/status; 5m."),
    ] = None,
    at: At = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Told apart by what, with commas: user,verb,resource; also pod, user_agent, code ...",
            autocompletion=completion.by,
        ),
    ] = None,
    order: Annotated[Order | None, typer.Option(help="By what rose most.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=1000, help="How many; 20.")] = None,
    cluster: TheCluster = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print who talks to the API server, now and before; those whose calls rose most come first."""
    _check_words(words or (), "--at", "--by", "--order", "--limit", "--cluster", "--output")
    times = [word for word in words or () if is_time(word)]
    resources = [word for word in words or () if not is_time(word)]
    if len(times) > 1 or len(resources) > 1:
        raise typer.BadParameter("one resource, and one length of time, can be asked for at once")
    to_at = moment(at, now=now(), called="--at") if at else None
    _print(
        shown(
            server, output, "calls",
            table="Calls",
            cluster=server.only_cluster(cluster),
            resource=resources[0] if resources else None,
            minus=length(times[0] if times else USUAL_CALLS, until=to_at or now().isoformat(), called="TIME"),
            at=to_at,
            by=by, order=order.value if order else None, limit=limit,
        )
    )  # fmt: skip


def diff(
    server: Server,
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME@FROM..TO",
            help="As deploy/web@30m.. (since half an hour ago), or with two times as 2026-11-21T14:00:00Z.",
        ),
    ],
    namespace: Namespace = None,
    cluster: TheCluster = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print which fields of an object differ between two times, and who changed them in between."""
    named, at, times = wanted.rpartition("@")
    from_at, dots, to_at = times.partition("..")
    if not at or not dots or not from_at:
        raise TimeError(f"{wanted!r} is not KIND/NAME@FROM..TO, as deployment/web@30m.. for the last half an hour")
    _print(
        shown(
            server, output, "diff",
            object=named, namespace=namespace, cluster=server.only_cluster(cluster),
            **_window(from_at, to_at, called=("FROM", "TO")),
        )
    )  # fmt: skip


def revert(
    server: Server,
    change_id: Annotated[
        str,
        typer.Argument(
            metavar="CHANGE_ID",
            help="As `changes -o wide` shows it, and the last part of the address of its page.",
            autocompletion=completion.changes,
        ),
    ],
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Print its object as it was right before, as YAML, instead.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print how to undo a change, the dry run first, and what to mind. Runs nothing."""
    if manifest and output not in (Output.TABLE, Output.YAML):
        raise typer.BadParameter("--manifest is YAML: it takes no other --output")
    if manifest:
        _print(server.yaml("changes", change_id, "manifest"))
    else:
        _print(shown(server, output, "changes", change_id, "revert"))


def exported(
    server: Server,
    what: Annotated[Exported, typer.Argument(metavar="WHAT", help="changes, incidents or calls.")],
    from_at: From = "1h",
    to_at: To = None,
    file: Annotated[
        str, typer.Option("--file", metavar="FILE", help="Into this file, whole or not at all; - is standard output.")
    ] = "-",
    only_namespace: Namespace = None,
    cluster: Cluster = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="json, an object a line, or yaml, a document each; no table.")
    ] = Output.JSON,
) -> None:
    """Write all of a stretch of time, a JSON object a line; the last line says what was not seen of it."""
    window = _window(from_at, to_at or now().isoformat())
    of = {"namespace": only_namespace, "cluster": cluster}
    export(server, what, str(window["from_"]), str(window["to"]), file=file, output=output, **of)


def _check_words(words: Iterable[str], *options: str) -> None:
    """Refuses NAME=VALUE, which is one of the ``options`` without its dashes. Raises BadParameter."""
    for word in words:
        name, is_said, value = word.partition("=")
        if not is_said:
            continue
        option = f"--{name.lstrip('-').lower().replace('_', '-')}"
        if option in options:
            raise typer.BadParameter(f"{word!r}: the option is written {option} {value}")
        raise typer.BadParameter(f"{word!r}: there is no {option} here; there are {', '.join(options)}")


def _note_unknown(server: Server, **wanted: str | None) -> None:
    """Says what is not recorded of what is to be followed: it is waited for, and what was mistyped would never come."""
    if not (wanted["namespace"] or wanted["kind"]):
        return
    try:
        server.json("changes", limit=1, **wanted)
    except RefusedError as error:
        if error.status != 404 or error.field not in ("namespace", "kind"):
            raise
        note(f"{error}; waiting for the first change of it")


def _window(from_at: str | None, to_at: str | None, *, called: tuple[str, str] = ("--from", "--to")) -> dict[str, Any]:
    """A stretch of time as REST takes it; ``called`` is what its ends were written for. Raises TimeError."""
    at = now()
    begin, end = (
        moment(text, now=at, called=name) if text else None for text, name in zip((from_at, to_at), called, strict=True)
    )
    if begin and end and datetime.fromisoformat(begin) >= datetime.fromisoformat(end):
        raise TimeError(f"{called[0]} {from_at} is not before {called[1]} {to_at}")
    return {"from_": begin, "to": end}


def _print(text: str) -> None:
    print(text.removesuffix("\n"))
