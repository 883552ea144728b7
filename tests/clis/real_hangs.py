"""Whether a real CLI gets anywhere: a slow answer is progress, its own timers are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from model_stub import Hang, ModelStub, Say
from real_run import muster, project, running, show, until


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub({}) as stub:
        yield stub


def test_a_slow_answer_is_progress_and_not_in_the_log(tmp_path: Path, stub: ModelStub) -> None:
    stub.scenarios["slow"] = [Say("one two three four five six seven eight", gap_s=2.0)]
    folder = project(tmp_path, stub, stall_after="6s")
    (folder / "plan.md").write_text("# Plan\n- [ ] Slow {#slow}\n\n  stub: slow\n")
    done = muster(folder, "run", "plan.md", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    detail = show(folder, "plan/slow")
    [attempt] = detail["attempts"]  # type: ignore[misc]
    assert "suspected" not in [event["event"] for event in detail["events"]]  # type: ignore[attr-defined]
    logged = muster(folder, "logs", "plan/slow", "--raw").stdout
    assert "stream_event" not in logged
    assert '"type":"assistant"' in logged
    [printed] = folder.glob(".muster/attempts/*/1/stdout")
    assert printed.read_text().count('"type":"content_block_delta"') == 8
    assert attempt["logBytes"] < printed.stat().st_size  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_a_silent_cli_is_suspected_and_stopped(tmp_path: Path, stub: ModelStub, kind: str) -> None:
    stub.scenarios["hang"] = [Hang()]
    folder = project(tmp_path, stub, kind, stall_after="30s")
    (folder / "plan.md").write_text("# Plan\n- [ ] Hang {#hang retries=0}\n\n  stub: hang\n")
    with running(folder, "run", "plan.md", "--workers", "1"):
        until(lambda: stub.model_requests("hang"), "its request")
        until(lambda: "seems to hang" in str(show(folder, "plan/hang")["events"]), "the suspicion")
        until(lambda: show(folder, "plan/hang")["task"]["status"] == "FAILED", "the stop")  # type: ignore[index]
    assert "it hung: for 36 s it printed nothing" in str(show(folder, "plan/hang")["task"])
