"""Mirrors that are lost at once, and certificates that may not be renewed."""

from __future__ import annotations

import random
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from tests.lab.api import Json, Key, Kind, now
from tests.lab.apps import Outside
from tests.lab.families.public_names import ADDRESS, DOMAIN, ISSUER, OTHER_ISSUER, Names
from tests.lab.families.storms import FREE, OTHERS, Mirrors
from tests.lab.lab import Lab

HOST = f"shop.{DOMAIN}"
KIND = Kind("Any", "/apis/corp.example/v1", namespaced=True)


def lab() -> Lab:
    """What these ask one for."""
    claims: dict[Key, Json] = {("shop", "data-orders-db-0"): {}}
    made = SimpleNamespace(
        world={"PersistentVolumeClaim": claims}, kubelets=SimpleNamespace(rng=random.Random(1)), outside=Outside()
    )
    return cast("Lab", made)


def test_volumes_that_are_cut_off_for_a_moment_find_no_room_for_new_mirrors() -> None:
    mirrors = Mirrors(lab())
    mirrors.step(reached=True)
    assert (len(mirrors.mirrored), mirrors.lost, mirrors.free) == (OTHERS + 1, set(), FREE)
    mirrors.step(reached=False)
    mirrors.step(reached=True)
    assert (len(mirrors.lost), len(mirrors.copying), mirrors.free) == (OTHERS + 1, FREE, 0)
    mirrors.copying = dict.fromkeys(mirrors.copying, now() - timedelta(seconds=1))
    mirrors.step(reached=True)
    assert (len(mirrors.mirrored), len(mirrors.lost)) == (FREE, OTHERS + 1 - FREE)


@pytest.mark.parametrize(
    ("issuers", "status"),
    [
        ([], "Active"),
        ([f'0 issue "{OTHER_ISSUER}"'], "RenewalFailed"),
        ([f'0 issue "{OTHER_ISSUER}"', f'0 issue "{ISSUER}"'], "Active"),
    ],
)
def test_a_certificate_is_renewed_by_who_may_issue_one(issuers: list[str], status: str) -> None:
    names = Names(lab(), KIND, KIND, {(DOMAIN, "CAA"): issuers, (HOST, "A"): [ADDRESS]})
    names.expires[HOST] = now() - timedelta(seconds=1)
    names.reach(HOST)
    assert names.lab.outside.unreached == {HOST}
    assert names.status(HOST, "1")["certificateStatus"] == status
    names.reach(HOST)
    assert (names.lab.outside.unreached == set()) is (status == "Active")


def test_the_certificate_of_a_new_object_takes_its_time() -> None:
    names = Names(lab(), KIND, KIND)
    assert [names.status(HOST, uid)["certificateStatus"] for uid in ("1", "2")] == ["Active", "Provisioning"]
    names.reach(HOST)
    assert names.lab.outside.unreached == {HOST}, "nothing leads there"
