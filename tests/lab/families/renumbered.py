"""What another one still goes by: a Service that moved to the next chart, the number of a pod."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tests.lab.alerts import pods
from tests.lab.api import Answer, Json
from tests.lab.apps import App
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.manifests import is_ready
from tests.lab.network import backends
from tests.lab.scenario import family

WRONG, RIGHT, NEXT = "4.1.0", "4.1.1", "4.2.0"
MEMBERS = 3


def _owned(release: str, namespace: str) -> Json:
    """As Helm marks what is of a release."""
    return {
        "metadata": {
            "labels": {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": release},
            "annotations": {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace},
        }
    }


def helm_kept(release: str, namespace: str, number: int) -> Json:
    """What Helm keeps of a revision."""
    labels = {"name": release, "owner": "helm", "status": "deployed", "version": str(number)}
    meta = {"namespace": namespace, "name": f"sh.helm.release.v1.{release}.v{number}", "labels": labels}
    return {"kind": "Secret", "type": "helm.sh/release.v1", "metadata": meta, "stringData": {"release": "H4sIAAAA"}}


@family(
    "What was a part of one app became an app of its own, and its Service moves to its own chart, which takes it over"
    " as it is installed. The chart of the first one has it no more; as that one is released for something else, Helm"
    " deletes what was in its last revision and is not in this one.",
    joined=35,
)
async def chart_handover(lab: Lab) -> AsyncIterator[None]:
    """As users of Helm tell of objects that move between releases: each looks at its own last revision only."""
    namespace, name, part, front = lab.rng.choice(
        (
            ("shop", "orders", "prices", "basket-page"),
            ("media", "library", "covers", "start-page"),
            ("payments", "accounts", "rates", "transfers"),
        )
    )
    number = lab.rng.randrange(30, 200)

    async def release(release: str, number: int) -> Answer:
        """Raises RefusedError."""
        return await lab.apply(helm_kept(release, namespace, number), "ci")

    faulty = App("", failing=lambda container: 0.4 if container.tag == WRONG else 0.0)
    await lab.app(namespace, name, like=faulty, replicas=3, tag="4.0.7")
    await lab.app(namespace, part, replicas=2)
    like = App("", upstreams=((namespace, part), (namespace, name)))
    await lab.app(namespace, front, like=like, replicas=3, tag="2.6.0")
    for kind, one in (("Deployment", name), ("Service", name), ("Service", part)):
        await lab.edit("admin", kind, namespace, one, _owned(name, namespace))
    await lab.edit("admin", "Deployment", namespace, part, _owned(part, namespace))
    await release(part, 1)
    await release(name, number)
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (name, part, front)))
    await publish(lab, namespace, front)
    lab.reserve(namespace, name, part, front)
    lab.alert_errors(namespace, front)
    lab.alert_lacking(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.randrange(15, 40)) as then:
        await release(name, number + 1)
        answer = await lab.roll("ci", namespace, name, WRONG)
        await then.fires()
        await release(name, number + 2)
        await lab.roll("ci", namespace, name, RIGHT)
        await then.is_well()
        then.judge(answer, "it")
    await rolled(lab, namespace, name, RIGHT)
    yield
    await release(part, 2)
    await lab.edit("ci", "Service", namespace, part, _owned(part, namespace))
    await lab.pause(lab.rng.uniform(7, 12))
    why = "the release that deletes it"
    secret = helm_kept(name, namespace, number + 3)
    await lab.also(why, "ci", "create", "Secret", namespace, secret["metadata"]["name"], secret)
    await lab.roll("ci", namespace, name, NEXT)
    await lab.culprit("ci", "delete", "Service", namespace, part)


@family(
    "The pods of a StatefulSet are to be numbered from one, as those of its sibling elsewhere are. What takes the"
    " writes is reached by a Service for the pod that has the number nought: once the last one is up, that one ends.",
    joined=35,
)
async def numbered_anew(lab: Lab) -> AsyncIterator[None]:
    """Nobody told this one: who counts from another number leaves behind whoever goes by one."""
    namespace, name, writer, reader = lab.rng.choice(
        (
            ("search", "ranking-store", "click-log", "related"),
            ("payments", "journal", "bookings", "statements"),
            ("shop", "stock-store", "reservations", "availability"),
        )
    )
    by, primary = lab.rng.choice(("alice", "argocd", "flux", "ci")), f"{name}-primary"
    await lab.app(
        namespace,
        name,
        like=App("", serves=False, start_seconds=3.0),
        kind="StatefulSet",
        replicas=MEMBERS,
        tag="7.2.4",
    )
    selector = {"app.kubernetes.io/name": name, "statefulset.kubernetes.io/pod-name": f"{name}-0"}
    spec = {"selector": selector, "ports": [{"port": 6379, "targetPort": 8080}]}
    await lab.apply({"kind": "Service", "metadata": {"namespace": namespace, "name": primary}, "spec": spec})
    await lab.until(lambda: sum(map(is_ready, pods(lab.world, namespace, name))) == MEMBERS)
    for one, store in ((writer, primary), (reader, name)):
        await lab.app(namespace, one, like=App("", upstreams=((namespace, store),)), replicas=3, tag="1.18.2")
    await lab.until(lambda: all(backends(lab.world, namespace, one) for one in (writer, reader, primary)))
    await publish(lab, namespace, writer)
    lab.reserve(namespace, name, writer, reader)
    for one in (name, writer, reader):
        lab.alert_lacking(namespace, one, seconds=8)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)
    yield
    await lab.culprit(by, "update", "StatefulSet", namespace, name, {"spec": {"ordinals": {"start": 1}}})
