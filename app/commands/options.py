"""The options that commands share, and how people write times in them. Light: `--help` imports nothing heavy."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from app.core.clusters import cluster_name
from app.core.roles import Role, Scope


class Output(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"


def duration(text: str) -> timedelta:
    """``30m`` or PT30M. Raises typer.BadParameter."""
    from pydantic import TypeAdapter, ValidationError

    from app.web import params

    try:
        return TypeAdapter[timedelta](params.Duration).validate_python(text)
    except ValidationError:
        raise typer.BadParameter(f"{text!r} is not 30s, 30m, 2h or 1d") from None


def cluster_to_write(text: str) -> str:
    """The name of a cluster that may be new. Raises typer.BadParameter."""
    try:
        return cluster_name(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def scope_of(texts: list[str] | None) -> Scope | None:
    """What is said with ``--scope``; None: nothing. Raises typer.BadParameter."""
    try:
        return Scope.parse(texts) if texts else None
    except ValueError as error:
        raise typer.BadParameter(f"--scope: {error}") from None


class Bearer(StrEnum):
    """Who a token is for: a person or program with a role, one cluster's API server or Prometheus, who tells of
    changes, or who scrapes Foreshock's own metrics."""

    VIEWER = Role.VIEWER.value
    RESPONDER = Role.RESPONDER.value
    ADMIN = Role.ADMIN.value
    AUDIT = "audit"
    METRICS = "metrics"
    CHANGES = "changes"
    SCRAPE = "scrape"


BearerOption = Annotated[
    Bearer,
    typer.Option(
        "--role",
        help="What its bearer may do; audit: send what an API server audits; metrics: send what a Prometheus scrapes;"
        " changes: tell of external changes; scrape: read Foreshock's own metrics.",
    ),
]
ClusterOfToken = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        parser=cluster_to_write,
        metavar="NAME",
        help="The only cluster it is for: with audit, metrics or changes.",
    ),
]
ScopeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="CLUSTER[/NAMESPACE]",
        help="The only cluster, or namespace of one, in which the role holds; as often as needed.",
    ),
]
RoleOption = Annotated[Role, typer.Option(help="What its bearer may do.")]
ClusterToWrite = Annotated[
    str, typer.Option(parser=cluster_to_write, metavar="NAME", help="The cluster that it was recorded in.")
]
Since = Annotated[
    timedelta, typer.Option(parser=duration, help="How far back: 2h, 1d.", metavar="TIME", show_default="24h")
]
A_DAY = timedelta(days=1)
Kubeconfig = Annotated[str, typer.Option(help="Paths of kubeconfigs, with colons between; else as kubectl finds them.")]
Context = Annotated[str | None, typer.Option(help="A context of it; the current one when left out.")]
ClusterName = Annotated[
    str | None, typer.Option("--cluster", parser=cluster_to_write, metavar="NAME", help="What to call the cluster.")
]
OutputOption = Annotated[Output, typer.Option(help="A table of 20 lines, or everything as JSON.")]
Add = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND", help="Also this kind, as kubectl names it: secrets, workflows.argoproj.io."),
]
Exclude = Annotated[list[str] | None, typer.Option(metavar="KIND", help="Not this kind.")]
