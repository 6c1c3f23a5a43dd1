"""How a change is undone, as it is told; and what is known that bears on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.core.model import Change, Object, ObjectState, Resource

TRIED = "Try it first: the API server checks it, and nothing is changed"
SIMULATED = "Try it first: Helm does nothing, and says only whether it knows that release"
DONE = "Undo it"
PLACED = "See where the commands act: this must be"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of undoing: what it is for, and the command for a shell; "" where it is no command."""

    purpose: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Caution:
    """What to mind, in a sentence; ``change_id`` is the change it speaks of, "" for none."""

    text: str
    change_id: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """``command`` for a shell, and ``dry_run``, the same made harmless; "" where there is none.

    ``before`` is what must be done first, or else the undoing does not hold; ``after`` is what remains to be done.
    ``cluster`` is where: commands do not say it, and act wherever a shell last pointed.
    """

    command: str
    cautions: tuple[Caution, ...] = ()
    dry_run: str = ""
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    cluster: str = ""

    @property
    def place(self) -> Step:
        """How it is seen that the commands act on this cluster: argocd has contexts of its own."""
        if self.command.startswith("argocd "):
            return Step(f"{PLACED} the Argo CD of the cluster {self.cluster}", "argocd context")
        return Step(f"{PLACED} the cluster {self.cluster}", "kubectl config current-context")

    @property
    def placed(self) -> str:
        """The same in a line, for where the command stands without its steps."""
        return f"in the cluster {self.cluster} (see first: {self.place.command})"

    @property
    def warning(self) -> str:
        """What to mind, as one text; "" for nothing."""
        return " ".join(caution.text for caution in self.cautions)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All that is to be done, in order."""
        tried = SIMULATED if self.command.startswith("helm ") else TRIED
        own = ((tried, self.dry_run), (DONE, self.command))
        placed = (self.place,) if self.command else ()
        return (*placed, *self.before, *(Step(purpose, command) for purpose, command in own if command), *self.after)


@dataclass(frozen=True, slots=True)
class Definition:
    """The CustomResourceDefinition of a kind, right before a change of such an object and now.

    ``name`` is its own, PLURAL.GROUP; ``then`` is None where that is not known, ``now`` where the definition is gone.
    """

    kind: str
    name: str
    then: Object | None
    now: Object | None


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored that bears on undoing a change; of what is left out nothing is known.

    ``last`` is the object's last known state, ``since`` what was written to it after the change, the oldest first;
    ``is_cut``: there is more of that, and older. ``revisions`` are the ReplicaSets of a workload that are there;
    ``others`` are objects that were asked for by name (``revert.bearing``).
    """

    last: ObjectState | None = None
    since: tuple[Change, ...] = ()
    is_cut: bool = False
    revisions: tuple[ObjectState, ...] = ()
    definition: Definition | None = None
    others: Mapping[Resource, ObjectState] = field(default_factory=dict)

    @property
    def state(self) -> Object | None:
        """The object as it is now; None where it is gone or not known."""
        return self.last.state if self.last is not None and self.last.deleted_at is None else None


NOTHING = Known()
