"""`foreshock incident`: what is open, and incidents by hand."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from app.client import completion
from app.client.following import follow
from app.client.output import Output, OutputOption, done, shown
from app.client.reach import Cluster, Program, TheCluster, note
from app.client.server import Server
from app.client.times import moment, now
from app.core.changes.report import tame

About = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", help="A namespace that it is about.", autocompletion=completion.namespaces),
]
Workloads = Annotated[list[str] | None, typer.Option("--workload", help="A workload, as namespace/name.")]
Nodes = Annotated[list[str] | None, typer.Option("--node", help="A node.")]
Severity = Annotated[
    str | None, typer.Option(help="page, critical, error, warning or info.", autocompletion=completion.severities)
]
IncidentId = Annotated[
    str, typer.Argument(metavar="ID", help="As `incident list` shows it.", autocompletion=completion.incidents)
]


class Said(StrEnum):
    """What may be said of a suspect."""

    IT = "it"
    NOT_IT = "not-it"
    TAKE_BACK = "take-back"


class Status(StrEnum):
    """How an incident stands."""

    OPEN = "open"
    RESOLVED = "resolved"
    SUSPECTED = "suspected"
    MERGED = "merged"


def add_to(group: typer.Typer, called: Program) -> None:
    """Registers every command with ``group``."""
    for name, function in (
        ("list", listed),
        ("show", show),
        ("open", opened),
        ("edit", edit),
        ("close", close),
        ("reopen", reopen),
        ("merge", merge),
        ("verdict", verdict),
    ):
        called.command(group, name, function)


def listed(
    server: Server,
    status: Annotated[Status | None, typer.Option(help="Only these; else those open and resolved.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=1000, help="How many; 100, or with --follow 20.")] = None,
    after: Annotated[str | None, typer.Option(help="Go on where the page before ended, as it says.")] = None,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what becomes of them.")] = False,
    cluster: Cluster = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List incidents, the newest first, each with what leads its ranking; with --follow, the newest last, and then each
    that is opened, ends or is ranked otherwise."""
    if following:
        if after or status:
            raise typer.BadParameter("--after and --status are of pages: --follow tells of all that are new or change")
        follow(server, output, "incidents", limit=limit or 20, cluster=cluster)
    else:
        asked = {"status": status.value if status else None, "limit": limit, "after": after, "cluster": cluster}
        print(shown(server, output, "incidents", table="Incidents", **asked), end="")


def show(server: Server, incident_id: IncidentId, output: OutputOption = Output.TABLE) -> None:
    """Print one incident: since when, what it is about, and its suspects in short."""
    print(shown(server, output, "incidents", incident_id), end="")


def opened(
    server: Server,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What is wrong, in a line.")],
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Since when: 2026-11-21T14:03:00Z, or 30m; now when left out.")
    ] = None,
    about: About = None,
    workloads: Workloads = None,
    nodes: Nodes = None,
    control_plane: Annotated[bool, typer.Option("--control-plane", help="It is about the control plane.")] = False,
    severity: Severity = None,
    key: Annotated[
        str | None,
        typer.Option(help="Opens one incident, however often the same is said."),
    ] = None,
    cluster: TheCluster = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Open an incident, have what preceded it ranked, and print its id."""
    told = {
        "title": title,
        "cluster": server.only_cluster(cluster),
        "started_at": moment(since, now=now(), called="--since") if since else None,
        "namespaces": about or None,
        "workloads": workloads or None,
        "nodes": nodes or None,
        "control_plane": control_plane or None,
        "severity": severity,
    }
    body = {name: value for name, value in told.items() if value is not None}
    answer = server.send("POST", "incidents", body=body, key=key)
    print(done(answer, output, answer["incident"]["id"]), end="")
    _warn(answer)


def edit(
    server: Server,
    incident_id: IncidentId,
    title: Annotated[str | None, typer.Option(help="What is wrong, in a line.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Since when it is: 2026-11-21T14:03:00Z, or 30m.")
    ] = None,
    about: About = None,
    workloads: Workloads = None,
    nodes: Nodes = None,
    control_plane: Annotated[
        bool | None, typer.Option("--control-plane/--no-control-plane", help="Whether it is about the control plane.")
    ] = None,
    whole_cluster: Annotated[
        bool, typer.Option("--whole-cluster", help="It is about no namespace, workload or node rather than another.")
    ] = False,
    severity: Severity = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Correct an incident: what is named changes, the rest stays. Prints it as it is ranked then."""
    if whole_cluster and (about or workloads or nodes):
        raise typer.BadParameter("--whole-cluster takes neither --namespace, --workload nor --node")
    nothing: list[str] | None = [] if whole_cluster else None
    told = {
        "title": title,
        "started_at": moment(since, now=now(), called="--since") if since else None,
        "namespaces": about or nothing,
        "workloads": workloads or nothing,
        "nodes": nodes or nothing,
        "control_plane": control_plane,
        "severity": severity,
    }
    body = {name: value for name, value in told.items() if value is not None}
    if not body:
        raise typer.BadParameter("nothing is named that is to change: --title, --since, --namespace ... (--help)")
    answer = server.send("PATCH", "incidents", incident_id, body=body)
    print(shown(server, output, "incidents", incident_id), end="")
    _warn(answer)


