"""`muster db copy`: a folder's tasks go on in a PostgreSQL database."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from git_projects import git

from moved_stores import MovedProject, refused, tasks_in
from muster.client.api import Api
from muster.client.http import Connection
from muster.model.refs import plan_branch, published_ref
from muster_command import MUSTER, run_muster
from postgres_databases import USER, at, run_sql
from several_servers import FarWorkers, SharedServer, free_port

PLAN = """\
# Work

- [ ] One {#one agent=shell}
  echo "from one"
  seq 200000 >out && muster report artifact report out
- [ ] Two {#two agent=shell after=one retries=0}
  exit 3
- [ ] Three {#three agent=shell after=two}
  true
"""
SECRET = "geheim"


@pytest.fixture
def project(tmp_path: Path) -> MovedProject:
    return MovedProject(tmp_path / "project")


@pytest.fixture
def url(postgres_database: str) -> str:
    """Of an empty database, for a user who is no superuser."""
    return at(postgres_database, postgres_database.rpartition("/")[2], USER)


@pytest.mark.promise("S18")
def test_what_plans_have_made_goes_along_by_the_command_that_is_named(
    project: MovedProject, url: str, tmp_path: Path
) -> None:
    """Else servers would begin the branch of a plan anew, without the work of the tasks that are done."""
    git(project.folder, "init", "--quiet")
    git(project.folder, "commit", "--quiet", "--allow-empty", "-m", "one")
    for ref in (f"refs/heads/{plan_branch('plan')}", published_ref("plan")):
        git(project.folder, "update-ref", ref, "HEAD")
    git(tmp_path, "init", "--quiet", "--bare", "shared.git")
    (named,) = [line for line in project("db", "copy", url).splitlines() if "git " in line and "push" in line]
    subprocess.run(named.replace("REMOTE", str(tmp_path / "shared.git")), shell=True, check=True)
    there = git(tmp_path / "shared.git", "for-each-ref", "--format=%(refname)").split()
    assert there == [f"refs/heads/{plan_branch('plan')}", published_ref("plan")]


@pytest.mark.promise("S2")
@pytest.mark.promise("S7")
def test_tasks_go_on_in_the_database(project: MovedProject, url: str, tmp_path: Path) -> None:
    (project.folder / "work.md").write_text(PLAN)
    project("run", "work.md", code=5)
    told = subprocess.run(
        [*MUSTER, "secrets", "set", "TOKEN"], cwd=project.folder, input=b"a secret of nine words", check=False
    )
    assert told.returncode == 0
    before, audit = project.tasks, json.loads(project("audit", "verify", "--json"))
    assert before["work/two"] == ("FAILED", 1)
    said = project("db", "copy", url)
    assert "git push" not in said
    assert f"the tasks go on in {url}" in said and "/.muster/key" in said and "/.muster/vault.key" in said
    wrong = SharedServer(tmp_path / "wrong", url, "")
    assert "copy .muster/key and .muster/vault.key" in refused(wrong)
    server = project.server(tmp_path / "a", url)
    server.start()
    try:
        assert tasks_in(server.folder) == before
        after = json.loads(run_muster(server.folder, "audit", "verify", "--json").stdout)
        assert after["whole"] and after["sealed"] + after["unsealed"] > audit["sealed"] + audit["unsealed"]
        kept = ("artifact", "get", "work/one#1", "report")
        there, here = (run_muster(folder, *kept).stdout for folder in (server.folder, project.folder))
        assert there == here and here.endswith("200000\n"), "a file that stood beside the store"
        assert "from one" in run_muster(server.folder, "logs", "work/one").stdout
        assert run_muster(server.folder, "task", "retry", "work/two").returncode == 0
        assert "TOKEN" in run_muster(server.folder, "secrets", "list").stdout
        token = (server.folder / ".muster" / "first-token").read_text().strip()
        workers = FarWorkers(lambda: Api(Connection(server.url, token)), agents=["shell"], general=["shell"])
        jobs = [(job["key"], job["epoch"]) for job in workers.claim(9)]
        assert sorted(jobs) == [("two", 1), ("two", 2)], "epochs go on"
        (server.folder / "work.md").write_text(PLAN + "- [ ] Four {#four agent=shell}\n  true\n")
        sent = run_muster(server.folder, "plan", "add", "work.md")
        assert sent.returncode == 0, "it is known by its name, whatever its file was: " + sent.stderr
        assert "work/four" in tasks_in(server.folder)
        assert "a server has begun" in project("db", "copy", "--undo", url, code=6)

    finally:
        server.end()


@pytest.mark.promise("S7")
@pytest.mark.usefixtures("postgres_programs")
def test_the_copy_can_be_backed_up(project: MovedProject, url: str, tmp_path: Path) -> None:
    project("db", "copy", url)
    server = project.server(tmp_path / "a", url)
    server.start()
    try:
        done = run_muster(server.folder, "db", "backup", "made.dump")
        assert done.returncode == 0 and (server.folder / "made.dump").stat().st_size, done.stderr
    finally:
        server.end()


def test_the_file_is_there_to_be_read(project: MovedProject, url: str) -> None:
    before = project.tasks
    project("db", "copy", url)
    moved = f"its tasks are in {url} since"
    for words in (["status"], ["task", "list"], ["task", "show", "plan/one"], ["audit", "verify"]):
        assert moved in project(*words)
    assert project.tasks == before
    for words in (
        ["task", "add", "four"],
        ["claim", "take", "plan/two"],
        ["up"],
        ["db", "backup"],
        ["db", "check"],
        ["db", "check", "--resume"],
        ["db", "restored"],
        ["db", "copy", url],
        ["doctor", "--offline"],
    ):
        done = run_muster(project.folder, *words)
        assert done.returncode in (1, 6) and moved in done.stdout + done.stderr, (words, done)
        assert "every agent is stopped" not in done.stdout + done.stderr, "none was there"
    assert project.tasks == before


def test_an_older_copy_in_its_place_is_refused_as_well(project: MovedProject, url: str) -> None:
    project("db", "backup", "older.db")
    project("db", "copy", url)
    state = project.folder / ".muster" / "state.db"
    for path in state.parent.glob("state.db-*"):
        path.unlink()
    shutil.copy(project.folder / "older.db", state)
    for words in (["db", "restored"], ["task", "add", "four"], ["db", "copy", "--undo", url]):
        assert "its tasks are in" in project(*words, code=1)


def test_a_copied_folder_is_told_whose_it_is(project: MovedProject, url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(project.folder, copy)
    done = run_muster(copy, "db", "copy", url)
    assert done.returncode == 1 and "muster db adopt" in done.stderr
    project("db", "copy", url)
    later = tmp_path / "later"
    shutil.copytree(project.folder, later)
    done = run_muster(later, "db", "adopt")
    assert done.returncode == 1 and "its tasks are in" in done.stderr
    assert run_muster(copy, "db", "adopt").returncode == 0
    done = run_muster(copy, "db", "copy", url)
    assert done.returncode == 6 and "servers have this database" in done.stderr
    assert "DROP SCHEMA" not in done.stderr, "it has tasks"


def test_undo(project: MovedProject, url: str) -> None:
    assert "has not moved" in project("db", "copy", "--undo", url, code=6)
    project("db", "copy", url)
    assert f"no server takes up the copy in {url}" in project("db", "copy", "--undo")
    project("task", "add", "four", "--key", "four", "--plan", "plan")
    assert "taken back" in project("db", "copy", url, code=6)
    said = project("db", "copy", "--clear", url)
    assert "4 tasks" in said.replace("  ", " ")
    listen = f"127.0.0.1:{free_port()}"
    again = run_muster(project.folder, "serve", "--store", url, "--listen", listen, env=dict(os.environ))
    assert again.returncode == 6 and "with the keys of this one: mkdir" in again.stderr, again.stderr


def test_undo_where_the_tables_are_gone(project: MovedProject, url: str, postgres_database: str) -> None:
    project("db", "copy", url)
    run_sql(postgres_database, "DROP SCHEMA muster CASCADE")
    assert "name the database that has them" in project("db", "copy", "--undo", postgres_database, code=6)
    before = project.tasks
    assert "muster db restored" in project("db", "copy", "--undo", url)
    assert "muster db restored" in project("task", "add", "four", code=1)
    assert "attempts are numbered above" in project("db", "restored")
    project("claim", "take", "plan/two")
    assert project.tasks["plan/one"] == before["plan/one"] and project.tasks["plan/two"][1] > 1_000_000


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "no database is named"),
        (["mysql://h/d"], 2, "no address of a database"),
        ([f"postgresql://ada:{SECRET}@h/d"], 2, "MUSTER_SERVE_STORE"),
        (["--clear", "--undo", "postgresql://h/d"], 2, "not allowed with"),
        (["postgresql://ada@127.0.0.1:1/d"], 7, "PostgreSQL does not answer"),
    ],
)
def test_wrong_words(project: MovedProject, words: list[str], code: int, said: str) -> None:
    before = project.tasks
    told = project("db", "copy", *words, code=code)
    assert said in told and SECRET not in told
    assert project.tasks == before


def test_its_password_comes_from_elsewhere_and_is_not_shown(
    project: MovedProject, url: str, postgres_database: str, tmp_path: Path
) -> None:
    secret = url.replace(f"{USER}@", f"{USER}:{SECRET}@")
    said = project("db", "copy", env={"MUSTER_SERVE_STORE": secret})
    assert SECRET not in said and f"--store {url}" in said
    assert SECRET not in project("status") and url in project("status")
    for path in (project.folder / ".muster").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    kept = tmp_path / "address"
    kept.write_text(secret)
    (project.folder / "muster.toml").write_text(f'[serve]\nstore_file = "{kept}"\n')
    assert "no server takes up the copy" in project("db", "copy", "--undo")


def test_an_open_attempt_is_named(project: MovedProject, url: str, postgres_database: str) -> None:
    project("claim", "take", "plan/two")
    said = project("db", "copy", url, code=6)
    assert "attempts are open, of plan/two" in said and "muster claim release" in said
    assert run_sql(postgres_database, "SELECT to_regclass('muster.tasks')")[0][0] is None
    project("claim", "release", "plan/two")
    project("db", "copy", url)


def test_a_crew_that_is_up_is_named(project: MovedProject, url: str) -> None:
    project("up", "--daemon", "--workers", "1")
    assert "muster down" in project("db", "copy", url, code=6)
    project("down")
    project("db", "copy", url)


def test_a_database_that_is_no_empty_one(project: MovedProject, postgres_store: str, tmp_path: Path) -> None:
    before = project.tasks
    (tmp_path / "a").mkdir()
    server = SharedServer(tmp_path / "b", postgres_store, "")
    server.start()
    assert server.end() == 0
    assert "servers have this database" in project("db", "copy", postgres_store, code=6)
    said = project("db", "copy", "--clear", postgres_store, code=6)
    assert (
        "servers have this database" in said and "stop its servers, then DROP SCHEMA muster CASCADE;" in said
    )
    assert project.tasks == before
    run_sql(postgres_store, "DROP SCHEMA muster CASCADE")
    project("db", "copy", postgres_store)


def test_a_database_of_a_newer_muster(project: MovedProject, postgres_store: str, postgres: str) -> None:
    run_sql(
        at(postgres, postgres_store.rpartition("/")[2]), "INSERT INTO muster.schema_version VALUES (1000)"
    )
    assert "upgrade Muster" in project("db", "copy", postgres_store, code=1)
    project("task", "add", "four")


def test_a_database_whose_tables_are_others(
    project: MovedProject, postgres_store: str, postgres: str
) -> None:
    server = at(postgres, postgres_store.rpartition("/")[2])
    run_sql(server, "ALTER TABLE muster.plans ADD COLUMN more text NOT NULL")
    assert "plans of the database has another more" in project("db", "copy", postgres_store, code=1)
    run_sql(server, "ALTER TABLE muster.plans DROP COLUMN more, DROP COLUMN source")
    assert "plans of the database has another source" in project("db", "copy", postgres_store, code=1)
    assert run_sql(server, "SELECT * FROM muster.halt") == []
    project("task", "add", "four")


def test_a_user_who_does_not_own_the_tables(
    project: MovedProject, postgres_store: str, postgres: str
) -> None:
    name = postgres_store.rpartition("/")[2]
    run_sql(postgres, f"CREATE ROLE other_{name} LOGIN IN ROLE muster_engine, muster_query")
    try:
        said = project("db", "copy", at(postgres, name, f"other_{name}"), code=1)
        assert "must be owner" in said
        project("db", "copy", postgres_store)
    finally:
        run_sql(postgres, f"DROP ROLE other_{name}")
