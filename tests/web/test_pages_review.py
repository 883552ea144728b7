"""Work is looked at on a page, and goes on or back from there: by forms alone, with the rules of the API."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from far_servers import SECRET, FarOwner, far_owner
from muster.model import commands as c
from muster.model.access import Role
from muster.web.pages import diff_rows
from page_reader import Reader, Shown
from reviewed_work import Repo, with_repository

HOSTILE = (
    "<script>alert(1)</script>\n\x1b[31mred\x1b]8;;http://evil\x07link\n"
    "if admin\u202e == \u2066user\u2069:\nzero\u200bwidth\ufeff\n" + "x" * 50_000 + "\n"
)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[FarOwner]:
    with far_owner(tmp_path / "project") as made:
        yield made


@pytest.fixture
def repo(far: FarOwner) -> Repo:
    return with_repository(far)


def signed_in(far: FarOwner, secret: str = SECRET) -> Reader:
    reader = Reader(int(far.url.rpartition(":")[2]))
    asked = reader.ask("POST", "/api/v1/sign-in-links", b"{}", Authorization=f"Bearer {secret}")
    link = reader.get(json.loads(asked.text)["path"])
    reader.send(link.form("Sign in"))
    return reader


def of_api(far: FarOwner, method: str, path: str, **body: str) -> Shown:
    data = json.dumps(body).encode() if body else b""
    return Reader(int(far.url.rpartition(":")[2])).ask(method, path, data, Authorization=f"Bearer {SECRET}")


def note_of(far: FarOwner, key: str) -> str:
    (job,) = [job for name, job in far.claim(f"claim-{key}").items() if name == key]
    note: str = job.note
    return note


def test_a_diff_is_shown_and_all_of_it_is_harmless(far: FarOwner, repo: Repo) -> None:
    number = far.tasks()["tests"].id
    repo.leave("billing", "tests", 1, {"kept.py": HOSTILE, '"><img src=x>.py': "new\n"})
    reader = signed_in(far)
    assert f"/tasks/{number}/review" in reader.get(f"/tasks/{number}").text
    shown = reader.get(f"/tasks/{number}/review")
    assert shown.status == 200
    text = shown.text
    assert "<script>alert" not in text and "<img" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "^[[31mred^[]8;;http://evil^Glink" in text, "escapes are shown, and do nothing"
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\u2066", "\u200b", "\ufeff"}
    for name in ("202E", "2066", "2069", "200B", "FEFF"):
        assert f"&lt;{name}&gt;" in text
    assert f"{50_000 - diff_rows.LINE_CHARS_MAX} more characters" in text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", text)


def test_comments_on_lines_are_the_note_of_the_next_attempt(far: FarOwner, repo: Repo) -> None:
    number = far.tasks()["tests"].id
    lines = [f"line_{at} = {at}\n" for at in range(40)]
    repo.leave("billing", "tests", 1, {"kept.py": "".join([*lines[:5], "five = 'V'\n", *lines[6:]])})
    reader = signed_in(far)
    form = reader.get(f"/tasks/{number}/review").form("Add comment")
    once = reader.send(form, do="add", at="0+6", new="No romans, please")
    assert once.status == 200 and "Comment on kept.py:6" in once.text and "autofocus" in once.text
    assert far.tasks()["tests"].status == "FAILED", "nothing is sent by that"
    held = {"text.0+6": "No romans, please"}
    twice = reader.send(form, do="add", at="0-6", new="Why was it\r\nwrong?", **held)
    assert "No romans, please" in twice.text and "a line that is gone" in twice.text
    held["text.0-6"] = "Why was it\nwrong?"
    after = reader.send(form, do="back", words="Nearly.", **held)
    assert after.path == f"/tasks/{number}?done=send-back" and "Send back: done." in after.text
    assert far.tasks()["tests"].status == "PENDING"
    assert note_of(far, "tests").split("\n") == [
        "Your work was looked at (attempt 1).",
        *("", "Nearly.", "", "kept.py:6: five = 'V'", "No romans, please"),
        *("", "kept.py:6 (a line that is gone): line_5 = 5", "Why was it", "wrong?"),
    ]


def test_what_was_written_is_given_back_where_it_cannot_be_sent(far: FarOwner, repo: Repo) -> None:
    number = far.tasks()["tests"].id
    repo.leave("billing", "tests", 1, {"kept.py": "one\n"})
    reader = signed_in(far)
    form = reader.get(f"/tasks/{number}/review").form("Add comment")
    nothing = reader.send(form, do="back")
    assert nothing.status == 200 and "nothing is said of it; nothing was sent" in nothing.text
    repo.leave("billing", "tests", 1, {"kept.py": "another\n"})
    moved = reader.send(form, do="back", **{"text.0+1": "This <one>"})
    assert "the work has changed since" in moved.text and "This &lt;one&gt;" in moved.text
    assert far.tasks()["tests"].status == "FAILED"
    fresh = reader.get(f"/tasks/{number}/review").form("Add comment")
    far.do(c.Retry(task_id=number, actor="user:ann"))
    late = reader.send(fresh, do="back", words="Too late")
    assert "nothing was" in late.text and "Too late" in late.text


def test_work_that_waits_for_a_person_is_approved(far: FarOwner, repo: Repo) -> None:
    number = far.tasks()["api"].id
    repo.leave("billing", "api", 1, {"kept.py": "one\n"})
    words = "its work is for you to review"
    far.do(c.Fail(task_id=number, epoch=1, kind="review", message=words))
    reader = signed_in(far)
    assert f"/tasks/{number}/review" in reader.get("/inbox").text
    attempts = reader.get(f"/tasks/{number}").text
    assert "for review</span>" in attempts and "✗" not in attempts
    shown = reader.get(f"/tasks/{number}/review")
    form = shown.form("Add comment")
    written = {"text.0+1": "Not so"}
    for more in (written, {"words": "Nearly"}, {"new": "On no line"}):
        kept = reader.send(form, do="accept", **more)
        assert "nothing was accepted" in kept.text and next(iter(more.values())) in kept.text
        assert far.tasks()["api"].status == "PAUSED"
    after = reader.send(form, do="accept")
    assert after.path == f"/tasks/{number}?done=approve" and "Approve: done." in after.text
    task = far.tasks()["api"]
    assert (task.status, "accept" in task.actions) == ("PENDING", False)


def test_a_viewer_reads_and_writes_nothing(far: FarOwner, repo: Repo) -> None:
    number = far.tasks()["tests"].id
    repo.leave("billing", "tests", 1, {"kept.py": "one\n"})
    repo.publish("billing", "model", {"model.py": "x = 1\n"})
    writing = signed_in(far).get(f"/tasks/{number}/review").form("Add comment")
    far.token("mst_viewer", Role.VIEWER)
    reader = signed_in(far, "mst_viewer")
    for path in (f"/tasks/{number}/review", "/plans/billing/review"):
        shown = reader.get(path)
        assert shown.status == 200 and 'type="radio"' not in shown.text and "<textarea" not in shown.text
        assert "Send back" not in shown.text and "Approve" not in shown.text and "…</a>" not in shown.text
    own = reader.get(f"/tasks/{number}/review").form("Sign out").fields["csrf"]
    refused = reader.post(
        f"/tasks/{number}/review", {**writing.fields, "csrf": own, "do": "back", "words": "No"}
    )
    assert "this token counts only as VIEWER" in refused.text
    for path in ("/plans/billing/merge", "/plans/billing/pull-request", f"/tasks/{number}/pull-request"):
        assert reader.get(path).status == 403
    assert far.tasks()["tests"].status == "FAILED"


def test_comments_of_a_plan_go_to_the_tasks_whose_lines_they_are(far: FarOwner, repo: Repo) -> None:
    repo.publish("billing", "model", {"model.py": "x = 1\ny = 2\n"})
    repo.publish("billing", "tests", {"test_model.py": "assert x\n", "model.py": "x = 1\ny = 3\n"})
    reader = signed_in(far)
    assert "/plans/billing/review" in reader.get("/plans/billing").text
    shown = reader.get("/plans/billing/review")
    assert [html.unescape(name) for name in re.findall(r'<h2 id="file-\d">([^<]+)', shown.text)] == [
        "model.py",
        "test_model.py",
    ]
    form = shown.form("Add comment")
    said = {"text.0+1": "Name it", "text.0+2": "Why 3?", "text.1+1": "More"}
    after = reader.send(form, do="back", **said)
    assert after.path == "/plans/billing?done=review", after.text
    tasks = far.tasks()
    assert (tasks["model"].status, tasks["tests"].status) == ("PENDING", "PENDING")
    jobs = far.claim("both")
    assert "model.py:1: x = 1\nName it" in jobs["model"].note and "Why 3?" not in jobs["model"].note
    assert "model.py:2: y = 3\nWhy 3?" in jobs["tests"].note and "test_model.py:1" in jobs["tests"].note


def test_a_plan_is_merged_from_its_page(far: FarOwner, repo: Repo) -> None:
    repo.publish("billing", "model", {"model.py": "x = 1\n"})
    reader = signed_in(far)
    asked = reader.get("/plans/billing/merge")
    assert "1 commit, 1 file" in asked.text and "billing/model" in asked.text
    assert not (far.root / "model.py").exists(), "a GET changes nothing"
    after = reader.send(asked.form("Merge"))
    assert after.path == "/plans/billing?done=merge" and "Merge: done." in after.text
    assert (far.root / "model.py").read_text() == "x = 1\n"
    merged = reader.get("/plans/billing/review").text
    assert "All of it is merged" in merged and "Nothing was changed" not in merged
    assert not any(word in merged for word in ("Merge…", "Pull request…", "Send back", "0 files"))
    assert repo.git("log", "-1", "--format=%s") == "Merge plan billing (muster/plan/billing)"
    assert "There is nothing to merge" in reader.get("/plans/billing/merge").text


def of_the_branch(repo: Repo) -> None:
    repo.publish("billing", "tests", {"late.py": "z = 1\n"})


def of_the_checkout(repo: Repo) -> None:
    repo.git("switch", "-qc", "release")


def of_its_past(repo: Repo) -> None:
    """The branch of the plan began on what the user's has no longer."""
    repo.git("reset", "-q", "--hard", "main~1")


