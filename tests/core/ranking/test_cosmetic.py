"""Complaints that name an object of which only a label changed that nobody goes by."""

from __future__ import annotations

import pytest

from app.core.edges.indexing import topology
from app.core.model import Path
from app.core.ranking.candidates import candidates
from app.core.ranking.explain import Match, explain
from app.core.signals.complaints import symptom_signals
from tests.core.factories import a_change, a_resource, a_state, a_symptom, a_workload, after

WEB = a_resource("Deployment", "web-front")


def named(kind: str, path: Path) -> Match:
    """How a complaint that names it is explained by a change of this object."""
    change = a_change(a_resource(kind, "ledger-proxy"), at=after(-10), path=path, old=None, new="maps")
    top = topology([a_workload(WEB), a_state(change.resource, {})])
    (found,) = candidates([change], (), (), topology=top, until=after(60))
    told = a_symptom(WEB, "Unhealthy", at=after(0), message="ledger-proxy does not answer")
    (signal,) = symptom_signals([told], start=after(-60), end=after(60))
    match = explain(found, signal, churn_share=0.0)
    assert match is not None
    return match


LABEL: Path = ("metadata", "labels", "team")


@pytest.mark.parametrize(
    ("kind", "path", "is_cosmetic"),
    [
        ("Ingress", LABEL, True),
        ("NetworkPolicy", LABEL, True),
        ("ServiceAccount", LABEL, True),
        ("Ingress", ("metadata", "annotations", "corp.example/note"), False),
        ("Ingress", ("metadata", "annotations", "nginx.ingress.kubernetes.io/proxy-read-timeout"), False),
        ("ServiceAccount", ("metadata", "annotations", "eks.amazonaws.com/role-arn"), False),
        ("Ingress", ("spec", "ingressClassName"), False),
    ],
)
def test_what_is_named_is_hardly_put_down_to_its_labels(kind: str, path: Path, is_cosmetic: bool) -> None:
    usual, match = named(kind, ("spec", "ports")), named(kind, path)
    assert match.via == ("named", "ledger-proxy")
    assert (match.score < usual.score / 2) is is_cosmetic
