"""What the commands of who is on call print: as REST answers it, in 80 columns, and with what was not seen."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import pytest
import yaml

from app.core.phrases import onset_text
from tests.client.conftest import Asked, run
from tests.test_cli import foreshock
from tests.web import world

ID = world.incident().id
NOT_SEEN = ": the watch of pods was behind"
TABLES = [
    ("what-changed",),
    ("what-changed", "1h", "--namespace", "payments"),
    ("changes", "--limit", "5"),
    ("changes", "--from", "30m", "--kind", "deployment", "--derived"),
    ("incident", "list"),
    ("incident", "show", ID),
    ("suspects", ID),
    ("who-calls",),
    ("who-calls", "10m", "serviceaccounts"),
]
TITLES = {
    "what-changed": "TIME     NAMESPACE        CHANGE                                WHO",
    "changes": "TIME     NAMESPACE        CHANGE                                WHO",
    "incident": "TIME     ID           STATUS    TITLE                       FIRST SUSPECT",
    "suspects": " # ODDS WHEN     NAMESPACE      CHANGE                            WHO",
    "who-calls": "CALLS                                          /S NOW   BEFORE ERRORS/S  MEAN MS",
}


@pytest.mark.parametrize("arguments", TABLES, ids=" ".join)
def test_a_table_fits_a_terminal_and_says_what_was_not_seen(site: Asked, arguments: tuple[str, ...]) -> None:
    lines = site.said(*arguments).splitlines()
    assert max(map(len, lines)) <= 80
    assert arguments[:2] == ("incident", "show") or lines[1] == TITLES[arguments[0]]
    if arguments[0] != "what-changed":
        assert any(line.startswith("recorded up to ") for line in lines)
    if arguments[0] not in ("incident", "suspects"):
        # A minute after what is asked of was made, `what-changed` says last up to when it is recorded.
        assert any(line.startswith("not seen ") and line.endswith(NOT_SEEN) for line in lines[-2:])


def test_how_far_back_may_be_said_as_a_moment(site: Asked) -> None:
    half_an_hour = (world.END + site.shift - timedelta(minutes=30)).isoformat()
    until = ("--at", (world.END + site.shift).isoformat())
    for command in (("what-changed",), ("who-calls", "serviceaccounts")):
        told = site.said(*command, half_an_hour, *until)
        assert told == site.said(*command, "30m", *until)
    later = site.run("what-changed", until[1], "--at", half_an_hour)
    assert later.returncode == 2
    assert f"TIME: {until[1]} is not before" in later.stderr
    unclear = site.run("what-changed", "2026-11-28T17:30:00")
    assert "TIME: '2026-11-28T17:30:00' is no time with a zone" in unclear.stderr


@pytest.mark.parametrize("name", ["serviceaccount", "ServiceAccounts", "sa"])
def test_who_calls_takes_the_names_of_kubectl(site: Asked, name: str) -> None:
    until = ("1h", "--at", (world.END + site.shift).isoformat())
    told = site.said("who-calls", name, *until)
    assert told == site.said("who-calls", "serviceaccounts", *until)
    assert "system:serviceaccount" in told or "patch serviceaccounts" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("what-changed", "0m"), "TIME: must be more than nothing and at most 400 days"),
        (("what-changed", "500d"), "TIME: must be more than nothing and at most 400 days"),
        (("what-changed", "at=14:00"), "'at=14:00': the option is written --at 14:00"),
        (("what-changed", "after=14:00"), "'after=14:00': there is no --after here; there are --at, --namespace"),
        (("who-calls", "pods", "cluster=shop"), "'cluster=shop': the option is written --cluster shop"),
        (("who-calls", "1s"), "TIME: must not be shorter than the 5 s"),
        (("who-calls", "serviceacounts"), "no resource 'serviceacounts' is known, and none was ever called"),
        (("who-calls", "--by", "user, verb"), "--by: must be one of user, pod, user_agent, verb, resource"),
        (("who-calls", "--order", "errors"), "'errors' is not one of 'calls', 'latency'"),
        (("incident", "open", "Down", "--since", "1900-01-01T00:00:00Z"), "--since: must be between the years"),
        (("incident", "open", "Down", "--workload", "web"), "--workload: "),
        (("incident", "edit", ID), "nothing is named that is to change"),
    ],
)
def test_what_is_refused_is_called_as_it_was_written(site: Asked, arguments: tuple[str, ...], words: str) -> None:
    refused = site.run(*arguments, role="responder")
    assert refused.returncode == 2
    assert words in " ".join(refused.stderr.replace("│", " ").split())
    assert "^" not in refused.stderr


def test_what_turned_bad_how_exact_the_onset_is_and_what_places_hang_on_are_told(site: Asked) -> None:
    rest = json.loads(site.said("suspects", ID, "-o", "json"))
    (finding,) = rest["findings"]
    assert finding["sentence"] == world.ranking().findings[0].sentence
    onset, hangs = world.ranking().onset, f"without the evidence “{rest['items'][0]['would_flip']}” what is behind it"
    assert rest["items"][0]["would_flip"]
    for arguments in (("suspects", ID), ("incident", "show", ID)):
        text = site.said(*arguments)
        assert f"what turned bad:\n     * {finding['sentence']}\n" in text
        assert hangs in text
    assert text.count("without the evidence") == 1, "what the first place hangs on is enough in short"
    told = f"it began to go wrong {onset.at:%Y-%m-%d} {onset_text(onset.at, onset.low, onset.high)} UTC, in"
    assert told in text
    assert "±" in told or "between" in told


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("changes", "--limit", "5"), "items"),
        (("what-changed", "30m"), "items"),
        (("incident", "list"), "items"),
        (("incident", "show", ID), "incident"),
        (("suspects", ID), "items"),
        (("who-calls", "10m"), "items"),
        (("diff", "deploy/checkout-api@30m..", "-n", "payments"), "diffs"),
        (("revert", world.CULPRIT.id), "steps"),
    ],
)
def test_json_and_yaml_are_what_rest_answers(site: Asked, arguments: tuple[str, ...], path: str) -> None:
    if arguments[0] == "revert":
        arguments = ("revert", newest(site, "payments")["id"])
    as_json = json.loads(site.said(*arguments, "-o", "json"))
    assert {"freshness", "gaps"} <= as_json.keys()
    assert as_json[path]
    as_yaml = yaml.safe_load(site.said(*arguments, "--output", "yaml"))
    assert as_yaml.keys() == as_json.keys()
    if "items" in as_json and arguments[0] != "who-calls":  # whose times move on
        assert as_yaml["items"] == as_json["items"]


def newest(site: Asked, namespace: str) -> dict[str, str]:
    found = json.loads(site.said("changes", "--limit", "1", "-n", namespace, "-o", "json"))["items"]
    return dict(found[0])


def test_an_incident_about_a_namespace_that_is_not_recorded_is_opened_and_that_is_said(site: Asked) -> None:
    told = site.run("incident", "open", "Paying fails", "-n", "paymets", role="responder")
    incident_id = told.stdout.strip()
    assert told.returncode == 0
    assert f"no namespace 'paymets' is recorded in {world.CLUSTER}; the nearest: payments" in told.stderr
    assert f"`foreshock incident edit {incident_id}` corrects it" in told.stderr
    assert "about namespace payments" in site.said("incident", "edit", incident_id, "-n", "payments", role="responder")
    site.said("incident", "close", incident_id, role="responder")


def test_a_wide_table_cuts_nothing_off_and_has_the_ids(site: Asked) -> None:
    found = json.loads(site.said("changes", "--limit", "50", "-o", "json"))["items"]
    lines = site.said("changes", "--limit", "50", "-o", "wide").splitlines()
    assert lines[1].split() == ["TIME", "NAMESPACE", "CHANGE", "WHO", "KIND", "NAME", "ID"]
    assert max(map(len, lines)) > 80
    assert "…" not in "".join(lines)
    for change, line in zip(found, lines[2:], strict=False):
        assert line.endswith(change["id"])
        assert change["resource"]["name"] in line
    assert any(line.endswith(NOT_SEEN) for line in lines)
    assert lines[1] == site.said("what-changed", "-o", "wide").splitlines()[1]
    wide = site.said("suspects", ID, "-o", "wide")
    assert world.CULPRIT.id in wide
    assert site.said("incident", "show", ID, "-o", "wide") == site.said("incident", "show", ID)


def test_without_a_server_the_same_is_asked_of_the_database_here(site: Asked) -> None:
    for arguments in (("changes", "--limit", "7"), ("suspects", ID, "-o", "json"), ("incident", "show", ID)):
        here = foreshock(*arguments, DATABASE_URL=site.dsn)
        assert (here.returncode, here.stdout, here.stderr) == (0, site.said(*arguments), "")
    assert "the command line" not in foreshock("token", "list", DATABASE_URL=site.dsn).stdout
    refused = foreshock("changes", "--cluster", "moon", DATABASE_URL=site.dsn)
    assert (refused.returncode, refused.stderr) == (2, "foreshock: there is no cluster 'moon': known are shop\n")


def test_an_incident_by_hand(site: Asked) -> None:
    since = (world.END + site.shift).isoformat()
    told = ("incident", "open", "Checkout is down", "-n", "payments", "--key", "page-17", "--since", since)
    incident_id = site.said(*told, role="responder").strip()
    assert site.said(*told, role="responder").strip() == incident_id
    one = json.loads(site.said("incident", "show", incident_id, "-o", "json"))["incident"]
    assert (one["cluster"], one["namespaces"], one["status"]) == ("shop", ["payments"], "open")
    assert one["opened_by"] == "a responder"
    closed = site.said("incident", "close", incident_id, role="responder")
    assert closed == f"{incident_id} is resolved: Checkout is down\n"
    assert incident_id in site.said("incident", "list", "--status", "resolved")
    assert site.said("incident", "reopen", incident_id, role="responder").startswith(f"{incident_id} is open: ")
    here = foreshock("incident", "open", "Found here", DATABASE_URL=site.dsn)
    assert (here.returncode, here.stderr) == (0, "")
    one = json.loads(site.said("incident", "show", here.stdout.strip(), "-o", "json"))["incident"]
    assert (one["title"], one["opened_by"]) == ("Found here", "the command line")


def test_an_incident_is_merged_into_another(site: Asked) -> None:
    part, whole = (
        site.said("incident", "open", title, "-n", "payments", role="responder").strip()
        for title in ("Carts do not open", "Checkout is down again")
    )
    merged = site.said("incident", "merge", part, whole, role="responder")
    assert merged == f"{part} is a part of {whole}: Checkout is down again\n"
    found = json.loads(site.said("incident", "show", part, "-o", "json"))["incident"]
    assert (found["status"], found["merged_into"]) == ("merged", whole)
    nowhere = site.run("incident", "merge", whole, "000000000000", role="responder")
    assert (nowhere.returncode, "there is no incident" in nowhere.stderr) == (2, True)
    site.said("incident", "close", whole, role="responder")


def test_people_say_which_suspect_was_it_by_its_place(site: Asked) -> None:
    first, second = json.loads(site.said("suspects", ID, "-o", "json"))["items"][:2]

    def judge(suspect: str, opinion: str) -> str:
        return site.said("incident", "verdict", ID, suspect, opinion, role="responder")

    assert judge("1", "it") == f"{first['change']['id']} was it: {first['change']['summary']}\n"
    assert judge(second["change"]["id"], "not-it") == f"{second['change']['id']} was not it\n"
    assert judge("none", "not-it") == "none was not it\n"
    kept = json.loads(site.said("incident", "show", ID, "-o", "json"))["incident"]["verdicts"]
    assert {(one["change_id"], one["opinion"]) for one in kept} == {
        (first["change"]["id"], "it"),
        (second["change"]["id"], "not it"),
        ("none", "not it"),
    }
    for suspect in ("1", "2", "none"):
        assert "has no verdict any more" in judge(suspect, "take-back")
    assert json.loads(site.said("incident", "show", ID, "-o", "json"))["incident"]["verdicts"] == []
    for suspect, why in (("9", "there is no suspect 9: 3 are ranked"), ("abc", "change_id")):
        wrong = site.run("incident", "verdict", ID, suspect, "it", role="responder")
        assert (wrong.returncode, why in wrong.stderr) == (2, True)


def test_what_was_done_is_told_to_programs_too(site: Asked) -> None:
    opened = json.loads(site.said("incident", "open", "Told to a program", "-o", "json", role="responder"))
    incident_id = opened["incident"]["id"]
    for command, status in (("close", "resolved"), ("reopen", "open")):
        told = site.said("incident", command, incident_id, "-o", "yaml", role="responder")
        assert yaml.safe_load(told)["incident"]["status"] == status
    edited = site.said("incident", "edit", incident_id, "--severity", "critical", "-o", "json", role="responder")
    assert json.loads(edited) == json.loads(site.said("incident", "show", incident_id, "-o", "json"))
    assert json.loads(edited)["incident"]["severity"] == "critical"


def test_an_incident_is_corrected_and_ranked_anew(site: Asked) -> None:
    told = ("incident", "open", "It is slow", "-n", "payments", "--node", "n1")
    incident_id = site.said(*told, role="responder").strip()

    def edited(*options: str) -> tuple[str, dict[str, Any]]:
        text = site.said("incident", "edit", incident_id, *options, role="responder")
        return text, json.loads(site.said("incident", "show", incident_id, "-o", "json"))["incident"]

    since = (world.ALERT_AT + site.shift).replace(microsecond=0)
    text, one = edited("--since", since.isoformat(), "-n", "identity", "-n", "growth", "--control-plane")
    assert (one["namespaces"], one["nodes"], one["control_plane"]) == (["identity", "growth"], ["n1"], True)
    assert one["started_at"] == f"{since:%Y-%m-%dT%H:%M:%SZ}"
    assert text == site.said("incident", "show", incident_id)
    assert f"since {since:%Y-%m-%d %H:%M:%S} UTC" in text
    _, one = edited("--whole-cluster", "--no-control-plane", "--title", "It was slow", "--severity", "error")
    assert (one["namespaces"], one["nodes"], one["control_plane"]) == ([], [], False)
    assert (one["title"], one["severity"]) == ("It was slow", "error")


@pytest.mark.parametrize(
    ("made", "options"),
    [
        ("from app.__main__ import cli", []),
        ("from app.kubectl import program; cli = program()", ["-A", "--cluster", "shop"]),
    ],
)
def test_who_asks_elsewhere_does_not_wait_for_what_only_a_server_needs(
    site: Asked, made: str, options: list[str]
) -> None:
    heavy = {"aiohttp", "alembic", "fastapi", "jinja2", "kubernetes", "numpy", "psycopg", "sqlalchemy", "yaml"}
    script = f"""
