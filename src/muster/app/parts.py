"""What several processes are composed of."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from muster.agents.transcript import Reader
from muster.config.identity import look
from muster.config.project import Project
from muster.config.settings import PROJECT_WORKDIR, Config
from muster.hosts.file_lock import refuse_shared
from muster.hosts.full_disk import NO_SPACE
from muster.hosts.log_file import LogFile, LogPlace
from muster.hosts.logs import UPGRADED, log_lines, read_line
from muster.hosts.process_table import at_work_in
from muster.hosts.trace import trace_with
from muster.model.commands import Offer
from muster.model.errors import MusterError, NotAllowed, StoreFault, StoreFull, StoreRefused, Unavailable
from muster.model.profiles import offered
from muster.model.rows import WorkerRow
from muster.worker.git import GitRefused, Repository, find_repository, git_of
from muster.worker.supervisor import CANNOT_START, DISK_FULL, ENDED, FIX, HELD, NO_STORE, NOT_LET_IN
from muster.worker.workdir import Trees
from muster.worker.worktree_cleaner import LocalTrees


def readers_of(config: Config) -> Callable[[str, str], Reader]:
    """By the agent's name and kind, how its output is shown on a page."""

    def of(agent: str, kind: str) -> Reader:
        from muster.app.agents import reader_of  # only for those who look at pages

        return reader_of(config, agent, kind)

    return of


_WITHOUT = "or `worktrees = false` below [git] of muster.toml, for agents that work in the folder itself"


def repository_for_agents(config: Config, root: Path) -> Repository | None:
    """As find_repository; where git refuses it, with what else whoever starts agents may do."""
    try:
        return find_repository(root, config.git.author)
    except GitRefused as error:
        raise GitRefused(error.message, f"{error.hint}; {_WITHOUT}") from error


def repository_of(config: Config, project: Project) -> Repository | None:
    """Where tasks get working trees of their own; None: all work in the project's folder.

    Raises GitRefused where they would if git could, or where tasks of this project had theirs before.
    """
    if not config.git.worktrees:
        return None
    found = repository_for_agents(config, project.root)
    if found is None and _had_trees(project) and not project.far_repository_dir.exists():
        raise GitRefused(
            f"tasks of {project.root} have worked in trees of its git repository, and it is in none with a "
            "commit any more: those after them would not have what they have made",
            f"put .git back; {_WITHOUT}",
        )
    lease_s = max(map(config.lease_of, config.agents.values()))
    return found and replace(found, project=look(project).id, lease_s=lease_s)


def _had_trees(project: Project) -> bool:
    """Tasks have worked in a repository that is away: an empty one in its place was begun on purpose.

    Not where a tree is there still, which is of the one before.
    """
    folder = project.worktrees_dir
    try:
        trees = any(entry.is_dir() for entry in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False
    return trees or git_of(project.root.resolve()) is None


def trees_of(config: Config, project: Project) -> Trees | None:
    repository = repository_of(config, project)
    return None if repository is None else trees_in(repository, config, project)


def trees_in(repository: Repository, config: Config, project: Project) -> Trees:
    return Trees(
        repository=repository,
        folder=project.worktrees_dir,
        writers=config.writers,
        readers=frozenset(name for name, agent in config.agents.items() if agent.writes is False),
        here=frozenset(name for name, agent in config.agents.items() if agent.workdir == PROJECT_WORKDIR),
        setup=config.git.setup,
        merge=config.git.merge,
        keep=config.git.keep,
        file_bytes_max=config.git.max_file_bytes,
        droppings=config.git.droppings,
        protects=config.plan.protect,
        look_s=2 * config.health.heartbeat_s,
    )


def local_trees(repository: Repository, project: Project) -> LocalTrees:
    """The working trees on this host, for whoever clears them up."""
    return LocalTrees(
        repository, project.worktrees_dir, lambda folder, started_for: at_work_in(folder, [started_for])
    )


def worker_of(config: Config) -> WorkerRow:
    """A worker as this configuration would make it: it is matched as the real ones are."""
    return WorkerRow(
        id="",
        workspace_id=0,
        hostname="",
        pid=0,
        pid_start=0,
        boot_id="",
        slots=1,
        agents=tuple(config.agents),
        general=config.general,
        offers=offers_of(config),
    )


def offers_of(config: Config) -> dict[str, Offer]:
    """What each agent is good for, and how its output is read."""
    return {
        name: Offer(
            capabilities=offered(agent.capabilities, agent.targets),
            profiles=agent.profiles,
            model=agent.model or "",
            aimed_only=not agent.coordinator_enabled,
            kind=agent.kind,
        )
        for name, agent in config.agents.items()
    }


def make_state_dir(project: Project) -> None:
    """`.muster/`, for its owner's eyes only, and ignored by git.

    Raises StoreRefused on a shared disk, NotAllowed under sudo in the project of another user.
    """
    refuse_shared(project.root)
    _refuse_sudo(project)
    try:
        project.state_dir.mkdir(mode=0o700, exist_ok=True)
        project.attempts_dir.mkdir(mode=0o700, exist_ok=True)
        ignore = project.state_dir / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "utf-8")
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise StoreRefused(
            f"{project.state_dir} cannot be made: {error.strerror}", "work in a folder that you may write to"
        ) from error


