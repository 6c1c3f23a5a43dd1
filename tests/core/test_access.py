"""From a person and their groups to a role and a scope: nothing that no grant gives."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest

from app.core.access import Access, Granted, Identity, Impersonation
from app.core.roles import Role, Scope

ACCESS = msgspec.convert(
    {
        "groups": {
            "sre": {"role": "admin"},
            "everybody": {"role": "viewer"},
            "shop": {"role": "responder", "scopes": ["prod/shop"]},
            "cart": {"role": "responder", "scopes": ["prod/cart", "stage"]},
            "leads": {"role": "responder"},
        },
        "users": {"alice@example.com": {"role": "viewer", "scopes": ["stage"]}},
    },
    Access,
)


@pytest.mark.parametrize(
    ("user", "groups", "role", "scopes"),
    [
        ("bob", ["sre"], Role.ADMIN, None),
        ("bob", ["shop"], Role.RESPONDER, ["prod/shop"]),
        ("bob", ["shop", "cart"], Role.RESPONDER, ["prod/cart", "prod/shop", "stage"]),
        ("bob", ["shop", "leads"], Role.RESPONDER, None),
        ("bob", ["everybody", "shop"], Role.RESPONDER, ["prod/shop"]),
        ("bob", ["cart", "sre", "unknown"], Role.ADMIN, None),
        ("alice@example.com", [], Role.VIEWER, ["stage"]),
        ("alice@example.com", ["everybody"], Role.VIEWER, None),
    ],
)
def test_the_highest_role_counts_where_grants_of_that_role_reach(
    user: str, groups: list[str], role: Role, scopes: list[str] | None
) -> None:
    for order in (groups, groups[::-1]):
        assert ACCESS.of(user, order) == Granted(role, None if scopes is None else Scope.parse(scopes))


@pytest.mark.parametrize(("user", "groups"), [("bob", []), ("bob", ["SRE", "sre ", ""]), ("Alice@example.com", ["x"])])
def test_who_is_not_named_to_the_letter_gets_nothing(user: str, groups: list[str]) -> None:
    assert ACCESS.of(user, groups) is None
    assert Access().of(user, groups) is None


def test_several_groups_never_reach_where_none_of_them_does() -> None:
    names = list(ACCESS.groups)
    for chosen in product([False, True], repeat=len(names)):
        groups = [name for name, is_in in zip(names, chosen, strict=True) if is_in]
        found = ACCESS.of("bob", groups)
        single = [one for name in groups if (one := ACCESS.of("bob", [name]))]
        if found is None:
            assert not single
            continue
        at_least = [one for one in single if list(Role).index(one.role) >= list(Role).index(found.role)]
        if found.scope is None:
            assert any(one.scope is None for one in at_least)
        else:
            assert found.scope.places == {place for one in at_least if one.scope for place in one.scope.places}


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"groups": {"sre": {"role": "root"}}}, "Invalid enum value 'root'"),
        ({"groups": {"sre": {}}}, "missing required field `role`"),
        ({"groups": {"sre": {"role": "admin", "scope": ["prod"]}}}, "unknown field `scope`"),
        ({"groups": {"sre": {"role": "admin", "scopes": []}}}, "leave it out"),
        ({"groups": {"sre": {"role": "admin", "scopes": ["prod/Shop"]}}}, "cannot be a namespace"),
        ({"groups": {"": {"role": "admin"}}}, "length >= 1"),
        ({"group": {}}, "unknown field `group`"),
    ],
)
def test_what_cannot_be_meant_is_refused(written: Any, why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        msgspec.convert(written, Access)


ALICE = Identity("alice@example.com", ("sre", "staff"))


def test_a_person_is_known_in_a_cluster_by_its_own_names() -> None:
    plain = Impersonation(kubeconfig="/k")
    assert plain.of(ALICE) == ALICE
    oidc = Impersonation(kubeconfig="/k", user_prefix="oidc:", groups_prefix="g:", groups=("sre", "ops"))
    assert oidc.of(ALICE) == Identity("oidc:alice@example.com", ("g:sre",))
    assert Impersonation(kubeconfig="/k", groups=()).of(ALICE).groups == ()


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("system:admin", ()),
        ("system:serviceaccount:kube-system:default", ()),
        ("eve", ("system:masters",)),
        (" eve", ()),
        ("eve", ("sre ",)),
        ("eve\r\nImpersonate-Group: system:masters", ()),
        ("eve", ("sre\n",)),
    ],
)
def test_nobody_becomes_what_kubernetes_keeps_for_itself(name: str, groups: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"keeps for itself|cannot be said"):
        Impersonation(kubeconfig="/k").of(Identity(name, groups))
    if name.startswith("system:"):
        kept = Impersonation(kubeconfig="/k", user_prefix="oidc:").of(Identity(name, groups))
        assert kept.name == f"oidc:{name}"


@pytest.mark.parametrize("wrong", [{}, {"kubeconfig": "relative"}, {"kubeconfig": "/k", "user": "root"}])
def test_a_way_without_its_credential_is_none(wrong: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Impersonation)
