"""What a program does just after an edit of what it reads over the API, or with the words of an edit in it, follows
from that edit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.counted import Calls
from app.core.edges.indexing import topology
from app.core.model import Actor, ActorSource, Change, FieldDiff, Json, ObjectState, Path, Resource, Verb
from app.core.ranking.permitted import may_read
from app.core.ranking.steering import set_off
from tests.core.factories import a_change, a_resource, a_state, a_workload, after, calls

OPERATOR = Actor("system:serviceaccount:platform:machine-operator", ActorSource.AUDIT)
PULL = a_resource("Secret", "pull-secret", "kube-system")
CORDON = ("spec", "unschedulable")


def early(at: float = -100) -> Change:
    return a_change(a_resource("ConfigMap", "other"), at=after(at), path=("data", "x"))


def cordon(*, at: float) -> Change:
    return a_change(a_resource("Node", "n1", None), at=after(at), path=CORDON, old=None, new=True, actor=OPERATOR)


def reads(user: str = OPERATOR.name, *, resource: str = "secrets", namespace: str = "kube-system") -> Calls:
    return Calls.of(calls(user, "get", resource, rate=1, namespace=namespace))


@pytest.mark.parametrize(
    ("seconds", "namespace", "heard"), [(3, "kube-system", True), (30, "kube-system", False), (3, "shop", False)]
)
def test_what_a_program_never_did_follows_from_the_edit_that_it_just_read(
    seconds: float, namespace: str, heard: bool
) -> None:
    written, then = a_change(PULL, at=after(0), path=("data", "auth")), cordon(at=seconds)
    found = set_off([early(), written, then], topology([], reads(namespace=namespace)))
    assert found == ({then.id: written} if heard else {})


@pytest.mark.parametrize(("seconds", "by_itself"), [(-4, True), (-40, False)])
def test_what_it_does_as_it_starts_follows_from_its_own_rollout(seconds: float, by_itself: bool) -> None:
    program = a_resource("Deployment", "machine-operator", "platform")
    anew, written = a_change(program, at=after(seconds)), a_change(PULL, at=after(0), path=("data", "auth"))
    then = cordon(at=3)
    top = topology([a_workload(program, serviceAccountName="machine-operator")], reads())
    changes = sorted([early(), anew, written, then], key=lambda change: change.at)
    assert set_off(changes, top) == {then.id: anew if by_itself else written}


def test_what_many_programs_read_is_told_to_none_in_particular() -> None:
    others = [f"system:serviceaccount:platform:agent-{n}" for n in range(4)]
    counts = [one for user in (OPERATOR.name, *others) for one in reads(user)]
    written, then = a_change(PULL, at=after(0), path=("data", "auth")), cordon(at=3)
    assert set_off([early(), written, then], topology([], Calls.of(counts))) == {}


def test_an_edit_that_comes_all_the_time_comes_by_chance() -> None:
    maps = [a_change(a_resource("ConfigMap", f"m{n}"), at=after(-60 + 4 * n), path=("data", "x")) for n in range(15)]
    top = topology([], reads(resource="configmaps", namespace=""))
    assert set_off([early(), *maps, cordon(at=0)], top) == {}
    assert set_off([early(), maps[-1], then := cordon(at=0)], top) == {then.id: maps[-1]}


def test_what_it_does_anyway_follows_from_nothing() -> None:
    before, written = cordon(at=-50), a_change(PULL, at=after(0), path=("data", "auth"))
    assert set_off([early(), before, written, cordon(at=3)], topology([], reads())) == {}


SIZE: Path = (
    *("spec", "versions", (("name", "v1"),), "schema", "openAPIV3Schema"),
    *("properties", "spec", "properties", "size"),
)


@pytest.mark.parametrize(
    ("kind", "name", "path", "seconds", "heard"),
    [
        ("CustomResourceDefinition", "machines.fleet.example", (*SIZE, "default"), 3, True),
        ("CustomResourceDefinition", "machines.fleet.example", (*SIZE, "default"), 30, False),
        ("CustomResourceDefinition", "machines.fleet.example", (*SIZE, "maximum"), 3, False),
        ("CustomResourceDefinition", "machines.other.example", (*SIZE, "default"), 3, False),
        ("CustomResourceDefinition", "pools.fleet.example", (*SIZE, "default"), 3, False),
        ("ConfigMap", "machines.fleet.example", ("data", "default"), 3, False),
    ],
    ids=["a default", "much earlier", "a limit", "of another group", "of another kind", "another object"],
)
def test_a_default_of_a_definition_is_heard_by_who_reads_its_kind(
    kind: str, name: str, path: Path, seconds: float, *, heard: bool
) -> None:
    written, then = a_change(a_resource(kind, name, None), at=after(0), path=path), cordon(at=seconds)
    machines = Calls.of(calls(OPERATOR.name, "watch", "machines", rate=1, group="fleet.example"))
    assert set_off([early(), written, then], topology([], machines)) == ({then.id: written} if heard else {})


def test_so_is_a_new_field_that_has_one() -> None:
    definition = a_resource("CustomResourceDefinition", "machines.fleet.example", None)
    written = a_change(definition, at=after(0), path=SIZE, old=None, new={"type": "integer", "default": 3})
    machines = Calls.of(calls(OPERATOR.name, "watch", "machines", rate=1, group="fleet.example"))
    then = cordon(at=3)
    assert set_off([early(), written, then], topology([], machines)) == {then.id: written}


def access(verbs: list[Json]) -> list[ObjectState]:
    role, binding = (a_resource(kind, "machine-operator", None) for kind in ("ClusterRole", "ClusterRoleBinding"))
    account: Json = {"kind": "ServiceAccount", "name": "machine-operator", "namespace": "platform"}
    return [
        a_workload(a_resource("Deployment", "machine-operator", "platform"), serviceAccountName="machine-operator"),
        a_state(role, {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]}),
        a_state(binding, {"roleRef": {"kind": "ClusterRole", "name": role.name}, "subjects": [account]}),
    ]


@pytest.mark.parametrize(("verbs", "may"), [(["get"], True), (["*"], True), (["update"], False)])
def test_without_an_audit_log_rights_say_who_may_read(verbs: list[Json], may: bool) -> None:
    assert may_read(topology(access(verbs))) == ({("", "secrets", ""): {OPERATOR.name}} if may else {})


FLUX = Actor("system:serviceaccount:flux-system:kustomize-controller", ActorSource.AUDIT)
HOST: Path = ("spec", "template", "spec", "containers", (("name", "web"),), "env", (("name", "PGHOST"),), "value")


@pytest.mark.parametrize(
    ("host", "seconds", "actor", "told"),
    [
        ("orders.db.internal.example", 90, FLUX, True),
        ("orders.db.int.example", 90, FLUX, False),
        ("orders.db.internal.example", 400, FLUX, False),
        ("orders.db.internal.example", 90, Actor("alice", ActorSource.AUDIT), False),
    ],
)
def test_what_a_program_renders_follows_from_the_edit_whose_words_are_in_it(
    host: str, seconds: float, actor: Actor, told: bool
) -> None:
    variables = a_resource("ConfigMap", "cluster-vars", "flux-system")
    edit = a_change(variables, path=("data", "DB"), old="db.int.example", new="db.internal.example")
    old = "orders.db.int.example.old"
    then = a_change(at=after(seconds), path=HOST, old=old, new=host, actor=actor)
    assert set_off([early(), edit, then], topology([])) == ({then.id: edit} if told else {})


@pytest.mark.parametrize(("host", "told"), [("db.internal.example", True), ("db.other.example", False)])
def test_what_a_program_no_longer_writes_follows_from_the_edit_that_took_it_away(host: str, told: bool) -> None:
    """A variable got another name, so that what is rendered falls back to something else."""
    variables, renamed = a_resource("ConfigMap", "cluster-vars", "flux-system"), "db.internal.example"
    edit = a_change(variables, path=("data", "DB"), old=renamed, new=None)
    edit = replace(edit, diffs=(*edit.diffs, FieldDiff(("data", "database"), "add", None, renamed)))
    then = a_change(at=after(9), path=HOST, old=f"https://{host}", new="https://sandbox.example", actor=FLUX)
    assert set_off([early(), edit, then], topology([])) == ({then.id: edit} if told else {})


@pytest.mark.parametrize(
    ("name", "new", "seconds", "copied"),
    [
        ("roots", "<redacted:d4117608>", 2, True),
        ("roots", "<redacted:eb55031e>", 2, False),
        ("leaves", "<redacted:d4117608>", 2, False),
        ("roots", "<redacted:d4117608>", 400, False),
    ],
    ids=["a copy", "other words", "another name", "much later"],
)
def test_what_a_program_copies_elsewhere_follows_from_the_edit(
    name: str, new: str, seconds: float, copied: bool
) -> None:
    old, path = "<redacted:00000001>", ("data", "roots.pem")
    source = a_change(
        a_resource("ConfigMap", "roots", "cert-manager"), path=path, old=old, new="<redacted:d4117608>", actor=FLUX
    )
    copy = a_change(a_resource("ConfigMap", name), at=after(seconds), path=path, old=old, new=new, actor=OPERATOR)
    usual = a_change(a_resource("ConfigMap", "x"), at=after(-40), path=path, old=old, new=old, actor=OPERATOR)
    assert set_off([early(), usual, source, copy], topology([])) == ({copy.id: source} if copied else {})


def test_a_host_that_stood_there_before_was_not_brought_by_the_edit() -> None:
    mirror = a_resource("ConfigMap", "mirrors", "flux-system")
    edit = a_change(mirror, path=("data", "MIRROR"), old="", new="registry.corp.example")
    image: Path = ("spec", "template", "spec", "containers", (("name", "web"),), "image")
    old, new = "registry.corp.example/shop/web:1", "registry.corp.example/shop/web:2"
    usual = a_change(at=after(-50), path=image, old=old, new=old, actor=FLUX)
    rolled_out = a_change(at=after(9), path=image, old=old, new=new, actor=FLUX)
    moved = a_change(at=after(9), path=image, old="hub.example/shop/web:1", new=new, actor=FLUX)
    assert set_off([early(), usual, edit, rolled_out], topology([])) == {}
    assert set_off([early(), usual, edit, moved], topology([])) == {moved.id: edit}


def test_what_was_rendered_before_is_no_news() -> None:
    edit = a_change(
        a_resource("ConfigMap", "vars", "flux-system"), path=("data", "DB"), old="", new="db.internal.example"
    )
    env: Json = [{"name": "PGHOST", "value": "db.internal.example"}]
    more: Json = [{"name": "PGHOST", "value": "db.internal.example"}, {"name": "DEBUG", "value": "1"}]
    then = a_change(at=after(9), path=(*HOST[:6],), old=env, new=more, actor=FLUX)
    assert set_off([early(), edit, then], topology([])) == {}


ARGO = Actor("system:serviceaccount:argocd:argocd-application-controller", ActorSource.AUDIT)
KINDS = ("Deployment", "Service", "ConfigMap", "Secret", "Job", "CronJob", "StatefulSet", "DaemonSet", "Ingress")


@pytest.mark.parametrize(
    ("name", "sorts", "kin"), [("argocd-repo-server", 1, True), ("dex", 1, False), ("argocd-repo-server", 9, False)]
)
def test_what_is_of_the_same_product_tells_a_program_what_to_write(name: str, sorts: int, kin: bool) -> None:
    """Where it applies what people wrote, of which each may be of another sort, that is news only if it hardly is."""
    server = a_resource("Deployment", name, "argocd")
    stamp: Path = ("spec", "template", "metadata", "annotations", "timestamp")
    usual = [
        a_change(a_resource(KINDS[number % sorts], "x"), at=after(-90 + number), actor=ARGO, path=("spec", "x"))
        for number in range(20 if sorts == 1 else sorts)
    ]
    upgrade, then = a_change(server, at=after(-10)), a_change(at=after(-5), actor=ARGO, path=stamp)
    found = set_off([early(), *usual, upgrade, then], topology([a_workload(server)]))
    assert found == ({then.id: upgrade} if kin else {})


@pytest.mark.parametrize(("group", "told"), [("monitoring.coreos.com/v1", True), ("apps/v1", False)])
def test_the_first_image_of_what_a_custom_resource_owns_is_its_operators_decision(group: str, told: bool) -> None:
    operator = a_resource("Deployment", "prom-operator", "ops")
    owned = a_resource("StatefulSet", "prometheus-infra", "ops")
    state = a_state(owned, {"metadata": {"name": owned.name, "ownerReferences": [{"apiVersion": group}]}})
    actor = Actor("system:serviceaccount:ops:prom-operator", ActorSource.AUDIT)
    upgrade, image = a_change(operator, at=after(-40)), a_change(owned, at=after(-20), actor=actor)
    top = topology([a_workload(operator, serviceAccountName="prom-operator"), state])
    assert set_off([early(), upgrade, image], top) == ({image.id: upgrade} if told else {})


def test_a_programs_own_object_tells_it_nothing() -> None:
    own = Resource("lab", "", "Secret", "kube-system", PULL.name)
    first = a_change(own, at=after(0), path=("data", "auth"), actor=OPERATOR)
    then = a_change(own, at=after(3), path=("data", "other"), actor=OPERATOR, verb=Verb.UPDATE)
    assert set_off([early(), first, then], topology([], reads())) == {}


def test_what_a_program_writes_down_of_itself_configures_nothing() -> None:
    scaler = Actor("system:serviceaccount:kube-system:cluster-autoscaler", ActorSource.AUDIT)
    program = a_workload(
        a_resource("Deployment", "cluster-autoscaler", "kube-system"), serviceAccountName="cluster-autoscaler"
    )
    status = a_resource("ConfigMap", "cluster-autoscaler-status", "kube-system")
    usual = a_change(status, at=after(-50), path=("data", "seen"), actor=scaler)
    written = a_change(status, at=after(-3), path=("data", "seen"), actor=scaler)
    tainted = a_change(a_resource("Node", "n1", None), at=after(0), path=("spec", "taints"), actor=scaler)
    assert set_off([early(), usual, written, tainted], topology([program])) == {}
    by_alice = replace(written, actor=Actor("alice", ActorSource.AUDIT))
    assert set_off([early(), usual, by_alice, tainted], topology([program])) == {tainted.id: by_alice}


def test_what_comes_in_one_go_is_heard_once() -> None:
    top = topology([], reads())
    secrets = [a_resource("Secret", f"machine-{n}", "kube-system") for n in range(6)]
    gone = [replace(a_change(one, at=after(n / 100)), verb=Verb.DELETE) for n, one in enumerate(secrets)]
    then = cordon(at=1)
    assert set_off([early(), *gone, then], top) == {then.id: gone[-1]}
    spread = [replace(one, at=after(4 * n - 20)) for n, one in enumerate(gone)]
    assert set_off([early(-40), *spread, cordon(at=1)], top) == {}
