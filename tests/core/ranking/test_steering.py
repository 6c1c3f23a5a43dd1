"""What a program began to do after it was changed, or was told to do, belongs to that change."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.model import Actor, ActorSource, Change, Json, ObjectState, Outcome, Path, Resource, Rollout, Verb
from app.core.ranking.steering import set_off
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

SCALER = Actor("system:serviceaccount:kube-system:cluster-autoscaler", ActorSource.AUDIT)
ARGO = Actor("system:serviceaccount:argocd:argocd-application-controller", ActorSource.AUDIT)
CONFIG = a_resource("ConfigMap", "cluster-autoscaler-config", "kube-system")
TAINTS = ("spec", "taints")


def the_scaler() -> list[ObjectState]:
    reads: Json = {"name": "c", "envFrom": [{"configMapRef": {"name": CONFIG.name}}]}
    deployment = a_resource("Deployment", "cluster-autoscaler", "kube-system")
    return [a_workload(deployment, serviceAccountName="cluster-autoscaler", containers=[reads])]


def taint(node: str, *, at: float) -> Change:
    return a_change(a_resource("Node", node, None), at=after(at), path=TAINTS, old=None, new=[], actor=SCALER)


def early() -> Change:
    return a_change(a_resource("ConfigMap", "other"), at=after(-100), path=("data", "x"))


def test_a_new_sort_of_write_belongs_to_what_configured_the_writer_anew() -> None:
    config = a_change(CONFIG, at=after(-30), path=("data", "threshold"))
    nodes = [taint("a", at=-20), taint("b", at=-10)]
    found = set_off([early(), config, *nodes], topology(the_scaler()))
    assert found == {node.id: config for node in nodes}


@pytest.mark.parametrize(("seconds", "waits"), [(800, True), (1_500, False)])
def test_what_takes_away_nodes_waits_until_they_have_not_been_needed_for_a_while(
    seconds: float, *, waits: bool
) -> None:
    config, then = a_change(CONFIG, at=after(-30), path=("data", "threshold")), taint("a", at=-30 + seconds)
    assert set_off([early(), config, then], topology(the_scaler())) == ({then.id: config} if waits else {})


def test_what_is_no_node_it_writes_at_once_or_for_another_reason() -> None:
    config = a_change(CONFIG, at=after(-30), path=("data", "threshold"))
    then = a_change(a_resource("ConfigMap", "status", "kube-system"), at=after(400), path=("data", "x"), actor=SCALER)
    assert set_off([early(), config, then], topology(the_scaler())) == {}


def test_where_it_waited_for_long_that_shows_what_is_new() -> None:
    """Nothing is known of before it was configured anew."""
    config, then = a_change(CONFIG, at=after(-30), path=("data", "threshold")), taint("a", at=600)
    assert set_off([config, then], topology(the_scaler())) == {then.id: config}


def test_what_it_always_did_is_its_own() -> None:
    config = a_change(CONFIG, at=after(-30), path=("data", "threshold"))
    before, then = taint("a", at=-50), taint("b", at=-20)
    assert set_off([early(), before, config, then], topology(the_scaler())) == {}


ISSUER = Actor("system:serviceaccount:cert-manager:cert-manager", ActorSource.AUDIT)
IMAGE = ("spec", "template", "spec", "containers", (("name", "c"),), "image")


@pytest.mark.parametrize(
    ("path", "kind", "is_seen", "follows"),
    [
        (IMAGE, "Secret", False, True),
        (IMAGE, "Secret", True, False),
        (IMAGE, "ConfigMap", False, False),
        (("spec", "template", "metadata", "annotations", "restartedAt"), "Secret", False, False),
    ],
    ids=["a new version", "what it wrote is seen", "no secret", "the same version"],
)
def test_what_a_new_version_writes_and_nobody_sees_belongs_to_it(
    path: Path, kind: str, *, is_seen: bool, follows: bool
) -> None:
    """A certificate is renewed as ever, but with another key."""
    issuer = a_resource("Deployment", "cert-manager", "cert-manager")
    writes = [
        a_change(a_resource(kind, "vault-cert"), at=after(at), path=("data", "tls.crt"), actor=ISSUER)
        for at in (-60, -10)
    ]
    before, then = writes if is_seen else (replace(write, diffs=()) for write in writes)
    release = a_change(issuer, at=after(-30), path=path)
    found = set_off([early(), before, release, then], topology([a_workload(issuer, serviceAccountName="cert-manager")]))
    assert found == ({then.id: release} if follows else {})


RELOADER = Actor("system:serviceaccount:platform:reloader", ActorSource.AUDIT)


@pytest.mark.parametrize(("objects", "habitual"), [(3, True), (12, False)])
def test_other_objects_than_ever_belong_to_what_changed_the_writer(objects: int, habitual: bool) -> None:
    def restart(name: str, *, at: float) -> Change:
        path = ("spec", "template", "metadata", "annotations", "restartedAt")
        return a_change(a_resource("Deployment", name), at=after(at), path=path, actor=RELOADER)

    program = a_resource("Deployment", "reloader", "platform")
    image = ("spec", "template", "spec", "containers", 0, "image")
    usual = [restart(f"web-{n % objects}", at=-90 + 4 * n) for n in range(12)]
    rollout = a_change(program, at=after(-30), path=image)
    then = [restart("web-0", at=-25), restart("engine", at=-20), restart("engine", at=-10)]
    states = [a_workload(program, serviceAccountName="reloader")]
    found = set_off([early(), *usual, rollout, *then], topology(states))
    assert found == (dict.fromkeys((one.id for one in then[1:]), rollout) if habitual else {})


@pytest.mark.parametrize(("made", "is_set_off"), [(8, False), (3, True)])
def test_what_a_program_makes_all_the_time_it_takes_away_in_time(made: int, *, is_set_off: bool) -> None:
    """Of a sign-up that makes trials, and takes each away when it is over."""
    trials = [a_resource("Trial", f"trial-{n}", "kube-system") for n in range(made + 1)]
    created = [a_change(one, at=after(-95 + n), verb=Verb.CREATE, actor=SCALER) for n, one in enumerate(trials[1:])]
    config = a_change(CONFIG, at=after(-30), path=("data", "page-size"))
    deleted = a_change(trials[0], at=after(-10), verb=Verb.DELETE, actor=SCALER)
    found = set_off([early(), *created, config, deleted], topology(the_scaler()))
    assert found == ({deleted.id: config} if is_set_off else {})


def test_what_a_tool_applies_all_the_time_it_takes_away_as_it_was_told() -> None:
    maps = [a_resource("ConfigMap", f"settings-{n}") for n in range(9)]
    created = [a_change(one, at=after(-95 + n), verb=Verb.CREATE, actor=ARGO) for n, one in enumerate(maps[1:])]
    config = a_change(a_resource("ConfigMap", "argocd-cm", "argocd"), at=after(-30), path=("data", "a"))
    deleted = a_change(maps[0], at=after(-10), verb=Verb.DELETE, actor=ARGO)
    controller = a_resource("StatefulSet", "argocd-application-controller", "argocd")
    reads: Json = {"name": "c", "envFrom": [{"configMapRef": {"name": "argocd-cm"}}]}
    states = [a_workload(controller, serviceAccountName=controller.name, containers=[reads])]
    assert set_off([early(), *created, config, deleted], topology(states)) == {deleted.id: config}


def test_a_window_that_just_began_cannot_say_what_is_new() -> None:
    config = a_change(CONFIG, at=after(-30), path=("data", "threshold"))
    assert set_off([config, taint("a", at=-20)], topology(the_scaler())) == {}


@pytest.mark.parametrize(
    ("namespace", "seconds", "told"), [("fares", 3, True), ("shop", 3, False), ("fares", 60, False)]
)
def test_an_order_names_where_it_is_carried_out(namespace: str, seconds: float, told: bool) -> None:
    application = Resource("lab", "argoproj.io", "Application", "argocd", "fares")
    state = a_state(application, {"spec": {"destination": {"namespace": "fares"}}})
    order = a_change(application, path=("spec", "source", "targetRevision"), old="v8", new="v7")
    synced = a_change(a_resource("Deployment", "engine", namespace), at=after(seconds), actor=ARGO)
    found = set_off([order, synced], topology([state]))
    assert found == ({synced.id: order} if told else {})


@pytest.mark.parametrize(("name", "told"), [("janitor-rules", True), ("janitor", True), ("janitors", False)])
def test_what_is_named_after_a_program_configures_it_though_nothing_says_so(name: str, told: bool) -> None:
    rules = a_change(a_resource("ConfigMap", name, "ops"), at=after(-30), path=("data", "rules.yaml"))
    janitor = Actor("system:serviceaccount:ops:janitor", ActorSource.AUDIT)
    gone = a_change(at=after(-25), path=(), verb=Verb.DELETE, actor=janitor)
    top = topology([a_workload(a_resource("Deployment", "janitor", "ops"), serviceAccountName="janitor")])
    assert set_off([early(), rules, gone], top) == ({gone.id: rules} if told else {})


def test_the_first_image_that_a_program_rolls_out_is_its_own_matter() -> None:
    config = a_change(CONFIG, at=after(-30), path=("data", "accounts.bob"))
    image = a_change(at=after(-20), actor=SCALER)
    assert set_off([early(), config, image], topology(the_scaler())) == {}
    assert set_off([early(), taint("a", at=-40), config, image], topology(the_scaler())) == {image.id: config}


def test_more_pods_of_a_program_are_no_new_program() -> None:
    more = a_change(
        a_resource("Deployment", "cluster-autoscaler", "kube-system"), at=after(-30), path=("spec", "replicas")
    )
    assert set_off([early(), more, taint("a", at=-20)], topology(the_scaler())) == {}


def test_a_program_that_stood_still_does_what_it_does_since_it_was_woken() -> None:
    deployment = a_resource("Deployment", "cluster-autoscaler", "kube-system")
    woken = a_change(deployment, at=after(-30), path=("spec", "replicas"), old=0, new=1)
    then = taint("a", at=-20)
    assert set_off([early(), woken, then], topology(the_scaler())) == {then.id: woken}


def test_what_acts_from_the_namespace_of_a_product_goes_by_all_of_it() -> None:
    server = a_resource("Deployment", "argocd-repo-server", "argocd")
    release = a_change(server, at=after(-20))
    pruned = a_change(a_resource("Service", "wish-lists"), at=after(-10), path=(), old={}, new=None, verb=Verb.DELETE)
    pruned = replace(pruned, actor=Actor("system:serviceaccount:argocd:application-sync", ActorSource.AUDIT))
    assert set_off([early(), release, pruned], topology([a_workload(server)])) == {pruned.id: release}


@pytest.mark.parametrize(("new", "is_its_own"), [(None, True), ("off", False)])
def test_what_a_new_version_of_an_agent_only_takes_out_is_its_own_doing(new: str | None, is_its_own: bool) -> None:
    """It sees to fields that it left alone before; what it sets anew somebody wrote elsewhere."""
    agent = a_resource("StatefulSet", "argocd-application-controller", "argocd")
    usual = a_change(a_resource("Deployment", "cart"), at=after(-40), actor=ARGO)
    release = a_change(agent, at=after(-20), path=IMAGE)
    path: Path = ("spec", "template", "spec", "containers", (("name", "c"),), "env", (("name", "LEGACY"),))
    then = a_change(a_resource("Deployment", "web"), at=after(-10), path=path, old="on", new=new, actor=ARGO)
    runs = [a_workload(agent, serviceAccountName="argocd-application-controller")]
    assert set_off([early(), usual, release, then], topology(runs)) == ({then.id: release} if is_its_own else {})


def test_who_applies_a_source_is_told_by_it() -> None:
    def flux(kind: str, name: str) -> Resource:
        return Resource("lab", f"{kind.lower()}.toolkit.fluxcd.io", kind, "search", name)

    source, applied = flux("GitRepository", "team"), flux("Kustomization", "apps")
    applier = a_resource("Deployment", "kustomization-controller", "flux-system")
    branch = a_change(source, at=after(-20), path=("spec", "ref", "branch"), old="main", new="release")
    pruned = a_change(a_resource("Service", "synonyms"), at=after(-17), path=(), old={}, new=None, verb=Verb.DELETE)
    pruned = replace(pruned, actor=Actor("system:serviceaccount:flux-system:applier", ActorSource.AUDIT))
    states = [
        a_workload(applier, serviceAccountName="applier"),
        a_state(source, {"spec": {"ref": {"branch": "release"}}}),
        a_state(applied, {"spec": {"sourceRef": {"kind": "GitRepository", "name": "team"}}}),
    ]
    assert set_off([early(), branch, pruned], topology(states)) == {pruned.id: branch}


def test_what_goes_on_is_not_put_down_to_what_came_in_between() -> None:
    config, other = (a_change(CONFIG, at=after(at), path=("data", f"x{at}")) for at in (-30, -15))
    nodes = [taint("a", at=-20), taint("b", at=-10)]
    gone = a_change(nodes[0].resource, at=after(-5), path=(), verb=Verb.DELETE, actor=SCALER)
    found = set_off([early(), config, nodes[0], other, nodes[1], gone], topology(the_scaler()))
    assert found == {change.id: config for change in (*nodes, gone)}


KARPENTER = Actor("system:serviceaccount:karpenter:karpenter", ActorSource.AUDIT)


@pytest.mark.parametrize(("pools", "told"), [(1, True), (6, False)])
def test_an_edit_of_one_of_few_custom_resources_is_a_setting_of_the_program_that_acts_on_them(
    pools: int, told: bool
) -> None:
    node = a_change(a_resource("Node", "n1", None), at=after(2), path=TAINTS, old=None, new=[], actor=KARPENTER)
    found = [Resource("lab", "karpenter.sh", "NodePool", None, f"pool-{n}") for n in range(pools)]
    edit = a_change(found[0], path=("spec", "disruption", "consolidateAfter"), old="10m", new="0s")
    program = a_workload(a_resource("Deployment", "karpenter", "karpenter"), serviceAccountName="karpenter")
    states = [program, *(a_state(pool, {"spec": {}}) for pool in found)]
    assert set_off([early(), edit, node], topology(states)) == ({node.id: edit} if told else {})


SECRETS = Actor("system:serviceaccount:external-secrets:external-secrets", ActorSource.AUDIT)


@pytest.mark.parametrize(
    ("name", "verb", "seconds", "told"),
    [
        ("db", Verb.UPDATE, 3, True),
        ("db", Verb.UPDATE, 60, False),
        ("db-20261121", Verb.CREATE, 60, True),
        ("db-20261121", Verb.UPDATE, 3, False),
        ("cache", Verb.UPDATE, 3, False),
    ],
)
def test_what_is_named_like_the_object_that_a_program_serves_follows_its_edit(
    name: str, verb: Verb, seconds: float, told: bool
) -> None:
    order = a_change(Resource("lab", "external-secrets.io", "ExternalSecret", "shop", "db"), path=("spec", "x"))
    program = a_resource("Deployment", "external-secrets", "external-secrets")
    top = topology([a_workload(program, serviceAccountName="external-secrets")])
    path = ("data", "password")
    usual = a_change(a_resource("Secret", "other"), at=after(-90), path=path, actor=SECRETS)
    made = a_change(a_resource("Secret", "other-1"), at=after(-90), verb=Verb.CREATE, actor=SECRETS)
    then = a_change(a_resource("Secret", name), at=after(seconds), path=path, verb=verb, actor=SECRETS)
    assert set_off([early(), usual, made, order, then], topology([])) == {}, "nobody is known to act on its kind"
    assert set_off([early(), usual, made, order, then], top) == ({then.id: order} if told else {})


def test_an_order_of_the_same_name_comes_before_one_whose_name_it_begins_with() -> None:
    def order(name: str, at: float, path: Path = ("spec", "x")) -> Change:
        return a_change(Resource("lab", "external-secrets.io", "ExternalSecret", "shop", name), at=after(at), path=path)

    program = a_resource("Deployment", "external-secrets", "external-secrets")
    top = topology([a_workload(program, serviceAccountName="external-secrets")])
    other, own = order("db", 2), order("db-replica", 0)
    made = a_change(a_resource("Secret", "db-replica"), at=after(3), verb=Verb.CREATE, actor=SECRETS)
    assert set_off([early(), own, other, made], top) == {made.id: own}
    assert set_off([early(), order("db", 2, ("metadata", "labels", "team")), made], top) == {}


def test_of_two_orders_for_one_namespace_the_one_of_that_name_is_carried_out() -> None:
    def order(name: str, at: float) -> Change:
        return a_change(
            Resource("lab", "argoproj.io", "Application", "argocd", name), at=after(at), path=("spec", "source")
        )

    orders = [order("web", 0), order("api", 1)]
    states = [a_state(one.resource, {"spec": {"destination": {"namespace": "shop"}}}) for one in orders]
    synced = a_change(a_resource("Deployment", "web"), at=after(3), actor=ARGO)
    assert set_off([*orders, synced], topology(states)) == {synced.id: orders[0]}


@pytest.mark.parametrize(
    ("name", "seconds", "told"), [("seismo", 90, True), ("siren", 90, False), ("seismo", 400, False)]
)
def test_what_a_program_hands_on_by_an_interval_is_known_by_its_name(name: str, seconds: float, told: bool) -> None:
    policy = Resource("lab", "image.toolkit.fluxcd.io", "ImagePolicy", "flux-system", "seismo")
    order = a_change(policy, path=("spec", "policy", "semver", "range"), old="2.x", new=">=2.0.0-0")
    flux = Actor("system:serviceaccount:flux-system:kustomize-controller", ActorSource.AUDIT)
    rolled_out = a_change(a_resource("Deployment", name, "quakes"), at=after(seconds), actor=flux)
    assert set_off([early(), order, rolled_out], topology([])) == ({rolled_out.id: order} if told else {})


def test_of_an_order_and_a_later_upgrade_the_program_does_what_it_never_did_for_the_upgrade() -> None:
    application = Resource("lab", "argoproj.io", "Application", "argocd", "web")
    order = a_change(application, path=("spec", "source", "targetRevision"), old="v8", new="v7")
    program = a_resource("StatefulSet", "argocd-application-controller", "argocd")
    upgrade = a_change(program, at=after(10))
    usual = a_change(a_resource("Deployment", "web"), at=after(5), actor=ARGO)
    pruned = a_change(a_resource("Service", "web"), at=after(20), path=(), verb=Verb.DELETE, actor=ARGO)
    found = set_off([early(), order, usual, upgrade, pruned], topology([a_workload(program)]))
    assert found == {usual.id: order, pruned.id: upgrade}


@pytest.mark.parametrize(("key", "told"), [("downscaler/uptime", True), ("cleaner/uptime", False), ("uptime", False)])
def test_an_annotation_with_a_programs_name_tells_it(key: str, told: bool) -> None:
    scaler = Actor("system:serviceaccount:finops:kube-downscaler", ActorSource.AUDIT)
    window = a_change(a_resource("Namespace", "learning", None), path=("metadata", "annotations", key))
    down = a_change(at=after(24), path=("spec", "replicas"), old=4, new=0, actor=scaler)
    program = a_workload(a_resource("Deployment", "kube-downscaler", "finops"), serviceAccountName="kube-downscaler")
    assert set_off([early(), window, down], topology([program])) == ({down.id: window} if told else {})


def test_what_was_made_so_before_the_edit_too_is_no_news() -> None:
    order = a_change(Resource("lab", "velero.io", "Schedule", "velero", "nightly"), path=("spec", "ttl"))
    velero = Actor("system:serviceaccount:velero:velero", ActorSource.AUDIT)
    program = a_workload(a_resource("Deployment", "velero", "velero"), serviceAccountName="velero")
    backups = [
        a_change(Resource("lab", "velero.io", "Backup", "velero", f"nightly-{n}"), at=after(at), verb=Verb.CREATE,
                 actor=velero)
        for n, at in enumerate((-20, 20))
    ]  # fmt: skip
    assert set_off([early(), backups[0], order, backups[1]], topology([program])) == {}


def test_nodes_that_a_misled_autoscaler_takes_away() -> None:
    config = a_change(CONFIG, at=after(-26), path=("data", "utilization-threshold"), old="0.5", new="1.1")
    workloads = [a_resource("Deployment", f"{team}-{n}", team) for team in ("search", "media") for n in range(4)]
    ranking = ranked(
        config,
        *(taint(f"node-{n}", at=-20 + 3 * n) for n in range(4)),
        incident=an_incident(an_alert(after(30), name="KubePodsPending", message="pods wait for a node")),
        symptoms=[a_symptom(one, "Unschedulable", at=after(-8 + n), count=4) for n, one in enumerate(workloads)],
        states=[*the_scaler(), *(a_workload(one) for one in workloads)],
    )
    assert first(ranking) == ("ConfigMap", CONFIG.name)
    assert any("cluster-autoscaler followed it: 4 writes of Nodes" in e.sentence for e in ranking.suspects[0].evidence)
    assert len(ranking.suspects[0].derived) == 4
    assert all(s.change.resource.kind != "Node" for s in ranking.suspects)


def test_pods_that_were_well_may_have_done_harm_by_what_they_wrote() -> None:
    scaler, web = a_resource("Deployment", "autoscaler", "media"), a_resource("Deployment", "player", "media")
    bump, actor = (
        a_change(scaler, at=after(-100)),
        Actor("system:serviceaccount:media:autoscaler", ActorSource.AUDIT),
    )
    gone = replace(a_change(a_resource("Node", "n1", None), at=after(-12), actor=actor), verb=Verb.DELETE, diffs=())
    ranking = ranked(
        bump,
        gone,
        incident=an_incident(an_alert(after(30), name="KubePodNotReady", namespace="media", deployment="player")),
        symptoms=[a_symptom(web, "Unready", at=after(-10), count=8)],
        states=[a_workload(web), a_workload(scaler, serviceAccountName="autoscaler")],
        rollouts=[Rollout(scaler, "u", 2, after(-100), Outcome.COMPLETE, after(-94), bump.id)],
    )
    (against,) = [e.weight for s in ranking.suspects for e in s.evidence if s.change == bump and e.rule == "rollout"]
    assert -1.3 < against < -1.0


@pytest.mark.parametrize("writes", [True, False])
def test_a_program_that_is_new_and_writes_what_others_had_is_not_what_was_done_without(writes: bool) -> None:
    added, cache = a_resource("Deployment", "cache-operator"), a_resource("StatefulSet", "cache")
    actor = Actor("system:serviceaccount:shop:cache-operator", ActorSource.AUDIT)
    checksum = ("spec", "template", "metadata", "annotations", "checksum")
    acts = [a_change(cache, at=after(-3), path=checksum, actor=actor)] if writes else []
    ranking = ranked(
        early(),
        a_change(added, at=after(-5), path=(), old=None, verb=Verb.CREATE),
        *acts,
        incident=an_incident(an_alert(after(30), name="Errors", namespace="shop")),
        symptoms=[a_symptom(cache, "Unhealthy", at=after(-1), count=4)],
        states=[a_workload(cache), a_workload(added, serviceAccountName="cache-operator")],
    )
    [suspect] = [one for one in ranking.suspects if one.change.resource == added]
    [weight] = [one.weight for one in suspect.evidence if one.rule == "kind of change"]
    assert (weight > 0) is writes
