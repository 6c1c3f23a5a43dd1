"""Images that are not pulled: what leads to that, and what does not."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.entities import workload
from app.core.findings import Ranking
from app.core.model import Json, Verb
from tests.core.company import first, ranked
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

PULL = 'Failed to pull image "registry.corp.example/shop/web:2": '
WEB = a_resource("Deployment", "web-front")


def pulling(message: str) -> Ranking:
    return ranked(
        a_change(WEB, at=after(-10), old="registry.corp.example/web:1", new="registry.corp.example/web:2"),
        incident=an_incident(an_alert(after(30), name="KubeDeploymentRolloutStuck", deployment="web-front")),
        symptoms=[a_symptom(WEB, "Failed", at=after(-8), message=PULL + message)],
        states=[a_workload(WEB)],
    )


def test_a_registry_that_is_down_is_not_the_rollouts_doing() -> None:
    down = pulling("dial tcp 10.0.9.4:443: connect: connection refused")
    missing = pulling("not found")
    assert first(missing) == ("Deployment", "web-front")
    assert missing.suspects[0].probability > missing.none_of_these
    assert down.none_of_these > down.suspects[0].probability


@pytest.mark.parametrize(
    ("name", "leads"), [("registry", True), ("registry-mirror", True), ("schema-registry", False), ("billing", False)]
)
def test_who_is_denied_images_leads_to_what_the_own_registry_reads(name: str, *, leads: bool) -> None:
    secret = a_change(a_resource("Secret", "robots", "platform"), at=after(-12), path=("data", "htpasswd"))
    mounts: Json = [{"name": "robots", "secret": {"secretName": "robots"}}]
    found = ranked(
        secret,
        incident=an_incident(an_alert(after(30), name="KubeDeploymentRolloutStuck", deployment="web-front")),
        symptoms=[a_symptom(WEB, "Failed", at=after(-8), message=PULL + "unexpected status: 401 Unauthorized")],
        states=[a_workload(WEB), a_workload(a_resource("Deployment", name, "platform"), volumes=mounts)],
    )
    assert any(e.rule == "symptoms" for e in found.suspects[0].evidence) is leads


@pytest.mark.parametrize(
    ("name", "leads"),
    [("registry-cleanup", True), ("tag-cleaner", True), ("image-gc", False), ("image-resize", False)],
)
def test_what_a_registry_no_longer_has_leads_to_who_cleans_it(name: str, *, leads: bool) -> None:
    run = a_change(a_resource("Job", name, "platform"), at=after(-40), path=(), old=None, new={}, verb=Verb.CREATE)
    found = ranked(
        run,
        incident=an_incident(an_alert(after(30), name="KubeDeploymentRolloutStuck", deployment="web-front")),
        symptoms=[a_symptom(WEB, "Failed", at=after(-8), message=PULL + "manifest unknown")],
        states=[a_workload(WEB)],
    )
    assert any(e.rule == "symptoms" for e in found.suspects[0].evidence) is leads


@pytest.mark.parametrize("name", ["registry-pull", "registry-credentials", "harbor-login"])
def test_what_a_registry_is_asked_with_gives_nobody_images(name: str) -> None:
    secret = a_change(a_resource("Secret", name), path=("data", ".dockerconfigjson"))
    assert ("agent", "registry") not in reach(secret, topology(()))


@pytest.mark.parametrize(("own", "reads"), [([], True), ([{"name": "own"}], False)])
def test_pods_that_name_no_pull_secret_have_that_of_their_account(own: Json, *, reads: bool) -> None:
    """The account *default* of a namespace mostly has it."""
    account = a_state(
        a_resource("ServiceAccount", "default"),
        {"metadata": {"name": "default", "namespace": "shop"}, "imagePullSecrets": [{"name": "registry-login"}]},
    )
    secret = a_change(a_resource("Secret", "registry-login"), at=after(-12), path=("data", ".dockerconfigjson"))
    reached = reach(secret, topology([a_workload(WEB, imagePullSecrets=own), account]))
    assert (workload("shop", "web-front") in reached) is reads
