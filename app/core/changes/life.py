"""What an object's status tells beside its desired state: rollouts of workloads, and what hurts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec import structs

from app.core.changes.recent import Recent
from app.core.changes.rollouts import KINDS as ROLLED_OUT
from app.core.changes.rollouts import Rollouts
from app.core.changes.sightings import Learned, Sighting
from app.core.changes.symptoms import Symptoms
from app.core.edges.references import is_custom
from app.core.model import Json, Resource, Rollout, Symptom, Verb
from app.core.objects.body import Shown
from app.core.objects.redact import Redactor


class Life:
    """The rollouts and symptoms of one cluster."""

    def __init__(self, recent: Recent, workload_of: Callable[[Resource], Resource | None], redactor: Redactor) -> None:
        self._recent = recent
        self._rollouts = Rollouts(redactor.fingerprint, clean=redactor.text)
        self._symptoms = Symptoms(workload_of, redactor.text)

    def recall(self, last: Iterable[Rollout]) -> None:
        """The last rollout of each workload, as an earlier run left it."""
        self._rollouts.recall(last)

    def recall_symptoms(self, lately: Iterable[Symptom]) -> None:
        """What hurt when an earlier run ended."""
        self._symptoms.recall(lately)

    def event(self, sighting: Sighting) -> Learned:
        """What an Event object tells."""
        body = sighting.body or b""
        return Learned(
            symptoms=self._symptoms.event(sighting.resource.cluster, body, at=sighting.at, told=_told(sighting))
        )

    def moved(
        self, sighting: Sighting, body: Shown, learned: Learned, *, spec_known: Callable[[], Json] = lambda: None
    ) -> Learned:
        """``learned`` with what this newer version of an object tells of its life; ``spec_known`` is asked
        where the version does not say its spec."""
        resource = sighting.resource
        if (resource.api_group, resource.kind) in ROLLED_OUT:
            own = [one for one in learned.changes if one.resource == resource]
            made = next((one.id for one in own if one.verb is Verb.CREATE), None)
            rolled = self._rollouts.observe(
                resource,
                body,
                at=sighting.at,
                created=sighting.verb is Verb.CREATE or made is not None,
                begun_by=lambda: made or self._began(resource, sighting.at),
                spec_known=spec_known,
                since=next((one.since for one in own if one.since), None),
            )
            return structs.replace(learned, rollouts=rolled) if rolled else learned
        if resource.kind == "Pod" and resource.api_group == "":
            if sighting.source == "watch":
                self._symptoms.await_node(resource, body)
            found = self._symptoms.pod(resource, body, at=sighting.at, told=_told(sighting))
            if sighting.source == "watch" or sighting.subresource == "status":
                self._symptoms.await_status(resource)
        elif resource.kind == "Node" and resource.api_group == "":
            found = self._symptoms.node(resource, body, at=sighting.at, told=_told(sighting))
        elif is_custom(resource) or resource.kind in ("APIService", "Namespace"):
            found = self._symptoms.conditions(resource, body, at=sighting.at, told=_told(sighting))
        else:
            return learned
        return structs.replace(learned, symptoms=found) if found else learned

    def _began(self, resource: Resource, at: datetime) -> str | None:
        """The change that began a rollout: that of the workload whose template its own has, or its own."""
        other = self._rollouts.template_of(resource)
        return (self._recent.began_rollout(other, at) if other else None) or self._recent.began_rollout(resource, at)

    def ended(self, resource: Resource, at: datetime) -> Learned:
        """The object is gone: what was under way, or hurt, has ended."""
        return Learned(rollouts=self._rollouts.forget(resource, at), symptoms=self._symptoms.forget(resource, at))

    def overdue(self, learned: Learned, at: datetime) -> Learned:
        """``learned`` with the symptoms that only the passing of time shows."""
        found = self._symptoms.overdue(at)
        return structs.replace(learned, symptoms=(*learned.symptoms, *found)) if found else learned


def _told(sighting: Sighting) -> datetime | None:
    """When the API server had been told for sure of what a sighting shows. A clock of whole seconds is up to one too
    early, and what was changed within that second would seem to come after what it caused: better not to know."""
    return sighting.at if sighting.at.microsecond and not sighting.rounded else None
