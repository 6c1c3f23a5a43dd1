"""What is shown to be let in: a certificate that was put together by hand, and a key that is over."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from functools import partial

from tests.lab import objects
from tests.lab.api import Json, path
from tests.lab.apps import App, Container, Process
from tests.lab.families.between import publish
from tests.lab.families.by_annotation import annotated, rolled
from tests.lab.families.not_in_mind import TEAMS, change_page, set_before
from tests.lab.lab import Lab
from tests.lab.network import INGRESS_CONTROLLER, backends, unserved
from tests.lab.programs import both, every
from tests.lab.scenario import family

ISSUING = "CN = Corp Public Issuing CA 3"
"""Who signs for public names; whoever comes knows its root alone."""


def _files(host: str, serial: int, *, chain: bool = True) -> Json:
    """The two files of a Secret: the certificate of a name, and below it that of who has signed it, or not."""
    shown = f"subject=CN = {host}\nissuer={ISSUING}\nserial={serial:08X}\nX509v3 Subject Alternative Name:\n"
    shown += f"    DNS:{host}\n"
    key = hashlib.sha256(shown.encode()).hexdigest()
    return {"tls.crt": f"{shown}subject={ISSUING}\nissuer=CN = Corp Root R2\n" if chain else shown, "tls.key": key}


@family(
    "Before the certificates of two public names are over somebody puts new ones into their Secrets, by hand, from what"
    " the authority has sent. For one of them it is the wrong file: the certificate of the name for trials, or the"
    " right one alone, without that of the authority in between. Programs that call by that name do not trust it.",
    joined=85,
)
async def pasted_certificate(lab: Lab) -> AsyncIterator[None]:
    """As those tell whose browser was content, and whose partners called."""
    (other, beside), (namespace, front) = lab.rng.sample(
        (("shop", "frontend"), ("payments", "checkout"), ("search", "query"), ("media", "uploads")), 2
    )
    by, serial, is_first = lab.rng.choice(TEAMS), lab.rng.randrange(2**30), lab.rng.random() < 0.5
    is_other_name, hosts = lab.rng.random() < 0.5, dict[str, str]()

    async def show(process: Process) -> None:
        """The controller reads the Secrets of its Ingresses: what it shows is trusted, or not."""
        for where, host in hosts.items():
            found = await process.api.call("GET", path("Secret", where, f"{where}-tls"))
            if not found.ok:
                continue
            shown = base64.b64decode(found.body["data"]["tls.crt"]).decode()
            is_trusted = f"DNS:{host}\n" in shown and f"subject={ISSUING}\n" in shown
            (lab.outside.unreached.discard if is_trusted else lab.outside.unreached.add)(host)

    controller = lab.apps[f"registry.corp.example/{'/'.join(INGRESS_CONTROLLER)}"]
    assert controller.program
    controller.program = both(controller.program, every(1, show))
    for where, name in ((other, beside), (namespace, front)):
        host = await publish(lab, where, name)
        secret = {"metadata": {"namespace": where, "name": f"{where}-tls"}, "type": "kubernetes.io/tls"}
        await lab.apply({"kind": "Secret", **secret, "stringData": _files(host, serial)})
        tls = {"spec": {"tls": [{"hosts": [host], "secretName": f"{where}-tls"}]}}
        await lab.edit("admin", "Ingress", where, where, tls)
        hosts[where] = host
    await lab.roll("admin", *INGRESS_CONTROLLER, "1.14.0")
    await rolled(lab, *INGRESS_CONTROLLER, "1.14.0")

    def fails(host: str) -> bool:
        return host in lab.outside.unreached or bool(unserved(lab.world, host))

    for host in hosts.values():
        url = f"https://{host}"
        lab.alert("ProbeFailed", partial(fails, host), f"{url} is not answered", 6, job="blackbox", instance=url)
    await lab.until(lab.is_well)
    yield
    wrong = _files(
        f"{namespace}.trial.corp.example" if is_other_name else hosts[namespace], serial + 2, chain=is_other_name
    )
    await lab.edit(by, "Ingress", namespace, namespace, annotated(proxy_body_size=lab.rng.choice(("16m", "32m"))))
    await lab.pause(lab.rng.uniform(3, 6))

    async def renew_other() -> None:
        right = {"stringData": _files(hosts[other], serial + 1)}
        await lab.edit(by, "Secret", other, f"{other}-tls", right)

    if not is_first:
        await renew_other()
        await lab.pause(lab.rng.uniform(1, 3))
    await lab.culprit(by, "update", "Secret", namespace, f"{namespace}-tls", {"stringData": wrong})
    if is_first:
        await lab.pause(lab.rng.uniform(1, 2))
        await renew_other()
    await lab.pause(lab.rng.uniform(1, 3))
    await lab.roll(lab.rng.choice(("ci", "argocd")), namespace, front, "2.1.3")


@family(
    "No culprit. The key by which an app asks a provider outside was made a year ago, for a year, and nobody has"
    " written down when it is over. At that hour each call is answered with 401, while the team's changes of that day"
    " go through as ever.",
    culprit=False,
    joined=85,
)
async def token_of_last_year(lab: Lab) -> AsyncIterator[None]:
    """As those tell who looked for what had been changed, and found nothing."""
    namespace, name, host, called, front = lab.rng.choice(
        (
            ("shop", "parcel-labels", "api.parcels.example", "parcel-store", "dispatch-page"),
            ("payments", "credit-scores", "scores.bureau.example", "score-book", "instalment-page"),
            ("search", "place-names", "geo.maps.example", "place-store", "nearby-page"),
            ("media", "age-checks", "verify.ident.example", "viewer-store", "player-page"),
        )
    )
    is_over, calls, kept = list[bool](), lab.rng.uniform(10, 16), lab.rng.uniform(0.1, 0.45)
    status, deploys, minor = lab.rng.choice(("500", "502")), lab.rng.choice(("ci", "argocd")), lab.rng.randrange(3, 50)

    def fails(_: Container) -> float:
        """All but what it has from before."""
        return 1 - kept if is_over else 0.0

    def answered(*, well: bool) -> Callable[[], float]:
        return lambda: calls if well is not bool(is_over) else 0.0

    await lab.app(namespace, called, replicas=2, tag="1.3.0")
    await lab.until(lambda: backends(lab.world, namespace, called))
    await lab.apply(objects.config_map(namespace, name, LOG_LEVEL="info", TIMEOUT_MS="2000"))
    key = {
        "metadata": {"namespace": namespace, "name": f"{name}-provider"},
        "stringData": {"api-key": f"pk_{minor:08x}"},
    }
    await lab.apply({"kind": "Secret", **key})
    reference = {"secretKeyRef": {"name": f"{name}-provider", "key": "api-key"}}
    like = App(
        "",
        upstreams=((namespace, called),),
        abroad=(host,),
        asked=lambda: 21.0,
        failing=fails,
        fails_with=lambda _: status,
    )
    env = [{"name": "PROVIDER_API_KEY", "valueFrom": reference}]
    await lab.app(namespace, name, like=like, replicas=3, tag=f"2.{minor}.0", config=name, env=env)
    await rolled(lab, namespace, name, f"2.{minor}.0")
    await set_before(lab, namespace, front, name)
    for code, well in (("200", True), ("401", False)):
        told = {"namespace": namespace, "service": name, "host": host, "code": code}
        lab.measure("http_client_requests_total", lab.adding_up(answered(well=well)), "counter", **told)
    lab.alert_errors(namespace, name)
    lab.alert_errors(namespace, front)
    lab.alert_ingress_errors(namespace, namespace)
    await lab.until(lab.is_well)

    async def hour() -> None:
        await lab.pause(lab.rng.uniform(3, 10) + lab.lag)
        is_over.append(True)
        await lab.pause(lab.rng.uniform(2, 5))
        await change_page(lab, namespace, front)

    yield
    await lab.roll(deploys, namespace, name, f"2.{minor}.1")
    await lab.pause(lab.rng.uniform(4, 9))
    data = {"data": {"TIMEOUT_MS": lab.rng.choice(("1500", "2500"))}}
    await lab.edit(lab.rng.choice((*TEAMS, "flux")), "ConfigMap", namespace, name, data)
    lab.start(hour())
