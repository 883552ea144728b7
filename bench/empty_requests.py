"""What a request costs that does nothing: Muster's owner, beside the same routes behind uvicorn."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

from outside import cpu_s, site
from peers_venv import Peers
from setting import HERE, Setting, Stopwatch
from table import Row, told

CONNECTIONS = 8
Cost = tuple[float, float]
"""(microseconds of the server's CPU for a request, requests per second)."""
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: muster\r\nContent-Length: 0\r\n\r\n"


def rows(setting: Setting) -> Iterator[Row]:
    number = setting.size(30_000, 3_000)
    peers = Peers()
    by_uvicorn, ours = list[Cost](), list[Cost]()
    for _ in range(setting.repetitions):
        with setting.place() as folder, site(folder / "p") as project:
            ours.append(_ask(Path(project.project.socket), project.owner().pid, number))
        python = peers.python("uvicorn", setting)
        if python is not None:
            with setting.place() as folder, site(folder / "p") as project:
                packages = next(Path(python).parents[1].glob("lib/python*/site-packages"))
                project.env["PYTHONPATH"] = f"{HERE / 'peers'}:{packages}"
                pid = project.owner("owner_on_uvicorn").pid
                by_uvicorn.append(_ask(Path(project.project.socket), pid, number))
    yield from _told("Muster", ours, "CPU of the owner's process")
    if by_uvicorn:
        yield from _told("Muster's routes behind uvicorn", by_uvicorn, "likewise")
    else:
        yield Row("empty request, Muster's routes behind uvicorn", not_run=peers.refused["uvicorn"])


def _told(what: str, costs: list[Cost], bound: str) -> Iterator[Row]:
    yield told(f"empty request, {what}", [us for us, _ in costs], "us", bound)
    yield told(f"  with {CONNECTIONS} connections", [rate for _, rate in costs], "/s")


def _ask(path: Path, pid: int, number: int) -> Cost:
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
