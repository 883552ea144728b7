"""`./run sim`: many seeds, one seed again, or the planted bugs."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import time
from collections import Counter

from simulator.planted_bugs import PLANTED_BUGS, Plant
from simulator.scenario import harsh, scenario
from simulator.simulation import Report, simulate
from simulator.stores import STORES

PLANT_SEEDS = 100
"""A planted bug has to be found within so many seeds."""
STORY_LINES = 40


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    if not args.trace:
        logging.disable(logging.CRITICAL)  # what the product says of simulated faults is no news
    if args.plants:
        return _all_plants(args.seeds or PLANT_SEEDS)
    planted = PLANTED_BUGS[args.plant].planted() if args.plant else contextlib.nullcontext()
    with planted:
        if args.seed is not None:
            return _one(args.seed, trace=args.trace, plant=args.plant, store=args.store)
        return _many(args.first, args.seeds or 100, args.plant, args.store)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run sim",
        description="Runs crews on a virtual clock, each from a seed, and checks the promises.",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="how many seeds (default: 100)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="the first of them (default: 0)")
    parser.add_argument("--seed", type=int, metavar="K", help="this one only")
    parser.add_argument("--trace", action="store_true", help="print all that happened in it")
    parser.add_argument(
        "--plant",
        choices=sorted(PLANTED_BUGS),
        metavar="NAME",
        help=f"with this bug in the product, under all faults: {', '.join(sorted(PLANTED_BUGS))}",
    )
    parser.add_argument("--store", choices=list(STORES), default="sqlite", help="default: sqlite")
    parser.add_argument("--plants", action="store_true", help="with each bug in turn: all have to be found")
    args = parser.parse_args(argv)
    if args.seeds is not None and args.seeds < 1:
        parser.error("--seeds must be at least 1")
    if args.trace and args.seed is None:
        parser.error("--trace needs --seed K")
    return args


def _one(seed: int, *, trace: bool, plant: str | None, store: str) -> int:
    chosen = harsh(seed) if plant else scenario(seed)
    report = simulate(seed, keep_trace=trace, chosen=chosen, store=store)
    print(*report.trace, sep="\n", end="\n" if report.trace else "")
    if report.broken is not None:
        _tell(report, plant, store)
        return 1
    print(
        f"seed {seed}: {report.tasks} tasks, {report.commits} commits, {report.steps} steps in "
        f"{report.virtual_s:.0f} virtual seconds; every promise held"
    )
    print(f"trace {report.digest}")
    return 0


def _tell(report: Report, plant: str | None, store: str) -> None:
    planted = f" --plant {plant}" if plant else ""
    planted += f" --store {store}" if store != "sqlite" else ""
    print(f"seed {report.seed}: {report.broken}")
    print(*report.story[:1], *report.story[1:][-STORY_LINES:], sep="\n")
    print(f"  after {report.steps} steps, {report.commits} commits, {report.virtual_s:.3f} virtual seconds")
    print(f"  again: ./run sim --seed {report.seed}{planted} --trace", flush=True)


def _many(first: int, count: int, plant: str | None, store: str) -> int:
    began_s = time.monotonic()
    steps = commits = tasks = failed = 0
    virtual_s = 0.0
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        report = simulate(seed, chosen=harsh(seed) if plant else scenario(seed), store=store)
        if report.broken is not None:
            failed += 1
            _tell(report, plant, store)
        steps, commits = steps + report.steps, commits + report.commits
        tasks, virtual_s = tasks + report.tasks, virtual_s + report.virtual_s
        seen.update(report.seen)
    took_s = time.monotonic() - began_s
    print(
        f"{count} seeds: {failed} broke a promise; {tasks} tasks, {steps} steps, {commits} commits, "
        f"{virtual_s / 3600:.1f} virtual hours in {took_s:.1f} s ({count / took_s:.1f} seeds/s)"
    )
    for name, times in sorted(seen.items(), key=lambda item: -item[1]):
        print(f"  {times:8} {name}")
    return 1 if failed else 0


def found(plant: Plant, seeds: int = PLANT_SEEDS) -> Report | None:
    """The first of so many seeds that breaks a promise with this bug in the product."""
    with plant.planted():
        reports = (simulate(plant.first + n, chosen=harsh(plant.first + n)) for n in range(seeds))
        return next((report for report in reports if report.broken is not None), None)


def _all_plants(seeds: int) -> int:
    missed = 0
    for name, plant in PLANTED_BUGS.items():
        report = found(plant, seeds)
        if report is not None and report.broken is not None:
            print(
                f"found   {name:34} seed {report.seed:3}, commit {report.commits:4}: {report.broken.promise}"
            )
        else:
            missed += 1
            print(f"MISSED  {name:34} in {seeds} seeds: {plant.says}")
    print(f"{len(PLANTED_BUGS) - missed} of {len(PLANTED_BUGS)} planted bugs found")
    return 1 if missed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` has seen enough
    sys.exit(main())
