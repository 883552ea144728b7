"""A provider's bad minutes with the real CLIs: no dearer than without Muster, nothing left in the session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_minutes import plain, with_muster
from model_stub import ModelStub, Refuse, Say, Shell
from real_run import muster, project, show


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub({}) as stub:
        yield stub


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_some_refusals_cost_no_more_time_than_without_muster(kind: str) -> None:
    alone, ours = plain(kind, "529-4"), with_muster(kind, "529-4")
    assert (alone.done, ours.done) == (1, 1)
    assert (alone.refused, ours.refused) == (4, 4), "the CLI tries by itself"
    assert ours.seconds < 1.5 * alone.seconds + 3, "the CLI's own jitter, and a machine with others on it"


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_of_many_at_once_fewer_are_refused_than_without_muster(kind: str) -> None:
    alone, ours = plain(kind, "529-13s"), with_muster(kind, "529-13s")
    assert (alone.done, ours.done) == (8, 8)
    assert ours.refused < alone.refused


def test_nothing_is_added_to_a_session_that_was_only_refused(tmp_path: Path, stub: ModelStub) -> None:
    late = Refuse(429, "rate_limit_error", headers={"retry-after": "300"}, times=1)
    stub.scenarios["late"] = [Shell("echo one >> steps.txt"), late, Say("Done.")]
    stub.scenarios["early"] = [late, Say("Done.")]
    folder = project(tmp_path, stub)
    (folder / "plan.md").write_text(
        "# Plan\n- [ ] Late {#late}\n\n  stub: late\n- [ ] Early {#early after=late}\n\n  stub: early\n"
    )
    done = muster(folder, "run", "plan.md", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "steps.txt").read_text() == "one\n"
    *_, last = stub.model_requests("late")
    assert "interrupted" not in last.text
    assert "Go on." in last.text
    first, second = stub.model_requests("early")
    assert json.loads(first.text) == json.loads(second.text), "it is asked the same, as if nothing had been"
    for key, resumes in (("late", True), ("early", False)):
        before, after = show(folder, f"plan/{key}")["attempts"]  # type: ignore[misc]
        assert (before["status"], after["status"]) == ("released", "completed")  # type: ignore[call-overload]
        assert (before["sessionKey"] == after["sessionKey"]) is resumes  # type: ignore[call-overload]
