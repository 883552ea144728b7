"""A plan's or a task's branch is pushed, and its pull request opened or brought up to date: for `muster pr`, and
for whoever presses the button of a page."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from muster.app.plan_merge import brought, repository_git, told_commits
from muster.app.pull_request_push import (
    push,
    refuse_brought,
    remote_of,
    telling_pushed,
    telling_unpushed,
    url_of,
)
from muster.app.pull_request_targets import Target, plan_target, task_target, wanted
from muster.app.pull_request_text import text_for
from muster.app.pull_requests import (
    BranchRequests,
    PullRecord,
    base_of,
    keep,
    publish,
    records,
    refuse_merged,
    requests_of,
    tip_of,
)
from muster.app.seen_work import refuse_unseen
from muster.app.settings import load_config
from muster.client.api import Api
from muster.config.project import Project
from muster.hosts.user_git import UserGit
from muster.model.works import PullProposed
from muster.outbound.forges import OPEN, Forge, forge_of
from muster.ports.works import WorkSeen
from muster.worker.git import find_repository

ANY = WorkSeen(None, None)
"""Whoever says no more means what is there."""


def proposal_of(git: UserGit, target: Target, remote: str, base: str, since: str) -> PullProposed:
    """`since`: the commit where the base is."""
    return PullProposed(
        ref=target.ref,
        branch=target.branch,
        tip=target.commit,
        remote=remote,
        base=base,
        commits=told_commits(brought(git, target.commit, since or "HEAD")),
    )


class Opened(NamedTuple):
    record: PullRecord
    new: bool
    pushed: bool
    """Whether the remote has got anything by it."""
    remarks: tuple[str, ...] = ()


class Opening:
    def __init__(self, api: Api, project: Project) -> None:
        self.api = api
        self.project = project
        self.git = repository_git(project.root)
        self.config = load_config(project.root)
        self._forges: dict[str, Forge] = {}

    def forge(self, remote: str) -> Forge:
        if remote not in self._forges:
            setting = self.config.git.forge
            self._forges[remote] = forge_of(url_of(self.git, remote, setting), setting)
        return self._forges[remote]

    def target(self, word: str) -> tuple[str, Target]:
        plan, task = wanted(self.api, word)
        if task is None:
            return plan, plan_target(self.git, plan)
        repository = find_repository(self.project.root)
        assert repository is not None, "`repository_git` has found it"
        return plan, task_target(repository, self.project.worktrees_dir, task)

    def _aim(self, target: Target, remote: str = "") -> tuple[str, PullRecord | None]:
        """The remote, where empty that of before or the usual one, and what was opened there from here."""
        known = records(self.project).get(target.ref)
        place = remote_of(self.git, remote or (known.remote if known else ""))
        return place, known if known is not None and known.remote == place else None

    def proposed(self, word: str) -> PullProposed:
        """What `open` would push, as far as that is known without asking the forge."""
        _, target = self.target(word)
        place, known = self._aim(target)
        into = known.base if known is not None and known.state == OPEN else base_of(self.git)
        return proposal_of(self.git, target, place, into, tip_of(self.git, place, into))

    def open(
        self,
        word: str,
        *,
        remote: str = "",
        base: str = "",
        only: PullRecord | None = None,
        seen: WorkSeen = ANY,
    ) -> Opened:
        """`remote` and `base`: where empty, those of the open one, or the usual ones.

        `only`: that one, as long as it is open; another one is not opened unasked.
        """
        plan, target = self.target(word)
        place, known = self._aim(target, remote)
        forge = self.forge(place)
        with telling_unpushed():  # the branch of what was merged, and is deleted since, is not to come back
            now = requests_of(forge, target.branch, known)
            if known is not None and now.ended is not None:
                known = keep(self.project, replace(known, state=now.ended.state))
                if only is not None and only.number == known.number:
                    return Opened(known, False, False)
            into = base or (now.open.base if now.open else base_of(self.git))
            if known is not None and now.ended is not None and not now.open:
                refuse_merged(self.git, target, now.ended, known, into)
            tip, is_open = tip_of(self.git, place, into), now.open is not None
            fetched = self.git.commit_of(f"refs/remotes/{place}/{into}")
            refuse_brought(self.git, target, fetched, f"{into} of {place}", is_open=is_open)
        # One that is open stays where it goes.
        now_seen = WorkSeen(target.commit, seen.into if is_open else into)
        refuse_unseen(self.git, seen, now_seen, target.branch, f"muster task list --plan {plan}")
        pushed = push(self.git, place, target)
        with telling_pushed(target.branch, place, new=pushed):
            text = text_for(self.api, self.git, self.config, target, plan=plan, base=tip)
            number = now.open.number if now.open else None
            given = {"remote": place, "base": into, "new_base": base}
            record, new = publish(forge, target, text, **given, number=number)
            remarks = self._remarks(now, record, base)
            return Opened(keep(self.project, record), new, pushed, remarks)

    def _remarks(self, now: BranchRequests, record: PullRecord, base: str) -> tuple[str, ...]:
        told, here = [], self.git.branch()
        if now.ended is not None:
            told.append(f"the one before, {now.ended.url}, was {now.ended.state}")
        if record.state != OPEN:
            told.append(f"it was {record.state} meanwhile, and no other one was opened")
        elif now.open is not None and not base and here != record.base and not here.startswith("muster/"):
            stays = f"it goes into {record.base}, as it was opened"
            told.append(f"{stays}: --base {here} changes that" if here else stays)
        return tuple(told)
