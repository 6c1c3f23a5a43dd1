"""The manifest of an object right before or after a change, as YAML to download or to print."""

from __future__ import annotations

from enum import StrEnum
from textwrap import wrap
from typing import Any

import yaml
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.changes.report import tame
from app.core.model import Change
from app.core.objects import kinds
from app.core.objects.manifest import Manifest, manifest
from app.store import undoing

WIDTH = 100
"""Columns of comments; values are never folded."""


class Which(StrEnum):
    """The side of a change."""

    BEFORE = "before"
    AFTER = "after"


class NoManifestError(Exception):
    """There is no manifest of that side; the message says why."""


async def read_manifest(conn: AsyncConnection, change: Change, which: Which) -> str:
    """The object on one side of a change, as YAML with comments. Raises NoManifestError."""
    resource = change.resource
    if teller := kinds.told_by(resource.api_group):
        raise NoManifestError(f"Kubernetes does not know it: {teller} told of it, which keeps it")
    found = await undoing.read_sides(conn, change)
    if found is None:
        raise NoManifestError(f"it was written more than {undoing.MOST_UNDONE} times since, which are too many to undo")
    side = found[0] if which is Which.BEFORE else found[1]
    if not side.known:
        raise NoManifestError(
            f"what {resource} held right {which} this change was not recorded: it is known back to a write of which no"
            " whole body was told"
        )
    if not isinstance(side.state, dict):
        raise NoManifestError(f"{resource} was not there right {which} this change")
    version, is_served = await undoing.read_version(conn, change)
    when = f"change {change.id} of {change.at:%Y-%m-%d %H:%M:%S} UTC"
    notes = [f"{resource} of cluster {resource.cluster}, right {which} {when}."]
    if not is_served:
        notes.append(f"The version {version} is not served any more: the object must be brought to one that is.")
    return as_yaml(manifest(resource, side.state, version=version, notes=tuple(notes)))


def as_yaml(found: Manifest) -> str:
    """A manifest with its notes as comments before it."""
    comments = [f"# {line}" for note in found.notes for line in wrap(tame(note), WIDTH, subsequent_indent="  ")]
    text = yaml.dump(found.object, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9)
    return "\n".join([*comments, text])


class _Dumper(yaml.SafeDumper):
    """YAML as people write manifests, and as the parser of kubectl reads it."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Several lines as a block. In quotes what kubectl's parser takes for a number or a truth (``1e3``, ``y``), and
    PyYAML, which follows YAML 1.1 to the letter, does not."""
    style: Any = None
    if "\n" in text:
        style = "|"
    elif text[:1] in "0123456789+-." or text.lower() in {"y", "n"}:
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
