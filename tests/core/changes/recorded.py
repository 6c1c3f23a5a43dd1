"""What a real controller of Argo Rollouts did, as a watch told it: see argo/README.md."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from app.core.changes.sightings import Sighting
from app.core.model import Resource, Verb

FOLDER = Path(__file__).with_name("argo")
STORIES = tuple(sorted(one.stem for one in FOLDER.glob("*.jsonl")))
_VERBS = {"ADDED": Verb.CREATE, "MODIFIED": Verb.UPDATE, "DELETED": Verb.DELETE}


class Did(NamedTuple):
    """What somebody did to the Rollout, or to what it refers to."""

    at: datetime
    what: str


def recorded(name: str) -> Iterator[Did | Sighting]:
    """One story in its order."""
    whole: dict[str, Any] = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    resource = Resource("lab", "argoproj.io", "Rollout", "default", name)
    for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines():
        told = orjson.loads(line)
        at = datetime.fromisoformat(told["at"])
        if did := told.get("did"):
            yield Did(at, did)
            continue
        whole = _merged(whole, {**told.get("patch", {}), "kind": "Rollout"})
        meta = {**whole["metadata"], "resourceVersion": told["resourceVersion"]}
        body = orjson.dumps({**whole, "metadata": meta})
        yield Sighting(
            resource, at, "watch", _VERBS[told["type"]], body, uid=meta["uid"], resource_version=meta["resourceVersion"]
        )


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _merged(out.get(key), value)
    return out
