"""Work is looked at in the live watch, and goes back to its agent from there."""

from __future__ import annotations

from muster.model import commands as c
from reviewed_work import with_repository


def reviewed(live, *words):
    live.press("v")
    return live.until(lambda text: all(word in text for word in words) and "n next file" in live.foot())


def comment(live, keys, text):
    live.press(f"{keys}\r")
    live.until(lambda shown: "Comment on money.py:2" in shown)
    live.press(f"{text}\r")
    live.until(lambda shown: f"» {text}" in shown)


def test_work_is_looked_at_commented_and_sent_back(owner, console):
    repo = with_repository(owner)
    repo.leave("billing", "tests", 1, {"money.py": "\x1b[2Jone = 1\ntotal = round(total, 2)\n"})
    live = console("watch", size=(80, 24))
    live.choose("billing/tests")
    text = reviewed(live, "money.py", "1 file  +2 -0")
    assert "^[[2Jone = 1" in text
    comment(live, "gg" + "jjj", "Half-even is meant")
    repo.leave("billing", "tests", 1, {"money.py": "\x1b[2Jone = 1\ntotal = round(total, 3)\n"})
    live.press("bNearly.")
    live.until(lambda shown: "money.py:2: Half-even is meant" in shown and "Nearly._" in shown)
    live.press("\r")
    live.until(lambda _: "the work has changed since it was shown; nothing was sent" in live.foot())
    assert owner.tasks()["tests"].status == "FAILED"
    live.press("v")
    live.until(
        lambda text: "round(total, 3)" in text and "1 comment on what it was before: gone" in live.foot()
    )
    assert "»" not in live.text(), "what was said of other lines is not said of these"
    comment(live, "gg" + "jjj", "Half-even is meant")
    live.press("bNearly.\r")
    live.until(lambda _: "billing/tests: Send back: done" in live.foot())
    live.press("q")
    assert live.ends() == 0
    lines = ["Your work was looked at (attempt 1).", "", "Nearly.", ""]
    lines += ["money.py:2: total = round(total, 3)", "Half-even is meant"]
    assert owner.claim("again")["tests"].note == "\n".join(lines)


def test_the_branch_of_a_plan_is_merged_once_it_was_shown_what_comes(owner, console):
    repo = with_repository(owner)
    repo.publish("billing", "tests", {"money.py": "one = 1\n"})
    live = console("watch")
    live.until(lambda text: "● live" in text)
    live.press("gpM")
    live.until(lambda text: "1 commit, 1 file from muster/plan/billing into main:" in text)
    assert "billing/tests: tests" in live.text() and not (repo.root / "money.py").exists()
    live.press("y")
    live.until(lambda _: "billing: Merge: done" in live.foot())
    assert (repo.root / "money.py").read_text() == "one = 1\n"
    live.press("M")
    live.until(lambda _: "there is nothing to merge: main has all of muster/plan/billing" in live.foot())


def test_what_was_not_shown_is_not_merged_but_shown_then(owner, console):
    repo = with_repository(owner)
    repo.publish("billing", "tests", {"money.py": "one = 1\n"})
    live = console("watch")
    live.until(lambda text: "● live" in text)
    live.press("gpM")
    live.until(lambda text: "1 commit, 1 file from muster/plan/billing into main:" in text)
    repo.publish("billing", "api", {"late.py": "two = 2\n"})
    live.press("y")
    live.until(lambda text: "2 commits, 2 files from muster/plan/billing into main:" in text)
    assert "has changed since you looked" in " ".join(live.text().split())
    assert not (repo.root / "money.py").exists()
    live.press("y")
    live.until(lambda _: "billing: Merge: done" in live.foot())
    assert (repo.root / "late.py").read_text() == "two = 2\n"


def test_work_that_is_nowhere_is_said_to_be(owner, console):
    live = console("watch")
    live.choose("billing/tests")
    live.press("v")
    live.until(lambda _: "is in no git repository here" in live.foot())


def for_review(owner, key="api"):
    """Its attempt has left work that waits for a person."""
    task = owner.tasks()[key]
    words = "its work is for you to review"
    owner.do(c.Fail(task_id=task.id, epoch=task.epoch, kind="review", message=words))


def test_work_is_not_accepted_over_comments_that_nobody_was_sent(owner, console):
    repo = with_repository(owner)
    for_review(owner)
    repo.leave("billing", "api", 1, {"money.py": "one = 1\ntotal = round(total, 2)\n"})
    live = console("watch", size=(100, 24))
    live.choose("billing/api")
    reviewed(live, "money.py", "1 file  +2 -0")
    comment(live, "gg" + "jjj", "Half-even is meant")
    refused = "what you wrote was not sent, and nobody would read it; nothing was accepted"
    for keys in ("y", "\x1by", "*y"):
        live.press(keys)
        live.until(lambda text: refused in " ".join(text.split()))
        assert owner.tasks()["api"].status == "PAUSED"
    for keys, asked in (("c", "cancel"), ("p", "resume"), ("q", "leave")):
        live.press(keys)
        live.until(lambda text, asked=asked: UNSENT_ONE in text and f" {asked} " in live.foot())
        live.press("n")
        live.until(lambda _: "nothing was changed" in live.foot())
    live.press("bNearly.\r")
    live.until(lambda _: "billing/api: Send back: done" in live.foot())
    live.press("q")
    assert live.ends() == 0, "all that was written is sent: it asks no more"
    assert "money.py:2: total = round(total, 2)\nHalf-even is meant" in owner.claim("again")["api"].note


UNSENT_ONE = "1 comment: what you wrote was not sent, and nobody would read it"


def test_work_is_accepted_once_its_comments_were_emptied(owner, console):
    repo = with_repository(owner)
    for_review(owner)
    repo.leave("billing", "api", 1, {"money.py": "one = 1\ntotal = round(total, 2)\n"})
    live = console("watch")
    live.choose("billing/api")
    reviewed(live, "money.py", "1 file  +2 -0")
    comment(live, "gg" + "jjj", "Half-even")
    live.press("y")
    live.until(lambda text: "nothing was accepted" in text)
    live.press("\r")
    live.until(lambda shown: "Comment on money.py:2" in shown)
    live.press("\x15\r")
    live.until(lambda shown: "»" not in shown)
    live.press("yy")
    live.until(lambda _: "billing/api: Accept the result: done" in live.foot())
    live.press("q")
    assert live.ends() == 0
