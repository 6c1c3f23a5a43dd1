"""What a level of logs brings about, and what it does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.loglevels import only_levels, only_quieter
from app.core.edges.mechanism import plausible
from app.core.edges.served import SLOW
from app.core.model import Change
from tests.core.factories import a_change, a_resource


def told(key: str, old: str, new: str) -> Change:
    return a_change(a_resource("ConfigMap", "web"), path=("data", key), old=old, new=new)


@pytest.mark.parametrize(
    ("key", "old", "new", "level", "quieter"),
    [
        ("LOG_LEVEL", "info", "warn", True, True),
        ("log.level", "INFO", "debug", True, False),
        ("LOG_LEVEL", "info", "quiet", False, False),
        ("LEVEL_OF_CARE", "info", "warn", False, False),
    ],
)
def test_only_known_levels_are_levels(key: str, old: str, new: str, *, level: bool, quieter: bool) -> None:
    change = told(key, old, new)
    assert (only_levels(change), only_quieter(change)) == (level, quieter)


def test_a_change_of_something_else_beside_is_more_than_a_level() -> None:
    level, other = told("LOG_LEVEL", "info", "warn"), told("POOL", "20", "2")
    both = replace(level, diffs=(*level.diffs, *other.diffs))
    assert not only_levels(both)
    assert not only_levels(replace(level, diffs=()))


@pytest.mark.parametrize(
    ("reason", "likely"),
    [
        *((reason, False) for reason in ("OOMKilled", "CrashLoopBackOff", "Error", "BackoffLimitExceeded")),
        *((reason, True) for reason in ("Evicted", "Unhealthy", SLOW)),
    ],
)
def test_who_logs_more_ends_no_sooner_but_fills_disks_and_takes_time(reason: str, *, likely: bool) -> None:
    assert (plausible(told("LOG_LEVEL", "info", "debug"), reason, refused="") == 1.0) is likely
    assert plausible(told("LOG_LEVEL", "info", "verbose"), reason, refused="") == 1.0, "it may not know that word"
