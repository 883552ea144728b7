"""A pull request is opened by the button of a page: as `muster pr` does it, and by whoever may."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forge_stub import StubForge
from msgspec.structs import replace

from far_servers import SECRET, FarOwner, far_owner
from muster.app.pull_requests import keep, records
from muster.config.project import Project
from muster.model.access import Role
from page_reader import Reader, Shown
from reviewed_work import Repo, with_repository

BRANCH = "muster/plan/billing"


@pytest.fixture
def forge() -> Iterator[StubForge]:
    made = StubForge()
    yield made
    made.close()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[FarOwner]:
    with far_owner(tmp_path / "project") as made:
        yield made


@pytest.fixture
def repo(far: FarOwner, forge: StubForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """`origin` is a bare repository whose address is the forge's."""
    for name in [name for name in os.environ if name.lower().endswith(("_token", "_proxy"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GITHUB_TOKEN", forge.token)
    (far.root / "muster.toml").write_text(f'[git]\nforge = "{forge.api}"\n')
    made = with_repository(far)
    bare = tmp_path / "remote.git"
    made.git("init", "-q", "--bare", str(bare))
    made.git("remote", "add", "origin", forge.url)
    made.git("config", "remote.origin.pushurl", str(bare))
    made.git("push", "-q", "origin", "main")
    forge.head = lambda branch: made.git("--git-dir", str(bare), "rev-parse", branch)
    made.publish("billing", "model", {"model.py": "x = 1\n"})
    return made


def signed_in(far: FarOwner, secret: str = SECRET) -> Reader:
    reader = Reader(int(far.url.rpartition(":")[2]))
    asked = reader.ask("POST", "/api/v1/sign-in-links", b"{}", Authorization=f"Bearer {secret}")
    reader.send(reader.get(json.loads(asked.text)["path"]).form("Sign in"))
    return reader


def test_a_plan_is_pushed_and_proposed(far: FarOwner, repo: Repo, forge: StubForge, tmp_path: Path) -> None:
    reader = signed_in(far)
    asked = reader.get("/plans/billing/pull-request")
    bare = tmp_path / "remote.git"
    assert BRANCH not in repo.git("--git-dir", str(bare), "branch", "--list"), "a GET pushes nothing"
    opened = reader.send(asked.form("Push it"))
    assert opened.status == 200 and f"Opened: <code>{BRANCH}</code> into <code>main</code>" in opened.text
    there = repo.git("--git-dir", str(bare), "rev-parse", BRANCH)
    assert there == repo.git("rev-parse", BRANCH)
    again = reader.send(asked.form("Push it"))
    assert "Brought up to date" in again.text and "nothing new to push" in again.text


def of_api(far: FarOwner, method: str, path: str, **body: str) -> Shown:
    data = json.dumps(body).encode() if body else b""
    return Reader(int(far.url.rpartition(":")[2])).ask(method, path, data, Authorization=f"Bearer {SECRET}")


def done(far: FarOwner, repo: Repo) -> int:
    """The number of a task that is completed, with its work: a request of its own is of such a one."""
    repo.leave("billing", "model", 1, {"kept.py": "x = 1\n"})
    return int(far.tasks()["model"].id)


def pushed(repo: Repo, tmp_path: Path) -> str:
    return repo.git("--git-dir", str(tmp_path / "remote.git"), "branch", "--list", "muster/*")


def test_the_page_names_what_is_pushed_and_where_to(far: FarOwner, repo: Repo) -> None:
    number, reader = done(far, repo), signed_in(far)
    shown = reader.get("/plans/billing/pull-request").text
    assert "1 commit of <code>muster/plan/billing</code>" in shown and "billing/model: model" in shown
    assert "proposed to <code>main</code> of <code>origin</code>" in shown
    shown = reader.get(f"/tasks/{number}/pull-request").text
    assert "1 commit of <code>muster/task/billing/model</code>" in shown and "billing/model: model" in shown
    repo.git("switch", "-q", "--detach")
    shown = reader.get("/plans/billing/pull-request")
    assert shown.status == 200 and "you are on no branch" in shown.text and "Push it" not in shown.text


def later_work(repo: Repo) -> None:
    repo.publish("billing", "tests", {"late.py": "z = 1\n"})
    onto = repo.git("rev-parse", "refs/muster/billing/model/1")
    repo.git(
        "update-ref",
        "refs/heads/muster/task/billing/model",
        repo.commit({"late.py": "z = 1\n"}, "late", onto=onto),
    )


def another_base(repo: Repo) -> None:
    repo.git("switch", "-qc", "release")


@pytest.mark.parametrize("of", ["plan", "task"])
@pytest.mark.parametrize(
    ("change", "told", "base"),
    [
        (later_work, "is at ", "main"),
        (another_base, "it would go into release, and not into main", "release"),
    ],
)
def test_what_the_page_has_not_shown_is_not_pushed_from_it(
    far: FarOwner, repo: Repo, tmp_path: Path, change: Callable[[Repo], None], told: str, base: str, of: str
) -> None:
    number, reader = done(far, repo), signed_in(far)
    path = "/plans/billing" if of == "plan" else f"/tasks/{number}"
    asked = reader.get(f"{path}/pull-request")
    change(repo)
    refused = reader.send(asked.form("Push it"))
    assert refused.status == 412 and told in refused.text and "nothing was changed" in refused.text
    assert not pushed(repo, tmp_path) and f"proposed to <code>{base}</code>" in refused.text
    opened = reader.send(refused.form("Push it"))
    assert "Opened: " in opened.text and f"into <code>{base}</code>" in opened.text


def test_a_program_may_say_what_it_has_seen_of_a_pull_request(
    far: FarOwner, repo: Repo, tmp_path: Path
) -> None:
    path, tip = "/api/v1/plans/billing/pull-request", repo.git("rev-parse", BRANCH)
    coming = json.loads(of_api(far, "GET", path).text)
    assert (coming["tip"], coming["base"], coming["remote"]) == (tip, "main", "origin")
    seen = {"seenTip": tip, "seenBase": "main"}
    for name, other in (("seenTip", "0" * 40), ("seenBase", "dev")):
        refused = of_api(far, "POST", path, actor="a", **{**seen, name: other})
        assert refused.status == 412 and "nothing was changed" in refused.text, name
    assert not pushed(repo, tmp_path)
    assert json.loads(of_api(far, "POST", path, actor="a", **seen).text)["pushed"]


PULL = re.compile(r'Pull request: <a href="([^"]+)" rel="noreferrer noopener">\1</a> <span class="dim">(\w+)')


def test_pages_link_what_was_opened_without_asking_the_forge(
    far: FarOwner, repo: Repo, forge: StubForge
) -> None:
    reader = signed_in(far)
    number = far.tasks()["tests"].id
    repo.leave("billing", "tests", 1, {"kept.py": "x = 1\n"})
    of_plan, of_task = (
        ("/plans/billing", "/plans/billing/review"),
        (f"/tasks/{number}", f"/tasks/{number}/review"),
    )
    for path in (*of_plan, *of_task):
        assert "Pull request: " not in reader.get(path).text, path
    opened = reader.send(reader.get("/plans/billing/pull-request").form("Push it"))
    (url,) = re.findall(r'<p><a href="(http[^"]+)"', opened.text)
    forge.status = 503
    for path in of_plan:
        assert PULL.findall(reader.get(path).text) == [(url, "open")], path
    for path in of_task:
        assert "Pull request: " not in reader.get(path).text, "it is the plan's"
    project = Project(far.root)
    keep(project, replace(records(project)["billing"], ref="billing/tests", task=True, state="merged"))
    for path in of_task:
        assert PULL.findall(reader.get(path).text) == [(url, "merged")], path


@pytest.mark.parametrize("url", ["javascript:alert(1)", 'https://x/"><b>'])
def test_the_address_of_a_pull_request_is_the_word_of_others(far: FarOwner, repo: Repo, url: str) -> None:
    reader = signed_in(far)
    reader.send(reader.get("/plans/billing/pull-request").form("Push it"))
    project = Project(far.root)
    keep(project, replace(records(project)["billing"], url=url))
    shown = reader.get("/plans/billing").text
    assert "Pull request: " in shown and 'href="javascript' not in shown and "<b>" not in shown
    project.pull_requests.write_text("{")
    assert reader.get("/plans/billing").status == 200, "what cannot be read is not told"


def test_a_member_pushes_nothing(far: FarOwner, repo: Repo, tmp_path: Path) -> None:
    far.token("mst_member", Role.MEMBER)
    reader = signed_in(far, "mst_member")
    shown = reader.get("/plans/billing/review")
    assert "Merge…" not in shown.text and "Pull request…" not in shown.text and "Send back" in shown.text
    form = reader.get("/plans/billing").form("Sign out")
    refused = reader.post("/plans/billing/pull-request", {"csrf": form.fields["csrf"]})
    assert refused.status == 403
    assert BRANCH not in repo.git("--git-dir", str(tmp_path / "remote.git"), "branch", "--list")


def test_it_says_what_is_missing(far: FarOwner, repo: Repo) -> None:
    reader = signed_in(far)
    form = reader.get("/plans/billing/pull-request").form("Push it")
    repo.git("remote", "remove", "origin")
    refused = reader.send(form)
    assert refused.status == 404 and "no remote origin; nothing was pushed" in refused.text
    assert "What you wrote" not in refused.text


FAILS = """\
#!/bin/sh
test -e "$0.fails" || { case "$*" in *"--method GET"*) echo '[]'; exit ;; esac; }
echo 'error connecting to api.github.com' >&2
exit 1
"""


@pytest.fixture
def gh(far: FarOwner, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own tool, which fails to open any; beside a file of its name with `.fails`, at all."""
    tool = tmp_path / "bin" / "gh"
    tool.parent.mkdir()
    tool.write_text(FAILS)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("GITHUB_TOKEN")
    (far.root / "muster.toml").write_text("")
    repo.git("remote", "set-url", "origin", "git@github.com:acme/site.git")
    return tool


def test_a_tool_that_fails_is_no_refusal_of_who_asks(
    far: FarOwner, repo: Repo, gh: Path, tmp_path: Path
) -> None:
    assert gh.exists()
    reader = signed_in(far)
    form = reader.get("/plans/billing/pull-request").form("Push it")
    broken = gh.with_name("gh.fails")
    broken.touch()
    refused = reader.send(form)
    assert refused.status == 502 and "api.github.com; nothing was pushed" in refused.text
    assert BRANCH not in repo.git("--git-dir", str(tmp_path / "remote.git"), "branch", "--list")
    broken.unlink()
    refused = reader.send(form)
    assert refused.status == 502 and "gh says: error connecting to api.github.com" in refused.text
    assert "Sign in" not in refused.text and "Back to its page" in refused.text
    assert "gh auth status --hostname github.com" in refused.text
    assert f"branch {BRANCH} was pushed to origin before that, and stays there" in refused.text
    there = repo.git("--git-dir", str(tmp_path / "remote.git"), "rev-parse", BRANCH)
    assert there == repo.git("rev-parse", BRANCH)
    again = reader.send(form)
    assert again.status == 502 and f"branch {BRANCH} was at origin before" in again.text
    api = "/api/v1/plans/billing/pull-request"
    told = reader.ask("POST", api, b'{"actor": "ada"}', Authorization=f"Bearer {SECRET}", Accept="*/*")
    assert told.status == 502 and json.loads(told.text)["code"] == "forge_refused"


@pytest.mark.parametrize(("token", "says"), [("another", "Bad credentials"), ("", "there is no token for")])
def test_a_token_that_the_forge_refuses_is_not_that_of_who_asks(
    far: FarOwner, repo: Repo, monkeypatch: pytest.MonkeyPatch, token: str, says: str
) -> None:
    assert repo.git("remote")
    monkeypatch.setenv("GITHUB_TOKEN", token)
    reader = signed_in(far)
    refused = reader.send(reader.get("/plans/billing/pull-request").form("Push it"))
    assert refused.status == 502 and says in refused.text and "Back to its page" in refused.text
    assert "nothing was pushed" in refused.text
