"""Whatever a cluster says is text: no name, value, message or alert becomes markup, a link or a template."""

from __future__ import annotations

from html.parser import HTMLParser
from unicodedata import category
from urllib.parse import quote

import pytest
from fastapi.routing import iter_route_contexts
from msgspec.structs import replace

from app.core.findings import Incident, Origin, Ranking
from app.core.model import Actor, ActorSource, Batch, FieldDiff, Resource
from app.core.roles import Role
from app.store import audit, incidents
from app.store.audit import Action
from app.store.database import Database
from app.store.partitions import ensure
from app.store.record import record
from app.store.tokens import Purpose
from app.web.problems import wants_json
from app.web.routes import create_app
from tests.web import world
from tests.web.conftest import Site, deps

CORPUS = (
    "<img src=x onerror=alert(1)>",
    '" onfocus=alert(1) autofocus x="',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "</script><script>alert(1)</script>",
    "{{7*7}}{% raise %}",
    '"><a data-hx-get="//evil.example" hx-get="//evil.example" hx-on:load="alert(1)">',
    "</svg><svg onload=alert(1)>",
    "\u202egnp.exe\u200b",
    "&lt;b&gt;&amp;#x3C;",
    "a\tb\nc\x1b[2J",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'>",
    '"><meta http-equiv="refresh" content="0;url=//evil.example">',
    "<base href=//evil.example/><link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import '//evil.example/x.css'; *{background:url(//evil.example/y)}</style>",
    "<form action=//evil.example><button autofocus>x</button></form>",
    "<math><mtext><img src=x onerror=alert(1)></math>",
    "</title></textarea></style><script src=//evil.example/x.js></script>",
    "<details open ontoggle=alert(1)><summary>x</summary></details>",
    "data:text/html,<script>alert(1)</script>",
    "--><!--]]><![CDATA[${alert(1)}#{7*7}<%= 7*7 %>",
    "{{constructor.constructor('alert(1)')()}}",
)
ALL = " ".join(CORPUS)
NAME = ALL.replace("/", "").replace("%", "")  # the two characters that no object's name may hold


