"""The file that says what is secret besides what Foreshock knows by itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from app.core.objects.own_rules import NO_RULES, OwnRules
from app.failures import Expected, told
from app.settings import Settings
from app.yaml_file import read_yaml


class RedactionError(Expected):
    """The file of redaction cannot be used; the message says where and why."""


def read(path: Path) -> OwnRules:
    """The rules of a file; one that is empty has none. Raises RedactionError."""
    try:
        found = read_yaml(path)
        return NO_RULES if found is None else msgspec.convert(found, OwnRules)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise RedactionError(f"{path}: {told(error)}") from None


def path_of(settings: Settings) -> Path:
    """Where the file is, or would be."""
    return settings.redaction_file or settings.data_dir / "redaction.yaml"


def rules_of(settings: Settings) -> OwnRules | None:
    """What the file says; None where there is none, and none is named. Raises RedactionError."""
    path = path_of(settings)
    return read(path) if settings.redaction_file or path.exists() else None
