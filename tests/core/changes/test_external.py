"""What Kubernetes does not see: redacted, told like any other change, ranked by the same evidence."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.changes.external import External, change_of, digest, field, path_of, redacted, states_of
from app.core.changes.revert import revert_recipe
from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.findings import Suspect
from app.core.model import ActorSource, Change, DiffSource, Verb
from app.core.objects import kinds
from app.core.objects.actors import short
from app.core.objects.redact import Redactor
from app.core.screen.axis import Axis
from app.core.screen.lanes import Mark, lanes
from tests.core.company import ranked
from tests.core.factories import NOON, a_change, a_resource, a_symptom, a_workload, after, an_alert, an_incident

REDACTOR = Redactor(b"a key of at least 16 bytes")


def a_flag(**more: Any) -> External:
    values: dict[str, Any] = {"source": "launchdarkly", "kind": "feature flag", "name": "new-checkout"}
    return External(**values | {"at": after(-30)} | more)


def told(external: External, *, cluster: str = "lab", request: str = "1") -> Change:
    return change_of(redacted(external, REDACTOR), cluster, request=request, now=NOON)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("variation", ("variation",)),
        ("rules[0].rollout", ("rules", 0, "rollout")),
        ('module.web["blue.1"].size', ("module", "web", "blue.1", "size")),
        ("[web]", ("web",)),
    ],
)
def test_a_path_is_read_as_people_write_it(text: str, path: tuple[object, ...]) -> None:
    assert path_of(text) == path


@pytest.mark.parametrize("text", [".a", "a.", "a..b", "a[", "a]", "a[]"])
def test_what_is_no_path_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="names with dots between them"):
        path_of(text)


def test_it_is_a_change_like_any_other() -> None:
    change = told(a_flag(namespace="shop", workload="web", actor="alice@shop.example", url="https://ld.example/1"))
    assert str(change.resource) == "feature flag shop/new-checkout"
    assert (change.at, change.url, change.workload) == (after(-30), "https://ld.example/1", "web")
    assert (change.actor.source, change.actor.user_agent) == (ActorSource.TOLD, "launchdarkly")
    assert short(change.actor) == "alice"
    assert kinds.told_by(change.resource.api_group) == "launchdarkly"
    assert kinds.lane(change.resource.api_group, change.resource.kind) is kinds.Lane.EXTERNAL
    assert change.diff_source is DiffSource.NONE
    assert told(a_flag(actor="")).actor.name == "launchdarkly"
    assert told(a_flag(at=None)).at == NOON


@pytest.mark.parametrize(
    ("external", "summary"),
    [
        (a_flag(), "feature flag new-checkout written (what of it, nobody said)"),
        (a_flag(verb=Verb.DELETE), "feature flag new-checkout deleted"),
        (a_flag(fields=(field("on", False, True),)), "on of feature flag new-checkout: false → true"),
        (a_flag(summary="on for\n everybody"), "on for everybody"),
        (a_flag(summary="x" * 500), "x" * 119 + "…"),
    ],
)
def test_its_summary_is_the_senders_or_is_made(external: External, summary: str) -> None:
    assert told(external).summary == summary


def test_no_secret_of_it_is_kept() -> None:
    hidden = "hunter2-and-a-half"
    change = told(
        a_flag(
            name=f"deploy password={hidden}",
            actor=f"token={hidden}",
            summary=f"password={hidden}",
            url=f"https://bob:{hidden}@ci.example/1?access_token={hidden}",
            fields=(
                field("db.password", hidden, hidden + "3"),
                field("auth.credentials.list[0]", None, {"secret": hidden}),
                field(f"env[token={hidden}]", 1, 2),
                field("replicas", 2, 3),
            ),
        )
    )
    assert hidden not in repr(change)
    before, after_it = change.diffs[0].old, change.diffs[0].new
    assert str(before).startswith("<redacted:")
    assert before != after_it
    assert change.diffs[3] == field("replicas", 2, 3)


def test_the_same_told_twice_is_known_by_its_digest_and_nothing_else_is() -> None:
    one = redacted(a_flag(fields=(field("password", "one", "two"),)), REDACTOR)
    same = redacted(a_flag(fields=(field("password", "one", "two"),)), REDACTOR)
    other = redacted(a_flag(fields=(field("password", "one", "three"),)), REDACTOR)
    assert digest(one) == digest(same) != digest(other)


def test_each_request_is_a_change_of_its_own_in_each_cluster() -> None:
    keys = {told(a_flag(), cluster=cluster, request=request).key for cluster in ("a", "b") for request in ("1", "2")}
    assert len(keys) == 4


def test_what_is_deleted_is_gone_until_it_is_written_again() -> None:
    gone, back = told(a_flag(verb=Verb.DELETE)), told(a_flag(verb=Verb.CREATE))
    assert [state.deleted_at for state in states_of([gone, back])] == [after(-30), None]


def test_kubectl_undoes_nothing_of_it() -> None:
    for verb in Verb:
        recipe = revert_recipe(told(a_flag(verb=verb, namespace="shop")))
        assert recipe.command == ""
        assert "in launchdarkly" in recipe.warning


def test_it_has_a_lane_that_says_who_told_of_it() -> None:
    mark = Mark("external:launchdarkly", "feature flag", NOON, 2, "1" * 28, "new-checkout")
    found = lanes(Axis(after(-60), after(60)), [mark], [], problems=[], chosen="")
    lane = next(lane for lane in found if lane.title == "External")
    assert lane.spots[0].label == "feature flag new-checkout in launchdarkly and 1 more"


def test_it_reaches_what_it_is_said_to_concern_and_nothing_of_kubernetes_by_its_name() -> None:
    web = a_resource("Deployment", "web", "shop")
    top = topology([a_workload(web, serviceAccountName="web")])
    found = reach(told(a_flag(namespace="shop", workload="web")), top)
    assert found["workload", "shop", "web"] < 1
    assert ("user", "system:serviceaccount:shop:web") in found
    alone = reach(told(a_flag(kind="deployment", name="web", namespace="shop")), top)
    assert ("workload", "shop", "web") not in alone
    assert ("cluster",) not in alone
    assert ("cluster",) in reach(told(a_flag()), top)


def place_of(change: Change, *others: Change, namespace: str = "shop") -> Suspect | None:
    """The suspect that the change is for an alert of a crashing workload of shop."""
    web = a_resource("Deployment", "web", "shop")
    ranking = ranked(
        change,
        *others,
        incident=an_incident(an_alert(after(40), name="ErrorsHigh", namespace=namespace)),
        symptoms=[a_symptom(web, "Unhealthy", at=after(0), message="Readiness probe failed: 500", count=30)],
        states=[a_workload(web)],
    )
    return next((suspect for suspect in ranking.suspects if suspect.change.id == change.id), None)


def test_a_flag_of_the_alerts_namespace_ranks_above_an_unrelated_edit_an_hour_before() -> None:
    edit = a_change(
        a_resource("ConfigMap", "settings", "media"), at=after(-3600), path=("data", "colour"), old="a", new="b"
    )
    flag = told(a_flag(namespace="shop"))
    found, unrelated = place_of(flag, edit), place_of(edit, flag)
    assert found is not None
    assert unrelated is None or found.score > unrelated.score
    assert found.rank == 1
    assert any("shop" in one.sentence for one in found.evidence if one.rule == "scope")


def test_a_flag_that_names_the_workload_is_tied_to_its_complaints() -> None:
    named, beside = place_of(told(a_flag(namespace="shop", workload="web"))), place_of(told(a_flag(namespace="shop")))
    assert named is not None
    assert beside is not None
    assert named.score > beside.score
    assert "symptoms" in {one.rule for one in named.evidence}


def test_a_flag_of_another_namespace_is_not_believed() -> None:
    here, elsewhere = place_of(told(a_flag(namespace="shop"))), place_of(told(a_flag(namespace="media")))
    nowhere = place_of(told(a_flag()))
    assert here is not None
    assert elsewhere is not None
    assert nowhere is not None
    assert here.rank == 1
    assert elsewhere.probability < 0.06 < here.probability / 3
    assert here.score > nowhere.score > elsewhere.score
    assert any("another namespace" in one.sentence for one in elsewhere.evidence)
