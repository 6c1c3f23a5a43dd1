"""Who is let in and who is trusted: rules of the network, a bundle of roots, what pods may be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.lab import objects
from tests.lab.api import Json
from tests.lab.apps import App, Container, Problem
from tests.lab.company import APPS
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.lab import Lab
from tests.lab.network import backends
from tests.lab.scenario import family

HANDS = ("alice", "carol", "flux")


def _closed(namespace: str) -> tuple[Json, Json]:
    """What is put on each namespace: nobody gets in, but for its own pods, the Ingresses' controller and monitoring."""
    everybody = {"podSelector": {}, "policyTypes": ["Ingress"]}
    systems = ("ingress-nginx", "monitoring")
    named = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": one}}} for one in systems]
    known = {**everybody, "ingress": [{"from": [{"podSelector": {}}, *named]}]}
    meta = {"namespace": namespace}
    return (
        {"metadata": {**meta, "name": "default-deny"}, "spec": everybody},
        {"metadata": {**meta, "name": "allow-known"}, "spec": known},
    )


@family(
    "One namespace after the other is closed by default: its own pods are let in, the Ingresses' controller and"
    " monitoring. An app in one of them has callers in another namespace, of whom nobody thought: they time out.",
    joined=83,
)
async def closed_by_default(lab: Lab) -> AsyncIterator[None]:
    """As those tell who were asked by their auditors for a default-deny policy in each namespace."""
    namespace, name, home, caller, unharmed = lab.rng.choice(
        (
            ("payments", "vouchers", "shop", "gift-desk", "search"),
            ("search", "suggestions", "media", "player-page", "shop"),
            ("media", "avatars", "shop", "profile-page", "search"),
        )
    )
    by = lab.rng.choice(HANDS)
    await lab.app(namespace, name, replicas=3, tag="2.2.0")
    await rolled(lab, namespace, name, "2.2.0")
    await lab.until(lambda: len(backends(lab.world, namespace, name)) == 3)
    await lab.app(home, caller, like=App("", upstreams=((namespace, name),)), replicas=3, tag="1.8.0")
    await lab.until(lambda: backends(lab.world, home, caller))
    await publish(lab, home, caller)
    lab.reserve(namespace, name)
    lab.alert_lacking(home, caller)
    lab.alert_ingress_errors(home, home)
    await lab.until(lab.is_well)
    yield
    for body in _closed(unharmed):
        await lab.who[by].must("POST", f"/apis/networking.k8s.io/v1/namespaces/{unharmed}/networkpolicies", body)
    await lab.pause(lab.rng.uniform(2, 5))
    await lab.roll("ci", home, caller, "1.8.1")
    await lab.pause(lab.rng.uniform(4, 8))
    closed, known = _closed(namespace)
    await lab.culprit(by, "create", "NetworkPolicy", namespace, closed["metadata"]["name"], closed)
    why = "of the same hand and the same set: it is on all pods too, and lets in as few"
    await lab.also(why, by, "create", "NetworkPolicy", namespace, known["metadata"]["name"], known)


