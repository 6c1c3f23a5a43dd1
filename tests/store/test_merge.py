"""Of two tellings of one write the better one is kept, whichever came first."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.store.merge import merge_changes
from tests.core.factories import a_change, after


@pytest.mark.parametrize("images", [("web:1", "web:2", "web:3"), ("web:3", "web:2", "web:1")])
def test_what_a_list_showed_is_kept_as_it_was_told_apart_later(images: tuple[str, str, str]) -> None:
    """Both comparisons are of one size: what was known to be so for longer leaves out what another wrote."""
    first, between, last = images
    shown = replace(a_change(at=after(60), old=first, new=last), since=after(0))
    apart = replace(a_change(at=after(60), old=between, new=last), since=after(20))
    for one, other in ((shown, apart), (apart, shown)):
        kept = merge_changes(one, other)
        assert (kept.diffs, kept.since) == (apart.diffs, after(20))
