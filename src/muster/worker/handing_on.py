"""What becomes of work whose agent says that it is done: checked, published, or given back with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.blackout import Blackout
from muster.model.states import ErrorKind
from muster.model.task import PERSON
from muster.model.wording import FOR_YOU
from muster.ports.agent import Launch
from muster.worker.checks import MISSING, check_words
from muster.worker.ends import End
from muster.worker.git import GitFailed
from muster.worker.publisher import Publisher, Stopped
from muster.worker.publishing import ForReview, Over, Publishing, SentBack
from muster.worker.reviewing import NoVerdict, Reviewer
from muster.worker.words import Words
from muster.worker.workdir import Trees, Workdir


class HandingOn(Struct, frozen=True):
    job: ClaimedJob
    workdir: Workdir
    words: Words
    trees: Trees | None
    check: str
    """The command; empty: none."""
    review: str
    """An agent's name, or PERSON; empty: nobody."""
    reviewer: Reviewer
    env: Mapping[str, str]
    stdout: Path
    """Where the check prints to."""
    report: Callable[[c.AttemptCommand], bool]
    """False where the attempt is over."""
    run: Callable[[Launch], End]
    stopping: Callable[[], bool]
    blackout: Blackout = Blackout()

    def settle(self, word: c.Complete) -> c.Finish:
        """What is to be said of the attempt in the end.  Raises Over where there is nothing to say."""
        publishing = self.workdir.publishing()
        try:
            if publishing is None:
                if self.asked and (why := self._look("HEAD")):
                    raise SentBack(why)
                return word
            if not self.report(self.words.done(word)):
                return word  # what it has reported itself, or its end, stands
            return self._publish(publishing, word)
        except Stopped as error:
            return self.words.release(error.message)
        except SentBack as error:
            place = str(self.workdir.cwd)
            told = error.words if place in error.words else f"{error.words}; it lies in {place}"
            return self.words.failure(ErrorKind.REWORK, told, word.exit_code)
        except ForReview as error:
            return self.words.failure(ErrorKind.REVIEW, error.words, word.exit_code)
        except (GitFailed, NoVerdict) as error:
            message = ": ".join(filter(None, (error.message, error.hint)))
            return self.words.failure(ErrorKind.CRASH, message, word.exit_code, done=True)

    def _publish(self, publishing: Publishing, word: c.Complete) -> c.Finish:
        publisher = Publisher(
            replace(publishing, blackout=self.blackout),
            check=(lambda: self._look(publishing.tree.base)) if self.asked else None,
            intend=self._intend,
            stopping=self.stopping,
        )
        published = publisher.publish(merge=self.trees is None or self.trees.merge)
        if published.others:
            self.report(self.words.others(publishing.tree.plan_branch.name, published.others))
        if published.mended:
            self.report(self.words.mended(published.mended))
        must = self.trees is not None and self.job.agent in self.trees.writers
        return self.words.published(word, published, checked=self.asked, must=must)

    def _intend(self, branch: str, old: str, new: str) -> bool:
        job = self.job
        return self.report(c.Publish(task_id=job.task_id, epoch=job.epoch, branch=branch, old=old, new=new))

    @property
    def asked(self) -> bool:
        return bool(self.check or self.review)

    def _look(self, base: str) -> str:
        """Why the work is not to be taken; empty where it is.  Raises Over, Stopped, ForReview, NoVerdict."""
        if self.check and (why := self._checked()):
            return why
        if self.review == PERSON:
            raise ForReview(FOR_YOU)
        return self.reviewer.look(self.review, self.workdir.cwd, base) if self.review else ""

    def _checked(self) -> str:
        """Why the check has not passed; empty where it has.  Raises ForReview where no agent could mend that."""
        self.report(self.words.step(f"check: {self.check}"))
        begins = self.stdout.stat().st_size if self.stdout.exists() else 0
        argv = ("sh", "-c", f"exec 2>&1\n{self.check}")
        end = self.run(Launch(argv=argv, env=self.env, cwd=self.workdir.cwd))
        if end.abandoned:
            raise Over(f"attempt {self.job.epoch} of {self.job.plan}/{self.job.key} is over")
        if end.stopped:
            raise Stopped("stopped in its check")
        if end.code == 0:
            return ""
        why = "ran longer than its time limit" if end.timed_out else f"exit code {end.exit_code}"
        told = check_words(self.check, end.verdict.message if end.verdict else why, self.stdout, begins)
        if end.timed_out or end.code in MISSING:
            raise ForReview(told, "no agent can mend that: correct the check, or accept it without")
        return told
