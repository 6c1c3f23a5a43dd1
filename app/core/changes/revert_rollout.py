"""Whether ``kubectl rollout undo``, or that of Argo's plugin, goes back to the template before a change.

It goes to the revision before the newest one. A Deployment or an Argo Rollout keeps them in ReplicaSets, the others in
ControllerRevisions, as many as ``spec.revisionHistoryLimit`` says; of a Deployment that is paused it is refused.
https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#rolling-back-a-deployment .
Their numbers are not stored, so that ``--to-revision`` is never known.
"""

from __future__ import annotations

from app.core.changes.recipe import Known
from app.core.changes.revert_since import overlapping
from app.core.model import Change
from app.core.objects.owners import spec_of
from app.core.objects.revisions import TEMPLATE, lacking, revisions


def why_not(change: Change, known: Known) -> str:
    """Why going back a revision would not undo a change of the template; "" where it would, as far as is known."""
    spec = spec_of(known.state)
    if any(overlapping(one, {TEMPLATE}) for one in known.since):
        return "A newer template was rolled out since, so that rollout undo would go back to another one."
    if spec.get("revisionHistoryLimit") == 0:
        return "It keeps no revisions (revisionHistoryLimit: 0), so that rollout undo has nothing to go back to."
    if spec.get("paused") is True and change.resource.api_group == "apps":
        return "It is paused, which rollout undo refuses."
    if known.revisions and not lacking(change, revisions(known.revisions)):
        return "No ReplicaSet with the template before is there any more, so that rollout undo cannot go back to it."
    return ""
