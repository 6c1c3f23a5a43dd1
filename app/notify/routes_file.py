"""The file of routes -> core.routes."""

from __future__ import annotations

import re
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import yaml

from app.core.routes import Routes
from app.failures import Expected, told
from app.yaml_file import read_yaml


class RoutesError(Expected):
    """The file of routes cannot be used; the message says where and why."""


_HINTS = {
    r"\.quiet\.(?:from|to)`": ': a time of day, in quotes, like "22:00"',
    r"\.(?:to\[\d+\]|from)`": ": an address alone, like ops@example.com, without a name",
    r"\.labels\[": ": values of labels are text, in quotes where they look like a number",
    r"\.channel`": ": the ID at the end of a channel's details, like C0123456789",
    r"\.zone`": ": a zone like Europe/Berlin",
    r"Expected `object`, got `null`\Z": ": the file is empty; routes: [] tells nobody",
}
"""What to do, by where a mistake is: to YAML 1.1 an unquoted 22:00 is a number, and people write names for IDs."""


def read(path: Path) -> Routes:
    """The routes of a file. Raises RoutesError."""
    try:
        found = msgspec.convert(read_yaml(path), Routes)
        for route in found.routes:
            if route.quiet is not None:
                ZoneInfo(route.quiet.zone)
    except ZoneInfoNotFoundError as error:
        raise RoutesError(f"{path}: {error.args[0]}: name a zone like Europe/Berlin") from None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:  # msgspec's errors are ValueErrors
        said = told(error)
        hints = (hint for at, hint in _HINTS.items() if re.search(at, said))
        raise RoutesError(f"{path}: {said}{next(hints, '')}") from None
    return found
