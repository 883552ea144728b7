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
from muster.model.errors import AgentUnfit, BadInput
from muster.model.input_secrets import cannot_open, how_to_open
from muster.ports.crew import Crew

log = logging.getLogger(__name__)


class SecretsOfAgents:
    """What the agents of this worker are to be given, and what they were."""

    def __init__(self, names: Mapping[str, tuple[str, ...]]) -> None:
        """By agent, the names of its secrets."""
        self.names = {agent: own for agent, own in names.items() if own}
        self.blackout = Blackout()
        """Of all that were given since this worker began, since an older value may still be printed, and of what
        stands in the input contexts of its tasks now."""
        self._values: set[str] = set()
        self._of_attempts: dict[tuple[int, int], set[str]] = {}
        """Those of input contexts, by the attempt that has them now."""
        self._lock = threading.Lock()

    def ask(
        self,
        crew: Crew,
        job: ClaimedJob,
        agent: str,
        patiently: Callable[[Callable[[], bool]], bool],
        *,
        inputs: bool = False,
    ) -> SecretsGiven:
        """The variables of this agent's process, and with `inputs` the secrets of its task's input context; none
        where the attempt is over before they came.

        Raises AgentUnfit where one is missing, BadInput where they cannot be opened, and as `Crew`.
        """
        names = self.names.get(agent, ())
        inputs = inputs and job.has_secrets
        nothing = SecretsGiven(values={}, missing={})
        if not names and not inputs:
            return nothing
        asked = c.AskSecrets(
            task_id=job.task_id, epoch=job.epoch, proof=job.proof, names=names, inputs=inputs
        )
        given: SecretsGiven | None = None

        def ask() -> bool:
            nonlocal given
            given = crew.secrets(asked)
            return True

        if not patiently(ask) or given is None:
            return nothing
        for name, why in given.missing.items():
            unfit = AgentUnfit(why)
            unfit.secret = name
            raise unfit
        if given.inputs_lost:
            raise BadInput(cannot_open(job.task_id), how_to_open(job.task_id))
        with self._lock:
            new = set(given.values.values()) - self._values
            self._values |= new
            if given.inputs:
                self._of_attempts[job.task_id, job.epoch] = set(given.inputs.values())
            if new or given.inputs:
                self._make_blackout()
        return given

    def let_go(self, job: ClaimedJob) -> None:
        """Nobody prints the secrets of its input context any more."""
        with self._lock:
            if self._of_attempts.pop((job.task_id, job.epoch), None):
                self._make_blackout()

    def _make_blackout(self) -> None:
        self.blackout = Blackout(self._values.union(*self._of_attempts.values()))

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
