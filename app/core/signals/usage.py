"""Who took what a node ran out of: the kubelet says, of each pod that it evicts, how much that one used.

Those that used little are evicted for what others took. Its words: pkg/kubelet/eviction/helpers.go of Kubernetes, since
1.28 "Container app was using 5213936Ki, request is 0, has larger consumption of memory", before "which exceeds its
request of 0".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from app.core.entities import Entity
from app.core.model import Symptom
from app.core.objects.normalise import amount_of

_USED = re.compile(r"Container \S+ was using (\w+), (?:request is|which exceeds its request of) (\w+)[,.]")
_THRESHOLD = re.compile(r"Threshold quantity: (\w+), available: \w+")
_A_LITTLE = 0.1
"""What evicted pods used together of a node's threshold, at most, for others to have taken what it ran out of."""
_OF_EACH = re.compile(r"(?:Threshold quantity: \S+, available: \S+ )?Container \S+ was using .*")


def tolls(symptoms: Sequence[Symptom]) -> list[float]:
    """How much of a complaint each of these is: by what evicted pods used beyond what they asked for, in bytes, where
    that is said of any; else by how often it was told."""
    used = [_used(symptom.message) if symptom.reason == "Evicted" else 0.0 for symptom in symptoms]
    return used if any(used) else [float(symptom.count) for symptom in symptoms]


def took_most(symptoms: Sequence[Symptom], took: Mapping[Entity, float]) -> dict[str, str]:
    """The workload that used over half of what was used, "took_most": "namespace/name"; nothing where none did."""
    most, toll = max(took.items(), key=lambda item: item[1])
    used = any(_used(symptom.message) for symptom in symptoms if symptom.reason == "Evicted")
    return {"took_most": "/".join(most[1:])} if used and most[0] == "workload" and toll > sum(took.values()) / 2 else {}


def others_took(symptoms: Sequence[Symptom]) -> bool:
    """Whether evicted pods used next to nothing of what their nodes ran out of: who took it was not put out."""
    evicted = [symptom.message for symptom in symptoms if symptom.reason == "Evicted"]
    thresholds = [amount_of(found[1]) or 0 for message in evicted if (found := _THRESHOLD.search(message))]
    return bool(thresholds) and sum(map(_used, evicted)) < _A_LITTLE * float(min(thresholds))


def shares(evicted: Sequence[Sequence[Symptom]]) -> list[float]:
    """What is left of the weight of each workload's evictions: who used little went for what others took."""
    used = [sum(_used(symptom.message) for symptom in own if symptom.reason == "Evicted") for own in evicted]
    most = max(used, default=0.0)
    return [max(_A_LITTLE, one / most) if most else 1.0 for one in used]


def without_use(message: str) -> str:
    """The message without what differs from pod to pod of one node."""
    return _OF_EACH.sub("", message)


def _used(message: str) -> float:
    amounts = ((amount_of(used) or 0, amount_of(asked) or 0) for used, asked in _USED.findall(message))
    return sum(max(0.0, float(used - asked)) for used, asked in amounts)
