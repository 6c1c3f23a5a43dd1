"""The file of routes -> core.routes: read again when it is written, and the last good one kept where it is not good."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import structlog
import yaml

from app.core.routes import NO_ROUTES, Routes
from app.failures import Expected

log = structlog.get_logger()


class RoutesError(Expected):
    """The file of routes cannot be used; the message says where and why."""


def read(path: Path) -> Routes:
    """The routes of a file. Raises RoutesError."""
    try:
        found = msgspec.convert(yaml.safe_load(path.read_bytes()), Routes)
        for route in found.routes:
            if route.quiet is not None:
                ZoneInfo(route.quiet.zone)
    except ZoneInfoNotFoundError as error:
        raise RoutesError(f"{path}: {error.args[0]}: name a zone like Europe/Berlin") from None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise RoutesError(f"{path}: {error}") from None
    return found


class RoutesFile:
    """The routes as they are written now. ``error`` says why a newer file is not taken, "" where it is."""

    def __init__(self, path: Path, *, required: bool) -> None:
        """Raises RoutesError for a file that is no good, or not there though it is ``required``."""
        self._path, self.error = path, ""
        self._written = self._when()
        self._routes = read(path) if required or self._written is not None else NO_ROUTES

    def __call__(self) -> Routes:
        """Reads the file where it was written since."""
        written = self._when()
        if written != self._written:
            self._written = written
            try:
                self._routes, self.error = (read(self._path) if written is not None else NO_ROUTES), ""
                log.info("routes read", routes=len(self._routes.routes))
            except RoutesError as error:
                self.error = str(error)
                log.error("the routes stay as they were", why=self.error)  # noqa: TRY400 - it says all
        return self._routes

    def _when(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
