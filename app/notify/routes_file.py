"""The file of routes -> core.routes."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import yaml

from app.core.routes import Routes
from app.failures import Expected, told


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
        raise RoutesError(f"{path}: {told(error)}") from None
    return found
