"""The `foreshock` command. docs/configuration.md lists its settings and exit codes.

Each command imports what it needs when it runs: help and completion must not wait for a web framework.
"""

from __future__ import annotations

from app import interrupts

# isort: split
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from app.client import commands
from app.client.environment import URL
from app.client.reach import Program
from app.client.usage import Group
from app.collect.inputs import InputKind
from app.commands import options
from app.commands.output import say, whole
from app.core.roles import Role
from app.failures import Exit, Expected
from app.home import at_home
from app.mcp.command import mcp

if TYPE_CHECKING:
    from app.client.transport import Transport
    from app.collect.contexts import WantedCluster
    from app.store.database import Database

cli = typer.Typer(
    cls=Group,
    name="foreshock",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
token_cli = typer.Typer(help="Credentials for the REST interface.", no_args_is_help=True)
cli.add_typer(token_cli, name="token")
session_cli = typer.Typer(help="Who is signed in with a browser.", no_args_is_help=True)
cli.add_typer(session_cli, name="session")
collect_cli = typer.Typer(help="Follow what `serve` does not.", no_args_is_help=True)
cli.add_typer(collect_cli, name="collect")

T = TypeVar("T")
interrupts.are_heard()


def _run(work: Callable[[Database], Awaitable[T]]) -> T:
    """Does one piece of work in the migrated database of this installation."""
    import uvloop

    from app import installation
    from app.settings import load

    with installation.postgres(load()) as server:

        async def working() -> T:
            async with installation.pools(server) as database:
                return await work(database)

        return uvloop.run(working())


def _here(role: Role = Role.RESPONDER) -> AbstractContextManager[Transport]:
    """REST of this installation's database, answered in this process to one of ``role``: what is asked where no server
    is named."""
    from app.commands.here import here

    return here(role)


commands.add_to(cli, Program(here=_here))
Program(here=partial(_here, Role.VIEWER)).command(cli, "mcp", mcp)


async def _replayed(database: Database) -> str:
    from app.commands import demo as demo_command
    from app.installation import now

    return f"/incidents/{await demo_command.replay(database.write, now=now())}"


def _version(asked_for: bool) -> None:
    if asked_for:
        from importlib.metadata import version

        print(f"foreshock {version('foreshock')}")
        raise typer.Exit


@cli.callback()
def foreshock(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Foreshock shows which change preceded an incident in Kubernetes."""


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8000,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate, PEM: serve https with it.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM, without a password.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="First replay a recorded incident, unless there is a cluster to follow.")
    ] = False,
) -> None:
    """Serve the pages and the REST interface until stopped; prints where."""
    from app import main as root
    from app.settings import load
    from app.tls import Tls

    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("--tls-cert and --tls-key go together")
    tls = Tls(tls_cert, tls_key) if tls_cert and tls_key else None
    root.serve(load(), host=host, port=port, demo=_replayed, demo_first=demo, tls=tls)


@cli.command()
def migrate() -> None:
    """Bring the database to this program's schema. `serve` and `import` do it too."""
    from app import installation
    from app.settings import load
    from app.store.migrate import head

    with installation.postgres(load()):
        print(f"The database is at {head()}")


@cli.command(name="import")
def import_(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Recording folders, or files of one; - is stdin.")
    ],
    cluster: options.ClusterToWrite = "default",
    strict: Annotated[bool, typer.Option("--strict", help="Refuse everything if one line is bad.")] = False,
) -> None:
    """Import audit logs, watch streams, metrics, alerts and dumps. The same file twice adds nothing."""
    from app import installation
    from app.commands import importing
    from app.settings import load

    report, incidents = _run(
        lambda database: importing.import_paths(database.write, paths, cluster, now=installation.now(), strict=strict)
    )
    ages = installation.ages_of(load())
    for line in (*importing.summary(report, incidents), *importing.expired(report, ages, now=installation.now())):
        print(line)
    raise typer.Exit(importing.exit_code(report))


@collect_cli.command(name="audit-file")
def collect_audit_file(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file of kube-apiserver's --audit-log-path.")],
    cluster: options.ClusterToWrite = "default",
) -> None:
    """Follow an audit log while it grows and is rotated, until stopped. Goes on where it ended."""
    from app import logs
    from app.commands import collecting
    from app.installation import now
    from app.settings import load

    file = collecting.file_to_follow(path)
    logs.configure(load().log_level)
    print(_run(lambda database: collecting.follow_audit_file(database.write, file, cluster, clock=now)))


@cli.command()
def evaluate(
    given: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR", help="A folder with recordings (label.json) or ITBench snapshots."),
    ] = None,
    own: Annotated[bool, typer.Option("--own", help="This installation's incidents, by what people said.")] = False,
    pool: Annotated[
        bool, typer.Option("--pool", help="Add up what --json of several wrote: name these files instead of DIR.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ablate: Annotated[bool, typer.Option("--ablate", help="Also leave out each piece of evidence in turn.")] = False,
    without: Annotated[list[InputKind] | None, typer.Option(help="Leave this kind of input out.")] = None,
    alert_shift: Annotated[float, typer.Option(help="Seconds by which the alerts' start is told too late.")] = 0.0,
    diagram: Annotated[Path | None, typer.Option(help="Draw whether the odds held into this file, as SVG.")] = None,
) -> None:
    """Rank recorded incidents whose answer is known, each in an empty database, and compare with simple baselines.

    Or, with --own, tell how good the rankings of this installation were by what people said of them; with --pool, what
    several evaluations come to together.
    """
    import uvloop

    from app import installation
    from app.commands import evaluate as evaluation
    from app.commands import scores
    from app.commands.diagram import svg
    from app.commands.evaluate_pool import pooled
    from app.settings import load

    if own:
        if given or pool or ablate or without or alert_shift:
            raise typer.BadParameter("--own takes neither DIR nor --pool, --ablate, --without or --alert-shift")
        _tell_own(as_json=as_json, diagram=diagram)
        return
    if pool:
        if not given or ablate or without or alert_shift:
            raise typer.BadParameter("--pool takes files of --json, and neither --ablate, --without nor --alert-shift")
        found = pooled(given)
    elif given is None or len(given) != 1:
        raise typer.BadParameter("name one folder with recordings, or say --own")
    else:
        with installation.postgres(load(), migrated=False) as server:  # it works in databases of its own
            found = uvloop.run(
                evaluation.evaluate(
                    server.dsn,
                    evaluation.recordings(given[0]),
                    now=installation.now(),
                    leave_out=frozenset(without or ()),
                    shift=timedelta(seconds=alert_shift),
                    ablate=ablate,
                )
            )
    if diagram is not None:
        diagram.write_text(svg(found.reliability))
    if as_json:
        print(scores.as_json(found))
    else:
        for line in scores.as_table(found):
            print(line)
    if found.not_judged:
        raise typer.Exit(Exit.UNUSABLE)


def _tell_own(*, as_json: bool, diagram: Path | None) -> None:
    from app.commands import scores
    from app.commands.diagram import svg

    if there := os.environ.get(URL):
        raise typer.BadParameter(
            f"--own asks the database of this machine; how good the rankings of {there} were its page /accuracy says,"
            f" and /api/v1/accuracy (unset {URL} to ask this machine)"
        )
    told = _run(scores.read_own)
    if diagram is not None:
        diagram.write_text(svg(told.reliability))
    print(scores.own_as_json(told) if as_json else "\n".join(scores.own_as_table(told)))


@cli.command()
def rbac(
    add: options.Add = None,
    exclude: options.Exclude = None,
    namespace: Annotated[str, typer.Option(help="Where Foreshock's ServiceAccount lives.")] = "foreshock",
) -> None:
    """Print what a cluster must allow Foreshock, for `kubectl apply -f -`: to read the kinds that it follows."""
    from app.collect.rbac import manifest

    print(manifest(add=add or (), exclude=exclude or (), namespace=namespace), end="")


@cli.command()
def doctor(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Which kubeconfig; else what `serve` follows.", exists=True)
    ] = None,
    context: Annotated[str, typer.Option(help="Which of its contexts; else the current one.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look what would keep Foreshock from seeing a cluster, and say how to mend it. Changes nothing there."""
    import uvloop

    from app import installation
    from app.clusters_file import wanted_clusters
    from app.collect.contexts import usual
    from app.commands import doctor as command
    from app.settings import load

    settings = load()
    if kubeconfig or context:
        clusters = usual([kubeconfig] if kubeconfig else settings.kubeconfigs(), context=context)
    else:
        clusters = wanted_clusters(settings)
    recorded = _recorded([one.name for one in clusters])
    found = uvloop.run(command.examined(clusters, clock=installation.now, recorded=recorded))
    for line in [command.as_json(found)] if as_json else command.as_text(found):
        print(line)
    raise typer.Exit(command.exit_code(found))


def _recorded(clusters: list[str]) -> dict[str, dict[str, datetime]] | None:
    """Up to when each source tells of the clusters; None, and said on stderr, where there is no database to ask."""
    from sqlalchemy.exc import OperationalError

    from app.settings import load
    from app.store import reach

    async def read(database: Database) -> dict[str, dict[str, datetime]]:
        async with database.read.connect() as conn:
            return {cluster: await reach.read(conn, cluster) for cluster in clusters}

    settings = load()
    if settings.database_url is None and not settings.data_dir.exists():
        return None  # nobody has used one yet: to look at a cluster is no reason to make it
    try:
        return _run(read)
    except Expected as error:
        say(error, error.code)
    except OperationalError as error:
        say(error.orig or error, Exit.NOT_NOW)
    return None


@cli.command()
def history(
    since: options.Since = options.A_DAY,
    cluster: options.ClusterName = None,
    kubeconfig: options.Kubeconfig = "",
    context: options.Context = None,
    output: options.OutputOption = options.Output.TABLE,
) -> None:
    """Record and print what a cluster itself remembers of its past. Only reads; installs nothing there."""
    from app import installation
    from app.clusters_file import wanted_clusters
    from app.collect.contexts import usual
    from app.commands import history as command
    from app.settings import load

    settings = load()
    files = [at_home(path) for path in kubeconfig.split(":") if path]
    if context:
        found: tuple[WantedCluster, ...] = (command.of_context(files or settings.kubeconfigs(), context),)
    else:
        found = usual(files) if files else wanted_clusters(settings)
    one = command.chosen(found, cluster)
    to_at = installation.now()
    from_at = to_at - since
    report = _run(lambda database: command.told(database.write, one, since=from_at, now=to_at))
    print(command.printed(report, output, since=from_at, now=to_at).rstrip("\n"))
    raise typer.Exit(command.exit_code(report))


@cli.command()
def login(
    role: options.RoleOption,
    scope: options.ScopeOption = None,
    port: Annotated[int, typer.Option(help="Where `serve` listens.")] = 8000,
) -> None:
    """Print a link that logs one browser in, once, within 15 minutes."""
    from app.commands import tokens
    from app.installation import url_of
    from app.settings import load

    url, limits = url_of(load(), "127.0.0.1", port), options.scope_of(scope)
    print(_run(lambda database: tokens.login_link(database, url, role=role, scope=limits)))


@token_cli.command(name="create")
def token_create(
    bearer: options.BearerOption,
    cluster: options.ClusterOfToken = None,
    scope: options.ScopeOption = None,
    note: Annotated[str, typer.Option(help="Who or what it is for.")] = "",
    expires_days: Annotated[int, typer.Option(help="How long it works.", min=1, max=3650)] = 365,
) -> None:
    """Make a token and print it, once: it is the last word of the output."""
    from datetime import timedelta

    from app.commands import tokens
    from app.installation import now

    limits, life = options.scope_of(scope), timedelta(days=expires_days)
    tokens.purpose_of(bearer, cluster=cluster, scope=limits)  # before a database is started

    async def create(database: Database) -> str:
        return await tokens.create(database, bearer, cluster=cluster, scope=limits, note=note, life=life, now=now())

    print(_run(create))


@token_cli.command(name="list")
def token_list() -> None:
    """List the tokens that work now. The tokens themselves are stored nowhere."""
    from app.commands.tokens import listed
    from app.installation import now

    for line in _run(lambda database: listed(database, now=now())):
        print(line)


@token_cli.command(name="revoke")
def token_revoke(token_id: Annotated[int, typer.Argument(metavar="ID", help="As `token list` shows it.")]) -> None:
    """End a token at once."""
    from app.installation import now
    from app.store import tokens

    async def revoke(database: Database) -> bool:
        async with database.write.begin() as conn:
            return await tokens.revoke_by_id(conn, token_id, now=now())

    if not _run(revoke):
        raise typer.BadParameter(f"no token {token_id} that works")


@session_cli.command(name="list")
def session_list() -> None:
    """List who is signed in now, and whose session was left idle."""
    from app.commands.sessions import listed
    from app.installation import now

    for line in _run(lambda database: listed(database, now=now())):
        print(line)


@session_cli.command(name="revoke")
def session_revoke(
    session_id: Annotated[int | None, typer.Argument(metavar="ID", help="As `session list` shows it.")] = None,
    who: Annotated[str | None, typer.Option(metavar="NAME", help="All sessions of one person.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All sessions there are.")] = False,
) -> None:
    """Sign somebody out at once; who follows changes is cut off within ten seconds."""
    from app.commands import sessions
    from app.installation import now

    sessions.check_one(session_id, who, every=every)  # before a database is started
    print(_run(lambda database: sessions.revoke(database, session_id, who, now=now())))


def main() -> None:
    """The entry point: what is expected to go wrong ends in a sentence and an exit code, a bug in a traceback."""
    sys.stdout, sys.stderr = (stream and whole(stream) for stream in (sys.stdout, sys.stderr))
    try:
        cli()
    except KeyboardInterrupt:  # before or after typer, which sees to it else
        sys.exit(Exit.INTERRUPTED)
    except Expected as error:
        sys.exit(say(error, error.code))
    except Exception as error:
        from sqlalchemy.exc import OperationalError

        if not isinstance(error, OperationalError):
            raise
        sys.exit(say(error.orig or error, Exit.NOT_NOW))  # SQLAlchemy's own words repeat the statement


if __name__ == "__main__":
    main()
