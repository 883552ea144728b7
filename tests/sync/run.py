"""A plan and its file under everybody's hands at once, and what comes of it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from deciding_rounds import run_decisions
from moving_rounds import run_moves
from sync_rounds import ACTIONS, Result, run_rounds
from tick_cost import measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run sync", description=__doc__)
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        metavar="N",
        help="of edits, and a fifth as many of moves and of answers that are killed (default: 20)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="K", help="of the first round (default: 1)")
    parser.add_argument(
        "--tasks", type=int, metavar="N", help="instead: what a tick costs in a plan of so many tasks"
    )
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    with tempfile.TemporaryDirectory() as folder:
        root = folder_of(folder, "sync")
        if args.tasks:
            cost = measure(root, args.tasks)
            print(f"{cost.tasks} tasks: added in {cost.add_s:.2f} s")
            print(f"CPU of the owner for a tick of ours {cost.crew_ms:.0f} ms, ", end="")
            print(f"for a person's {cost.person_ms:.0f} ms")
            return 0
        result = run_rounds(root, args.rounds, args.seed, print)
        moves = run_moves(folder_of(folder, "moves"), max(1, args.rounds // 5), args.seed)
    print(report(result))
    for line in moves.wrong:
        print(f"  {line}")
    print(
        f"{moves.rounds} rounds of moves between two files: {moves.moved} moves of {moves.works} boxes, asked "
        f"{moves.asked} times, done twice {len(moves.twice)}, lost {len(moves.lost)}"
        + (f" (not counted: {moves.copies} stood in both)" if moves.copies else "")
    )
    decided = run_decisions(folder_of(folder, "decisions"), max(1, args.rounds // 5), args.seed)
    for line in decided.wrong:
        print(f"  {line}")
    print(
        f"{decided.rounds} answers to what waits, {decided.killed} of them killed midway: "
        f"otherwise than said {len(decided.wrong)}"
    )
    return 1 if result.wrong or moves.wrong or decided.wrong else 0


def folder_of(folder: str, name: str) -> Path:
    made = Path(folder, name, "project")
    made.mkdir(parents=True)
    return made


def report(result: Result) -> str:
    known = result.in_step + result.asked
    accuracy = 100 * known / result.boxes if result.boxes else 100.0
    did = ", ".join(f"{name} {number}" for name, number in sorted(result.did.items()))
    return "\n".join(
        [
            f"{result.rounds} rounds of {ACTIONS} acts: {did}",
            f"boxes compared {result.boxes}, as their tasks {result.in_step}, asked about {result.asked}",
            f"sync accuracy {accuracy:.3f} %",
            f"out of step {len(result.out_of_step)}, ticks lost {len(result.ticks_lost)}, "
            f"rounds with lost bytes {len(result.bytes_lost)}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
