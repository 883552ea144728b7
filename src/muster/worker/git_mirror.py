"""A server's copy of the repository that servers of one store share: it only repeats what the remote says.

Refs move at the remote alone, all that belongs together in one step, each from where it was seen.
"""

from __future__ import annotations

import logging
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from muster.hosts.user_git import without_logins
from muster.model.errors import BadInput, Unavailable
from muster.worker.git import Committer, GitFailed, Repository, refuse_full

log = logging.getLogger(__name__)

REMOTE_S = 60.0
"""How long the remote may take for one answer."""
LARGE_AT_ONCE = 500
"""A command line takes no more than some thousands."""
HUNG_S = 30.0
"""So long after a call that took too long nobody asks: whoever waits for the lock would wait as long again."""
TRIES_MAX = 10
"""How often refs may have moved meanwhile."""
_HEAD = "refs/muster-remote/HEAD"
_STORES = "refs/muster-store"
_SAID_MAX = 500
_REFUSED = ("[remote rejected]", "pre-receive hook declined", "protected branch")
_NO_LARGE = ("is not a git command", "missing protocol")

Move = tuple[str | None, str | None]
"""From and to; None: there is none."""


class GitMirror:
    def __init__(self, folder: Path, url: str, *, project: str = "") -> None:
        self.repository = Repository(folder, folder, Path(), Committer(folder), project=project)
        self.url = url
        self.shown = without_logins(url)
        self.lock = threading.RLock()
        """Held from a look at the remote until what follows from it: the copy is that of its holder."""
        self._hung_until_s = 0.0
        self._sending = threading.Lock()
        """Of large files: whoever asks again meanwhile would send them a second time."""

    def begin(self) -> None:
        """Call it once, before all else: nobody else has this folder.  Raises GitFailed."""
        folder = self.repository.top
        if not (folder / "HEAD").exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.repository.run("init", "--bare", "--quiet", "--template=")
        for left in folder.rglob("*.lock"):  # of a git that was killed
            left.unlink(missing_ok=True)
        self.repository.run("-c", "gc.auto=6700", "gc", "--auto", "--quiet")

    def fetch(self, *wanted: str) -> dict[str, str]:
        """These refs, and those below them, as they are now, and the remote's HEAD as ours.

        Raises Unavailable where the remote does not answer, GitFailed where it has no commit to begin with.
        """
        # A whole name that is not there is an error to git: so all that begins with it.
        specs = [f"+{ref}*:{ref}*" for ref in wanted]
        words = ("fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--", self.url)
        done = self._ask(*words, f"+HEAD:{_HEAD}", *specs)
        if done.returncode:
            if "couldn't find remote ref HEAD" in done.stderr:
                raise GitFailed(f"{self.shown} has no commit to begin with", "push one there")
            raise self._away(done.stderr)
        self.repository.run("update-ref", "--no-deref", "HEAD", self.repository.run("rev-parse", _HEAD))
        return self._refs(*wanted)

    def _refs(self, *wanted: str) -> dict[str, str]:
        """As they are in this copy."""
        form = "--format=%(objectname) %(refname)"
        lines = self.repository.run("for-each-ref", form, *wanted).splitlines()
        return {name: found for found, _, name in (line.partition(" ") for line in lines)}

    def change(self, wanted: Sequence[str], work: Callable[[], None]) -> None:
        """What `work` changes of these refs in the copy, the remote gets, all of it at once or nothing.

        `work` is done again on what is there where another server was faster.  Raises as `fetch` and `push`.
        """
        with self.lock:
            for _ in range(TRIES_MAX):
                before = self.fetch(*wanted)
                work()
                after = self._refs(*wanted)
                names = sorted({*before, *after})
                if self.push({n: (before.get(n), after.get(n)) for n in names}):
                    return
            raise Unavailable(f"{wanted[0]} of {self.shown} moves all the time", "try again")

    def push(self, moves: Mapping[str, Move]) -> bool:
        """All of them or none, each from where it was; False where one of them was elsewhere.

        Raises GitFailed where the remote refuses, Unavailable where it does not answer: nobody knows then.
        """
        moves = {ref: move for ref, move in moves.items() if move[0] != move[1]}
        if not moves:
            return True
        leases = [f"--force-with-lease={ref}:{old or ''}" for ref, (old, _) in moves.items()]
        specs = [f"{new or ''}:{ref}" for ref, (_, new) in moves.items()]
        done = self._ask("push", "--quiet", "--atomic", "--no-verify", *leases, "--", self.url, *specs)
        if done.returncode == 0:
            return True
        there = self._at_remote(moves)
        if all(there.get(ref) == new for ref, (_, new) in moves.items()):
            return True  # only its answer was lost
        if any(there.get(ref) != old for ref, (old, _) in moves.items()):
            return False
        if any(words in done.stderr for words in _REFUSED):
            raise GitFailed(f"{self.shown} refuses: {self._said(done.stderr)}", "look at its rules and hooks")
        raise self._away(done.stderr)

    def push_large(self, digests: Sequence[str]) -> None:
        """Files of git-lfs that are kept here.  It may take minutes, so do not hold `lock`.

        Raises BadInput where that cannot be, Unavailable where the remote does not answer.
        """
        for first in range(0, len(digests), LARGE_AT_ONCE):
            with self._sending:
                self._push_large(digests[first : first + LARGE_AT_ONCE])

    def _push_large(self, digests: Sequence[str]) -> None:
        try:
            done = self.repository.ask("lfs", "push", "--object-id", self.url, *digests)
        except GitFailed as error:  # it took too long, which says nothing of the remote's git
            raise self._away(error.message) from error
        refuse_full(self.repository.top, done.stderr if done.returncode else "")
        if done.returncode == 0:
            return
        if any(words in done.stderr for words in _NO_LARGE):
            raise BadInput(
                f"files of git-lfs cannot be sent to {self.shown}: {self._said(done.stderr)}; nothing was kept",
                "install git-lfs where the server runs, and name the remote by a URL that it knows",
            )
        raise self._away(done.stderr)

    def first_branch(self) -> str:
        """The one that the remote begins with.  Raises Unavailable, and GitFailed where it names none."""
        done = self._ask("ls-remote", "--quiet", "--symref", "--", self.url, "HEAD")
        if done.returncode:
            raise self._away(done.stderr)
        ref, is_ref, _ = done.stdout.removeprefix("ref: ").partition("\t")
        if not is_ref or not ref.startswith("refs/heads/"):
            raise GitFailed(f"HEAD of {self.shown} is no branch", "git symbolic-ref HEAD refs/heads/main")
        return ref.removeprefix("refs/heads/")

    def new_turn(self) -> str:
        """A commit that nobody else has made."""
        tree = self.repository.run("hash-object", "-t", "tree", "-w", "--stdin")
        return self.repository.run("commit-tree", tree, "-m", f"turn {secrets.token_hex(16)}")

    def is_marked(self, name: str) -> bool:
        """Whether the remote is that of the store of this name.  Raises Unavailable."""
        ref = f"{_STORES}/{name}"
        return ref in self._at_remote([ref])

    def mark(self, name: str) -> None:
        """For `is_marked`.  Raises as `push`."""
        self.push({f"{_STORES}/{name}": (None, self.new_turn())})

    def _at_remote(self, names: Iterable[str]) -> dict[str, str]:
        done = self._ask("ls-remote", "--quiet", "--", self.url, *names)
        if done.returncode:
            raise self._away(done.stderr)
        lines = (line.partition("\t") for line in done.stdout.splitlines())
        return {name: found for found, _, name in lines}

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        if time.monotonic() < self._hung_until_s:
            raise self._away(f"it has said nothing for {REMOTE_S:g} s")
        try:
            done = self.repository.ask(*words, within_s=REMOTE_S)
        except GitFailed as error:  # it took too long
            self._hung_until_s = time.monotonic() + HUNG_S
            raise self._away(error.message) from error
        refuse_full(self.repository.top, done.stderr if done.returncode else "")
        return done

    def _away(self, said: str) -> Unavailable:
        error = Unavailable(
            f"the repository {self.shown} does not answer: {self._said(said)}", "it is tried again"
        )
        log.warning("%s", error)
        return error

    def _said(self, said: str) -> str:
        return without_logins(said.strip()[-_SAID_MAX:])
