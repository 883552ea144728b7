"""What the remote or the forge refuses, or answers oddly, is told with its own words and with what was pushed."""

from __future__ import annotations

from pathlib import Path

import pytest
from forge_stub import StubForge
from git_projects import git
from test_pr import BRANCH, forge, project, remote, repository  # noqa: F401
from test_pr_follow import crew, following

from muster.outbound.forges import Place, place_of, repository_of
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

HOOK = """\
#!/bin/sh
echo "GL-HOOK-ERR: no branches that begin with muster/: ask https://ops:hunter2@git.example/ops" >&2
{more}
exit 1
"""


def hooked(project: Path, more: str = "") -> None:  # noqa: F811
    hook = project.parent / "remote.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK.format(more=more))
    hook.chmod(0o755)


def test_the_remotes_own_words_are_told(project: Path, forge: StubForge) -> None:  # noqa: F811
    hooked(project)
    refused = muster(project, "pr", "site")
    assert refused.returncode == 6
    assert "[remote rejected] (pre-receive hook declined); the remote says: GL-HOOK-ERR: no" in refused.stderr
    assert (
        "ask https://git.example/ops; nothing was pushed" in refused.stderr
        and "hunter2" not in refused.stderr
    )
    tip = git(project, "rev-parse", BRANCH)[:12]
    assert f"git push origin {tip}:refs/heads/{BRANCH}" in refused.stderr
    hooked(project, "yes 'a long story' | head -n 1000 >&2")
    long = muster(project, "pr", "site").stderr
    assert "GL-HOOK-ERR" in long and "..." in long and len(long) < 2000


ODD = ['{"message": "maintenance"}', "null", "[]", '[{"message": 1}]', '"x"', "7", "<html>Sign in</html>"]


@pytest.mark.parametrize("answer", ODD)
def test_odd_answers_of_a_forge_are_one_clear_error(project: Path, forge: StubForge, answer: str) -> None:  # noqa: F811
    forge.odd = ("POST", answer)
    refused = muster(project, "pr", "site")
    assert (
        refused.returncode == 7 and f"{forge.api} answers POST repos/acme/site/pulls with" in refused.stderr
    )
    assert f"branch {BRANCH} was pushed to origin before that, and stays there" in refused.stderr
    forge.odd = None  # it has opened it all the same
    assert "updated" in muster(project, "pr", "site").stdout and len(forge.pulls) == 1
    forge.odd = ("GET", answer)
    shown = muster(project, "pr", "status", "site")
    assert shown.returncode == 7 and f"{forge.api} answers GET repos/acme/site/pulls/7 with" in shown.stderr
    assert forge.token not in refused.stderr + shown.stderr


def test_nothing_is_pushed_where_the_forge_does_not_say_what_is_open(project: Path, forge: StubForge) -> None:  # noqa: F811
    forge.odd = ("GET", '{"message": "maintenance"}')
    refused = muster(project, "pr", "site")
    assert refused.returncode == 7 and "maintenance; nothing was pushed" in refused.stderr
    assert remote(project, "branch", "--list", "muster/*") == ""


def test_following_waits_through_an_odd_answer(project: Path, forge: StubForge) -> None:  # noqa: F811
    with crew(project):
        one = following(project)
        until(lambda: list(project.glob(".muster/*.follow")), "it follows")
        forge.odd, asked = ("GET", '{"message": "maintenance"}'), len(forge.asked)
        until(lambda: one.poll() is not None or len(forge.asked) > asked + 2, "it asks on")
        forge.pulls[0].update(state="closed", merged=True)
        forge.odd = None
        out, _ = one.communicate(timeout=PATIENCE_S)
    assert one.returncode == 0, out
    assert "waiting" in out and "maintenance" in out


def test_a_remote_that_is_pushed_to_another_repository_is_refused(project: Path, forge: StubForge) -> None:  # noqa: F811
    git(project, "config", "remote.origin.pushurl", forge.url.replace("acme", "me"))
    refused = muster(project, "pr", "site")
    assert refused.returncode == 6 and not forge.asked
    assert "origin is read from acme/site and pushed to me/site" in refused.stderr
    git(project, "config", "--unset", "remote.origin.pushurl")
    bare = project.parent / "remote.git"
    git(project, "config", f"url.{bare}.pushInsteadOf", forge.url)
    done = muster(project, "pr", "site")
    assert done.returncode == 0, done.stderr


def test_logins_in_addresses_are_told_nobody(project: Path, forge: StubForge) -> None:  # noqa: F811
    address = forge.url.replace("://", "://me:hunter2@")
    told = [muster(project, "pr", "site", "--remote", address)]
    git(project, "remote", "set-url", "origin", address)
    told.append(muster(project, "pr", "site"))
    assert [done.returncode for done in told] == [3, 0], told[1].stderr
    git(project, "config", "--unset", "remote.origin.pushurl")
    told.append(muster(project, "pr", "site"))
    assert told[2].returncode == 6 and "git push to origin failed" in told[2].stderr
    config = project / "muster.toml"
    config.write_text(
        config.read_text().replace("http://", "http://me:hunter2@").replace(f":{forge.port}", ":1")
    )
    told.append(muster(project, "pr", "status", "site"))
    assert told[3].returncode == 7 and "does not answer" in told[3].stderr
    assert not any("hunter2" in done.stdout + done.stderr for done in told)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://me:pw@GitHub.com/acme/site.git", Place("github.com", "acme/site")),
        ("https://git.example:8443/acme/site", Place("git.example", "acme/site", 8443)),
        ("ssh://git@git.example:2222/acme/site.git", Place("git.example", "acme/site")),
        ("ssh://git@ssh.github.com:443/acme/site.git", Place("github.com", "acme/site")),
        ("git@altssh.gitlab.com:group/sub/site.git", Place("gitlab.com", "group/sub/site")),
        ("https://git.example:no/acme/site", None),
        ("https://[git.example/acme/site", None),
        ("../site.git", None),
        ("https://git.example/site", None),
    ],
)
def test_where_a_remote_leads(url: str, place: Place | None) -> None:
    assert place_of(url) == place


def test_the_folder_that_a_forge_lies_below_is_no_part_of_its_repositories() -> None:
    setting = "https://git.example/lab/api/v4"
    for url in ("https://git.example/lab/group/site.git", "git@git.example:group/site.git"):
        found = repository_of(url, setting)
        assert found is not None and found.slug == "group/site", url
    whole = repository_of("https://git.example/lab/site.git", "https://git.example/api/v4")
    assert whole is not None and whole.slug == "lab/site"
