"""A git repository, as far as a worker needs it.  It is the user's: what is checked out is not touched."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypedDict, Unpack

from msgspec import Struct

from muster.hosts.handed_on import handed_on
from muster.hosts.process_table import Proc, read_proc, scan, send
from muster.model.errors import MusterError, StoreFull, Unavailable
from muster.model.file_names import readable

log = logging.getLogger(__name__)

_OPTIONS = {
    # A person's hooks, signatures and housekeeping are for what a person does.
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "merge.verifySignatures": "false",
    "push.gpgSign": "false",
    # What git answers here decides what is published, and what may be removed: no taste bends it.
    "status.showUntrackedFiles": "normal",
    "core.ignoreStat": "false",
    "diff.orderFile": os.devnull,
    "rerere.enabled": "false",
    "log.showSignature": "false",
    "trailer.separators": ":",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "push.followTags": "false",
    "push.recurseSubmodules": "no",
    "fetch.recurseSubmodules": "false",
    "clone.defaultRemoteName": "origin",
}
_GIT = ("git", *(part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")))
_NOBODY = {"NAME": "Muster", "EMAIL": "muster@localhost"}
_WHO = ("AUTHOR", "COMMITTER")
_LOCK = "muster.lock"
_LOCK_LOOK_S = 0.02
_LOCK_LOOK_CAP_S = 0.1
_SAID_MAX = 500
_NO_ROOM = ("No space left on device", "Disk quota exceeded")
GIT_S = 900.0
"""How long one git command may take."""


class More(TypedDict, total=False):
    """What a git command may be given besides its arguments."""

    keep: tuple[int, ...]
    """Descriptors that it holds open while it runs."""
    index: Path
    """Used in place of the tree's own."""
    given: str
    """What it reads from standard input."""
    objects: Path
    """Where it writes objects; those of the repository are read all the same."""
    within_s: float


class GitFailed(Unavailable):
    """A git command failed; the text holds its last words."""

    code = Unavailable.code


class GitRefused(MusterError):
    """There is a repository, or there was one, and git does not work with it: a person has to mend that.

    Work that is meant for it is never done in the user's own folder instead.
    """


class DiskFull(GitFailed):
    """There is no room for what is to be written."""

    code = StoreFull.code
    http_status = StoreFull.http_status

    def __init__(self, folder: Path, said: str) -> None:
        self.folder = folder
        at = f"{folder} on {os.uname().nodename}"
        super().__init__(f"the disk of {at} is full: {said}", f"free some room on the disk of {at}")


def refuse_full(folder: Path, said: str) -> None:
    """Raises DiskFull where that is what git complains of."""
    if any(words in said for words in _NO_ROOM):
        raise DiskFull(folder, said.strip()[-_SAID_MAX:])


