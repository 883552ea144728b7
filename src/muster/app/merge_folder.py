"""The files of the user's folder around a merge: what is in its way, and back to what they were.

`git merge` looks at that as well.  But where it refuses, it resets what git was told to pass over; and where it
dies halfway, it leaves what it has written.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from muster.hosts.user_git import UserGit, text_of
from muster.model.errors import Conflict, MusterError
from muster.model.file_names import in_shell, in_words

NAMED_MAX = 10
_AT_ONCE = 500
_LINK, _MODULE = "120000", "160000"
_KEPT = "muster-merge"
_EDITED = "edited"
"""Below it, under their own paths, files with what nobody has committed."""
_DIFF = ("--name-only", "--no-renames", "--no-relative", "--no-ext-diff", "-z")
_PLAIN = ("-c", "core.fsmonitor=false", "-c", "core.splitIndex=false")


class MergedFile(NamedTuple):
    """One file of the merge, against HEAD."""

    path: str
    old: str
    """What HEAD has; of zeros where it has none."""
    new: str
    """What the merge makes of it; of zeros where it removes it."""
    module: bool

    @property
    def added(self) -> bool:
        return not self.old.strip("0")

    @property
    def removed(self) -> bool:
        return not self.new.strip("0")


def changes_to(git: UserGit, tree: str) -> list[MergedFile]:
    fields = git.run("diff-tree", "-r", "--raw", "--no-abbrev", "--no-renames", "-z", "HEAD", tree).split(
        "\0"
    )
    found = []
    for told, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old, new, _ = told.lstrip(":").split(" ")
        found.append(MergedFile(path, old, new, _MODULE in (old_mode, new_mode)))
    return found


def named(files: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else ""
    return ", ".join(map(in_words, files[:NAMED_MAX])) + more


def unmerged(git: UserGit) -> list[str]:
    return _listed(git, "diff", *_DIFF, "--diff-filter=U")


def staged(git: UserGit, against: str = "HEAD") -> list[str]:
    return _listed(git, "diff", "--cached", *_DIFF, against)


def refuse_in_the_way(git: UserGit, changes: list[MergedFile], hidden: dict[str, str]) -> list[str]:
    """`hidden` as `hidden_edits` has it.  Raises Conflict, before git has done anything.

    Returns the files that have edits and are in no way.
    """
    aside = "commit it, or put it aside: git stash"
    if files := unmerged(git):
        what = f"there are conflicts in {named(files)} that nobody has resolved; nothing was changed"
        raise Conflict(what, "edit them, then: git add FILE && git commit")
    if files := staged(git):
        raise Conflict(f"you have staged what is not committed: {named(files)}; nothing was changed", aside)
    unlike = _differing(git)
    if files := _displacing(git, unlike):
        raise Conflict(
            f"{named(files)}, which you have not committed, lies in the place of files that git knows, and it "
            "may delete it in a merge; nothing was changed",
            "commit it, or move it elsewhere",
        )
    touched = {change.path for change in changes}
    if files := [path for path in hidden if path in touched]:
        raise Conflict(
            f"it would overwrite what you have not committed, and git was told to pass over: {named(files)}; "
            "nothing was changed",
            f"git update-index {hidden[files[0]]} FILE, then commit it, or put it aside: git stash",
        )
    others = _present(git, unlike)
    if files := [path for path in others if path in touched]:
        raise Conflict(
            f"it would overwrite what you have not committed: {named(files)}; nothing was changed", aside
        )
    if files := _untracked(git, changes, ignored=False):
        raise Conflict(
            f"it would overwrite what you have not committed: {named(files)}; nothing was changed",
            "commit it, or put it aside: git stash --include-untracked",
        )
    if files := _untracked(git, changes, ignored=True):
        raise Conflict(
            f"it would overwrite what you have not committed, and git ignores: {named(files)}; "
            "nothing was changed",
            "move it elsewhere, then again",
        )
    return others


def edited(git: UserGit) -> list[str]:
    """Files that lie there otherwise than in the index.  One that is gone is in nobody's way."""
    return _present(git, _differing(git))


def _differing(git: UserGit) -> list[str]:
    return _listed(git, "diff", *_DIFF, "--ignore-submodules=all")


def _present(git: UserGit, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if os.path.lexists(git.folder / path)]


