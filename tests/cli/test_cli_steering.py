"""`muster task add` and the verbs that steer tasks, `inbox`, `answer`, `dead`, `report ask`."""

from __future__ import annotations

import json

import pytest

from muster.model import commands as c
from muster.model.states import ErrorKind


def test_add_with_everything(cli, owner):
    ran = cli(
        *("task", "add", "Build it", "--prompt", "-", "--plan", "loose", "--key", "k", "--after", "api,docs"),
        *("--cap", "rust", "--cap", "go", "--profile", "writer", "--priority", "9", "--delay", "30s"),
        *("--expires", "2h", "--on-failed", "run", "--tag", "x", "--tag", "y", "--meta", "team=a=b"),
        *("--parent", "model", "--limit-key", "gpu", "--json"),
        stdin=b"the prompt\n",
    )
    assert (ran.code, ran.err) == (0, "")
    task = json.loads(ran.out)
    assert task["added"] is True
    seen = owner.tasks()["k"]
    assert (seen.plan, seen.title, seen.description, seen.priority) == (
        "loose",
        "Build it",
        "the prompt\n",
        9,
    )
    assert (seen.capabilities, seen.profile, seen.limit_key) == (("go", "rust"), "writer", "gpu")
    assert (seen.tags, seen.metadata, seen.on_failed) == (("x", "y"), {"team": "a=b"}, "run")
    assert seen.parent_task_id == owner.tasks()["model"].id
    assert set(seen.waits_for) == {"api", "docs"}
    assert seen.expires_at_ms - seen.next_attempt_at_ms == 7_170_000


def test_add_says_where_it_stands_and_why(cli, owner):
    ran = cli("task", "add", "Just this")
    assert ran.code == 0
    key = "just-this"
    assert f"tasks/{key}  added  (" in ran.out
    assert "tasks/just-this-2  added  (" in cli("task", "add", "Just: this!").out
    assert "tasks/task  added  (" in cli("task", "add", "?!").out
    long = cli("task", "add", "A title of so many words that no key could hold them all").out
    assert "tasks/a-title-of-so-many-words-that-no-key  added" in long
    ran = cli("task", "add", "And then", "--after", f"tasks/{key},{key}")
    assert (ran.code, f"waits for {key}" in ran.out) == (0, True)
    assert cli("task", "show", f"elsewhere/{key}").code == 3


def test_add_once(cli, owner):
    argv = ("task", "add", "Once", "--idempotency-key", "i1", "--agent", "shell")
    assert "added" in cli(*argv).out
    before = owner.fingerprint()
    assert "was there already" in cli(*argv).out
    assert cli("task", "add", "Other", "--idempotency-key", "i1").code == 6
    assert owner.fingerprint() == before


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "TITLE"),
        ((" ",), 2, "the title is empty"),
        (("t", "--priority", "11"), 2, "not a number from 1 to 10"),
        (("t", "--delay", "soon"), 2, "not a duration"),
        (("t", "--expires", "-1s"), 2, "expires"),
        (("t", "--on-failed", "explode"), 2, "is not block, skip or run"),
        (("t", "--meta", "novalue"), 2, "is not KEY=VALUE"),
        (("t", "--meta", "a=1", "--meta", "a=2"), 2, "given twice"),
        (("t", "--after", "model,,api"), 2, "is not a task, or several"),
        (("t", "--after", "nowhere"), 3, "there is no task 'nowhere'"),
        (("t", "--after", "api#1"), 2, "names an attempt"),
        (("t", "--parent", "nowhere"), 3, "there is no task 'nowhere'"),
        (("t", "--agent", "nobody"), 3, "there is no agent nobody"),
        (("t", "--tag", ""), 2, "is not a name"),
        (("t", "--key", "k" * 201), 2, "is not a name of 1 to 200 characters"),
    ],
)
def test_a_wrong_add_adds_nothing(refused, owner, argv, code, message):
    assert "hint" in refused("task", "add", *argv, code=code, message=message).err