def _warn(answer: dict[str, Any]) -> None:
    """Says what of that which was said names nothing that is recorded: it is kept, and can be corrected."""
    for remark in answer.get("remarks", ()):  # an older server has none
        note(f"{remark}; where another was meant, `foreshock incident edit {answer['incident']['id']}` corrects it")


def close(server: Server, incident_id: IncidentId, output: OutputOption = Output.TABLE) -> None:
    """Say that an incident is over, as of now: it is resolved."""
    _set_status(server, incident_id, Status.RESOLVED, output)


def reopen(server: Server, incident_id: IncidentId, output: OutputOption = Output.TABLE) -> None:
    """Open an incident again, until somebody closes it."""
    _set_status(server, incident_id, Status.OPEN, output)


def merge(
    server: Server,
    incident_id: IncidentId,
    into: Annotated[
        str, typer.Argument(metavar="INTO", help="The incident that stays.", autocompletion=completion.incidents)
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an incident a part of another one of its cluster, which has its alerts from then on. It cannot be undone."""
    answer = server.send("POST", "incidents", incident_id, "merge", body={"into": into})
    whole = answer["incident"]
    print(done(answer, output, tame(f"{incident_id} is a part of {whole['id']}: {whole['title']}")), end="")


def verdict(
    server: Server,
    incident_id: IncidentId,
    suspect: Annotated[
        str,
        typer.Argument(
            metavar="SUSPECT", help="Its place, as `suspects` shows it; its change's id; or none: it was none of these."
        ),
    ],
    said: Annotated[Said, typer.Argument(metavar="OPINION", help="it, not-it, or take-back: of what was said before.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a suspect was it. Kept with who and when; later incidents are ranked by it."""
    change_id, summary = suspect, ""
    if suspect.isdecimal() and len(suspect) <= LONGEST_PLACE:
        change_id, summary = _placed(server, incident_id, int(suspect))
    path = ("incidents", incident_id, "verdicts", change_id)
    if said is Said.TAKE_BACK:
        answer = server.send("DELETE", *path, body={})
    else:
        answer = server.send("PUT", *path, body={"opinion": said.value.replace("-", " ")})
    of = f": {summary}" if summary else ""
    print(done(answer, output, tame(f"{change_id} {_WORDS[said]}{of}")), end="")


LONGEST_PLACE = 4
"""Digits: longer ones are of an id, which may have no letters."""
_WORDS = {Said.IT: "was it", Said.NOT_IT: "was not it", Said.TAKE_BACK: "has no verdict any more"}


def _placed(server: Server, incident_id: str, place: int) -> tuple[str, str]:
    """The id and the summary of the change that stands at a place. Raises BadParameter."""
    found = server.json("incidents", incident_id, "suspects")["items"]
    for one in found:
        if one["rank"] == place:
            return one["change"]["id"], one["change"]["summary"]
    raise typer.BadParameter(f"there is no suspect {place}: {len(found)} are ranked of {incident_id}")


def _set_status(server: Server, incident_id: str, status: Status, output: Output) -> None:
    answer = server.send("PATCH", "incidents", incident_id, body={"status": status.value})
    found = answer["incident"]
    print(done(answer, output, tame(f"{found['id']} is {found['status']}: {found['title']}")), end="")
