"""Whom a selector still means: two peers of a policy that became one, a Service that selects nothing any more."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

NAME, HOME = "app.kubernetes.io/name", "kubernetes.io/metadata.name"


@family(
    "A NetworkPolicy is written anew by hand, and its two peers, a namespace or an app beside it, lose the dash between"
    " them: whoever calls has to be of that namespace and that app at once, and nobody is.",
    joined=25,
)
async def peers_joined(lab: Lab) -> AsyncIterator[None]:
    """As reviews of NetworkPolicies tell again and again; the documentation of Kubernetes warns of it."""
    home, name, near, far, caller = lab.rng.choice(
        (
            ("payments", "tax-rates", "invoicing", "shop", "basket-totals"),
            ("search", "synonyms", "suggest", "media", "captions"),
            ("media", "licences", "player", "search", "filters"),
        )
    )
    of_namespace: Json = {"namespaceSelector": {"matchLabels": {HOME: far}}}
    of_app: Json = {"podSelector": {"matchLabels": {NAME: near}}}

    def policy(*peers: Json) -> Json:
        ingress = [{"from": list(peers), "ports": [{"port": 8080}]}]
        return {"podSelector": {"matchLabels": {NAME: name}}, "policyTypes": ["Ingress"], "ingress": ingress}

    await lab.apply(objects.config_map(home, near, LOG_LEVEL="info", PAGE_SIZE="50"))
    await lab.app(home, name, replicas=3)
    meta = {"namespace": home, "name": name}
    await lab.apply({"kind": "NetworkPolicy", "metadata": meta, "spec": policy(of_namespace, of_app)})
    for namespace, one, config in ((home, near, near), (far, caller, "")):
        await lab.app(namespace, one, like=App("", upstreams=((home, name),)), replicas=3, config=config)
        lab.alert_lacking(namespace, one)
    await lab.until(lambda: all(len(backends(lab.world, *place)) == 3 for place in ((home, near), (far, caller))))
    yield
    await lab.edit(lab.rng.choice(("bob", "ci")), "ConfigMap", home, near, {"data": {"PAGE_SIZE": "200"}})
    await lab.pause(lab.rng.uniform(3, 7))
    body = {"spec": policy({**of_namespace, **of_app})}
    await lab.culprit(lab.rng.choice(("alice", "flux")), "update", "NetworkPolicy", home, name, body)


@family(
    "A chart's new version renders the Service of an app without its selector. Whom it leads to stays as it was, so all"
    " is well, until the app's next, harmless release: nobody enters its new pods, and calls go to addresses of old.",
    joined=25,
)
async def selector_emptied(lab: Lab) -> AsyncIterator[None]:
    """Of what is not selected the controller of EndpointSlices takes its hands off, as Kubernetes documents."""
    namespace, name, caller = lab.rng.choice(
        (("media", "renditions", "gallery"), ("shop", "vouchers", "offers"), ("payments", "mandates", "subscriptions"))
    )
    deploys = lab.rng.choice(("argocd", "ci"))
    await lab.app(namespace, name, replicas=3, tag="4.1.0")
    await lab.app(namespace, caller, like=App("", upstreams=((namespace, name),)), replicas=3)
    await lab.until(lambda: all(len(backends(lab.world, namespace, one)) == 3 for one in (name, caller)))
    await publish(lab, namespace, caller)
    lab.alert_lacking(namespace, caller)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    body = {"metadata": {"labels": {"helm.sh/chart": f"{name}-2.0.0"}}, "spec": {"selector": None}}
    await lab.culprit(deploys, "update", "Service", namespace, name, body)
    await lab.pause(lab.rng.uniform(9, 15))
    await lab.roll(deploys, namespace, name, "4.1.1")
    await rolled(lab, namespace, name, "4.1.1")
