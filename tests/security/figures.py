"""The one table that ``make security`` ends with: what was tried, and what came through.

A pytest plugin (``-p tests.security.figures``). A test tells a figure with pytest's own ``record_property``; figures of
one name add up. What many small tests show is counted by where they stand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

CASES: dict[str, tuple[str, ...]] = {
    "routes, pages and answers a stranger asks for": ("tests/web/test_auth.py",),
    "requests that another site would make": ("tests/web/test_auth.py::test_another_site",),
    "addresses that must not be asked (SSRF)": ("tests/collect/test_outbound.py",),
    "limits of bodies, depth and time": (
        "tests/security/test_limits.py",
        "tests/collect/test_hostile.py",
        "tests/test_intake.py",
        "tests/web/test_external.py",
        "tests/test_audit_intake.py",
    ),
    "limits of how often": ("tests/web/test_rates.py",),
    "the log of who did what": ("tests/web/test_audit_log.py", "tests/store/test_audit.py"),
    "rules of redaction": ("tests/core/objects/test_redact.py", "tests/security/test_mutations.py"),
    "the whole of REST against its description": ("tests/web/test_fuzz.py",),
    "what is built on (lock, list of parts, advisories)": ("tests/security/test_supply.py",),
}
"""What is counted as tests: a line of the table, and where its tests stand."""


@dataclass(eq=False)
class Figures:
    """What was told so far. It is one plugin and no other, whatever it holds: pytest keeps plugins in sets."""

    told: Counter[str] = field(default_factory=Counter)
    said: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's own figures, and how it ended."""
        if report.when == "call":
            for name, value in report.user_properties:
                if isinstance(value, int):
                    self.told[name] += value
                else:
                    self.said[name] = str(value)
        if report.when == "call" or report.outcome != "passed":
            for line, places in CASES.items():
                if report.nodeid.startswith(places):
                    self.outcomes.setdefault(line, Counter())[report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        rows = [(name, f"{value:,}") for name, value in sorted(self.told.items())] + sorted(self.said.items())
        for line in CASES:
            if found := self.outcomes.get(line):
                rows.append((f"tests: {line}", ", ".join(f"{many:,} {how}" for how, many in sorted(found.items()))))
        width = max((len(name) for name, _ in rows), default=0)
        terminalreporter.section("security")
        for name, value in rows:
            terminalreporter.write_line(f"{name.ljust(width)}  {value}")


def pytest_configure(config: pytest.Config) -> None:
    """Only where the table is printed: not in the processes that xdist starts."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Figures(), "figures of security")
