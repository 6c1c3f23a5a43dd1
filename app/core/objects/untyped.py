"""What stands in an object of which nobody knows for certain what it holds: a custom resource's kind may be called like
one of Kubernetes' own, a file that is imported may have been made by hand, and a redaction of one's own hides a field
with all that stands in it.
"""

from __future__ import annotations

from typing import Any


def part(value: Any, *path: str) -> Any:
    """What stands at a path; None where nothing does."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def fields(value: Any) -> dict[str, Any]:
    """The fields of an object; none where it is something else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The items of a list; none where it is something else."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [one for one in items(value) if isinstance(one, dict)]


def texts(value: Any) -> list[str]:
    """The texts of a list."""
    return [one for one in items(value) if isinstance(one, str)]