@pytest.mark.parametrize(
    ("change", "told", "shown"),
    [
        (of_the_branch, "muster/plan/billing is at", "2 commits, 2 files"),
        (of_the_checkout, "it would go into release, and not into main", "into <code>release</code>"),
        (of_its_past, "main has not all that it had then", "2 commits, 2 files"),
    ],
)
def test_what_a_page_has_not_shown_is_not_merged_from_it(
    far: FarOwner, repo: Repo, change: Callable[[Repo], None], told: str, shown: str
) -> None:
    (far.root / "mine.py").write_text("y = 1\n")
    repo.git("add", "mine.py")
    repo.git("commit", "-qm", "mine")
    repo.publish("billing", "model", {"model.py": "x = 1\n"})
    reader = signed_in(far)
    asked = reader.get("/plans/billing/merge")
    change(repo)
    head = repo.git("rev-parse", "HEAD")
    refused = reader.send(asked.form("Merge"))
    assert refused.status == 412 and told in html.unescape(refused.text), refused.text
    assert "nothing was changed" in refused.text and shown in refused.text
    assert repo.git("rev-parse", "HEAD") == head and not (far.root / "model.py").exists()
    after = reader.send(refused.form("Merge"))
    assert "Merge: done." in after.text and (far.root / "model.py").exists()


