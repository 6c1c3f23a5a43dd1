"""An admission webhook: a real HTTPS server that the API server calls, with a certificate that is good for so long."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.lab.api import Json, now

Review = Callable[[Json], Awaitable[str | list[Json] | None]]
"""From an admission request to why it is denied, or to a JSON patch; None when it is left as it is."""
DAY = 86400.0
PATH = "/validate"


class BrokenError(Exception):
    """A review ends on a request by a fault of its own: what it is built on denies that with this message, as a 500."""


class Webhook:
    """Listens on a port of 127.0.0.1 from ``start`` on."""

    is_aggregated = False
    """Whether the API server asks it for an API, by a Service of an outside name, and not to admit what is written."""

    def __init__(self, review: Review, *, seconds: float = DAY, service: tuple[str, str] | None = None) -> None:
        """Its certificate expires after so many ``seconds``; ``service`` is the Service whose pods answer.

        The API server reaches no simulated pod, so it asks here, and the recording says the Service.
        """
        self._review = review
        self.service = service
        self._authority = _Authority()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._show(now() - timedelta(days=90), now() + timedelta(seconds=seconds))
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._context)

    def renew(self, *, since: datetime) -> None:
        """Show another certificate of the same authority from now on, which is good from then on."""
        self._show(since, since + timedelta(seconds=DAY))

    def _show(self, since: datetime, until: datetime) -> None:
        with tempfile.TemporaryDirectory() as folder:
            cert, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
            cert.write_bytes(self._authority.certificate(since, until))
            key.write_bytes(self._authority.key_pem)
            self._context.load_cert_chain(cert, key)

    def close(self) -> None:
        assert self._server
        self._server.close()

    def client_config(self) -> Json:
        """How a configuration names it."""
        return {"url": f"https://{self.address}{PATH}", "caBundle": self.authority}

    @property
    def authority(self) -> str:
        """Whom one has to trust who asks it, as a ``caBundle`` or a Secret has it."""
        return base64.b64encode(self._authority.pem).decode()

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._server
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, and the connection ends."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(next(line for line in head.splitlines() if line.startswith("content-length:")).split(":")[1])
            asked: Json = json.loads(await reader.readexactly(length))
            verdict, code = await self._verdict(asked["request"])
            response: Json = {"uid": asked["request"]["uid"], "allowed": not isinstance(verdict, str)}
            if isinstance(verdict, str):
                response["status"] = {"message": verdict, "code": code}
            elif verdict:
                response["patchType"] = "JSONPatch"
                response["patch"] = base64.b64encode(json.dumps(verdict).encode()).decode()
            body = json.dumps({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": response}).encode()
            head_back = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head_back}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # who asked has gone: its time was up
        finally:
            writer.close()

    async def _verdict(self, request: Json) -> tuple[str | list[Json] | None, int]:
        """With the code of a denial."""
        try:
            return await self._review(request), 403
        except BrokenError as error:
            return str(error), 500


def configuration(name: str, webhook: Webhook, *, seconds: int = 5, only: str = "") -> Json:
    """A ValidatingWebhookConfiguration for pods that are made; ``only`` in namespaces with this label."""
    selector: Json = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]
    }
    if only:
        selector = {"matchLabels": {only: "enabled"}}
    one = {
        "name": f"{name}.corp.example",
        "clientConfig": webhook.client_config(),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": selector,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": seconds,
        "admissionReviewVersions": ["v1"],
    }
    return {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": name}, "webhooks": [one]}


class _Authority:
    """Who signs the certificates of one webhook, all of which have the same key."""

    def __init__(self) -> None:
        self._own, self._key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "policy.platform.svc")])
        ages = timedelta(days=3650)
        is_ca = x509.BasicConstraints(ca=True, path_length=None)
        made = self._builder(self._name, self._own, now() - ages, now() + ages).add_extension(is_ca, critical=True)
        self.pem = made.sign(self._own, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        plain = serialization.NoEncryption()
        return self._key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)

    def certificate(self, since: datetime, until: datetime) -> bytes:
        """As PEM, for where webhooks listen."""
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webhook")])
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = self._builder(subject, self._key, since, until).add_extension(address, critical=False)
        return made.sign(self._own, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, since: datetime, until: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(until)
        )
