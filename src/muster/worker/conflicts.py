"""What git could not merge by itself, path by path, and whether anybody has decided on it since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from muster.model.file_names import in_words
from muster.worker.git import Repository

MARKER_BEGINS = "^<{7,}( |$)"
HOW_TO_KEEP = (
    "where a file without markers is right just as it lies here, say so: `git add PATH`, or a line of its own "
    "in a message: `muster: keep PATH`"
)
_MARKER = "^(<{7,}|>{7,})( |$)"
_PATHS_MAX = 1000
"""So many fit on a command line; those behind them have their turn when these are mended."""
_GONE = "0 " + "0" * 40
_KINDS = {
    "12": "changed here, and removed by {other}: keep it or remove it",
    "13": "removed here, and changed by {other}: keep it or remove it",
    "1": "moved to different names, or moved and removed: decide which names stay",
    "2": "your side has it under this name, {other} has not: decide on its name, or on a folder of that name",
    "3": "{other} has it under this name, your side has not: decide on its name, or on a folder of that name",
}
_LINES = "both sides change the same lines: edit it, and remove the markers"
_WHOLE = "{what}; yours lies here, the other one: git show MERGE_HEAD:{path}; choose or make one"
_WHAT = {"120000": "both sides have a link of their own", "160000": "both sides have a commit of their own"}


class Unmerged(NamedTuple):
    path: str
    sides: Mapping[str, str]
    """By git's stage (1: before, 2: ours, 3: theirs): mode and object."""

    @property
    def left(self) -> str:
        """What git leaves of it where it cannot mix the two."""
        return self.sides.get("2") or self.sides.get("3") or _GONE

    def words(self, other: str, *, markers: bool) -> str:
        kind, path = _KINDS.get("".join(sorted(self.sides))), in_words(self.path)
        if kind is None:
            what = _WHAT.get(self.left[:6], "binary, so git cannot mix the two")
            kind = _LINES if markers else _WHOLE
            return f"{path}: {kind.format(what=what, path=path)}"
        return f"{path}: {kind.format(other=other)}"


def conflicts(repository: Repository, index: Path) -> list[Unmerged]:
    """Nobody has told git of a decision on them."""
    found: dict[str, dict[str, str]] = {}
    for line in filter(None, repository.run("ls-files", "--unmerged", "-z", index=index).split("\0")):
        said, _, path = line.partition("\t")
        entry, _, stage = said.rpartition(" ")
        found.setdefault(path, {})[stage] = entry
    return [Unmerged(path, sides) for path, sides in found.items()]


def resolve(repository: Repository, index: Path, entries: Iterable[tuple[str, str]]) -> None:
    """Puts (path, mode and object) into the index, as the decision on that path."""
    if told := "".join(f"{entry}\t{path}\0" for path, entry in entries):
        repository.ask("update-index", "-z", "--replace", "--index-info", index=index, given=told)


def lying(repository: Repository, tree: str, found: Iterable[Unmerged]) -> list[tuple[str, str]]:
    """(path, mode and object) of these as they are in `tree`; of what is no file there, that it is gone."""
    there = _entries(repository, tree)
    return [(each.path, there.get(each.path, _GONE)) for each in found]


def ours(repository: Repository, head: str, found: Iterable[Unmerged]) -> list[tuple[str, str]]:
    """As `lying`, in our commit, without what git has named `NAME~SIDE` because a folder has the name."""
    there = _entries(repository, head)
    stems = {each.path: each.path.rpartition("~")[0] for each in found}
    moved = [stem for path, stem in stems.items() if path not in there and stem in there]
    return [(path, there.get(path, _GONE)) for path in (*stems, *moved)]


def _entries(repository: Repository, tree: str) -> dict[str, str]:
    listed = repository.run("ls-tree", "-r", "-z", "--full-tree", tree).split("\0")
    lines = (line.partition("\t") for line in filter(None, listed))
    return {path: said.replace(" blob ", " ").replace(" commit ", " ") for said, _, path in lines}


def undecided(repository: Repository, admin: Path, found: list[Unmerged], tree: str) -> tuple[Unmerged, ...]:
    """Those that lie in `tree` byte for byte as git has left them; all, where git does not know that any more."""
    if not found:
        return ()
    left = f"worktrees/{admin.name}/AUTO_MERGE"
    diff = repository.ask("diff-tree", "-r", "-z", "--name-only", "--no-renames", left, tree)
    edited = set(diff.stdout.split("\0")) if diff.returncode == 0 else set()
    return tuple(each for each in found if each.path not in edited)


def marked(repository: Repository, tree: str, paths: Iterable[str]) -> dict[str, str]:
    """Those of these files in which a conflict begins and ends, whatever their attributes, and the first line."""
    options = ("-a", "-n", "-z", "-E", "--no-color", "--no-column")
    few = list(paths)[:_PATHS_MAX]
    if not few:
        return {}
    done = repository.ask("--literal-pathspecs", "grep", *options, _MARKER, tree, "--", *few)
    found: dict[str, list[tuple[str, str]]] = {}
    for line in done.stdout.split("\n"):
        place, _, said = line.partition("\0")
        number, _, text = said.partition("\0")
        found.setdefault(place.partition(":")[2], []).append((number, text[:1]))
    return {path: lines[0][0] for path, lines in found.items() if {"<", ">"} <= {sign for _, sign in lines}}
