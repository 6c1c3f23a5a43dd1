"""`kubectl foreshock`: what is asked of the cluster and namespace that kubectl's context names.

kubectl runs a plugin by its file name, ``kubectl-foreshock``, and asks ``kubectl_complete-foreshock`` what could come
next (https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).
"""

from __future__ import annotations

from app import interrupts

# isort: split
import os
import shlex
import sys

import typer

from app.client import commands
from app.client.reach import Program
from app.client.usage import Group
from app.commands.output import NotReadError, say, whole
from app.failures import Expected

interrupts.are_heard()
NAME = "kubectl foreshock"
NO_FILES = ":4"
"""The last line that kubectl reads of what could come next: files could not (cobra's ShellCompDirectiveNoFileComp)."""


def program(*, add_completion: bool = False) -> typer.Typer:
    """The command; ``add_completion``: with what it takes to be asked what could come next."""
    found = typer.Typer(
        cls=Group,
        name=NAME,
        help="Which change preceded an incident, in the cluster and namespace of kubectl's context.",
        no_args_is_help=True,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
    )
    commands.add_to(found, Program(of_kubectl=True))
    return found


def main() -> None:
    """The entry point: what is expected to go wrong ends in a sentence and an exit code."""
    sys.stdout, sys.stderr = (stream and whole(stream) for stream in (sys.stdout, sys.stderr))
    try:
        program()(prog_name=NAME)
    except Expected as error:
        sys.exit(say(error, error.code))


def complete() -> None:
    """Prints what could come next, in lines of a value, a tab and what it is (as typer for fish); then NO_FILES."""
    before = shlex.join([NAME, *sys.argv[1:-1]])
    os.environ |= {
        "_FORESHOCK_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": f"{before} {shlex.quote(sys.argv[-1]) if sys.argv[-1] else ''}",
    }
    sys.stdout = sys.stdout and whole(sys.stdout)
    try:
        try:
            program(add_completion=True)(prog_name=NAME, complete_var="_FORESHOCK_COMPLETE")
        finally:
            print(NO_FILES)
    except NotReadError as error:  # a shell that waits no more, as where somebody types on
        sys.exit(error.code)
