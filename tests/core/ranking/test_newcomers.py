"""What is new is seldom to blame, as all did without it before; but it may ask the API for more than all others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.model import FieldDiff, Verb
from tests.core.company import background, ranked
from tests.core.factories import a_change, a_resource, a_workload, after, an_alert, an_incident, calls

BOARD = a_resource("Deployment", "board", "platform")
MADE = replace(
    a_change(BOARD, at=after(-5)),
    verb=Verb.CREATE,
    diffs=(FieldDiff((), "add", None, a_workload(BOARD, serviceAccountName="board").state),),
)
IS_NEW = "The Deployment is new: what was there before did without it."


@pytest.mark.parametrize("who", ["board", "other"])
def test_what_is_new_is_no_newcomer_to_who_pays_for_its_calls(who: str) -> None:
    found = ranked(
        MADE,
        incident=an_incident(an_alert(after(20))),
        load=background() + calls(f"system:serviceaccount:platform:{who}", "list", "pods", rate=60, start=0),
        states=[a_workload(BOARD, serviceAccountName="board")],
    )
    (board,) = [one for one in found.suspects if one.change.resource == BOARD]
    said = [one.sentence for one in board.evidence]
    assert (IS_NEW in said) is (who == "other")
    assert (board.rank == 1) is (who == "board")
