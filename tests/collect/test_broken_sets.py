"""Sets of all objects of a kind that broke off, as where the pages of a LIST expired, before one came to its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.collect.spool import Spool
from app.collect.words import Lost
from app.core.model import Verb
from tests.collect.test_follow import spool
from tests.collect.test_importer import Lab, lab
from tests.collect.test_watched import CONFIG_MAPS, at, config_map, drained, listed, say, seen, stamped

__all__ = ["lab", "spool"]
MICRO = timedelta(microseconds=1)


def held(uid: str, version: int, *, created: float) -> dict[str, Any]:
    """One of several that had the same name, one after the other."""
    body = stamped(config_map("a", version), created=created)
    body["metadata"]["uid"] = uid
    return body


async def test_who_had_a_name_in_a_set_that_broke_off_is_told_between_those_before_and_after(
    lab: Lab, spool: Spool
) -> None:
    say(spool, CONFIG_MAPS, *listed(0, held("uid-1", 5, created=-900), version=9), Lost(at(60), "410"))
    for told, uid, created in ((130, "uid-2", 120), (230, "uid-3", 220)):
        say(spool, CONFIG_MAPS, *listed(told, held(uid, told, created=created), version=told)[:-1])
        say(spool, CONFIG_MAPS, Lost(at(told + 1), "the pages of a LIST expired"))
    say(spool, CONFIG_MAPS, *listed(330, held("uid-4", 330, created=320), version=330))
    await drained(lab, spool)
    assert [(one.verb, one.uid, one.at) for one in await lab.stored()] == [
        (Verb.DELETE, "uid-1", at(120) - MICRO),
        (Verb.CREATE, "uid-2", at(120)),
        (Verb.DELETE, "uid-2", at(220) - MICRO),
        (Verb.CREATE, "uid-3", at(220)),
        (Verb.DELETE, "uid-3", at(320) - MICRO),
        (Verb.CREATE, "uid-4", at(320)),
    ]


async def test_what_a_set_that_broke_off_told_of_and_is_gone_goes_last(lab: Lab, spool: Spool) -> None:
    say(spool, CONFIG_MAPS, *listed(0, held("uid-1", 5, created=-900), version=9), Lost(at(60), "410"))
    say(spool, CONFIG_MAPS, *listed(130, held("uid-2", 130, created=120), version=130)[:-1])
    say(spool, CONFIG_MAPS, *listed(330, config_map("b", 6), version=330))
    await drained(lab, spool)
    assert [(one.verb, one.uid, one.at) for one in await lab.stored() if one.resource.name == "a"] == [
        (Verb.DELETE, "uid-1", at(120) - MICRO),
        (Verb.CREATE, "uid-2", at(120)),
        (Verb.DELETE, "uid-2", at(330)),
    ]


@pytest.mark.parametrize("restarted", [False, True])
async def test_who_took_a_name_after_much_came_at_once_came_after_it(lab: Lab, spool: Spool, restarted: bool) -> None:
    first, last = held("uid-1", 11, created=0), held("uid-1", 12, created=0)
    at_once = [
        seen(0.9, config_map("b", 10, a="2")),
        seen(0.9, first, kind="ADDED"),
        seen(0.9, last, kind="DELETED"),
    ]
    say(spool, CONFIG_MAPS, *listed(0, config_map("b", 6, a="1"), version=9), *at_once)
    if restarted:
        await drained(lab, spool)
    other = config_map("b", 10, a="2")
    say(spool, CONFIG_MAPS, Lost(at(1), "410"), *listed(70, other, held("uid-2", 13, created=0), version=20))
    await drained(lab, spool)
    assert [(one.verb, one.uid, one.at - at(0.9)) for one in await lab.stored() if one.resource.name == "a"] == [
        (Verb.CREATE, "uid-1", MICRO),
        (Verb.DELETE, "uid-1", 2 * MICRO),
        (Verb.CREATE, "uid-2", 3 * MICRO),
    ]
