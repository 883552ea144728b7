"""Servers of one store and one repository: what dies in the middle leaves work on its branch once, or not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from forge_stub import StubForge

from muster.model.errors import MusterError
from muster.web.open_paths import ENTER
from page_reader import Reader
from patience import until
from postgres_databases import USER, at
from several_servers import QUICK, Balancer, Servers, SharedServer, several, worker_of

SETTINGS = QUICK.replace('"3s"', '"10s"')
WORKER = """\
[health]
heartbeat = "300ms"
[agents.far]
command = ["sh", "-eu"]
prompt = "script"
writes = true
[git]
author = "Crew <crew@example.org>"
"""
NAMES = ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL")


def git(folder: Path, *words: str) -> str:
    env = {**os.environ, **dict.fromkeys(NAMES, "ann@example.org")}
    done = subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository with one commit."""
    made, seed = tmp_path / "site.git", tmp_path / "seed"
    seed.mkdir()
    git(tmp_path, "init", "--quiet", "--bare", "-b", "main", str(made))
    git(seed, "init", "--quiet")
    (seed / "README").write_text("first\n")
    git(seed, "add", ".")
    git(seed, "commit", "--quiet", "-m", "begin")
    git(seed, "push", "--quiet", str(made), "HEAD:refs/heads/main")
    return made


@pytest.fixture
def url(postgres_database: str) -> str:
    return at(postgres_database, postgres_database.rpartition("/")[2], USER)


@contextlib.contextmanager
def at_work(
    tmp_path: Path, url: str, remote: Path | str, workers: int = 2
) -> Iterator[tuple[Servers, Balancer]]:
    """Two servers, a balancer before them, and workers that reach both through it."""
    settings = f'{SETTINGS}[git]\nremote = "{remote}"\n'
    with (
        several(tmp_path, url, 2, settings) as two,
        contextlib.closing(Balancer([server.port for server in two.every])) as balancer,
        contextlib.ExitStack() as stack,
    ):
        for number in range(workers):
            stack.enter_context(worker_of(two, tmp_path / f"w{number}", balancer.url, WORKER))
        yield two, balancer


def add(servers: Servers, server: SharedServer, key: str, script: str, **more: Any) -> int:
    with contextlib.closing(servers.api(server)) as api:
        body = {"title": key, "plan": "p", "key": key, "agent": "far", "description": script, **more}
        number: int = api.post("/api/v1/agent-tasks", body)["id"]
        return number


def tasks(servers: Servers, server: SharedServer) -> dict[str, Any]:
    with contextlib.closing(servers.api(server)) as api:
        return {task["key"]: task for task in api.get("/api/v1/agent-tasks", {"plan": "p", "limit": 1000})}


def statuses(servers: Servers, server: SharedServer) -> set[str]:
    return {task["status"] for task in tasks(servers, server).values()}


def published(remote: Path) -> list[str]:
    """The tasks whose work the branch has, as often as it has it."""
    said = git(
        remote, "log", "--first-parent", "--format=%(trailers:key=Task,valueonly)", "main..muster/plan/p"
    )
    return sorted(filter(None, said.splitlines()))


@pytest.mark.promise("S18")
def test_work_of_workers_at_two_servers_is_on_the_branch_of_its_plan(
    tmp_path: Path, url: str, remote: Path
) -> None:
    with at_work(tmp_path, url, remote) as (two, _):
        a, b = two.every
        wait = [add(two, (a, b)[key in "bd"], key, f"cat README; echo {key} > {key}") for key in "abcd"]
        wait.append(add(two, b, "large", "head -c 2000000 /dev/urandom > large"))
        add(two, a, "last", "test -s large; cat [a-d] > all", dependsOn=wait, checkCommand="test -s all")
        until(lambda: tasks(two, b)["last"]["status"] == "COMPLETED", "all is done")
        assert published(remote) == sorted(f"p/{key}" for key in ("a", "b", "c", "d", "large", "last"))
        assert git(remote, "show", "muster/plan/p:all").split() == [*"abcd"]
        assert git(remote, "show", "main:README") == "first", "no branch of people's has moved"
        (attempt,) = git(remote, "for-each-ref", "--format=%(refname)", "refs/muster/p/a/1").split()
        assert git(remote, "show", f"{attempt}:a") == "a"
        for server in two.every:
            assert not [*server.folder.glob(".muster/bundles/in/*")]