import sys
{made}
try:
    cli({["what-changed", "30m", *options]!r})
finally:
    print(*sorted({heavy!r} & set(sys.modules)), file=sys.stderr)
"""
    done = run([sys.executable, "-c", script], **site.variables())
    assert "91 changes" in done.stdout
    assert done.stderr == "\n"


def test_pages_go_on_where_the_one_before_ended(site: Asked) -> None:
    first = json.loads(site.said("changes", "--limit", "3", "-o", "json"))
    again = json.loads(site.said("changes", "--limit", "3", "--after", first["next"], "-o", "json"))
    six = json.loads(site.said("changes", "--limit", "6", "-o", "json"))
    assert [*first["items"], *again["items"]] == six["items"]


def test_how_to_undo_a_change_and_its_object_before(site: Asked) -> None:
    change_id = newest(site, "payments")["id"]
    text = site.said("revert", change_id)
    assert "Undo it:" in text or "No command undoes it." in text
    refused = site.run("revert", "0" * 28)
    assert (refused.returncode, refused.stderr) == (
        2,
        "foreshock: there is no change of this id: `changes -o wide` shows those there are\n",
    )
    none = site.run("revert", change_id, "--manifest")
    assert none.returncode == 2
    assert "was not recorded" in none.stderr or "was not there" in none.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("changes", "--from", "yesterday"), "--from: 'yesterday' is no time with a zone"),
        (("revert", "0" * 28, "--manifest", "-o", "json"), "--manifest is YAML: it takes no other --output"),
        (("changes", "--from", "2026-11-20"), "--from: '2026-11-20' is no time with a zone"),
        (("changes", "--to", "2026-11-20T14:00:00"), "--to: '2026-11-20T14:00:00' is no time with a zone"),
        (("diff", "deploy/web"), "'deploy/web' is not KIND/NAME@FROM..TO"),
        (("diff", "deploy/web@..5m"), "is not KIND/NAME@FROM..TO"),
        (("diff", "deploy/web@5m..30m", "-n", "payments"), "FROM 5m is not before TO 30m"),
        (("diff", "deploy/web@soon..", "-n", "payments"), "FROM: 'soon' is no time with a zone"),
        (("diff", "deploy/checkout-api@5m.."), "say which with --namespace"),
        (("changes", "--from", "5m", "--to", "10m"), "--from 5m is not before --to 10m"),
        (("export", "changes", "--from", "5m", "--to", "10m"), "--from 5m is not before --to 10m"),
        (("changes", "--after", "zzz"), "is not one of ours: start again without --after"),
        (("changes", "--kind", "Depoyment"), "no kind 'Depoyment' is recorded; the nearest: Deployment"),
        (("what-changed", "soon"), "TIME: 'soon' is no time with a zone"),
        (("changes", "--cluster", "moon"), "there is no cluster 'moon': known are shop"),
        (("changes", "--verb", "patch"), "foreshock: --verb: must be"),
        (("suspects", "0000"), "there is no incident of this id: `incident list` shows those there are"),
        (("revert", "nonsense"), "there is no change of this id: `changes -o wide` shows those there are"),
        (("revert", "nonsense", "--manifest"), "there is no change of this id: `changes -o wide`"),
        (("who-calls", "pods", "nodes"), "one resource, and one length of time"),
        (("who-calls", "--by", "shoe"), "--by: "),
        (("incident", "open", "x", "--cluster", "nowhere"), "foreshock: --cluster: "),
        (("incident", "open", "x", "--severity", "bad"), "foreshock: --severity: must be"),
        (("incident", "open", "x", "--namespace", "No!"), "--namespace: must be the name of a namespace"),
        (("incident", "open", "x", "--key", ""), "foreshock: --key: "),
        (("incident", "edit", ID), "nothing is named that is to change"),
        (("incident", "edit", ID, "--since", "yesterday"), "--since: 'yesterday' is no time with a zone"),
        (("changes", "--from", "999999w"), "--from: '999999w' is before the first year"),
        (("changes", "--from", "0001-01-01T00:00:00+01:00"), "is before the first year, or after the last"),
        (("incident", "edit", ID, "--whole-cluster", "-n", "x"), "--whole-cluster takes neither"),
        (("incident", "edit", "0000", "--severity", "error"), "there is no incident of this id"),
    ],
    ids=str,
)
def test_wrong_use_is_said_in_words(site: Asked, arguments: tuple[str, ...], said: str) -> None:
    done = site.run(*arguments, role="responder")
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_key_that_told_something_else_says_what_to_do(site: Asked) -> None:
    asked = ("incident", "open", "Down", "--key", "page-18", "--since")
    site.said(*asked, "2m", role="responder")
    again = site.run(*asked, "2m", role="responder")
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("foreshock: --key: it was used before, and something else was said; to say the same")
    assert "--since as a time" in again.stderr
