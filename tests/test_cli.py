"""The real program in a process of its own: what it prints, how it ends, what it survives."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psycopg
import pytest

from app.failures import Exit
from tests.processes import runs

FORESHOCK = [sys.executable, "-m", "app"]
PATIENCE = 90


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A data folder with a short path that PostgreSQL's account can enter, also when we are root."""
    made = Path(tempfile.mkdtemp(prefix="fs"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


def environment(**more: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FORESHOCK_")}
    ours.pop("DATABASE_URL", None)
    return ours | more


def foreshock(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FORESHOCK, *arguments], env=environment(**more), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


class Serving:
    """`foreshock serve` on a free port, and the line it printed."""

    def __init__(self, log: IO[str] | None, /, **more: str) -> None:
        self.process = subprocess.Popen(
            [*FORESHOCK, "serve", "--port", "0"], env=environment(**more), stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        self.url = re.findall(r"http://127\.0\.0\.1:\d+", self.line)[0]

    def get(self, path: str, *, token: str = "") -> int:
        request = urllib.request.Request(self.url + path)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def login(self, link: str) -> int:
        """What a browser sees that signs in with the link and goes on to a page behind it."""
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        try:
            with browser.open(f"{link}&to=/api/v1/incidents", b"", timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def serving(log: IO[str] | None = None, /, **more: str) -> Iterator[Serving]:
    found = Serving(log, **more)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            assert found.stop() == 0
        elif found.process.stdout is not None:
            found.process.stdout.close()


def server_pid(folder: Path) -> int | None:
    """PostgreSQL's process; None while there is none, or while it writes its file."""
    try:
        return int((folder / "data" / "postmaster.pid").read_text().split("\n")[0])
    except (FileNotFoundError, ValueError):
        return None


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def test_it_serves_prints_one_line_and_ends_cleanly(folder: Path) -> None:
    data = {"FORESHOCK_DATA_DIR": str(folder)}
    with serving(**data) as site:
        assert re.fullmatch(r"Foreshock is at http://127\.0\.0\.1:\d+/login\?token=fs_[\w-]{43}", site.line)
        assert site.get("/healthz") == 200
        assert site.get("/readyz") == 200
        assert site.get("/api/v1/incidents") == 401
        token = foreshock("token", "create", "--role", "viewer", "--note", "a test", **data).stdout.split()[-1]
        assert site.get("/api/v1/incidents", token=token) == 200
        listed = foreshock("token", "list", **data).stdout
        assert "a test" in listed
        assert token not in listed
        assert foreshock("token", "revoke", listed.split()[0], **data).returncode == 0
        assert site.get("/api/v1/incidents", token=token) == 401
        postgres = server_pid(folder)
    assert postgres
    assert not runs(postgres)


def test_the_login_link_opens_once(folder: Path) -> None:
    with serving(FORESHOCK_DATA_DIR=str(folder)) as site:
        link = site.line.split()[-1]
        assert site.login(link) == 200
        assert site.login(link) == 401


def test_it_survives_the_kill_of_its_postgres(folder: Path) -> None:
    with serving(FORESHOCK_DATA_DIR=str(folder)) as site:
        killed = server_pid(folder)
        assert killed
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: server_pid(folder) not in (None, killed))
        wait_until(lambda: site.get("/readyz") == 200)


def test_its_postgres_does_not_survive_it(folder: Path) -> None:
    with serving(FORESHOCK_DATA_DIR=str(folder)) as site:
        postgres = server_pid(folder)
        assert postgres
        site.process.kill()
        site.process.wait(PATIENCE)
        wait_until(lambda: not runs(postgres))
    with serving(FORESHOCK_DATA_DIR=str(folder)) as again:
        assert again.get("/readyz") == 200


def test_a_site_outlives_the_import_that_started_its_postgres(folder: Path) -> None:
    data = {"FORESHOCK_DATA_DIR": str(folder)}
    command = [*FORESHOCK, "import", "-", "--cluster", "south"]
    with subprocess.Popen(
        command, env=environment(**data), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as importing:
        wait_until(lambda: server_pid(folder) is not None)
        with serving(**data) as site:
            importing.communicate(b"", timeout=PATIENCE)
            assert site.get("/readyz") == 200
            started = server_pid(folder)
            time.sleep(2)  # longer than the site takes to see that its server is gone
            assert server_pid(folder) == started


def test_with_a_database_of_your_own_no_key_is_printed(dsn: str) -> None:
    with serving(DATABASE_URL=dsn) as site:
        assert "token" not in site.line
        made = foreshock("login", "--role", "viewer", DATABASE_URL=dsn, FORESHOCK_PUBLIC_URL=site.url)
        assert site.login(made.stdout.strip()) == 200


def test_migrate_says_where_the_database_is(dsn: str) -> None:
    done = foreshock("migrate", DATABASE_URL=dsn)
    with psycopg.connect(dsn) as conn:
        [revision] = conn.execute("SELECT version_num FROM alembic_version").fetchone() or ()
    assert (done.returncode, done.stdout) == (0, f"The database is at {revision}\n")


@pytest.mark.parametrize("arguments", [("serve", "--port", "0"), ("import", "demo/alerts.json"), ("what-changed",)])
def test_a_database_of_a_newer_foreshock_ends_with_2(dsn: str, arguments: tuple[str, ...]) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        [revision] = conn.execute("SELECT version_num FROM alembic_version").fetchone() or ()
        conn.execute("UPDATE alembic_version SET version_num = 'f00000000001'")
        done = foreshock(*arguments, DATABASE_URL=dsn)
        conn.execute("UPDATE alembic_version SET version_num = %s", (revision,))
    assert done.returncode == Exit.WRONG_USE
    assert done.stderr.startswith("foreshock: the database was made by a newer Foreshock")
    assert "Traceback" not in done.stderr


def test_wrong_settings_end_with_2_and_no_traceback() -> None:
    done = foreshock("migrate", FORESHOCK_LOG_LEVEL="loud", DATABASE_URL="mysql://a:hunter2@b/c")
    assert done.returncode == 2
    assert "FORESHOCK_LOG_LEVEL" in done.stderr
    assert "DATABASE_URL" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_an_absent_database_ends_with_75_and_no_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    done = foreshock("migrate", DATABASE_URL=f"postgresql://u:hunter2@127.0.0.1:{port}/d")
    assert done.returncode == 75
    assert "Connection refused" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_ends_with_2(dsn: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = foreshock("serve", "--port", str(port), DATABASE_URL=dsn)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_there_ends_with_2(dsn: str) -> None:
    done = foreshock("import", "/no/such/file.jsonl", "--cluster", "north", DATABASE_URL=dsn)
    assert done.returncode == 2
    assert "/no/such/file.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


def test_logs_are_json_lines_and_hold_no_login_token(dsn: str, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log:
        with serving(log, DATABASE_URL=dsn, FORESHOCK_LOG_LEVEL="debug") as site:
            made = foreshock("login", "--role", "viewer", DATABASE_URL=dsn, FORESHOCK_PUBLIC_URL=site.url)
            assert site.login(made.stdout.strip()) == 200
        logged = (tmp_path / "log").read_text()
    assert logged
    assert all(json.loads(entry)["level"] for entry in logged.splitlines())
    assert made.stdout.strip().split("token=")[1] not in logged


def test_help_does_not_wait_for_what_only_commands_need() -> None:
    heavy = {"fastapi", "alembic", "numpy", "scipy", "sqlalchemy", "pydantic", "uvicorn", "psycopg"}
    asked = f"import sys, app.__main__; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


OF_A_SERVER = {"jinja2", "kubernetes", "slack_sdk", "uvicorn"}
OF_THE_WEB = {*OF_A_SERVER, "aiohttp", "fastapi", "starlette"}


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["token", "list"], OF_THE_WEB),
        (["session", "list"], OF_THE_WEB),
        (["login", "--role", "viewer"], OF_THE_WEB),
        (["migrate"], OF_THE_WEB),
        (["import", "demo/alerts.json"], OF_THE_WEB - {"aiohttp"}),
        (["what-changed"], OF_A_SERVER - {"jinja2"}),
    ],
)
def test_a_command_does_not_wait_for_what_only_a_server_needs(
    dsn: str, arguments: list[str], unneeded: set[str]
) -> None:
    asked = f"""
import sys
from app.__main__ import main
sys.argv = ["foreshock", *{arguments!r}]
try:
    main()
finally:
    print(*sorted({unneeded!r} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", asked], env=environment(DATABASE_URL=dsn), capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == ""
