"""What a program raises to end its task, and what it is told of one that has ended without a result."""

from __future__ import annotations

from muster.model.errors import MusterError
from muster.model.views import AttemptView, TaskView


class TaskStopped(BaseException):
    """The attempt is to end now: cancelled, paused, drained, out of time, or its lease is lost.

    No `except Exception` holds it up.  What was done is in the checkpoint; do not catch it but to clean up.
    """


class GiveUp(Exception):
    """Raise it where another try would end the same way: the task fails at once, whatever retries it has left."""


class WorkerBroken(MusterError):
    """The worker of this program has ended by a fault of its own.  Its tasks wait for another one."""


class TaskEnded(MusterError):
    """It has ended without a result: `task` says how, `attempts` what was tried."""

    exit_code = 5
    http_status = 409

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        task: TaskView | None = None,
        attempts: tuple[AttemptView, ...] = (),
    ) -> None:
        super().__init__(message, hint)
        self.task = task
        self.attempts = attempts


class TaskFailed(TaskEnded):
    """All its tries have failed, or one in a way that no other try would mend."""


class TaskCancelled(TaskEnded):
    """Somebody did not want it any more."""
