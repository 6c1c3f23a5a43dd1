"""Which clusters are followed is found as an operator expects, and what is wrong with a file is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.collect import contexts
from app.collect.contexts import ContextsError, WantedCluster
from app.yaml_file import read_yaml


def kubeconfig(folder: Path, name: str, current: str) -> Path:
    path = folder / name
    path.write_text(f"apiVersion: v1\nkind: Config\ncurrent-context: {current}\n")
    return path


def test_a_file_names_any_number_of_clusters(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(
        "clusters:\n"
        "- name: shop\n  kubeconfig: /etc/shop\n  context: admin@shop\n  exclude: [events]\n"
        "- name: here\n  add: [secrets]\n"
    )
    assert contexts.read(path) == (
        WantedCluster("shop", "/etc/shop", "admin@shop", (), ("events",)),
        WantedCluster("here", add=("secrets",)),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clusters: 3", "Expected `array`, got `int` - at `$.clusters`"),
        ("clusters:\n- kubeconfig: /x", "missing required field `name` - at `$.clusters[0]`"),
        ("clusters:\n- {name: a, kubeconfg: /x}", "unknown field `kubeconfg` - at `$.clusters[0]` of 'a'; it"),
        ("clusters:\n- {name: a}\n- {name: b, add: secrets}", "at `$.clusters[1].add` of 'b'"),
        ("clusters:\n- {name: a}\n- {name: 3}", "at `$.clusters[1].name`"),
        ("clusters:\n- {name: a}\n- b", "got `str` - at `$.clusters[1]`"),
        ("clusters:\n- {name: a}\n- {name: a}", "two clusters are called a"),
        ("clusters:\n- {name: a/b}", "'a/b': the name of a cluster stands in addresses: it holds no /"),
        ("clusters:\n- {name: a, scrape_also: ['felix_*']}", "at `$.clusters[0].scrape_also[0]`"),
        ("clusters:\n- {name: a, promethues: {}}", "it may have name, kubeconfig, context, add, exclude, prometheus,"),
        (
            "clusters:\n- {name: a, prometheus: {url: http://p, basic_auth: {}}}",
            "; it may have url, token_file, username",
        ),
        ("clusters:\n- {name: a, scrape: [{url: http://p, jb: x}]}", "key_file, headers, job, instance"),
        ("cluster:\n- {name: a}", "unknown field `cluster`; clusters: stands first"),
        (
            "clusters:\n- {name: a, scrape: [{job: etcd, url: http://p/a}, {job: etcd, url: http://p/b}]}",
            "two targets are the etcd of p:80: give each an instance of its own - at `$.clusters[0]`",
        ),
        ("clusters: [", "line 1, column 12"),
        ("", "Expected `object`, got `null`; clusters: stands first, and below it a list of them"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(text)
    with pytest.raises(ContextsError) as error:
        contexts.read(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)


def test_the_usual_cluster_is_kubectls_then_that_of_the_pod(tmp_path: Path) -> None:
    none, token = tmp_path / "none", tmp_path / "token"
    assert contexts.usual([none], pod_token=token) == ()
    token.write_text("x")
    assert contexts.usual([none], pod_token=token) == (WantedCluster("in-cluster"),)
    first, second = kubeconfig(tmp_path, "first", '""'), kubeconfig(tmp_path, "second", "kind-shop")
    assert contexts.usual([none, first, second], pod_token=token) == (
        WantedCluster("kind-shop", f"{first}:{second}", "kind-shop"),
    )
    assert contexts.usual([first], pod_token=token) == ()


def test_a_cluster_of_eks_is_called_by_the_last_part_of_its_context(tmp_path: Path) -> None:
    context = "arn:aws:eks:eu-central-1:123456789012:cluster/shop"
    path = kubeconfig(tmp_path, "config", context)
    assert contexts.usual([path]) == (WantedCluster("shop", str(path), context),)


def test_a_kubeconfig_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("current-context: [")
    with pytest.raises(ContextsError, match=f"{path}: "):
        contexts.usual([path])
    path.write_text("current-context: ..")
    with pytest.raises(ContextsError, match="more than dots"):
        contexts.usual([path])


@pytest.mark.parametrize("page", ["clusters.md", "metrics.md", "incidents.md"])
def test_the_examples_of_the_documentation_are_taken(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (Path(__file__).parents[2] / "docs" / page).read_text(), re.DOTALL)
    examples = [block for block in blocks if re.match(r"clusters:|- name:", block)]
    assert examples
    for number, block in enumerate(examples):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block if block.startswith("clusters:") else f"clusters:\n{block}")
        assert contexts.read(path)


@pytest.mark.parametrize("word", ["*geheim", "!geheim x", "!geheim!a x", "&geheim x\nb: &geheim y\nc: *none"])
def test_of_a_password_that_yaml_takes_for_a_sign_no_word_is_told(tmp_path: Path, word: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(f"token: {word}")
    for read in (contexts.read, lambda path: contexts.usual([path])):
        with pytest.raises(ContextsError, match=r"no YAML: .*\(line") as error:
            read(path)
        assert "geheim" not in str(error.value)


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "at: 2026-13-45"])
def test_what_cannot_be_read_is_no_fault_of_ours(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    for read in (contexts.read, lambda path: contexts.usual([path])):
        with pytest.raises(ContextsError, match=f"{path}: "):
            read(path)


def test_a_key_that_stands_in_place_of_a_merged_one_comes_once(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("base: &base {a: 1}\nx: {y: {z: &own {<<: *base, a: 2}}}\nlast: {<<: *own}\n")
    assert read_yaml(path)["last"] == {"a": 2}


def test_of_what_is_no_yaml_the_place_is_told_and_no_word_of_it(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("users: [{user: {token: geheim} x: [")
    said = f"{path}: no YAML: expected ',' or '}}', but got '<scalar>' (line 1, column 32)"
    with pytest.raises(ContextsError, match=re.escape(said)):
        contexts.usual([path])
    with pytest.raises(ContextsError, match=re.escape(said)):
        contexts.read(path)
