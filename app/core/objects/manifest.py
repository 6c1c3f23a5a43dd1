"""An object's stored state -> a manifest that kubectl takes, and what a person must know before it does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.core.model import Json, Object, Path, Resource, path_text
from app.core.objects import api_versions
from app.core.objects.redact_rules import TAG
from app.core.phrases import many

UNKNOWN_VERSION = "VERSION"
"""Stands in the place of a version that is not known: the API server refuses it."""
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class Manifest:
    """``object`` as kubectl takes it; ``notes`` say, a line each, what it is and what it lacks."""

    object: Object
    notes: tuple[str, ...]


def manifest(resource: Resource, state: Object, *, version: str, notes: tuple[str, ...] = ()) -> Manifest:
    """The manifest of an object in a state as it is stored: normalised and redacted.

    ``version`` is that of its API ("" where nobody knows), ``notes`` are told first.
    """
    named: Object = {"name": resource.name}
    if resource.namespace:
        named["namespace"] = resource.namespace
    metadata = state.get("metadata")
    whole: Object = {
        "apiVersion": version or api_versions.whole(resource.api_group, UNKNOWN_VERSION),
        "kind": resource.kind,
        "metadata": named | (metadata if isinstance(metadata, dict) else {}),
    }
    whole |= {field: value for field, value in state.items() if field not in whole}
    whole = as_asked(whole)
    return Manifest(whole, (*notes, *_lacks(whole, version)))


def as_asked(whole: Object) -> Object:
    """An object without its status, without what the API server makes of its kind, and takes from nobody: the selector
    of a Job, which names its uid
    (https://kubernetes.io/docs/concepts/workloads/controllers/job/#specifying-your-own-pod-selector); and without what
    would begin another sync of an Application."""
    once = {"status", "operation"} if whole.get("kind") == "Application" else {"status"}
    whole = {field: value for field, value in whole.items() if field not in once}
    spec = whole.get("spec")
    if whole.get("kind") != "Job" or not isinstance(spec, dict) or spec.get("manualSelector") is True:
        return whole
    return {**whole, "spec": {field: value for field, value in spec.items() if field != "selector"}}


def file_name(resource: Resource, which: str) -> str:
    """``web.deployment.before.yaml``: what a download is called."""
    parts = (_NO_FILE_NAME.sub("-", part).strip("-.") for part in (resource.name, resource.kind.lower()))
    return ".".join(filter(None, (*parts, which, "yaml")))


def _lacks(whole: Object, version: str) -> Iterator[str]:
    yield "Without status and what the server adds itself."
    if not version:
        yield f"Which version its API has is not known here: put it in the place of {UNKNOWN_VERSION}."
    hidden = [path_text(path) for path in redacted(whole)]
    if hidden:
        yield f"NOT WHOLE: {many(len(hidden), 'value')} kept secret here. Before you apply it, put in what belongs at:"
        yield from (f"  {path}" for path in hidden)


def redacted(json: Json, path: Path = ()) -> Iterator[Path]:
    """The paths of what is not told for being secret, in whole or in part. Items of lists by their name or place."""
    if isinstance(json, str):
        if TAG.search(json):
            yield path
    elif isinstance(json, dict):
        for key, value in json.items():
            own = f"[{key}]" if TAG.search(key) else key
            yield from redacted(value, (*path, own))
    elif isinstance(json, list):
        for place, item in enumerate(json):
            name = item.get("name") if isinstance(item, dict) else None
            yield from redacted(item, (*path, (("name", name),) if isinstance(name, str) else place))
