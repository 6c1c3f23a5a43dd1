"""The examples of docs/external-changes.md: what is pasted from there works, with the real curl and jq."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.core.changes.external import path_of
from app.web.telling import ToldChange
from tests.programs import found
from tests.test_cli import Serving, environment, foreshock, serving

DOC = (Path(__file__).parents[1] / "docs" / "external-changes.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOC, re.MULTILINE | re.DOTALL))
PLAN = {
    "resource_changes": [
        {"address": 'module.dns.aws_route53_record.api["eu.west"]', "change": {"actions": ["update"]}},
        {"address": "aws_lb.main[0]", "change": {"actions": ["delete", "create"]}},
        {"address": "aws_vpc.main", "change": {"actions": ["no-op"]}},
        {"address": "data.aws_ami.base", "change": {"actions": ["read"]}},
    ]
}
OF_GITHUB = {
    "GITHUB_REPOSITORY": "acme/shop",
    "GITHUB_ACTOR": "alice",
    "GITHUB_WORKFLOW": "deploy",
    "GITHUB_REF_NAME": "main",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_RUN_ID": "4711",
    "GITHUB_RUN_ATTEMPT": "1",
    "GITHUB_SHA": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
    "OUTCOME": "success",
}
OF_GITLAB = {
    "CI_PROJECT_PATH": "acme/shop",
    "GITLAB_USER_LOGIN": "alice",
    "CI_COMMIT_TITLE": 'Say "hello" to $customers',
    "CI_PIPELINE_URL": "https://gitlab.example/acme/shop/-/pipelines/4711",
    "CI_COMMIT_BEFORE_SHA": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
    "CI_COMMIT_SHA": "1a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
    "CI_PIPELINE_ID": "4711",
}


def block(language: str, *, of: str) -> str:
    """The code block of a language in a part of the page."""
    match = re.search(rf"^```{language}\n(.*?)^```", of, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def script_of(sender: str) -> str:
    """The shell script of a sender's example."""
    section = SECTIONS[sender]
    if sender == "GitHub Actions":
        steps = yaml.safe_load(block("yaml", of=section))["jobs"]["deploy"]["steps"]
        return str(next(step["run"] for step in steps if step.get("name") == "Tell Foreshock"))
    if sender == "GitLab":
        return str(yaml.safe_load(block("yaml", of=section))["tell-foreshock"]["script"][-1])
    return block("sh", of=section)


@pytest.fixture(scope="module")
def site(dsn: str) -> Iterator[Serving]:
    with serving(DATABASE_URL=dsn) as started:
        yield started


@pytest.fixture(scope="module")
def bearer(dsn: str) -> str:
    """A token as the page makes it, of a cluster that nothing is recorded of yet."""
    made = foreshock("token", "create", "--role", "changes", "--cluster", "shop", DATABASE_URL=dsn)
    return made.stdout.split()[-1]


def run(script: str, **told: str) -> subprocess.CompletedProcess[str]:
    for program in ("curl", "jq"):
        found(program, package=program)
    return subprocess.run(
        ["sh", "-c", script], env=environment(**told), capture_output=True, text=True, timeout=60, check=False
    )


def test_the_example_for_curl_tells_of_a_change_once(site: Serving, bearer: str, dsn: str) -> None:
    script = block("sh", of=DOC).rstrip() + " -w '\\n%{http_code}'"
    first, again = (run(script, FORESHOCK_URL=site.url, FORESHOCK_TOKEN=bearer).stdout.splitlines() for _ in range(2))
    assert (first[-1], again[-1], first[0]) == ("201", "200", again[0])
    change = json.loads(first[0])["items"][0]
    assert change["resource"]["api_group"] == "external:route53"
    assert change["summary"] == "api.shop.example points to the new load balancer, by alice"
    assert site.get("/api/v1/changes", token=bearer) == 401  # it reads nothing
    assert "changes of shop" in foreshock("token", "list", DATABASE_URL=dsn).stdout


