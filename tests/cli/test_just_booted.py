"""On a machine whose clock has just begun, nobody waits for what was never done."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.app.crew import SupervisedCrew
from muster.app.interrupts import Interrupts
from muster.config.project import Project
from muster.config.settings import Config
from muster.hosts.local_host import LocalHost, become_subreaper


@pytest.fixture(autouse=True)
def just_booted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)


def test_a_run_asks_at_once_whether_its_plan_is_done() -> None:
    ends_after_a_look = iter([False, True])
    supervisor = SimpleNamespace(drained=lambda: next(ends_after_a_look))
    crew: Any = SimpleNamespace(tick=lambda: None, supervisor=supervisor, _interrupts=Interrupts())
    assert SupervisedCrew.work_until(crew, lambda: True)


def test_the_owner_is_told_at_once_that_its_crew_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = SupervisedCrew(Project(tmp_path), Config(), 1, say=print, actor="me", interrupts=Interrupts())
    become_subreaper(wanted=False)
    (worker,) = crew.supervisor.workers
    worker.adopted = LocalHost().identify(os.getpid())
    told: list[str] = []
    monkeypatch.setattr(crew, "_tell", lambda path, _: told.append(path))
    monkeypatch.setattr(crew, "tick", crew.supervisor.workers.clear)
    crew.wind_down()
    assert told[0] == "/api/v1/crew"
