"""What a write asked for, where the log has no whole object of it, or none to compare with."""

from __future__ import annotations

from msgspec import structs

from app.core.changes import made
from app.core.changes.patches import patch_diffs, with_removals
from app.core.changes.sightings import Sighting
from app.core.model import Change, DiffSource, Json, Object
from app.core.objects import kinds
from app.core.objects.body import Body, read_body
from app.core.objects.normalise import normalise
from app.core.objects.redact import Redactor, decode


class Requests:
    """Reads the bodies of requests, without their secrets."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def read(self, sighting: Sighting) -> Json:
        """The patch, or the object, that was sent; None where none was recorded, or none that can be read."""
        raw = sighting.patch
        if raw is None and sighting.body is not None and read_body(sighting.body) is not None:
            raw = sighting.body
        if raw is None:
            return None
        try:
            decoded = decode(raw)
        except ValueError:
            return None
        resource = sighting.resource
        redacted = self._redactor.patch(resource.api_group, kinds.plural_of(resource.api_group, resource.kind), decoded)
        if isinstance(redacted, dict):
            normal = normalise(redacted, resource.api_group, kind=resource.kind)
            return normal if "kind" in redacted else with_removals(normal, redacted)
        return redacted if isinstance(redacted, list) else None

    def as_diff(self, sighting: Sighting, body: Body, *, new: Object | None) -> Change | None:
        """The request is the diff. None where there is no patch, or it touches nothing that is desired state."""
        patch = self.read(sighting) if sighting.patch is not None else None
        found = patch_diffs(patch, None) if patch else ()
        if not found or (all(part.op != "remove" for part in found) and body.untouched_at(sighting.at)):
            return None
        return structs.replace(made.update(sighting, body, found, old=None, new=new), diff_source=DiffSource.PATCH)
