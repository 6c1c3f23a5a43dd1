"""Custom resources by which all volumes of a provider are kept: who has volumes of its classes is touched.

A provider's provisioner is by convention called with the domain of its API group, or with words of it:
driver.longhorn.io and longhorn.io (https://longhorn.io/docs/latest/nodes-and-volumes/volumes/create-volumes/),
rook-ceph.rbd.csi.ceph.com and ceph.rook.io (https://rook.io/docs/rook/latest/Storage-Configuration/Block-Storage-RBD/block-storage/).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.core.edges.topology import Named, Topology
from app.core.model import Resource
from app.core.objects.untyped import part

_OF_ALL = re.compile(r"Settings?\Z|Cluster\Z|Pool\Z|Filesystem\Z|Node\Z|Configs?\Z")
"""Kinds that say how all volumes are kept, by what they are called; others are of one volume or backup."""
_ANY = frozenset(
    {
        *("io", "com", "org", "net", "dev", "cloud", "services", "csi", "driver", "storage", "k8s", "kubernetes"),
        *("gke", "google", "googleapis", "aws", "amazonaws", "azure", "microsoft", "ibm", "oracle", "alibaba"),
    }
)
"""Words of domains that say nothing: of all that a cloud has, its volumes are a part."""


def volumes_of(resource: Resource, top: Topology) -> Iterator[Named]:
    """The workloads that have volumes of a class whose provider is told by a custom resource how to keep them."""
    words = set(resource.api_group.split(".")) - _ANY
    if not words or not _OF_ALL.search(resource.kind):
        return
    classes = top.of_kind.get(("storage.k8s.io", "StorageClass"), ())
    provided = {str(part(state, "metadata", "name")): state.get("provisioner") for state in classes}

    def is_theirs(name: str) -> bool:
        return not words.isdisjoint(re.split(r"[.-]", str(provided.get(name, name))))

    for kind, namespace, name in list(top.by_config):
        if kind == "StorageClass" and is_theirs(name):
            yield from top.by_config[kind, namespace, name]
        elif kind == "PersistentVolumeClaim":
            claim = top.states.get(Resource(resource.cluster, "", kind, namespace, name), {})
            if is_theirs(str(part(claim, "spec", "storageClassName"))):
                yield from top.by_config[kind, namespace, name]
