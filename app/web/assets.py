"""The files under static/, each at an address that names its content: what is there may be kept for ever."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

STATIC = Path(__file__).resolve().parents[2] / "static"
PATH = "/static/"


@cache
def address(name: str) -> str:
    """Where a file is, with its content's hash."""
    return f"{PATH}{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def is_of(path: str, query: bytes) -> bool:
    """Whether what was asked for by this address is what it names: while replicas of two versions answer, a page of one
    may ask the other for its files."""
    name = path.removeprefix(PATH)
    is_file = path.startswith(PATH) and (STATIC / name).is_file() and ".." not in name
    return is_file and f"{path}?{query.decode('latin-1')}" == address(name)
