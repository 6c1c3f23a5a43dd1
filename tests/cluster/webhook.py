"""A real API server that tells a real ``foreshock serve`` of its requests: set up as docs/audit-webhook.md says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.control_plane import ControlPlane, running

ROOT = Path(__file__).parents[2]
THERE = "/etc/kubernetes/foreshock/"
"""The folder that the documentation puts everything in."""
_FLAG = re.compile(r"^\| `(--audit-[^`]+)`", re.MULTILINE)


def flags(folder: Path) -> list[str]:
    """Those of kube-apiserver that the documentation lists, for files in another folder."""
    found = _FLAG.findall((ROOT / "docs/audit-webhook.md").read_text())
    assert len(found) > 5, found
    return [flag.replace(THERE, f"{folder}/") for flag in found]


def set_up(folder: Path, address: str, *, cluster: str, token: str, cert: Path) -> None:
    """Put into a folder what an operator puts on the machine of an API server that is to send to ``address``."""
    content = (ROOT / "deploy/audit-webhook.kubeconfig.yaml").read_text()
    for before, after in (
        ("https://foreshock.example:8000/intake/audit/shop", f"{address}/intake/audit/{cluster}"),
        (f"{THERE}ca.crt", str(cert)),
        (f"{THERE}token", str(folder / "token")),
    ):
        assert before in content, before
        content = content.replace(before, after)
    (folder / "audit-webhook.kubeconfig.yaml").write_text(content)
    (folder / "audit-policy.yaml").write_text((ROOT / "deploy/audit-policy.yaml").read_text())
    (folder / "token").write_text(token)


@contextmanager
def telling(folder: Path, address: str, *flag: str, cluster: str, token: str, cert: Path) -> Iterator[ControlPlane]:
    """A control plane that tells Foreshock at ``address``, for the length of the block; ``flag`` are further ones."""
    set_up(folder, address, cluster=cluster, token=token, cert=cert)
    with running(flags=[*flags(folder), *flag]) as plane:
        yield plane


def follow(plane: ControlPlane, data_dir: Path, cluster: str) -> None:
    """Let ``foreshock serve`` of this data folder watch the cluster too: within seconds, where it runs already."""
    written = data_dir / "clusters.yaml.new"
    written.write_text(f"clusters:\n- name: {cluster}\n  kubeconfig: {plane.kubeconfig()}\n")
    written.replace(data_dir / "clusters.yaml")
