"""What the doctor says, of what it was told."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.collect.auditing import look, managed_by
from app.collect.contexts import WantedCluster
from app.collect.diagnosis import Finding, Level, worst
from app.collect.doctor import examine, of_clock, of_version
from app.collect.permissions import Allowed, Rule, excess, may, missing, said_of_excess
from app.collect.words import Served
from app.store.reach import AUDIT_LOG, WATCH
from tests.collect.scripted import Answer, serving

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PODS, TILLS = Served("", "v1", "Pod", "pods"), Served("shop.example", "v1", "Till", "tills")
WEBHOOK = {
    "--audit-policy-file": "/etc/policy",
    "--audit-webhook-config-file": "/etc/webhook",
    "--audit-webhook-truncate-enabled": "true",
}


def second(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("server", "took", "said"),
    [
        (0, 0.1, ""),
        (5, 0.1, ""),
        (-6, 0.1, ""),  # the Date is cut: 5 to 6 seconds behind
        (6, 0.1, "at least 6 s ahead of ours"),
        (-7, 0.1, "at least 6 s behind ours"),
        (9, 4, ""),  # it may have been asked just before it answered
        (3600, 4, "at least 3596 s ahead of ours"),
    ],
)
def test_a_clock_is_off_only_where_the_round_trip_cannot_explain_it(server: float, took: float, said: str) -> None:
    found = of_clock(NOON, NOON + second(took), NOON + second(server))
    assert (said in found.said, found.level) == (True, Level.WARNING if said else Level.OK)


def test_a_clock_that_is_not_told_is_no_warning() -> None:
    assert of_clock(NOON, NOON, None).level is Level.OK


@pytest.mark.parametrize(
    ("major", "minor", "level"),
    [
        ("1", "26", Level.PROBLEM),
        ("1", "26+", Level.PROBLEM),
        ("1", "27+", Level.OK),
        ("1", "36", Level.OK),
        ("2", "0", Level.OK),
        ("", "", Level.OK),
    ],
)
def test_a_kubernetes_that_is_too_old_is_a_problem(major: str, minor: str, level: Level) -> None:
    assert of_version(major, minor, "v").level is level


def audit(
    flags: dict[str, str] | None, managed: str = "", recorded: dict[str, datetime] | None = None
) -> tuple[Level, str]:
    first = next(look(flags, managed, recorded, now=NOON))
    return first.level, f"{first.said} | {first.fix}"


def test_audit_events_that_came_lately_are_enough() -> None:
    level, said = audit(None, "EKS", {AUDIT_LOG: NOON - timedelta(minutes=59)})
    assert (level, "up to 2026-11-22 11:01" in said) == (Level.OK, True)


@pytest.mark.parametrize(
    ("flags", "managed", "recorded", "said"),
    [
        (WEBHOOK, "", {WATCH: NOON}, "none ever came, though the API server sends them where /etc/webhook says"),
        (WEBHOOK, "", {AUDIT_LOG: NOON - timedelta(days=1)}, "the last one tells of 2026-11-21 12:00"),
        ({"--audit-policy-file": "x"}, "", None, "has no --audit-webhook-config-file: it sends"),
        ({"--v": "2"}, "", None, "no --audit-policy-file and no --audit-webhook-config-file"),
        (None, "", {}, "flags cannot be read"),
        (None, "EKS", {}, "CloudWatch"),
        (None, "GKE", None, "gcloud logging read"),
        (None, "AKS", None, "kube-audit"),
    ],
)
def test_where_no_audit_events_come_it_is_said_why_and_what_to_do(
    flags: dict[str, str] | None, managed: str, recorded: dict[str, datetime] | None, said: str
) -> None:
    level, text = audit(flags, managed, recorded)
    assert (level, said in text) == (Level.WARNING, True), text


def test_a_webhook_whose_events_are_not_known_is_taken_for_set_up() -> None:
    assert audit(WEBHOOK)[0] is Level.OK


def test_a_webhook_with_flags_that_endanger_the_api_server_is_warned_of() -> None:
    flags = {**WEBHOOK, "--audit-webhook-truncate-enabled": "false", "--audit-webhook-mode": "blocking"}
    found = list(look({**flags, "--event-ttl": "3h0m0s"}, "", None, now=NOON))
    assert [one.level for one in found] == [Level.OK, Level.WARNING, Level.WARNING, Level.OK]
    assert "3h0m0s" in found[-1].said


@pytest.mark.parametrize(
    ("version", "url", "whose"),
    [
        ("v1.33.5-eks-3cfe0ce", "https://x.eks.amazonaws.com", "EKS"),
        ("v1.34.1-gke.1293000", "https://10.0.0.2", "GKE"),
        ("v1.33.2", "https://shop-abc.hcp.westeurope.azmk8s.io:443", "AKS"),
        ("v1.36.3", "https://127.0.0.1:6443", ""),
    ],
)
def test_managed_clusters_are_known(version: str, url: str, whose: str) -> None:
    assert managed_by(version, url) == whose


def rule(verbs: str, resources: str, groups: str = "", *names: str) -> Rule:
    return Rule(tuple(verbs.split()), tuple(groups.split(",")), tuple(resources.split()), names)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (rule("get list watch", "pods nodes"), ()),
        (rule("create", "selfsubjectaccessreviews", "authorization.k8s.io"), ()),
        (rule("get list watch delete", "pods"), ("delete pods",)),
        (rule("list", "secrets"), ("list secrets",)),
        (rule("get", "secrets", "", "one"), ("get secrets",)),
        (rule("get list", "*", "*"), ("get secrets", "list secrets")),
        (rule("get", "*", "apps"), ()),
        (rule("get", "pods/exec"), ("get pods/exec",)),
        (rule("impersonate", "users"), ("impersonate users",)),
        (rule("*", "deployments", "apps"), ("* deployments.apps",)),
        (rule("*", "*", "apps"), ("* all kinds of apps",)),
        (rule("*", "*", "*"), ("anything (* on all kinds)",)),
    ],
)
async def test_what_is_more_than_needed_is_named(one: Rule, said: tuple[str, ...]) -> None:
    async with serving() as server:
        assert await excess(server.api, Allowed((one,), incomplete=False)) == said


async def test_secrets_that_were_added_are_needed() -> None:
    async with serving() as server:
        found = Allowed((rule("get list watch", "secrets"),), incomplete=False)
        assert await excess(server.api, found, add=["secrets"]) == ()


def test_a_long_list_is_cut() -> None:
    assert said_of_excess([f"delete k{n}" for n in range(10)]).endswith("delete k7 and 2 more")


async def test_rules_of_single_objects_let_nothing_be_watched() -> None:
    rules = (rule("get list watch", "pods", "", "one"), rule("list", "tills", "shop.example"))
    async with serving() as server:
        found = await missing(server.api, Allowed(rules, incomplete=False), [PODS, TILLS])
    assert found == {PODS: ("list", "watch"), TILLS: ("watch",)}


async def test_where_rules_cannot_be_listed_each_kind_is_asked_for() -> None:
    yes, no = (Answer([b'{"status":{"allowed":%s}}' % word], status=201) for word in (b"true", b"false"))
    allowed = Allowed((rule("list watch", "pods"),), incomplete=True)
    async with serving(paths={REVIEW: [yes, no]}) as server:
        assert await missing(server.api, allowed, [PODS, TILLS]) in ({TILLS: ("list",)}, {TILLS: ("watch",)})
    async with serving(paths={REVIEW: [yes] * 7}) as server:
        assert "impersonate users" in await excess(server.api, allowed)
    async with serving(paths={REVIEW: [no]}) as server:
        assert not await may(server.api, "create", "", "pods/exec")


def test_the_gravest_finding_counts() -> None:
    findings = [Finding("a", Level.OK, ""), Finding("b", Level.WARNING, "")]
    assert worst(findings) is Level.WARNING
    assert worst([*findings, Finding("c", Level.PROBLEM, "")]) is Level.PROBLEM
    assert worst([]) is Level.OK


NONSENSE = b64encode(b"nonsense").decode()


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"certificate-authority-data": NONSENSE}, {"token": "geheim"}),
        ({"certificate-authority": "/no/such/file"}, {"token": "geheim"}),
        ({}, {"client-certificate-data": NONSENSE, "client-key-data": NONSENSE}),
        ({}, {"client-certificate-data": "%", "client-key-data": NONSENSE}),
        ({}, {"tokenFile": "/no/such/file"}),
        ({}, {"auth-provider": {"name": "gcp"}}),
        (None, {"token": "geheim"}),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_a_problem_and_no_crash(
    tmp_path: Path, cluster: dict[str, str] | None, user: dict[str, str]
) -> None:
    server = None if cluster is None else {"server": "https://127.0.0.1:1", **cluster}
    content = {
        "clusters": [{"name": "one", "cluster": server}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
        "current-context": "here",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(content))
    [one] = await examine(WantedCluster("shop", str(path)), clock=lambda: NOON)
    assert (one.check, one.level) == ("connection", Level.PROBLEM)
    assert "no usable kubeconfig" in one.said
    assert "geheim" not in one.said + one.fix


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_who_asks_is_not_to_blame_where_the_api_server_has_too_much_to_do(tmp_path: Path, status: int) -> None:
    async with serving(*[Answer(status=status)] * 99) as server:
        content = {
            "clusters": [{"name": "one", "cluster": {"server": server.api.url}}],
            "contexts": [{"name": "here", "context": {"cluster": "one"}}],
            "current-context": "here",
        }
        (tmp_path / "config").write_text(json.dumps(content))
        found = await examine(WantedCluster("shop", str(tmp_path / "config")), clock=lambda: NOON)
    last = found[-1]
    assert (last.check, str(status) in last.said) == ("connection", True)
    assert "kubectl get --raw '/readyz?verbose'" in last.fix
    assert "whoami" not in last.fix


@pytest.mark.parametrize(
    "text", ["users: [{user: {token: geheim}\n  x: [", "\t- token: geheim\n", "\x00", "a: &a [*a]", "7"]
)
async def test_a_kubeconfig_that_is_no_yaml_is_one_too(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    [one] = await examine(WantedCluster("shop", str(path)), clock=lambda: NOON)
    assert "no usable kubeconfig" in one.said
    assert "\n" not in one.said
    assert "geheim" not in one.said + one.fix
