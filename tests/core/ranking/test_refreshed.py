"""What an operator fetches or signs anew belongs to the edit that told it where from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.model import Actor, ActorSource, Change, Json, ObjectState, Path, Resource
from app.core.ranking.steering import set_off
from tests.core.company import ranked
from tests.core.factories import CI, a_change, a_resource, a_state, a_symptom, a_workload, after, an_alert, an_incident

EXTERNAL = "external-secrets.io"
FETCHER = Actor("system:serviceaccount:external-secrets:external-secrets", ActorSource.AUDIT)
ISSUING = Actor("system:serviceaccount:cert-manager:cert-manager", ActorSource.AUDIT)
RELOADER = Actor("system:serviceaccount:reloader:reloader", ActorSource.AUDIT)
API = a_resource("Deployment", "api")
PASSWORD = a_resource("Secret", "db-login")
CERTIFICATE = a_resource("Secret", "api-tls")
STORE = Resource("lab", EXTERNAL, "ClusterSecretStore", None, "vault")
ISSUER = Resource("lab", "cert-manager.io", "ClusterIssuer", None, "house-ca")


def states(*more: ObjectState) -> list[ObjectState]:
    """Of what is fetched nothing is known but its name; of what is signed, all of it."""
    reads: Json = [{"secretRef": {"name": one.name}} for one in (PASSWORD, CERTIFICATE)]
    signed: Json = {"secretName": CERTIFICATE.name, "issuerRef": {"kind": "ClusterIssuer", "name": ISSUER.name}}
    return [
        a_workload(API, containers=[{"name": "c", "envFrom": reads}]),
        a_state(STORE, {"spec": {"provider": {"vault": {"path": "kv-stage"}}}}),
        a_state(Resource("lab", EXTERNAL, "ExternalSecret", "shop", PASSWORD.name), {"spec": "<redacted>"}),
        a_state(ISSUER, {"spec": {"ca": {"secretName": "root-2025"}}}),
        a_state(Resource("lab", "cert-manager.io", "Certificate", "shop", "api"), {"spec": signed}),
        *more,
    ]


def edit(resource: Resource, *, at: float = -5_000, actor: Actor = CI) -> Change:
    return a_change(resource, at=after(at), path=("spec", "provider", "path"), old="a", new="b", actor=actor)


def write(secret: Resource, actor: Actor, *, at: float = -40) -> Change:
    return a_change(secret, at=after(at), path=("data", "x"), old="#1", new="#2", actor=actor)


def followed(*changes: Change, also: Sequence[ObjectState] = ()) -> dict[str, Change]:
    return set_off(list(changes), topology(states(*also)))


@pytest.mark.parametrize(
    ("told", "secret", "actor"), [(STORE, PASSWORD, FETCHER), (ISSUER, CERTIFICATE, ISSUING)], ids=["store", "issuer"]
)
def test_the_first_write_since_belongs_to_the_edit(told: Resource, secret: Resource, actor: Actor) -> None:
    usual, then, again = (write(secret, actor, at=at) for at in (-9_000, -40, -20))
    order = edit(told)
    assert followed(usual, order, then, again) == {then.id: order}


OTHERS = Actor("system:serviceaccount:backup:restorer", ActorSource.AUDIT)


@pytest.mark.parametrize(
    ("order", "then"),
    [
        (edit(STORE), write(PASSWORD, OTHERS)),
        (edit(STORE, actor=FETCHER), write(PASSWORD, FETCHER)),
        (edit(ISSUER), write(PASSWORD, FETCHER)),
        (edit(replace(ISSUER, name="other-ca")), write(CERTIFICATE, ISSUING)),
        (edit(STORE), write(a_resource("Secret", "elsewhere"), FETCHER)),
        (a_change(STORE, at=after(-5_000), path=("metadata", "labels", "x")), write(PASSWORD, FETCHER)),
    ],
    ids=["by another", "by itself", "of another program", "of another issuer", "not filled by it", "only a label"],
)
def test_what_it_was_not_made_by_is_not_behind_it(order: Change, then: Change) -> None:
    assert followed(order, then) == {}


def test_of_many_stores_none_is_the_one_where_it_is_not_known_which() -> None:
    more = [a_state(replace(STORE, name=f"vault-{number}"), {"spec": {}}) for number in range(6)]
    assert followed(edit(STORE), write(PASSWORD, FETCHER), also=more) == {}


HASH: Path = (
    "spec",
    "template",
    "spec",
    "containers",
    (("name", "c"),),
    "env",
    (("name", "STAKATER_DB_LOGIN_SECRET"),),
)
RESTARTED: Path = ("spec", "template", "metadata", "annotations", "reloader.stakater.com/last-reloaded-from")
IMAGE: Path = ("spec", "template", "spec", "containers", (("name", "c"),), "image")


@pytest.mark.parametrize(
    ("path", "seconds", "actor", "belongs"),
    [
        (HASH, 3, RELOADER, True),
        (RESTARTED, 3, RELOADER, True),
        (RESTARTED, 90, RELOADER, False),
        (RESTARTED, 3, CI, False),
        (IMAGE, 3, RELOADER, False),
    ],
    ids=["a variable", "an annotation", "long after", "a person", "an image"],
)
def test_the_restart_of_what_reads_it_belongs_to_the_edit(
    path: Path, seconds: float, actor: Actor, *, belongs: bool
) -> None:
    by_hand = write(PASSWORD, CI)
    restart = a_change(API, at=after(-40 + seconds), path=path, old=None, new="x", actor=actor)
    assert followed(by_hand, restart) == ({restart.id: by_hand} if belongs else {})


def test_it_leads_before_its_program_and_is_dated_by_what_that_did() -> None:
    order, then = edit(STORE), write(PASSWORD, FETCHER)
    restart = a_change(API, at=after(-38), path=HASH, old=None, new="x", actor=RELOADER)
    ranking = ranked(
        order,
        then,
        restart,
        incident=an_incident(an_alert(after(30), name="KubePodCrashLooping", namespace="shop", deployment="api")),
        symptoms=[a_symptom(API, "Error", at=after(0), message="ended: Access denied for user 'stage'", count=4)],
        states=states(),
    )
    first = ranking.suspects[0]
    assert (first.change.id, set(first.derived)) == (order.id, {then.id, restart.id})
    assert any(one.sentence.startswith("external-secrets first acted on it 4") for one in first.evidence)
