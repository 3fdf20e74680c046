"""A pytest plugin for the second run of `make test`: it lists the tests that failed at first and passed now.

Such a test hides a race. `make test` loads the plugin with `-p tests.second_try` when it runs the failed tests again.
"""

from __future__ import annotations

import pytest


class SecondTry:
    """Collects the outcome of every test of this run."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        unsteady = sorted(self.passed - self.failed)
        if not unsteady:
            return
        terminalreporter.section(f"passed only at the second try: {len(unsteady)}", sep="=", yellow=True)
        for test in unsteady:
            terminalreporter.write_line(test)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SecondTry())
