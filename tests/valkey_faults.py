"""A Valkey of a test's own, and what may become of it: killed, flushed, stopped, replaced by an old copy."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

from valkey import Valkey

from patience import until
from real_servers import Running, free_port, start_valkey


class HarmedValkey:
    """Always at the same address; it is not there before it is started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._copy_port = free_port()
        self._started: list[Running] = []
        self._leader: Running | None = None
        self._copy: Running | None = None
        self.url = f"valkey://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        self._leader = self._run(self._port)

    def _run(self, port: int, *more: str) -> Running:
        made = start_valkey(self._folder / str(len(self._started)), port, *more)
        self._started.append(made)
        return made

    def kill(self) -> None:
        assert self._leader is not None
        self._leader.stop(signal.SIGKILL)
        self._leader = None

    def stop(self) -> None:
        assert self._leader is not None
        os.kill(self._leader.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._leader is not None
        os.kill(self._leader.pid, signal.SIGCONT)

    def flush(self) -> None:
        with closing(Valkey.from_url(self.url)) as client:
            client.flushall()

    def take_a_copy(self) -> None:
        """A replica that has all there is, and hears of nothing more."""
        self._copy = self._run(self._copy_port, "--replicaof", "127.0.0.1", str(self._port))
        with closing(Valkey(port=self._copy_port)) as client:
            until(lambda: client.info("replication")["master_link_status"] == "up", "the copy is whole")
            client.replicaof("NO", "ONE")

    def promote_the_copy(self) -> None:
        """It takes the place of the one that it was made of, which is killed."""
        self.kill()
        with closing(Valkey(port=self._copy_port)) as client:
            client.config_set("port", self._port)
        self._leader = self._copy

    def end(self) -> None:
        for one in self._started:
            one.stop(signal.SIGKILL)
