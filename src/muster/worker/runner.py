"""One attempt, from its claim to its report."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import AgentUnfit, BadInput, Conflict, MusterError, StoreFault, Unavailable
from muster.model.marks import WORKER, attempt_mark
from muster.model.states import ErrorKind
from muster.ports.agent import (
    Agent,
    AttemptFolder,
    Completed,
    Exit,
    Failed,
    Job,
    Launcher,
    Outcome,
    RunningProcess,
)
from muster.ports.crew import Crew
from muster.worker.listener import Listener
from muster.worker.orders import Order, Orders
from muster.worker.tail import Tail

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often output is sent on and the process tree is looked at while an agent works."""
STOP_GRACE_S = 5.0
"""Between the rungs of the stop ladder (DESIGN.md part 6)."""
AWAY = (Unavailable, StoreFault)
"""Nothing can be written now; whoever waits may go on later."""
RECONNECT_FIRST_S = 0.1
RECONNECT_CAP_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What every attempt of a worker shares."""

    worker_id: str
    root: Path
    attempts_dir: Path
    socket: Path
    agents: Mapping[str, Agent]
    launcher: Launcher
    oom_kills: Callable[[], int | None]
    """The kernel's count of out-of-memory kills on this host, None where it tells none."""


class Runner:
    """Runs in a thread of its own; `orders` may come from others."""

    def __init__(self, crew: Crew, around: Surroundings, job: ClaimedJob, orders: Orders) -> None:
        self._crew = crew
        self._around = around
        self._job = job
        self._orders = orders
        self._folder = AttemptFolder(path=around.attempts_dir / str(job.task_id) / str(job.epoch))
        self._told = ""
        self._tails = (Tail("stdout", self._folder.stdout), Tail("stderr", self._folder.stderr))

    def run(self) -> None:
        """Never raises for what the agent, the task or the owner does."""
        agent = self._around.agents.get(self._job.agent)
        try:
            if agent is None:
                raise AgentUnfit(f"this worker has no agent {self._job.agent}", "muster doctor")
            self._attempt(agent)
        except AgentUnfit as error:
            self._report(self._release(error.message, unfit=error.message))
        except BadInput as error:
            self._report(self._failure(ErrorKind.INVALID, f"{error.message}; {error.hint}"))
        except Conflict as error:
            log.info("attempt %s#%s is over: %s", self._job.task_id, self._job.epoch, error)
        except (Unavailable, OSError) as error:
            # It spends a retry: what the host does not allow now must not be tried at full speed for ever.
            self._report(self._failure(ErrorKind.CRASH, f"this worker's host is in the way: {error}"))

    def _attempt(self, agent: Agent) -> None:
        self._folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        token = secrets.token_urlsafe(32)
        job = self._job_of_agent()
        launch = agent.launch(job, self._folder, cwd=self._around.root, extra_env=self._environment(token))
        stream = agent.stream(job, launch)
        listener = Listener(self._job, self._folder.stdout, stream, launch.session_key)
        # Started before the process is: a worker that dies in between has lost an attempt that may have run.
        start = c.Start(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            token_hash=hashlib.sha256(token.encode()).hexdigest(),
            session_key=launch.session_key,
            session_usage=stream.session_usage,
        )
        if not self._report(start):
            return
        oom_before = self._around.oom_kills()
        mark = attempt_mark(self._around.worker_id, self._job.task_id, self._job.epoch)
        process = self._around.launcher.start(launch, self._folder, mark=mark)
        try:
            exit_code, timed_out = self._watch(process, listener)
            if self._orders.given is Order.ABANDON:
                process.kill()
                return
            stopped = exit_code is None and not timed_out
            if exit_code is None:
                exit_code = process.stop(grace_s=STOP_GRACE_S, on_step=self._step)
            else:
                process.sweep()
        except BaseException:
            # Whatever went wrong here: nobody else may get the task while this process lives.
            process.kill()
            raise
        self._ship_all()
        listener.listen()
        self._patiently(lambda: self._account(listener))
        if stopped:
            self._report(self._release("stopped on request"))
            return
        oom_after = self._around.oom_kills()
        out_of_memory = oom_before is not None and oom_after is not None and oom_after > oom_before
        ended = Exit(code=exit_code, timed_out=timed_out, out_of_memory=out_of_memory)
        outcome = stream.outcome(ended, self._folder)
        if isinstance(outcome, Failed) and outcome.session_gone:
            self._patiently(lambda: self._account(listener, forget=True))
        self._report(self._word_on(outcome, ended))

    def _watch(self, process: RunningProcess, listener: Listener) -> tuple[int | None, bool]:
        """Until the process ends, an order comes or its time is over: (exit code, timed out)."""
        deadline_s = time.monotonic() + self._job.timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return None, True
            exit_code = process.wait(min(LOOK_S, left_s), wake_fd=self._orders.wake_fd)
            if exit_code is not None:
                return exit_code, False
            if self._orders.given is not None:
                self._orders.seen()
                return None, False
            process.descendants()
            self._tell()
            # An owner that is away for a while must not keep us from watching: the files keep the output.
            with contextlib.suppress(*AWAY):
                self._ship()
                listener.listen()
                listener.tell(self._send)

    def _tell(self) -> None:
        """Puts a notice where the agent finds it, whole or not at all, and takes it away again."""
        notice, path = self._orders.notice, self._folder.notice
        if notice == self._told:
            return
        try:
            if notice:
                fresh = path.with_suffix(".new")
                fresh.write_text(notice + "\n", "utf-8")
                fresh.replace(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the notice for %s#%s: %s", self._job.task_id, self._job.epoch, error)
            return
        self._told = notice

    def _account(self, listener: Listener, *, forget: bool = False) -> bool:
        if forget:
            listener.forget_session(self._send)
        else:
            listener.tell(self._send, last=True)
        return True

    def _send(self, command: c.AttemptCommand) -> None:
        """For what an attempt can do without: a refusal is noted, no more.  Raises what is AWAY."""
        try:
            self._crew.report(command)
        except AWAY:
            raise
        except MusterError as error:
            log.info("%s of %s#%s: %s", type(command).__name__, command.task_id, command.epoch, error)

    def _word_on(self, outcome: Outcome, ended: Exit) -> c.AttemptCommand:
        if isinstance(outcome, Completed):
            result = outcome.result.decode() if outcome.result is not None else None
            return c.Complete(
                task_id=self._job.task_id,
                epoch=self._job.epoch,
                result=result,
                spoken=outcome.spoken,
                exit_code=ended.code,
            )
        retry_after_s = None if outcome.reset_at_s is None else outcome.reset_at_s - time.time()
        return self._failure(outcome.kind, outcome.message, ended.code, retry_after_s)

    def _failure(
        self,
        kind: ErrorKind,
        message: str,
        exit_code: int | None = None,
        retry_after_s: float | None = None,
    ) -> c.Fail:
        return c.Fail(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            kind=kind,
            message=message[:5000].replace("\0", "?"),
            exit_code=exit_code,
            retry_after_s=None if retry_after_s is None else min(max(retry_after_s, 0.0), 30 * 86400.0),
        )

    def _release(self, reason: str, *, unfit: str | None = None) -> c.Release:
        return c.Release(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            reason=reason[:5000].replace("\0", "?"),
            unfit_agent=unfit,
        )

    def _job_of_agent(self) -> Job:
        job = self._job
        return Job(
            task_id=job.task_id,
            epoch=job.epoch,
            ref=f"{job.plan}/{job.key}",
            title=job.title,
            prompt=job.description or job.title,
            session_key=job.session_key or None,
            session_usage=job.session_usage,
            checkpoint=job.checkpoint,
            timeout_s=job.timeout_s,
            note=job.note,
        )

    def _environment(self, token: str) -> dict[str, str]:
        return {
            WORKER: self._around.worker_id,
            "MUSTER_ROOT": str(self._around.root),
            "MUSTER_SOCKET": str(self._around.socket),
            "MUSTER_TOKEN": token,
            "MUSTER_NOTICE": str(self._folder.notice),
        }

    def _step(self, name: str) -> None:
        log.info("attempt %s#%s: %s", self._job.task_id, self._job.epoch, name)

    def _ship(self) -> bool:
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
                offset=tail.offset,
                data=data,
            )
            try:
                self._crew.report(chunk)
            except AWAY:
                raise
            except MusterError as error:
                log.warning("output of %s#%s was refused: %s", self._job.task_id, self._job.epoch, error)
                return False
            tail.acknowledge(len(data))
            sent = True
        return sent

    def _ship_all(self) -> None:
        while self._patiently(self._ship):
            pass
        for tail in self._tails:
            tail.skip_to_the_end()
        while self._patiently(self._ship):
            pass

    def _report(self, command: c.AttemptCommand) -> bool:
        """Tells the owner, however long it is away.  False where the attempt is over already."""

        def send() -> bool:
            try:
                self._crew.report(command)
            except Conflict as error:
                log.info("%s of %s#%s: %s", type(command).__name__, command.task_id, command.epoch, error)
                return False
            return True

        return self._patiently(send)

    def _patiently(self, call: Callable[[], bool]) -> bool:
        wait_s = RECONNECT_FIRST_S
        while self._orders.given is not Order.ABANDON:
            try:
                return call()
            except AWAY:
                time.sleep(wait_s)
                wait_s = min(RECONNECT_CAP_S, wait_s * 2)
        return False
