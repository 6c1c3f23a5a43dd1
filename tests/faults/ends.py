"""Faults of programs: Foreshock, the API server, etcd and PostgreSQL end, are killed or stand still."""

from __future__ import annotations

import os
import random
import signal
import time

from tests.cluster.oracle import GROUP
from tests.cluster.programs import Program, wait_until
from tests.faults.stand import Stand
from tests.faults.trial import Found

TAKEOVER_SECONDS = 20
"""What is promised: another process follows the cluster so soon."""


def kills_of_foreshock(stand: Stand, found: Found, *, times: int) -> None:
    """kill -9 at random moments: while it starts, takes up its watches, spools, commits, trims.

    It lives up to three times as long as it takes to start here: were each life ended before that, on a busy machine,
    the API server would have forgotten the position long before one came to read on.
    """
    draw = random.Random(50)
    stand.program.kill()
    began = time.monotonic()
    stand.program.start()
    stand.program.wait_until_started()
    starting = time.monotonic() - began
    for _ in range(times):
        time.sleep(draw.uniform(0.1, 3.0) * starting)
        stand.program.kill()
        stand.program.start()
    stand.program.wait_until_started()
    found.notes.append(f"{times} times; it starts in {starting:.1f} s")


def kills_of_server(program: Program, found: Found, *, times: int) -> None:
    """The API server or etcd, ended by turns as an operator does it and by kill -9."""
    for turn in range(times):
        program.restart(kill=turn % 2 == 0)
        time.sleep(2)
    found.notes.append(f"{times} times")


def two_servers(stand: Stand, found: Found, *, times: int, settled: float) -> None:
    """A load balancer goes over to another API server, which has a watch cache of its own; and back, after that was
    killed. ``settled`` is how many seconds it runs before: what was told before it began is not in its cache. That of a
    custom resource begins when somebody asks for it."""
    first, second = stand.plane.api_ports
    other = stand.plane.other_apiserver
    for _ in range(times):
        other.start()
        with stand.plane.client(other=True) as admin:
            wait_until(lambda: admin.get(f"/apis/{GROUP}/v1/widgets").is_success, "Widgets are served there")
        time.sleep(settled)
        stand.proxy.aim(second)
        time.sleep(5)
        other.stop(kill=True)
        time.sleep(1)  # in which nobody answers
        stand.proxy.aim(first)
        time.sleep(5)
    found.notes.append(f"{times} times over and back")


def stall_of_server(program: Program, *, seconds: float) -> None:
    """SIGSTOP: connections stay open, and nothing comes."""
    program.pause()
    time.sleep(seconds)
    program.resume()


def end_of_postgres(stand: Stand, *, seconds: float, kill: bool) -> None:
    """PostgreSQL is down for a while: stopped, or killed with all of its memory."""
    if kill:
        pid = stand.postmaster
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not stand.postgres.alive, "the keeper has ended")
    else:
        stand.postgres.stop()
    time.sleep(seconds)
    stand.start_postgres()


def stall_of_postgres(stand: Stand, *, seconds: float) -> None:
    """SIGSTOP of every process of PostgreSQL: its connections stay open, and nothing comes."""
    backends = [int(row[0]) for row in stand.ask("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")]
    pids = [stand.postmaster, *backends]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def stall_of_leader(stand: Stand, found: Found, *, seconds: float) -> None:
    """Of two processes the one that follows the cluster stands still for so long, and wakes up in the other's turn."""
    first = stand.holder()
    second = stand.another()
    second.start()
    assert second.address
    waits = "the second process has its own spool and waits for its turn"
    wait_until(lambda: any((second.folder / "spool").glob("*/id")), waits, seconds=30)
    stand.program.send(signal.SIGSTOP)
    began = time.monotonic()
    wait_until(lambda: stand.holder() != first, "another process follows the cluster", seconds=60)
    took = time.monotonic() - began
    time.sleep(max(0.0, seconds - took))
    stand.program.send(signal.SIGCONT)
    time.sleep(6)  # in which it learns that its turn is over
    found.promise(f"taken over after {took:.1f} s", holds=took <= TAKEOVER_SECONDS)
    found.promise("the one that was stalled runs on", holds=stand.program.runs)
    second.stop()
    wait_until(lambda: stand.holder() == first, "the first one follows the cluster again", seconds=60)
