"""The real program while what it stands on breaks: every write once, in order, nothing else. `make faults` in short."""

from __future__ import annotations

from functools import partial

from tests.faults import ends, network, objects
from tests.faults.proxy import Mode
from tests.faults.stand import Stand, standing
from tests.faults.trial import Found, tried


def one_after_the_other(stand: Stand, found: Found) -> None:
    """Everything that takes seconds."""
    objects.poison(stand, found)  # first: a watch that failed often waits for half a minute and more
    ends.kills_of_foreshock(stand, found, times=3)
    ends.end_of_postgres(stand, seconds=3, kill=True)
    network.black_hole(stand, seconds=3)
    network.failing(stand, found, mode=Mode.RESETS, seconds=6)


def test_whatever_breaks_every_write_is_recorded_once_and_in_order_without_a_list() -> None:
    with standing() as stand:
        result = tried(stand, "in short", one_after_the_other, patience=120, no_sets=True)
        assert result.holds, repr(result)  # as text it is not cut short
        stalled = tried(stand, "leader stalled", partial(ends.stall_of_leader, seconds=16), patience=60, no_sets=True)
        assert stalled.holds, repr(stalled)
