"""Who asks, and of whom it is too much: a caller among others that try again, servers by the dozen, one address."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import path
from tests.lab.apps import Process
from tests.lab.families.load import alert_on_load
from tests.lab.lab import Lab
from tests.lab.programs import every, getting
from tests.lab.scenario import family

RETRIES = 4
"""How often a client that tries again does so."""
LOST = 0.5
"""The share of its work that an app does in vain where it refuses all: who is refused costs, too."""
STEP_SECONDS, STEP_SHARE = 0.5, 0.4
CORES = 16
"""Of each node."""
BALANCER = "10.8.0.14"
"""From where a load balancer sends on what users ask."""


@family(
    "The autoscaler of the servers of names inside is told that one of them stands few cores, to have them everywhere:"
    " there are many times as many, and each asks the API server as often as one ever did.",
    joined=19,
)
async def many_resolvers(lab: Lab) -> AsyncIterator[None]:
    """As the testers of Kubernetes tell of their largest cluster (November 2017, kubernetes 55779)."""
    namespace, name = "kube-system", lab.rng.choice(("internal-dns", "node-dns", "zone-dns"))
    config = f"{name}-autoscaler"

    def linear(cores: int, nodes: int) -> dict[str, str]:
        return {"linear": json.dumps({"coresPerReplica": cores, "nodesPerReplica": nodes, "min": 2})}

    async def scale(process: Process) -> None:
        """As the autoscaler that goes by the size of the cluster."""
        nodes = (await process.api.call("GET", path("Node"))).body.get("items", [])
        told = (await process.api.call("GET", path("ConfigMap", namespace, config))).body.get("data", {})
        where = f"{path('Deployment', namespace, name)}/scale"
        found = await process.api.call("GET", where)
        if not (nodes and told and found.ok):
            return
        by = json.loads(told["linear"])
        per_core = math.ceil(CORES * len(nodes) / by["coresPerReplica"])
        wanted = max(by["min"], per_core, math.ceil(len(nodes) / by["nodesPerReplica"]))
        if found.body["spec"]["replicas"] != wanted:
            await process.api.call("PATCH", where, {"spec": {"replicas": wanted}})

    await lab.apply(objects.config_map(namespace, config, **linear(256, 16)))
    resync = every(1.2, getting(f"{path('Service')}?limit=50", f"{path('EndpointSlice')}?limit=50"))
    rules = (("", "services", "list"), ("discovery.k8s.io", "endpointslices", "list"))
    await lab.controller(namespace, name, resync, *rules, replicas=2)
    may = (("", "nodes", "list"), ("", "configmaps", "get"), ("apps", "deployments/scale", "get,patch"))
    await lab.controller(namespace, config, every(3, scale), *may, replicas=1)
    alert_on_load(lab)
    yield
    by, cores = lab.rng.choice(("alice", "carol", "flux")), lab.rng.choice((3, 4))
    await lab.culprit(by, "update", "ConfigMap", namespace, config, {"data": linear(cores, 16)})
