"""What an agent may not do by itself: its question, a person's word, and who may give that word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from machine_makers import make_attempt, make_task, refusal, run, running

from muster.model import commands as c
from muster.model.moves.decision import Decision
from muster.model.permissions import verdicts_of
from muster.model.states import PauseReason, TaskStatus
from muster.model.task import Task

PARK = c.Park(task_id=7, epoch=4, question="may it do this? Bash: make", wish="Bash: make")


@dataclass(frozen=True)
class Word:
    allow: bool | None
    text: str = ""
    always: bool = False

    def on(self, task: Task) -> Decision:
        return run(task, make_attempt(), self.command)

    @property
    def command(self) -> c.AnswerQuestion:
        return c.AnswerQuestion(task_id=7, actor="ada", text=self.text, allow=self.allow, always=self.always)


def parked(**changes: Any) -> Task:
    return run(*running(**changes), PARK).task


def test_its_processes_are_gone_when_it_is_parked() -> None:
    task, attempt = make_task(TaskStatus.RUNNING), make_attempt(started_at_ms=1)
    asked = run(task, attempt, c.Ask(task_id=7, epoch=4, question="?"))
    assert asked.task.lingering_epoch == 4
    task = run(task, attempt, PARK).task
    assert (task.status, task.paused_reason) == (TaskStatus.PAUSED, PauseReason.QUESTION)
    assert (task.wish, task.lingering_epoch) == ("Bash: make", None)


@pytest.mark.parametrize("allow", [True, False])
def test_the_word_is_kept_for_this_task_until_it_is_retried(allow: bool) -> None:
    task = Word(allow, "be careful").on(parked(verdicts='{"Bash: ls":true}')).task
    assert (task.status, task.question) == (TaskStatus.PENDING, "")
    assert verdicts_of(task.verdicts) == {"Bash: ls": True, "Bash: make": allow}
    assert "Bash: make" in task.note and task.note.endswith("be careful")
    retried = run(
        make_task(TaskStatus.COMPLETED, verdicts=task.verdicts), None, c.Retry(task_id=7, actor="ada")
    )
    assert retried.task.verdicts == ""


def test_words_alone_allow_nothing() -> None:
    task = Word(None, "not that way").on(parked()).task
    assert (task.status, task.verdicts) == (TaskStatus.PENDING, "")
    assert task.note.endswith("The answer: not that way")


@pytest.mark.parametrize("word", [Word(None), Word(None, "yes", always=True)])
def test_an_answer_says_something(word: Word) -> None:
    assert refusal(parked(), make_attempt(), word.command) == "bad_input"


def test_a_question_is_not_allowed_or_denied() -> None:
    task = make_task(TaskStatus.PAUSED, paused_reason=PauseReason.QUESTION, question="which?")
    assert refusal(task, make_attempt(), Word(True).command) == "illegal_move"