@pytest.mark.parametrize(("sender", "variables"), [("GitHub Actions", OF_GITHUB), ("GitLab", OF_GITLAB)])
def test_the_examples_for_ci_tell_of_a_deploy(
    site: Serving, bearer: str, sender: str, variables: dict[str, str]
) -> None:
    done = run(script_of(sender), FORESHOCK_URL=site.url, FORESHOCK_TOKEN=bearer, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    change = json.loads(done.stdout)["items"][0]
    assert (change["resource"]["kind"], change["resource"]["name"]) == ("deploy", "acme/shop")
    assert (change["actor"], change["workload"]) == ("alice", "checkout-api")
    assert change["diffs"][-1]["new"] in variables.values()
    assert change["url"].endswith("/4711")


def test_the_example_for_terraform_tells_of_what_was_applied(site: Serving, bearer: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / "terraform").write_text('#!/bin/sh\ncase "$1" in show) cat plan.json ;; plan) : >tfplan ;; esac\n')
    (tmp_path / "terraform").chmod(0o755)
    told = {"FORESHOCK_URL": site.url, "FORESHOCK_TOKEN": bearer, "USER": "alice"}
    done = run(f"cd {tmp_path} && PATH={tmp_path}:$PATH\n{script_of('Terraform')}", **told)
    assert done.returncode == 0, done.stderr
    change = json.loads(done.stdout)["items"][0]
    assert change["summary"] == "2 resources applied, by alice"
    assert [one["new"] for one in change["diffs"]] == ["update", "delete, create"]
    assert "aws_route53_record.api" in change["diffs"][0]["path"]


def test_a_build_goes_on_where_nobody_listens(bearer: str, tmp_path: Path) -> None:
    """With a token that ended, say; what is printed holds no token."""
    done = run(script_of("GitLab"), FORESHOCK_URL="http://127.0.0.1:1", FORESHOCK_TOKEN=bearer, **OF_GITLAB)
    assert done.returncode != 0
    assert bearer not in done.stdout + done.stderr
    assert yaml.safe_load(block("yaml", of=SECTIONS["GitLab"]))["tell-foreshock"]["allow_failure"] is True
    steps = yaml.safe_load(block("yaml", of=SECTIONS["GitHub Actions"]))["jobs"]["deploy"]["steps"]
    assert steps[-1]["continue-on-error"] is True


def test_the_example_for_argo_cd_makes_a_body_that_is_taken() -> None:
    config = yaml.safe_load(block("yaml", of=SECTIONS["Argo CD notifications"]))["data"]
    (service,) = (yaml.safe_load(text) for name, text in config.items() if name.startswith("service.webhook."))
    assert {"name": "Authorization", "value": "Bearer $foreshock-token"} in service["headers"]
    (trigger,) = yaml.safe_load(config["trigger.on-synced"])
    (template,) = trigger["send"]
    webhook = yaml.safe_load(config[f"template.{template}"])["webhook"]["foreshock"]
    assert (webhook["method"], webhook["path"]) == ("POST", "/api/v1/changes")
    values = {
        ".app.metadata.name": "checkout",
        ".app.spec.destination.namespace": "payments",
        ".app.status.operationState.finishedAt": "2026-11-20T14:02:27Z",
        ".app.status.operationState.syncResult.revision": "0a1b2c3",
        ".context.argocdUrl": "https://argocd.example",
    }

    def filled(match: re.Match[str]) -> str:
        """What Go's templates make of ``{{ toJson .x }}`` and ``{{ .x }}``."""
        return json.dumps(values[match[2]]) if match[1] else values[match[2]]

    body: dict[str, Any] = json.loads(re.sub(r"\{\{ (toJson )?(\S+) \}\}", filled, webhook["body"]))
    told = ToldChange.model_validate(body).noun()
    assert (told.source, told.name, told.namespace) == ("argocd", "checkout", "payments")
    assert told.fields[0].new == "0a1b2c3"


def test_the_example_for_flux_sends_to_where_it_is_taken_with_a_token() -> None:
    secret, provider, alert = yaml.safe_load_all(block("yaml", of=SECTIONS["Flux notification-controller"]))
    assert "/intake/flux?cluster=" in secret["stringData"]["address"]
    assert yaml.safe_load(secret["stringData"]["headers"]) == {"Authorization": "Bearer TOKEN"}
    assert provider["spec"] == {"type": "generic", "secretRef": {"name": secret["metadata"]["name"]}}
    assert alert["spec"]["providerRef"]["name"] == provider["metadata"]["name"]


def test_the_policy_for_launchdarkly_is_json() -> None:
    (statement,) = json.loads(block("json", of=SECTIONS["LaunchDarkly"]))
    assert statement["effect"] == "allow"
    assert statement["resources"] == ["proj/*:env/production:flag/*"]


def test_the_page_lists_every_field_and_no_other() -> None:
    told = re.findall(r"^\| `(\w+)` \|", SECTIONS["What is told"], re.MULTILINE)
    assert set(told) == set(ToldChange.model_fields)
    assert path_of("rules[0].rollout")
