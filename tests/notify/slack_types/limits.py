"""A schema of @slack/types -> the same without its comments, with the limits that these say."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

_LENGTH = re.compile(
    r"maximum\s+length(?:\s+(?:for|of)\s+[^.]*?)?\s+is\s+([\d,]+)|maximum\s+of\s+([\d,]+)\s+characters"
)
_ITEMS = re.compile(
    r"maximum\s+(?:of|number\s+of\s+items\s+is)\s+([\d,]+)|maximum\s+([\d,]+)\s+(?:cards|blocks|options)|maximum\s+([\d,]+)\s+items"
)


def limited(part: Any, counted: list[str]) -> Any:
    """``part`` with its limits; where each was found is added to ``counted``."""
    if isinstance(part, list):
        return [limited(one, counted) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: limited(value, counted) for key, value in part.items() if key not in ("description", "deprecated")}
    if not isinstance(part.get("description"), str):
        found |= {key: limited(value, counted) for key, value in part.items() if key in ("description", "deprecated")}
        return found
    told = part["description"].lower()
    if part.get("type") == "array":
        limit = _ITEMS.search(told)
        if limit:
            counted.append(limit[0])
            return found | {"maxItems": _number(limit)}
    elif limit := _LENGTH.search(told):
        counted.append(limit[0])
        if part.get("type") == "string":
            return found | {"maxLength": _number(limit)}
        if "$ref" in part or "anyOf" in part:
            return {"allOf": [found, {"properties": {"text": {"maxLength": _number(limit)}}}]}
    return found


def _number(limit: re.Match[str]) -> int:
    return int(next(group for group in limit.groups() if group).replace(",", ""))


if __name__ == "__main__":
    counted: list[str] = []
    json.dump(limited(json.load(sys.stdin), counted), sys.stdout, separators=(",", ":"))
    print(f"{len(counted)} limits", file=sys.stderr)