def _root(name: str) -> str:
    """The certificate of an authority of the company's own, as it is written into bundles: below its name."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string(f"CN={name}")
    since, until = datetime(2016, 5, 1, tzinfo=UTC), datetime(2036, 5, 1, tzinfo=UTC)
    begun = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), since, until)
    signed = begun.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
        key, hashes.SHA256()
    )
    return f"# {name}\n{signed.public_bytes(serialization.Encoding.PEM).decode()}"


@family(
    "The bundle of the company's roots that all apps of a team mount is replaced by one without the oldest root, which"
    " hardly anything has a certificate of any more. One server inside still has: who calls it trusts it no longer.",
    joined=83,
)
async def one_bundle_for_all(lab: Lab) -> AsyncIterator[None]:
    """As everybody tells whose certificate was signed by unknown authority after a clean-up of old roots."""
    namespace, names = lab.rng.choice(
        (
            ("shop", ["order-desk", "returns", "stock-page"]),
            ("payments", ["statements", "refunds", "dispute-page"]),
            ("media", ["rights-page", "credits", "casting"]),
        )
    )
    by, deploys, reads_once = lab.rng.choice(HANDS), lab.rng.choice(("ci", "argocd")), lab.rng.random() < 0.5
    lab.rng.shuffle(names)
    late, server, other = names[0], lab.rng.choice(("identity", "address-book", "audit-trail")), "price-feed"
    old, second, third = (_root(f"Corp Root CA {one}") for one in ("2016", "G2", "G3"))
    read: dict[str, str] = {}

    def check(container: Container, *, called: str, root: str) -> Problem | None:
        """Whether it trusts whom it calls, by the bundle as it is now or as it was at its start."""
        uid, bundle = str(container.pod["metadata"]["uid"]), container.config["ca.crt"]
        bundle = read.setdefault(uid, bundle) if reads_once else bundle
        if root in bundle:
            return None
        why = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        told = f'Get "https://{called}.platform.svc/": {why}'
        return Problem("unready", f"probe failed: HTTP probe failed with statuscode: 503 ({told})", at_once=reads_once)

    for one in (server, other):
        await lab.app("platform", one, replicas=2, tag="5.1.0")
        await lab.edit("admin", "Service", "platform", one, {"spec": {"ports": [{"port": 443, "targetPort": 8080}]}})
    await lab.until(lambda: backends(lab.world, "platform", server) and backends(lab.world, "platform", other))
    await lab.apply(objects.config_map(namespace, "corp-roots", **{"ca.crt": f"{old}{second}"}))
    for one in names:
        called, root = (server, old) if one == late else (other, second)
        trusting = partial(check, called=called, root=root)
        calling = App("", upstreams=(("platform", called),), check=trusting)
        env = [
            {"name": "SSL_CERT_FILE", "value": "/etc/config/ca.crt"},
            {"name": f"{called.upper().replace('-', '_')}_URL", "value": f"https://{called}.platform.svc"},
        ]
        await lab.app(namespace, one, like=calling, replicas=3, tag="3.4.0", config="corp-roots", env=env)
        await rolled(lab, namespace, one, "3.4.0")
    await publish(lab, namespace, late)
    lab.reserve(namespace, *names)
    lab.alert_stuck(namespace, late)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def releases() -> None:
        for one in (names[1], late):
            await lab.pause(lab.rng.uniform(4, 8))
            await lab.roll(deploys, namespace, one, "3.5.0")

    yield
    await lab.roll(deploys, namespace, names[2], "3.4.1")
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", "ConfigMap", namespace, "corp-roots", {"data": {"ca.crt": f"{second}{third}"}})
    if reads_once:
        lab.start(releases())


ENFORCED = {
    f"pod-security.kubernetes.io/{one}": value
    for one, value in (("enforce", "restricted"), ("enforce-version", "latest"))
}
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What a container has to say of itself so as to meet the strictest of the standards."""


@family(
    "Namespaces are told one after the other to enforce the strictest standard for pods. In the first one all have been"
    " made for it; in the next nobody has looked. What runs goes on, and of the next release no pod is made.",
    joined=83,
)
async def held_to_the_letter(lab: Lab) -> AsyncIterator[None]:
    """As everybody tells whose ReplicaSet is forbidden to make pods, violates PodSecurity "restricted:latest"."""
    namespace, name = lab.rng.choice(
        (("shop", "wish-lists"), ("payments", "exchange-rates"), ("search", "related"), ("media", "captions"))
    )
    by, deploys, minor = lab.rng.choice(HANDS), lab.rng.choice(("ci", "argocd")), lab.rng.randrange(3, 30)
    ready = ("reports", "monthly-figures")
    await lab.namespace(ready[0])
    await lab.app(*ready, replicas=2, tag="1.0.0")
    await lab.until(lambda: ready in lab.world["Deployment"])
    await lab.roll("admin", *ready, "1.0.1", securityContext=RESTRICTED)
    await rolled(lab, *ready, "1.0.1")
    await lab.app(namespace, name, replicas=3, tag=f"4.{minor}.0")
    await rolled(lab, namespace, name, f"4.{minor}.0")
    for one in (name, *APPS[namespace]):
        lab.alert_stuck(namespace, one)
    lab.alert_stuck(*ready)
    await lab.until(lab.is_well)

    async def releases() -> None:
        await lab.pause(lab.rng.uniform(3, 6))
        await lab.roll(deploys, *ready, "1.1.0")
        await lab.pause(lab.rng.uniform(4, 12))
        await lab.roll(deploys, namespace, name, f"4.{minor + 1}.0")

    yield
    await lab.edit(by, "Namespace", "", ready[0], {"metadata": {"labels": ENFORCED}})
    await lab.pause(lab.rng.uniform(4, 9))
    await lab.culprit(by, "update", "Namespace", "", namespace, {"metadata": {"labels": ENFORCED}})
    lab.start(releases())
