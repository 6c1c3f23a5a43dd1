"""Which kinds are followed, of what an API server says that it serves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.collect.discovery import DiscoveryError, discover
from app.collect.words import Served
from tests.collect.scripted import Answer, serving

Resource = tuple[str, str, Sequence[str]]
ALL = ("create", "delete", "get", "list", "patch", "watch")


def a_group(name: str, *versions: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "versions": versions}


def a_version(name: str, *resources: Resource, freshness: str = "Current") -> dict[str, Any]:
    found = [
        {"resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "verbs": verbs}
        for plural, kind, verbs in resources
    ]
    return {"version": name, "freshness": freshness, "resources": found}


def groups(*found: dict[str, Any]) -> Answer:
    return Answer([json.dumps({"kind": "APIGroupDiscoveryList", "items": found}).encode()])


async def test_kinds_that_can_be_watched_and_say_something_are_followed() -> None:
    core = a_version(
        "v1",
        ("pods", "Pod", ALL),
        ("events", "Event", ALL),
        ("bindings", "Binding", ["create"]),
        ("endpoints", "Endpoints", ALL),
    )
    shop = a_version("v1beta1", ("tills", "Till", ALL), ("receipts", "Receipt", ["get", "list"]))
    events = a_version("v1", ("events", "Event", ALL))
    async with serving(
        groups(a_group("", core)), groups(a_group("shop.example", shop), a_group("events.k8s.io", events))
    ) as server:
        found = await discover(server.api)
    assert found.kinds == (
        Served("", "v1", "Event", "events"),
        Served("", "v1", "Pod", "pods"),
        Served("shop.example", "v1beta1", "Till", "tills"),
    )
    assert found.stale == ()
    assert [asked["path"] for asked in server.asked] == ["/api", "/apis"]


async def test_of_several_versions_the_preferred_one_that_serves_a_kind_is_followed() -> None:
    autoscaling = a_group(
        "autoscaling",
        a_version("v2", ("horizontalpodautoscalers", "HorizontalPodAutoscaler", ALL)),
        a_version("v1", ("horizontalpodautoscalers", "HorizontalPodAutoscaler", ALL), ("old", "Old", ALL)),
    )
    async with serving(groups(), groups(autoscaling)) as server:
        found = await discover(server.api)
    assert {(one.kind, one.version) for one in found.kinds} == {("HorizontalPodAutoscaler", "v2"), ("Old", "v1")}


async def test_a_group_whose_server_does_not_answer_is_told() -> None:
    metrics = a_group("metrics.k8s.io", a_version("v1beta1", freshness="Stale"))
    async with serving(groups(), groups(metrics)) as server:
        assert (await discover(server.api)).stale == ("metrics.k8s.io",)


SOME = a_version(
    "v1", ("configmaps", "ConfigMap", ALL), ("secrets", "Secret", ALL), ("events", "Event", ALL), ("pods", "Pod", ALL)
)
SHOP = a_group("shop.example", a_version("v1", ("productreviews", "ProductReview", ALL), ("tills", "Till", ALL)))


async def names(*, add: Sequence[str] = (), exclude: Sequence[str] = ()) -> tuple[set[str], tuple[str, ...]]:
    """The plurals that are followed, and the names that are not served."""
    stale = a_group("metrics.k8s.io", a_version("v1beta1", freshness="Stale"))
    async with serving(groups(a_group("", SOME)), groups(SHOP, stale)) as server:
        found = await discover(server.api, add=add, exclude=exclude)
    return {one.plural for one in found.kinds}, found.unserved


async def test_secrets_are_followed_only_where_they_are_added() -> None:
    assert await names() == ({"configmaps", "events", "pods", "tills"}, ())
    assert await names(add=["secrets"]) == ({"configmaps", "events", "pods", "secrets", "tills"}, ())


async def test_what_an_operator_adds_is_followed_and_what_is_excluded_is_not() -> None:
    found, _ = await names(add=["productreviews.shop.example", "secrets"], exclude=["events", "secrets", "configmaps"])
    assert found == {"pods", "productreviews", "tills"}


async def test_names_that_are_not_served_are_told_unless_their_server_does_not_answer() -> None:
    _, unserved = await names(add=["tills", "pods", "pods.metrics.k8s.io"], exclude=["carts.shop.example"])
    assert unserved == ("carts.shop.example", "tills")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"kind":"APIVersions","versions":["v1"]}', "/api: no aggregated discovery: Kubernetes 1.27 or newer"),
        (b"<html>", "/api: no list of the kinds that are served"),
    ],
)
async def test_what_is_no_discovery_is_said_in_words(body: bytes, why: str) -> None:
    async with serving(Answer([body])) as server:
        with pytest.raises(DiscoveryError, match=why):
            await discover(server.api)
