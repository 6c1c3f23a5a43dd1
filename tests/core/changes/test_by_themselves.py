"""What objects do by themselves is no change: nodes tell of themselves, autoscalers scale what they are told to."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from app.core.model import DiffSource, Verb
from tests.core.learning import ALICE, HPA, a_deployment, an_object, audited, changes, learn, listed, seen, told


@pytest.mark.parametrize(("before", "told"), [(None, 0), ("v1.36.0", 1)])
def test_a_node_that_tells_its_version_for_the_first_time_is_not_upgraded(before: str | None, told: int) -> None:
    def node(version: int, kubelet: str | None) -> Any:
        found = an_object("Node", "ip-10-0-0-7", version=version, api="v1")
        return found | ({"status": {"nodeInfo": {"kubeletVersion": kubelet}}} if kubelet else {})

    assert len(changes(learn(listed(node(5, before)), seen(node(6, "v1.36.1"), 1)))) == told


def test_what_an_autoscaler_scales_is_no_change_unless_the_autoscaler_was_changed() -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}

    def scaler(version: int, most: int) -> Any:
        spec = {"scaleTargetRef": target, "maxReplicas": most}
        return an_object("HorizontalPodAutoscaler", "web", version=version, api="autoscaling/v2", spec=spec)

    scaled = audited(a_deployment(version=7, replicas=9), 3, actor=HPA)
    assert changes(learn(listed(a_deployment(version=5)), listed(scaler(4, 10)), scaled)) == []
    raised, follows = changes(
        learn(listed(a_deployment(version=5)), listed(scaler(4, 10)), audited(scaler(6, 20), 1), scaled)
    )
    assert follows.begun_by == raised.id
    assert changes(learn(listed(a_deployment(version=5)), structs.replace(scaled, actor=ALICE)))[0].begun_by is None


def test_what_an_autoscaler_wrote_need_not_be_told_to_be_no_change() -> None:
    """A log that holds no bodies (level Metadata) says who wrote, and by which subresource."""
    bare = structs.replace(audited(a_deployment(version=7, replicas=9), 3, actor=HPA), body=None, subresource="scale")
    assert changes(learn(listed(a_deployment(version=5)), bare)) == []
    [by_hand] = changes(learn(listed(a_deployment(version=5)), structs.replace(bare, actor=ALICE)))
    assert by_hand.diff_source is DiffSource.NONE


def test_of_a_helm_release_each_revision_is_a_change_and_how_it_went_is_none() -> None:
    """Helm marks a revision as deployed, failed or superseded by writing to the Secret that it made for it."""
    name = "sh.helm.release.v1.web.v2"
    bare = learn(
        told("Secret", name, 0, verb=Verb.CREATE), told("Secret", name, 1), told("Secret", name, 9, verb=Verb.DELETE)
    )
    assert [one.verb for one in changes(bare)] == [Verb.CREATE, Verb.DELETE]
    marked = [an_object("Secret", name, version=5 + n, meta={"labels": {"status": s}}) for n, s in enumerate("ab")]
    watched = learn(seen(marked[0], 0, verb=Verb.CREATE), seen(marked[1], 1))
    assert [one.verb for one in changes(watched)] == [Verb.CREATE]
    assert "'status': 'b'" in str(watched[1].states[0].state), "how it went is known all the same"


def test_a_sync_of_argo_cd_is_one_change_that_says_who_asked_for_it() -> None:
    """Its end takes away what asked for it (Argo CD 3.6.1, setOperationState)."""

    def app(version: int, revision: str = "", **who: Any) -> Any:
        asked: dict[str, Any] = {"operation": {"sync": {"revision": revision}, "initiatedBy": who}} if revision else {}
        return an_object("Application", "shop", version=version, api="argoproj.io/v1alpha1", spec={}, **asked)

    sightings = [seen(app(6, "aaa", automated=True), 1), seen(app(7), 3)]
    sightings += [seen(app(8, "bbb", username="alice"), 5), seen(app(9), 7)]
    assert [one.summary for one in changes(learn(listed(app(5)), *sightings))] == [
        "sync of Application shop to aaa",
        "sync of Application shop to bbb, asked for by alice",
    ]