def _displacing(git: UserGit, unlike: Iterable[str]) -> list[str]:
    """A file where git knows a folder, or a folder where it knows a file: where it refuses a merge, it resets all
    that it knows, and what is in the way of that is gone."""
    found = set()
    for path in unlike:
        first, *above = Path(path), *Path(path).parents[:-1]
        if os.path.lexists(git.folder / first):
            if _is_folder(git.folder / first) and any((git.folder / first).iterdir()):
                found.add(path)
            continue
        place = next((one for one in above if os.path.lexists(git.folder / one)), None)
        if place is not None and not _is_folder(git.folder / place):
            found.add(os.fspath(place))
    return sorted(found)


def _is_folder(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def hidden_edits(git: UserGit) -> dict[str, str]:
    """Files with edits that git was told to pass over, and how it is told to look at them again."""
    options = {}
    for told in _listed(git, "ls-files", "-v", "-z"):
        mark, path = told[0], told[2:]
        if (mark.islower() or mark == "S") and os.path.lexists(git.folder / path):
            options[path] = "--no-skip-worktree" if mark in "Ss" else "--no-assume-unchanged"
    if not options:
        return {}
    index = git.folder / git.run("rev-parse", "--git-path", "index")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "index")
        shutil.copyfile(index, copy)
        own = UserGit(git.folder, {"GIT_INDEX_FILE": str(copy)})
        paths = b"".join(os.fsencode(path) + b"\0" for path in options)
        for option in ("--no-skip-worktree", "--no-assume-unchanged"):
            own.run(*_PLAIN, "update-index", option, "-z", "--stdin", given=paths)
        seen = set(_listed(own, *_PLAIN, "diff", *_DIFF, "--ignore-submodules=all"))
    return {path: option for path, option in options.items() if path in seen}


def _untracked(git: UserGit, changes: list[MergedFile], *, ignored: bool) -> list[str]:
    """What lies where the merge would put a file, and is not git's.  It overwrites what it ignores unasked."""
    there = {
        os.fspath(place)
        for change in changes
        if change.added and not change.module
        for place in (Path(change.path), *Path(change.path).parents[:-1])
        if os.path.lexists(git.folder / place)
        and (
            os.fspath(place) == change.path
            or not (git.folder / place).is_dir()
            or (git.folder / place).is_symlink()
        )
    }
    if not there:
        return []
    asked = ("ls-files", "-z", "--others", *(("--ignored",) if ignored else ()), "--exclude-standard", "--")
    return _listed(git, *asked, *(f":(literal){place}" for place in sorted(there)))


def _listed(git: UserGit, *words: str) -> list[str]:
    return list(filter(None, git.run(*words).split("\0")))


def _is_alike(place: Path, kept: Path) -> bool:
    if kept.is_symlink() or place.is_symlink():
        return kept.is_symlink() and place.is_symlink() and kept.readlink() == place.readlink()
    return place.is_file() and filecmp.cmp(place, kept, shallow=False)


def _is_same(place: Path, kept: Path) -> bool:
    """As it was when it was kept; a copy has the same time."""
    if not os.path.lexists(place):
        return False
    now, then = place.lstat(), kept.lstat()
    return (now.st_mtime_ns, now.st_size, now.st_mode) == (then.st_mtime_ns, then.st_size, then.st_mode)


