"""One real control plane for the tests that leave it whole; those that break one take ``running`` for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.cluster.control_plane import ControlPlane, running


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, shared by the tests of this process."""
    with running() as plane:
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """The name of an empty namespace there; it stays, as no controller would empty it."""
    name = f"n{uuid4().hex[:8]}"
    with control_plane.client() as admin:
        made = admin.post("/api/v1/namespaces", json={"metadata": {"name": name}})
    assert made.status_code == 201, made.text
    return name
