"""A schema of @slack/types -> the same without its comments, with the limits that these say."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

_LENGTH = re.compile(
    r"maximum\s+length(?:\s+(?:for|of)\s+[^.]*?)?\s+is\s+([\d,]+)|maximum\s+of\s+([\d,]+)\s+characters"
    r"|limit\s+([\d,]+)\s+characters"
)
_BELOW = re.compile(r"must\s+be\s+less\s+than\s+([\d,]+)\s+characters")
_SHORTEST = re.compile(r"minimum\s+length(?:\s+for\s+[^.]*?)?\s+is\s+([\d,]+)")
_ITEMS = re.compile(
    r"maximum\s+(?:of|number\s+of\s+(?:items|options|option\s+groups)\s+is)\s+([\d,]+)"
    r"|maximum\s+([\d,]+)\s+(?:cards|blocks|options|items|rows)|array\s+of\s+up\s+to\s+([\d,]+)"
)
_FEWEST = re.compile(r"minimum\s+([\d,]+),")
_EACH = re.compile(r"maximum\s+length\s+for\s+the\s+text\s+in\s+each\s+item\s+is\s+([\d,]+)")


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
        found |= _said({"maxItems": _ITEMS, "minItems": _FEWEST}, told, counted)
        each = _said({"maxLength": _EACH}, told, counted)
        return found | ({"items": _of_text(found["items"], each)} if each else {})
    lengths = _said({"maxLength": _LENGTH, "minLength": _SHORTEST}, told, counted)
    if below := _said({"maxLength": _BELOW}, told, counted):
        lengths["maxLength"] = below["maxLength"] - 1
    if part.get("type") == "string":
        return found | lengths
    return _of_text(found, lengths) if lengths and ("$ref" in part or "anyOf" in part) else found


def _of_text(part: Any, lengths: dict[str, int]) -> Any:
    return {"allOf": [part, {"properties": {"text": lengths}}]}


def _said(wanted: dict[str, re.Pattern[str]], told: str, counted: list[str]) -> dict[str, int]:
    """By the name of each limit what a comment says, of those that it says."""
    found = {name: limit for name, pattern in wanted.items() if (limit := pattern.search(told))}
    counted += [limit[0] for limit in found.values()]
    return {name: _number(limit) for name, limit in found.items()}


def _number(limit: re.Match[str]) -> int:
    return int(next(group for group in limit.groups() if group).replace(",", ""))


if __name__ == "__main__":
    counted: list[str] = []
    json.dump(limited(json.load(sys.stdin), counted), sys.stdout, separators=(",", ":"))
    print(f"{len(counted)} limits", file=sys.stderr)
