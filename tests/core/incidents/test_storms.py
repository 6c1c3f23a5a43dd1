"""Thousands of alerts at once: told together as they would be one by one, and not each compared with all others."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from app.core.incidents import bundles
from app.core.incidents.bundles import bundle
from app.core.model import Symptom
from tests.core.factories import after, an_alert

WHERE: tuple[dict[str, str], ...] = (
    {"namespace": "shop", "deployment": "web"},
    {"namespace": "media"},
    {"node": "a"},
    {"node": "b", "namespace": "shop"},
    {"job": "apiserver"},
    {},
)


def storm(number: int, *, seed: int, spread: float) -> list[Symptom]:
    chance = Random(seed)
    told = []
    for n in range(number):
        at = after(chance.uniform(-spread, spread))
        alert = replace(an_alert(at, name=f"Alert{n % 7}", **chance.choice(WHERE)), fingerprint=f"f{n % (number - 3)}")
        ended = at + (after(chance.uniform(10, spread)) - after(0)) if chance.random() < 0.4 else None
        told.append(replace(alert, ended_at=ended, group=chance.choice(("", "", "g"))))
    return told


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("spread", [300.0, 9000.0])
def test_what_is_looked_up_is_what_would_be_found_by_looking_at_all(
    seed: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts = storm(80, seed=seed, spread=spread)
    first = bundle(alerts[:30], [], cluster="lab")
    found = bundle(alerts[30:], first, cluster="lab")
    monkeypatch.setattr(bundles._Kin, "has", lambda kin, alert: any(bundles._is_akin(alert, one) for one in kin._all))
    assert bundle(alerts[:30], [], cluster="lab") == first
    assert bundle(alerts[30:], first, cluster="lab") == found


def test_each_of_a_storm_is_compared_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, is_akin = [0], bundles._is_akin

    def counted(one: bundles._Beginning, other: bundles._Beginning) -> bool:
        compared[0] += 1
        return is_akin(one, other)

    monkeypatch.setattr(bundles, "_is_akin", counted)
    alerts = [
        replace(an_alert(after(n % 300), name="Down", namespace=f"ns{n % 300}"), fingerprint=f"f{n}")
        for n in range(3000)
    ]
    bundle(alerts, [], cluster="lab")
    assert compared[0] < 10 * len(alerts)
