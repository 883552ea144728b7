"""`./run chaos [--rounds N] [--seed K] [--backend postgres]`: the crash proof."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from backends import BACKENDS
from figures import as_json, table
from rounds import FAULTS_OF, Report, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run chaos", description="Kills a crew in every way, N times.")
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="faults (default: 40)")
    parser.add_argument("--seed", type=int, metavar="K", help="which faults in which order (default: random)")
    parser.add_argument("--backend", choices=list(BACKENDS), default="sqlite", help="default: sqlite")
    parser.add_argument(
        "--faults", metavar="NAME,...", default="", help="these, in this order, instead of N by the seed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--keep", action="store_true", help="keep the folder also where all is well")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    named = args.faults.split(",") if args.faults else []
    if unknown := set(named) - FAULTS_OF[args.backend].keys():
        parser.error(f"no fault is called {', '.join(unknown)}: {', '.join(FAULTS_OF[args.backend])}")
    rounds = len(named) or args.rounds
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1_000_000)
    root = Path(tempfile.mkdtemp(prefix="muster-chaos-"))
    print(f"seed {seed}, {rounds} rounds, in {root}", flush=True)
    print("Ctrl-C ends it with the round that it is in", flush=True)
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    report = run(
        root,
        rounds,
        seed,
        backend=args.backend,
        faults_named=named,
        say=lambda line: print(line, flush=True),
        enough=ending.is_set,
    )
    rounds = report.rounds
    print(f"\n{table(report.figures)}\n")
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{rounds} rounds in {report.took_s:.0f} s; load {load} on {os.cpu_count()} cores")
    if args.json is not None:
        content = as_json(report.figures, report.findings, seed=seed, rounds=rounds, took_s=report.took_s)
        args.json.write_text(json.dumps(content, indent=1))
    return _end(report, root, args.backend, keep=args.keep)


def _end(report: Report, root: Path, backend: str, *, keep: bool) -> int:
    for finding in report.findings:
        print(
            f"{'ok  ' if finding.holds else 'FAIL'} {finding.promise:<13} {finding.says} ({finding.looked_at})"
        )
        for violation in finding.violations[:20]:
            print(f"       {violation}")
    if not report.broken:
        if not keep:
            shutil.rmtree(root)
        return 0
    operations = [vars(operation) for operation in report.operations]
    (root / "operations.json").write_text(json.dumps(operations, indent=1))
    print(
        f"\nagain: ./run chaos --rounds {report.rounds} --seed {report.seed} --backend {backend}"
        "   (the moments differ each time)"
    )
    print(f"kept:  {root}: .muster/muster.log, .muster/state.db, up.log, ledger.jsonl, operations.json")
    return 1


if __name__ == "__main__":
    sys.exit(main())
