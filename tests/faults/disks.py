"""Disks that are full: the spool's, its own bound, PostgreSQL's data and its log."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.cluster.programs import wait_until
from tests.faults.stand import Stand
from tests.faults.trial import Found

SMALL_WAL = ("max_wal_size=48MB", "min_wal_size=32MB")
CHUNKS = (1 << 20, 1 << 12, 1)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """The file system of a folder has no byte left for the length of the block."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in CHUNKS:
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        try:
            yield
        finally:
            ballast.unlink()
            file.truncate(0)


def spool_disk(stand: Stand, *, seconds: float) -> None:
    """The disk of the spool."""
    with full(stand.folder / "data"):
        time.sleep(seconds)


def spool_bound(stand: Stand, *, seconds: float) -> None:
    """The bound of the spool itself (FORESHOCK_SPOOL_BYTES): PostgreSQL is away for longer than it lasts."""
    stand.postgres.stop()
    time.sleep(seconds)
    stand.start_postgres()


def postgres_data(stand: Stand, found: Found, *, seconds: float) -> None:
    """The disk of PostgreSQL's tables: it runs on, and refuses what needs room."""
    _move_wal(stand, stand.folder / "wal")
    pid = stand.postmaster
    with full(stand.folder / "pg"):
        time.sleep(seconds)
    found.promise("PostgreSQL ran on", holds=stand.postgres.alive and stand.postmaster == pid)


def postgres_log(stand: Stand, found: Found, *, seconds: float) -> None:
    """The disk of PostgreSQL's write-ahead log: it ends, and is started when there is room again."""
    _move_wal(stand, stand.folder / "wal" / "pg_wal", *SMALL_WAL)
    with full(stand.folder / "wal"):
        _write_much(stand)
        wait_until(lambda: not stand.postgres.alive, "PostgreSQL has ended: it cannot write its log", seconds=120)
        time.sleep(seconds)
    found.notes.append("PostgreSQL ended")
    stand.start_postgres(*SMALL_WAL)


def _move_wal(stand: Stand, target: Path, *options: str) -> None:
    """Put the write-ahead log elsewhere."""
    stand.postgres.stop()
    log = stand.folder / "pg" / "data" / "pg_wal"
    owner = log.stat()
    shutil.copytree(log, target)
    for path in (target, *target.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    target.chmod(0o700)
    shutil.rmtree(log)
    log.symlink_to(target)
    stand.start_postgres(*options)


def _write_much(stand: Stand) -> None:
    """Rows in another database, until the log takes no more of them."""
    try:
        with psycopg.connect(stand.dsn, autocommit=True) as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS public.much (filler text)")
            while True:
                conn.execute("INSERT INTO public.much SELECT repeat(md5(n::text), 20) FROM generate_series(1, 20000) n")
                conn.execute("TRUNCATE public.much")
    except psycopg.Error:
        return
