"""The parts of workloads that tell how they roll out, as the API sends them. Only what is read is named."""

from __future__ import annotations

from datetime import datetime

import msgspec


class RawCondition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    lastTransitionTime: datetime | None = None  # noqa: N815 - the wire's name
    lastUpdateTime: datetime | None = None  # noqa: N815


class RawStatus(msgspec.Struct, gc=False):
    """The statuses of apps/v1 workloads, as one."""

    observedGeneration: int = 0  # noqa: N815
    replicas: int = 0
    updatedReplicas: int = 0  # noqa: N815
    availableReplicas: int = 0  # noqa: N815
    currentReplicas: int = 0  # noqa: N815
    currentRevision: str = ""  # noqa: N815
    updateRevision: str = ""  # noqa: N815
    desiredNumberScheduled: int = 0  # noqa: N815
    currentNumberScheduled: int = 0  # noqa: N815
    updatedNumberScheduled: int = 0  # noqa: N815
    numberAvailable: int = 0  # noqa: N815
    conditions: list[RawCondition] | None = None


class RawContainer(msgspec.Struct, gc=False):
    image: str = ""


class RawPodSpec(msgspec.Struct, gc=False):
    containers: list[RawContainer] | None = None
    initContainers: list[RawContainer] | None = None  # noqa: N815


class RawTemplate(msgspec.Struct, gc=False):
    spec: RawPodSpec | None = None


class RawRollingUpdate(msgspec.Struct, gc=False):
    partition: int = 0


class RawUpdateStrategy(msgspec.Struct, gc=False):
    type: str = ""
    rollingUpdate: RawRollingUpdate | None = None  # noqa: N815


class RawSpec(msgspec.Struct, gc=False):
    replicas: int = 1
    template: msgspec.Raw = msgspec.Raw()
    updateStrategy: RawUpdateStrategy | None = None  # noqa: N815
    paused: bool = False

    @property
    def held_back(self) -> int:
        """How many pods of a StatefulSet its partition keeps on the old template."""
        rolling = self.updateStrategy.rollingUpdate if self.updateStrategy else None
        return rolling.partition if rolling else 0

    @property
    def waits(self) -> bool:
        """Whether a pod gets the new template only when somebody deletes it."""
        return self.updateStrategy is not None and self.updateStrategy.type == "OnDelete"


class RawReference(msgspec.Struct, gc=False):
    """To the workload whose template a Rollout of Argo's has as its own."""

    kind: str = ""
    name: str = ""


class RawPause(msgspec.Struct, gc=False):
    duration: int | str | None = None
    """Seconds, or with a unit; None: until somebody promotes it."""


class RawStep(msgspec.Struct, gc=False):
    setWeight: int | None = None  # noqa: N815 - the wire's name
    pause: RawPause | None = None


class RawCanary(msgspec.Struct, gc=False):
    steps: list[RawStep] | None = None


class RawBlueGreen(msgspec.Struct, gc=False):
    autoPromotionEnabled: bool | None = None  # noqa: N815
    autoPromotionSeconds: int = 0  # noqa: N815


class RawStrategy(msgspec.Struct, gc=False):
    canary: RawCanary | None = None
    blueGreen: RawBlueGreen | None = None  # noqa: N815


class RawArgoSpec(RawSpec, gc=False):
    """The spec of a Rollout of Argo's: that of a Deployment, and what else is read of it."""

    strategy: RawStrategy | None = None
    workloadRef: RawReference | None = None  # noqa: N815


class RawWeight(msgspec.Struct, gc=False):
    weight: int = 0


class RawWeights(msgspec.Struct, gc=False):
    canary: RawWeight | None = None


class RawCanaryStatus(msgspec.Struct, gc=False):
    weights: RawWeights | None = None


class RawBlueGreenStatus(msgspec.Struct, gc=False):
    activeSelector: str = ""  # noqa: N815 - the wire's name


class RawPauseCondition(msgspec.Struct, gc=False):
    reason: str = ""


class RawArgoStatus(RawStatus, gc=False):
    """The status of a Rollout of Argo's. Its generations are texts: they are decoded as what these say."""

    phase: str = ""
    stableRS: str = ""  # noqa: N815
    currentPodHash: str = ""  # noqa: N815
    currentStepIndex: int | None = None  # noqa: N815
    workloadObservedGeneration: int = 0  # noqa: N815
    pauseConditions: list[RawPauseCondition] | None = None  # noqa: N815
    canary: RawCanaryStatus | None = None
    blueGreen: RawBlueGreenStatus | None = None  # noqa: N815
