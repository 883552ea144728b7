"""One attempt at a task: what it has done so far, and whether it is to stop."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec

from muster.model import commands as c
from muster.model.answers import ClaimedJob, Moved
from muster.model.commands.base import CHECKPOINT_BYTES_MAX
from muster.model.errors import BadInput, Conflict
from muster.sdk.errors import TaskStopped
from muster.sdk.values import checked, convert, encode
from muster.worker.orders import Order, Orders

log = logging.getLogger(__name__)

NAG_S = 5.0
"""A function that has not stopped so long after it was to stop is interrupted where it is."""

Report = Callable[[c.AttemptCommand], Moved]
CURRENT: ContextVar[Attempting | None] = ContextVar("muster_attempt", default=None)
"""What runs in this thread or asyncio task: tasks that it adds are told to be its children."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint holds."""

    steps: dict[str, msgspec.Raw] = {}
    state: tuple[msgspec.Raw, ...] = ()
    """The function's own, or nothing."""


class Attempting:
    """Belongs to the thread that runs the function; orders come from others."""

    def __init__(self, job: ClaimedJob, orders: Orders, report: Report) -> None:
        """Raises BadInput where the task's checkpoint is not one of ours."""
        self.job = job
        self._orders = orders
        self._report = report
        self._deadline_s = time.monotonic() + job.timeout_s
        self._names: dict[str, int] = {}
        self._told: tuple[object, ...] = ()
        self._saved = _read(job.checkpoint) if job.checkpoint is not None else Saved()
        self._over = False
        """The owner has refused what we said: the task is somebody else's."""
        self._thread: int | None = None
        self._nagging = threading.Lock()
        self.cancel: Callable[[], object] | None = None
        """Ends the function at its next await; of a function that is asynchronous."""

    # -- orders

    @property
    def abandoned(self) -> bool:
        """Nothing is to be reported any more."""
        return self._over or self._orders.given is Order.ABANDON

    @property
    def timed_out(self) -> bool:
        return self._orders.given is None and time.monotonic() >= self._deadline_s

    @property
    def stop_reason(self) -> str:
        """Why it is to end; empty: it is not."""
        if self.abandoned:
            return "its task was ended or given to somebody else"
        if self._orders.given is Order.STOP:
            return "it was asked to stop"
        return f"it took longer than {self.job.timeout_s} s" if self.timed_out else ""

    @property
    def notice(self) -> str:
        return self._orders.notice

    def raise_if_stopped(self) -> None:
        if reason := self.stop_reason:
            raise TaskStopped(reason)

    def begin(self, thread: int | None) -> None:
        """From now on the thread of this number may be interrupted."""
        with self._nagging:
            self._thread = thread

    def end(self) -> None:
        with self._nagging:
            self._thread = None

    def nag(self) -> None:
        """Interrupts the function where it is; what it waits for in C it still waits for."""
        with self._nagging:
            if self.cancel is not None:
                self.cancel()
            elif self._thread is not None:
                log.warning(
                    "attempt %s#%s is interrupted: %s", self.job.key, self.job.epoch, self.stop_reason
                )
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(TaskStopped)
                )

    # -- what it says

    def say(self, command: c.AttemptCommand) -> None:
        """Raises TaskStopped where the attempt is not the task's any more."""
        try:
            self._report(command)
        except Conflict as error:
            self._over = True
            raise TaskStopped(error.message) from error

    def progress(self, percent: int | None, step: str | None, expected_at_ms: int | None) -> None:
        told = (percent, step, expected_at_ms)
        if told != self._told:
            word = c.Progress(
                **self.named, percent=percent, step=step, estimated_completion_at_ms=expected_at_ms
            )
            self.say(checked(word, "progress"))
            self._told = told

    @property
    def named(self) -> dict[str, Any]:
        job = self.job
        return {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof}

    # -- what is kept

    def next_name(self, name: str) -> str:
        """Steps of one name are told apart by their order.  Raises BadInput."""
        if not isinstance(name, str) or not name:
            raise BadInput(f"no step can be called {name!r}; it was not run", "a text that says what it does")
        if "\0" in name:
            raise BadInput(f"step {name!r} holds a NUL character; it was not run", "another name")
        number = self._names[name] = self._names.get(name, 0) + 1
        return name if number == 1 else f"{name}#{number}"

    def known(self, name: str, kind: Any) -> tuple[bool, Any]:
        """Whether the step is done, and what it has returned."""
        raw = self._saved.steps.get(name)
        if raw is None:
            return False, None
        return True, convert(msgspec.json.decode(raw), kind)

    def keep_step(self, name: str, value: object, kind: Any) -> Any:
        """As it is told to a later attempt: what a step returns is what was saved."""
        text = encode(value, f"what step {name!r} has returned")
        with self._saving:
            steps = self._saved.steps | {name: msgspec.Raw(text.encode())}
            self._save(Saved(steps=steps, state=self._saved.state))
        return convert(msgspec.json.decode(text), kind)

    def load(self, kind: Any, default: Any) -> Any:
        state = self._saved.state
        return convert(msgspec.json.decode(state[0]), kind) if state else default

    def keep_state(self, state: object) -> None:
        text = encode(state, "the checkpoint")
        with self._saving:
            self._save(Saved(steps=self._saved.steps, state=(msgspec.Raw(text.encode()),)))

    @property
    def _saving(self) -> threading.Lock:
        """Made for the first who saves: most functions never do."""
        made: threading.Lock = self.__dict__.setdefault("_saving_lock", threading.Lock())
        return made

    def _save(self, saved: Saved) -> None:
        data = msgspec.json.encode(saved)
        if len(data) > CHECKPOINT_BYTES_MAX:
            raise BadInput(
                f"steps and checkpoint have {len(data)} bytes together, more than {CHECKPOINT_BYTES_MAX}; "
                "the last checkpoint is kept",
                "write what is large to a file and return its path",
            )
        self.say(c.SaveCheckpoint(**self.named, data=data))
        self._saved = saved


def _read(data: bytes) -> Saved:
    try:
        return msgspec.json.decode(data, type=Saved)
    except msgspec.DecodeError as error:
        raise BadInput(
            f"the task's checkpoint is not one of a Python task: {error}",
            "start it anew: muster task retry TASK --fresh",
        ) from error
