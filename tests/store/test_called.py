"""Which calls a name is of: kubectl's, custom ones too; and what is neither known nor was called is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace as changed
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.counted import Calls
from app.core.model import Batch, CallCount, Resource
from app.core.roles import Scope
from app.store import calls
from app.store.called import UnknownResourceError, calls_of
from app.store.database import Database
from app.store.reach import AUDIT_LOG
from app.store.record import record
from app.store.seen import Seen, read_seen
from tests.store.factories import NOON, a_call_key, a_change, a_state
from tests.store.test_scope import limited

SHOP, OTHER, SILENT = "shop", "other", "silent"
CALLED = {
    ("", "pods"), ("", "pods/status"), ("", "serviceaccounts"), ("apps", "deployments"), ("apps", "deployments/scale"),
    ("shop.example", "widgets"), ("shop.example", "teas/status"), ("", "/healthz"),
}  # fmt: skip
"""What was called: the Widget is defined by what is recorded, the Tea is not."""
DEFINED = {"group": "shop.example", "names": {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]}}

OTHERS = {
    "brews": {"group": "shop.example", "names": {"kind": "Brew", "plural": "brews", "shortNames": None}},
    "halves": {"group": "shop.example", "names": ["Half"]},
    "voids": None,
}
"""Of other definitions, by plural: what nobody is called by for short, and what is none."""


@pytest.fixture(scope="module", autouse=True)
async def _filled(database: Database) -> None:
    crd = Resource(SHOP, "apiextensions.k8s.io", "CustomResourceDefinition", None, "widgets.shop.example")
    gadget = Resource(SHOP, "shop.example", "Gadget", "payments", "one")
    async with database.write.begin() as conn:
        for cluster, called in ((SHOP, CALLED), (OTHER, {("other.example", "secretsauces")})):
            counts = tuple(_count(group, resource) for group, resource in sorted(called))
            await record(conn, Batch(cluster, calls=counts, read_to=((AUDIT_LOG, NOON),)))
        objects = (a_state(resource=crd, state={"spec": DEFINED}), a_state(resource=gadget, uid="u-2"))
        others = [
            a_state(resource=changed(crd, name=f"{plural}.shop.example"), uid=plural, state={"spec": spec})
            for plural, spec in OTHERS.items()
        ]
        await record(conn, Batch(SHOP, objects=(*objects, *others)))
        await record(conn, Batch(SILENT, changes=(a_change(resource=changed(gadget, cluster=SILENT)),)))


def _count(group: str, resource: str) -> CallCount:
    return CallCount(changed(a_call_key(), api_group=group, resource=resource), int(NOON.timestamp()), 1, 900)


async def named(database: Database, word: str | None, cluster: str = SHOP) -> set[str]:
    """The resources whose calls are shown."""
    async with database.read.connect() as conn:
        found = await calls_of(conn, cluster, await _all(conn, cluster), word, seen=await _seen(conn, cluster))
    return {key.resource for key in found.keys}


async def _all(conn: AsyncConnection, cluster: str) -> Calls:
    return await calls.read(conn, cluster, NOON - timedelta(minutes=1), NOON + timedelta(minutes=1))


async def _seen(conn: AsyncConnection, cluster: str) -> Seen:
    return await read_seen(conn, cluster, from_at=None, to_at=None)


@pytest.mark.parametrize(
    ("word", "of"),
    [
        (None, {resource for _, resource in CALLED}),
        ("serviceaccounts", {"serviceaccounts"}),
        ("serviceaccount", {"serviceaccounts"}),
        ("ServiceAccounts", {"serviceaccounts"}),
        ("ServiceAccount", {"serviceaccounts"}),
        ("sa", {"serviceaccounts"}),
        ("SA", {"serviceaccounts"}),
        ("deploy", {"deployments"}),
        ("deploy.apps", {"deployments"}),
        ("deployments.apps", {"deployments"}),
        ("po", {"pods"}),
        ("pods/status", {"pods/status"}),
        ("Pod/status", {"pods/status"}),
        ("deploy/scale", {"deployments/scale"}),
        ("deployments.apps/scale", {"deployments/scale"}),
        ("deployments/scale.apps", {"deployments/scale"}),
        ("widgets", {"widgets"}),
        ("Widget", {"widgets"}),
        ("wd", {"widgets"}),
        ("wd.shop.example", {"widgets"}),
        ("tea/status", {"teas/status"}),
        ("/healthz", {"/healthz"}),
    ],
)
async def test_a_name_leads_to_its_resource(database: Database, word: str | None, of: set[str]) -> None:
    assert await named(database, word) == of


@pytest.mark.parametrize(
    "word", ["nodes", "no", "pods/exec", "gadget", "gadgets", "tea", "/livez", "secretsauces", "Brew", "halves"]
)
async def test_nobody_called_for_what_is_known(database: Database, word: str) -> None:
    """Also what was called at another time: here in another cluster, of which everything may be read."""
    assert await named(database, word) == set()


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("serviceacounts", "serviceaccounts"),
        ("deploymnt", "deployments"),
        ("deployments.shop.example", "deployments"),
        ("widgtes", "widgets"),
        ("gadgetss", "gadgets"),
        ("pod/staus", "pods/status"),
    ],
)
async def test_what_is_not_known_is_refused_with_the_nearest(database: Database, word: str, nearest: str) -> None:
    with pytest.raises(UnknownResourceError, match=f"no resource {word!r} is known") as refused:
        await named(database, word)
    assert nearest in str(refused.value).partition("; the nearest: ")[2].split(", ")


async def test_without_an_audit_log_nothing_is_refused(database: Database) -> None:
    assert await named(database, "unicorns", SILENT) == set()


async def test_what_other_clusters_were_asked_for_is_not_told(database: Database) -> None:
    async with limited(database, Scope.parse([SHOP])) as conn:
        seen, heard = await _seen(conn, SHOP), await _all(conn, SHOP)
        assert len(await calls_of(conn, SHOP, heard, "deploy", seen=seen)) == 1
        with pytest.raises(UnknownResourceError) as refused:
            await calls_of(conn, SHOP, heard, "secretsauces", seen=seen)
    assert "the nearest: secrets" in str(refused.value)
    assert "secretsauces," not in str(refused.value)
