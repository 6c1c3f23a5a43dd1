"""A file that somebody writes while the program runs: read again when it is written, and never worse than before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from app.failures import Expected

T = TypeVar("T")
log = structlog.get_logger()


class Written(Generic[T]):
    """What stands in a file now. ``error`` says why a newer one is not taken, "" where it is; ``was_there``, whether
    there ever was one while the program runs."""

    def __init__(self, path: Path, read: Callable[[Path], T], *, without: T | None = None) -> None:
        """``read`` raises an Expected error for a file that is no good, and so does this. ``without`` is what counts
        while there is none; None: there has to be one."""
        self._path, self._read, self._without, self.error = path, read, without, ""
        self._when = self._stamp()
        self.was_there = self._when is not None
        self._value = self._current()

    def __call__(self) -> T:
        """Reads the file where it was written since; where it is no good, or gone though it has to be there, what was
        read before stays."""
        when = self._stamp()
        if when != self._when:
            self._when = when
            self.was_there = True
            try:
                self._value, self.error = self._current(), ""
                log.info("file read", path=str(self._path))
            except Expected as error:
                self.error = str(error)
                log.error("what was read before stays", why=self.error)  # noqa: TRY400 - it says all
        return self._value

    def _current(self) -> T:
        return self._read(self._path) if self._without is None or self._when is not None else self._without

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