def test_add_refuses_a_prompt_that_is_no_text(cli, owner):
    before = owner.fingerprint()
    ran = cli("task", "add", "t", "--prompt", "-", stdin=b"\xff\xfe")
    assert (ran.code, owner.fingerprint()) == (2, before)
    assert "not UTF-8" in ran.err


def test_pause_and_resume(cli, owner):
    assert "billing/other  paused" in cli("task", "pause", "other").out
    assert "was paused already" in cli("task", "pause", "other").out
    assert "muster task resume billing/other" in cli("task", "show", "other").out
    assert "billing/other  goes on" in cli("task", "resume", "other").out
    assert "attempt 1 saves a checkpoint and stops" in cli("task", "pause", "api").out
    assert "goes on once its attempt has stopped" in cli("task", "resume", "api").out
    assert owner.tasks()["other"].status == "PENDING"


def test_a_dependency_that_comes_later(cli, owner):
    assert "billing/other  waits for billing/api" in cli("task", "depend", "other", "--on", "api").out
    assert owner.tasks()["other"].unmet == 1
    refused = cli("task", "depend", "tests", "--on", "docs", "--on", "tests")
    assert refused.code == 2 and "cycle" in refused.err


def test_skip_complete_archive_transfer(cli, owner):
    assert "billing/tests  skipped" in cli("task", "skip", "tests", "--reason", "no").out
    assert "was skipped already" in cli("task", "skip", "tests").out
    assert "billing/other  completed" in cli("task", "complete", "other").out
    assert "billing/other  archived" in cli("task", "archive", "other").out
    assert "goes to shell once attempt 1 has stopped" in cli("task", "transfer", "api", "--to", "shell").out
    tasks = owner.tasks()
    assert (tasks["tests"].status, tasks["other"].status, tasks["docs"].unmet) == ("CANCELLED", "ARCHIVED", 1)


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("resume", "other"), 6, "not paused"),
        (("pause", "model"), 6, "cannot be paused"),
        (("skip", "model"), 6, "cannot be skipped"),
        (("archive", "api"), 6, "only what has ended"),
        (("complete", "api"), 6, "completes what is PENDING"),
        (("transfer", "model", "--to", "shell"), 6, "cannot be transferred"),
        (("transfer", "api", "--to", "nobody"), 3, "there is no agent nobody"),
        (("transfer", "api"), 2, "--to"),
        (("depend", "other", "--on", "other"), 2, "other -> other"),
        (("depend", "api", "--on", "other"), 6, "pause it first"),
        (("depend", "other", "--on", "nowhere"), 3, "there is no task 'nowhere'"),
        (("depend", "other"), 2, "--on"),
        (("pause", "nowhere"), 3, "there is no task 'nowhere'"),
        (("skip", "api#1"), 2, "names an attempt"),
        (("retry", "tests", "--from", "middle"), 2, "is not one of checkpoint, start"),
    ],
)
def test_a_wrong_move_changes_nothing(refused, owner, argv, code, message):
    refused("task", *argv, code=code, message=message)


def test_retry_from_the_start(cli, owner):
    assert cli("report", "checkpoint", "--text", "old", env=owner.inside()).code == 0
    api = owner.tasks()["api"]
    owner.do(c.Cancel(task_id=api.id, actor="me"))
    assert cli("task", "retry", "api", "--from", "start").code == 0
    owner.do(c.ProcessesExited(task_id=api.id, epoch=api.epoch))
    assert owner.claim("r9")["api"].checkpoint is None


