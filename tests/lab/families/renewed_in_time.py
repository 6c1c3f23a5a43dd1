"""Shown at the door of all: a certificate that was renewed in time, and that clients refuse."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import rolled
from tests.lab.families.more_than_was_meant import Lately
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import both, changes
from tests.lab.scenario import family

# -- a certificate

DOORS = {"shop": "frontend", "payments": "checkout", "search": "query", "media": "uploads"}
FRONT_TAG = "1.13.3"


@dataclass
class _Door:
    """A public name, and whether what is shown there by the Ingresses' controller is trusted by whoever comes."""

    lab: Lab
    host: str
    secret: tuple[str, str]
    shown: dict[str, Json] = field(default_factory=dict)
    """By each of the controller's processes, by the uid of its pod."""

    async def watch(self, process: Process) -> None:
        """As the controller, which shows a new one as soon as it is told of it.

        One whose key does not fit is not taken: the one of before stays, or none, where there was none.
        """
        uid = str(process.see().pod["metadata"]["uid"])

        def see(one: Json) -> None:
            is_it = (one["metadata"]["namespace"], one["metadata"]["name"]) == self.secret
            if is_it and (_fits(one["data"]) or uid not in self.shown):
                self.shown[uid] = one["data"]

        await changes(process, path("Secret"), see, of_all=True)

    @property
    def why(self) -> str:
        """What clients say of what is shown by one process or another; "" where they trust it."""
        there = [str(pod["metadata"]["uid"]) for pod in backends(self.lab.world, *INGRESS_CONTROLLER)]
        return max((self._refusal(self.shown[uid]) for uid in there if uid in self.shown), default="")

    def _refusal(self, pair: Json) -> str:
        if not _fits(pair):
            return f"x509: certificate is valid for ingress.local, not {self.host}"
        name, *issued_by = _decoded(pair["tls.crt"]).split("; ")
        if not _covers(name, self.host):
            return f"x509: certificate is valid for {name}, not {self.host}"
        return "" if "intermediate" in issued_by else "x509: certificate signed by unknown authority"

    def browsers_refuse(self) -> bool:
        """A browser gets an intermediate certificate by itself, and most have it."""
        return bool(self.why) and "authority" not in self.why

    async def browse(self) -> None:
        while True:
            self.lab.outside.unreached = {self.host} if self.browsers_refuse() else set()
            await asyncio.sleep(0.5)


def _decoded(value: str) -> str:
    return base64.b64decode(value).decode()


def _fits(pair: Json) -> bool:
    """Whether the key is that of the certificate."""
    return _decoded(pair["tls.key"]) == f"key of {_decoded(pair['tls.crt']).partition('; ')[0]}"


def _covers(name: str, host: str) -> bool:
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:])


def _pair(name: str, *, chain: bool = True, key: str = "") -> Json:
    """What is in a Secret of a certificate of that name, with its key or that of another one."""
    told = f"{name}; intermediate; root" if chain else name
    return {"stringData": {"tls.crt": told, "tls.key": f"key of {key or name}"}}


def _probe(lab: Lab, hosts: Iterable[str], door: _Door) -> None:
    """As a blackbox exporter asks each public name: what is not trusted is not answered."""
    for one in hosts:
        url = f"https://{one}"
        lost = lambda one=one: bool(unserved(lab.world, one) or (one == door.host and door.why))  # noqa: E731
        told = {"namespace": "monitoring", "service": "blackbox-exporter", "instance": url}
        lab.measure("probe_success", lambda lost=lost: float(not lost()), **told)  # type: ignore[misc]
        lab.alert("ProbeFailed", lost, f"the probe of {url} fails", 6, job="blackbox", instance=url)


async def _start_anew(lab: Lab) -> None:
    """The Ingresses' controller gets another argument, a while later."""
    await lab.pause(lab.rng.uniform(5, 9))
    args = ["/nginx-ingress-controller", f"--v={lab.rng.choice((1, 2))}", "--enable-metrics=true"]
    await lab.roll("argocd", *INGRESS_CONTROLLER, FRONT_TAG, args=args)


