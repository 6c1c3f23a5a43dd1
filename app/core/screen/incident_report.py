"""One incident for a terminal, made of REST's JSON: since when, what it is about, and its suspects in short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from textwrap import wrap
from typing import Any

from app.core.changes.report import WIDTH, as_text
from app.core.findings import NONE, Opinion
from app.core.phrases import onset_text
from app.core.screen import tables

Item = Mapping[str, Any]
MOST_ALERTS = 5
_SHORT = replace(tables.TABLES["Suspects"], beneath=lambda one: tables.flip(one) if one["rank"] == 1 else ())
"""Suspects without their evidence, but for what the first place hangs on."""


def incident_report(incident: Item, suspects: Item) -> str:
    """What ``GET /incidents/{id}`` and ``GET /incidents/{id}/suspects`` answer, in lines of at most WIDTH columns."""
    about = (*_about(incident["incident"]), *_said(incident["incident"], suspects["items"]))
    return as_text(about) + "\n" + tables.as_text(suspects, _SHORT)


def _about(one: Item) -> Iterator[str]:
    yield one["title"]
    severity = f", {one['severity']}" if one["severity"] else ""
    yield f"{one['id']} in {one['cluster']}: {one['status']}{severity}, since {_when(one['started_at'])}"
    if one["resolved_at"]:
        yield f"resolved {_when(one['resolved_at'])}"
    if one["merged_into"]:
        yield f"it is a part of {one['merged_into']} since they were merged"
    if one["onset"]:
        at, low, high = (datetime.fromisoformat(one[name]) for name in ("onset", "onset_low", "onset_high"))
        told = f"it began to go wrong {at:%Y-%m-%d} {onset_text(at, low, high)} UTC, in {one['found_in']}"
        yield from wrap(told, WIDTH, subsequent_indent="       ")
    yield from wrap(_scope(one), WIDTH, subsequent_indent="       ")
    for alert in one["alerts"][:MOST_ALERTS]:
        until = f", until {_when(alert['ended_at'])}" if alert["ended_at"] else ""
        yield f"alert {alert['reason']}, {_when(alert['at'])}{until}"
    if len(one["alerts"]) > MOST_ALERTS:
        yield f"and {len(one['alerts']) - MOST_ALERTS} more alerts"


def _said(one: Item, suspects: Sequence[Item]) -> Iterator[str]:
    """What people said of the suspects, in the words of the page."""
    ranks = {
        change_id: suspect["rank"]
        for suspect in suspects
        for change_id in (
            suspect["change"]["id"],
            *(part["change_id"] for part in (*suspect["also"], *suspect["beside"])),
        )
    }
    for said in one["verdicts"]:
        of = said["change_id"]
        what = "none of these" if of == NONE else f"#{ranks[of]}" if of in ranks else f"change {of}, no suspect now"
        words = "This was it" if said["opinion"] == Opinion.IT else "Not it"
        yield from wrap(f"{words} ({what}), says {said['by']}, {_when(said['at'])}", WIDTH, subsequent_indent="       ")


def _scope(one: Item) -> str:
    """What it is about, as far as anything says; "" where nothing does."""
    parts = [
        *(f"namespace {name}" for name in one["namespaces"]),
        *one["workloads"],
        *(f"node {name}" for name in one["nodes"]),
        *(["the control plane"] if one["control_plane"] else []),
    ]
    return f"about {', '.join(parts)}" if parts else ""


def _when(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"