def test_a_question_goes_to_the_inbox_and_its_answer_to_the_next_attempt(cli, owner):
    assert cli("report", "ask", "which schema?", env=owner.inside()).code == 0
    inbox = cli("inbox")
    assert inbox.code == 0
    assert "asks: which schema?" in inbox.out and "muster answer billing/api TEXT" in inbox.out
    assert "muster task retry billing/tests" in inbox.out
    rows = json.loads(cli("inbox", "--json").out)
    assert [row["key"] for row in rows] == ["api", "tests", "docs", "other"]
    assert rows[2]["next"] == "muster task retry billing/tests", "what stands in its way"
    needs = json.loads(cli("status", "--json").out)["needsPerson"]
    assert [need["ref"] for need in needs] == [f"billing/{row['key']}" for row in rows]
    assert "muster answer billing/api TEXT" in cli("task", "show", "api").out
    assert cli("task", "resume", "api").code == 6
    ran = cli("answer", "api", "the new one")
    assert (ran.code, "billing/api  answered" in ran.out) == (0, True)
    api = owner.tasks()["api"]
    assert "until the processes of attempt 1 have stopped" in cli("task", "show", "api").out
    owner.do(c.ProcessesExited(task_id=api.id, epoch=api.epoch))
    assert owner.claim("r9")["api"].note == "You asked: which schema?\nThe answer: the new one"
    assert cli("report", "progress", "1", env=owner.inside()).code == 6


def test_an_answer_is_one_thing_for_programs(cli, owner):
    assert cli("report", "ask", "which schema?", env=owner.inside()).code == 0
    told = json.loads(cli("answer", "api", "the new one", "--json").out)
    assert (told["ref"], told["previousStatus"], told["status"]) == ("billing/api", "PAUSED", "PENDING")
    again = cli("answer", "api", "the old one", "--json")
    assert (again.code, again.out) == (6, "")


def test_what_a_mistyped_reference_means_is_suggested(cli, owner):
    for words in (("task", "show", "billing/ap1"), ("task", "cancel", "testz"), ("logs", "doc")):
        ran = cli(*words)
        assert ran.code in (0, 3), ran.err
        assert ran.code == 0 or "did you mean 'billing/" in ran.err, ran.err
    assert "did you mean" not in cli("task", "show", "something-else-altogether").err


def test_an_inbox_of_a_plan_that_is_not_there(cli, owner):
    ran = cli("inbox", "--plan", "biling")
    assert (ran.code, ran.raw) == (3, b"")
    assert "there is no plan 'biling'; did you mean 'billing'?" in ran.err


def test_a_refused_login_is_in_the_inbox_though_the_settings_have_a_typo(cli, owner):
    api = owner.tasks()["api"]
    owner.do(c.Fail(task_id=api.id, epoch=api.epoch, kind=ErrorKind.AUTH, message="no login"))
    (owner.root / "muster.toml").write_text("[task]\nretris = 3\n")
    ran = cli("inbox")
    assert (ran.code, "then muster agent resume shell" in ran.out) == (0, True), ran.err


def test_an_inbox_that_was_cut_says_so(cli, owner, monkeypatch):
    assert cli("inbox").err == ""
    monkeypatch.setattr("muster.engine.needy.CALLING_MAX", 1)
    for argv in (("inbox",), ("inbox", "--json"), ("inbox", "--fields", "ref")):
        said = "note: more waits for you than was looked at: `muster task list --status paused failed`\n"
        assert cli(*argv).err == said
    monkeypatch.setattr("muster.engine.needy.CALLING_MAX", 0)
    assert "nothing waits for you" not in cli("inbox").out


def test_an_inbox_with_nothing_in_it(cli, empty):
    assert cli("inbox").out == "nothing waits for you\n"
    assert cli("inbox", "--json").out == "[]\n"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("answer", "api", "x"), 6, "has asked nothing"),
        (("answer", "api", " "), 2, "the answer has"),
        (("answer", "api", "x" * 10_001), 2, "the answer has 10001 characters"),
        (("answer", "nowhere", "x"), 3, "there is no task"),
        (("answer", "api"), 2, "TEXT"),
        (("dead", "retry"), 2, "say which"),
        (("dead", "discard"), 2, "say which"),
        (("dead", "retry", "tests", "--all"), 2, "say which"),
        (("dead", "retry", "api"), 6, "it is RUNNING, not FAILED"),
        (("dead", "discard", "model"), 6, "it is COMPLETED, not FAILED"),
        (("dead", "list", "--plan", "nowhere"), 3, "there is no plan"),
        (("dead", "discard", "--plan", "nowhere"), 3, "there is no plan"),
    ],
)
def test_wrong_words_change_nothing(refused, owner, argv, code, message):
    refused(*argv, code=code, message=message)


