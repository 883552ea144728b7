"""The worker whose attempts are functions of this process."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from msgspec.structs import replace

from muster.client.crew import HttpCrew
from muster.model import commands as c
from muster.model.answers import Claimed, ClaimedJob, Moved
from muster.model.commands.base import LOG_CHUNK_BYTES_MAX, RESULT_BYTES_MAX
from muster.model.errors import BadInput, Conflict, MusterError
from muster.model.scalars import TEXT_CHARS_MAX
from muster.model.states import ErrorKind
from muster.ports.runtime import Chance
from muster.sdk.attempt import CURRENT, NAG_S, Attempting
from muster.sdk.context import AsyncTaskContext, TaskContext
from muster.sdk.errors import GiveUp, TaskStopped
from muster.sdk.tasks import AppTask, read_payload
from muster.sdk.values import encode
from muster.worker.holder import AWAY, BROKEN, RECONNECT_CAP_S, RECONNECT_FIRST_S, Holder
from muster.worker.lease_guard import boot_s
from muster.worker.orders import Order, Orders

log = logging.getLogger(__name__)

Answers = list[Moved | MusterError]
Say = Callable[[Sequence[c.AttemptCommand]], Answers]
MIND_S = 0.25
GATHER_S = 0.05
"""Ends of a batch are told together, but none waits much longer than this for the others."""
MESSAGE_CHARS_MAX = 2000


class _Ends:
    """What is to be said of attempts of a batch that have ended."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while it is said: who goes on with the batch knows then that it was."""
        self._said: list[c.AttemptCommand] = []
        self._since_s = 0.0

    def add(self, end: list[c.AttemptCommand]) -> None:
        with self.lock:
            if not self._said:
                self._since_s = time.monotonic()
            self._said += end

    def take(self) -> list[c.AttemptCommand]:
        taken, self._said = self._said, []
        return taken

    @property
    def due(self) -> bool:
        return bool(self._said) and time.monotonic() - self._since_s > GATHER_S