def _refuse_sudo(project: Project) -> None:
    """Root's files would keep the user out.  Who is root without sudo, as in a container, knows what they do."""
    owner = project.root.stat().st_uid
    if os.geteuid() == 0 and owner != 0 and os.environ.get("SUDO_UID", "0") != "0":
        raise NotAllowed(
            f"{project.root} belongs to user {owner}, who could not go on with what root leaves there; "
            "nothing was changed",
            f"the same command without sudo, or: sudo -u '#{owner}' muster ...",
        )


def python_module(name: str) -> list[str]:
    """Arguments that run one of our modules.  `-P`: files of the user's project are not to be imported."""
    return [sys.executable, "-P", "-m", name]


def run_logged(name: str, root: Path, run: Callable[[], int]) -> int:
    """The exit code of a process whose stderr is `.muster/muster.log`; its supervisor reads why it ended."""
    log_lines(name, LogFile(Project(root).log_file))
    try:
        return run()
    except MusterError as error:
        words = f"{error.message}{FIX if error.hint else ''}{error.hint}".replace("\n", " ")
        logging.critical("%s%s", ENDED, words)
        codes = {StoreFull: DISK_FULL, StoreFault: NO_STORE, Unavailable: HELD, NotAllowed: NOT_LET_IN}
        for kind, code in codes.items():
            if isinstance(error, kind):
                return code
        return CANNOT_START
    except Exception as error:
        logging.critical("%s%s: %s", ENDED, type(error).__name__, error, exc_info=True)
        full = isinstance(error, OSError) and error.errno in NO_SPACE
        return DISK_FULL if full else CANNOT_START


@contextmanager
def traced(name: str, config: Config) -> Iterator[None]:
    """Raises BadConfig where spans are wanted and cannot be sent."""
    if not config.trace.spans:
        yield
        return
    from muster.outbound.otel import OtelTracer, exporter

    tracer = OtelTracer(name, exporter())
    trace_with(tracer)
    try:
        yield
    finally:
        trace_with(None)
        tracer.close()


def upgraded(log_file: Path, place: LogPlace) -> str:
    """What was said there of a store that was upgraded; empty: none was."""
    lines = LogFile(log_file).since(place, -1).decode(errors="replace").splitlines()
    return next((message for line in lines if UPGRADED in (message := read_line(line)[2])), "")


def last_words(log_file: Path, place: LogPlace) -> str:
    """What a process that did not start has said there; its errors are to stand within another one."""
    lines = LogFile(log_file).since(place, -1).decode(errors="replace").strip().splitlines()
    return "\n".join(read_line(line)[2].removeprefix("error: ") for line in lines[-5:])
