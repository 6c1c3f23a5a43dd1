"""What a workload's own complaint says for a change of it: little, where it only says that it is unwell (0042)."""

from __future__ import annotations

import pytest

from app.core.ranking.case import CAP
from app.core.ranking.evidence import OWN
from tests.core.company import ranked
from tests.core.factories import a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident


@pytest.mark.parametrize(
    ("reason", "message", "says_why"),
    [
        ("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", False),
        ("Error", "panic: nil map", True),
    ],
)
def test_that_it_is_unwell_says_less_than_why(reason: str, message: str, says_why: bool) -> None:
    home = a_resource("Deployment", "payroll", "hr")
    ranking = ranked(
        a_change(home, at=after(-5)),
        incident=an_incident(an_alert(after(20), name="Unwell", namespace="hr", deployment="payroll")),
        symptoms=[a_symptom(home, reason, at=after(0), message=message, count=30)],
        states=[a_workload(home)],
    )
    suspect = next(one for one in ranking.suspects if one.change.resource == home)
    (weight,) = (one.weight for one in suspect.evidence if one.rule == "symptoms")
    assert (weight > OWN * CAP) is says_why
    assert weight > 0
