"""How to undo a change, and the object before and after it: by REST and on its page."""

from __future__ import annotations

import shlex
from datetime import timedelta

import httpx2
import pytest
import yaml

from app.core.model import Batch, Change, FieldDiff, Json, Object, ObjectState, Verb
from app.core.objects.diff import diff
from app.core.objects.manifest import Manifest
from app.store.record import record
from app.web.manifests import as_yaml
from tests.web import world
from tests.web.conftest import Site
from tests.web.test_pages import hrefs, page

HIDDEN = "<redacted:0011aabb>"
OWNED: Object = {
    "labels": {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
}
TEXT = "first line\n  second: 'line'\n\nlast\n"


def at(number: int) -> Object:
    """The object after its write ``number``."""
    data: Object = {"mode": str(number), "password": HIDDEN, "text": TEXT, "build": "1e3", "on": "y"}
    return {"metadata": {"name": "settings", "namespace": "growth", **OWNED}, "data": data}


def wrote(number: int, *, actor: str = "alice@shop.example", **more: object) -> Change:
    return world.a_change(
        "settings",
        at=world.START + timedelta(seconds=number),
        kind="ConfigMap",
        api_group="",
        namespace="growth",
        actor=actor,
        diffs=diff(at(number - 1) if number else None, at(number)),
        verb=Verb.UPDATE if number else Verb.CREATE,
        summary=f"mode of settings: {number - 1} → {number}",
        version=f"{number + 1}",
    )


WRITES = [wrote(0), wrote(1), wrote(2, actor="bob@shop.example")]
BARE = world.a_change("bare", at=world.START, namespace="growth", version="9")


@pytest.fixture(scope="module", autouse=True)
async def _settings(site: Site) -> None:
    last = ObjectState(WRITES[2].resource, WRITES[2].uid, "3", WRITES[2].at, at(2))
    async with site.database.write.begin() as conn:
        await record(conn, Batch(world.CLUSTER, changes=(*WRITES, BARE), objects=(last,)))


async def asked(site: Site, path: str) -> httpx2.Response:
    async with site.client() as client:
        return await client.get(f"/api/v1/changes/{path}")


async def test_the_recipe_is_told_with_what_happened_since(site: Site) -> None:
    answer = (await asked(site, f"{WRITES[1].id}/revert")).json()
    assert answer["change_id"] == WRITES[1].id
    assert answer["command"].startswith("kubectl patch configmaps/settings -n growth --type merge -p ")
    assert answer["dry_run"] == f"{answer['command']} --dry-run=server"
    assert [step["command"] for step in answer["steps"]] == [
        "kubectl config current-context",
        "flux suspend kustomization apps -n flux-system",
        answer["dry_run"],
        answer["command"],
        "",
        "flux resume kustomization apps -n flux-system",
    ]
    since, flux = answer["warnings"]
    assert since["change_id"] == WRITES[2].id
    assert since["text"].startswith("bob changed the same fields at 2026-11-20 14:01:42 UTC (mode of settings: 1 → 2)")
    assert (flux["change_id"], flux["text"].startswith("Flux owns it")) == (None, True)
    assert answer["freshness"]


async def test_the_text_is_made_for_a_terminal(site: Site) -> None:
    answer = await asked(site, f"{WRITES[1].id}/revert?format=text")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    lines = answer.text.splitlines()
    commands = [line for line in lines if line.startswith(("kubectl", "flux"))]
    assert len(commands) == 5
    assert commands[0] == "kubectl config current-context"
    assert shlex.split(commands[2])[-1] == "--dry-run=server"
    assert all(len(line) <= 80 for line in lines if line not in commands)
    assert f"   change {WRITES[2].id}" in lines
    assert any(line.startswith("recorded up to ") for line in lines), "what came since is told as far as it is recorded"


async def test_accept_says_how_it_is_told_and_a_tag_that_nothing_is_new(site: Site) -> None:
    for path, kind in (("revert", "application/json"), ("revert", "text/plain"), ("manifest", "application/yaml")):
        async with site.client() as client:
            address = f"/api/v1/changes/{WRITES[1].id}/{path}"
            answer = await client.get(address, headers={"Accept": kind})
            assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)
            same = {"Accept": kind, "If-None-Match": answer.headers["etag"]}
            assert (await client.get(address, headers=same)).status_code == 304
            refused = await client.get(address, headers={"Accept": "image/png"})
            assert (refused.status_code, kind in refused.json()["detail"]) == (406, True)


