"""What others say too, whom a change does not reach, speaks against it."""

from __future__ import annotations

from app.core.findings import Evidence, Ranking
from app.core.model import Json, ObjectState, Resource
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

DISPATCH, LABELS, MAILER = (a_resource("Deployment", name, "parcels") for name in ("dispatch", "labels", "mailer"))
SHARED = a_resource("ConfigMap", "carrier", "parcels")
SEALED = "cannot read kv/carrier: Code: 503. Errors: * Vault is sealed"
DOWN = {
    DISPATCH: "POST https://wms.carrier.example/parcels: 503 Service Unavailable",
    LABELS: "fetch of https://wms.carrier.example/labels failed",
    MAILER: "giving up: https://wms.carrier.example/ does not answer",
}
LIMITED = "carrier answers 429: this account has asked more than it may"


def reading(home: Resource) -> ObjectState:
    env: Json = [{"configMapRef": {"name": SHARED.name}}]
    return a_workload(home, containers=[{"name": "a", "envFrom": env}])


def found(*others: Resource, changed: Resource = DISPATCH, says: str = "") -> Ranking:
    """Dispatch fails after something was changed, as do these others at once, who say the same or name the same."""
    change = a_change(changed, at=after(-20), old="dispatch:1", new="dispatch:2")
    if changed == SHARED:
        change = a_change(changed, at=after(-20), path=("data", "timeout"), old="5s", new="6s")
    return ranked(
        change,
        incident=an_incident(an_alert(after(30), name="Unready", namespace="parcels", deployment="dispatch")),
        symptoms=[
            a_symptom(one, "Error", at=after(0), message=says or DOWN[one], count=9) for one in (DISPATCH, *others)
        ],
        states=[*(reading(one) for one in (DISPATCH, LABELS, MAILER)), a_state(SHARED, {"data": {"timeout": "6s"}})],
    )


def against(ranking: Ranking, of: Resource = DISPATCH) -> Evidence | None:
    (suspect,) = (one for one in ranking.suspects if one.change.resource == of)
    return next((one for one in suspect.evidence if one.rule == "together"), None)


def test_whoever_says_the_same_out_of_its_reach_is_named() -> None:
    one, two = against(found(LABELS, says=SEALED)), against(found(LABELS, MAILER))
    assert one is not None
    assert one.sentence == "labels, which it does not reach, began to complain of the same then."
    assert two is not None
    assert two.sentence == "labels and one other, which it does not reach, began to complain of the same then."
    assert two.weight < one.weight < 0
    assert against(found()) is None


def test_none_of_these_is_likelier_then() -> None:
    assert found(LABELS, says=SEALED).none_of_these > found(says=SEALED).none_of_these + 0.3


def test_what_reaches_all_of_them_has_nothing_against_it() -> None:
    assert against(found(LABELS, MAILER, changed=SHARED), of=SHARED) is None


def test_what_one_may_have_taken_from_the_others_is_none_of_theirs() -> None:
    assert against(found(LABELS, says=LIMITED)) is None


def test_what_is_for_a_day_is_not_taken_in_half_a_minute() -> None:
    used_up = "454 Throttling failure: Daily message quota of this account exceeded"
    assert against(found(LABELS, says=used_up)) is not None
