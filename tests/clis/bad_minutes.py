"""A provider's bad minutes: what they cost with Muster and with the plain CLI, side by side against the stub."""

from __future__ import annotations

import math
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from model_stub import Away, ModelStub, Refuse, Say, Scenario
from real_run import MUSTER, project
from wires import Step

from bench import MODES, Bench
from muster.agents.inputs import base_env
from muster.ports.agent import AttemptFolder

TASKS = 8
LIMIT_S = 600.0
HEAD = "provider           CLI          tasks   plain: s  refused   Muster: s  refused   ratio"
_529 = Refuse(529, "overloaded_error", "Overloaded")
_429 = Refuse(429, "rate_limit_error", headers={"retry-after": "5"})
_500 = Refuse(500, "api_error", "internal")


def _times(refusal: Refuse, times: int) -> Step:
    return Refuse(refusal.status, refusal.kind, refusal.message, refusal.headers, times)


CASES: dict[str, tuple[int, Scenario]] = {
    "529-4": (1, [_times(_529, 4)]),
    "429-5": (1, [_times(_429, 5)]),
    "500-8": (1, [_times(_500, 8)]),
    "529-13s": (TASKS, [Away(13, _529)]),
    "429-30s": (TASKS, [Away(30, _429)]),
    "500-115s": (TASKS, [Away(115, _500)]),
}
"""By name: how many tasks at once, and what the provider does before it answers."""


@dataclass(frozen=True)
class Cost:
    """`seconds` is from the first request to the one that was answered last."""

    seconds: float
    refused: int
    done: int


def plain(kind: str, case: str) -> Cost:
    """The CLI alone, started as often at once as there are tasks."""
    tasks, steps = CASES[case]
    with ModelStub({case: [*steps, Say("done")]}) as stub, tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        with ThreadPoolExecutor(tasks) as pool:
            codes = list(pool.map(lambda n: _plain_one(root / f"{n}", kind, case, stub.url), range(tasks)))
        return _cost(stub, codes.count(0))


def _plain_one(root: Path, kind: str, case: str, url: str) -> int:
    folder = AttemptFolder(path=root / "attempt")
    folder.path.mkdir(parents=True)
    bench = Bench(root, kind, url, MODES[kind], own_retries=True)
    launch = bench.agent().launch(bench.job(case), folder, cwd=root, extra_env={})
    said = launch.talk.first if launch.talk else folder.prompt.read_bytes()
    with folder.stdout.open("wb") as out:
        return subprocess.run(
            launch.argv, env=dict(launch.env), cwd=root, input=said, stdout=out, stderr=out,
            timeout=LIMIT_S, check=False,
        ).returncode  # fmt: skip


def with_muster(kind: str, case: str) -> Cost:
    tasks, steps = CASES[case]
    with ModelStub({case: [*steps, Say("done")]}) as stub, tempfile.TemporaryDirectory() as name:
        folder = project(Path(name).resolve(), stub, kind, own_retries=True)
        lines = [f"- [ ] Task {n} {{#t{n}}}\n\n  stub: {case}" for n in range(tasks)]
        (folder / "plan.md").write_text("\n".join(["# Plan", *lines, ""]))
        run = [*MUSTER, "run", "plan.md", "--workers", str(tasks)]
        subprocess.run(
            run, cwd=folder, env=base_env((), {}), capture_output=True, timeout=LIMIT_S, check=False
        )
        return _cost(stub, (folder / "plan.md").read_text().count("[x]"))


def _cost(stub: ModelStub, done: int) -> Cost:
    return Cost(stub.seen[-1].at_s - stub.seen[0].at_s, sum(stub.refused.values()), done)


def compared(case: str, kind: str) -> tuple[str, str]:
    """A line of the table, and what is worse with Muster than without; empty where nothing is."""
    alone, ours = plain(kind, case), with_muster(kind, case)
    tasks = CASES[case][0]
    # Some CLIs give up at the first refusal: then there is nothing to be slower than.
    gave_up = alone.done < tasks or not alone.seconds
    ratio = math.nan if gave_up else ours.seconds / alone.seconds
    bad = ours.done < tasks or (ratio > 1.5 if tasks == 1 else ours.refused >= alone.refused)
    row = (
        f"{case:<18} {kind:<12} {tasks:>5} {alone.seconds:>10.1f} {alone.refused:>8} "
        f"{ours.seconds:>11.1f} {ours.refused:>8} {ratio:>7.2f}"
    )
    return row, f"{case}, {kind}: worse than without Muster: {row}" if bad else ""