class FunctionWorker(Holder):
    """As Holder.  With a `batch` a slot takes so many tasks at once; many start or end in one commit."""

    claim_wait_s = 4.0
    """Well within a lease: what is given with it has started."""

    def __init__(
        self,
        crew: HttpCrew,
        chance: Chance,
        registration: c.Register,
        tasks: Mapping[str, AppTask[..., Any]],
        *,
        batch: int = 1,
        orphan_grace_s: float,
    ) -> None:
        self._pid = os.getpid()
        threads = registration.slots
        registration = replace(registration, slots=threads * batch)
        super().__init__(crew, chance, registration, orphan_grace_s=orphan_grace_s, threads=threads)
        self._told = crew.report_all
        self._tasks = tasks
        self._batch = batch
        self._token_hash = secrets.token_hex(32)
        self._attempts: dict[tuple[int, int], Attempting] = {}
        self._looping = asyncio.new_event_loop()
        self._paces = threading.local()
        self._batches: set[_Ends] = set()
        self.error: BaseException | None = None
        """A bug of ours that has ended it."""

    def run(self) -> bool:
        loop = threading.Thread(target=self._loop, name="muster-async", daemon=True)
        mind = self._thread(self._mind, "muster-mind")
        ending = self._thread(self._tell_ends, "muster-ends")
        loop.start()
        mind.start()
        if self._batch > 1:
            ending.start()
        try:
            return super().run()
        finally:
            self._finished.set()
            self._looping.call_soon_threadsafe(self._looping.stop)
            loop.join()
            self._looping.close()
            mind.join()
            if self._batch > 1:
                ending.join()

    def _loop(self) -> None:
        """Of functions that are asynchronous.  What one of them begins may end the loop, which is everybody's."""
        while not self._finished.is_set():
            try:
                self._looping.run_forever()
            except BaseException as error:
                log.warning("a task has raised %s in the event loop, which goes on", type(error).__name__)

    def stop(self) -> None:
        """What runs is to save what it has and give its task back."""
        self.drain()
        with self._lock:
            for orders in self._held.values():
                orders.give(Order.STOP)

    # -- as Holder asks

    def _new_claim(self) -> c.Claim:
        return replace(super()._new_claim(), slots=self._batch, start=self._batch == 1)

    def _claim(self, command: c.Claim) -> Claimed | None:
        sent_s = self._first_sent_s(command)
        claimed = super()._claim(command)
        return claimed and self._in_time(claimed, sent_s)

    def _first_sent_s(self, command: c.Claim) -> float:
        """When it was sent first, alone or with the end of another attempt: what it is given may be of then."""
        request_id, sent_s = getattr(self._paces, "claim", ("", 0.0))
        if request_id != command.request_id:
            sent_s = boot_s()
            self._paces.claim = command.request_id, sent_s
        return sent_s

    def _in_time(self, claimed: Claimed, sent_s: float) -> Claimed:
        if not any(job.started for job in claimed.jobs):
            return claimed
        if all(self._is_sure(job, sent_s) for job in claimed.jobs):
            return claimed
        for job in claimed.jobs:  # somebody else may have it by now
            self._tell([c.Release(**_named(job), reason="the answer to its claim came too late")])
        return replace(claimed, jobs=(), over=True)

    def _is_sure(self, job: ClaimedJob, since_s: float) -> bool:
        """Whether its lease still lasts that was granted or renewed by then, at the least."""
        return boot_s() - since_s <= (job.lease_s or self.lease_s)

    def _broken(self) -> None:
        log.exception("this worker is broken")
        self.error = self.error or sys.exc_info()[1]
        self._die()

    def _run_jobs(self, jobs: Sequence[ClaimedJob], then: c.Claim) -> Claimed | None:
        with self._holding(jobs) as orders:
            given = list(zip(jobs, orders, strict=True))
            if self._batch == 1:
                ((job, order),) = given
                return self._finish(self._attempt(job, order), then)
            ends = _Ends()
            self._batches.add(ends)
            try:
                self._run_batch(given, ends)
                with ends.lock:
                    return self._finish(ends.take(), then)
            finally:
                self._batches.discard(ends)

    def _run_batch(self, given: list[tuple[ClaimedJob, Orders]], ends: _Ends) -> None:
        """What was given out before may have ended its process: each of these starts alone.

        Of fresh ones as many start in one commit as have run within GATHER_S before, in this thread's batch
        before this one too, twice as many at most; where that is a whole batch, with their claim.
        """
        many, claimed_s = self._many, self._paces.claim[1]
        given.sort(key=lambda one: not one[0].started)  # what might end this process comes after them
        while given:
            if (order := given[0][1].given) is not None:
                job, _ = given.pop(0)
                if order is Order.STOP:
                    ends.add([c.Release(**_named(job), reason="it was asked to stop before it began")])
                continue
            chunk = given[: _startable([job for job, _ in given], many)]
            del given[: len(chunk)]
            sent_s = claimed_s if chunk[0][0].started else boot_s()
            refused = self._start([job for job, _ in chunk if not job.started], ends)
            begun_s = time.monotonic()
            for job, orders in chunk:
                if (job.task_id, job.epoch) in refused:
                    self._gone(job)
                elif not self._is_sure(job, max(sent_s, self._renewed_s)):
                    # This process has stood still: somebody else may have done it by now.
                    ends.add([c.Release(**_named(job), reason="its lease may be over, and it had not begun")])
                elif job.expires_s is not None and boot_s() - claimed_s > job.expires_s:
                    # Given back, it might be claimed again before the owner looks for what has expired.
                    ends.add([_failed(job, ErrorKind.EXPIRED, "expired while it waited in its batch")])
                else:
                    ends.add(self._attempt(job, orders))
            took_s = time.monotonic() - begun_s
            many = min(2 * many, self._batch) if took_s < GATHER_S / 2 else max(1, many // 2)
            self._paces.many = many

    @property
    def _many(self) -> int:
        many: int = getattr(self._paces, "many", 1)
        return many

    def _start(self, jobs: list[ClaimedJob], ends: _Ends) -> set[tuple[int, int]]:
        """Tells the ends of those before as well; returns what has been refused."""
        if not jobs:
            return set()
        starts = [c.Start(**_named(job), token_hash=self._token_hash) for job in jobs]
        with ends.lock:
            said = self._say([*ends.take(), *starts])[-len(starts) :]
        return {
            (job.task_id, job.epoch)
            for job, answer in zip(jobs, said, strict=True)
            if isinstance(answer, Conflict)
        }

    def _tell_ends(self) -> None:
        """While an attempt goes on, those of its batch that ended before it."""
        while not self._finished.wait(GATHER_S if self._batches else MIND_S):
            for ends in list(self._batches):
                if ends.due:
                    with ends.lock:
                        self._say(ends.take())

    def _finish(self, said: list[c.AttemptCommand], then: c.Claim) -> Claimed | None:
        """Tells the ends of attempts; `then` is claimed with the last of them."""
        sent_s = 0.0
        if not self._draining.is_set() and said and isinstance(said[-1], c.Finish):
            then = replace(then, start_new=1 < self._batch <= self._many)
            said[-1] = replace(said[-1], then=then)
            sent_s = self._first_sent_s(then)
        answers = self._say(said)
        last = answers[-1] if answers else None
        if not isinstance(last, Moved) or last.next is None:
            return None
        return self._in_time(last.next, sent_s)

    def _say(self, commands: Sequence[c.AttemptCommand]) -> Answers:
        answers = self._tell(commands)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, MusterError) and isinstance(command, c.Finish):
                log.info("attempt %s#%s is over: %s", command.task_id, command.epoch, answer)
                self._say_gone(command)
        return answers

    # -- one attempt

    def _attempt(self, job: ClaimedJob, orders: Orders) -> list[c.AttemptCommand]:
        """What is to be said of its end.  Never raises for what the function does."""
        try:
            attempt = Attempting(job, orders, self._report)
        except BadInput as error:
            return [_failed(job, ErrorKind.INVALID, f"{error.message}; {error.hint}")]
        key = (job.task_id, job.epoch)
        self._attempts[key] = attempt
        try:
            return self._call(job, attempt)
        finally:
            self._end_if_forked(attempt)
            del self._attempts[key]

    def _call(self, job: ClaimedJob, attempt: Attempting) -> list[c.AttemptCommand]:
        try:
            payload = read_payload(job.description)
            name = payload.task
            task = self._tasks[name]
            args, kwargs = task.arguments(payload)
        except Exception as error:  # a type of theirs may raise what it likes
            return [
                _failed(job, ErrorKind.INVALID, f"its text is no call of a task of this app: {_text(error)}")
            ]
        try:
            value = self._result(task, attempt, args, kwargs)
            text = encode(value, f"what {name} has returned")
            if len(text) > RESULT_BYTES_MAX:
                raise BadInput(
                    f"the result of {name} has {len(text)} characters, more than {RESULT_BYTES_MAX}",
                    "write a large result to a file and return its path",
                )
        except TaskStopped as error:
            if not attempt.stop_reason:  # nobody has stopped it but the function itself
                return _told_failed(job, ErrorKind.CRASH, error)
            return self._stopped(job, attempt)
        except (GiveUp, BadInput) as error:
            return _told_failed(job, ErrorKind.INVALID, error)
        except MemoryError as error:
            return _told_failed(job, ErrorKind.OUT_OF_MEMORY, error)
        except BaseException as error:  # also what `except Exception` lets through: it is the function's own
            return _told_failed(job, ErrorKind.CRASH, error)
        if attempt.timed_out:  # as a command, which would have been killed: it may have waited in C
            return self._stopped(job, attempt)
        return [c.Complete(**_named(job), result=text, exit_code=0)]

    def _result(
        self, task: AppTask[..., Any], attempt: Attempting, args: list[Any], kwargs: dict[str, Any]
    ) -> object:
        """Raises what the function raises, and TaskStopped."""
        attempt.raise_if_stopped()
        if task.is_async:
            given = [AsyncTaskContext(attempt), *args] if task.takes_context else args
            return self._await(task, attempt, given, kwargs)
        given = [TaskContext(attempt), *args] if task.takes_context else args
        before = CURRENT.set(attempt)
        try:
            attempt.begin(threading.get_ident())
            try:
                return task.function(*given, **kwargs)
            finally:
                _settle(attempt)
        finally:
            CURRENT.reset(before)

    def _await(
        self, task: AppTask[..., Any], attempt: Attempting, given: list[Any], kwargs: dict[str, Any]
    ) -> object:
        done: Future[object] = Future()

        async def run() -> None:
            CURRENT.set(attempt)
            try:
                done.set_result(await task.function(*given, **kwargs))
            except BaseException as error:
                done.set_exception(error)
            finally:
                self._end_if_forked(attempt)

        def ended(_: object) -> None:
            if not done.done():  # cancelled before its first step
                done.set_exception(asyncio.CancelledError())

        def begin() -> None:
            running = self._looping.create_task(run())
            running.add_done_callback(ended)
            attempt.cancel = lambda: self._looping.call_soon_threadsafe(running.cancel)

        self._looping.call_soon_threadsafe(begin)
        try:
            return done.result()
        except asyncio.CancelledError:
            attempt.raise_if_stopped()  # it was cancelled for that
            raise

    def _end_if_forked(self, attempt: Attempting) -> None:
        """A child of the function that comes back to us has no thread of ours, and speaks for nobody."""
        if os.getpid() != self._pid:
            log.error("task %s has ended in a process that it forked: that one ends", attempt.job.key)
            os._exit(BROKEN)

    def _stopped(self, job: ClaimedJob, attempt: Attempting) -> list[c.AttemptCommand]:
        if attempt.abandoned:
            self._gone(job)
            return []
        if attempt.timed_out:
            return [_failed(job, ErrorKind.TIMEOUT, attempt.stop_reason)]
        return [c.Release(**_named(job), reason=attempt.stop_reason)]

    def _mind(self) -> None:
        """Interrupts what has not stopped although it was to."""
        due_s: dict[tuple[int, int], float] = {}
        while not self._finished.wait(MIND_S):
            now_s = time.monotonic()
            for key, attempt in list(self._attempts.items()):
                if not attempt.stop_reason:
                    continue
                at_once = attempt.cancel is not None
                if now_s >= due_s.setdefault(key, now_s if at_once else now_s + NAG_S):
                    due_s[key] = now_s + NAG_S
                    attempt.nag()
            due_s = {key: due for key, due in due_s.items() if key in self._attempts}

    # -- to the owner

    def _report(self, command: c.AttemptCommand) -> Moved:
        """By a function, which may be interrupted meanwhile.  Raises the refusal."""
        (answer,) = self._tell([command], self._apart)
        if isinstance(answer, MusterError):
            raise answer
        return answer

    def _apart(self, commands: Sequence[c.AttemptCommand]) -> Answers:
        try:
            return [self._crew.report(command) for command in commands]
        except MusterError as error:
            return [error]

    def _tell(self, commands: Sequence[c.AttemptCommand], say: Say | None = None) -> Answers:
        """Until an owner has answered: repeating what it has taken does no harm."""
        say = say or self._told
        answers: Answers = list(say(commands)) if commands else []
        wait_s = RECONNECT_FIRST_S
        while away := [at for at, answer in enumerate(answers) if isinstance(answer, AWAY)]:
            if self._left_alone() or self._declared_dead:
                break
            time.sleep(wait_s)
            wait_s = min(RECONNECT_CAP_S, wait_s * 2)
            for at, answer in zip(away, say([commands[at] for at in away]), strict=True):
                answers[at] = answer
        return answers

    def _gone(self, job: ClaimedJob) -> None:
        self._say_gone(c.ProcessesExited(**_named(job)))

    def _say_gone(self, command: c.AttemptCommand) -> None:
        """Somebody may wait for it before the task is given out again; its lease tells it too."""
        self._told([c.ProcessesExited(task_id=command.task_id, epoch=command.epoch, proof=command.proof)])


