"""A plan whose file lies in the folder in another form than git keeps it in is merged as any other one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from git_projects import commit_first, git, make_project, publish

from muster_command import run_muster as muster

PLAN = """\
# Site

- [ ] Page {#page}
  echo hello > page.txt
- [ ] Style {#style}
  echo blue > style.txt

<!-- $Id$ -->
"""
MINE = PLAN.replace("# Site\n", "# Site\n\nA word of mine.\n")
NOTE = "\nA note of the agent.\n"
BRANCH = "muster/plan/site"


class Form(NamedTuple):
    settings: tuple[tuple[str, str], ...] = ()
    attributes: str = ""
    ends: str = "\n"
    """What the lines in the folder end in."""
    raw: bool = False
    """It was committed before these settings were."""


FORMS = {
    "autocrlf": Form((("core.autocrlf", "true"),), ends="\r\n"),
    "eol": Form(attributes="*.md text eol=crlf\n", ends="\r\n"),
    "an editor's own": Form((("core.autocrlf", "input"),), ends="\r\n"),
    "an editor's own LF": Form((("core.autocrlf", "true"),)),
    "CRLF was committed": Form((("core.autocrlf", "true"),), ends="\r\n", raw=True),
    "ident": Form(attributes="*.md ident\n"),
    "filter": Form(
        (("filter.swap.clean", "tr a-z b-za"), ("filter.swap.smudge", "tr b-za a-z")),
        attributes="*.md filter=swap\n",
    ),
    "encoding": Form(attributes="*.md text working-tree-encoding=UTF-8 eol=crlf\n", ends="\r\n"),
}


@pytest.fixture(params=FORMS.values(), ids=list(FORMS))
def form(request: pytest.FixtureRequest) -> Form:
    found: Form = request.param
    return found


@pytest.fixture
def project(tmp_path: Path, form: Form, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`page` is completed and has published a note in the plan's file; nobody has ticked or committed since."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ann@example.org")
    folder = make_project(tmp_path / "project", config='agent = "shell"\n', plan="")
    (folder / ".gitignore").write_text(".muster/\n")
    (folder / ".gitattributes").write_text(form.attributes)
    write(folder, PLAN, form.ends)
    commit_first(folder, ".gitignore", "muster.toml")
    for name, value in () if form.raw else form.settings:
        git(folder, "config", name, value)
    git(folder, "-c", "core.safecrlf=false", "add", ".")
    git(folder, "commit", "-qm", "plan")
    for name, value in form.settings:
        git(folder, "config", name, value)
    assert git(folder, "status", "--porcelain") == ""
    assert muster(folder, "plan", "add", "plan.md").returncode == 0
    assert muster(folder, "task", "complete", "site/page").returncode == 0
    write(folder, PLAN, form.ends)
    text = PLAN.replace("[ ] Page", "[x] Page") + NOTE
    publish(folder, "site/page", {"plan.md": text.replace("\n", form.ends), "page.txt": "hello\n"})
    return folder


def write(folder: Path, text: str, ends: str) -> None:
    (folder / "plan.md").write_bytes(text.replace("\n", ends).encode())


def lies(folder: Path) -> str:
    return (folder / "plan.md").read_bytes().decode()


def test_what_is_committed_is_merged_and_keeps_its_form(project: Path, form: Form) -> None:
    git(project, "config", "core.safecrlf", "true")
    shown = muster(project, "plan", "merge", "site", "--dry-run")
    assert shown.returncode == 0 and "conflicts" not in shown.stdout, shown.stderr
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    after = PLAN.replace("[ ] Page", "[x] Page") + NOTE
    assert lies(project) == after.replace("\n", form.ends)
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.promise("S20")
def test_what_is_not_committed_stays_so_and_keeps_its_form(project: Path, form: Form) -> None:
    write(project, MINE, form.ends)
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    after = MINE.replace("[ ] Page", "[x] Page") + NOTE
    assert lies(project) == after.replace("\n", form.ends)
    assert git(project, "status", "--porcelain") == " M plan.md"
    write(project, PLAN.replace("[ ] Page", "[x] Page") + NOTE, form.ends)
    git(project, "-c", "core.safecrlf=false", "add", "plan.md")
    assert git(project, "status", "--porcelain") == "", "the merge has all but what is mine"


def test_a_conflict_is_left_in_its_form(project: Path, form: Form) -> None:
    write(project, PLAN + "\nA note of mine.\n", form.ends)
    git(project, "-c", "core.safecrlf=false", "commit", "-qam", "mine")
    left = muster(project, "plan", "merge", "site")
    assert left.returncode == 6 and "conflicts in plan.md" in left.stderr, left.stderr
    assert lies(project).count("<<<<<<<") == 1
    assert lies(project).count("\n") == lies(project).count(form.ends)
    git(project, "merge", "--abort")
    assert git(project, "status", "--porcelain") == ""
