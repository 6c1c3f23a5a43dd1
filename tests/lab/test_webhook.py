"""What a webhook shows to who asks it."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import timedelta

import pytest

from tests.lab.api import Json, now
from tests.lab.webhook import Webhook


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
