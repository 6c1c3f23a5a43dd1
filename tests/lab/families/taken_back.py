"""What is taken back with a release: whom its policy lets in, since somebody new calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tests.lab.api import Answer, Json
from tests.lab.apps import App
from tests.lab.before import before
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family


def _policy(namespace: str, name: str, callers: Sequence[tuple[str, str]]) -> Json:
    """As an app's chart has it: by name who may call it."""
    peers = [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": home}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": one}},
        }
        for home, one in callers
    ]
    spec = {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": peers}],
    }
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


def _release(name: str, revision: int, what: str) -> Json:
    """What Helm keeps of one."""
    labels = {"owner": "helm", "name": name, "version": str(revision), "status": "deployed"}
    meta = {"name": f"sh.helm.release.v1.{name}.v{revision}", "labels": labels}
    return {"metadata": meta, "type": "helm.sh/release.v1", "stringData": {"release": f"H4sIAAAA{what}"}}


@family(
    "A release is put back for a small fault of its page, by the button that was used for it before. Helm puts back all"
    " of it, also the policy that says who may call the app: with that release somebody of another team was let in, who"
    " calls it since, and waits in vain now.",
    joined=56,
)
async def rollback_policy(lab: Lab) -> AsyncIterator[None]:
    """As those tell who put a release back by Helm and found that more than the image had gone."""
    namespace, name, front, home, caller = lab.rng.choice(
        (
            ("payments", "quotes", "quote-page", "shop", "instalments"),
            ("search", "similar-items", "similar-page", "media", "watch-next"),
            ("media", "renditions", "gallery-page", "shop", "product-gallery"),
        )
    )
    revision, minor = lab.rng.randrange(18, 60), lab.rng.randrange(3, 20)
    first, second, third = f"4.{minor}.0", f"4.{minor + 1}.0", f"4.{minor + 1}.1"
    known = [(namespace, front)]

    async def release(tag: str) -> Answer:
        nonlocal revision
        revision += 1
        answer = await lab.roll("ci", namespace, name, tag)
        await lab.apply({"kind": "Secret", **_in(namespace, _release(name, revision, tag))}, "ci")
        await rolled(lab, namespace, name, tag)
        return answer

    await lab.apply({"kind": "NetworkPolicy", **_policy(namespace, name, known)}, "ci")
    await lab.app(namespace, name, like=App("", start_seconds=1.0), replicas=3, tag=first)
    await lab.app(namespace, front, like=App("", upstreams=((namespace, name),)), replicas=2, tag="2.8.3")
    await lab.until(lambda: backends(lab.world, namespace, front) and len(backends(lab.world, namespace, name)) == 3)
    await publish(lab, namespace, front)
    lab.reserve(namespace, name)
    lab.alert_errors(namespace, front)
    await lab.until(lab.is_well)
    async with before(lab, days=lab.rng.choice((6, 9, 14))):
        await lab.pause(2)
        await release(second)
        await lab.pause(4)
        await release(first)  # by the same button
        await lab.pause(8)
    await lab.edit("ci", "NetworkPolicy", namespace, name, _policy(namespace, name, [*known, (home, caller)]))
    await release(third)
    like = App("", upstreams=((namespace, name),), asked=lambda: 18.0)
    await lab.app(home, caller, like=like, replicas=3, tag="1.2.0")
    await lab.until(lambda: len(backends(lab.world, home, caller)) == 3)
    await publish(lab, home, caller)
    lab.alert_errors(home, caller)
    lab.alert_lacking(home, caller)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)
    yield
    await lab.pause(lab.rng.uniform(3, 10))
    await lab.culprit("ci", "update", "NetworkPolicy", namespace, name, _policy(namespace, name, known))
    there = lab.world["Deployment"][namespace, name]["spec"]["template"]["spec"]["containers"][0]
    image = f"{there['image'].rsplit(':', 1)[0]}:{first}"
    body = {"spec": {"template": {"spec": {"containers": [{**there, "image": image}]}}}}
    await lab.culprit("ci", "update", "Deployment", namespace, name, body)
    kept = _release(name, revision + 1, first)
    await lab.culprit("ci", "create", "Secret", namespace, kept["metadata"]["name"], kept)


def _in(namespace: str, manifest: Json) -> Json:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
