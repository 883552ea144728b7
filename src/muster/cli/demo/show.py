"""The demo's last page: what the agents have built, the recoveries and the promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.cli.demo.checks import Recovery
from muster.cli.demo.evidence import LateWrite
from muster.cli.output import BOLD, GREEN, RED, Screen
from muster.testing.promises import Finding

PROBLEMS_SHOWN = 5
GIT_LINES = 10


def built(screen: Screen, output: str, commits: Sequence[str]) -> None:
    screen.line()
    screen.line(screen.paint("What the agents have built: python -m tally README.md", BOLD))
    for line in output.splitlines():
        screen.line(f"  {line}".rstrip())
    screen.line()
    screen.line(screen.paint(f"git log --oneline | head   ({len(commits)} commits)", BOLD))
    for line in commits[:GIT_LINES]:
        screen.line(f"  {line}".rstrip())


def recoveries(screen: Screen, found: Sequence[Recovery]) -> None:
    screen.line()
    screen.line(screen.paint("Recoveries, from the signal", BOLD))
    for r in found:
        steps = (("noticed", r.noticed_ms), ("restarted", r.restarted_ms), ("done", r.done_ms))
        times = ", ".join(f"{word} {_seconds(ms)}" for word, ms in steps)
        screen.line(f"  {r.fault.signal}  tally/{r.fault.key}: {times}")
        screen.line(
            f"           from {r.fault.worker} to {r.by_worker}: of {r.before} pieces done "
            f"{r.kept} were kept, {r.repeated} repeated"
        )


def promises(screen: Screen, checks: Sequence[Finding]) -> None:
    screen.line()
    screen.line(screen.paint("Promises, checked in the store and the ledger", BOLD))
    for check in checks:
        good, bad = ("+", "x") if screen.ascii_only else ("✓", "✗")
        glyph = screen.paint(good, GREEN) if check.holds else screen.paint(bad, RED)
        screen.line(f"  {glyph} {check.promise:<6}  {check.says}; {check.looked_at} checked")
        for problem in check.violations[:PROBLEMS_SHOWN]:
            screen.line(f"          {screen.paint(problem, RED)}")
        if len(check.violations) > PROBLEMS_SHOWN:
            screen.line(f"          and {len(check.violations) - PROBLEMS_SHOWN} more")


def _seconds(ms: int | None) -> str:
    return "never" if ms is None else f"{ms / 1000:.2f} s"


def as_json(
    *,
    ok: bool,
    seconds: float,
    folder: str | None,
    checks: Sequence[Finding],
    found: Sequence[Recovery],
    late: Sequence[LateWrite],
    output: str,
    commits: Sequence[str],
) -> Mapping[str, Any]:
    return {
        "demo": {
            "ok": ok,
            "seconds": round(seconds, 2),
            "folder": folder,
            "checks": [
                {
                    "promise": check.promise,
                    "says": check.says,
                    "ok": check.holds,
                    "lookedAt": check.looked_at,
                    "violations": check.violations,
                }
                for check in checks
            ],
            "recoveries": [_recovery(r) for r in found],
            "lateWrites": [write._asdict() for write in late],
            "commits": len(commits),
            "output": output,
        }
    }


def _recovery(r: Recovery) -> Mapping[str, Any]:
    return {
        "signal": r.fault.signal,
        "task": r.fault.key,
        "from": r.fault.worker,
        "to": r.by_worker,
        "noticedMs": r.noticed_ms,
        "restartedMs": r.restarted_ms,
        "doneMs": r.done_ms,
        "pieces": r.of,
        "before": r.before,
        "afterSignal": r.after_signal,
        "kept": r.kept,
        "repeated": r.repeated,
    }
