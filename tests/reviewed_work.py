"""Work of tasks in a repository, as their workers leave it there, before an owner of `far_servers`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cli_owner import Owner
from muster.app.works import LocalWorks
from muster.config.project import Project
from muster.hosts.user_git import UserGit
from muster.model.refs import base_ref, kept_ref, plan_branch
from muster.worker.git import find_repository

_IDENTITY = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Repo:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main", "--template=")
        self.git("config", "user.name", "Ann")
        self.git("config", "user.email", "ann@example.org")
        (root / ".gitignore").write_text(".muster/\n")
        (root / "kept.py").write_text("".join(f"line_{number} = {number}\n" for number in range(40)))
        self.git("add", ".gitignore", "kept.py")
        self.git("commit", "-qm", "first")

    def git(self, *words: str) -> str:
        env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, **_IDENTITY}
        done = subprocess.run(
            ["git", *words], cwd=self.root, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.rstrip("\n")

    def commit(self, files: Mapping[str, str], message: str, *, onto: str = "main") -> str:
        """On top of that branch or commit, which stays where it is; its tree is not touched."""
        index = {"GIT_INDEX_FILE": str(self.root / ".git" / "work-index"), "LC_ALL": "C"}
        own = UserGit(self.root, {**index, **_IDENTITY})
        own.run("read-tree", onto)
        for path, text in files.items():
            name = own.run("hash-object", "-w", "--stdin", given=text.encode())
            own.run("update-index", "--add", "--cacheinfo", f"100644,{name},{path}")
        return own.run("commit-tree", own.run("write-tree"), "-p", onto, "-m", message)

    def leave(self, plan: str, key: str, epoch: int, files: Mapping[str, str], *, onto: str = "main") -> str:
        """What that attempt has left."""
        made = self.commit(files, f"{key}\n\nTask: {plan}/{key}", onto=onto)
        self.git("update-ref", base_ref(plan, key, epoch), onto)
        self.git("update-ref", kept_ref(plan, key, epoch), made)
        return made

    def publish(self, plan: str, key: str, files: Mapping[str, str]) -> None:
        branch = f"refs/heads/{plan_branch(plan)}"
        there = subprocess.run(
            ["git", "rev-parse", "--verify", "-q", branch], cwd=self.root, capture_output=True, check=False
        )
        onto = branch if there.returncode == 0 else "main"
        self.git("update-ref", branch, self.commit(files, f"{key}\n\nTask: {plan}/{key}", onto=onto))


def with_repository(owner: Owner) -> Repo:
    repo = Repo(owner.root)
    found = find_repository(owner.root)
    assert found is not None
    owner.served.works = LocalWorks(found, Project(owner.root))
    return repo
