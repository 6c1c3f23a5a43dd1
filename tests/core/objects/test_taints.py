"""Taints of Nodes: which of them lead to pods that find no node."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.model import Change, Json, Object
from app.core.objects.diff import diff
from app.core.objects.taints import is_other_taint, refusing
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

GPU: Json = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
EVICTS: Json = {"key": "dedicated", "value": "gpu", "effect": "NoExecute"}
SOFT: Json = {"key": "dedicated", "value": "gpu", "effect": "PreferNoSchedule"}
WAVE: Json = {"key": "airvela.example/migration", "value": "wave2", "effect": "NoSchedule"}
SAID = (
    "0/12 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: },"
    " 3 Insufficient cpu, 8 node(s) had untolerated taint {dedicated: gpu}."
    " preemption: 0/12 nodes are available: 3 No preemption victims found for incoming pod,"
    " 9 Preemption is not helpful for scheduling."
)
SAID_BEFORE = "0/12 nodes are available: 12 node(s) had taint {dedicated: gpu}, that the pod didn't tolerate."
UNNAMED = "0/12 nodes are available: 4 Insufficient cpu, 8 node(s) had untolerated taint(s)."


def retainted(old: list[Json], new: list[Json], *, at: float = -20) -> Change:
    """An update of a node's taints, with the diffs that are made of it; as those of none, the list is left out."""
    was, now = ({"taints": taints} if taints else {} for taints in (old, new))
    before: Object = {"spec": dict(was)}
    then: Object = {"spec": dict(now)}
    return replace(a_change(a_resource("Node", "node-7", None), at=after(at)), diffs=diff(before, then))


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ([], [GPU], {"dedicated"}),
        ([], [SOFT], set()),
        ([WAVE], [WAVE, EVICTS], {"dedicated"}),
        ([WAVE], [WAVE, SOFT], set()),
        ([GPU], [], set()),
        ([GPU, WAVE], [WAVE], set()),
        ([GPU], [SOFT], set()),
        ([SOFT], [GPU], {"dedicated"}),
        ([GPU], [{**GPU, "value": "batch"}], {"dedicated"}),  # type: ignore[dict-item]
        ([SOFT], [{**SOFT, "value": "batch"}], set()),  # type: ignore[dict-item]
    ],
)
def test_only_taints_that_refuse_lead_to_pods_that_find_no_node(
    old: list[Json], new: list[Json], keys: set[str]
) -> None:
    change = retainted(old, new)
    assert refusing(change) == keys
    assert (("scheduling",) in reach(change, topology([]))) is bool(keys)


def test_what_else_is_done_to_a_node_may_keep_pods_out() -> None:
    node = a_resource("Node", "node-7", None)
    label = a_change(node, path=("metadata", "labels", "pool"), old="web", new="gpu")
    both = replace(label, diffs=(*label.diffs, *retainted([GPU], []).diffs))
    for change in (label, both):
        assert refusing(change) is None
        assert ("scheduling",) in reach(change, topology([]))


@pytest.mark.parametrize(
    ("new", "said", "is_other"),
    [
        (GPU, SAID, False),
        (GPU, SAID_BEFORE, False),
        (GPU, UNNAMED, False),
        (WAVE, SAID, True),
        (WAVE, SAID_BEFORE, True),
        (WAVE, UNNAMED, False),
        (SOFT, SAID, True),
        (SOFT, UNNAMED, True),
    ],
)
def test_messages_say_which_taint_keeps_pods_out(new: Json, said: str, is_other: bool) -> None:
    assert is_other_taint(retainted([], [new]), "FailedScheduling", said) is is_other
    assert not is_other_taint(retainted([], [new]), "NodeNotReady", said)


WEBS = [a_resource("Deployment", f"web-{n}", team) for n, team in enumerate(("shop", "media", "search"))]


def told(*changes: Change, said: str = SAID) -> list[tuple[str, float]]:
    """Who is ranked how, as odds against "none of these", where pods of three teams find no node."""
    ranking = ranked(
        *changes,
        incident=an_incident(an_alert(after(40), name="KubePodsPending")),
        symptoms=[a_symptom(web, "FailedScheduling", at=after(-12), message=said, count=8) for web in WEBS],
        states=[a_workload(web) for web in WEBS],
    )
    return [(one.change.resource.kind, one.probability / ranking.none_of_these) for one in ranking.suspects]


@pytest.mark.parametrize(
    ("old", "new"),
    [([], [WAVE]), ([], [SOFT]), ([GPU], []), ([GPU], [SOFT])],
    ids=["other key", "soft", "removed", "softened"],
)
def test_a_taint_that_keeps_nobody_out_is_not_to_blame(old: list[Json], new: list[Json]) -> None:
    (kind, odds), *_ = told(retainted([], [GPU]))
    assert kind == "Node"
    assert odds > 4
    others = dict(told(retainted(old, new)))
    assert others.get("Node", 0.0) < min(1.0, odds / 4)
