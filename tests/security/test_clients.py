"""What the command line and an assistant are told by a server that was sent secrets. None comes out.

tests/security/test_canaries.py reads the same in every other way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import run
from tests.client.test_mcp import assistant, only_text
from tests.test_canaries import Told, told  # noqa: F401 - the fixture
from tests.test_cli import FORESHOCK

FOUND = "canaries found anywhere"
pytestmark = [pytest.mark.security, pytest.mark.timeout(900)]


def objects(site: Told) -> dict[tuple[str, str], str]:
    """An object of each change, as `foreshock diff` names it, with its namespace: the id of its last change."""
    found: dict[tuple[str, str], str] = {}
    after = ""
    while True:
        page = site.json(f"/api/v1/changes?derived=shown&limit=1000{after}")
        for change in page["items"]:
            of = change["resource"]
            kind = f"{of['kind']}.{of['api_group']}" if of["api_group"] else of["kind"]
            found.setdefault((f"{kind}/{of['name']}", of["namespace"]), change["id"])
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


def commands(site: Told) -> list[list[str]]:
    """Each command that asks a server, in each of its forms."""
    incidents = [one["id"] for one in site.json("/api/v1/incidents?limit=1000")["items"]]
    some = list(objects(site).items())[::9]
    asked = [["export", "changes", "--from", "3h"], ["export", "calls", "--from", "3h"]]
    asked += [["export", "incidents", "--from", "3h"]]
    for form in ("table", "wide", "json", "yaml"):
        asked += [["what-changed", "3h", "-o", form], ["changes", "--derived", "--limit", "1000", "-o", form]]
        asked += [["who-calls", "3h", "-o", form], ["incident", "list", "-o", form]]
        asked += [[*words, incidents[0], "-o", form] for words in (["suspects"], ["incident", "show"])]
    for (name, namespace), change in some:
        where = ["-n", namespace] if namespace else []
        asked += [["diff", f"{name}@3h..", *where], ["diff", f"{name}@3h..", *where, "-o", "json"]]
        asked += [["revert", change], ["revert", change, "--manifest"]]
    return asked


def test_no_command_prints_one(
    told: Told,  # noqa: F811
    record_property: Callable[[str, object], None],
) -> None:
    variables = {"FORESHOCK_URL": told.site.url, "FORESHOCK_TOKEN": told.token}

    def printed(words: list[str]) -> tuple[str, int, str]:
        done = run(FORESHOCK, *words, **variables)
        return " ".join(words), done.returncode, done.stdout + done.stderr

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(printed, commands(told)))
    leaked = [f"{leak} by {words}" for words, _, text in answers for leak in told.search.leaks(text)]
    record_property(FOUND, len(leaked))
    assert leaked == []
    assert [words for words, _, text in answers if told.token in text] == []
    bad = [(words, text) for words, code, text in answers if code and "--manifest" not in words]
    assert bad == []
    assert sum("<redacted:" in text for _, _, text in answers) >= 30
    record_property("what commands and an assistant were told, searched for canaries", len(answers))


async def test_no_assistant_is_told_one(
    told: Told,  # noqa: F811
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    of_all = objects(told)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("what_changed", {"back": "3h", "limit": 100}),
        ("changes", {"from": "3h", "derived": True, "limit": 100}),
        ("incidents", {"limit": 100}),
        ("who_calls", {"back": "3h", "by": "user,verb,resource,code", "limit": 100}),
        ("gaps", {"from": "3h"}),
    ]
    asked += [("incident", {"incident_id": one["id"]}) for one in told.json("/api/v1/incidents?limit=1000")["items"]]
    for (name, namespace), change in of_all.items():
        where = {"namespace": namespace} if namespace else {}
        asked += [("change", {"change_id": change}), ("revert_recipe", {"change_id": change})]
        asked.append(("diff", {"object": name, "from": "3h", **where}))
    answers = []
    errors = tmp_path / "stderr"
    async with assistant(errors, FORESHOCK_URL=told.site.url, FORESHOCK_TOKEN=told.token) as client:
        for tool, arguments in asked:
            answer = await client.call_tool(tool, arguments)
            answers.append((f"{tool} {json.dumps(arguments)}", answer.is_error, only_text(answer)))
    answers.append(("stderr", False, errors.read_text()))
    leaked = [f"{leak} in {what}" for what, _, text in answers for leak in told.search.leaks(text)]
    record_property(FOUND, len(leaked))
    assert leaked == []
    assert [what for what, _, text in answers if told.token in text] == []
    assert [(what, text) for what, is_error, text in answers if is_error] == []
    assert sum("<redacted:" in text for _, _, text in answers) >= 100
    record_property("what commands and an assistant were told, searched for canaries", len(answers))
