"""The same edit of many objects in one go is one suspect that reaches what all of them reach."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.model import Actor, ActorSource, Change, Json, Verb
from app.core.ranking.candidates import Candidate, candidates
from app.core.ranking.same_edit import SEVERAL, releases, same_edits
from tests.core.factories import a_change, a_resource, a_workload, after

LABEL = ("metadata", "labels", "pool")


def labelled(number: int, second: float, *, new: Json = "batch", actor: str = "alice") -> Change:
    node = a_resource("Node", f"node-{number}", None)
    change = a_change(node, at=after(second), path=LABEL, old="general", new=new)
    return msgspec.structs.replace(change, actor=Actor(actor, ActorSource.AUDIT))


def found(*changes: Change) -> list[Candidate]:
    wanting = [
        a_workload(a_resource("DaemonSet", f"on-{pool}", "logs"), nodeSelector={"pool": pool})
        for pool in ("general", "batch")
    ]
    return candidates(changes, (), (), topology=topology(wanting), until=after(600))


def test_a_loop_over_nodes_is_one_candidate() -> None:
    (one,) = found(labelled(1, 0), labelled(2, 1), labelled(3, 2))
    assert one.change.resource.name == "node-1"
    assert [change.resource.name for change in one.also] == ["node-2", "node-3"]
    assert {("node", "node-1"), ("node", "node-2"), ("node", "node-3")} <= one.reach.keys()
    assert one.alike == 0


@pytest.mark.parametrize(
    "other",
    [
        labelled(2, 1, new="gpu"),
        labelled(2, 1, actor="bob"),
        labelled(2, 121),
        labelled(1, 1),
        a_change(a_resource("Node", "node-2", None), at=after(1), path=LABEL, old=None, new=None),
    ],
    ids=["another value", "somebody else", "later", "the same object", "values that are not known"],
)
def test_what_is_another_edit_is_a_rival(other: Change) -> None:
    assert len(found(labelled(1, 0), other)) == 2


def test_what_begins_later_is_a_new_go() -> None:
    made = [labelled(1, 0), labelled(2, 100), labelled(3, 150), labelled(4, 160)]
    assert same_edits(made) == {made[1].id: made[0].id, made[3].id: made[2].id}


def made(kind: str, name: str, second: float, *, namespace: str | None = "shop", actor: str = "ci") -> Change:
    one = a_change(
        a_resource(kind, name, namespace), at=after(second), path=(), old=None, new={"spec": {}}, verb=Verb.CREATE
    )
    return msgspec.structs.replace(one, actor=Actor(actor, ActorSource.AUDIT))


def test_what_is_made_of_an_app_is_one_candidate_however_it_comes() -> None:
    (one,) = found(
        made("ServiceAccount", "cart", 0),
        made("ClusterRole", "cart", 1, namespace=None),
        made("Service", "cart", 2),
        made("Deployment", "cart", 3),
        made("Ingress", "cart", 4),
    )
    assert one.change.resource.kind == "Deployment"
    assert [change.resource.kind for change in one.also] == ["ServiceAccount", "ClusterRole", "Service", "Ingress"]


@pytest.mark.parametrize(
    "other",
    [
        made("Service", "checkout", 2),
        made("Service", "cart", 2, actor="alice"),
        made("Service", "cart", 2, namespace="media"),
        made("Service", "cart", 130),
        a_change(a_resource("Service", "cart", "shop"), at=after(2), actor=Actor("ci", ActorSource.AUDIT)),
    ],
    ids=["another name", "somebody else", "another namespace", "later", "an edit"],
)
def test_what_is_no_part_of_an_app_is_a_rival(other: Change) -> None:
    assert len(found(made("Deployment", "cart", 0), other)) == 2


@pytest.mark.parametrize(("how_many", "rivals"), [(SEVERAL, 1), (SEVERAL - 1, SEVERAL - 1)])
def test_a_release_of_many_workloads_is_one_candidate(how_many: int, rivals: int) -> None:
    parts = [made("Deployment", f"market-{n}", n) for n in range(how_many)]
    parts += [made("Service", f"market-{n}", n + 0.5) for n in range(how_many)]
    candidates_found = found(*parts)
    assert len(candidates_found) == rivals
    assert sum(len(one.also) for one in candidates_found) == len(parts) - rivals


def test_nodes_that_are_deleted_in_one_go_are_one_suspect() -> None:
    gone = [replace(labelled(number, number), verb=Verb.DELETE) for number in range(3)]
    (one,) = found(*gone)
    assert [change.resource.name for change in one.also] == ["node-1", "node-2"]
    assert len(found(*gone, replace(labelled(4, 30), verb=Verb.DELETE))) == 2
    assert len(found(gone[0], replace(labelled(1, 1, actor="bob"), verb=Verb.DELETE))) == 2


def test_a_release_is_what_one_hand_writes_in_a_namespace_one_right_after_the_other() -> None:
    config, web, worker = (made("ConfigMap", "app", 0), made("Deployment", "web", 0.4), made("Deployment", "job", 0.8))
    paused = made("Deployment", "later", 1.4)
    assert releases([config, web, worker, paused]) == {web.id: config.id, worker.id: config.id}


def test_what_is_made_anew_goes_with_its_deletion() -> None:
    gone = replace(made("StorageClass", "fast", 0), verb=Verb.DELETE)
    anew, others = made("StorageClass", "fast", 2), made("StorageClass", "fast", 2, actor="bob")
    assert releases([gone, anew]) == {anew.id: gone.id}
    assert releases([gone, others, made("StorageClass", "slow", 2), made("StorageClass", "fast", 200)]) == {}


@pytest.mark.parametrize(
    "other",
    [
        made("Service", "web", 0.1, actor="bob"),
        made("Service", "web", 0.1, namespace="cart"),
        made("Service", "web", 0.6),
    ],
    ids=["somebody else", "another namespace", "a pause"],
)
def test_what_else_is_written_then_is_of_no_release(other: Change) -> None:
    assert releases([made("Deployment", "web", 0), other]) == {}


def test_whose_writes_are_not_known_nobody_wrote_in_one_go() -> None:
    assert releases([made("Deployment", "web", 0, actor=""), made("Service", "web", 0.1, actor="")]) == {}


def test_a_program_that_writes_on_and_on_begins_a_new_release_after_two_minutes() -> None:
    without_end = [made("ConfigMap", f"part-{number}", number * 0.4) for number in range(600)]
    assert len(set(releases(without_end).values())) == 2


def test_what_is_done_for_any_of_the_objects_follows_from_the_edit() -> None:
    """Releases of one version each: what the controller does for the second one is no rival of that edit."""
    releases_of = [a_resource("HelmRelease", name, "flux-system") for name in ("presets", "renderer")]
    releases_of = [replace(one, api_group="helm.toolkit.fluxcd.io") for one in releases_of]
    version = ("spec", "chart", "spec", "version")
    told = [
        a_change(one, at=after(20 + n), path=version, old="3.4.0", new="3.5.0") for n, one in enumerate(releases_of)
    ]
    controller = Actor("system:serviceaccount:flux-system:helm-controller", ActorSource.AUDIT)
    done = a_change(a_resource("Deployment", "renderer", "studio"), at=after(30), path=(), new=None, verb=Verb.DELETE)
    warm_up = labelled(1, 0)
    (_, one) = found(warm_up, *told, replace(done, actor=controller))
    assert [change.resource.name for change in (one.change, *one.also)] == ["presets", "renderer"]
    assert one.derived == (done.id,)
