"""`muster doctor`: what could keep a crew from working here, each with its fix."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from muster.app.settings import KINDS, load_with_origins
from muster.cli.context import project_of, server_of
from muster.cli.doctor_store import REPLY_S, guarded, of_address, of_folder, wrong_clocks
from muster.cli.fields import add_fields, print_rows
from muster.cli.login import whoami
from muster.cli.output import Screen, clean
from muster.client.api import Api
from muster.client.http import ClientRequest, Connection, answers
from muster.config.contexts import KnownServer
from muster.config.layers import Layers
from muster.config.project import FILE_NAME, Project
from muster.config.settings import AgentConfig, Config
from muster.config.variables import settings_in, unknown_in
from muster.model.errors import MusterError
from muster.model.findings import Check
from muster.ports.agent import Agent, Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.worker.git import Repository

FREE_BYTES_MIN = 200 << 20
FUTURE_S_MAX = 60.0
PYTHON_MIN = (3, 11)
GIT_MIN = (2, 38)
YEAR_MIN = 2025
ANSWER_S = 60.0
MEASURE_S = 2.0


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Checks this machine and this project.  Exit code 1 where something has to be fixed."
    parser.add_argument(
        "--offline",
        action="store_true",
        help="ask no provider; else each agent gets one short prompt, which costs a little",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="only this database, as `muster serve --store` would use it; nothing is changed there",
    )
    add_fields(parser)


def run(args: argparse.Namespace) -> int:
    checks = list(_all(args))
    failed = sum(check.ok is False for check in checks)
    rows = [check._asdict() for check in checks]
    whole = {"ok": not failed, "checks": rows}
    print_rows(args, rows, lambda screen: _show(checks, failed, screen), names=tuple, whole=whole)
    return 1 if failed else 0


def _show(checks: list[Check], failed: int, screen: Screen) -> None:
    room = max(len(check.name) for check in checks)
    for check in checks:
        look = {True: "completed", False: "attempt failed", None: "archived"}[check.ok]
        screen.line(f"{screen.badge(look, '')} {clean(check.name):<{room}}  {clean(check.found)}")
        if check.fix:
            screen.line(f"  {'':<{room}}  fix: {clean(check.fix)}")
    screen.line(f"{failed} to fix" if failed else "all is well")


def _all(args: argparse.Namespace) -> Iterator[Check]:
    yield _python()
    if args.store is not None:
        yield from of_address(args.store)
        return
    yield guarded("SQLite", _sqlite)
    yield _git()
    if (server := server_of(args)) is not None:
        known = guarded("server", partial(_server, server))
        yield known
        if known.ok:
            yield from wrong_clocks(Connection(server.url, server.token, server.ca))
        return
    try:
        project = project_of(args)
    except MusterError as error:
        yield Check("project", False, error.message, error.hint)
        return
    yield Check("project", True, str(project.root))
    config = Config()
    try:
        config, layers = load_with_origins(project.root)
        yield from _configuration(layers)
    except MusterError as error:
        yield Check("configuration", False, error.message, error.hint)
    yield from _variables()
    yield guarded("file system", lambda: _file_system(project))
    yield guarded("permissions", lambda: _permissions(project))
    yield guarded("disk", lambda: _disk(project))
    yield guarded("clock", lambda: _clock(project))
    yield guarded("vault", lambda: _vault(project))
    yield from _first_token(project)
    if project.shares_store or config.serve.shared:
        yield from of_folder(project, config.serve)
        if config.runtime.url:
            yield guarded("Valkey", lambda: _valkey(config))
        return
    yield guarded("store", lambda: _store(project))
    if config.runtime.url:
        yield guarded("Valkey", lambda: _valkey(config))
    yield guarded("owner", lambda: _owner(project))
    yield guarded("supervisor", lambda: _supervisor(project))
    yield from _crew(project)
    yield guarded("processes", lambda: _processes(project))
    yield from _agents(config, project, asks=not args.offline)
    yield from _of_git(config, project)


def _server(server: KnownServer) -> Check:
    who = whoami(server)
    return Check("server", True, f"{server.url} ({server.named}) knows you as {who['actor']}, {who['role']}")


def _vault(project: Project) -> Check:
    from muster.app.key import vault_of

    vault = vault_of(project)
    name = vault.name()
    return Check(
        "vault", True, f"its key ({name}) is in {vault.place()}" if name else "nothing is sealed yet"
    )


def _first_token(project: Project) -> Iterator[Check]:
    """Whoever may add tasks has them read it where a worker here takes them."""
    path = project.first_token_file
    try:
        if not path.exists() or not answers(project.socket):
            return
        with closing(Api(Connection(project.socket), reply_s=REPLY_S)) as api:
            members = api.get("/api/v1/members")
    except (MusterError, OSError):
        return  # other checks say so
    if len(members) > 1:
        found = f"{path} counts as OWNER, and the tasks of {len(members)} members can read it here"
        yield Check("first token", None, found, f"once you have it: rm {path}")


def _configuration(layers: Layers) -> Iterator[Check]:
    names = [source.name for source in layers.sources]
    own = "valid" if FILE_NAME in names else f"no {FILE_NAME}: defaults"
    yield Check("configuration", True, own)
    if files := [
        source.name for source in layers.sources if source.text is not None and source.name != FILE_NAME
    ]:
        yield Check("user settings", True, f"{files[0]}, for all your projects")


def _variables() -> Iterator[Check]:
    if names := [variable.name for variable in settings_in(os.environ)]:
        yield Check("environment", True, f"settings: {', '.join(names)}")
    for name, meant in unknown_in(os.environ):
        fix = meant or f"unset {name}, or name a setting: muster config show"
        yield Check("environment", None, f"{name} is no setting", fix)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    fix = "" if sys.version_info >= PYTHON_MIN else "install Python 3.11 or newer"
    return Check("Python", not fix, f"{version}, {sys.executable}", fix)


def _sqlite() -> Check:
    from muster.app.store_file import sqlite_version

    version, sound = sqlite_version()
    return Check("SQLite", sound, f"{version} (apsw)", "" if sound else "pip install -U apsw")


def _valkey(config: Config) -> Check:
    """One that is away is no fault: servers hear of each other later."""
    from muster.app.runtime import look

    where, problem, fills_up = look(config.runtime)
    if fills_up:
        fix = "CONFIG SET maxmemory-policy volatile-ttl"
        return Check("Valkey", None, f"{where} answers; once its maxmemory is full it takes nothing new", fix)
    if not problem:
        return Check("Valkey", True, f"{where} answers")
    fix = f"start it, or see that {where} can be reached from here; everything goes on without it meanwhile"
    return Check("Valkey", None, f"{where} does not answer: {problem}", fix)


def _git() -> Check:
    path = shutil.which("git")
    if path is None:
        return Check(
            "git", False, "not on PATH", "install git: it keeps what an interrupted agent has changed"
        )
    return Check("git", True, path)


def _file_system(project: Project) -> Check:
    from muster.hosts.file_lock import SHARED_FILE_SYSTEMS, file_system

    folder = project.state_dir if project.state_dir.is_dir() else project.root
    kind = file_system(folder)
    if kind in SHARED_FILE_SYSTEMS:
        return Check(
            "file system", False, f"{folder} is on {kind}, a shared one", "move the project to a local disk"
        )
    return Check("file system", True, kind or "local, as far as this system tells")


def _permissions(project: Project) -> Check:
    folder = project.state_dir
    try:
        found = folder.stat()
    except FileNotFoundError:
        return Check("permissions", None, "no .muster yet: the first `muster run` makes it")
    mode = found.st_mode & 0o777
    if not folder.is_dir():
        return Check(
            "permissions", False, f"{folder} is not a folder", f"mv {folder} {folder}.old, then muster init"
        )
    if found.st_uid != os.geteuid():
        owner = f"{folder} belongs to user {found.st_uid}, you are {os.geteuid()}"
        return Check("permissions", False, owner, f"sudo chown -R {os.geteuid()} {folder}")
    if mode != 0o700:
        return Check("permissions", False, f"{folder} has mode {mode:04o}, not 0700", f"chmod 700 {folder}")
    return Check("permissions", True, "0700")


def _disk(project: Project) -> Check:
    folder = project.state_dir if project.state_dir.is_dir() else project.root
    free = shutil.disk_usage(folder).free
    fix = "" if free >= FREE_BYTES_MIN else f"free some space on the disk of {folder}"
    return Check("disk", not fix, f"{free / (1 << 30):.1f} GiB free", fix)


def _clock(project: Project) -> Check:
    now_s = time.time()
    if time.gmtime(now_s).tm_year < YEAR_MIN:
        return Check("clock", False, f"it is set to {time.strftime('%Y-%m-%d')}", "set the system's clock")
    newest_s = max((_changed_s(path) for path in (project.store, project.log_file)), default=0.0)
    if newest_s - now_s > FUTURE_S_MAX:
        ahead = f"the store was written {newest_s - now_s:.0f} s in the future: the clock went back"
        return Check("clock", False, ahead, "set the system's clock (timedatectl set-ntp true)")
    return Check("clock", True, time.strftime("%Y-%m-%d %H:%M:%S %z"))


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _store(project: Project) -> Check:
    from muster.app.store_file import damage_of, gone, halt_of, restore_hint
    from muster.config.identity import copied_error, look

    found, halt = look(project), halt_of(project.store)
    if halt is not None or found.copied:
        error = halt.error(project.store) if halt is not None else copied_error(project, found)
        return Check("store", False, error.message, error.hint)
    if not project.store.exists():
        if project.has_begun:
            lost = gone(project.store)
            return Check("store", False, lost.message, lost.hint)
        return Check("store", None, "none yet: the first `muster run` makes it")
    if problem := damage_of(project.store):
        return Check("store", False, f"{project.store} is damaged: {problem}", restore_hint(project.store))
    return Check("store", True, f"{project.store.stat().st_size / (1 << 20):.1f} MiB, sound")


def _owner(project: Project) -> Check:
    from muster.hosts.file_lock import holder

    pid = holder(project.owner_lock)
    if answers(project.socket):
        connection = Connection(project.socket)
        try:
            status, data = connection.request(ClientRequest("GET", "/healthz", reply_s=REPLY_S))
        finally:
            connection.close()
        if status != 200:
            return Check(
                "owner", False, f"pid {pid} answers {status}: {data[:100]!r}", "see .muster/muster.log"
            )
        return Check("owner", True, f"pid {pid} answers" if pid else "answers")
    if pid is not None:
        return Check(
            "owner", False, f"pid {pid} holds the store but does not answer", f"kill {pid}, then muster up"
        )
    return Check("owner", None, "not running: `muster up` starts it")


def _supervisor(project: Project) -> Check:
    from muster.hosts.file_lock import holder

    pid = holder(project.supervisor_lock)
    if pid is not None:
        return Check("supervisor", True, f"pid {pid}")
    if answers(project.socket):
        return Check(
            "supervisor", False, "the owner runs, but nobody restarts it or its workers", "muster up"
        )
    return Check("supervisor", None, "not running")


def _crew(project: Project) -> Iterator[Check]:
    """What a supervisor has started: whether it stands still, or goes on without a supervisor."""
    from muster.app.ending import left_running
    from muster.hosts.file_lock import holder
    from muster.hosts.process_table import read_proc

    found = [(name, process.pid) for name, process in left_running(project)]
    if (supervisor := holder(project.supervisor_lock)) is not None:
        found.append(("supervisor", supervisor))
    elif found:
        left = ", ".join(f"{name} {pid}" for name, pid in found)
        yield Check("crew", False, f"goes on without a supervisor: {left}", "muster up, or muster down")
    for name, pid in found:
        if (proc := read_proc(pid)) is not None and proc.stopped:
            fix = f"kill -CONT {pid}, or muster down"
            yield Check("crew", False, f"{name} {pid} was stopped and stands still", fix)


def _processes(project: Project) -> Check:
    """Processes of attempts whose worker is dead; an owner or a worker that starts ends them."""
    from muster.hosts.local_host import LocalHost
    from muster.hosts.process_tree import PIDS_FILE, Record

    host = LocalHost()
    left: list[int] = []
    for path in sorted(project.attempts_dir.glob(f"*/*/{PIDS_FILE}")):
        record = Record.load(path)
        if record is None or record.boot_id != host.boot_id or host.alive(record.holder):
            continue
        left += [process.pid for process in record.members if host.alive(process)]
    if left:
        pids = " ".join(map(str, sorted(left)))
        return Check(
            "processes", False, f"left behind by a dead worker: {pids}", f"muster up, or kill {pids}"
        )
    return Check("processes", True, "none left behind")


def _of_git(config: Config, project: Project) -> Iterator[Check]:
    from muster.app.parts import repository_of
    from muster.worker.git import GitRefused

    try:
        repository = repository_of(config, project)
    except GitRefused as error:
        yield Check("repository", False, error.message, error.hint)
        return
    if config.writers:
        yield guarded("trees", lambda: _trees(config, project, repository))
    if repository is not None:
        yield from _branches(repository, project)


def _trees(config: Config, project: Project, repository: Repository | None) -> Check:
    names = ", ".join(sorted(config.writers))
    if repository is None:
        return Check("trees", None, f"no trees of their own here: one of {names} works at a time")
    version = repository.run("version").split()[2]
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if config.git.merge and numbers < GIT_MIN:
        fix = "install a newer git, or write merge = false below [git]"
        return Check("trees", False, f"git {version} cannot merge what tasks have made: it needs 2.38", fix)
    return Check("trees", True, f"git {version}, trees and branches for {names}{_left(config, project)}")


def _branches(repository: Repository, project: Project) -> Iterator[Check]:
    """Only where one is in the way, or has no longer what was published there."""
    from muster.worker.git import GitFailed
    from muster.worker.plan_branch import PlanBranch

    try:
        PlanBranch(repository, "", project.worktrees_dir).in_the_way()
        for branch in PlanBranch.known(repository, project.worktrees_dir):
            branch.tip()
    except GitFailed as error:
        yield Check("branches", False, error.message, error.hint)


def _left(config: Config, project: Project) -> str:
    """What the trees take that are there; empty where none is."""
    from muster.cli.worktree import size_of, size_text
    from muster.model.durations import duration_text
    from muster.worker.worktree_cleaner import tree_ids

    number = len(tree_ids(project.worktrees_dir))
    if not number:
        return ""
    size = size_text(*size_of(project.worktrees_dir, time.monotonic() + MEASURE_S))
    kept = duration_text(config.retention.trees_s)
    trees = "1 tree takes" if number == 1 else f"{number} trees take"
    return f"; {trees} {size}, each until {kept} after its task ended: muster worktree list"


def _agents(config: Config, project: Project, *, asks: bool) -> Iterator[Check]:
    try:
        from muster.app.agents import agents_of

        agents = agents_of(config, project)
    except MusterError as error:
        yield Check("agents", False, error.message, error.hint)
        return
    for name, agent in sorted(agents.items()):
        try:
            agent.check()
        except MusterError as error:
            yield Check(f"agent {name}", False, error.message, error.hint)
        else:
            yield Check(f"agent {name}", True, agent.about)
            yield from _doubts(config.agents.get(name), config, project)
            if asks and config.agents[name].pool != name:
                yield _answer(config.agents[name], agent)


def _answer(config: AgentConfig, agent: Agent) -> Check:
    """Of its provider: a login that is there may be refused all the same."""
    from muster.app.agent_check import failure_hint, try_agent

    name = f"answer of {agent.name}"
    try:
        tried = try_agent(agent, ANSWER_S, script=False)
    except MusterError as error:
        return Check(name, False, error.message, error.hint)
    if isinstance(tried.outcome, Failed):
        said = f"{tried.outcome.kind}: {tried.outcome.message}"
        return Check(name, False, said, failure_hint(config, tried.outcome))
    return Check(name, True, f"{config.pool} answered in {tried.seconds:.1f} s")


def _doubts(agent: AgentConfig | None, config: Config, project: Project) -> Iterator[Check]:
    """Where the permission mode keeps an agent from its work."""
    kind = KINDS.get(agent.kind) if agent is not None else None
    if agent is None or kind is None or agent.permission_mode is None:
        return
    name, table = f"agent {agent.name}", f"[agents.{agent.name}] in {FILE_NAME}"
    edit, mode = kind.levels.get("edit"), agent.permission_mode
    if agent.writes and mode == kind.levels.get("read"):
        yield Check(
            name,
            None,
            f"is to change files (writes = true), and {mode} lets it change none",
            f'permission_mode = "{edit}", or writes = false, below {table}',
        )
    check = config.task.check if agent.check is None else agent.check
    if (
        check
        and kind.allowing is not None
        and mode == edit
        and not kind.allows(agent.args, project.root, check)
    ):
        rule = json.dumps(kind.allowing([check]))
        yield Check(
            name,
            None,
            f"its work has to pass `{check}`, which it may not run without asking you",
            f"args = {rule} below {table}",
        )
