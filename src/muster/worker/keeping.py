"""What an attempt has left is put away: at its end, and where its disk is full once there is room."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from muster.hosts.full_disk import full_disk
from muster.model import commands as c
from muster.model.states import JUDGED
from muster.worker.commits import Work
from muster.worker.git import DiskFull
from muster.worker.orders import Orders
from muster.worker.room import ROOM_LOOK_S
from muster.worker.words import Words
from muster.worker.workdir import Workdir

log = logging.getLogger(__name__)


class Keeping(Struct, frozen=True):
    workdir: Workdir
    words: Words
    longest_s: float
    """How long work that is done waits for room."""
    tell: Callable[[str], None]
    """What it does now."""
    orders: Orders

    def put_away(self, word: c.Finish) -> tuple[Work | None, c.Finish]:
        """What the attempt has left, and what is to be said of its end.

        Work that is done waits for room: nothing is called done that nobody could publish.  Raises DiskFull where
        it waits in vain, and with it what the server says to work that it is sent.
        """
        if not isinstance(word, c.Complete):
            work, full = self.keep_if_room(judged=isinstance(word, c.Fail) and word.kind in JUDGED)
            return work, word if full is None else self.words.left(word, full, self.workdir.cwd)
        until_s, told = time.monotonic() + self.longest_s, False
        while True:
            try:
                return self.workdir.keep(whole=True), word
            except DiskFull as error:
                if not told:
                    log.warning("%s", error)
                    self.tell(f"is done, and waits for room: {error.message}")
                told = True
                if not self._wait_for_room(error.folder, until_s):
                    self.workdir.keep_later()
                    raise

    def keep_if_room(self, *, judged: bool = False) -> tuple[Work | None, DiskFull | None]:
        try:
            return self.workdir.keep(judged=judged), None
        except DiskFull as error:
            log.warning("the work in %s is in no commit yet: %s", self.workdir.cwd, error)
            self.workdir.keep_later()
            return None, error

    def _wait_for_room(self, folder: Path, until_s: float) -> bool:
        """False where there is none in time, or something else was ordered meanwhile."""
        while self.orders.given is None and time.monotonic() < until_s:
            time.sleep(ROOM_LOOK_S)
            if not full_disk(folder):
                return True
        return False
