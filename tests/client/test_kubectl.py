"""`kubectl foreshock`, run by a real kubectl: the cluster and the namespace of its context, and what Tab offers."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.client import kubeconfig
from app.client.kubeconfig import Context, ContextError, cluster_of
from app.failures import Exit
from tests.client.conftest import Asked, run
from tests.cluster.programs import found
from tests.programs import found as program
from tests.test_cli import PATIENCE, environment
from tests.web import world

ROOT = Path(__file__).parents[2]
EKS = "arn:aws:eks:eu-central-1:123456789012:cluster/shop"


def a_config(*contexts: tuple[str, str, str], current: str = "", **more: Any) -> dict[str, Any]:
    """A kubeconfig with contexts, each a name, a cluster and a namespace."""
    made = [
        {"name": name, "context": {"cluster": cluster, "user": "me"} | ({"namespace": space} if space else {})}
        for name, cluster, space in contexts
    ]
    head = {"apiVersion": "v1", "kind": "Config", "users": [], "clusters": []}
    return head | {"contexts": made} | ({"current-context": current} if current else {}) | more


def written(folder: Path, name: str, config: object) -> Path:
    file = folder / name
    file.write_text(yaml.safe_dump(config))
    return file


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl that finds our programs on its PATH, as they are installed."""

    path: str
    folder: Path
    site: Asked

    def run(self, *arguments: str, config: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        variables = {
            **self.site.variables(),
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "KUBECONFIG": str(config or written(self.folder, "usual", a_config((EKS, EKS, "payments"), current=EKS))),
            **more,
        }
        return subprocess.run(
            [self.path, *arguments],
            env=environment(**variables), capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def kubectl(site: Asked, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    folder = tmp_path_factory.mktemp("path")
    install(folder)
    return Kubectl(found("kubectl"), folder, site)


def install(folder: Path) -> None:
    """What pip makes of the package's entry points."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, target in scripts.items():
        module, _, function = target.partition(":")
        script = folder / name
        script.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        script.chmod(0o755)


def test_it_is_a_plugin_that_asks_about_the_context(kubectl: Kubectl) -> None:
    listed = kubectl.run("plugin", "list")
    assert str(kubectl.folder / "kubectl-foreshock") in listed.stdout
    assert "warning" not in (listed.stdout + listed.stderr).lower()
    done = kubectl.run("foreshock", "what-changed", "30m")
    assert done.returncode == 0, done.stderr
    assert "cluster shop, namespace payments alone (-A: every namespace" in done.stderr
    rows = [row for row in done.stdout.splitlines()[2:] if not row.startswith("not seen")]
    assert {row.split()[1] for row in rows} == {"payments"}
    every = kubectl.run("foreshock", "what-changed", "30m", "-A")
    assert "91 changes" in every.stdout.splitlines()[0]
    assert every.stderr == f"foreshock: cluster shop, as the context {EKS} says\n"
    assert "identity" in kubectl.run("foreshock", "what-changed", "-n", "identity").stdout
    calls = kubectl.run("foreshock", "export", "calls", "--from", "1h")
    assert (calls.returncode, '"serviceaccounts"' in calls.stdout) == (0, True), calls.stderr
    assert kubectl.run("foreshock", "suspects", world.incident().id).stdout.startswith("3 suspects")


def test_the_context_is_found_as_kubectl_finds_it(kubectl: Kubectl, tmp_path: Path) -> None:
    first = written(tmp_path, "first", a_config(("mine", "shop", "identity"), current="theirs"))
    second = written(tmp_path, "second", a_config(("mine", "x", "x"), ("theirs", "shop", ""), current="mine"))
    both = Path(os.pathsep.join([str(tmp_path / "gone"), str(first), str(second)]))
    current = kubectl.run("config", "current-context", config=both).stdout.strip()
    done = kubectl.run("foreshock", "changes", config=both)
    assert "cluster shop, namespace default alone (-A: " in done.stderr
    assert f", as the context {current} says" in done.stderr
    named = kubectl.run("foreshock", "changes", "--context", "mine", config=both)
    assert "cluster shop, namespace identity alone" in named.stderr
    alone = kubectl.run("foreshock", "changes", "--kubeconfig", str(second), config=first)
    assert "no cluster called mine or x" in alone.stderr


def test_a_context_of_a_cluster_that_is_not_known_is_not_guessed(kubectl: Kubectl, tmp_path: Path) -> None:
    config = written(tmp_path, "config", a_config(("laptop", "kind-laptop", ""), current="laptop"))
    done = kubectl.run("foreshock", "what-changed", config=config)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no cluster called laptop or kind-laptop, as the context laptop says; it knows shop" in done.stderr
    for more in ({"FORESHOCK_CLUSTER": "shop"}, {}):
        options = [] if more else ["--cluster", "shop"]
        said = kubectl.run("foreshock", "what-changed", "-A", *options, config=config, **more)
        assert (said.returncode, "91 changes" in said.stdout, said.stderr) == (0, True, "")
    other = kubectl.run(
        "foreshock", "what-changed", "-A", "--context", "laptop", config=config, FORESHOCK_CLUSTER="shop"
    )
    assert (other.returncode, "no cluster called laptop" in other.stderr) == (2, True), (
        "a context that is named decides"
    )
    both = ("--context", "laptop", "--cluster", "shop")
    assert "91 changes" in kubectl.run("foreshock", "what-changed", "-A", *both, config=config).stdout
    named = kubectl.run("foreshock", "what-changed", "--cluster", "shop", config=config)
    assert named.stderr.startswith("foreshock: namespace default alone (-A: ")
    lost = kubectl.run("foreshock", "what-changed", config=tmp_path / "none")
    assert (lost.returncode, "there is no current context" in lost.stderr) == (2, True)
    unset = kubectl.run("foreshock", "what-changed", FORESHOCK_URL="")
    assert (unset.returncode, "FORESHOCK_URL is not set" in unset.stderr) == (2, True)


def test_kubectl_completes_it(kubectl: Kubectl) -> None:
    def offered(*words: str) -> list[str]:
        done = kubectl.run("__complete", "foreshock", *words)
        assert done.returncode == 0, done.stderr
        *lines, directive = done.stdout.splitlines()
        assert directive == ":4"
        return [line.partition("\t")[0] for line in lines]

    assert {"what-changed", "incident", "diff"} <= set(offered(""))
    assert offered("what-changed", "--namespace", "pay") == ["payments"]
    assert offered("changes", "--cluster", "") == ["shop"]
    assert offered("suspects", "") == [world.incident().id]
    assert offered("what-changed", "--context", "") == [EKS]
    assert "--all-namespaces" in offered("what-changed", "--")


def test_a_shell_that_waits_no_more_for_what_could_come_next_is_told_nothing() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from app.kubectl import complete; complete()", "what-changed", "--"],
            env=environment(), cwd=ROOT, stdout=writes, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (Exit.NOT_READ, "")


def test_bash_completes_the_command(kubectl: Kubectl) -> None:
    bash = program("bash", package="bash")
    script = f"""
    export PATH={kubectl.folder}:$PATH
    eval "$(foreshock --show-completion)"
    offer() {{ COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _foreshock_completion foreshock; echo "${{COMPREPLY[*]}}"; }}
    offer foreshock suspects ''
    offer foreshock changes --cluster s
    FORESHOCK_URL=http://127.0.0.1:9 offer foreshock changes --cluster s
    """
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        env=environment(**kubectl.site.variables(), PYTHONPATH=str(ROOT)),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.stdout.splitlines(), done.stderr) == ([world.incident().id, "shop", ""], "")


def test_what_tab_offers_holds_nothing_that_a_shell_would_run(site: Asked) -> None:
    """zsh evaluates it; an incident's title is what an alert says."""
    title = "a \\$(touch x) `touch y` \"'; touch z [/red] b: 1 → 2"
    opened = site.run("incident", "open", title, role="responder")
    assert opened.returncode == 0, opened.stderr
    shell = {"_FORESHOCK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "foreshock suspects "}
    done = run(
        [sys.executable, "-c", "from app.__main__ import cli; cli(prog_name='foreshock')"], **site.variables(), **shell
    )
    [line] = [line for line in done.stdout.splitlines() if opened.stdout.strip() in line]
    assert "open\\\\: a (touch x) touch y ; touch z /red b\\\\: 1 → 2" in line
    assert not set("$`'") & set(line.replace("_arguments '*: :((", "").replace("))'", ""))
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("changes --verb ", ["create", "update", "delete"]),
        ("incident open Down --severity ", ["page", "critical", "error", "warning", "info"]),
        ("changes --kind Dep", ["Deployment"]),
        ("who-calls --by user,v", ["user,verb"]),
        ("who-calls --by user,verb,user", ["user,verb,user_agent"]),
    ],
)
def test_tab_offers_the_values_of_options(site: Asked, line: str, offered: list[str]) -> None:
    words = f"foreshock {line}"
    shell = {
        "_FORESHOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = run(
        [sys.executable, "-c", "from app.__main__ import cli; cli(prog_name='foreshock')"], **site.variables(), **shell
    )
    assert done.stdout.split() == offered, done


@pytest.mark.parametrize(
    ("context", "known", "expected"),
    [
        (Context(EKS, EKS, "default"), ["north", "shop"], "shop"),
        (Context("me@prod", "prod", "default"), ["prod"], "prod"),
        (Context("prod", "prod", "default"), ["prod"], "prod"),
        (Context("gke_project_zone_prod", "gke_project_zone_prod", "default"), ["gke_project_zone_prod"],
         "gke_project_zone_prod"),
    ],
)  # fmt: skip
def test_the_name_of_a_cluster_is_that_of_its_context_or_of_its_own(
    context: Context, known: Sequence[str], expected: str
) -> None:
    assert cluster_of(context, known) == expected


def test_two_names_that_are_both_known_are_told() -> None:
    with pytest.raises(ContextError, match="may be of prod or of staging"):
        cluster_of(Context("prod", "staging", "default"), ["prod", "staging"])
    with pytest.raises(ContextError, match="it knows none: --cluster"):
        cluster_of(Context("prod", "", "default"), [])


@pytest.mark.parametrize("text", ["", "[]", "contexts: 7\ncurrent-context: x", "contexts: [7, {name: x, context: 3}]"])
def test_an_odd_kubeconfig_is_said(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ContextError):
        kubeconfig.read([file], None)
    file.write_text("a: [")
    with pytest.raises(ContextError, match="is no YAML"):
        kubeconfig.read([file], None)
