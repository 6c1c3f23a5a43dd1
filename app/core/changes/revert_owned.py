"""An object that is made again, and its owners: what refers to owners of which none is there is collected at once.

An owner is told by its uid, and is in the same namespace or in none:
https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents
"""

from __future__ import annotations

from collections.abc import Iterator

from app.core.changes.recipe import Known
from app.core.model import Change, Json, Object, Resource, Verb


def owners(change: Change) -> tuple[Resource, ...]:
    """What the owners of an object that was deleted may be; nothing for other changes."""
    old = change.diffs[0].old if change.verb is Verb.DELETE and change.diffs else None
    return tuple(place for one in _references(old) for place in _places(change.resource, one))


def without_gone(whole: Object, resource: Resource, known: Known) -> tuple[Object, str]:
    """An object without its references to owners that are gone, and what to mind of that; "" for nothing."""
    kept: list[Json] = []
    gone: list[str] = []
    unknown: list[str] = []
    for one in _references(whole):
        named = f"{one.get('kind')} {one.get('name')}"
        found = [known.others[place] for place in _places(resource, one) if place in known.others]
        if any(state.deleted_at is None and state.uid == one.get("uid") for state in found):
            kept.append(one)
        elif any(state.uid for state in found):
            gone.append(named)
        else:
            kept.append(one)
            unknown.append(named)
    said: list[str] = []
    if gone:
        said.append(f"Its owner {' and '.join(gone)} is gone: it is made without, or it would be collected at once.")
    if unknown:
        said.append(f"Its owner {' and '.join(unknown)} is not known here: if that is gone, it is collected at once.")
    metadata = whole.get("metadata")
    if gone and isinstance(metadata, dict):
        others = {name: value for name, value in metadata.items() if name != "ownerReferences"}
        whole = {**whole, "metadata": {**others, "ownerReferences": kept} if kept else others}
    return whole, " ".join(said)


def _references(state: Json) -> list[Object]:
    metadata = state.get("metadata") if isinstance(state, dict) else None
    found = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _places(resource: Resource, reference: Object) -> Iterator[Resource]:
    """Where the owner may be that an object refers to."""
    group, kind, name = (str(reference.get(field) or "") for field in ("apiVersion", "kind", "name"))
    for namespace in dict.fromkeys((resource.namespace, None)):
        yield Resource(resource.cluster, group.rpartition("/")[0], kind, namespace, name)
