"""How `foreshock doctor` says what was found."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from app.collect.contexts import ContextsError
from app.collect.diagnosis import Finding, Level
from app.commands.doctor import as_json, as_text, examined, exit_code
from app.failures import Exit

FINE = Finding("clock", Level.OK, "less than 1 s from ours")
BLIND = Finding("version", Level.PROBLEM, "Kubernetes \x1b[2Jv1\n", "anything", "upgrade")


def test_every_finding_is_a_line_with_what_follows_and_drives_no_terminal() -> None:
    assert list(as_text({"shop": [FINE, BLIND]})) == [
        "shop",
        "  ok       clock           less than 1 s from ours",
        "  problem  version         Kubernetes ?[2Jv1?",
        "                           not seen: anything",
        "                           fix: upgrade",
    ]


def test_json_has_the_findings_of_each_cluster() -> None:
    said = json.loads(as_json({"shop": [FINE]}))
    assert said == {
        "shop": [{"check": "clock", "level": "ok", "said": "less than 1 s from ours", "unseen": "", "fix": ""}]
    }


def test_the_gravest_finding_of_all_clusters_is_the_exit_code() -> None:
    assert exit_code({"shop": [FINE], "lab": []}) is Exit.DONE
    assert exit_code({"shop": [FINE], "lab": [Finding("audit", Level.WARNING, "")]}) is Exit.WARNED
    assert exit_code({"shop": [BLIND], "lab": [FINE]}) is Exit.BLIND


async def test_where_there_is_no_cluster_to_look_at_it_is_said_what_to_name() -> None:
    with pytest.raises(ContextsError, match="--kubeconfig"):
        await examined((), clock=lambda: datetime(2026, 11, 22, tzinfo=UTC), recorded=None)
