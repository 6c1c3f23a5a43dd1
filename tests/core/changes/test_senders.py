"""What Flux and LaunchDarkly send, in the shape that their documentation gives, made into what we are told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from app.core.changes.senders import Sent, flux, launchdarkly
from app.core.model import Verb


def an_event(**more: Any) -> bytes:
    """As https://fluxcd.io/flux/components/notification/events/#event-structure ."""
    event = {
        "involvedObject": {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "name": "checkout",
            "namespace": "payments",
            "uid": "1f9a6a52-1111-4a4e-9d3c-0a0a0a0a0a0a",
        },
        "metadata": {"helm.toolkit.fluxcd.io/revision": "1.42.0"},
        "severity": "info",
        "reason": "UpgradeSucceeded",
        "message": "Helm upgrade succeeded for release payments/checkout.v7\nwith chart checkout@1.42.0",
        "reportingController": "helm-controller",
        "reportingInstance": "helm-controller-6f5c9d7b8-x2x4z",
        "timestamp": "2026-11-20T14:02:27Z",
    }
    return orjson.dumps(event | more)


def an_entry(**more: Any) -> bytes:
    """As https://launchdarkly.com/docs/api/webhooks ."""
    entry = {
        "_links": {"site": {"href": "/default/production/features/new-checkout", "type": "text/html"}},
        "_id": "6560aabbccddeeff00112233",
        "date": 1_795_183_347_804,
        "accesses": [{"action": "updateOn", "resource": "proj/default:env/production;live:flag/new-checkout"}],
        "kind": "flag",
        "name": "New checkout",
        "description": "* Turned on the flag",
        "member": {"email": "alice@shop.example", "firstName": "Alice"},
        "titleVerb": "turned on the flag",
        "previousVersion": {
            "_version": 7,
            "environments": {
                "production": {"on": False, "lastModified": 1, "version": 7, "fallthrough": {"variation": 1}}
            },
        },
        "currentVersion": {
            "_version": 8,
            "environments": {
                "production": {"on": True, "lastModified": 2, "version": 8, "fallthrough": {"variation": 1}}
            },
        },
    }
    return orjson.dumps(entry | more)


def test_an_event_of_flux_is_a_change_of_what_it_reconciled() -> None:
    sent = flux(an_event())
    told = sent.told
    assert told is not None
    assert (told.source, told.kind, told.name, told.verb) == ("flux", "helm release", "payments/checkout", Verb.UPDATE)
    assert told.at == datetime(2026, 11, 20, 14, 2, 27, tzinfo=UTC)
    assert told.actor == "helm-controller"
    assert told.summary == "Helm upgrade succeeded for release payments/checkout.v7"
    assert [(found.path_text, found.new) for found in told.fields] == [("revision", "1.42.0")]
    assert sent.key == flux(an_event()).key != flux(an_event(reason="Progressing")).key


@pytest.mark.parametrize(
    ("reason", "verb"),
    [("InstallSucceeded", Verb.CREATE), ("UninstallSucceeded", Verb.DELETE), ("ReconciliationSucceeded", Verb.UPDATE)],
)
def test_what_flux_did_is_in_its_reason(reason: str, verb: Verb) -> None:
    told = flux(an_event(reason=reason)).told
    assert told is not None
    assert told.verb is verb


@pytest.mark.parametrize("severity", ["error", "trace"])
def test_an_error_of_flux_is_no_change_and_that_is_said(severity: str) -> None:
    sent = flux(an_event(severity=severity, reason="HealthCheckFailed"))
    assert sent == Sent(None, left_out="its severity is not info: HealthCheckFailed tells of no change")


def test_an_entry_of_launchdarkly_is_a_change_of_a_flag() -> None:
    sent = launchdarkly(an_entry())
    told = sent.told
    assert told is not None
    assert (told.source, told.kind, told.verb) == ("launchdarkly", "feature flag", Verb.UPDATE)
    assert told.name == "default/production/new-checkout"
    assert told.at == datetime(2026, 11, 20, 14, 2, 27, 804000, tzinfo=UTC)
    assert (told.actor, told.summary) == ("alice@shop.example", "turned on the flag New checkout")
    assert told.url == "https://app.launchdarkly.com/default/production/features/new-checkout"
    assert [(f.path_text, f.old, f.new) for f in told.fields] == [("environments.production.on", False, True)]
    assert sent.key == "6560aabbccddeeff00112233"


@pytest.mark.parametrize(
    ("action", "verb"), [("createFlag", Verb.CREATE), ("deleteFlag", Verb.DELETE), ("updateTargets", Verb.UPDATE)]
)
def test_what_was_done_to_a_flag_is_in_its_access(action: str, verb: Verb) -> None:
    told = launchdarkly(an_entry(accesses=[{"action": action, "resource": "proj/default:env/*:flag/x"}])).told
    assert told is not None
    assert (told.verb, told.name) == (verb, "default/*/x")


def test_an_entry_without_what_is_not_needed_is_told_too() -> None:
    told = launchdarkly(orjson.dumps({"_id": "1", "date": 0, "kind": "relay-proxy-config", "name": " a \n b "})).told
    assert told is not None
    assert (told.kind, told.name, told.url, told.fields) == ("relay proxy config", "a b", "", ())


@pytest.mark.parametrize("href", ["javascript:alert(1)", "//", "http://a b/", "https://x.example/" + "a" * 2000])
def test_an_address_that_is_none_of_the_web_is_left_out(href: str) -> None:
    told = launchdarkly(an_entry(_links={"site": {"href": href}})).told
    assert told is not None
    assert told.url in {"", "https://app.launchdarkly.com/"}


DEEP = b'{"a":' * 2000 + b"1" + b"}" * 2000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"involvedObject": 1}',
        b"\xff",
        an_event(timestamp="yesterday"),
        an_event(timestamp="2026-11-20T14:02:27"),
        an_entry(date=10**17),
        an_entry(date="now"),
        an_entry(previousVersion={}).replace(b'"previousVersion":{}', b'"previousVersion":' + DEEP),
    ],
)
def test_what_is_none_of_theirs_is_refused_in_words(body: bytes) -> None:
    for read in (flux, launchdarkly):
        with pytest.raises(ValueError, match=r"\w"):
            read(body)