def test_a_merge_goes_into_a_branch_that_has_gone_forward_since(far: FarOwner, repo: Repo) -> None:
    """It brings nothing that was not shown."""
    repo.publish("billing", "model", {"model.py": "x = 1\n"})
    reader = signed_in(far)
    asked = reader.get("/plans/billing/merge")
    repo.git("commit", "-q", "--allow-empty", "-m", "mine")
    assert "Merge: done." in reader.send(asked.form("Merge")).text
    again = reader.send(asked.form("Merge"))
    assert again.status == 200, "sent twice it finds nothing more to do"


def test_a_program_may_say_what_it_has_seen_of_a_merge(far: FarOwner, repo: Repo) -> None:
    repo.publish("billing", "model", {"model.py": "x = 1\n"})
    tip, path = repo.git("rev-parse", "muster/plan/billing"), "/api/v1/plans/billing/merge"
    coming = json.loads(of_api(far, "GET", path).text)
    assert (coming["tip"], coming["into"], coming["onto"]) == (tip, "main", repo.git("rev-parse", "main"))
    seen = {"seenTip": tip, "seenInto": "main", "seenOnto": coming["onto"]}
    for name, other in (
        ("seenTip", coming["onto"]),
        ("seenInto", "dev"),
        ("seenInto", ""),
        ("seenOnto", "-v"),
    ):
        refused = of_api(far, "POST", path, actor="a", **{**seen, name: other})
        assert refused.status == 412 and "nothing was changed" in refused.text, name
    done = of_api(far, "POST", path, actor="a", seenInto="main")
    assert json.loads(done.text)["commit"] == repo.git("rev-parse", "HEAD")


