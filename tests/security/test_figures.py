"""The plugin that prints what the tests of security tried: it is one among pytest's, and adds up."""

from __future__ import annotations

import pytest

from tests.security.figures import Figures


def test_pytest_can_leave_it_out_as_any_plugin() -> None:
    """As where a folder has hooks of its own: pytest looks for those to leave out in a set."""
    manager, figures = pytest.PytestPluginManager(), Figures()
    manager.register(figures, "figures of security")
    hook = manager.subset_hook_caller("pytest_runtest_logreport", [figures])
    assert figures not in {found.plugin for found in hook.get_hookimpls()}
    assert figures in manager.get_plugins()


def test_figures_of_one_name_add_up() -> None:
    figures = Figures()
    for many in (2, 3):
        told = [("canaries", many), ("advisories", "not asked")]
        figures.pytest_runtest_logreport(
            pytest.TestReport(
                nodeid="tests/security/test_supply.py::test_it",
                location=("", None, ""),
                keywords={},
                outcome="passed",
                longrepr=None,
                when="call",
                user_properties=told,
            )
        )
    assert figures.told == {"canaries": 5}
    assert figures.said == {"advisories": "not asked"}
    (line,) = figures.outcomes
    assert figures.outcomes[line] == {"passed": 2}
