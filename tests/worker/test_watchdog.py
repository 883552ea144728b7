"""Limits over the whole tree, and the two proofs before an attempt is called hung."""

from __future__ import annotations

import pytest

from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.ports.agent import AttemptFolder, TreeUsage
from muster.worker.watchdog import CLOSE_LOOK_S, LOOK_S, Watchdog

MB = 1 << 20
K = ErrorKind


def usage(cpu_s: float = 0.0, *, processes: int = 1, memory: int = 0, written: int = 0) -> TreeUsage:
    return TreeUsage(processes, memory, cpu_s, written, ("claude 4711 sleeping",))


@pytest.fixture
def folder(tmp_path) -> AttemptFolder:
    return AttemptFolder(path=tmp_path)


def watchdog(folder, *, free: int = 1 << 40, **limits) -> Watchdog:
    return Watchdog(Limits(**limits), folder, "claude", now_s=0.0, free_bytes=lambda path: free)


def test_what_is_within_its_limits_goes_on(folder):
    watch = watchdog(folder, memory_bytes=100 * MB, processes=10, cpu_s=60)
    assert watch.look(usage(29, processes=5, memory=50 * MB), 1.0) is None
    assert watch.look_s == CLOSE_LOOK_S, "half was used within the first second"
    assert watch.look(usage(31, processes=5), 2.0) is None
    assert watch.look_s == LOOK_S, "there is room for another second of this"
    assert watch.look(usage(31, processes=7), 3.0) is None
    assert watch.look_s == CLOSE_LOOK_S, "there is none"
    assert watch.look(usage(31, processes=7), 4.0) is None
    assert watch.look_s == LOOK_S


@pytest.mark.parametrize(
    ("limits", "used", "kind", "text", "urgent"),
    [
        ({"memory_bytes": 64 * MB}, usage(memory=65 * MB), K.OUT_OF_MEMORY, "limits.memory", True),
        ({"processes": 3}, usage(processes=4), K.CRASH, "limits.processes", True),
        ({"cpu_s": 5.0}, usage(5.1), K.CRASH, "limits.cpu", False),
    ],
    ids=["memory", "processes", "cpu"],
)
def test_a_limit_names_itself(folder, limits, used, kind, text, urgent):
    verdict = watchdog(folder, **limits).look(used, 1.0)
    assert verdict is not None and (verdict.kind, verdict.urgent) == (kind, urgent)
    assert f"agents.claude.{text}" in verdict.message


def test_output_is_told_and_then_stopped(folder):
    watch = watchdog(folder, output_bytes=10 * MB)
    folder.stdout.write_bytes(bytes(7 * MB))
    assert watch.look(usage(), 1.0) is None and not watch.notice
    folder.stderr.write_bytes(bytes(2 * MB))
    assert watch.look(usage(), 2.0) is None
    assert "at 10.0 MB you are stopped" in watch.notice
    folder.stderr.write_bytes(bytes(4 * MB))
    verdict = watch.look(usage(), 3.0)
    assert verdict is not None and verdict.urgent and "11.0 MB of output" in verdict.message


def test_a_full_disk_stops_who_has_written(folder):
    assert watchdog(folder, free=MB).look(usage(written=MB), 1.0) is None, "not this one's fault"
    assert watchdog(folder, free=1 << 40).look(usage(written=900 * MB), 1.0) is None
    verdict = watchdog(folder, free=MB).look(usage(written=900 * MB), 1.0)
    assert verdict is not None and verdict.urgent
    assert "1.0 MB left" in verdict.message and "900.0 MB" in verdict.message


def silent(watch: Watchdog, begin_s: float, end_s: float, **options) -> tuple[float | None, float | None]:
    """Looks once a second at a tree that does nothing; when it was suspected, and stopped."""
    suspected = None
    now_s = begin_s
    while now_s < end_s:
        now_s += 1
        verdict = watch.look(usage(7.0), now_s, **options)
        if watch.suspicion and suspected is None:
            suspected = now_s
        if verdict is not None:
            return suspected, now_s
    return suspected, None


def test_silence_is_suspected_first_and_stopped_later(folder):
    watch = watchdog(folder, stall_after_s=100.0)
    watch.look(usage(7.0), 1.0)
    assert silent(watch, 1.0, 500.0) == (101.0, 121.0)
    assert "used 0.0 s of processor time" in watch.suspicion
    assert "claude 4711 sleeping" in watch.suspicion
    verdict = watch.look(usage(7.0), 122.0)
    assert verdict is not None and verdict.message.startswith("it hung: for 2 min it printed nothing")
    assert "agents.claude.stall_after" in verdict.message and not verdict.urgent


@pytest.mark.parametrize("sign", ["output", "cpu", "written"])
def test_any_sign_of_progress_lifts_the_suspicion(folder, sign):
    watch = watchdog(folder, stall_after_s=100.0)
    watch.look(usage(7.0), 1.0)
    assert silent(watch, 1.0, 110.0) == (101.0, None)
    if sign == "output":
        folder.stdout.write_bytes(b".")
    moved = {"output": usage(7.0), "cpu": usage(10.0), "written": usage(7.0, written=MB)}
    assert watch.look(moved[sign], 111.0) is None
    assert watch.suspicion == ""


def test_timers_of_an_idle_program_are_no_progress(folder):
    watch = watchdog(folder, stall_after_s=100.0)
    watch.look(usage(7.0), 1.0)
    for second in range(2, 101):
        watch.look(usage(7.0 + second * 0.004, written=second * 16), float(second))
    assert not watch.suspicion
    watch.look(usage(7.5, written=1700), 103.0)
    assert watch.suspicion


def test_a_worker_that_stood_still_itself_has_seen_no_silence(folder):
    watch = watchdog(folder, stall_after_s=100.0)
    watch.look(usage(7.0), 1.0)
    assert watch.look(usage(7.0), 5000.0) is None
    assert not watch.suspicion


def test_a_frozen_tree_is_not_silent(folder):
    watch = watchdog(folder, stall_after_s=100.0)
    watch.look(usage(7.0), 1.0)
    assert silent(watch, 1.0, 500.0, frozen=True) == (None, None)
    assert silent(watch, 500.0, 1000.0) == (600.0, 620.0), "the silence begins when it is thawed"


def test_without_a_limit_silence_is_allowed(folder):
    watch = watchdog(folder, stall_after_s=None, output_bytes=None)
    assert silent(watch, 0.0, 5000.0) == (None, None)


def test_what_a_cli_writes_while_it_only_waits_is_no_progress(folder: AttemptFolder) -> None:
    idle = Watchdog(Limits(stall_after_s=60), folder, "codex", now_s=0.0, idle_bytes_per_s=2048)
    working = Watchdog(Limits(stall_after_s=60), folder, "codex", now_s=0.0, idle_bytes_per_s=2048)
    for second in range(1, 71):
        idle.look(usage(written=second * 1300), float(second))
        working.look(usage(written=second * 20_000), float(second))
    assert "it printed nothing" in idle.suspicion
    assert working.suspicion == ""