def test_a_merge_with_conflicts_is_left_to_who_is_there(far: FarOwner, repo: Repo) -> None:
    repo.publish("billing", "model", {"kept.py": "theirs\n"})
    (far.root / "kept.py").write_text("ours\n")
    repo.git("commit", "-qam", "ours")
    reader = signed_in(far)
    asked = reader.get("/plans/billing/merge")
    assert "There would be conflicts in kept.py" in asked.text
    refused = reader.send(asked.form("Merge"))
    assert refused.status == 409 and "nothing was changed" in refused.text
    assert "What you wrote" not in refused.text
    assert (far.root / "kept.py").read_text() == "ours\n" and not repo.git("status", "--porcelain")


def test_a_large_diff_is_shown_in_parts_and_comments_stay(
    far: FarOwner, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_rows, "LINES_MAX", 100)
    number = far.tasks()["tests"].id
    many = "".join(f"row {at}\n" for at in range(90))
    repo.leave("billing", "tests", 1, {"a.txt": many, "b.txt": many, "c.txt": many * 3})
    reader = signed_in(far)
    shown = reader.get(f"/tasks/{number}/review")
    assert '<h2 id="file-0">' in shown.text and '<h2 id="file-1">' not in shown.text
    form = shown.form("More files")
    second = reader.send(form, do="show:1", **{"text.0+7": "Of the first"})
    assert '<h2 id="file-1">' in second.text and "Comments on files that are not on this page" in second.text
    assert "Of the first" in second.text
    third = reader.get(f"/tasks/{number}/review?first=2")
    assert "171 more lines" in third.text


def test_it_says_why_there_is_nothing_to_look_at(far: FarOwner) -> None:
    reader = signed_in(far)
    tasks = far.tasks()
    assert "/review" not in reader.get(f"/tasks/{tasks['tests'].id}").text
    assert "is in no git repository here" in reader.get(f"/tasks/{tasks['tests'].id}/review").text
    with_repository(far)
    assert "it has not run yet" in reader.get(f"/tasks/{tasks['docs'].id}/review").text
    none = reader.get(f"/tasks/{tasks['tests'].id}/review")
    assert none.status == 200 and "no work of billing/tests#1 is kept" in none.text
    of_plan = reader.get("/plans/billing/review")
    assert of_plan.status == 200 and "There is nothing to look at yet" in of_plan.text
    assert "there is no branch muster/plan/billing" in of_plan.text
    running = reader.get(f"/tasks/{tasks['api'].id}/review")
    assert running.status == 200 and "shown once it has ended" in running.text
    assert reader.get(f"/tasks/{tasks['tests'].id}/review?attempt=7").status == 404
    assert reader.get("/tasks/1/review").status == 404 and reader.get("/plans/none/review").status == 404


