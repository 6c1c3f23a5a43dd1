"""When changes were not recorded a ranking cannot know what happened then, and says so before all else."""

from __future__ import annotations

from dataclasses import replace

from app.core.model import Gap
from app.core.ranking.suspects import rank
from app.core.record import NEVER, NO_MORE
from tests.core.company import gathered
from tests.core.factories import after, an_alert, an_incident

DOWN = an_incident(an_alert(after(0), name="Down", namespace="shop"))


def test_when_nothing_was_recorded_is_said_first() -> None:
    unseen = (Gap("lab", "", after(-60), after(60), NO_MORE),)
    ranking = rank(replace(gathered(incident=DOWN), unseen=unseen))
    assert ranking.not_measured[0] == (
        f"Not seen {after(-60):%m-%d %H:%M:%S} to {after(60):%H:%M:%S}: the record of changes ended before."
    )


def test_where_no_change_was_ever_recorded_there_is_none_to_choose_from() -> None:
    found = replace(gathered(incident=DOWN), changes=(), unseen=(Gap("lab", "", after(-60), after(60), NEVER),))
    ranking = rank(found)
    assert (ranking.candidates, ranking.suspects) == (0, ())
    assert ranking.not_measured[0].endswith("no change of this cluster is recorded.")
