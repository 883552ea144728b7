"""How a worker puts into words how an attempt has ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from msgspec.structs import replace

from muster.hosts.full_disk import full_disk
from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import AgentUnfit
from muster.model.states import ErrorKind
from muster.model.task import NO_CHANGES
from muster.model.usage import Usage
from muster.model.wording import LEFT_OUT, refused_words
from muster.ports.agent import Completed, Exit, Job, Outcome, PermissionAsked
from muster.worker.commits import Signature
from muster.worker.git import DiskFull
from muster.worker.publisher import PublishedWork

RETRY_AFTER_MAX_S = 30 * 86400.0
MESSAGE_CHARS_MAX = 5000
REFUSED_CHARS_MAX = 500
QUESTION_CHARS_MAX = 10_000
STEP_CHARS_MAX = 500


class Words:
    def __init__(self, job: ClaimedJob) -> None:
        self._job = job

    def job(self, told: str, diff: str, place: str) -> Job:
        """The attempt as its agent sees it."""
        job = self._job
        return Job(
            task_id=job.task_id,
            epoch=job.epoch,
            ref=f"{job.plan}/{job.key}",
            title=job.title,
            prompt=job.description,
            session_key=job.session_key or None,
            session_usage=job.session_usage,
            checkpoint=job.checkpoint,
            timeout_s=job.timeout_s,
            note=job.note,
            sent_back=job.sent_back,
            told=told,
            diff=diff,
            place=place,
            refused=job.refused,
            model=job.model,
            system_prompt=job.system_prompt,
            input_context=job.input_context,
            may_ask=True,
        )

    def work(self, location: str) -> c.AddArtifact:
        """Where what the attempt has made is."""
        named = f"work of attempt {self._job.epoch}"
        return c.AddArtifact(task_id=self._job.task_id, epoch=self._job.epoch, name=named, location=location)

    def step(self, step: str) -> c.Progress:
        return c.Progress(task_id=self._job.task_id, epoch=self._job.epoch, step=cut(step, STEP_CHARS_MAX))

    def doubt(self, suspicion: str) -> c.Suspect:
        return c.Suspect(task_id=self._job.task_id, epoch=self._job.epoch, evidence=cut(suspicion, 2000))

    def on(self, outcome: Outcome, ended: Exit, folder: Path, cwd: Path) -> c.Complete | c.Fail:
        """On what its agent has left; `folder` is the attempt's own."""
        if isinstance(outcome, Completed):
            result = outcome.result.decode() if outcome.result is not None else None
            word = self.complete(result, spoken=outcome.spoken, exit_code=ended.code)
            return replace(word, refused=tuple(cut(what, REFUSED_CHARS_MAX) for what in outcome.refused))
        left_s = 0.0 if outcome.reset_at_s is None else outcome.reset_at_s - time.time()
        retry_after_s = left_s if left_s > 0 else None  # what is over already says nothing
        full = full_disk(folder, cwd) if outcome.kind is ErrorKind.CRASH else ""
        message = f"{outcome.message}; on {os.uname().nodename} {full}" if full else outcome.message
        return self.failure(outcome.kind, message, ended.code, retry_after_s)

    def complete(
        self, result: str | None = None, *, spoken: bool = False, exit_code: int | None = None
    ) -> c.Complete:
        job = self._job
        return c.Complete(
            task_id=job.task_id, epoch=job.epoch, result=result, spoken=spoken, exit_code=exit_code
        )

    def others(self, branch: str, commits: tuple[str, ...]) -> c.AddArtifact:
        job = self._job
        name = f"on {branch} before, published by no task"
        return c.AddArtifact(
            task_id=job.task_id, epoch=job.epoch, name=name, location=cut("; ".join(commits), 1000)
        )

    def mended(self, files: str) -> c.AddArtifact:
        job = self._job
        name = f"changed between attempt {job.accepted} and its acceptance"
        return c.AddArtifact(task_id=job.task_id, epoch=job.epoch, name=name, location=cut(files, 1000))

    def done(self, word: c.Complete) -> c.Declare:
        """Before its work is published: whoever comes after us knows then that no agent is to run again."""
        job = self._job
        return c.Declare(task_id=job.task_id, epoch=job.epoch, text=word.result or "null", by_worker=True)

    def published(
        self, word: c.Complete, published: PublishedWork, *, checked: bool, must: bool
    ) -> c.Complete | c.Fail:
        """`must`: a person looks at work of its agent that changes nothing, unless a check has passed."""
        job = self._job
        if published.left_out:
            seen = ", and its check has seen it" if checked else ""
            left_out = cut(f"{LEFT_OUT}{published.left_out}{seen}", REFUSED_CHARS_MAX)
            word = replace(word, refused=(*word.refused, left_out))
        done = published.changed or published.there or checked
        if done or not must or job.changes == NO_CHANGES or job.accepted is not None:
            return replace(word, changed=published.changed, there=published.there, large=published.large)
        refused = f"; {refused_words(word.refused)}" if word.refused else ""
        return self.failure(
            ErrorKind.REVIEW,
            f"its agent says that it is done, and has changed nothing{refused}",
            word.exit_code,
        )

    def signature(self, word: c.Complete, usage: Usage | None) -> Signature:
        job = self._job
        said = word.result if word.spoken else None
        return Signature(
            task=f"{job.plan}/{job.key}",
            title=job.title,
            agent=job.agent,
            said=_last_words(said) if said else "",
            cost=_cost(usage) if usage else "",
        )

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

    def no_room(self, said: str, hint: str, *, begun: bool) -> c.Release:
        """Its host is in the way, and nothing says that its agent has failed: the task goes back at no cost.

        What an earlier attempt has done stays done; of this one nothing is.
        """
        job, made = self._job, f"nothing of attempt {self._job.epoch} has begun"
        if begun:
            made = (
                f"what attempt {job.epoch} has made lies there, in no commit yet, and is not counted as done: "
                "it is kept once there is room"
            )
        word = self.release("; ".join(filter(None, (said, made, hint))))
        return replace(word, undone=begun and job.publishes is None)

    def left(self, word: c.Finish, error: DiskFull, cwd: Path) -> c.Finish:
        """The same end, with where its work is that could not be put away."""
        more = f"{error.message}; what it has made lies in {cwd}, in no commit yet; {error.hint}"
        if isinstance(word, c.Fail):
            return replace(word, message=cut(f"{word.message}; {more}", MESSAGE_CHARS_MAX))
        if isinstance(word, c.Release):
            return replace(word, reason=cut(f"{word.reason}; {more}", MESSAGE_CHARS_MAX))
        return word

    def asks(self, asked: PermissionAsked) -> c.Park:
        job = self._job
        question = cut(asked.question, QUESTION_CHARS_MAX)
        return c.Park(task_id=job.task_id, epoch=job.epoch, question=question, wish=asked.command)

    def release(self, reason: str) -> c.Release:
        return c.Release(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            reason=cut(reason, MESSAGE_CHARS_MAX),
        )

    def unfit(self, error: AgentUnfit) -> c.Release:
        return replace(self.release(error.message), unfit_agent=error.message, unfit_secret=error.secret)


def _last_words(result: str) -> str:
    """The last paragraph of what the agent said, as JSON; empty where it is no text."""
    said = json.loads(result)
    text = said.get("text") if isinstance(said, dict) else None
    return text.strip().split("\n\n")[-1] if isinstance(text, str) else ""


def _cost(usage: Usage) -> str:
    dollars = "" if usage.cost_microusd is None else f"${usage.cost_microusd / 1e6:.2f}, "
    return f"{dollars}{usage.input_tokens + usage.output_tokens:,} tokens"


def cut(text: str, limit: int) -> str:
    return text[:limit].replace("\0", "?")
