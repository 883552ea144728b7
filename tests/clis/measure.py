"""What real agent CLIs do under Muster, against the model stub: rounds of kills, of conflicts, hours of work."""

from __future__ import annotations

import argparse
import math
import random
import signal
import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

import bad_minutes
import kill_rounds
import one_file
import ten_clis
from kill_rounds import killed

CASES = ("minutes", "kill", "one-file", "crew")
"""`minutes` are all of a provider's bad minutes; each of them may be named by itself."""
KINDS = ("claude-code", "codex", "gemini", "qwen-code", "opencode", "aider", "letta", "acp:opencode")


class Row(Protocol):
    @property
    def row(self) -> str: ...


R = TypeVar("R", bound=Row)


def shown(row: R) -> R:
    """At once too: what comes after it may take hours."""
    say(row.row)
    return row


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run agents", description=__doc__)
    parser.add_argument(
        "--cases",
        type=_names(*CASES, *bad_minutes.CASES),
        default=list(CASES),
        metavar="NAME,...",
        help=f"{', '.join(CASES)} (default: all); `minutes` are all of {', '.join(bad_minutes.CASES)}",
    )
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="of each case and CLI (default: 1)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="how long: `crew` (default: 60), `kill` at most (default: all rounds)",
    )
    parser.add_argument(
        "--kinds",
        type=_names(*KINDS),
        default=list(KINDS),
        metavar="KIND,...",
        help=f"{', '.join(KINDS)} (default: all)",
    )
    parser.add_argument(
        "--slots",
        type=int,
        default=1,
        metavar="S",
        help="CLIs that a worker of `crew` runs at once (default: 1)",
    )
    parser.add_argument("--seed", type=int, metavar="K", help="which faults in which order (default: random)")
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the crews that it has started end with it
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1_000_000)
    tables, violations = [], []
    for case in args.cases:
        table, wrong = minutes(args, case) if case in bad_minutes.CASES else RUN[case](args)
        tables += table
        violations += wrong
    say("\n" + "\n".join(tables))
    for violation in violations:
        say(f"VIOLATION {violation}")
    return 1 if violations else 0


def _names(*known: str) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are {', '.join(known)}")
        return names

    return split


Shown = tuple[list[str], list[str]]
"""Lines of a table, and violations."""


def kill(args: argparse.Namespace) -> Shown:
    minutes = args.minutes or math.inf
    kinds = args.kinds
    rows = [shown(killed(kind, args.rounds, args.seed, say, minutes=minutes)) for kind in kinds]
    wrong = [f"{row.kind}: {what}" for row in rows for what in row.findings.violations]
    return [f"kill, seed {args.seed}", kill_rounds.HEAD, *(row.row for row in rows)], wrong


def minutes(args: argparse.Namespace, *names: str) -> Shown:
    lines, wrong = [bad_minutes.HEAD], []
    for case in names or bad_minutes.CASES:
        for kind in args.kinds:
            for _ in range(args.rounds):
                row, worse = bad_minutes.compared(case, kind)
                say(row)
                lines.append(row)
                wrong += [worse] if worse else []
    return lines, wrong


def edits(args: argparse.Namespace) -> Shown:
    rows = [
        shown(one_file.merged(kind, mode, args.rounds, say))
        for kind in args.kinds
        for mode in one_file.MODES.get(kind, ())
    ]
    wrong = [f"{row.kind}, {row.mode}: {what}" for row in rows for what in row.violations]
    return [one_file.HEAD, *(row.row for row in rows)], wrong


def crew(args: argparse.Namespace) -> Shown:
    kinds = args.kinds
    seats = tuple(kind for kind in ten_clis.SEATS if kind in kinds)
    found = ten_clis.hour(args.minutes or 60.0, args.seed, seats, args.slots, say)
    return found.lines(), [*found.findings.violations, *found.over_the_limits()]


RUN: dict[str, Callable[[argparse.Namespace], Shown]] = {
    "minutes": minutes,
    "kill": kill,
    "one-file": edits,
    "crew": crew,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
