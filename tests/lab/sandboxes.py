"""What a kubelet remembers of a pod on its node, and what it shows of a container that runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from tests.lab.api import now
from tests.lab.apps import App, Container, Problem


@dataclass
class Sandbox:
    """One pod on its node."""

    phase: str = "new"
    again: datetime | None = None
    ends: datetime | None = None  # when it has slept before its end
    end_again: datetime | None = None  # its end was refused
    started: datetime | None = None
    restarts: Counter[int] = field(default_factory=Counter)  # of each of its containers
    well: bool = False
    since: datetime | None = None  # when its problem began; what shows does so a lag later
    problem: Problem | None = None  # the one that shows
    is_beside: bool = False  # it is of a container beside the first
    config: dict[str, str] = field(default_factory=dict)
    secret: dict[str, str] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    said: str = ""  # what its status says last
    pool: str = ""  # how its address begins

    @property
    def age(self) -> float:
        """Seconds since its containers were started; 0 before."""
        return (now() - self.started).total_seconds() if self.started else 0.0


@dataclass(frozen=True)
class Running:
    """The first container of a pod, as those see it who call it: ``problem`` is what its kubelet has found.

    Where that ``is_beside``, it is of a proxy there, past which nobody gets to the first container.
    """

    container: Container
    app: App
    started: datetime
    problem: Problem | None = None
    is_beside: bool = False