class Before:
    """The files that a merge may touch, as they were: links to them, for git writes each anew."""

    def __init__(self, git: UserGit, changes: list[MergedFile], bystanders: Iterable[str]) -> None:
        """`bystanders` have edits, and the merge has nothing for them: where git refuses, it resets them as well.

        Raises MusterError, and Conflict where a merge that was killed may have reset some of them.
        """
        self._git, self._changes = git, [change for change in changes if not change.module]
        self._folder = Path(git.run("rev-parse", "--absolute-git-dir")) / _KEPT
        self._kept: dict[str, Path] = {}
        self._refuse_killed()
        self.drop()  # of a merge that was killed
        self._bystanders = sorted(set(bystanders) - {change.path for change in changes})
        try:
            self._folder.mkdir()
            for path in (*self._bystanders, *(change.path for change in self._changes if not change.added)):
                self._keep(path)
        except OSError as error:
            self.drop()
            raise MusterError(
                f"what a merge may touch cannot be put aside first: {error}; nothing was changed", "mend that"
            ) from error
        above = {place for change in self._changes for place in Path(change.path).parents[:-1]}
        self._folders = {place for place in above if (git.folder / place).is_dir()}

    def _refuse_killed(self) -> None:
        """It has not put them back: what they held is here alone."""
        edited_then = self._folder / _EDITED
        found = (place for place in edited_then.rglob("*") if place.is_symlink() or not place.is_dir())
        then = {os.fspath(place.relative_to(edited_then)): place for place in found}
        if files := sorted(
            path for path, place in then.items() if not _is_same(self._git.folder / path, place)
        ):
            raise Conflict(
                f"a merge was killed here before, and {named(files)} may have lost what was not committed then; "
                f"it is kept in {edited_then}; nothing was changed",
                f"take from there what you need, then: rm -r {in_shell(os.fspath(self._folder))}",
            )

    def _keep(self, path: str) -> None:
        source, kept = self._git.folder / path, self._folder / str(len(self._kept))
        if source.is_dir() and not source.is_symlink():
            return
        if path in self._bystanders:
            kept = self._folder / _EDITED / path
            kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, kept, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError:  # another file system, or one without links
            shutil.copy2(source, kept, follow_symlinks=False)
        self._kept[path] = kept

    def begun(self) -> None:
        """Git has not refused, so it has reset nothing: whoever is killed from here on has lost nothing by it."""
        edited_then, begun = self._folder / _EDITED, self._folder / "begun"
        if edited_then.exists():
            edited_then.rename(begun)
            self._kept |= {path: begun / path for path in self._bystanders if path in self._kept}

    def put_back(self) -> list[str]:
        """What git has written is undone.  The files that are still not as they were: somebody else has
        written them meanwhile, or they cannot be written.
        """
        touched = {change.path for change in self._changes}
        if lines := [path for path in staged(self._git) if path in touched]:
            given = b"".join(os.fsencode(path) + b"\0" for path in lines)
            self._git.ask("reset", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul", given=given)
        changed = [change for change in self._changes if self._is_changed(change.path)]
        changed += [self._known(path) for path in self._bystanders if self._is_changed(path)]
        hashes = self._hashes([change.path for change in changed])
        left = []
        for change in sorted(changed, key=lambda one: (not one.added, one.path)):
            place = self._git.folder / change.path
            try:
                if os.path.lexists(place) and not self._is_gits(change, hashes.get(change.path, "")):
                    left.append(change.path)
                elif change.path in self._kept:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    self._kept[change.path].replace(place)
                else:
                    place.unlink(missing_ok=True)
                    self._prune(place)
            except OSError:
                left.append(change.path)
        return sorted(touched.intersection(left))

    def _known(self, path: str) -> MergedFile:
        """As the index has it: what is staged was refused, and the merge has nothing for it."""
        return MergedFile(path, text_of(self._git.ask("rev-parse", f":0:{path}").stdout), "", False)

    def _is_changed(self, path: str) -> bool:
        place, kept = self._git.folder / path, self._kept.get(path)
        if kept is None:
            return os.path.lexists(place) and (place.is_symlink() or not place.is_dir())
        return not _is_same(place, kept)

    def _is_gits(self, change: MergedFile, found: str) -> bool:
        """The file holds what git would have written, or a part of it."""
        if found and found in (change.old, change.new):
            return True
        if not change.new or change.removed:
            return False
        data = (self._git.folder / change.path).read_bytes()
        return self._git.ask("cat-file", "blob", change.new).stdout.startswith(data)

    def _hashes(self, paths: list[str]) -> dict[str, str]:
        """What git would store of them; without those that it cannot take in."""
        found = {}
        files = [path for path in paths if (self._git.folder / path).is_file()]
        links = [path for path in paths if (self._git.folder / path).is_symlink()]
        for path in links:
            target = os.fsencode((self._git.folder / path).readlink())
            found[path] = text_of(self._git.ask("hash-object", "--stdin", given=target).stdout)
        plain = [path for path in files if path not in found]
        for first in range(0, len(plain), _AT_ONCE):
            some = plain[first : first + _AT_ONCE]
            done = self._git.ask("hash-object", "--", *some)
            if done.returncode == 0:
                found.update(zip(some, text_of(done.stdout).splitlines(), strict=True))
                continue
            for path in some:
                done = self._git.ask("hash-object", "--", path)
                if done.returncode == 0:
                    found[path] = text_of(done.stdout)
        return found

    def _prune(self, place: Path) -> None:
        """Folders that are empty now, and were not there."""
        with suppress(OSError):
            for folder in place.relative_to(self._git.folder).parents[:-1]:
                if folder in self._folders:
                    return
                (self._git.folder / folder).rmdir()

    def drop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
