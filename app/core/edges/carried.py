"""Which pods do not have a change in them: a rollout's older revisions, and who started before what pods start with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from app.core.edges.topology import Topology, read_at_start, readers
from app.core.model import Change, Verb
from app.core.objects.dependencies import Named
from app.core.objects.revisions import lacking


def without(change: Change, topology: Topology) -> frozenset[Named]:
    """The revisions, and the pods, that do not have it in them.

    A pod that was last told of before an update of what it reads as it starts runs with what was there before, but
    where its container was started again since.
    """
    if change.verb is not Verb.UPDATE:
        return frozenset()
    late = (pod for pod, told in _starting_with(change, topology) if told < change.at)
    return lacking(change, topology.revisions).union(late)


def nobody_has(change: Change, absent: frozenset[Named], topology: Topology) -> bool:
    """Whether all who say to read what is changed do so as they start, and none has started since. ``absent`` are the
    pods without it."""
    pods = {pod for pod, _ in _starting_with(change, topology)}
    if not pods or not pods <= absent:
        return False
    return readers(change.resource, topology, told=True) == read_at_start(change.resource, topology)


def _starting_with(change: Change, topology: Topology) -> Iterator[tuple[Named, datetime]]:
    """The pods that read the changed ConfigMap or Secret as they start, and not again; and when each was told last."""
    for home in read_at_start(change.resource, topology):
        yield from topology.pods.get(home, ())
