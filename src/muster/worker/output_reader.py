"""Hands an agent's output to the adapter that understands it, and passes on what it told."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from muster.hosts.plain_files import read_part
from muster.model import commands as c
from muster.model.answers import ClaimedJob, Moved
from muster.model.pools import CLOSING, FOR_A_PERSON
from muster.model.usage import Usage
from muster.ports.agent import (
    AgentStream,
    PermissionAsked,
    Reported,
    Retrying,
    RunningProcess,
    SessionSeen,
    Step,
)
from muster.worker.orders import Orders

log = logging.getLogger(__name__)

HEAR_S = 0.1
"""How often an agent is heard that ends only when we hang up: its attempts last half of that longer."""
READ_S = 0.2
"""The most that is listened in one go: who prints faster than we read must not keep us from watching it."""
LINGER_S = 60.0
"""How long a process may live on, in silence, after its agent has said how its work ended."""
OWN_TRIES_S = 60.0
"""How long a CLI may try by itself to get through to a provider that refuses it; then all of its pool wait."""
TOLD_TRIES = 2
"""So many refusals, one after the other, are told: a single one is passed in a second."""
STEP_S = 5.0
"""Steps are told at most this often: each is an event that is kept."""
REPORT_CHARS_MAX = 10_000
_CHUNK_BYTES = 1 << 20

Send = Callable[[c.AttemptCommand], Moved | None]


class OutputReader:
    """Reads the file by itself: what the agent said is understood even while no owner takes its log."""

    def __init__(
        self,
        job: ClaimedJob,
        stdout: Path,
        stream: AgentStream,
        session_key: str | None,
        *,
        spent: Usage | None = None,
        guest: bool = False,
    ) -> None:
        """`guest`: not the attempt's own agent.  Only what it costs is told, on top of what was `spent`."""
        self._spent = spent
        self._guest = guest
        self._job = job
        self._stdout = stdout
        self._stream = stream
        self._offset = _size(stdout)  # what a set-up has printed before is not the agent's
        self._step = ""
        self._steps = 0
        self._reports: list[Reported] = []
        """Not told yet."""
        self._percent: int | None = None
        self._told_step = ""
        self._told_step_s = float("-inf")
        self._session = session_key
        begun = Usage(estimated=True) if stream.costs and not guest else None
        self._told: tuple[str | None, Usage | None] = (session_key, begun)
        self._broken = False
        self.decided: list[str] = []
        """Files of a merge that are right as they lie there, by its agent's word."""
        self.asked: PermissionAsked | None = None
        """What its agent waits for a person's word on."""
        self.reply = b""
        """What is to be said to the process next."""
        self._heard_s = time.monotonic()
        self._waiting: Retrying | None = None
        self._waits_since_s = self._next_try_s = time.monotonic()
        self._told_refusal = job.tries
        """Others wait to hear that the provider answers this one."""
        self._gives_way = False
        self._closed = self._cost_nothing = False

    @property
    def ended(self) -> bool:
        """The agent has said how its work ended."""
        return self._stream.ended

    @property
    def usage(self) -> Usage | None:
        """What the attempt has cost by the agent's word."""
        own = self._stream.usage
        return own.plus(self._spent) if own is not None and self._spent is not None else own

    @property
    def lingers(self) -> bool:
        """It has said that, and its process does not end."""
        return self.ended and time.monotonic() - self._heard_s > LINGER_S

    @property
    def refused(self) -> bool:
        """It is to be ended, because its provider refuses it: the CLI's own tries do not help, or others try."""
        waiting = self._stream.waiting
        if waiting is None or self.ended:
            return False
        if waiting.refusal.kind not in CLOSING:
            return waiting.delay_s == math.inf
        if waiting.refusal.kind in FOR_A_PERSON:
            return waiting.tries >= TOLD_TRIES
        next_s = max(time.monotonic(), self._next_try_s)
        return self._gives_way or next_s - self._waits_since_s > OWN_TRIES_S

    def listen(self, within_s: float = READ_S) -> None:
        """Takes in what the agent has printed by now, as much of it as there is time for."""
        until_s = time.monotonic() + within_s
        while data := self._read():
            self._offset += len(data)
            self._heard_s = time.monotonic()
            for event in self._stream.feed(data):
                match event:
                    case SessionSeen(key):
                        self._session = key
                    case Step():
                        self._take_step(event)
                    case Reported("keep", path) if not self._guest:
                        self.decided.append(path)
                    case Reported() if not self._guest:
                        self._reports.append(event)
                    case PermissionAsked():
                        self._decide(event)
            self._mind_provider()
            if time.monotonic() >= until_s:
                return

    def close(self, within_s: float = READ_S, *, by_itself: bool = False) -> None:
        """Its process has ended."""
        self.listen(within_s)
        self._stream.close()
        self._closed = True
        self._cost_nothing = by_itself and not self._stream.answered

    def _mind_provider(self) -> None:
        waiting, now_s = self._stream.waiting, time.monotonic()
        if waiting is self._waiting:
            return
        if waiting is not None:
            if self._waiting is None:
                self._waits_since_s = now_s
            self._next_try_s = now_s + waiting.delay_s
        self._waiting = waiting

    def _tell_provider(self, send: Send) -> None:
        job, waiting = self._job, self._stream.waiting
        word = c.Provider(task_id=job.task_id, epoch=job.epoch)
        if waiting is None:
            # A plain command tells nothing: one that has not been refused for so long is being served.
            served = self._stream.answered or time.monotonic() - self._waits_since_s > OWN_TRIES_S
            if self._told_refusal and served:
                send(word)
                self._told_refusal = self._gives_way = False
        elif waiting.tries >= TOLD_TRIES and not self._told_refusal and waiting.refusal.kind in CLOSING:
            kind, said = waiting.refusal.kind, waiting.refusal.message
            moved = send(replace(word, refuses=kind, message=said))
            self._told_refusal, self._gives_way = True, moved is not None and moved.gives_way

    def _command(self, report: Reported) -> c.AttemptCommand:
        """The same as of `muster report`."""
        task_id, epoch, text = self._job.task_id, self._job.epoch, report.text
        if report.verb == "ask":
            return c.Ask(task_id=task_id, epoch=epoch, question=text[:REPORT_CHARS_MAX])
        if report.verb == "checkpoint":
            return c.SaveCheckpoint(task_id=task_id, epoch=epoch, data=text.encode())
        number, _, step = text.partition(" ")
        number = number.removesuffix("%")
        percent = int(number) if number.isdecimal() and int(number) <= 100 else None
        step = text if percent is None else step
        return c.Progress(task_id=task_id, epoch=epoch, percent=percent, step=step[:500] or None)

    def _take_step(self, step: Step) -> None:
        """With its number where the agent keeps no list that says how far it is."""
        self._steps += 1
        self._percent = self._percent if step.percent is None else step.percent
        self._step = step.text if self._percent is not None else f"step {self._steps}: {step.text}"

    def _decide(self, asked: PermissionAsked) -> None:
        """What nobody has decided yet is for a person, one thing at a time."""
        verdict = self._job.verdicts.get(asked.command)
        if verdict is not None:
            self.reply += asked.yes if verdict else asked.no
        elif self.asked is None:
            self.asked = asked

    def tell(self, send: Send, *, last: bool = False) -> None:
        """Passes on what is new since it was told; what `send` refuses stays new."""
        now_s = time.monotonic()
        while self._reports:
            send(self._command(self._reports[0]))
            del self._reports[0]
        if self._step != self._told_step and not last and now_s - self._told_step_s >= STEP_S:
            step, percent = self._step[:500], self._percent
            send(c.Progress(task_id=self._job.task_id, epoch=self._job.epoch, step=step, percent=percent))
            self._told_step, self._told_step_s = self._step, now_s
        self._tell_provider(send)
        self._account(send)

    def forget_session(self, send: Send) -> None:
        self._session = ""
        self._account(send)

    def _account(self, send: Send) -> None:
        usage = self._cost_so_far()
        fresh = (self._session, usage)
        if fresh == self._told:
            return
        account = c.Account(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            session_key=None if self._guest else self._session,
            usage=usage,
            session_usage=None if self._guest else self._stream.session_usage,
        )
        send(account)
        self._told = fresh

    def _cost_so_far(self) -> Usage | None:
        """An estimate until its process has ended: it may have used more than it tells, and we may die first."""
        usage, before = self.usage, self._spent or Usage()
        if usage is None and not self._stream.costs:
            return None
        if self._closed:
            return before if usage is None and self._cost_nothing else usage
        return replace(usage or before, estimated=True)

    def _read(self) -> bytes:
        try:
            return read_part(self._stdout, _CHUNK_BYTES, self._offset)
        except FileNotFoundError:
            return b""
        except OSError as error:
            if not self._broken:
                log.warning("%s cannot be read: %s", self._stdout, error)
            self._broken = True
            return b""


def wait_and_read(
    process: RunningProcess, timeout_s: float, orders: Orders, output_reader: OutputReader | None
) -> int | None:
    """Until the process ends (its exit code), an order comes or the time is over (None).

    Hangs up on an agent that is talked to once it has said how its work ended: only then does it end.
    """
    until_s = time.monotonic() + timeout_s
    while True:
        left_s = until_s - time.monotonic()
        talks = output_reader is not None and process.talks
        code = process.wait(min(left_s, HEAR_S) if talks else left_s, wake_fd=orders.wake_fd)
        if output_reader is not None and process.talks:
            output_reader.listen()
            if output_reader.reply and process.say(output_reader.reply):
                output_reader.reply = b""
            if output_reader.ended:
                process.hang_up()
        asks = output_reader is not None and output_reader.asked is not None
        if code is not None or orders.given is not None or asks or time.monotonic() >= until_s:
            return code


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