@pytest.mark.parametrize(("which", "number"), [("", 0), ("?which=before", 0), ("?which=after", 1)])
async def test_the_manifest_is_the_object_as_it_stood(site: Site, which: str, number: int) -> None:
    answer = await asked(site, f"{WRITES[1].id}/manifest{which}")
    assert answer.headers["content-type"].partition(";")[0] == "application/yaml"
    side = "after" if number else "before"
    assert answer.headers["content-disposition"] == f'attachment; filename="settings.configmap.{side}.yaml"'
    assert yaml.safe_load(answer.text) == {"apiVersion": "v1", "kind": "ConfigMap", **at(number)}
    comments = [line for line in answer.text.splitlines() if line.startswith("#")]
    assert comments[0].startswith(f"# ConfigMap growth/settings of cluster shop, right {side} change {WRITES[1].id}")
    assert "#   data.password" in comments
    assert "  text: |\n    first line\n      second: 'line'\n" in answer.text
    assert "build: '1e3'" in answer.text
    assert "'y'" in answer.text


@pytest.mark.parametrize(
    ("path", "word"),
    [
        (f"{WRITES[0].id}/manifest", "was not there right before this change"),
        (f"{BARE.id}/manifest?which=after", "was not recorded"),
        ("0" * 28 + "/manifest", "no change of this id"),
        ("nonsense/revert", "no change of this id"),
    ],
)
async def test_what_is_not_known_is_said_in_words(site: Site, path: str, word: str) -> None:
    answer = await asked(site, path)
    assert answer.status_code == 404
    assert word in answer.json()["detail"]


@pytest.mark.parametrize(("query", "field"), [("manifest?which=now", "which"), ("revert?format=xml", "format")])
async def test_a_wrong_parameter_is_named(site: Site, query: str, field: str) -> None:
    answer = await asked(site, f"{WRITES[1].id}/{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_the_page_shows_the_steps_in_order_and_links_what_they_speak_of(site: Site) -> None:
    _, found = await page(site, f"/changes/{WRITES[1].id}")
    copied = [a["data-copy"] for _, a in found.elements if (a.get("data-copy") or "").startswith(("kubectl", "flux"))]
    assert [shlex.split(command or "")[:2] for command in copied] == [
        ["kubectl", "config"], ["flux", "suspend"], ["kubectl", "patch"], ["kubectl", "patch"], ["flux", "resume"],
    ]  # fmt: skip
    assert (copied[2] or "").endswith("--dry-run=server")
    links = hrefs(found)
    assert f"/changes/{WRITES[2].id}" in links
    for which in ("before", "after"):
        assert f"/api/v1/changes/{WRITES[1].id}/manifest?which={which}" in links
    assert "which=before" not in (await page(site, f"/changes/{WRITES[0].id}"))[0]


async def test_a_card_has_the_dry_run_at_hand_and_leads_to_the_steps(site: Site) -> None:
    _, found = await page(site, f"/incidents/{world.incident().id}")
    command = "kubectl rollout undo deployments.apps/checkout-api -n payments"
    copied = [a["data-copy"] for _, a in found.elements if (a.get("data-copy") or "").startswith("kubectl")]
    assert copied == [f"{command} --dry-run=server", command]
    assert "Run it in the cluster shop (see first: kubectl config current-context)." in found.text
    assert "Step by step" in found.text
    assert f"/changes/{world.CULPRIT.id}" in hrefs(found)


def test_nothing_gets_out_of_a_comment() -> None:
    """YAML ends a line at U+0085 and U+2028, too."""
    note = "a\u2028kind: Evil\u0085kind: Worse\nkind: Worst"
    text = as_yaml(Manifest({"kind": "Good"}, (note,)))
    assert yaml.safe_load(text) == {"kind": "Good"}


@pytest.mark.parametrize(
    "value",
    ["yes", "null", "~", "=", "1e3", "0x1f", "0o17", "12:30", "y", "N", "-", ".5", "+1", "", " a ", "a: b", "#"],
)
def test_a_text_stays_a_text(value: str) -> None:
    told: dict[str, Json] = {"value": value, value or "key": "x"}
    text = as_yaml(Manifest(told, ()))
    assert yaml.safe_load(text) == told
    if value in {"1e3", "0o17", "y", "N", "12:30"}:
        assert f"'{value}'" in text


def test_a_diff_of_the_fixture_is_what_it_says() -> None:
    assert WRITES[1].diffs == (FieldDiff(("data", "mode"), "replace", "0", "1"),)
