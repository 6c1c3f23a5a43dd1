"""What is told late, after a break, says nothing of the time until it came: a gap begins when all was known last."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.collect.spool import Spool
from app.collect.words import Lost, Reached, Resumed
from app.store import gaps
from app.store.watches import WatchPosition
from tests.collect.test_follow import spool
from tests.collect.test_importer import T0, Lab, lab
from tests.collect.test_watched import CONFIG_MAPS, at, config_map, drained, listed, positions, say, seen

__all__ = ["lab", "spool"]


@pytest.mark.parametrize("breaks", [1, 3], ids=["one break", "broken off again and again"])
async def test_a_gap_begins_when_all_was_known_last_whatever_was_told_late_before_it(
    lab: Lab, spool: Spool, breaks: int
) -> None:
    """As while a disk is nearly full: of what was missed the first is kept, and the next breaks the watch off again."""
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 7), version=7), Reached(at(10), "8"))
    for number in range(breaks):
        again = at(300 + number)
        say(spool, CONFIG_MAPS, Resumed(again), seen(300 + number, config_map("a", 9 + number, x=str(number))))
    await drained(lab, spool)
    assert list((await positions(lab)).values()) == [WatchPosition(str(8 + breaks), at(10))]
    say(spool, CONFIG_MAPS, Lost(at(310), "too old"), *listed(330, config_map("a", 40, x="last"), version=40))
    await drained(lab, spool)
    async with lab.database.read.connect() as conn:
        found = await gaps.read_window(conn, lab.cluster, T0, T0 + timedelta(hours=1))
    assert [(gap.from_at, gap.to_at) for gap in found] == [(at(10), at(330))]


async def test_what_is_told_of_at_the_moment_of_a_set_comes_after_what_the_set_tells_of(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0, config_map("a", 7), version=7), Lost(at(20), "too old"))
    say(spool, CONFIG_MAPS, *listed(30, config_map("a", 40, x="1"), version=40), seen(30, config_map("a", 41, x="2")))
    await drained(lab, spool)
    found = await lab.stored()
    by_version = {change.resource_version: change.at for change in found}
    assert by_version["40"] < by_version["41"]
