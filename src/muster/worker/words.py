"""How a worker puts into words how an attempt has ended."""

from __future__ import annotations

import time
from pathlib import Path

from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.states import ErrorKind
from muster.ports.agent import Completed, Exit, Outcome
from muster.worker.watchdog import full_disk

RETRY_AFTER_MAX_S = 30 * 86400.0
MESSAGE_CHARS_MAX = 5000


class Words:
    def __init__(self, job: ClaimedJob) -> None:
        self._job = job

    def on(self, outcome: Outcome, ended: Exit, folder: Path, cwd: Path) -> c.Complete | c.Fail:
        """On what its agent has left; `folder` is the attempt's own."""
        if isinstance(outcome, Completed):
            result = outcome.result.decode() if outcome.result is not None else None
            return self.complete(result, spoken=outcome.spoken, exit_code=ended.code)
        retry_after_s = None if outcome.reset_at_s is None else outcome.reset_at_s - time.time()
        full = full_disk(folder, cwd) if outcome.kind is ErrorKind.CRASH else ""
        return self.failure(outcome.kind, outcome.message + full, ended.code, retry_after_s)

    def complete(
        self, result: str | None = None, *, spoken: bool = False, exit_code: int | None = None
    ) -> c.Complete:
        job = self._job
        return c.Complete(
            task_id=job.task_id, epoch=job.epoch, result=result, spoken=spoken, exit_code=exit_code
        )

    def done(self, word: c.Complete) -> c.Declare:
        """Before its work is published: whoever comes after us knows then that no agent is to run again."""
        job = self._job
        return c.Declare(task_id=job.task_id, epoch=job.epoch, text=word.result or "null", by_worker=True)

    def failure(
        self,
        kind: ErrorKind,
        message: str,
        exit_code: int | None = None,
        retry_after_s: float | None = None,
        *,
        done: bool = False,
    ) -> c.Fail:
        return c.Fail(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            kind=kind,
            message=cut(message, MESSAGE_CHARS_MAX),
            exit_code=exit_code,
            done=done,
            retry_after_s=None if retry_after_s is None else min(max(retry_after_s, 0.0), RETRY_AFTER_MAX_S),
        )

    def release(self, reason: str, *, unfit: str | None = None) -> c.Release:
        return c.Release(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            reason=cut(reason, MESSAGE_CHARS_MAX),
            unfit_agent=unfit,
        )


def cut(text: str, limit: int) -> str:
    return text[:limit].replace("\0", "?")
