"""How bad an alert is: the words that people and programs have for it, and which of ours each means. Pure."""

from __future__ import annotations

BY_HAND = "page", "critical", "error", "warning", "info"
"""What somebody may call an incident that they open or correct."""
_RUNGS = (
    ("critical", "page"),
    ("critical", "critical crit emergency emerg fatal disaster p0 p1 sev0 sev1"),
    ("critical", "error err high major p2 sev2"),
    ("warning", "warning warn average medium moderate p3 sev3"),
    ("warning", "minor"),
    ("info", "info information informational notice low debug p4 p5 sev4 sev5"),
)
"""The worst first. "page" is what some write of an alert that calls somebody; P1 is Opsgenie's and PagerDuty's,
emergency and notice are syslog's, disaster, high and average Zabbix'."""
_RANKS = {word: rank for rank, (_, words) in enumerate(_RUNGS) for word in words.split()}
KNOWN = tuple(_RANKS)


def rank(severity: str) -> int:
    """The lower, the worse. What nobody knows counts as a warning, for it may be anything; what does not say any is
    behind all."""
    word = _word(severity)
    return _RANKS.get(word, _RANKS["warning"]) if word else len(_RUNGS)


def meant(severity: str) -> str:
    """Which of critical, warning and info it is; "" where it says none."""
    return _RUNGS[rank(severity)][0] if _word(severity) else ""


def is_known(severity: str) -> bool:
    """Whether it is one of KNOWN, however it is spelled."""
    return _word(severity) in _RANKS


def _word(severity: str) -> str:
    """SEV-1, sev_1 and Sev 1 are sev1."""
    return severity.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
