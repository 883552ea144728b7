"""Sends on what an attempt's process prints, chunk by chunk, until the owner has acknowledged it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from muster.model import commands as c
from muster.model.answers import ClaimedJob, Moved
from muster.model.blackout import Blackout
from muster.model.errors import MusterError
from muster.ports.agent import AttemptFolder
from muster.worker.holder import AWAY
from muster.worker.tail import Tail

log = logging.getLogger(__name__)


class Shipping:
    def __init__(
        self, job: ClaimedJob, folder: AttemptFolder, report: Callable[[c.AppendLog], Moved]
    ) -> None:
        self._job = job
        self._report = report
        self.stdout = Tail("stdout", folder.stdout)
        self._tails = (self.stdout, Tail("stderr", folder.stderr))

    def black_out(self, blackout: Blackout) -> None:
        for tail in self._tails:
            tail.blackout = blackout

    def skip_to_the_end(self) -> None:
        """Nothing more is written."""
        for tail in self._tails:
            tail.skip_to_the_end()

    def ship(self) -> bool:
        """Sends one chunk of each stream; True when there was something.  Raises Unavailable."""
        sent = False
        for tail in self._tails:
            data = tail.read()
            if not data:
                continue
            chunk = c.AppendLog(
                task_id=self._job.task_id,
                epoch=self._job.epoch,
                stream=tail.stream,
                offset=tail.place,
                data=data,
            )
            try:
                self._report(chunk)
            except AWAY:
                raise
            except MusterError as error:
                log.warning("output of %s#%s was refused: %s", self._job.task_id, self._job.epoch, error)
                return False
            tail.acknowledge(len(data))
            sent = True
        return sent
