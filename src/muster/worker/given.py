"""Secrets on a worker: from the owner to the processes of agents, and blacked out in all that these leave."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from muster.hosts.plain_files import change_plain
from muster.model import commands as c
from muster.model.answers import ClaimedJob, SecretsGiven
from muster.model.blackout import Blackout
from muster.model.errors import AgentUnfit
from muster.ports.crew import Crew

log = logging.getLogger(__name__)


class SecretsOfAgents:
    """What the agents of this worker are to be given, and what they were."""

    def __init__(self, names: Mapping[str, tuple[str, ...]]) -> None:
        """By agent, the names of its secrets."""
        self.names = {agent: own for agent, own in names.items() if own}
        self.blackout = Blackout()
        """Of all that were given since this worker began: an older value may still be printed."""
        self._values: set[str] = set()
        self._lock = threading.Lock()

    def ask(
        self, crew: Crew, job: ClaimedJob, agent: str, patiently: Callable[[Callable[[], bool]], bool]
    ) -> Mapping[str, str]:
        """The variables of this agent's process; none where the attempt is over before they came.

        Raises AgentUnfit where one is missing, and as `Crew`.
        """
        names = self.names.get(agent)
        if not names:
            return {}
        asked = c.AskSecrets(task_id=job.task_id, epoch=job.epoch, proof=job.proof, names=names)
        given: SecretsGiven | None = None

        def ask() -> bool:
            nonlocal given
            given = crew.secrets(asked)
            return True

        if not patiently(ask) or given is None:
            return {}
        for name, why in given.missing.items():
            unfit = AgentUnfit(why)
            unfit.secret = name
            raise unfit
        with self._lock:
            if not self._values.issuperset(given.values.values()):
                self._values.update(given.values.values())
                self.blackout = Blackout(self._values)
        return given.values

    def black_out(self, *folders: Path) -> None:
        """In the files that attempts' processes have left there, which nobody writes any more."""
        if not self.blackout:
            return
        for at, _, names in (found for folder in folders for found in os.walk(folder)):
            for path in (Path(at, name) for name in names):
                try:
                    change_plain(path, self.blackout.spans, overlap=self.blackout.longest)
                except OSError as error:
                    log.warning("%s may hold a secret: %s", path, error)

    def filter(self, record: logging.LogRecord) -> bool:
        """Of a log's handler."""
        if self.blackout:
            record.msg, record.args = self.blackout.of(record.getMessage()), ()
            if record.exc_info:
                record.exc_text = self.blackout.of(logging.Formatter().formatException(record.exc_info))
        return True
