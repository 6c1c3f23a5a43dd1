"""Zones of a Corefile: who is told a host in one that is served otherwise is touched."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.edges.zones import told_of_zones
from app.core.model import Json, ObjectState
from tests.core.factories import a_change, a_resource, a_workload

FEES, PORTAL, SHOP = ("city", "fees"), ("city", "portal"), ("shop", "shop")
CITY = "city.internal:53 {\n  # who knows\n  bind 169.254.20.10\n  forward . 10.0.0.2\n}\n"
ALL = ".:53 {\n  forward . /etc/resolv.conf {\n    force_tcp\n  }\n}\n"


def told(key: tuple[str, str], url: str) -> ObjectState:
    container: Json = {"name": "a", "env": [{"name": "URL", "value": url}]}
    return a_workload(a_resource("Deployment", key[1], key[0]), containers=[container])


COMPANY = topology(
    [
        told(FEES, "http://cash.city.internal:8080/v1"),
        told(PORTAL, "TAX.City.Internal."),
        told(SHOP, "http://notcity.internal.example"),
    ]
)


def touched(old: Json, new: Json, *, name: str = "node-local-dns") -> set[tuple[str, str]]:
    change = a_change(a_resource("ConfigMap", name, "kube-system"), path=("data", "Corefile"), old=old, new=new)
    return told_of_zones(change, COMPANY)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (CITY + ALL, CITY.replace("10.0.0.2", "10.0.0.9") + ALL, {FEES, PORTAL}),
        (CITY + ALL, ALL, {FEES, PORTAL}),
        (ALL, f"tls://city.internal:853, other.example {{\n  log\n}}\n{ALL}", {FEES, PORTAL}),
        (None, CITY, {FEES, PORTAL}),
        (CITY + ALL, CITY.replace("  # who knows\n", "  # he does\n") + ALL, set()),
        (CITY + ALL, CITY + ALL.replace("force_tcp", "prefer_udp"), set()),
        (ALL, f"other.example {{\n  log\n}}\n{ALL}", set()),
        ("city.internal {", "}}} city.internal {{ {", set()),
        ({"a": 1}, 7, set()),
    ],
    ids=["edited", "gone", "new", "made", "a comment", "of all names", "another zone", "no Corefile", "no text"],
)
def test_who_is_told_a_host_in_a_zone_is_touched_where_that_is_served_otherwise(
    old: Json, new: Json, found: set[tuple[str, str]]
) -> None:
    assert touched(old, new) == found


def test_what_serves_no_names_has_no_zones() -> None:
    assert touched(CITY, ALL, name="settings") == set()
