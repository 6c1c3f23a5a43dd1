"""The audit webhook over HTTP: who may send, what is refused and how, and that 200 means that it is on the disk."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from typer.testing import CliRunner

from app.__main__ import cli
from app.clusters import Clusters
from app.collect import taking, told
from app.collect.spool import Spool
from app.core.roles import Role
from app.store import tokens
from app.store.database import Database
from app.store.tokens import Purpose
from app.supervise import Pulses
from app.web.deps import Deps
from app.web.known_tokens import KnownTokens
from app.web.routes import create_app

HOST = "http://foreshock.test"
NOW = datetime.now(UTC)
BODY = json.dumps({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": []}).encode()
MIB = 1 << 20
KEY = b"k" * 32


@dataclass(slots=True)
class Site:
    """The site whose database is away since the tokens were read; nothing follows its spools."""

    audit: Clusters
    known: KnownTokens
    data_dir: Path
    token: str
    transport: httpx2.ASGITransport

    def client(self, token: str | None = None) -> httpx2.AsyncClient:
        """Sends as the API server of the cluster ``shop`` unless another token is given."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx2.AsyncClient(transport=self.transport, base_url=HOST, headers=headers)

    def bodies(self, cluster: str = "shop") -> list[told.Told]:
        """What the spool of a cluster holds, once the site is closed."""
        with Spool(taking.folder_of(self.data_dir / "spool", cluster), most_bytes=1 << 30, key=KEY) as spool:
            return [told.decode(frame.payload) for frame in spool.read(0) if frame.payload is not None]


