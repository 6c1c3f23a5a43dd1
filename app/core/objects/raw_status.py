"""The parts of events, pods and nodes that tell what hurts, as the API sends them. Only what is read is named."""

from __future__ import annotations

from datetime import datetime

import msgspec

from app.core.objects.raw_workload import RawCondition


class RawObjectReference(msgspec.Struct, gc=False):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    apiVersion: str = ""  # noqa: N815 - the wire's name


class RawSeries(msgspec.Struct, gc=False):
    count: int = 0
    lastObservedTime: datetime | None = None  # noqa: N815


class RawEventMeta(msgspec.Struct, gc=False):
    uid: str = ""
    name: str = ""
    creationTimestamp: datetime | None = None  # noqa: N815


class RawEvent(msgspec.Struct, gc=False):
    """core/v1 and events.k8s.io/v1 events, as one."""

    metadata: RawEventMeta = msgspec.field(default_factory=RawEventMeta)
    type: str = ""
    reason: str = ""
    message: str = ""
    note: str = ""
    involvedObject: RawObjectReference | None = None  # noqa: N815
    regarding: RawObjectReference | None = None
    count: int | None = None
    deprecatedCount: int | None = None  # noqa: N815
    lastTimestamp: datetime | None = None  # noqa: N815
    deprecatedLastTimestamp: datetime | None = None  # noqa: N815
    eventTime: datetime | None = None  # noqa: N815
    series: RawSeries | None = None


class RawContainerState(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""
    exitCode: int = 0  # noqa: N815
    finishedAt: datetime | None = None  # noqa: N815


class RawStates(msgspec.Struct, gc=False):
    waiting: RawContainerState | None = None
    terminated: RawContainerState | None = None


class RawContainerStatus(msgspec.Struct, gc=False):
    name: str = ""
    state: RawStates | None = None
    lastState: RawStates | None = None  # noqa: N815


class RawPodStatus(msgspec.Struct, gc=False):
    phase: str = ""
    nominatedNodeName: str = ""  # noqa: N815
    reason: str = ""
    message: str = ""
    conditions: list[RawCondition] | None = None
    containerStatuses: list[RawContainerStatus] | None = None  # noqa: N815
    initContainerStatuses: list[RawContainerStatus] | None = None  # noqa: N815


class RawNodeStatus(msgspec.Struct, gc=False):
    conditions: list[RawCondition] | None = None
