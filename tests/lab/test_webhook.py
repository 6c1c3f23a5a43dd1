"""What a webhook shows to who asks it."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import timedelta

import pytest

from tests.lab.api import Json, now
from tests.lab.webhook import BrokenError, Webhook


async def allow(_: Json) -> None:
    """As it is."""


async def connect(webhook: Webhook) -> None:
    """As the API server does. Raises SSLCertVerificationError."""
    trust = ssl.create_default_context(cadata=base64.b64decode(webhook.authority).decode())
    host, port = webhook.address.split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=trust)
    writer.close()


async def test_a_renewed_certificate_is_trusted_from_when_it_is_good() -> None:
    webhook = Webhook(allow)
    await webhook.start()
    await connect(webhook)
    webhook.renew(since=now() - timedelta(seconds=1))
    await connect(webhook)
    webhook.renew(since=now() + timedelta(hours=1))
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        await connect(webhook)
    webhook.close()


async def test_a_certificate_is_over_at_its_hour() -> None:
    webhook = Webhook(allow, seconds=0.0)
    await webhook.start()
    await asyncio.sleep(1.1)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        await connect(webhook)
    webhook.close()


async def test_a_review_that_breaks_is_told_as_a_fault_of_the_server() -> None:
    async def breaks(_: Json) -> None:
        raise BrokenError("panic: nil pointer [recovered]")

    webhook = Webhook(breaks)
    await webhook.start()
    trust = ssl.create_default_context(cadata=base64.b64decode(webhook.authority).decode())
    host, port = webhook.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=trust)
    asked = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}})
    writer.write(f"POST /validate HTTP/1.1\r\nContent-Length: {len(asked)}\r\n\r\n{asked}".encode())
    _, _, body = (await reader.read()).partition(b"\r\n\r\n")
    response = json.loads(body)["response"]
    assert not response["allowed"]
    assert response["status"] == {"message": "panic: nil pointer [recovered]", "code": 500}
    writer.close()
    webhook.close()