@pytest.fixture
async def site(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    async with database.write.begin() as conn:
        token = await tokens.create_for_cluster(conn, "shop", now=NOW)
    nowhere = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    known = KnownTokens(database.write, lambda: NOW)
    await known.refresh()
    audit = Clusters(
        Database(read=nowhere, scoped=nowhere, write=nowhere, turns=nowhere),
        Pulses(lambda: NOW),
        wanted=tuple,
        folder=tmp_path / "spool",
        spool_bytes=100_000_000,
        clock=lambda: NOW,
    )

    async def followed(_cluster: str) -> None:
        """Nothing is read: these tests look at what lies in the spool."""

    monkeypatch.setattr(audit, "_record", followed)
    audit._spools.key = KEY
    deps = Deps(nowhere, nowhere, HOST, lambda: NOW, cluster_of=known.cluster_of, take_audit=audit.take)
    app = create_app(deps)
    yield Site(audit, known, tmp_path, token, httpx2.ASGITransport(app=app, raise_app_exceptions=False))
    await nowhere.dispose()


async def chunks(count: int, size: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * size


async def test_a_body_is_on_the_disk_before_200_though_there_is_no_database(site: Site) -> None:
    async with site.client() as client:
        answer = await client.post("/intake/audit/shop", content=BODY)
    assert answer.status_code == 200
    site.audit._spools.close()
    [record] = site.bodies()
    assert isinstance(record, told.AuditBody)
    assert record.body == BODY


@pytest.mark.parametrize("size", [MIB, MIB + 1, 5 * MIB // 2])
async def test_a_large_body_is_streamed_to_the_disk(site: Site, size: int) -> None:
    large = BODY + b" " * (size - len(BODY))
    async with site.client() as client:
        assert (await client.post("/intake/audit/shop", content=BODY)).status_code == 200
        assert (await client.post("/intake/audit/shop", content=large)).status_code == 200
        assert (await client.post("/intake/audit/shop", content=BODY)).status_code == 200
    site.audit._spools.close()
    assert [record.body for record in site.bodies() if isinstance(record, told.AuditBody)] == [BODY, large, BODY]


@pytest.mark.parametrize("cluster", ["prod", "shop2", "Shop"])
async def test_the_token_of_another_cluster_is_refused(site: Site, cluster: str) -> None:
    async with site.client() as client:
        answer = await client.post(f"/intake/audit/{cluster}", content=BODY)
    assert answer.status_code == 403
    assert "belongs to the cluster shop" in answer.json()["detail"]


async def test_a_token_of_a_role_does_not_send_and_that_of_a_cluster_does_nothing_else(
    site: Site, database: Database
) -> None:
    async with database.write.begin() as conn:
        admin = await tokens.create(conn, Role.ADMIN, purpose=Purpose.API, now=NOW)
    await site.known.refresh()
    async with site.client(admin) as client:
        answer = await client.post("/intake/audit/shop", content=BODY)
    assert answer.status_code == 401
    assert "--role audit --cluster NAME" in answer.json()["detail"]
    async with database.read.connect() as conn:
        assert await tokens.check(conn, site.token, purpose=Purpose.API, now=NOW) is None
        assert await tokens.check(conn, site.token, purpose=Purpose.SESSION, now=NOW) is None


async def test_a_revoked_and_an_expired_token_end(site: Site, database: Database) -> None:
    async with database.write.begin() as conn:
        short = await tokens.create_for_cluster(conn, "shop", now=NOW - timedelta(days=2), life=timedelta(days=1))
    await site.known.refresh()
    assert site.known.cluster_of(short) is None
    assert site.known.cluster_of(site.token) == "shop"
    async with database.write.begin() as conn:
        await tokens.revoke(conn, site.token, now=NOW)
    await site.known.refresh()
    assert site.known.cluster_of(site.token) is None
    later = KnownTokens(database.write, lambda: NOW)
    await later.refresh()
    assert later.cluster_of(site.token) is None


async def test_what_is_known_is_kept_while_the_database_is_away_and_use_is_noted_after(
    site: Site, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.known.cluster_of(site.token) == "shop"
    with monkeypatch.context() as patched:
        patched.setattr(site.known, "_write", create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none"))
        for at_work in (site.known.refresh, site.known.note):
            with pytest.raises(Exception, match="connection"):
                await at_work()
    assert site.known.cluster_of(site.token) == "shop"
    await site.known.note()
    async with database.read.connect() as conn:
        listed = [one for one in await tokens.read(conn, now=NOW) if one.cluster == "shop" and one.last_used_at]
    assert [(one.role, one.last_used_at) for one in listed] == [(None, NOW)]


async def test_a_token_is_not_refused_before_it_is_known_which_are_good(site: Site, database: Database) -> None:
    unread = KnownTokens(database.write, lambda: NOW)
    nobody = create_app(Deps(database.read, database.write, HOST, lambda: NOW, cluster_of=unread.cluster_of))
    headers = {"Authorization": f"Bearer {site.token}"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=nobody), base_url=HOST, headers=headers) as client:
        answer = await client.post("/intake/audit/shop", content=BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_refused_and_its_loss_is_noted(
    site: Site, monkeypatch: pytest.MonkeyPatch, declared: bool
) -> None:
    monkeypatch.setattr(taking, "LIMIT", 3 * MIB)
    body = b"x" * (3 * MIB + 1)
    async with site.client() as client:
        content = body if declared else chunks(4, MIB)
        answer = await client.post("/intake/audit/shop", content=content)
    assert answer.status_code == 413
    assert "more than the 3,145,728 bytes" in answer.json()["detail"]
    site.audit._spools.close()
    [record] = site.bodies()
    assert isinstance(record, told.AuditLost)
    assert not list(site.data_dir.rglob("*.incoming"))


async def test_a_packed_body_is_refused_in_words(site: Site) -> None:
    async with site.client() as client:
        answer = await client.post("/intake/audit/shop", content=BODY, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415
    assert "without Content-Encoding" in answer.json()["detail"]


async def test_a_full_spool_answers_503_before_it_reads(site: Site) -> None:
    site.audit._spools.most_bytes = 3 * MIB
    read = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(8):
            read += 1
            yield b"x" * (MIB // 8)

    async with site.client() as client:
        answers = [await client.post("/intake/audit/shop", content=counted()) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 503, 503]
        declared = await client.post("/intake/audit/shop", content=b"x" * MIB)
        before = read
        site.audit._spools.open("shop").most_bytes = MIB
        last = await client.post("/intake/audit/shop", content=counted())
    for answer in (answers[-1], declared, last):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "the spool holds" in answer.json()["detail"]
    assert read == before
    site.audit._spools.close()
    assert len(site.bodies()) == 2


async def test_a_spool_that_another_process_has_is_told(site: Site) -> None:
    with Spool(taking.folder_of(site.data_dir / "spool", "shop"), most_bytes=MIB, key=KEY):
        async with site.client() as client:
            answer = await client.post("/intake/audit/shop", content=BODY)
    assert answer.status_code == 503
    assert "another process has the spool" in answer.json()["detail"]


async def test_before_the_database_was_reached_nothing_is_taken(site: Site) -> None:
    site.audit._spools.key = b""
    async with site.client() as client:
        answer = await client.post("/intake/audit/shop", content=BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "has not been reached yet" in answer.json()["detail"]


@pytest.mark.parametrize("size", [0, 3 << 20])
async def test_no_secret_lies_in_the_spool_as_it_came(site: Site, size: int) -> None:
    secret = b"hunter2-" * 4
    body = b'{"items":[{"requestObject":{"password":"%s","x":"%s"}}]}' % (secret, b"x" * size)
    async with site.client() as client:
        assert (await client.post("/intake/audit/shop", content=body)).status_code == 200
    site.audit._spools.close()
    files = [path for path in (site.data_dir / "spool").rglob("*") if path.is_file()]
    assert any(path.stat().st_size > len(body) for path in files)
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert [one.body for one in site.bodies() if isinstance(one, told.AuditBody)] == [body]


async def test_a_body_that_ends_early_leaves_nothing(site: Site) -> None:
    class GoneError(Exception):
        """The sender went away."""

    async def broken() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * MIB
        raise GoneError

    with pytest.raises(GoneError):
        await site.audit._spools.take_audit("shop", broken(), received_at=NOW)
    site.audit._spools.close()
    assert site.bodies() == []
    assert not list(site.data_dir.rglob("*.incoming"))


@pytest.mark.parametrize(
    "options",
    [["--role", "audit"], ["--role", "viewer", "--cluster", "shop"], ["--role", "audit", "--cluster", "a/b"]],
    ids=" ".join,
)
def test_a_token_of_an_api_server_is_made_for_one_cluster_and_no_other_is(options: list[str]) -> None:
    made = CliRunner().invoke(cli, ["token", "create", *options])
    assert made.exit_code == 2
    assert "cluster" in made.output


@pytest.mark.parametrize("name", ["shop", "..shop", "ä" * 100, "a b", "x" * 100, "%2e", "a\\b", "CON", "-rf"])
def test_every_name_of_a_cluster_has_a_folder_of_its_own(tmp_path: Path, name: str) -> None:
    spools = taking.Spools(tmp_path, most_bytes=MIB)
    spools.key = KEY
    spools.open(name)
    spools.open("another")
    assert spools.known() == sorted([name, "another"])
    assert sorted(path.parent for path in tmp_path.iterdir()) == [tmp_path, tmp_path]
    spools.close()


def test_the_name_of_a_spool_is_never_half_written(tmp_path: Path) -> None:
    """One that an older version was killed at is empty: it is the spool of no cluster until its own has it again."""
    folder = taking.folder_of(tmp_path, "shop")
    folder.mkdir()
    name, before = folder / "cluster", tmp_path / "before"
    name.write_text("")
    before.hardlink_to(name)
    spools = taking.Spools(tmp_path, most_bytes=MIB)
    spools.key = KEY
    assert spools.known() == []
    spools.open("shop")
    spools.close()
    assert (spools.known(), before.read_text()) == (["shop"], "")  # it was written beside, and put there
    written = name.stat()
    again = taking.Spools(tmp_path, most_bytes=MIB)
    again.key = KEY
    again.open("shop")
    again.close()
    assert name.stat().st_ino == written.st_ino
    assert name.stat().st_mtime_ns == written.st_mtime_ns
