"""Which clusters are followed, and the way to each: those of a file, else the one that kubectl would talk to, else the
one that this process runs in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from app.collect.alerts import Alertmanager
from app.collect.apiserver import ApiServer
from app.collect.outbound import EndpointError
from app.collect.prometheus import Prometheus
from app.collect.scrape import Target
from app.core.clusters import cluster_name
from app.failures import Expected, told
from app.yaml_file import read_yaml

POD_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Where Kubernetes puts the credentials of a pod's ServiceAccount."""
IN_CLUSTER = "in-cluster"
"""What the cluster that we run in is called where no file names it."""


Begins = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
"""How the name of a metric begins: https://prometheus.io/docs/concepts/data_model/#metric-names-and-labels"""


class ContextsError(Expected):
    """The file of clusters, or a kubeconfig, cannot be used; the message says where and why."""


class WantedCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster to follow: what it is called, and who we are there.

    ``kubeconfig`` is a path, or several with colons; ``context`` "" its current one. Without a kubeconfig we run in the
    cluster ourselves. ``add`` and ``exclude`` name kinds as kubectl does, ``secrets`` or ``workflows.argoproj.io``.
    Metrics come from ``prometheus``, else from the API server itself (``scrape_api_server``), and from what there is to
    ``scrape``; of what is scraped those are kept, too, whose names begin as one of ``scrape_also``. What
    ``alertmanager`` lists as firing counts where its webhook was not heard.
    """

    name: str
    kubeconfig: str = ""
    context: str = ""
    add: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    prometheus: Prometheus | None = None
    scrape: tuple[Target, ...] = ()
    scrape_api_server: bool = True
    scrape_also: tuple[Begins, ...] = ()
    alertmanager: Alertmanager | None = None

    def __post_init__(self) -> None:
        """Raises EndpointError: of two targets that are called the same the samples would be one series."""
        places = [(one.labels["job"], one.labels["instance"]) for one in self.scrape]
        if twice := next((one for one in places if places.count(one) > 1), None):
            job, instance = twice
            raise EndpointError(f"scrape: two targets are the {job} of {instance}: give each an instance of its own")

    async def connect(self) -> ApiServer:
        """Raises apiserver.CredentialsError."""
        if not self.kubeconfig:
            return ApiServer.of_pod()
        return await ApiServer.of_kubeconfig(self.kubeconfig, self.context or None)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    clusters: tuple[WantedCluster, ...]


def read(path: Path) -> tuple[WantedCluster, ...]:
    """The clusters of a file. Raises ContextsError."""
    written: Any = None
    try:
        written = read_yaml(path)
        found = msgspec.convert(written, _File).clusters
    except msgspec.ValidationError as error:
        said = str(error)
        raise ContextsError(f"{path}: {told(error)}{_of(said, written)}{_known(said)}") from None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ContextsError(f"{path}: {told(error)}") from None
    names = [one.name for one in found]
    for name in names:
        try:
            cluster_name(name)
        except ValueError as error:
            raise ContextsError(f"{path}: {name!r}: {error}") from None
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ContextsError(f"{path}: two clusters are called {twice[0]}")
    return found


_UNKNOWN = re.compile(r"unknown field `[^`]*`(?: - at `\$\.clusters\[\d+\](?:\.(\w+))?[^`]*`)?")
_PARTS: dict[str | None, type[msgspec.Struct]] = {
    None: WantedCluster,
    "prometheus": Prometheus,
    "scrape": Target,
    "alertmanager": Alertmanager,
}


_PLACE = re.compile(r" - at `\$\.clusters\[(\d+)\]")


def _of(said: str, written: Any) -> str:
    """Of which cluster msgspec says something, where it has a name: nobody counts them, from 0, in a long file."""
    place = _PLACE.search(said)
    one = written["clusters"][int(place[1])] if place else None
    name = one.get("name") if isinstance(one, dict) else None
    return f" of {name!r}" if name and isinstance(name, str) else ""


def _known(said: str) -> str:
    """What may be written there, where msgspec says what may not."""
    if "`$" not in said:
        return "; clusters: stands first, and below it a list of them"
    found = _UNKNOWN.search(said)
    names = msgspec.structs.fields(_PARTS[found[1]]) if found else ()
    return f"; it may have {', '.join(one.name for one in names)}" if names else ""


def usual(kubeconfigs: Sequence[Path], *, context: str = "", pod_token: Path = POD_TOKEN) -> tuple[WantedCluster, ...]:
    """The cluster that kubectl would talk to, given the files of KUBECONFIG or its default; or the one that we run in.

    None of them where there is neither. ``context`` is taken instead of the current one. A cluster is called after its
    context. Raises ContextsError.
    """
    found = [path for path in kubeconfigs if path.is_file()]
    if not found:
        return (WantedCluster(IN_CLUSTER),) if pod_token.is_file() else ()
    context = context or next((name for name in map(_current_context, found) if name), "")
    if not context:
        return ()
    # EKS calls contexts arn:aws:eks:eu-central-1:123456789012:cluster/shop
    name = context.rpartition("/")[2]
    try:
        return (WantedCluster(cluster_name(name), ":".join(map(str, found)), context),)
    except ValueError as error:
        raise ContextsError(f"{found[0]}: context {context!r}: {error}") from None


def _current_context(path: Path) -> str:
    """Of several kubeconfigs the first that names one counts, as in kubectl."""
    try:
        config = yaml.safe_load(path.read_bytes())
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ContextsError(f"{path}: {told(error)}") from None
    context = config.get("current-context") if isinstance(config, dict) else None
    return context if isinstance(context, str) else ""
