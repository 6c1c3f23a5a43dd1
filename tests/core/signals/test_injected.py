"""Containers that nobody declared are what a webhook put in: the rollout that brought them is the occasion."""

from __future__ import annotations

import pytest

from app.core.findings import Ranking
from app.core.model import Json, Object, ObjectState, Outcome, Rollout
from tests.core.company import first, ranked
from tests.core.factories import (
    a_change,
    a_resource,
    a_state,
    a_symptom,
    a_workload,
    after,
    an_alert,
    an_incident,
)

HOOK = a_resource("MutatingWebhookConfiguration", "mesh-injector", None)
INJECTOR = a_resource("Deployment", "mesh-injector", "mesh")
SHOP = a_resource("Deployment", "catalog", "shop")


def states() -> list[ObjectState]:
    service: Object = {"spec": {"selector": {"app": "mesh-injector"}}}
    rule: Json = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    config: Json = {"service": {"name": "mesh-injector", "namespace": "mesh"}}
    hook: Object = {"webhooks": [{"name": "inject.mesh.example", "rules": [rule], "clientConfig": config}]}
    return [
        a_state(HOOK, hook),
        a_state(a_resource("Service", "mesh-injector", "mesh"), service),
        a_workload(INJECTOR, labels={"app": "mesh-injector"}),
        a_workload(SHOP, containers=[{"name": "catalog", "image": "catalog:2"}]),
    ]


def blamed(container: str, *, hooked: bool = True) -> Ranking:
    """The injector was rolled out well, then the shop, of which one container is killed for its memory."""
    injector = a_change(INJECTOR, at=after(-30), old="injector:1", new="injector:2")
    shop = a_change(SHOP, at=after(-20), old="catalog:1", new="catalog:2")
    done = Rollout(INJECTOR, "uid", 2, after(-30), Outcome.COMPLETE, change_id=injector.id, ended_at=after(-26))
    killed = a_symptom(SHOP, "OOMKilled", at=after(-5), message=f"{container} ended with exit code 137", count=4)
    waits = a_symptom(SHOP, "BackOff", at=after(-4), message="Back-off restarting", count=4)
    return ranked(
        injector,
        shop,
        incident=an_incident(an_alert(after(30), name="KubePodCrashLooping", namespace="shop", deployment="catalog")),
        symptoms=[killed, waits],
        states=[state for state in states() if hooked or state.resource != HOOK],
        rollouts=[done],
    )


def test_a_container_of_its_own_is_its_own() -> None:
    assert first(blamed("catalog")) == ("Deployment", "catalog")


def test_a_container_that_nobody_declared_is_the_injectors() -> None:
    ranking = blamed("proxy")
    assert first(ranking) == ("Deployment", "mesh-injector")
    assert ranking.suspects[0].probability > max(0.4, 2 * ranking.suspects[1].probability)


@pytest.mark.parametrize("container", ["catalog", "proxy"])
def test_where_nothing_injects_the_name_says_nothing(container: str) -> None:
    assert first(blamed(container, hooked=False)) == ("Deployment", "catalog")


def not_pulled(image: str) -> Ranking:
    """The injector was rolled out well, then the shop, of whose new pods an image is not pulled."""
    injector = a_change(INJECTOR, at=after(-30), old="injector:1", new="injector:2")
    shop = a_change(SHOP, at=after(-12), old="catalog:1", new="catalog:2")
    done = Rollout(INJECTOR, "uid", 2, after(-30), Outcome.COMPLETE, change_id=injector.id, ended_at=after(-26))
    told = f'Failed to pull image "{image}": manifest unknown'
    return ranked(
        injector,
        shop,
        incident=an_incident(an_alert(after(30), name="KubeRolloutStuck", namespace="shop", deployment="catalog")),
        symptoms=[a_symptom(SHOP, "Failed", at=after(-11), message=told, count=4)],
        states=states(),
        rollouts=[done],
    )


@pytest.mark.parametrize("image", ["catalog:2", "catalog:1", "catalog@sha256:0f3a"])
def test_an_image_of_its_own_that_is_not_there_is_its_own(image: str) -> None:
    assert first(not_pulled(image)) == ("Deployment", "catalog")


def test_an_image_that_nobody_declared_is_the_injectors() -> None:
    assert first(not_pulled("registry.example/mesh/proxy:1.27.0")) == ("Deployment", "mesh-injector")
