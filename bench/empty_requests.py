"""What a request costs that does nothing: Muster's owner beside servers that know only one answer."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outside import START_S, cpu_s, site, until
from peers_venv import Peers
from setting import HERE, Setting, Stopwatch
from table import Row, told

CONNECTIONS = 8
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: muster\r\nContent-Length: 0\r\n\r\n"


def rows(setting: Setting) -> Iterator[Row]:
    number = setting.size(30_000, 3_000)
    peers = Peers()
    bare, by_uvicorn, ours = list[float](), list[float](), list[float]()
    rates: list[float] = []
    for _ in range(setting.repetitions):
        with setting.place() as folder, _bare(folder / "s", sys.executable, "httptools") as pid:
            bare.append(_ask(folder / "s", pid, number)[0])
        with setting.place() as folder, site(folder / "p") as project:
            us, rate = _ask(Path(project.project.socket), project.owner().pid, number)
            ours.append(us)
            rates.append(rate)
        python = peers.python("uvicorn", setting)
        if python is not None:
            with setting.place() as folder, _bare(folder / "s", python, "uvicorn") as pid:
                by_uvicorn.append(_ask(folder / "s", pid, number)[0])
    yield told("empty request, a bare httptools protocol", bare, "us", "CPU of the server's process")
    if by_uvicorn:
        yield told(
            "empty request, a bare uvicorn application", by_uvicorn, "us", "likewise, without any routes"
        )
    else:
        yield Row("empty request, a bare uvicorn application", not_run=peers.refused["uvicorn"])
    bound = f"likewise; with routes, refusals and decoding; {max(rates):,.0f} requests a second"
    yield told(f"empty request, Muster, {CONNECTIONS} connections", ours, "us", bound)


@contextmanager
def _bare(path: Path, python: str, kind: str) -> Iterator[int]:
    script = HERE / "peers" / "serve_nothing.py"
    with subprocess.Popen([python, str(script), kind, str(path)], stdin=subprocess.DEVNULL) as process:
        try:
            until(path.exists, START_S, f"the {kind} server listens")
            yield process.pid
        finally:
            process.kill()


def _ask(path: Path, pid: int, number: int) -> tuple[float, float]:
    """(microseconds of the server's CPU for a request, requests per second)."""
    with selectors.DefaultSelector() as selector:
        callers = [socket.socket(socket.AF_UNIX) for _ in range(CONNECTIONS)]
        for caller in callers:
            caller.connect(str(path))
            selector.register(caller, selectors.EVENT_READ)
        try:
            _rounds(selector, callers, number)
            before_s, watch = cpu_s(pid), Stopwatch()
            _rounds(selector, callers, number)
            wall_s = watch.s
            return (cpu_s(pid) - before_s) / number * 1e6, number / wall_s
        finally:
            for caller in callers:
                caller.close()


def _rounds(selector: selectors.BaseSelector, callers: list[socket.socket], number: int) -> None:
    """Each caller asks again as soon as it has its answer."""
    for caller in callers:
        caller.sendall(REQUEST)
    asked, answered = len(callers), 0
    pending: dict[object, bytes] = {}
    while answered < asked:
        for key, _ in selector.select():
            caller = key.fileobj
            assert isinstance(caller, socket.socket)
            data = pending.pop(caller, b"") + caller.recv(4096)
            if not data.endswith(b"}"):
                pending[caller] = data
                continue
            answered += 1
            if asked < number:
                caller.sendall(REQUEST)
                asked += 1
