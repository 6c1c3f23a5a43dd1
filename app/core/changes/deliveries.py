"""What Argo CD and Flux keep of their deliveries in the status of their own objects -> changes of those.

Fields are those of the projects' CRDs: argoproj.io/v1alpha1 Application (status.history, the last 10, and
operationState), helm.toolkit.fluxcd.io/v2 HelmRelease (status.history), kustomize.toolkit.fluxcd.io/v1 Kustomization
(status.history, since Flux 2.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise

import msgspec
from msgspec import Struct

from app.core.changes import summaries
from app.core.changes.made import key_of
from app.core.changes.past import HISTORY, Remembering
from app.core.model import NOBODY, Actor, Change, DiffSource, FieldDiff, Path, Verb


class _Who(Struct, gc=False):
    username: str = ""
    automated: bool = False


class _Sync(Struct, gc=False):
    revision: str = ""
    revisions: list[str] | None = None


class _Operation(Struct, gc=False):
    sync: _Sync | None = None
    initiatedBy: _Who | None = None  # noqa: N815


class _OperationState(Struct, gc=False):
    phase: str = ""
    startedAt: datetime | None = None  # noqa: N815 - the wire's names
    operation: _Operation | None = None


class _Deployed(Struct, gc=False):
    revision: str = ""
    revisions: list[str] | None = None
    deployedAt: datetime | None = None  # noqa: N815
    deployStartedAt: datetime | None = None  # noqa: N815
    initiatedBy: _Who | None = None  # noqa: N815


class _Application(Struct, gc=False):
    history: list[_Deployed] | None = None
    operationState: _OperationState | None = None  # noqa: N815


class _Reconciled(Struct, gc=False):
    """Of a HelmRelease, or of a Kustomization."""

    version: int = 0
    chartName: str = ""  # noqa: N815
    chartVersion: str = ""  # noqa: N815
    configDigest: str = ""  # noqa: N815
    lastDeployed: datetime | None = None  # noqa: N815
    firstReconciled: datetime | None = None  # noqa: N815
    metadata: dict[str, str] | None = None


class _Flux(Struct, gc=False):
    history: list[_Reconciled] | None = None


class Delivery(Struct, frozen=True):
    """One delivery: what was delivered from when on, and for whom."""

    at: datetime
    what: str
    who: Actor = NOBODY


_application = msgspec.json.Decoder(_Application)
_flux = msgspec.json.Decoder(_Flux)


def deliveries(one: Remembering, status: bytes, text: Callable[[str], str]) -> Iterator[Change]:
    """The deliveries that an object's raw status tells of; of the oldest it keeps nobody knows what it replaced.

    ``text`` redacts. Raises msgspec.MsgspecError on a status of another form.
    """
    found = _READ.get((one.resource.api_group, one.resource.kind))
    if found is None or not status:
        return
    path, read = found
    told = (Delivery(delivery.at, text(delivery.what), delivery.who) for delivery in read(status))
    kept = sorted(told, key=lambda delivery: delivery.at)
    for before, after in pairwise([None, *kept]):
        if after is not None and (before is None or before.what != after.what):
            yield _change(one, path, before, after)


def _change(one: Remembering, path: Path, before: Delivery | None, after: Delivery) -> Change:
    found = (FieldDiff(path, "replace" if before else "add", before.what if before else None, after.what),)
    said = summaries.summary(one.resource, Verb.UPDATE, found, old=None, new=None)
    return Change(
        one.resource, after.at, Verb.UPDATE, key_of(one.resource, one.uid, f"delivery {after.at.isoformat()}"),
        after.who, one.uid, diffs=found, diff_source=DiffSource.PATCH, summary=said, sources=frozenset({HISTORY}),
        found_in=one.found_in("status"),
    )  # fmt: skip


def _argo(status: bytes) -> Iterator[Delivery]:
    found = _application.decode(status)
    started = set()
    for one in found.history or ():
        at = one.deployStartedAt or one.deployedAt
        if at is not None:
            started.add(at)
            yield Delivery(at, one.revision or ", ".join(one.revisions or ()), _who(one.initiatedBy))
    last = found.operationState
    if last and last.startedAt and last.startedAt not in started and last.phase != "Succeeded":
        sync = last.operation.sync if last.operation else None
        if sync is not None and last.operation is not None:
            what = sync.revision or ", ".join(sync.revisions or ())
            yield Delivery(last.startedAt, f"{what} ({last.phase})", _who(last.operation.initiatedBy))


def _who(who: _Who | None) -> Actor:
    return Actor(who.username) if who and who.username else NOBODY


def _helm(status: bytes) -> Iterator[Delivery]:
    for one in _flux.decode(status).history or ():
        if one.lastDeployed is not None:
            digest = one.configDigest.rpartition(":")[2][:8]
            yield Delivery(one.lastDeployed, f"{one.chartName} {one.chartVersion}, values {digest}")


def _kustomized(status: bytes) -> Iterator[Delivery]:
    for one in _flux.decode(status).history or ():
        if one.firstReconciled is not None:
            yield Delivery(one.firstReconciled, (one.metadata or {}).get("revision", ""))


_READ: dict[tuple[str, str], tuple[Path, Callable[[bytes], Iterator[Delivery]]]] = {
    ("argoproj.io", "Application"): (("status", "sync", "revision"), _argo),
    ("helm.toolkit.fluxcd.io", "HelmRelease"): (("status", "release"), _helm),
    ("kustomize.toolkit.fluxcd.io", "Kustomization"): (("status", "lastAppliedRevision"), _kustomized),
}
