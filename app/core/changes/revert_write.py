"""A change -> the one request to the API server that undoes it, and what came of that: for who has it applied for them.

It sets the values before, as ``kubectl patch``, ``delete`` or ``apply`` would: what takes Helm, Argo CD or an editor is
left to people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import orjson

from app.core.access import Identity
from app.core.changes import revert_since
from app.core.changes.promotions import is_asked
from app.core.changes.recipe import Known
from app.core.changes.revert_commands import HOLDS_OTHERS, is_helm_release, is_sealed, last_state, plural, version
from app.core.changes.revert_owner import holding
from app.core.changes.revert_patch import NOT_WHOLE, patch_of
from app.core.model import Change, DiffSource, FieldDiff, Object, Resource, Verb
from app.core.objects import api_versions, kinds
from app.core.objects.owners import spec_of
from app.core.objects.redact_rules import TAG

_SEGMENT = re.compile(r"[A-Za-z0-9._:~@+=,-]+")
"""What of an address is taken as it was recorded: names of some kinds may hold more
(https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#path-segment-names), but what was imported may
say anything."""


class NoWriteError(Exception):
    """No single request undoes it; the message says why, as the end of a sentence."""


class NothingLeftError(NoWriteError):
    """Nothing is left to undo, and no command does it either: its recipe says the same."""


class UndoError(Exception):
    """It was not done; the message says why. ``unsure``: it may have been, for nobody answered."""

    def __init__(self, message: str, *, unsure: bool = False) -> None:
        super().__init__(message)
        self.unsure = unsure


@dataclass(frozen=True, slots=True)
class Write:
    """One request. ``body`` is the patch of that type, or the object to create; ``uid`` is the object's, "" where that
    is not known, or it is to be made."""

    verb: Literal["patch", "create", "delete"]
    resource: Resource
    api_version: str
    plural: str
    body: Object
    patch: str = ""
    uid: str = ""

    @property
    def path(self) -> str:
        """Of the object; of all of its kind, where it is to be made."""
        root = f"/{'apis' if self.resource.api_group else 'api'}/{self.api_version}"
        inside = f"/namespaces/{self.resource.namespace}" if self.resource.namespace else ""
        return f"{root}{inside}/{self.plural}" + ("" if self.verb == "create" else f"/{self.resource.name}")

    @property
    def words(self) -> str:
        """``patch deployments.apps/web -n shop``."""
        named = f"{kinds.named(self.resource.api_group, self.plural)}/{self.resource.name}"
        return f"{self.verb} {named}" + (f" -n {self.resource.namespace}" if self.resource.namespace else "")


@dataclass(frozen=True, slots=True)
class Tried:
    """What a request alters, or did alter: ``diffs``, redacted. ``who`` is whose request it was, as the API server
    knows them; ``seen`` stands for the request and for what it alters. ``stays``: what is deleted is there until that,
    "" where it is not."""

    who: Identity
    diffs: tuple[FieldDiff, ...]
    seen: str
    stays: str = ""


def write_of(change: Change, known: Known) -> Write:
    """The request that undoes a change, by what is ``known`` of its object now. Raises NoWriteError, of
    which NothingLeftError is one."""
    resource = change.resource
    if teller := kinds.told_by(resource.api_group):
        raise NoWriteError(f"Kubernetes does not know it: it is undone where it was made, in {teller}")
    if nothing_left := revert_since.gone(change, known):
        raise NothingLeftError(nothing_left.text[:1].lower() + nothing_left.text[1:].rstrip("."))
    if is_helm_release(resource):
        raise NoWriteError("Helm undoes it, of whose releases the API server knows nothing")
    if is_asked(change):
        raise NoWriteError("Argo Rollouts is asked for the contrary, by its own command")
    if holding(change, known).command:
        raise NoWriteError("Argo CD goes back as a whole: its own command does that")
    api_version = _served(resource, known)
    all_of = plural(resource, known)
    for part in (resource.namespace or "-", resource.name, all_of, *api_version.split("/")):
        if part in {".", ".."} or not _SEGMENT.fullmatch(part):
            raise NoWriteError(f"{part!r} cannot be a part of its address")
    verb, body, patch = _request(change, known)
    if TAG.search(orjson.dumps(body).decode()):
        raise NoWriteError("a value before is secret, and is not kept here")
    there = change.uid or (known.last.uid if known.last is not None else "")
    if verb == "patch" and known.last is not None and known.last.uid not in ("", there):
        raise NoWriteError("the object was made anew since: it is another one of the same name")
    return Write(verb, resource, api_version, all_of, body, patch, "" if verb == "create" else there)


def _request(change: Change, known: Known) -> tuple[Literal["patch", "create", "delete"], Object, str]:
    if change.verb is Verb.CREATE:
        _check_deletion(change, known)
        return "delete", {}, ""
    if change.verb is Verb.DELETE:
        whole, _ = last_state(change, known)
        if whole is None:
            raise NoWriteError("what it held is not known here well enough")
        return "create", whole, ""
    return "patch", *_patch(change, known)


def _check_deletion(change: Change, known: Known) -> None:
    if told := HOLDS_OTHERS.get(change.resource.kind):
        raise NoWriteError(f"deleting it {told}: that is left to a command")
    if _takes_claims(known):
        raise NoWriteError("deleting it deletes its volume claims with it: that is left to a command")
    if not change.uid:
        raise NoWriteError("which object of this name it was is not known")


def _patch(change: Change, known: Known) -> tuple[Object, str]:
    """The patch that sets the values before, and its type."""
    if change.diff_source is not DiffSource.STATES or not change.diffs:
        raise NoWriteError("the values before it were not recorded")
    for found in change.diffs:
        if found.path[:2] in NOT_WHOLE:
            raise NoWriteError(f"of {found.path_text} not all is recorded, and what is not would go with it")
    if is_sealed(change, known):
        raise NoWriteError("it is immutable, and the API server takes no edit of what it holds")
    if lists := revert_since.unplaced(change):
        raise NoWriteError(f"where in {lists} it stood is not recorded, and the order counts")
    body, patch = patch_of(change, known)
    if body is None:
        raise NoWriteError("it altered a list, of which it is not known what else is in it now, or at which places")
    return body, patch


def _takes_claims(known: Known) -> bool:
    """Whether a StatefulSet is deleted with its volume claims
    (https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention)."""
    policy = spec_of(known.state).get("persistentVolumeClaimRetentionPolicy")
    return isinstance(policy, dict) and policy.get("whenDeleted") == "Delete"


def _served(resource: Resource, known: Known) -> str:
    """The version of its API in which the object was recorded, if it is served still."""
    found, definition = version(resource, known), known.definition
    if not found:
        raise NoWriteError("which version its API has is not known here")
    if definition is not None:
        now = api_versions.served(definition.now or {})
        if found not in [api_versions.whole(resource.api_group, one) for one in now]:
            raise NoWriteError(f"the API server serves {found} no more")
    return found
