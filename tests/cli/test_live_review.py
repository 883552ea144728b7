"""Work is looked at in the live watch, and goes back to its agent from there."""

from __future__ import annotations

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
    reviewed(live, "round(total, 3)")
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


def test_work_that_is_nowhere_is_said_to_be(owner, console):
    live = console("watch")
    live.choose("billing/tests")
    live.press("v")
    live.until(lambda _: "is in no git repository here" in live.foot())