def test_an_empty_question_is_not_asked(cli, owner):
    before = owner.fingerprint()
    assert cli("report", "ask", " ", env=owner.inside()).code == 2
    assert owner.fingerprint() == before


def test_the_dead_are_listed_retried_and_discarded(cli, owner):
    listed = cli("dead", "list")
    assert (listed.code, "billing/tests" in listed.out, "api" in listed.out.replace("billing/api", "")) == (
        0,
        True,
        False,
    )
    assert [task["key"] for task in json.loads(cli("dead", "list", "--json", "--plan", "billing").out)] == [
        "tests"
    ]
    assert "starts anew (generation 2)" in cli("dead", "retry", "--plan", "billing", "--note", "again").out
    assert cli("dead", "list").out == "no task has failed\n"
    job = owner.claim("r9")["tests"]
    assert job.note == "again"
    owner.do(c.Fail(task_id=job.task_id, epoch=job.epoch, kind="invalid", message="no"))
    assert "billing/tests  discarded" in cli("dead", "discard", "--all").out
    assert owner.tasks()["tests"].status == "ARCHIVED"


def test_what_a_single_task_may_be_told(cli, owner):
    more = ("--target", "prod", "--estimated", "20m", "--sort", "-2", "--timeout", "1h", "--retries", "0")
    assert cli("task", "add", "X", "--key", "x", *more).code == 0
    seen = owner.tasks()["x"]
    assert (seen.target, seen.estimated_s, seen.max_retries) == ("prod", 1200, 0)
    kept = {task["key"]: task for task in json.loads(cli("api", "GET", "/api/v1/plans/tasks/tasks").out)}["x"]
    assert (kept["timeoutS"], kept["sortKey"]) == (3600, -2)
    cleared = ("--target", "", "--estimated", "", "--delay", "1h", "--expires", "2h")
    assert cli("task", "edit", "tasks/x", *cleared).code == 0
    seen = owner.tasks()["x"]
    assert (seen.target, seen.estimated_s) == (None, None)
    assert seen.expires_at_ms - seen.next_attempt_at_ms == pytest.approx(3_600_000, abs=1000)
    assert cli("task", "edit", "tasks/x", "--delay", "").code == 0
    assert owner.tasks()["x"].next_attempt_at_ms is None


def test_a_single_task_has_the_limits_of_the_settings_whoever_adds_it(cli, root):
    (root / "muster.toml").write_text('[task]\nretries = 1\ntimeout = "9m"\n')
    assert cli("task", "add", "X").code == 0
    body = json.dumps({"actor": "user:ann", "title": "Y"})
    assert cli("api", "POST", "/api/v1/agent-tasks", "--data", body).code == 0
    kept = json.loads(cli("api", "GET", "/api/v1/plans/tasks/tasks").out)
    assert [(task["timeoutS"], task["maxRetries"]) for task in kept] == [(540, 1)] * 2


def test_a_delayed_task_is_added_once_however_late_it_is_repeated(cli, owner):
    words = ("task", "add", "Later", "--delay", "1h", "--idempotency-key", "k")
    assert cli(*words).code == 0
    ran = cli(*words)
    assert (ran.code, "was there already" in ran.out) == (0, True)