@pytest.mark.promise("S18")
def test_servers_that_are_killed_in_turn_lose_nothing_and_publish_nothing_twice(
    tmp_path: Path, url: str, remote: Path
) -> None:
    keys = [f"t{number}" for number in range(4)]
    with at_work(tmp_path, url, remote) as (two, _):
        for number, key in enumerate(keys):
            add(two, two.every[number % 2], key, f"echo {key} > {key}")
        for number in range(4):
            victim = two.every[number % 2]
            victim.end(signal.SIGKILL)
            victim.start()
        until(lambda: statuses(two, two.every[0]) == {"COMPLETED"}, "all are done")
        assert published(remote) == sorted(f"p/{key}" for key in keys)
        assert git(remote, "ls-tree", "--name-only", "muster/plan/p").split() == ["README", *keys]


HOOK = """\
#!/bin/sh
# Waits in the middle of a step of a plan's branch, for as long as this file is there.
while read old new ref; do
    case $ref in refs/heads/muster/plan/*) held=1 ;; esac
done
if test -n "$held" && test -e {0}; then touch {0}.reached; while test -e {0}; do sleep 0.05; done; fi
exit 0
"""


@pytest.fixture
def gate(tmp_path: Path, remote: Path) -> Path:
    """While it is there, every step of a plan's branch waits at the remote before it is made."""
    gate = tmp_path / "gate"
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK.format(gate))
    hook.chmod(0o755)
    gate.touch()
    return gate


def reached(gate: Path) -> bool:
    return Path(f"{gate}.reached").exists()


@pytest.mark.promise("S18")
def test_a_server_that_is_killed_between_intent_and_ref_publishes_once(
    tmp_path: Path, url: str, remote: Path, gate: Path
) -> None:
    """Its git goes on without it, and the worker asks the other server for the same."""
    with at_work(tmp_path, url, remote, workers=1) as (two, _):
        add(two, two.every[0], "t", "echo t >> list")
        until(lambda: reached(gate), "it is about to be published")
        for server in two.every:
            server.end(signal.SIGKILL)
        two.every[1].start()
        gate.unlink()
        until(lambda: statuses(two, two.every[1]) == {"COMPLETED"}, "it is done")
        assert published(remote) == ["p/t"]
        assert git(remote, "show", "muster/plan/p:list") == "t"


@pytest.mark.promise("S11")
def test_a_cancel_in_the_middle_is_final_although_the_step_comes_late(
    tmp_path: Path, url: str, remote: Path, gate: Path
) -> None:
    """The one who cancels takes the plan's turn, so the remote refuses what was on its way."""
    with at_work(tmp_path, url, remote, workers=1) as (two, _):
        number = add(two, two.every[0], "t", "echo t >> list")
        until(lambda: reached(gate), "it is about to be published")
        with contextlib.closing(two.api(two.every[1])) as api:

            def cancelled() -> bool:
                with contextlib.suppress(MusterError):
                    api.post(f"/api/v1/agent-tasks/{number}/cancel", {"actor": "user:ann"})
                return bool(api.get(f"/api/v1/agent-tasks/{number}")["task"]["status"] == "CANCELLED")

            until(cancelled, "it is cancelled")
        gate.unlink()
        add(two, two.every[1], "next", "test ! -e list; echo next > next")
        until(lambda: tasks(two, two.every[1])["next"]["status"] == "COMPLETED", "the next one is done")
        assert published(remote) == ["p/next"]
        assert tasks(two, two.every[0])["t"]["status"] == "CANCELLED"


