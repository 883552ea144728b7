"""An agent that looks at the finished work of another one, and says whether it is to be taken."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from muster.model.answers import ClaimedJob
from muster.model.errors import AgentUnfit
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import Agent, AttemptFolder, Completed, Failed, Job, Launch
from muster.worker.checks import MISSING, printed
from muster.worker.ends import End
from muster.worker.output_reader import OutputReader
from muster.worker.publisher import Stopped
from muster.worker.publishing import ForReview, NotPublished, Over

_ACCEPTS = re.compile(r"^\W*ACCEPT(?:ED)?\b", re.MULTILINE)
_REJECTS = re.compile(r"^\W*REJECT(?:ED)?\b[\s:.*-]*(.*)", re.MULTILINE | re.DOTALL)
_SAID_MAX = 500


class NoVerdict(NotPublished):
    """The reviewer could not do its work: that says nothing about the work it should have looked at."""


class Reviewer(Struct, frozen=True):
    job: ClaimedJob
    agents: Mapping[str, Agent]
    folder: AttemptFolder
    rubric: str
    env: Mapping[str, str]
    given: Callable[[str], Mapping[str, str]]
    """The secrets of an agent."""
    run: Callable[[Launch, OutputReader], End]
    spent: Usage | None
    """What the attempt has cost before."""

    def look(self, name: str, cwd: Path, base: str) -> str:
        """Why agent `name` does not accept what was changed since `base`; empty where it does.

        Raises NoVerdict, ForReview, Over, Stopped.
        """
        agent = self.agents.get(name)
        if agent is None:
            raise NoVerdict(
                f"the agent that is to review it, {name}, is not configured here", "muster agent list"
            )
        job = Job(
            task_id=self.job.task_id,
            epoch=self.job.epoch,
            ref=f"{self.job.plan}/{self.job.key}",
            title=f"Review: {self.job.title}",
            prompt=self._prompt(base),
            session_key=None,
            checkpoint=None,
            timeout_s=self.job.timeout_s,
        )
        try:
            given = self.given(name)
        except AgentUnfit as error:
            raise NoVerdict(f"reviewer {name} cannot run: {error.message}") from None
        launch = agent.launch(job, self.folder, cwd=cwd, extra_env=self.env)
        stream = agent.stream(job, launch)
        reader = OutputReader(
            self.job, self.folder.stdout, stream, launch.session_key, spent=self.spent, guest=True
        )
        outputs = {file: file.stat().st_size if file.exists() else 0 for file in self._outputs}
        end = self.run(replace(launch, env={**launch.env, **given}), reader)
        if end.abandoned:
            raise Over(f"attempt {self.job.epoch} of {self.job.plan}/{self.job.key} is over")
        if end.stopped:
            raise Stopped("stopped in its review")
        outcome = stream.outcome(end.exit, self.folder)
        if isinstance(outcome, Failed):
            by_its_code = (
                not stream.answered and end.code and end.code not in MISSING
            )  # who talks says a word
            if outcome.kind is ErrorKind.CRASH and by_its_code:
                return f"reviewer {name} does not accept it: {outcome.message}"
            hint = f"muster agent test {shlex.quote(name)}"
            raise NoVerdict(f"reviewer {name} has failed: {outcome.message}", hint)
        said = _spoken(outcome)
        if said is not None:
            return _verdict(name, said, must=True)
        told = "\n".join(printed(file, begins) for file, begins in outputs.items())
        return _verdict(name, told, must=bool(self.rubric) or stream.ended)

    @property
    def _outputs(self) -> tuple[Path, Path]:
        return self.folder.stdout, self.folder.stderr

    def _prompt(self, base: str) -> str:
        rubric = f"\n\nWhat to go by:\n{self.rubric}" if self.rubric else ""
        return (
            "Another agent says that it has done the task below.  Its work is in this folder; what it has "
            f"changed: git diff {base}.  Look at it and decide whether it is to be taken.  Change nothing.  End "
            "with one line that begins with ACCEPT, or with REJECT and what has to be mended."
            f"{rubric}\n\nThe task: {self.job.title}\n\n{self.job.description}"
        )


def _spoken(outcome: Completed) -> str | None:
    """The last message of who talks; None of a command."""
    said = json.loads(outcome.result) if outcome.result is not None else None
    return said.get("text") if isinstance(said, dict) and outcome.spoken else None


def _verdict(name: str, said: str, *, must: bool) -> str:
    """As `look`; `must`: it has to say the word, its exit code alone says nothing."""
    if refused := _REJECTS.search(said):
        return f"reviewer {name} does not accept it: {refused[1].strip()}"
    if must and not _ACCEPTS.search(said):
        words = " ".join(said.split())
        what = f"; it has said: {words[-_SAID_MAX:]}" if words else ", and nothing else"
        raise ForReview(f"reviewer {name} has said neither ACCEPT nor REJECT{what}")
    return ""
