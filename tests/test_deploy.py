"""What deploys Foreshock, checked without a container engine: schema, Dockerfile rules, and that it fits together."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tools import file_sizes

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
DATA = "/var/lib/foreshock"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_the_compose_file_follows_the_schema_of_compose() -> None:
    checked = subprocess.run(
        [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    checked = subprocess.run(
        [BIN / "hadolint", ROOT / "deploy" / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_image_runs_as_nobody_in_particular_and_holds_what_the_program_reads() -> None:
    final = DOCKERFILE.split("\nFROM ")[-1]
    assert re.search(r"^USER 1\d{4}:1\d{4}$", final, re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text()
    for folder in ("migrations", "templates", "static", "demo"):
        assert f"COPY {folder} {folder}\n" in final
        assert f"!{folder}\n" in ignored


def test_the_container_can_write_nothing_but_tmp_and_its_data() -> None:
    """Without a place for the spool, nothing would be recorded of what is sent or watched."""
    service = COMPOSE["services"]["foreshock"]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["volumes"] == [f"foreshock:{DATA}"]
    final = DOCKERFILE.split("\nFROM ")[-1]
    assert f"install --directory --owner foreshock --mode 0700 {DATA}\n" in final
    assert f"FORESHOCK_DATA_DIR={DATA} HOME=/tmp\n" in final, "users whom the image does not know have no home"
    assert f"\nVOLUME {DATA}\n" in final


def test_a_pod_is_sent_what_it_can_keep_whatever_is_away() -> None:
    """Who is not ready has no endpoint: /readyz fails with the database, without which audit events go to the spool."""
    manifests = [*yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())]
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    probes = {name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    assert probes == dict.fromkeys(("startupProbe", "livenessProbe", "readinessProbe"), "/healthz")
    starts = container["startupProbe"]
    assert starts["periodSeconds"] * starts["failureThreshold"] >= 1800, "migrations of a large database take a while"


def test_nothing_is_published_beyond_this_machine() -> None:
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_every_file_that_compose_mounts_is_here() -> None:
    mounted = [
        mount.split(":")[0]
        for service in COMPOSE["services"].values()
        for mount in service.get("volumes", [])
        if mount.startswith("./")
    ]
    assert mounted
    assert all((ROOT / path).is_file() for path in mounted)


def test_alertmanager_reports_to_us_with_the_secret_that_it_is_given() -> None:
    [receiver] = yaml.safe_load((ROOT / "deploy" / "alertmanager.yml").read_text())["receivers"]
    [hook] = receiver["webhook_configs"]
    assert hook["url"].startswith("http://foreshock:8000/")
    secret = hook["http_config"]["authorization"]["credentials_file"].removeprefix("/run/secrets/")
    assert secret in COMPOSE["services"]["alertmanager"]["secrets"]
    assert secret in COMPOSE["secrets"]


AUDIT_POLICY = yaml.safe_load((ROOT / "deploy" / "audit-policy.yaml").read_text())


def level_of(verb: str, group: str, resource: str) -> str:
    """What the policy says of a request for a resource, as kube-apiserver reads it: the first rule that fits."""
    for rule in AUDIT_POLICY["rules"]:
        named = rule.get("resources")
        if "nonResourceURLs" in rule or verb not in rule.get("verbs", [verb]):
            continue
        if named is None or any(
            one["group"] in (group, "*") and resource in one.get("resources", [resource]) for one in named
        ):
            return str(rule["level"])
    return "None"


@pytest.mark.parametrize(
    ("verb", "group", "resource", "level"),
    [
        ("patch", "apps", "deployments", "RequestResponse"),
        ("update", "", "configmaps", "RequestResponse"),
        ("patch", "", "pods/status", "RequestResponse"),
        ("create", "example.org", "widgets", "RequestResponse"),
        ("deletecollection", "", "pods", "RequestResponse"),
        ("create", "", "secrets", "Metadata"),
        ("list", "", "secrets", "Metadata"),
        ("create", "", "serviceaccounts/token", "Metadata"),
        ("create", "authentication.k8s.io", "tokenreviews", "Metadata"),
        ("create", "", "pods/exec", "Metadata"),
        ("patch", "", "nodes/status", "Metadata"),
        ("get", "", "configmaps", "Metadata"),
        ("list", "", "pods", "Metadata"),
        ("watch", "apps", "deployments", "Metadata"),
        ("update", "coordination.k8s.io", "leases", "None"),
        ("create", "", "events", "None"),
    ],
)
def test_the_audit_policy_tells_of_writes_whole_and_of_secrets_nothing(
    verb: str, group: str, resource: str, level: str
) -> None:
    assert level_of(verb, group, resource) == level


def test_the_audit_policy_omits_what_is_not_needed_and_keeps_the_start_of_watches() -> None:
    assert AUDIT_POLICY["omitManagedFields"] is True
    assert AUDIT_POLICY["omitStages"] == ["RequestReceived"]


def test_the_api_server_sends_to_the_route_that_takes_it_over_https() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "audit-webhook.kubeconfig.yaml").read_text())
    [cluster], [user], [context] = config["clusters"], config["users"], config["contexts"]
    assert cluster["cluster"]["server"].startswith("https://")
    assert urlsplit(cluster["cluster"]["server"]).path == "/intake/audit/shop"
    assert (context["context"]["cluster"], context["context"]["user"]) == (cluster["name"], user["name"])
    assert config["current-context"] == context["name"]
    assert set(user["user"]) == {"tokenFile"}, "no secret stands in the file itself"


@pytest.mark.parametrize(("lines", "code"), [(500, 0), (501, 1)])
def test_a_file_that_is_too_long_fails_the_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: int, code: int
) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "long.py").write_text("x = 1\n" * lines)
    assert file_sizes.main(tmp_path) == code
    assert f"app/long.py: {lines} lines" in capsys.readouterr().out