class Markup(HTMLParser):
    """Every element of a page with its attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile() -> tuple[Batch, Incident, Ranking]:
    """The world with the corpus wherever somebody else may write."""
    change = replace(
        world.CULPRIT,
        resource=Resource(world.CLUSTER, "apps", "Deployment", "payments", NAME),
        uid=ALL,
        summary=ALL,
        actor=Actor(ALL, ActorSource.AUDIT, user_agent=ALL, pod=ALL, impersonator=ALL),
        diffs=(
            FieldDiff(("metadata", "annotations", ALL), "add", None, ALL),
            FieldDiff(("data", "x"), "replace", {ALL: ALL}, [ALL]),
        ),
    )
    alert = replace(
        world.alert(),
        reason=ALL,
        message=ALL,
        severity=ALL,
        labels=((ALL, ALL), ("runbook_url", CORPUS[3])),
        annotations=(("description", ALL), ("message", ALL), ("runbook_url", CORPUS[3])),
    )
    ranking = world.ranking()
    suspect = ranking.suspects[0]
    ranking = replace(
        ranking,
        onset=replace(ranking.onset, found_in=ALL),
        suspects=(
            replace(
                suspect, change=change, evidence=tuple(replace(reason, sentence=ALL) for reason in suspect.evidence)
            ),
        ),
        fights=tuple(replace(fight, path_text=ALL, writers=(ALL, ALL), values=(ALL,)) for fight in ranking.fights),
        sparks=tuple(replace(spark, title=ALL, unit=ALL) for spark in ranking.sparks),
        callers=tuple(replace(caller, user=ALL, resource=ALL, verb=ALL) for caller in ranking.callers),
        not_measured=(ALL,),
    )
    batch = Batch(
        cluster=world.CLUSTER,
        changes=(change,),
        objects=(replace(world.a_state(change), state={"data": {ALL: ALL}}),),
        rollouts=tuple(
            replace(one, resource=change.resource, uid=ALL, images=(ALL,)) for one in world.rollouts_of([world.CULPRIT])
        ),
        symptoms=tuple(
            replace(one, reason=ALL, message=ALL, fingerprint=f"x{n}", workload=change.resource)
            for n, one in enumerate(world.symptoms())
        ),
        gaps=(replace(world.gap(), why=ALL, kind=ALL),),
    )
    incident = replace(
        world.incident(),
        title=ALL,
        severity=ALL,
        alerts=(alert,),
        status=ALL,
        origin=Origin.HAND,
        opened_by=ALL,
        merged_into=ALL,
    )
    return batch, incident, ranking


@pytest.fixture(scope="module")
async def hostile_site(database: Database) -> Site:
    """The site of a cluster whose every word is an attack."""
    batch, incident, ranking = hostile()
    async with database.write.begin() as conn:
        await record(conn, batch)
        await incidents.save_incident(conn, incident)
        await ensure(conn, "rankings", [ranking.ranked_at])
        await incidents.save_ranking(conn, ranking)
        await audit.note(conn, Action.VIEW_SAVED, ALL, by=ALL, address=ALL, now=world.END)
    made = Site(create_app(deps(database)), database)
    for role in Role:
        made.bearer[role.value] = await made.token(Purpose.API, role=role)
    return made


INCIDENT = world.incident().id
PAGES = {
    "/": ("/",),
    "/_/changes": ("/_/changes?derived=shown",),
    "/_/changes/{change_id}/rollout": (f"/_/changes/{world.CULPRIT.id}/rollout",),
    "/_/incidents": (f"/_/incidents?since={'0' * 16}",),
    "/_/incidents/{incident_id}": (f"/_/incidents/{INCIDENT}?rows=all",),
    "/_/incidents/{incident_id}/news": (f"/_/incidents/{INCIDENT}/news?since=0.open",),
    "/accuracy": ("/accuracy",),
    "/audit": ("/audit",),
    "/changes": ("/changes?derived=shown",),
    "/changes/{change_id}": (f"/changes/{world.CULPRIT.id}",),
    "/clusters": ("/clusters",),
    "/clusters/{cluster}/control-plane": (f"/clusters/{world.CLUSTER}/control-plane",),
    "/explore": (f"/explore?of=calls&cluster={world.CLUSTER}&by=user",),
    "/incidents/new": ("/incidents/new",),
    "/incidents/{incident_id}": (f"/incidents/{INCIDENT}", f"/incidents/{INCIDENT}?rows=all&derived=shown"),
    "/incidents/{incident_id}/correct": (f"/incidents/{INCIDENT}/correct",),
    "/login": ("/login",),
    "/objects/{cluster}/{api_group}/{kind}/{namespace}/{name:rest}": (
        f"/objects/{world.CLUSTER}/apps/Deployment/payments/{quote(NAME, safe='')}",
    ),
    "/slack": ("/slack",),
}
"""The addresses of each page, and of each part of one."""
NO_PAGES = {"/metrics", "/incidents", "/login/oidc", "/login/oidc/back"}
"""Text of its own, and ways to elsewhere: tests/web/test_metrics.py, tests/web/test_oidc.py."""
SEEN_BY = {"/audit": "admin", "/incidents/new": "responder", f"/incidents/{INCIDENT}/correct": "responder"}
WORDLESS = {"/_/changes/{change_id}/rollout", "/accuracy", "/explore", "/incidents/new", "/login", "/slack"}
"""Of them none shows a word of this cluster."""


async def markup(
    site: Site, path: str, *, params: dict[str, str] | None = None, status: int = 200
) -> tuple[str, Markup]:
    async with site.client(SEEN_BY.get(path, "viewer")) as client:
        answer = await client.get(path, params=params)
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"].startswith("text/html")
    parsed = Markup()
    parsed.feed(answer.text)
    return answer.text, parsed


def assert_harmless(page: Markup) -> None:
    for tag, attributes in page.elements:
        assert tag not in {"img", "iframe", "object", "embed", "base", "style"}, tag
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/")
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in {"style", "srcdoc", "autofocus", "x=", "data-hx-on", "hx-on:load"}, (tag, name)
            if name in {"href", "src", "action", "formaction", "hx-get", "data-hx-get"}:
                assert (value or "").startswith(("/", "#")), (tag, name, value)
                assert not (value or "").startswith("//"), (tag, name, value)
    assert "49" not in page.text.replace("149", "").split()


async def test_every_page_is_among_them(hostile_site: Site) -> None:
    asked = {"query_string": b"", "headers": []}
    gets = {one.path for one in iter_route_contexts(hostile_site.app.routes) if one.methods and "GET" in one.methods}
    assert {path for path in gets if not wants_json({"path": path, **asked})} == PAGES.keys() | NO_PAGES


@pytest.mark.parametrize(("page", "path"), [(page, path) for page, paths in PAGES.items() for path in paths])
async def test_no_word_of_the_cluster_becomes_markup(hostile_site: Site, page: str, path: str) -> None:
    source, found = await markup(hostile_site, path)
    assert_harmless(found)
    assert ("{{7*7}}" in source) is (page not in WORDLESS)  # it is shown, as it was written
    assert "<img src=x" not in source


async def test_no_parameter_becomes_markup(hostile_site: Site) -> None:
    for name in ("text", "kind", "namespace", "actor", "cluster"):
        status = 404 if name == "cluster" else 200
        source, page = await markup(hostile_site, "/changes", params={name: CORPUS[0] + CORPUS[1]}, status=status)
        assert_harmless(page)
        assert "<img" not in source
    source, page = await markup(hostile_site, "/changes", params={CORPUS[0]: "1"}, status=422)
    assert_harmless(page)
    assert "<img" not in source


async def test_an_objects_page_is_found_by_any_name(hostile_site: Site) -> None:
    _, page = await markup(hostile_site, f"/incidents/{world.incident().id}")
    address = next(
        a["href"] for tag, a in page.elements if tag == "a" and (a.get("href") or "").startswith("/objects/")
    )
    source, found = await markup(hostile_site, str(address))
    assert_harmless(found)
    assert "<img src=x" not in source


async def test_no_text_for_a_terminal_steers_it(hostile_site: Site) -> None:
    paths = (
        *(f"changes/{world.CULPRIT.id}{rest}" for rest in ("", "/revert", "/after")),
        *("annotations", "changes", "incidents", f"incidents/{INCIDENT}", f"incidents/{INCIDENT}/suspects"),
        *("rollouts", "gaps", f"problems?cluster={world.CLUSTER}", "clusters", "what-changed"),
    )
    for path in paths:
        async with hostile_site.client() as client:
            answer = await client.get(f"/api/v1/{path}", headers={"accept": "text/plain"})
        assert answer.status_code == 200, answer.text
        odd = {one for one in answer.text if category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - {"\n"}
        assert odd == set(), path