@family(
    "The certificate of a public name is renewed by hand, and what is put into its Secret is of another name, lacks the"
    " certificates between it and its root, or comes with the key of another one, by which it is not taken: as the"
    " Ingresses' controller is started anew for something else, it has none. Clients refuse what they are shown.",
    joined=99,
)
async def refused_by_clients(lab: Lab) -> AsyncIterator[None]:
    """As very many tell of x509 on the day on which a certificate was renewed in time."""
    home, away, *others = lab.rng.sample(sorted(DOORS), 4)
    caller, front, part = lab.rng.choice(
        (
            ("app-gateway", "app-start", "push"),
            ("partner-sync", "sync-page", "log"),
            ("voice-skill", "skill-page", "mail"),
        )
    )
    what, by = lab.rng.choice(("name", "chain", "key")), lab.rng.choice((*TEAMS, "ci", "flux"))
    minor, share = lab.rng.randrange(2, 40), lab.rng.uniform(0.35, 0.75)
    hosts = {namespace: await publish(lab, namespace, DOORS[namespace]) for namespace in (home, *others)}
    host, secret = hosts[home], (home, f"{home}-public-tls")
    good = lab.rng.choice((host, "*.corp.example"))
    bad = {
        "name": _pair(
            lab.rng.choice((f"www.{home}.corp.example", f"{home}.staging.corp.example", "*.corp-stores.example"))
        ),
        "chain": _pair(good, chain=False),
        "key": _pair(good, key=f"{home} of last year"),
    }[what]
    door = _Door(lab, host, secret)
    for namespace, one in hosts.items():
        meta = {"namespace": namespace, "name": f"{namespace}-public-tls"}
        pair = _pair(good if namespace == home else one)
        await lab.apply({"kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls", **pair})
        tls = [{"hosts": [one], "secretName": meta["name"]}]
        await lab.edit("admin", "Ingress", namespace, namespace, {"spec": {"tls": tls}})
    controller = lab.apps[f"registry.corp.example/{'/'.join(INGRESS_CONTROLLER)}"]
    assert controller.program
    controller.program = both(controller.program, door.watch)
    await lab.roll("admin", *INGRESS_CONTROLLER, FRONT_TAG)
    await rolled(lab, *INGRESS_CONTROLLER, FRONT_TAG)
    calls = Lately(lab, lambda: bool(door.why))

    def fails(_: Container) -> float:
        return share if calls() else 0.0

    like = App("", abroad=(host,), asked=lambda: 18.0, failing=fails, fails_with=lambda _: "502")
    await lab.app(away, caller, like=like, replicas=3, tag=f"4.{minor}.0")
    await rolled(lab, away, caller, f"4.{minor}.0")
    await lab.apply(objects.config_map(away, f"{caller}-{part}", LOG_LEVEL="info", EVERY="60s"))
    await lab.app(away, f"{caller}-{part}", replicas=2, tag="1.1.0", config=f"{caller}-{part}")
    await rolled(lab, away, f"{caller}-{part}", "1.1.0")
    await set_before(lab, away, front, caller)
    for one in (caller, front):
        lab.alert_errors(away, one)
    lab.alert_ingress_errors(away, away)
    _probe(lab, hosts.values(), door)
    lab.start(door.browse())
    await lab.until(lambda: door.shown and lab.is_well())

    async def afterwards() -> None:
        await lab.pause(lab.rng.uniform(4, 8))
        await change_page(lab, away, front)

    yield
    await lab.roll(lab.rng.choice(("ci", "argocd")), away, caller, f"4.{minor}.1")
    await lab.pause(lab.rng.uniform(7, 11))
    await lab.edit(lab.rng.choice(TEAMS), "ConfigMap", home, DOORS[home], {"data": {"TIMEOUT_MS": "900"}})
    await lab.pause(lab.rng.uniform(3, 7))
    await lab.culprit(by, "update", "Secret", *secret, bad)
    await lab.pause(lab.rng.uniform(1, 4))
    if what == "key":
        await _start_anew(lab)
    name = f"{caller}-{part}"
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", away, name, {"data": {"EVERY": "45s"}})
    lab.start(afterwards())
