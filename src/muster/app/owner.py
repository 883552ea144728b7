"""The owner: what it holds, and the API before it.  `python -m muster.app.owner ROOT`"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from muster.app.core import Owner
from muster.app.parts import run_logged, traced
from muster.app.settings import load_config
from muster.client.http import address
from muster.config.project import Project
from muster.config.settings import Config, ServeSettings
from muster.hosts.file_lock import holder
from muster.hosts.forked_child import keep_from_children
from muster.hosts.logs import log_as
from muster.hosts.trace import tracer
from muster.ports.store import Reads
from muster.web.app import build
from muster.web.backend import Backend
from muster.web.routes import Application
from muster.web.server import serve

log = logging.getLogger(__name__)

FILES_LOOK_S = 0.4
ORPHAN_LOOK_S = 2.0
QUEUE = 1024
"""Callers that may wait to be let in: whoever comes then is told to try again, by the system."""
ORPHAN_IDLE_S = 60.0
"""An owner that nobody supervises ends once it has had nothing to do for this long."""


async def _own(project: Project, config: Config) -> None:
    async with Owner(project, config) as owner:
        halted = owner.halted()
        if halted is None:
            await owner.take_over()
        else:
            log.critical("%s; reads go on", halted.message)
        services = await owner.services() if halted is None else []
        web = owner.backend()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, web.shut_down)
        path, app = Path(project.socket), build(web)
        app.prepare()
        settle_garbage()
        with bound_to(path) as listening:
            await until_closed(
                web,
                serve_all(app, listening, web, config.serve),
                *(service.run() for service in services),
                _mind_supervisor(project, owner, web),
                *traced_moves(owner.store.reads),
                mind_files(path, owner, lambda again: serve(app, again, web.closing)),
            )
        # The workers are gone, or go on without us: whoever waits for our end expects the boxes of what is done.
        await owner.tick_boxes()


def traced_moves(reads: Reads) -> Iterator[Coroutine[Any, Any, None]]:
    if (tracing := tracer()) is not None:
        from muster.outbound.otel import Moves

        yield Moves(reads, tracing).run()


async def serve_all(
    app: Application, listening: socket.socket, web: Backend, settings: ServeSettings
) -> None:
    local = serve(app, listening, web.closing)
    if not settings.listen:
        await local
        return
    from muster.app.network import serve_network  # nobody pays for it who does not listen

    await asyncio.gather(local, serve_network(app, web, settings))


async def until_closed(
    web: Backend, serving: Coroutine[Any, Any, None], *loops: Coroutine[Any, Any, None]
) -> None:
    """Runs the server and the loops; a loop that fails ends the owner, and its supervisor starts another."""
    main = asyncio.create_task(serving)
    tasks = [asyncio.create_task(loop) for loop in loops]
    done, _ = await asyncio.wait([main, *tasks], return_when=asyncio.FIRST_COMPLETED)
    web.shut_down()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await main
    for task in done - {main}:
        task.result()


async def _mind_supervisor(project: Project, owner: Owner, web: Backend) -> None:
    """An owner that was left alone finishes what there is to do, then tells the workers to end and ends."""
    idle_since_s = asyncio.get_running_loop().time()
    while True:
        await asyncio.sleep(ORPHAN_LOOK_S)
        now_s = asyncio.get_running_loop().time()
        reads = owner.store.reads
        at_work = owner.halted() is None
        busy = at_work and (await reads.any_ready() or await reads.open_attempts((0, 0), 1))
        if busy or holder(project.supervisor_lock) is not None:
            idle_since_s = now_s
        elif now_s - idle_since_s > ORPHAN_IDLE_S:
            log.info("nobody supervises this owner and there is nothing to do: ending")
            if owner.halted() is None:
                await owner.stop_crews()
            await asyncio.sleep(ORPHAN_LOOK_S)
            web.shut_down()
            return


async def mind_files(
    path: Path, owner: Owner, serve_too: Callable[[socket.socket], Coroutine[Any, Any, None]]
) -> None:
    """Notices a store whose files were damaged or taken away, and puts the socket's file back."""
    serving: list[asyncio.Task[None]] = []
    with contextlib.ExitStack() as bound:
        try:
            while True:
                await asyncio.sleep(FILES_LOOK_S)
                await owner.store.look()
                with contextlib.suppress(OSError):  # its folder may be gone as well
                    if _is_missing(path):
                        listening = bound.enter_context(bound_to(path))
                        serving.append(asyncio.create_task(serve_too(listening)))
                        log.warning("%s was removed: it is there again", path)
        finally:
            await asyncio.gather(*serving)  # they end as the owner does


def _is_missing(path: Path) -> bool:
    return not path.exists()


@contextlib.contextmanager
def bound_to(path: Path) -> Iterator[socket.socket]:
    # We hold the owner's lock, so a socket that is there is a dead owner's.
    path.unlink(missing_ok=True)
    bound_by = os.getpid()
    listening = keep_from_children(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), socket.socket.close)
    try:
        with address(path) as reachable:
            listening.bind(reachable)
        path.chmod(0o600)
        listening.listen(QUEUE)
        yield listening
    finally:
        listening.close()
        if os.getpid() == bound_by:  # else this is a forked child
            path.unlink(missing_ok=True)


SWITCH_S = 0.0005
"""The committing thread and the loop take turns this often: with 8 callers a fifth more commands a second than
with Python's 5 ms (measured with `./run bench --only drain`)."""


GARBAGE = (10_000, 20, 20)
"""Objects that are made before the young ones are looked through, and so on: Python's 700 looks through them with
every few requests, and finds nothing, for what a request makes refers to itself nowhere."""


def settle_garbage() -> None:
    """What stands once all routes are loaded stays for ever: it is not looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)


FILES = 8192
"""Open at one time: as many may follow what happens, and most systems allow a program 1,024 unless it asks."""


def allow_files() -> None:
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    if least != resource.RLIM_INFINITY and least < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def run_owner(root: Path) -> int:
    sys.setswitchinterval(SWITCH_S)
    allow_files()
    config = load_config(root)
    log_as(config.log.format)
    with traced("owner", config):
        asyncio.run(_own(Project(root), config))
    return 0


def main(root: Path) -> int:
    return run_logged("owner", root, lambda: run_owner(root))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