@pytest.mark.promise("S3")
def test_a_server_that_wakes_after_its_attempt_was_given_up_moves_nothing(
    tmp_path: Path, url: str, remote: Path, gate: Path
) -> None:
    """The whole host stood still with its git: worker, server, and what it was about to publish."""
    with at_work(tmp_path, url, remote, workers=1) as (two, _):
        add(two, two.every[0], "t", "echo t >> list")
        until(lambda: reached(gate), "it is about to be published")
        with worker_of(two, tmp_path / "other", two.every[1].url, WORKER):
            stood = pids_in(tmp_path / "w0")
            for pid in stood:
                os.kill(pid, signal.SIGSTOP)
            try:
                until(lambda: tasks(two, two.every[1])["t"]["epoch"] > 1, "another attempt has it")
                gate.unlink()
                until(lambda: statuses(two, two.every[1]) == {"COMPLETED"}, "it is done")
            finally:
                for pid in stood:
                    os.kill(pid, signal.SIGCONT)
        assert published(remote) == ["p/t"]
        assert git(remote, "show", "muster/plan/p:list") == "t"


def pids_in(folder: Path) -> list[int]:
    """Of all that works in that folder."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def test_work_waits_for_a_repository_that_is_away(tmp_path: Path, url: str, remote: Path) -> None:
    with at_work(tmp_path, url, remote, workers=1) as (two, _):
        away = remote.with_name("away.git")
        remote.rename(away)
        add(two, two.every[0], "t", "echo t > t")
        until(lambda: any("does not answer" in server.log() for server in two.every), "it is missed")
        assert two.every[0].end() == 0
        two.every[0].start()
        away.rename(remote)
        until(lambda: statuses(two, two.every[0]) == {"COMPLETED"}, "it is done")
        assert tasks(two, two.every[0])["t"]["epoch"] == 1, "it has cost no attempt"


def test_all_servers_have_the_same_repository_or_do_not_start(tmp_path: Path, url: str, remote: Path) -> None:
    other = remote.with_name("other.git")
    git(tmp_path, "clone", "--quiet", "--bare", str(remote), str(other))
    with several(tmp_path, url, 2, f'{SETTINGS}[git]\nremote = "{remote}"\n') as two:
        b = two.every[1]
        b.end()
        for said, words in (
            (f'[git]\nremote = "{other}"\n', "is not the repository of this store's other servers"),
            ("", "this server has no repository for them"),
        ):
            (b.folder / "muster.toml").write_text(SETTINGS + said)
            b.begin()
            assert b.process is not None and b.process.wait(60) == 2
            assert words in b.log()
        moved = remote.rename(remote.with_name("moved.git"))
        (b.folder / "muster.toml").write_text(f'{SETTINGS}[git]\nremote = "{moved}"\n')
        b.start()


# -- looked at by people

REVISED = """\
if test -z "${MUSTER_NOTE-}"; then echo 'total = round(total, 2)'; else echo "$MUSTER_NOTE"; fi > money.py
"""


def browser_at(servers: Servers, server: SharedServer) -> Reader:
    with contextlib.closing(servers.api(server)) as api:
        path: str = api.post("/api/v1/sign-in-links", {})["path"]
    (code,) = parse_qs(urlsplit(path).query)["code"]
    reader = Reader(server.port)
    assert reader.post(ENTER, {"code": code}).status == 303
    return reader


def waits_again(servers: Servers, epoch: int) -> bool:
    task = tasks(servers, servers.every[0])["money"]
    return bool(task["status"] == "PAUSED" and task["epoch"] == epoch)


@pytest.fixture
def forge(tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubForge]:
    """Whose address of the repository leads to `remote`."""
    for name in [name for name in os.environ if name.lower().endswith(("_token", "_proxy"))]:
        monkeypatch.delenv(name)
    made, home = StubForge(), tmp_path / "home"
    home.mkdir()
    git(tmp_path, "config", "--file", str(home / ".gitconfig"), f"url.{remote}.insteadOf", made.url)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GITHUB_TOKEN", made.token)
    made.head = lambda branch: git(remote, "rev-parse", branch)
    yield made
    made.close()


@pytest.mark.promise("S18")
def test_work_is_reviewed_at_two_servers_proposed_and_merged_into_the_first_branch(
    tmp_path: Path, url: str, remote: Path, forge: StubForge
) -> None:
    seed = tmp_path / "seed"
    at_forge = f'{forge.url}"\nforge = "{forge.api}'
    with at_work(tmp_path, url, at_forge, workers=1) as (two, _):
        number = add(two, two.every[0], "money", REVISED, review="person")
        review = f"/tasks/{number}/review"
        until(lambda: waits_again(two, 1), "its work waits for a person")
        one, other = (browser_at(two, server) for server in two.every)
        seen = one.get(review)
        assert "total = round(total, 2)" in seen.text
        early = one.get(f"/tasks/{number}/pull-request").text
        assert "is to be reviewed before anything of it is published" in early and "Push it" not in early
        assert not any(method == "POST" for method, *_ in forge.asked)
        form = seen.form("Add comment")
        written = {**form.fields, "text.0+1": "Half-even is intended", "words": "Nearly.", "do": "back"}
        assert one.post(form.action, written).headers["location"].startswith(f"/tasks/{number}?done=")
        until(lambda: waits_again(two, 2), "its second attempt waits for a person")
        seen = other.get(review)
        assert "money.py:1: total = round(total, 2)" in seen.text and "Half-even is intended" in seen.text
        form = seen.form("Add comment")
        other.post(form.action, {**form.fields, "do": "accept"})
        until(lambda: statuses(two, two.every[0]) == {"COMPLETED"}, "it is published")
        opened = one.send(one.get(f"/tasks/{number}/pull-request").form("Push it"))
        assert "Opened: <code>muster/task/p/money</code> into <code>main</code>" in opened.text
        assert "Half-even is intended" in git(remote, "show", "muster/task/p/money:money.py")
        shown = one.get("/plans/p/pull-request")
        assert "1 commit of <code>muster/plan/p</code>" in shown.text
        opened = one.send(shown.form("Push it"))
        assert "Opened: <code>muster/plan/p</code> into <code>main</code>" in opened.text
        again = other.send(other.get("/plans/p/pull-request").form("Push it"))
        assert "Brought up to date" in again.text and "nothing new to push" in again.text
        assert [(one["head"]["ref"], "1 of 1 tasks" in one["body"]) for one in forge.pulls][1:] == [
            ("muster/plan/p", True)
        ]
        begun = git(remote, "rev-parse", "main")
        (seed / "money.py").write_text("total = 0\n")
        git(seed, "add", ".")
        git(seed, "commit", "--quiet", "-m", "another total")
        git(seed, "push", "--quiet", str(remote), "HEAD:refs/heads/main")
        asked = one.get("/plans/p/merge")
        assert "There would be conflicts in money.py" in asked.text
        assert one.send(asked.form("Merge")).status == 409
        git(seed, "push", "--quiet", "--force", str(remote), f"{begun}:refs/heads/main")
        anew = one.send(asked.form("Merge"))
        assert anew.status == 412 and "main has not all that it had then" in anew.text
        asked = other.get("/plans/p/merge")
        assert "1 commit, 1 file" in asked.text and "<code>main</code>" in asked.text
        other.send(asked.form("Merge"))
        assert "Half-even is intended" in git(remote, "show", "main:money.py")
        assert git(remote, "log", "-1", "--format=%P", "main").split() == [
            begun,
            git(remote, "rev-parse", "muster/plan/p"),
        ]
        refused = one.send(one.get("/plans/p/pull-request").form("Push it"))
        assert refused.status == 409 and "has all of muster/plan/p; nothing was pushed" in refused.text
        assert "There is nothing to merge: main has all of it" in one.get("/plans/p/merge").text.replace(
            "muster/plan/p", "it"
        )
