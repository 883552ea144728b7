"""`muster.App` beside queues that are libraries as well: tasks one by one, and many at once."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from shutil import which

from peers_venv import RUN_S, Peers
from setting import HERE, Setting, environment
from table import Row, least, told

ONE_BY_ONE_FACTOR, BATCH_FACTOR, BATCH = 1.0, 2.5, 100
PEERS = ("persist_queue", "huey")

_SLOW_SYNC = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int later(int done)
{
    const struct timespec rest = {0, 1000000};
    nanosleep(&rest, 0);
    return done;
}

int fsync(int fd) { return later(syscall(SYS_fsync, fd)); }
int fdatasync(int fd) { return later(syscall(SYS_fdatasync, fd)); }
"""
"""Preloaded into a program, whose other calls cost what they always do; `strace` makes all of them dearer."""


def rows(setting: Setting) -> Iterator[Row]:
    synced = [_synced_write_ms(setting) for _ in range(setting.repetitions)]
    yield told(
        "a synced write of 4 KiB", synced, "ms", "a task of muster.App waits for 2, persist-queue's for 3"
    )
    yield from _beside_peers(setting, "")
    if setting.peers and sys.platform == "linux" and (compiler := which("cc")):
        yield from _beside_peers(replace(setting, prefix=_slow_disk(setting, compiler)), ", syncs of 1 ms")


def _beside_peers(setting: Setting, where: str) -> Iterator[Row]:
    peers = Peers()
    single: list[dict[str, float]] = []
    many: list[dict[str, float]] = []
    for _ in range(setting.repetitions):
        single.append(_run(setting, setting.size(1000, 50), 1))
        many.append(_run(setting, setting.size(5000, 300), BATCH))
        for peer in PEERS:
            peers.measure(peer, setting)
    for what, runs in (("one by one", single), (f"in batches of {BATCH}", many)):
        for part in ("enqueue", "drain", "life"):
            yield told(f"muster.App, {_WORDS[part]}, {what}{where}", [run[part] for run in runs], "/s")
    yield _against(peers, "persist_queue", "life", single, f"one by one{where}", ONE_BY_ONE_FACTOR)
    yield _against(peers, "huey", "drain", many, f"in batches of {BATCH}{where}", BATCH_FACTOR)


def _slow_disk(setting: Setting, compiler: str) -> tuple[str, ...]:
    """Disks that lose nothing at a power cut take a millisecond for a sync, or longer."""
    library = setting.folder / "slow_sync.so"
    argv = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), "-x", "c", "-"]
    subprocess.run(argv, input=_SLOW_SYNC, text=True, check=True)
    return "env", f"LD_PRELOAD={library}"


def _synced_write_ms(setting: Setting) -> float:
    """The median of many, in a file that does not grow."""
    sync = getattr(os, "fdatasync", os.fsync)  # as SQLite: what there is
    took_s = []
    with setting.place() as folder, (folder / "synced").open("wb", buffering=0) as file:
        for _ in range(setting.size(500, 20)):
            file.seek(0)
            file.write(bytes(4096))
            began_s = time.perf_counter()
            sync(file.fileno())
            took_s.append(time.perf_counter() - began_s)
    return 1000 * statistics.median(took_s)


_WORDS = {"enqueue": "added", "drain": "run", "life": "added and run"}


def _run(setting: Setting, number: int, batch: int) -> dict[str, float]:
    with setting.place() as folder:
        argv = [
            *setting.prefix,
            sys.executable,
            str(HERE / "run_app.py"),
            str(folder),
            str(number),
            str(batch),
        ]
        done = subprocess.run(
            argv, capture_output=True, check=True, timeout=RUN_S, cwd=folder, env=environment(folder)
        )
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def _against(
    peers: Peers, peer: str, part: str, ours: list[dict[str, float]], how: str, factor: float
) -> Row:
    name = peer.replace("_", "-")
    what = f"muster.App, {_WORDS[part]}, {how}, to {name}"
    if peer in peers.refused:
        return Row(what, target=f">= {factor:g} x", not_run=peers.refused[peer])
    theirs = peers.rates[peer, part]
    ratios = [run[part] / rate for run, rate in zip(ours, theirs, strict=True)]
    bound = f"each pair in turns; {name} {statistics.median(theirs):,.0f}/s, without audit and fences"
    return least(what, ratios, "x", factor, bound)
