"""A recording names the Service of whoever answers a webhook, as a cluster does whose API server reaches pods."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.lab.api import Json
from tests.lab.metrics_api import MetricsApi
from tests.lab.webhook import Webhook, configuration
from tests.lab.webhook_services import NoServiceError, naming

POLICY = ("platform", "policy")
ADDRESSES = {POLICY: "10.0.0.17"}


async def started(service: tuple[str, str] | None = POLICY) -> Webhook:
    async def review(request: Json) -> str | None:
        return None

    made = Webhook(review, service=service)
    await made.start()
    return made


def recorded(value: Json, webhook: Webhook) -> Json:
    result: Json = json.loads(naming([webhook], ADDRESSES)(json.dumps(value)))
    return result


def test_a_configuration_names_the_service() -> None:
    async def play() -> None:
        webhook = await started()
        made = configuration("policy", webhook)
        owned: Json = {"f:clientConfig": {".": {}, "f:caBundle": {}, "f:url": {}}}
        fields = {"f:webhooks": {'k:{"name":"policy.corp.example"}': owned}}
        event = {
            "requestObject": made,
            "responseObject": {**made, "metadata": {"managedFields": [{"fieldsV1": fields}]}},
        }
        said = recorded(event, webhook)
        service = {"namespace": "platform", "name": "policy", "path": "/validate", "port": 443}
        for one in (said["requestObject"], said["responseObject"]):
            assert one["webhooks"][0]["clientConfig"] == {"service": service, "caBundle": webhook.authority}
        [field] = said["responseObject"]["metadata"]["managedFields"][0]["fieldsV1"]["f:webhooks"].values()
        assert set(field["f:clientConfig"]) == {".", "f:caBundle", "f:service"}
        assert webhook.address not in json.dumps(said)
        webhook.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("EOF", "dial tcp 10.0.0.17:443: connect: connection refused"),
        ("dial tcp ADDRESS: connect: connection refused", "dial tcp 10.0.0.17:443: connect: connection refused"),
        ("context deadline exceeded", "context deadline exceeded"),
        ("tls: failed to verify certificate: x509: expired", "tls: failed to verify certificate: x509: expired"),
        (
            "read tcp 127.0.0.1:40112->ADDRESS: read: connection reset by peer",
            "dial tcp 10.0.0.17:443: connect: connection refused",
        ),
        ("write tcp 127.0.0.1:1->ADDRESS: broken pipe", "write tcp 127.0.0.1:1->10.0.0.17:443: broken pipe"),
    ],
)
def test_messages_say_what_the_api_server_says_of_a_service(end: str, says: str) -> None:
    async def play() -> None:
        webhook = await started()
        why = 'failed calling webhook "policy.corp.example": failed to call webhook: Post "https://'
        message = f'{why}{webhook.address}/validate?timeout=5s": {end.replace("ADDRESS", webhook.address)}'
        expected = f'{why}policy.platform.svc:443/validate?timeout=5s": {says}'
        annotations = {"failed-open.validating.webhook.admission.k8s.io/round_0": json.dumps({"error": message})}
        said = recorded({"responseStatus": {"message": message}, "annotations": annotations}, webhook)
        assert said["responseStatus"]["message"] == expected
        assert json.loads(next(iter(said["annotations"].values())))["error"] == expected
        webhook.close()

    asyncio.run(play())


def test_only_its_own_address_is_renamed() -> None:
    async def play() -> None:
        webhook, other = await started(), await started(None)
        named = naming([webhook, other], ADDRESSES)
        assert named(f'rest_client_requests_total{{host="{webhook.address}"}} 1') == (
            'rest_client_requests_total{host="policy.platform.svc:443"} 1'
        )
        for line in (
            json.dumps(configuration("other", other)),
            f"{webhook.address}0 is another port",
            "{not looked at",
        ):
            assert named(line) == line
        webhook.close()
        other.close()

    asyncio.run(play())


def test_a_service_that_was_never_there_is_an_error() -> None:
    async def play() -> None:
        webhook = await started(("platform", "polciy"))
        with pytest.raises(NoServiceError, match="platform/polciy"):
            naming([webhook], ADDRESSES)
        webhook.close()

    asyncio.run(play())


def test_an_api_is_named_by_the_service_of_its_pods() -> None:
    async def play() -> None:
        api = MetricsApi(dict)
        await api.start()
        api.service = ("platform", "policy")
        port = int(api.address.rsplit(":", 1)[1])
        asked = {"namespace": "platform", "name": "policy-outside", "port": port}
        where = f"https://localhost:{port}{api.root}"
        said = recorded({"spec": {"service": asked}, "message": f"bad status from {where}: 503"}, api)
        assert said["spec"]["service"] == {"namespace": "platform", "name": "policy", "port": 443}
        assert said["message"] == f"bad status from https://10.0.0.17:443{api.root}: 503"
        gone = recorded({"message": 'service/policy-outside in "platform" is not present'}, api)
        assert gone["message"] == 'service/policy in "platform" is not present'
        outside = {"metadata": {"namespace": "platform", "name": "policy-outside"}, "spec": {"type": "ExternalName"}}
        assert recorded(outside, api) == outside
        api.close()

    asyncio.run(play())
