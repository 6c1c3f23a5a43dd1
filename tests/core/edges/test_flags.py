"""What is set where flags are handed out is a setting of whoever goes by them."""

from __future__ import annotations

import pytest

from app.core.model import Json
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

FLAGS, HOME, SHELF = a_resource("ConfigMap", "flags"), a_resource(name="home"), a_resource(name="shelf")
LATE = 'Readiness probe failed: Get "http://10.1.0.4:8080/": context deadline exceeded'


@pytest.mark.parametrize(("provider", "led_on"), [("flagd", True), ("menus", False)])
def test_a_flag_for_more_people_burdens_whom_its_readers_call(provider: str, *, led_on: bool) -> None:
    """The home page asks flagd which people see a shelf, and gets that from another program."""
    asks: Json = [
        {"name": "FLAGS", "value": f"{provider}.shop:8013"},
        {"name": "SHELF_URL", "value": "http://shelf.shop:8080"},
    ]
    hands_out = a_resource(name=provider)
    percent = '{{"shelf": {{"percent": {0}}}, "trial": {{"percent": 25}}}}'
    changed = a_change(FLAGS, at=after(-300), path=("data", "flags"), old=percent.format(5), new=percent.format(100))
    services = [
        a_state(a_resource("Service", name), {"spec": {"selector": {"app": name}}}) for name in (provider, "shelf")
    ]
    reads: Json = [{"name": "a", "envFrom": [{"configMapRef": {"name": "flags"}}]}]
    suspects = ranked(
        changed,
        incident=an_incident(an_alert(after(30), name="ErrorsHigh", namespace="shop", deployment="home")),
        symptoms=[a_symptom(SHELF, "Unhealthy", at=after(0), message=LATE)],
        states=[
            *services,
            a_workload(HOME, containers=[{"name": "a", "env": asks}]),
            a_workload(SHELF, labels={"app": "shelf"}, containers=[{"name": "a"}]),
            a_workload(hands_out, labels={"app": provider}, containers=reads),
        ],
    ).suspects
    (found,) = (one for one in suspects if one.change.id == changed.id)
    assert ("more often" in {one.rule for one in found.evidence}) is led_on
