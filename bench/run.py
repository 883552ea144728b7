"""The benchmark: `./run bench [--backend postgres] [--quick] [--only NAME,...] [--json FILE]`.

Every row of the design's targets that concerns the store is measured and printed with its target, side by side
with the bare loop and the peers in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import app_tasks
import crew_faults
import dag
import drain
import empty_requests
import enqueue
import followers
import growth
import in_browser
import latency
import many_workers
import pg_drain
import pg_enqueue
import pg_growth
import pg_latency
import pg_servers
import resources
from setting import Setting, contention, progress
from table import Row, head, line, load, noise

import muster
from muster.app.owner import SWITCH_S

Section = Callable[[Setting], Iterable[Row]]

SECTIONS: dict[str, Section] = {
    "enqueue": enqueue.rows,
    "drain": drain.rows,
    "app": app_tasks.rows,
    "requests": empty_requests.rows,
    "followers": followers.rows,
    "latency": latency.rows,
    "growth": growth.rows,
    "resources": resources.rows,
    "recovery": crew_faults.recovery,
    "lost": crew_faults.lost,
    "dag": dag.rows,
    "workers": many_workers.rows,
    "pages": in_browser.rows,
}

ON_POSTGRES: dict[str, Section] = {
    "drain": pg_drain.rows,
    "enqueue": pg_enqueue.rows,
    "latency": pg_latency.rows,
    "growth": pg_growth.rows,
    "open": pg_growth.held_open,
    "heartbeats": pg_servers.heartbeats,
    "servers": pg_servers.two,
}
BACKENDS = {"sqlite": SECTIONS, "postgres": ON_POSTGRES}


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    sections = BACKENDS[args.backend]
    names = args.only.split(",") if args.only else list(sections)
    unknown = [name for name in names if name not in sections]
    if unknown:
        print(f"error: no section {', '.join(unknown)}; there are {', '.join(sections)}", file=sys.stderr)
        return 2
    # So that a run that is ended still ends its processes and removes its folder.
    sys.setswitchinterval(SWITCH_S)  # many callers' threads stand for as many processes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    load_before, started_s = load(), time.monotonic()
    print(
        f"Muster {muster.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores", flush=True
    )
    print(f"\n{head()}", flush=True)
    by_section: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="mb", dir=args.dir) as folder:
        setting = Setting(quick=args.quick, folder=Path(folder), peers=not args.quick)
        contended: dict[str, float] = {}
        seconds: dict[str, float] = {}
        with setting.ending:
            for name in names:
                before, section_s = contention(), time.monotonic()
                by_section[name] = _measure(name, sections[name], setting)
                seconds[name] = round(time.monotonic() - section_s, 1)
                contended[name] = max(before, contention())
    rows = [row for found in by_section.values() for row in found]
    warnings = noise(load_before, contended, rows)
    for warning in warnings:
        print(f"noise: {warning}")
    misses = sum(row.ok is False for row in rows)
    took_s = time.monotonic() - started_s
    print(f"\n{len(rows)} rows, {misses} missed their target, {took_s:.0f} s")
    if args.json:
        args.json.write_text(_json(args, by_section, warnings, seconds), "utf-8")
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run bench", description="Figures beside their targets, and beside peers."
    )
    parser.add_argument("--backend", choices=BACKENDS, default="sqlite", help="the store (default: sqlite)")
    parser.add_argument("--quick", action="store_true", help="small counts, one repetition, no peers")
    parser.add_argument("--only", metavar="NAME,...", help=f"sections: {_listed()} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there")
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="disk to measure on (default: temporary folder)"
    )
    return parser.parse_args(argv)


def _listed() -> str:
    return "; ".join(f"{backend}: {', '.join(sections)}" for backend, sections in BACKENDS.items())


def _measure(name: str, section: Section, setting: Setting) -> list[Row]:
    """A section that breaks says so and leaves the others alone."""
    found: list[Row] = []
    progress(f"{name} ...")
    try:
        for row in section(setting):
            found.append(row)
            progress("")
            print(line(row), flush=True)
            progress(f"{name} ...")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        found.append(Row(f"{name}: the rest", not_run=reason, ok=False))
        progress("")
        print(line(found[-1]), flush=True)
    progress("")
    return found


def _json(
    args: argparse.Namespace, by_section: dict[str, list[Row]], warnings: list[str], seconds: dict[str, float]
) -> str:
    content: dict[str, Any] = {
        "muster": muster.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "quick": args.quick,
        "backend": args.backend,
        "seconds": seconds,
        "noise": warnings,
        "sections": {name: [row.as_json() for row in rows] for name, rows in by_section.items()},
    }
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
