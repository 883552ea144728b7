"""Work that waits for a person's look: in the words of people, the same wherever it is shown."""

from __future__ import annotations

import json

from muster.model import commands as c

WORDS = "its work is for you to review"


def for_review(owner, key="api"):
    task = owner.tasks()[key]
    owner.do(c.Fail(task_id=task.id, epoch=task.epoch, kind="review", message=WORDS))
    return task.id


def shown(cli, number):
    """Badges of its newest attempt that has ended, on each surface that has one."""
    task, attempts = cli("task", "show", str(number)).out, cli("attempt", "list", str(number)).out
    one = cli("attempt", "show", f"{number}#1").out
    state = json.loads(cli("attempt", "list", str(number), "--json").out)[0]["state"]
    return task, attempts, one, state


def test_an_attempt_whose_work_is_judged_has_not_failed(owner, cli):
    number = for_review(owner)
    for word, glyph in (("for review", "‖"), ("sent back", "◷")):
        *texts, state = shown(cli, number)
        assert state == word
        for text in texts:
            assert f"{glyph} {word}" in text or f" {word} " in text, text
            assert "failed" not in text
        if word == "for review":
            cli("task", "resume", str(number), "--note", "Nearly")
    assert json.loads(cli("attempt", "list", str(number), "--json").out)[0]["status"] == "failed"


def test_work_that_a_person_accepted_is_accepted(owner, cli):
    number = for_review(owner)
    cli("task", "accept", str(number))
    assert shown(cli, number)[-1] == "accepted"


def test_commands_stand_beside_a_statement_and_only_where_they_can_be_typed(owner, cli):
    for_review(owner)
    assert f"billing/api  {WORDS}\n" in f"{cli('why', 'billing/api').out}\n"
    for shows in (cli("why", "billing/api"), cli("task", "show", "billing/api")):
        told = shows.out
        for command in ("attempt diff", "task accept", "task resume"):
            assert f"muster {command} billing/api" in told
    assert "muster task accept billing/api" in cli("inbox").out
    assert "task accept" not in cli("status").out + cli("task", "list").out


def test_an_edit_of_its_text_says_that_the_review_is_over(owner, cli):
    number = for_review(owner)
    assert "over" not in cli("task", "edit", str(number), "--priority", "2").out
    told = cli("task", "edit", str(number), "--title", "Another").out
    assert "edited; its review is over, and it is done anew" in told
    assert "what attempt 1 has done is not published: it is done anew" in cli("task", "show", str(number)).out
