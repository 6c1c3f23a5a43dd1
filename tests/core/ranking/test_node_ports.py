"""The ports that Services have on every node are shared by all: who takes the last is felt by whoever needs one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.findings import Ranking
from app.core.model import Actor, ActorSource, Change, Json, Object, Verb
from tests.core.company import background, first, ranked
from tests.core.factories import a_change, a_resource, a_workload, after, an_alert, an_incident, calls

KEEPER, NOTEBOOKS = (f"system:serviceaccount:{name}:{name}" for name in ("entry", "notebooks"))
FULL = "Internal error occurred: failed to allocate a nodePort: range is full"
RELEASE = a_change(a_resource("Deployment", "entry", "entry"), at=after(-30))


def a_service(number: int, diff: tuple[tuple[str | int, ...], Json, Json], *, verb: Verb = Verb.UPDATE) -> Change:
    """What the keeper of Services writes after its release, as it never did before."""
    path, old, new = diff
    resource = a_resource("Service", f"tenant-{number}", "entry")
    change = a_change(resource, at=after(number - 28), path=path, old=old, new=new, verb=verb)
    return replace(change, actor=Actor(KEEPER, ActorSource.AUDIT))


def found(diff: tuple[tuple[str | int, ...], Json, Json], *, verb: Verb = Verb.UPDATE, error: str = FULL) -> Ranking:
    told = [a_service(number, diff, verb=verb) for number in range(4)]
    refused = calls(NOTEBOOKS, "create", "services", rate=2, start=-10, code=500, error=error, namespace="notebooks")
    return ranked(
        RELEASE,
        *told,
        incident=an_incident(an_alert(after(20), name="HighErrorRate", namespace="notebooks")),
        load=[*background(), *refused],
        states=[
            a_workload(a_resource("Deployment", name, name), serviceAccountName=name) for name in ("entry", "notebooks")
        ],
    )


MADE: Object = {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}}
SET = ("spec", "ports", 0, "nodePort"), None, 30080


@pytest.mark.parametrize(("diff", "verb"), [(SET, Verb.UPDATE), (((), None, MADE), Verb.CREATE)], ids=["set", "made"])
def test_who_takes_the_last_is_what_all_others_fail_for(
    diff: tuple[tuple[str | int, ...], Json, Json], verb: Verb
) -> None:
    ranking = found(diff, verb=verb)
    assert first(ranking) == ("Deployment", "entry")
    assert any("notebooks got 500 on CREATE services" in one.sentence for one in ranking.suspects[0].evidence)


@pytest.mark.parametrize(
    ("diff", "error"),
    [
        ((("spec", "ports", 0, "nodePort"), 30080, None), FULL),
        ((("spec", "sessionAffinity"), "None", "ClientIP"), FULL),
        (SET, "etcdserver: request timed out"),
    ],
    ids=["given back", "another field", "another failure"],
)
def test_what_takes_none_and_what_fails_for_something_else_are_not_told_together(
    diff: tuple[tuple[str | int, ...], Json, Json], error: str
) -> None:
    entry = next((one for one in found(diff, error=error).suspects if one.change.resource.name == "entry"), None)
    assert entry is None or all("notebooks got 500" not in one.sentence for one in entry.evidence)
