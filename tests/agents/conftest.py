"""Agents are tested on real processes, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))

from hostile_fixtures import folder, hostiles, subreaper

__all__ = ["folder", "hostiles", "subreaper"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line("not run here: the contract tests on the real agent CLIs (./run test-agents)")