class Committer:
    """Who commits, where the user has not said who he is; git is asked once somebody needs to know."""

    def __init__(self, root: Path, author: str = "") -> None:
        """`author` (`Name <mail>`) is who commits name, where that is not the user."""
        self._root = root
        self._author = author

    @functools.cached_property
    def env(self) -> Mapping[str, str]:
        asking = Repository(self._root, self._root, Path())
        known = asking.ask("var", "GIT_COMMITTER_IDENT").returncode == 0
        found = {} if known else {f"GIT_{who}_{what}": _NOBODY[what] for who in _WHO for what in _NOBODY}
        if self._author:
            name, _, mail = self._author.rstrip(">").partition(" <")
            found |= {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": mail}
        return found


class Repository(Struct, frozen=True):
    top: Path
    """The user's own working tree."""
    common: Path
    """The folder with the objects and refs, shared by all working trees."""
    prefix: Path
    """The project's folder, from `top`."""
    committer: Committer | None = None
    project: str = ""
    """The id of the project."""
    lease_s: float = 60.0
    """How long a worker is trusted that is not heard."""

    def run(self, *arguments: str, cwd: Path | None = None, **more: Unpack[More]) -> str:
        """What git printed, without the last line end.  Raises GitFailed."""
        done = self.ask(*arguments, cwd=cwd, **more)
        if done.returncode:
            said = done.stderr.strip() or readable(done.stdout).strip() or f"exit code {done.returncode}"
            said = said[-_SAID_MAX:]
            refuse_full(cwd or self.top, f"git {arguments[0]}: {said}")
            raise GitFailed(f"git {arguments[0]} failed in {cwd or self.top}: {said}", "try it by hand")
        return done.stdout.rstrip("\n")

    def ask(
        self, *arguments: str, cwd: Path | None = None, **more: Unpack[More]
    ) -> subprocess.CompletedProcess[str]:
        """As `run`, whatever the exit code.  Raises GitFailed where it does not end."""
        done = self.ask_bytes(*arguments, cwd=cwd, **more)
        out, said = (os.fsdecode(part).replace("\r\n", "\n") for part in (done.stdout, done.stderr))
        # What it complains of is for people; what it prints may be a name that goes back to it.
        return subprocess.CompletedProcess(done.args, done.returncode, out, readable(said))

    def blob(self, name: str) -> bytes | None:
        """The file `COMMIT:PATH`, or this object, byte for byte; None where there is none."""
        done = self.ask_bytes("cat-file", "blob", name)
        return done.stdout if done.returncode == 0 else None

    def ask_bytes(
        self, *arguments: str, cwd: Path | None = None, **more: Unpack[More]
    ) -> subprocess.CompletedProcess[bytes]:
        """As `ask`, with what it printed byte for byte."""
        env = self._env()
        if "index" in more:
            env["GIT_INDEX_FILE"] = str(more["index"])
        if "objects" in more:
            env["GIT_OBJECT_DIRECTORY"] = str(more["objects"])
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(self.common / "objects")
        within_s = more.get("within_s", GIT_S)
        try:
            return subprocess.run(
                [*_GIT, *arguments],
                cwd=cwd or self.top,
                env=env,
                input=os.fsencode(more.get("given", "")),
                capture_output=True,
                check=False,
                pass_fds=more.get("keep", ()),
                timeout=within_s,
            )
        except subprocess.TimeoutExpired as error:
            # A filter or a remote that hangs must not hold the lock for ever.
            raise GitFailed(f"git {arguments[0]} took more than {within_s:g} s", "try it by hand") from error

    def copy_blob(self, name: str, file: BinaryIO) -> None:
        """However large it is.  Raises GitFailed."""
        asked = [*_GIT, "cat-file", "blob", name]
        env, none = self._env(), subprocess.DEVNULL
        done = subprocess.run(
            asked, cwd=self.top, env=env, stdin=none, stdout=file, stderr=subprocess.PIPE, check=False
        )
        if done.returncode:
            said = readable(os.fsdecode(done.stderr)).strip()
            refuse_full(self.top, said)
            raise GitFailed(f"git cat-file failed in {self.top}: {said[-_SAID_MAX:]}", "try it by hand")

    def first_bytes(self, *arguments: str, most: int) -> tuple[bytes, bool]:
        """At most so much of what git prints, and whether that is all of it.  Raises GitFailed."""
        none = subprocess.DEVNULL
        asked = [*_GIT, *arguments]
        with subprocess.Popen(
            asked, cwd=self.top, env=self._env(), stdin=none, stdout=subprocess.PIPE, stderr=none
        ) as git:
            assert git.stdout is not None
            data = git.stdout.read(most + 1)
            if len(data) > most:
                git.kill()
                return data[:most], False
        if git.returncode:
            raise GitFailed(f"git {arguments[0]} failed in {self.top}", "try it by hand")
        return data, True

    def _env(self) -> dict[str, str]:
        env = {name: value for name, value in handed_on().items() if not name.startswith("GIT_")}
        env |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        return env | dict(self.committer.env if self.committer is not None else {})

    def commit_of(self, name: str, cwd: Path | None = None) -> str | None:
        found = self.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", cwd=cwd)
        return found.stdout.strip() if found.returncode == 0 else None

    def says(self, name: str, what: str) -> str:
        """Of a commit, in the placeholders of `git log`; empty where there is none."""
        return self.ask("log", "-1", f"--format={what}", name, "--").stdout.rstrip("\n")

    def is_ancestor(self, old: str, new: str) -> bool:
        return self.ask("merge-base", "--is-ancestor", old, new).returncode == 0

    def same_tree(self, one: str, other: str) -> bool:
        return len(set(self.run("rev-parse", f"{one}^{{tree}}", f"{other}^{{tree}}").splitlines())) == 1

    def checked_out(self, branch: str) -> str | None:
        """The working tree that has this branch checked out."""
        workdir = ""
        for line in self.run("worktree", "list", "--porcelain").splitlines():
            name, _, value = line.partition(" ")
            if name == "worktree":
                workdir = value
            elif name == "branch" and value == f"refs/heads/{branch}":
                return workdir
        return None

    @property
    def lock_file(self) -> Path:
        return self.common / _LOCK

    @contextlib.contextmanager
    def locked(self, name: str = _LOCK, *, while_waiting: Callable[[], None] = lambda: None) -> Iterator[int]:
        """One at a time, over all workers and projects of this repository.  Yields the lock's descriptor.

        Hand it on to git: a git that outlives its killed worker goes on holding the lock.  What `while_waiting`
        raises ends the wait.
        """
        fd = os.open(self.common / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(fd, name, while_waiting)
            yield fd
        finally:
            os.close(fd)

    def _take(self, fd: int, name: str, while_waiting: Callable[[], None]) -> None:
        """Waits for the lock.  A holder that is seen stopped for a whole lease has lost its task: killed."""
        moved_s, wait_s = time.monotonic(), _LOCK_LOOK_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = _holder(fd)
            now_s = time.monotonic()
            if holder is None or not holder.stopped:
                moved_s = now_s
            elif now_s - moved_s >= self.lease_s:
                log.warning(
                    "process %d is killed: it was stopped and holds %s", holder.pid, self.common / name
                )
                for proc in scan():  # its git holds the lock as well, and goes on to its end
                    if (proc.ppid, proc.sid) == (holder.pid, holder.sid):
                        send(proc.id, signal.SIGCONT)
                send(holder.id, signal.SIGKILL)
            while_waiting()
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LOCK_LOOK_CAP_S)
        own = read_proc(os.getpid())
        os.ftruncate(fd, 0)
        with contextlib.suppress(OSError):  # a full disk keeps nobody from its work
            os.pwrite(fd, b"%d %d" % own.id if own else b"", 0)


def _holder(fd: int) -> Proc | None:
    """The process that has taken the lock, while it lives."""
    pid, _, start = os.pread(fd, 64, 0).partition(b" ")
    found = read_proc(int(pid)) if pid.isdigit() else None
    return found if found is not None and b"%d" % found.start == start else None


def find_repository(root: Path, author: str = "") -> Repository | None:
    """The repository that `root` lies in; None where there is none, or no commit to begin with.

    Nor where `root` is gone, as for a crew whose project was moved away.  `author` as for a Committer.  Raises
    GitRefused where there is one that git does not work with.
    """
    here = root.resolve()
    # Most commands ask: without git's own look where there is nothing to be seen, which takes a process.
    if not root.is_dir() or (kept := git_of(here)) is None:
        return None
    if shutil.which("git") is None:
        raise _refusal(kept, "for git is not on the PATH", "install git")
    probe = Repository(root, root, Path())
    asked = ("--is-bare-repository", "--git-common-dir", "--show-toplevel", "HEAD^{commit}")
    found = probe.ask("rev-parse", *asked)
    lines = found.stdout.splitlines()
    if lines[:1] == ["true"]:
        return None
    if found.returncode:
        _refuse_unsound(probe, kept)
        return None
    if len(lines) != len(asked):
        raise _refusal(kept, "for its path has a line break in it", "give the folder another name")
    top = Path(lines[2]).resolve()
    if not here.is_relative_to(top):
        return None  # a copy whose repository is set to the folder of its original
    return Repository(top, (root / lines[1]).resolve(), here.relative_to(top), Committer(root, author))


def git_of(here: Path) -> Path | None:
    """What would be a repository's own folder, or name it, where git looks for one: not beyond a mount point.

    Only that tells what git refuses from what is not there: it has the same words for both.
    """
    try:
        device = here.stat().st_dev
        for folder in (here, *here.parents):
            if folder.stat().st_dev != device:
                return None
            kept = folder / ".git"
            # A link that leads nowhere is a repository that is away; sandboxes leave empty folders.
            if os.path.lexists(kept) and not _is_empty(kept):
                return kept
    except OSError:  # nor can git look there
        return None
    return None


def _is_empty(folder: Path) -> bool:
    """Nothing is or was in it, as far as that can be seen."""
    try:
        return not any(folder.iterdir())
    except OSError:
        return False


def _refuse_unsound(probe: Repository, kept: Path) -> None:
    """Raises GitRefused, but where there is no commit yet."""
    there = probe.ask("rev-parse", "--git-dir")
    if there.returncode:
        raise _refused(kept, there.stderr)
    if probe.ask("rev-parse", "--verify", "--quiet", "HEAD").returncode == 0:
        raise _refusal(kept, "for the commit of its HEAD is not there", "git fsck tells what else is missing")
    # As power cuts leave a branch; git takes that for one which has no commit yet.
    broken = probe.ask("for-each-ref", "--count=1").stderr
    if "broken ref" in broken:
        raise _refused(kept, broken)


def _refused(kept: Path, said: str) -> GitRefused:
    """With git's own way out, where it names one."""
    lines = [line.strip() for line in said.splitlines()]
    fix = next((line for line in lines if line.startswith("git config ")), "")
    words = " ".join(lines).partition("To add an exception")[0].strip().removeprefix("fatal: ")
    return _refusal(kept, f"git says: {words[:_SAID_MAX]}", fix or "mend that")


def _refusal(kept: Path, why: str, fix: str) -> GitRefused:
    return GitRefused(f"{kept} cannot be used, {why}", fix)
