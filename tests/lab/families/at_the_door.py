"""What was told of who comes from outside: a firewall that refuses users, pods that do not listen, another host."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab import objects
from tests.lab.alerts import pods
from tests.lab.apps import App, Container
from tests.lab.families.between import publish
from tests.lab.lab import Lab
from tests.lab.manifests import images, is_ready
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.scenario import family

OLD_RULES, NEW_RULES = "1.12.0", "1.14.3"
REFUSED = 0.15
"""The share of requests that are answered with 4xx from which on somebody is told."""


@family(
    "A new version of the Ingresses' controller brings newer rules of its firewall, which take what users send to log"
    " in for an attack: it refuses them with 403, and all pods are well.",
    joined=18,
)
async def firewall_rules(lab: Lab) -> AsyncIterator[None]:
    """As the Ministry of Justice's Cloud Platform tells of 30 March 2026."""
    namespace, name = lab.rng.choice((("payments", "sign-in"), ("media", "accounts"), ("search", "members")))
    mistaken = lab.rng.uniform(0.45, 0.8)

    def refused(_: Container) -> float:
        """Of what comes by the controller's pods with the new rules; the login itself counts nothing."""
        there = [images(pod)[0] for pod in backends(lab.world, *INGRESS_CONTROLLER)]
        return mistaken * sum(one.endswith(f":{NEW_RULES}") for one in there) / max(1, len(there))

    def many() -> bool:
        answers = lab.traffic.of_ingress(namespace, namespace, 10).answers
        return sum(times for code, times in answers.items() if code[0] == "4") > REFUSED * max(1, answers.total())

    like = App("", serves=False, asked=lambda: 30.0, failing=refused, fails_with=lambda _: "403")
    await lab.app(namespace, name, like=like, replicas=3)
    await lab.roll("admin", *INGRESS_CONTROLLER, OLD_RULES)
    await lab.until(lambda: [one for one in pods(lab.world, namespace, name) if is_ready(one)])
    await publish(lab, namespace, name)
    summary = f"more than {REFUSED:.0%} of the requests to Ingress {namespace}/{namespace} are answered with 4xx"
    lab.alert("NginxHighHttp4xxErrorRate", many, summary, namespace=namespace, ingress=namespace)
    yield
    by = lab.rng.choice(("argocd", "ci", "flux"))
    await lab.roll(by, *INGRESS_CONTROLLER, NEW_RULES, culprit=True)


@family(
    "An app has no probe at all: with a release its new pods are taken for ready as soon as they run, the old ones end,"
    " and until the new ones listen whoever comes gets 502.",
    joined=18,
)
async def no_probe(lab: Lab) -> AsyncIterator[None]:
    """As Semaphore tells of its documentation (docs 623, December 2019)."""
    namespace, name = lab.rng.choice((("media", "handbook"), ("shop", "help"), ("search", "docs")))
    deaf = lab.rng.uniform(9, 12)

    def listens_not(container: Container) -> float:
        return 1.0 if container.seconds < deaf else 0.0

    like = App("", serves=False, failing=listens_not, fails_with=lambda _: "502")
    image = f"registry.corp.example/{namespace}/{name}"
    like.image = image
    lab.apps[image] = like
    body = objects.deployment(namespace, name, f"{image}:2.3.0", replicas=lab.rng.choice((2, 3)))
    del body["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    await lab.apply(body)
    await lab.apply(objects.service(namespace, name))
    await lab.until(lambda: [one for one in pods(lab.world, namespace, name) if is_ready(one)])
    await lab.pause(deaf + 5)  # they listen
    await publish(lab, namespace, name)
    await lab.pause(5)
    lab.alert_ingress_errors(namespace, namespace)
    yield
    await lab.roll(lab.rng.choice(("argocd", "ci")), namespace, name, "2.4.0", culprit=True)


@family(
    "A deployment renders the Ingress of an app from a setting of its own, with another host than the one that users"
    " ask for: that one is nobody's any more, and is answered with 404.",
    joined=18,
)
async def wrong_host(lab: Lab) -> AsyncIterator[None]:
    """As Harness tells of 2 March 2026."""
    namespace, name = lab.rng.choice((("shop", "storefront"), ("media", "console"), ("search", "portal")))
    await lab.app(namespace, name, tag="4.7.0", replicas=3)
    host = await publish(lab, namespace, name)
    await lab.until(lambda: (namespace, namespace) in lab.world["Ingress"])
    [rule] = lab.world["Ingress"][namespace, namespace]["spec"]["rules"]
    mistaken = {**rule, "host": lab.rng.choice((f"{name}.{host}", f"{namespace}-prod8.corp.example"))}
    lab.outside.unreached.add(mistaken["host"])  # nobody knows that name
    await lab.until(lambda: not unserved(lab.world, host))
    holds = lambda: bool(unserved(lab.world, host))  # noqa: E731
    lab.alert("ProbeFailed", holds, f"https://{host} is not answered", 6, job="blackbox", instance=f"https://{host}")
    yield
    by = lab.rng.choice(("ci", "argocd"))
    await lab.roll(by, namespace, name, "4.8.0")
    await lab.pause(lab.rng.uniform(0.5, 2))
    await lab.culprit(by, "update", "Ingress", namespace, namespace, {"spec": {"rules": [mistaken]}})