def test_a_comment_on_no_line_is_kept_and_nothing_is_sent(far: FarOwner, repo: Repo) -> None:
    repo.publish("billing", "model", {"model.py": "x = 1\n"})
    repo.leave("billing", "tests", 1, {"kept.py": "one\n"})
    reader = signed_in(far)
    for path in (f"/tasks/{far.tasks()['tests'].id}/review", "/plans/billing/review"):
        form = reader.get(path).form("Add comment")
        for do in ("add", "back"):
            told = reader.send(form, do=do, new="No <romans>", words="Nearly")
            assert "your comment is on no line yet; nothing was sent" in told.text, do
            assert "choose a line" in told.text
            assert re.search(r'name="new"[^>]*>\nNo &lt;romans&gt;</textarea>', told.text)
            assert "\nNearly</textarea>" in told.text
        assert "\nNo</textarea>" in reader.send(form, do="show:0", new="No").text
    assert (far.tasks()["tests"].status, far.tasks()["model"].status) == ("FAILED", "COMPLETED")


def test_one_comment_more_than_a_note_takes_is_kept(far: FarOwner, repo: Repo) -> None:
    number = far.tasks()["tests"].id
    repo.leave("billing", "tests", 1, {"kept.py": "".join(f"{at}\n" for at in range(30))})
    reader = signed_in(far)
    form = reader.get(f"/tasks/{number}/review").form("Add comment")
    many = {f"text.0+{at}": "Why?" for at in range(1, 21)}
    told = reader.send(form, do="back", at="0+25", new="And this", **many)
    assert "20 comments are one note; nothing was sent" in told.text and "\nAnd this</textarea>" in told.text
    assert far.tasks()["tests"].status == "FAILED"


def test_an_older_attempt_is_not_what_is_approved(far: FarOwner, repo: Repo) -> None:
    number = far.tasks()["api"].id
    repo.leave("billing", "api", 1, {"kept.py": "one\n"})
    far.do(c.Fail(task_id=number, epoch=1, kind="review", message="its work is for you to review"))
    reader = signed_in(far)
    old = reader.get(f"/tasks/{number}/review").form("Add comment")
    far.do(c.Resume(task_id=number, actor="user:ann", note="again"))
    assert far.claim("again")["api"].epoch == 2
    far.do(c.Start(task_id=number, epoch=2, token_hash="b" * 64))
    repo.leave("billing", "api", 2, {"kept.py": "two\n"})
    far.do(c.Fail(task_id=number, epoch=2, kind="review", message="its work is for you to review"))
    assert "has changed since" in reader.send(old, do="accept").text
    assert far.tasks()["api"].status == "PAUSED"
    assert 'value="accept"' not in reader.get(f"/tasks/{number}/review?attempt=1").text
    assert 'value="accept"' in reader.get(f"/tasks/{number}/review").text


def test_where_there_is_no_remote_nothing_offers_to_push(far: FarOwner, repo: Repo) -> None:
    repo.publish("billing", "model", {"model.py": "x = 1\n"})
    reader = signed_in(far)
    asked = reader.get("/plans/billing/pull-request")
    assert asked.status == 200 and "Push it" not in asked.labels
    assert "this repository has no remote origin" in asked.text and "git remote add origin URL" in asked.text
    repo.git("remote", "add", "origin", "https://forge.example/ann/shop.git")
    assert "Push it" in reader.get("/plans/billing/pull-request").labels


def test_a_merge_that_a_hook_refuses_is_undone(far: FarOwner, repo: Repo) -> None:
    repo.publish("billing", "model", {"model.py": "x = 1\n"})
    hook = far.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on main >&2; exit 1\n")
    hook.chmod(0o755)
    reader = signed_in(far)
    refused = reader.send(reader.get("/plans/billing/merge").form("Merge"))
    assert refused.status == 409 and "could not be committed: not on main" in refused.text
    assert "it was undone, nothing was changed" in refused.text
    assert not (far.root / "model.py").exists() and not repo.git("status", "--porcelain")
    hook.unlink()
    assert reader.send(reader.get("/plans/billing/merge").form("Merge")).path.endswith("?done=merge")
