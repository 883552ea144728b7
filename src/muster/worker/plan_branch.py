"""The branch of a plan, and what Muster knows of it: what was published there last, and for which project.

A ref of its own says so, moved in one step with the branch: so a branch that was moved back is seen before
anything is built on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from muster.model.file_names import readable
from muster.model.refs import PUBLISHED, plan_branch, published_ref, task_branches
from muster.worker.git import GitFailed, GitRefused, Repository, find_repository
from muster.worker.merging import NAMED_MAX, tasks_between
from muster.worker.tree_links import real

_SHORT = 12


class LastPublished(NamedTuple):
    commit: str
    project: str
    """The id of the project whose plan it is."""
    trees: Path
    """Where that one's tasks have their trees."""


class PlanBranch(Struct, frozen=True):
    repository: Repository
    plan: str
    trees: Path
    """Where the tasks of this project have their trees."""

    @property
    def name(self) -> str:
        return plan_branch(self.plan)

    def tip(self) -> str | None:
        """Where it stands; None where it does not exist.  Raises GitFailed where nothing may be built on it."""
        last = self._last()  # first, as others may move it on meanwhile
        tip = self.repository.commit_of(f"refs/heads/{self.name}")
        if last is None:
            return tip
        if not self._owns(last) and self._shares(last.trees):
            raise GitFailed(
                f"branch {self.name} has the work of the plan of the same name in {last.trees.parent.parent}",
                f"give one of the two plans another name; or forget that one: {self._forget}",
            )
        if tip is None and self.repository.project != last.project:
            return None  # the store is a new one, and the branch was deleted: the plan begins anew
        # What a person has merged already is not lost.
        if not any(self.repository.is_ancestor(last.commit, name) for name in (tip or "HEAD", "HEAD")):
            tasks = ", ".join(tasks_between(self.repository, tip or "HEAD", last.commit))
            where = "was deleted" if tip is None else f"was moved to {tip[:_SHORT]}"
            raise GitFailed(
                f"branch {self.name} {where}, and has no longer what was published there: {tasks}",
                f"put it back: git branch -f {self.name} {last.commit[:_SHORT]}; or go on from where it is now: "
                f"{self._forget}",
            )
        return tip

    def others(self) -> tuple[str, ...]:
        """Commits that are on it, and that Muster has not published: hash and subject."""
        tip, last = self.tip(), self._last()
        if tip is None or last is None:
            return ()
        listed = self.repository.run("log", f"-{NAMED_MAX}", "--format=%h %s", f"{last.commit}..{tip}")
        return tuple(readable(listed).splitlines())

    def move(self, old: str | None, new: str) -> None:
        """With what is known of it, in one step.  Raises GitFailed where it does not stand at `old` any more."""
        record = self.record(new)
        moves = f"update refs/heads/{self.name} {new} {old or '0' * len(new)}\nupdate {self._ref} {record}\n"
        self.repository.run("update-ref", "--stdin", given=moves)

    def record(self, new: str) -> str:
        """The object that says what was published: this commit."""
        tag = (
            f"object {new}\ntype commit\ntag {self.name}\ntagger Muster <muster@localhost> 0 +0000\n\n"
            f"{real(self.trees)}\n{self.repository.project}\n"
        )
        return self.repository.run("mktag", given=tag)

    def refuse_checked_out(self) -> None:
        """Raises GitFailed where a person works on it."""
        if (folder := self.repository.checked_out(self.name)) is not None:
            raise GitFailed(
                f"branch {self.name} is checked out in {folder}, and no branch is moved under a person's feet",
                f"git -C {folder} switch -",
            )

    @property
    def published(self) -> str | None:
        """The commit that was published there last."""
        last = self._last()
        return None if last is None else last.commit

    def follow(self, tip: str, published: str) -> None:
        """Stands where it stands in the repository that this one is a part of."""
        if published:
            self.move(self.repository.commit_of(f"refs/heads/{self.name}"), published)
        else:
            self.repository.run("update-ref", "-d", self._ref)
        self.repository.run("update-ref", f"refs/heads/{self.name}", tip) if tip else self.repository.run(
            "update-ref", "-d", f"refs/heads/{self.name}"
        )

    def in_the_way(self) -> None:
        """Raises GitFailed where a branch of a person keeps git from making those of this plan."""
        names = ("muster", "muster/plan", "muster/task", task_branches(self.plan))
        form = "--format=%(refname:lstrip=2)"
        for name in self.repository.run("for-each-ref", form, "refs/heads/muster").splitlines():
            if name in names or name.startswith(f"{self.name}/"):
                self._refuse(name)

    @classmethod
    def known(cls, repository: Repository, trees: Path) -> Iterator[PlanBranch]:
        """Those on which this project has published something."""
        refs = repository.run("for-each-ref", "--format=%(refname)", f"refs/muster/*/{PUBLISHED}").split()
        for branch in (cls(repository, ref.split("/")[2], trees) for ref in refs):
            if (last := branch._last()) is not None and branch._owns(last):
                yield branch

    def _refuse(self, name: str) -> None:
        raise GitFailed(
            f"there is a branch {name}, so git cannot make branches like {self.name} beside it",
            f"git branch -m {name} {name.replace('/', '-')}-old",
        )

    @property
    def _ref(self) -> str:
        return published_ref(self.plan)

    @property
    def _forget(self) -> str:
        return f"git update-ref -d {self._ref}"

    def _last(self) -> LastPublished | None:
        said = self.repository.run("for-each-ref", "--format=%(*objectname)%0a%(contents)", self._ref)
        if not said:
            return None
        commit, trees, project = f"{said}\n\n".split("\n", 3)[:3]
        return LastPublished(commit, project.strip(), Path(trees))

    def _owns(self, last: LastPublished) -> bool:
        return real(self.trees) == last.trees or self.repository.project == last.project

    def _shares(self, trees: Path) -> bool:
        """Whether that project is still there, and works in this repository; it may where git does not tell."""
        try:
            other = find_repository(trees)
        except GitRefused:
            return True
        return other is not None and other.common == self.repository.common
