"""A plan's or a task's branch is pushed, and its pull request opened or brought up to date: for `muster pr`, and
for whoever presses the button of a page."""

from __future__ import annotations

from typing import NamedTuple

from muster.app.plan_merge import repository_git
from muster.app.pull_request_text import text_for
from muster.app.pull_requests import (
    PullRecord,
    Target,
    base_of,
    keep,
    plan_target,
    publish,
    push,
    records,
    remote_of,
    task_target,
    telling_pushed,
    tip_of,
    wanted,
)
from muster.app.settings import load_config
from muster.client.api import Api
from muster.config.project import Project
from muster.hosts.user_git import text_of
from muster.outbound.forges import Forge, forge_of


class Opened(NamedTuple):
    record: PullRecord
    new: bool
    pushed: bool
    """Whether the remote has got anything by it."""


class Opening:
    def __init__(self, api: Api, project: Project) -> None:
        self.api = api
        self.project = project
        self.git = repository_git(project.root)
        self.config = load_config(project.root)
        self._forges: dict[str, Forge] = {}

    def forge(self, remote: str) -> Forge:
        if remote not in self._forges:
            url = text_of(self.git.ask("remote", "get-url", "--", remote).stdout)
            self._forges[remote] = forge_of(url, self.config.git.forge)
        return self._forges[remote]

    def target(self, word: str) -> tuple[str, Target]:
        plan, task = wanted(self.api, word)
        return plan, plan_target(self.git, plan) if task is None else task_target(self.git, task)

    def open(self, word: str, *, remote: str = "", base: str = "", only: PullRecord | None = None) -> Opened:
        """`remote` and `base`: where empty, those of before, or the usual ones; `only` as for `publish`."""
        plan, target = self.target(word)
        known = records(self.project).get(target.ref)
        place = remote_of(self.git, remote or (known.remote if known else ""))
        into = base or (known.base if known else base_of(self.git))
        forge = self.forge(place)  # before anything leaves this machine
        pushed = push(self.git, place, target, into)
        with telling_pushed(target.branch, place, new=pushed):
            since = tip_of(self.git, place, into)
            text = text_for(self.api, self.git, self.config, target, plan=plan, base=since)
            record, new = publish(forge, target, text, only=only, remote=place, base=into, new_base=base)
            return Opened(keep(self.project, record), new, pushed)
