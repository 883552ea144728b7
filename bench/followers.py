"""Many who follow the events of one owner: how soon they hear of a task, and what that costs the owner."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outside import cpu_s, peak_mb, site
from setting import Setting
from table import Row, most, percentile, told

REQUEST = b"GET /api/v1/events/stream?new=true HTTP/1.1\r\nHost: muster\r\n\r\n"
PAUSE_S = 0.1
OWNER_MB_MAX = 60


@dataclass
class Heard:
    """What one round has shown."""

    clients: int
    waits_ms: list[float] = field(default_factory=list)
    """From before a task was sent until a client had read of it."""
    us_each: float = 0.0
    """CPU of the owner for each event that a client got."""
    peak_mb: float = 0.0


def rows(setting: Setting) -> Iterator[Row]:
    clients, tasks = setting.size((1000, 50), (50, 5))
    few, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(few, min(hard, 2 * clients)), hard))
    rounds: list[Heard] = []
    for _ in range(setting.repetitions):
        with setting.place() as folder, site(folder / "p") as project:
            pid = project.owner().pid
            heard = Heard(clients)
            asyncio.run(_follow(Path(project.project.socket), pid, heard, tasks))
            rounds.append(heard)
    what = f"{clients:,} who follow the events of one owner"
    yield told(f"{what}: p50", [percentile(one.waits_ms, 0.5) for one in rounds], "ms", "pause of the reader")
    yield told("  p99", [percentile(one.waits_ms, 0.99) for one in rounds], "ms")
    yield told("  CPU of the owner for each event and client", [one.us_each for one in rounds], "us")
    yield most("  memory of the owner", [one.peak_mb for one in rounds], "MB", OWNER_MB_MAX, "peak RSS")


async def _follow(path: Path, pid: int, heard: Heard, tasks: int) -> None:
    begun_s: dict[str, float] = {}
    ready = asyncio.Semaphore(0)

    async def client() -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(
            str(path)
        )  # waits its turn, where asyncio would take a full queue for a connection
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        writer.write(REQUEST)
        await reader.readuntil(b"retry: 1000\n\n")
        ready.release()
        for _ in range(tasks):
            while not (line := await reader.readline()).startswith(b"data: "):
                pass
            heard.waits_ms.append((time.perf_counter() - begun_s[json.loads(line[6:])["key"]]) * 1000)
        writer.close()

    clients = [asyncio.create_task(client()) for _ in range(heard.clients)]
    for _ in clients:
        await ready.acquire()
    before_s = cpu_s(pid)
    for number in range(tasks):
        begun_s[f"k{number}"] = time.perf_counter()
        await _add(path, f"k{number}")
        await asyncio.sleep(PAUSE_S)
    await asyncio.gather(*clients)
    heard.us_each = (cpu_s(pid) - before_s) / (tasks * heard.clients) * 1e6
    heard.peak_mb = peak_mb(pid)


async def _add(path: Path, key: str) -> None:
    body = json.dumps({"title": "t", "key": key, "actor": "bench"}).encode()
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(
        b"POST /api/v1/agent-tasks HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    writer.write(body)
    await reader.read()
    writer.close()
