"""The file that says which clusters are followed, or what is followed without one."""

from __future__ import annotations

from app.collect import contexts
from app.collect.contexts import WantedCluster
from app.settings import Settings


def wanted_clusters(settings: Settings) -> tuple[WantedCluster, ...]:
    """Which clusters are to be followed: those of the file, else kubectl's, else our own. Raises ContextsError."""
    path = settings.clusters_file or settings.data_dir / "clusters.yaml"
    if settings.clusters_file or path.exists():
        return contexts.read(path)
    return contexts.usual(settings.kubeconfigs())