def test_a_dry_run_of_a_single_task_says_who_would_get_it_and_why(cli, owner):
    agents = (
        "claude.command = ['claude']\ncodex.command = ['codex']\ncodex.profiles = ['testing-specialist']\n"
    )
    (owner.root / "muster.toml").write_text(f"[agents]\n{agents}codex.targets = ['prod']\n")
    before = owner.fingerprint()

    def told(*words):
        return json.loads(cli("task", "add", *words, "--dry-run", "--json").out)["tasks"][0]

    row = told("Write tests")
    assert (row["agents"], row["profile"]) == (["codex", "claude"], "testing-specialist")
    assert row["why"] == "words: test; codex offers it"
    assert told("Look", "--target", "prod")["agents"] == ["codex"]
    assert (
        told("Look", "--target", "moon")["why"] == "nobody offers target moon: it waits until somebody does"
    )
    assert told("Look", "--agent", "claude")["why"] == "agent= names it"
    none = "it names no agent and there is none for such tasks: set `agent` in muster.toml"
    (owner.root / "muster.toml").unlink()
    assert told("Look")["why"] == none
    (owner.root / "muster.toml").write_text(f"[agents]\n{agents}codex.targets = ['prod']\n")
    text = cli("task", "add", "Write tests", "--dry-run").out
    assert "testing-specialist" in text and text.endswith("nothing was changed\n")
    ran = cli("task", "add", "Write tests", "--agent", "gost", "--dry-run")
    assert (ran.code, "there is no agent gost" in ran.err) == (3, True)
    assert cli("task", "add", "X", "--dry-run", "--wait").code == 2
    assert owner.fingerprint() == before


def test_a_refusal_calls_the_task_by_its_name_and_says_what_to_do(cli, owner):
    tasks = owner.tasks()
    for words, expected, hint in (
        (("answer", "api", "x"), "billing/api has asked nothing; it is RUNNING; nothing was", "muster inbox"),
        (("task", "complete", "api"), "billing/api is RUNNING: a person", "muster task pause billing/api"),
        (
            ("task", "resume", "other"),
            "billing/other is PENDING, not paused; nothing was",
            "show billing/other",
        ),
        (("task", "edit", "api", "--title", "x"), "billing/api runs, and its agent", "pause billing/api"),
        (("plan", "resume", "billing"), "plan billing is not paused; nothing was", "muster plan list"),
    ):
        ran = cli(*words)
        assert (ran.code, expected in ran.err, hint in ran.err) == (6, True, True), ran.err
        assert not any(str(task.id) in ran.err for task in tasks.values()), ran.err


def test_what_was_archived_is_not_said_to_end_some_day(cli, owner):
    assert cli("task", "archive", "model").code == 0
    ran = cli("task", "retry", "model")
    assert ran.code == 6
    assert "billing/model is ARCHIVED" in ran.err and "muster task add TITLE --key KEY" in ran.err
    assert "wait until" not in ran.err


def test_show_tells_the_prompt_and_what_was_asked_for(cli, owner):
    cli(
        *("task", "add", "Build it", "--prompt", "-", "--plan", "loose", "--key", "k", "--cap", "rust"),
        *("--priority", "9", "--tag", "x", "--meta", "team=a", "--on-failed", "run", "--agent", "shell"),
        stdin=b"".join(b"line %d\n" % number for number in range(40)),
    )
    out = cli("task", "show", "k").out
    said = "agent=shell  cap=rust  priority=9  on-failed=run  tags=x  meta=team=a"
    assert [line.split(None, 2)[2] for line in out.splitlines() if line.startswith("Asks for")] == [said]
    assert "Prompt" in out and "line 11" in out and "line 12" not in out and "all of it: --json" in out
    plain = cli("task", "show", "billing/model").out
    assert "Asks for" not in plain and "Prompt" not in plain


def test_what_to_do_next_can_be_pasted_whatever_the_key_is(cli, owner):
    cli("task", "add", "Odd", "--plan", "loose", "--key", "two words")
    assert "muster task cancel 'loose/two words'" in cli("task", "show", "loose/two words").out
