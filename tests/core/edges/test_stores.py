"""How all volumes of a provider are kept, and who has them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.stores import volumes_of
from app.core.model import Json, ObjectState, Resource
from tests.core.factories import a_resource, a_state, a_workload

DB, FILES = ("shop", "db"), ("shop", "files")


def company(provisioner: str) -> list[ObjectState]:
    claim: Json = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}
    template: Json = {"spec": {"containers": [{"name": "db"}]}}
    volume: Json = {"name": "files", "persistentVolumeClaim": {"claimName": "files"}}
    return [
        a_state(Resource("lab", "storage.k8s.io", "StorageClass", None, "fast"), {"provisioner": provisioner}),
        a_state(a_resource("StatefulSet", "db"), {"spec": {"volumeClaimTemplates": [claim], "template": template}}),
        a_state(a_resource("PersistentVolumeClaim", "files"), {"spec": {"storageClassName": "fast"}}),
        a_workload(a_resource("Deployment", "files"), volumes=[volume]),
        a_workload(a_resource("Deployment", "web")),
    ]


@pytest.mark.parametrize(
    ("group", "kind", "provisioner", "found"),
    [
        ("longhorn.io", "Setting", "driver.longhorn.io", {DB, FILES}),
        ("ceph.rook.io", "CephBlockPool", "rook-ceph.rbd.csi.ceph.com", {DB, FILES}),
        ("longhorn.io", "Setting", "ebs.csi.aws.com", set()),
        ("longhorn.io", "Volume", "driver.longhorn.io", set()),
        ("networking.gke.io", "FrontendConfig", "pd.csi.storage.gke.io", set()),
        ("eks.services.k8s.aws", "Cluster", "ebs.csi.aws.com", set()),
        ("longhorn.io", "SettingTemplate", "driver.longhorn.io", set()),
    ],
)
def test_how_a_provider_keeps_its_volumes_touches_who_has_them(
    group: str, kind: str, provisioner: str, found: set[tuple[str, str]]
) -> None:
    setting = replace(a_resource(kind, "one", "storage"), api_group=group)
    assert set(volumes_of(setting, topology(company(provisioner)))) == found