def _startable(jobs: Sequence[ClaimedJob], many: int) -> int:
    """How many of the first may go on at once: those that have started, or so `many` fresh ones, or one."""
    if jobs[0].started:
        return next((at for at, job in enumerate(jobs) if not job.started), len(jobs))
    fresh = next((at for at, job in enumerate(jobs) if job.epoch > 1), len(jobs))
    return max(1, min(many, fresh))


def _settle(attempt: Attempting) -> None:
    """An interrupt that comes when the function has ended already is swallowed here."""
    while True:
        try:
            attempt.end()
            return
        except TaskStopped:
            continue


def _named(job: ClaimedJob) -> dict[str, Any]:
    return {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof}


def _told_failed(job: ClaimedJob, kind: ErrorKind, error: BaseException) -> list[c.AttemptCommand]:
    """With its traceback in the attempt's output."""
    told = "".join(traceback.format_exception(error))
    lines = told.encode(errors="backslashreplace")
    output = c.AppendLog(**_named(job), stream="stderr", offset=0, data=lines[-LOG_CHUNK_BYTES_MAX:])
    text = _text(error)
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, MusterError):
        words = f"{error.message}; {error.hint}" if error.hint else error.message
    return [output, replace(_failed(job, kind, words), stack_trace=_clean(told)[-TEXT_CHARS_MAX:])]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # code of the function as well
        return "(it cannot be shown)"


def _failed(job: ClaimedJob, kind: ErrorKind, message: str) -> c.Fail:
    return c.Fail(**_named(job), kind=kind, message=_clean(message)[:MESSAGE_CHARS_MAX])


def _clean(text: str) -> str:
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
