"""The real program is sent secrets by every sender, in every place, and is then read in every way. None comes out.

tests/test_canaries.py does the same with files that are imported.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from dataclasses import field as made
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import psycopg
import pytest
from aiohttp import web

from app.core.roles import Role
from app.failures import Exit
from app.store import tokens
from app.store.database import open_database
from app.store.tokens import Purpose
from tests import canaries
from tests.listening import listening
from tests.notify import double
from tests.security import notices, sown
from tests.security.sown import CLUSTER, Sent
from tests.test_canaries import rows
from tests.test_cli import Serving, foreshock, serving

RECORDED_WITHIN = 90
FOUND = "canaries found anywhere"


@dataclass
class Live:
    """What was sent, what it was answered, and where all that may hold a secret is."""

    field: canaries.Field
    dsn: str
    site: Serving
    tokens: dict[str, str]
    log: Path
    data_dir: Path
    workspace: double.Workspace
    targets: notices.Targets
    answers: list[tuple[Sent, int, str]] = made(default_factory=list)
    spooled: list[str] = made(default_factory=list)
    """What lay in the spool right after each body of audit events."""

    def search(self) -> canaries.Search:
        return canaries.Search(self.field.canaries)

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.site.url, timeout=30)

    async def send(self, client: httpx2.AsyncClient, one: Sent) -> None:
        bearer = {"Authorization": f"Bearer {self.tokens[one.whose]}"} if one.whose else {}
        kind = {"Content-Type": "application/json"} if one.path.startswith("/api/") else {}
        sent = {**kind, **bearer, **one.headers}
        answer = await client.request(one.method, one.path, content=one.body, headers=sent)
        if one.whose == "audit":
            files = (path for path in (self.data_dir / "spool").rglob("*") if path.is_file())
            self.spooled.append("".join(path.read_bytes().decode("latin-1") for path in files))
        self.answers.append((one, answer.status_code, f"{answer.headers} {answer.text}"))

    async def read(self, client: httpx2.AsyncClient, path: str, accept: str = "*/*", role: str = "admin") -> str:
        headers = {"Authorization": f"Bearer {self.tokens[role]}", "Accept": accept}
        answer = await client.get(path, headers=headers)
        return f"{answer.status_code} {answer.text}"


def secrets_of_settings(field: canaries.Field) -> dict[str, str]:
    """Settings that hold a secret, each with one of its own."""
    return {
        "FORESHOCK_LAUNCHDARKLY_SECRET": field.canary("the secret of LaunchDarkly"),
        "FORESHOCK_PAGERDUTY_SECRETS": field.canary("the secret of PagerDuty"),
        "FORESHOCK_SLACK_TOKEN": f"xoxb-{field.canary('the token of Slack')}",
        "FORESHOCK_SLACK_SIGNING_SECRET": field.canary("the signing secret of Slack"),
        "FORESHOCK_SLACK_APP_TOKEN": f"xapp-{field.canary('the app-level token of Slack')}",
    }


async def _repeating(request: web.Request) -> web.Response:
    """An API server and a Prometheus that refuse us, and repeat in their refusal who we said that we are."""
    said = f"unknown credential: {request.headers.get('Authorization', 'none')} at {request.path_qs}"
    return web.json_response({"kind": "Status", "status": "Failure", "message": said, "error": said}, status=403)


def clusters_file(field: canaries.Field, folder: Path, address: str) -> Path:
    """A cluster that is followed with a token, and a Prometheus that is asked with another one."""
    (folder / "token").write_text(field.canary("the token for a Prometheus"))
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "us"}}],
        "clusters": [{"name": "it", "cluster": {"server": address}}],
        "users": [{"name": "us", "user": {"token": field.canary("the token in a kubeconfig")}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    prometheus = {"url": address, "token_file": str(folder / "token")}
    followed = {"name": "echo", "kubeconfig": str(folder / "kubeconfig"), "prometheus": prometheus}
    (folder / "clusters.yaml").write_text(json.dumps({"clusters": [followed]}))
    return folder / "clusters.yaml"


@pytest.fixture(scope="module")
async def live(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    """All is sent and recorded; the program runs on."""
    field = canaries.sow(datetime.now(UTC) - timedelta(minutes=30))
    folder, data_dir = tmp_path_factory.mktemp("live"), Path(tempfile.mkdtemp(prefix="fs"))
    settings = secrets_of_settings(field)
    dsn = dsn.replace("postgres@", f"postgres:{field.canary('the password of the database')}@")
    bearers = await _tokens(dsn)
    log = folder / "stderr"
    async with (
        listening(_app()) as echo,
        double.workspace(lambda: datetime.now(UTC)) as workspace,
        notices.targets() as targets,
    ):
        workspace.token = settings["FORESHOCK_SLACK_TOKEN"]
        more = settings | {
            "DATABASE_URL": dsn,
            "FORESHOCK_DATA_DIR": str(data_dir),
            "FORESHOCK_LOG_LEVEL": "debug",
            "FORESHOCK_CLUSTERS_FILE": str(clusters_file(field, folder, echo)),
            "FORESHOCK_SLACK_CHANNEL": double.CHANNEL,
            "FORESHOCK_SLACK_API": f"{workspace.url}api/",
            "FORESHOCK_REDACTION_FILE": canaries.redaction_file(folder),
            "FORESHOCK_ROUTES_FILE": str(notices.routes_file(targets, workspace, field, folder)),
        }
        with log.open("w") as stream, serving(stream, **more) as site:
            found = Live(field, dsn, site, bearers, log, data_dir, workspace, targets)
            field.canaries |= {token: f"the token of the role {role}" for role, token in bearers.items()}
            await _sent(found, settings)
            yield found


def _app() -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _repeating)
    return app


async def _tokens(dsn: str) -> dict[str, str]:
    """One for each role, and for each purpose."""
    database, now = open_database(dsn), datetime.now(UTC)
    async with database.write.begin() as conn:
        made = {role.value: await tokens.create(conn, role, purpose=Purpose.API, now=now) for role in Role}
        for purpose in (Purpose.CHANGES, Purpose.SCRAPE, Purpose.AUDIT, Purpose.METRICS):
            of = CLUSTER if purpose in (Purpose.AUDIT, Purpose.METRICS) else ""
            made[purpose.value] = await tokens.create_for_cluster(conn, of, purpose=purpose, now=now)
    await database.close()
    return made


async def _sent(live: Live, settings: dict[str, str]) -> None:
    """Everything, and until it is recorded."""
    field = live.field
    everything = chain(
        sown.alerts(field),
        sown.pages(field, settings["FORESHOCK_PAGERDUTY_SECRETS"]),
        sown.said(field),
        sown.samples(field),
        sown.audit(field),
        sown.told(field, settings["FORESHOCK_LAUNCHDARKLY_SECRET"]),
        sown.of_slack(field, settings["FORESHOCK_SLACK_SIGNING_SECRET"]),
        sown.asked(field),
    )
    async with live.client() as client:
        await _until(lambda: _answers(live, "/intake/audit/live", "audit"), "its tokens are known")
        for one in everything:
            await live.send(client, one)
    await _until(lambda: _count(live, "changes") >= 300, "the audit log is recorded")
    async with live.client() as client:
        for one in notices.rollouts(field):
            await live.send(client, one)
    await _until(lambda: _are_told(live), "incidents and rollouts are told")


def _are_told(live: Live) -> bool:
    """Whether the last of what is sown is told everywhere: that a rollout failed."""
    of_slack = sum("Failed after" in str(one["blocks"]) for one in live.workspace.thread(None))
    types = Counter(one["type"] for one in live.targets.events())
    of_others = min(map(len, live.targets.posted.values()), default=0), len(live.targets.mail.taken)
    alone = len(notices.PLACES)
    everywhere = of_slack >= alone <= types["rollout.failed"] and min(*of_others) >= 2 * alone + 3
    return everywhere and types["changes.digest"] > 0


def _answers(live: Live, path: str, role: str) -> bool:
    answer = httpx2.post(live.site.url + path, headers={"Authorization": f"Bearer {live.tokens[role]}"}, content=b"{}")
    return answer.status_code == 200


def _count(live: Live, table: str) -> int:
    with psycopg.connect(live.dsn) as conn:
        found = conn.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found[0]) if found else 0


async def _until(so: Callable[[], bool], what: str) -> None:
    for _ in range(RECORDED_WITHIN * 5):
        if await asyncio.to_thread(so):
            return
        await asyncio.sleep(0.2)
    pytest.fail(f"not within {RECORDED_WITHIN} s: {what}")


def leaks(live: Live, texts: Iterable[tuple[str, str]]) -> list[str]:
    """What of it is found, and where."""
    search = live.search()
    return [f"{leak} in {where}" for where, text in texts for leak in search.leaks(text)]


def test_all_of_it_was_taken_or_refused_as_it_should(
    live: Live, record_property: Callable[[str, object], None]
) -> None:
    wrong = [(one.path, status, text[-300:]) for one, status, text in live.answers if status not in one.expected]
    assert wrong == []
    assert len(live.field.canaries) >= 900
    record_property("canaries planted, sent to the program", len(live.field.canaries))
    senders = {one.path.split("?")[0].split("/")[2] for one, _, _ in live.answers if one.path.startswith("/intake/")}
    assert senders >= {"audit", "alertmanager", "pagerduty", "opsgenie", "flux", "launchdarkly", "prometheus", "slack"}


def test_no_answer_repeats_one(live: Live, record_property: Callable[[str, object], None]) -> None:
    told = [
        (f"{one.method} {one.path.split('?')[0]}: {status}", text)
        for one, status, text in live.answers
        if not one.shown_back
    ]
    assert len(told) > 120
    found = leaks(live, told)
    record_property(FOUND, len(found))
    assert found == []


async def test_no_page_answer_table_line_or_metric_shows_one(
    live: Live, record_property: Callable[[str, object], None]
) -> None:
    found: list[tuple[str, str]] = []
    answered: Counter[str] = Counter()
    async with live.client() as client:
        for path, accept, role in await _addresses(live, client):
            found.append((f"{accept} {path}", html.unescape(await live.read(client, path, accept, role))))
            form = re.sub("[0-9a-f]{28}", "ID", path.partition("?")[0])
            answered[form] += found[-1][1].startswith("200")
        found.append(("what is followed", await _followed(live, client)))
    leaked = leaks(live, found)
    record_property(FOUND, len(leaked))
    assert leaked == []
    refused = sorted(form for form, times in answered.items() if not times)
    assert [form for form in refused if "/objects/" not in form] == []
    assert sum(text.startswith("200") for _, text in found) >= 300
    whole = "".join(text for _, text in found)
    for told in ("<redacted:", "foreshock_database_up", "kubectl", '"freshness"', "apiVersion:", "recorded up to"):
        assert told in whole, f"what was read does not hold {told}"
    record_property("pages, answers, tables and lines searched for canaries", len(found))


async def _addresses(live: Live, client: httpx2.AsyncClient) -> list[tuple[str, str, str]]:
    """Each with what is asked for, and who asks."""
    lists = (
        "changes?derived=shown&limit=1000",
        "rollouts?limit=1000",
        f"calls?cluster={CLUSTER}&minus=1h&limit=1000",
        f"calls/rates?cluster={CLUSTER}&by=user,pod,user_agent&most=100",
        "incidents?limit=1000",
        "gaps",
        "clusters",
        "what-changed?minus=2h",
        f"annotations?limit=1000&cluster={CLUSTER}",
        f"problems?cluster={CLUSTER}&minus=2h&limit=1000",
        f"clusters/{CLUSTER}/control-plane",
        "accuracy",
        "views",
        "deliveries",
    )
    asked = [(f"/api/v1/{one}", kind, "viewer") for one in lists for kind in ("application/json", "text/plain")]
    asked += [(f"/api/v1/{one}", "application/x-ndjson", "viewer") for one in lists]
    pages = ("/", "/changes?derived=shown", "/clusters", "/slack", "/accuracy", "/explore", "/incidents/new", "/audit")
    asked += [(page, "text/html", "admin") for page in pages]
    asked += [("/api/v1/audit?limit=1000", kind, "admin") for kind in ("application/json", "text/plain")]
    asked += [(f"/clusters/{one}/control-plane", "text/html", "viewer") for one in (CLUSTER, "echo")]
    series = f"cluster={CLUSTER}&metric=apiserver_request_total&by=client,password,url&most=100"
    asked += [(f"/api/v1/series?{series}", "*/*", "viewer"), (f"/explore?{series}", "text/html", "viewer")]
    asked += [(f"/api/v1/series?{series}", "text/plain", "viewer")]
    asked += [(f"/explore?{series}&format=csv", "*/*", "viewer"), ("/metrics", "*/*", "scrape")]
    changes = json.loads((await live.read(client, "/api/v1/changes?derived=shown&limit=1000")).partition(" ")[2])
    objects = set()
    for number, change in enumerate(changes["items"]):
        of, at = change["resource"], f"changes/{change['id']}"
        name = f"{of['cluster']}/{of['api_group'] or 'core'}/{of['kind']}/{of['namespace'] or '-'}/{of['name']}"
        objects.add(name)
        if number % 8 == 0:
            asked += [(f"/{at}", "text/html", "viewer"), (f"/api/v1/{at}/revert?format=text", "*/*", "viewer")]
            asked += [
                (f"/api/v1/{at}", "text/plain", "viewer"),
                (f"/api/v1/{at}/after", "*/*", "viewer"),
                (f"/api/v1/routing?change={change['id']}", "*/*", "viewer"),
            ]
            asked += [(_diff(change), kind, "viewer") for kind in ("application/json", "text/plain")]
            asked += [(f"/api/v1/{at}/manifest?which={which}", "*/*", "viewer") for which in ("before", "after")]
    for name in objects:
        asked += [(f"/api/v1/objects/{name}", "*/*", "viewer"), (f"/objects/{name}", "text/html", "viewer")]
    incidents = json.loads((await live.read(client, "/api/v1/incidents?limit=1000")).partition(" ")[2])
    for incident in incidents["items"]:
        asked += [(f"/incidents/{incident['id']}?rows=all&derived=shown", "text/html", "viewer")]
        asked += [(f"/api/v1/incidents/{incident['id']}/suspects", "*/*", "viewer")]
    return asked


def _diff(change: dict[str, Any]) -> str:
    """The address of what a change made of its object, and of all that followed."""
    of, since = change["resource"], datetime.fromisoformat(change["at"]) - timedelta(milliseconds=1)
    kind = f"{of['kind']}.{of['api_group']}" if of["api_group"] else of["kind"]
    named = {"cluster": of["cluster"], "object": f"{kind}/{of['name']}", "from": since.isoformat()}
    return f"/api/v1/diff?{urlencode(named | ({'namespace': of['namespace']} if of['namespace'] else {}))}"


async def _followed(live: Live, client: httpx2.AsyncClient) -> str:
    """What who follows changes is told within two seconds."""
    told = b""
    headers = {"Authorization": f"Bearer {live.tokens['viewer']}"}
    async with client.stream("GET", "/api/v1/changes?follow=1&limit=1000&derived=shown", headers=headers) as answer:
        try:
            async with asyncio.timeout(2):
                async for part in answer.aiter_bytes():
                    told += part
        except TimeoutError:
            pass
    assert told.count(b"\n") > 100
    return f"{answer.status_code} {told.decode()}"


def test_no_table_and_no_file_holds_one(live: Live, record_property: Callable[[str, object], None]) -> None:
    tables = [(table, text) for table, text in rows(live.dsn) if text]
    assert {"changes", "objects", "requests", "quarantine", "incidents", "series_keys"} <= {
        name.rpartition("_2")[0] or name for name, _ in tables
    }
    files = [path for path in live.data_dir.rglob("*") if path.is_file()]
    kept = [(str(path), path.read_bytes().decode("latin-1")) for path in files]
    assert sum(map(len, live.spooled)) > 100_000, "the spool held what was sent"
    spooled = (("the spool", text) for text in live.spooled)
    found = leaks(live, chain(tables, kept, spooled))
    record_property(FOUND, len(found))
    assert found == []
    record_property("tables and files searched for canaries", len(tables) + len(kept))


def test_neither_log_nor_slack_holds_one(live: Live, record_property: Callable[[str, object], None]) -> None:
    assert live.log.stat().st_size > 1000
    slack = live.workspace
    told = json.dumps([slack.messages, slack.whispers, slack.unfurled, slack.answers], ensure_ascii=False)
    assert "<redacted:" in told
    found = leaks(live, [("the log", live.log.read_text()), ("Slack", told)])
    record_property(FOUND, len(found))
    assert found == []


def test_no_notice_of_a_change_holds_one(live: Live, record_property: Callable[[str, object], None]) -> None:
    for number in range(len(notices.PLACES)):
        in_slack = [one for one in live.workspace.messages if one["channel"] == notices.channel(number)]
        shown = json.dumps([one.get("blocks") for one in in_slack], ensure_ascii=False)
        assert "@ spec" in shown, "the diff is told"
        assert "<redacted:" in shown
    undone = [one for one in live.workspace.messages if "To undo it" in str(one.get("blocks"))]
    assert len(undone) >= len(notices.PLACES)
    types = {one["type"] for one in live.targets.events()}
    assert types >= {"rollout.failed", "changes.digest", "incident.opened"}
    told = [(kind, text) for kind, texts in live.targets.texts().items() for text in texts]
    for kind, texts in live.targets.texts().items():
        assert sum("<redacted:" in text for text in texts) >= len(notices.PLACES), kind
    found = leaks(live, told)
    record_property(FOUND, len(found))
    assert found == []
    record_property("webhooks, cards and mails searched for canaries", len(told))


def test_the_search_would_find_each_of_them(live: Live) -> None:
    search = live.search()
    unseen = [
        where
        for canary, where in live.field.canaries.items()
        if not any(search.leaks(f"a {line[-13:]} b") for line in canary.splitlines())
    ]
    assert unseen == []


def test_a_wrong_setting_is_told_without_its_value(record_property: Callable[[str, object], None]) -> None:
    field = canaries.Field(datetime.now(UTC))
    wrong = {
        "DATABASE_URL": f"mysql://u:{field.canary('a database that is none')}@h/d",
        "FORESHOCK_LAUNCHDARKLY_SECRET": field.canary("too short")[:12],
        "FORESHOCK_PAGERDUTY_SECRETS": f"{field.canary('one of two')} short",
        "FORESHOCK_SLACK_TOKEN": field.canary("no bot token"),
        "FORESHOCK_SLACK_APP_TOKEN": field.canary("no app-level token"),
        "FORESHOCK_SLACK_SIGNING_SECRET": field.canary("another short one")[:12],
    }
    done = foreshock("serve", **wrong)
    said = done.stdout + done.stderr
    assert done.returncode == Exit.WRONG_USE
    assert all(name in said for name in wrong)
    assert canaries.Search(field.canaries).leaks(said) == set()
    record_property("canaries planted, in settings", len(field.canaries))
