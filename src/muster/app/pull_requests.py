"""What `muster pr` has opened: pushed, described, looked at again, and turned into notes for retries.

Nothing is pushed but by that command, and nothing with force.  What people without write access say is shown to
the user, and goes to no agent.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.app.plan_merge import brought
from muster.app.pull_request_targets import Target
from muster.client.api import Api, task_path
from muster.config.project import Project
from muster.hosts.file_lock import Lock, holder
from muster.hosts.plain_files import replace_plain
from muster.hosts.user_git import UserGit, text_of
from muster.model.errors import Conflict, MusterError, NotFound, OwnerUnavailable
from muster.model.json_value import Json
from muster.outbound.forges import (
    FAILED,
    MERGED,
    OPEN,
    PENDING,
    Comment,
    Forge,
    ForgeCheck,
    PullRequest,
)

NOTE_CHARS_MAX = 6000
TEXT_CHARS_MAX = 1500
_ID_CHARS = 12
_BEGINS, _ENDS = "<!-- muster -->", "<!-- /muster -->"
"""Around what is Muster's in the text of a pull request."""


class Proposal(Struct, frozen=True, rename="camel"):
    """A retry that a person may start."""

    ref: str
    task_id: int
    generation: int
    """Of the task when this was proposed: a later one has been told."""
    note: str
    ids: tuple[str, ...]


class PullRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One pull request, as it was last looked at."""

    ref: str
    task: bool
    remote: str
    branch: str
    base: str
    number: int
    url: str
    commit: str
    """What was pushed last."""
    state: str = OPEN
    checks: tuple[ForgeCheck, ...] = ()
    comments: tuple[Comment, ...] = ()
    proposed: tuple[Proposal, ...] = ()
    handled: tuple[str, ...] = ()
    """Comments and failed checks that a retry was told."""
    looked_at_ms: int = 0
    head: str = ""
    """The newest commit that the forge has of its branch."""

    @property
    def pending(self) -> bool:
        return any(check.status == PENDING for check in self.checks)

    @property
    def failed(self) -> list[ForgeCheck]:
        return [check for check in self.checks if check.status == FAILED]


_RECORDS = msgspec.json.Decoder(dict[str, PullRecord])


def records(project: Project) -> dict[str, PullRecord]:
    try:
        return _RECORDS.decode(project.pull_requests.read_bytes())
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise MusterError(
            f"{project.pull_requests} cannot be read: {error}", f"rm {project.pull_requests}"
        ) from None


@contextmanager
def alone(project: Project) -> Iterator[None]:
    """One command at a time changes what is known of pull requests, or starts what they call for."""
    lock = os.open(f"{project.pull_requests}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def only_follower(project: Project, ref: str) -> Lock:
    """Held until it ends.  Raises Conflict."""
    name = hashlib.sha256(ref.encode()).hexdigest()[:_ID_CHARS]
    path = project.pull_requests.with_name(f"{project.pull_requests.name}.{name}.follow")
    try:
        return Lock.take(path)
    except OwnerUnavailable:
        raise Conflict(
            f"process {holder(path) or '?'} follows the pull request of {ref} already",
            f"muster pr status {ref}",
        ) from None


def keep(project: Project, record: PullRecord) -> PullRecord:
    with alone(project):
        found = records(project)
        known = found.get(record.ref)
        if known is not None and known.number == record.number:
            record = replace(record, handled=tuple(dict.fromkeys((*known.handled, *record.handled))))
            if not record.looked_at_ms:  # only published: what was said of it stays
                words = (known.checks, known.comments, known.proposed, known.looked_at_ms)
                names = ("checks", "comments", "proposed", "looked_at_ms")
                record = replace(record, **dict(zip(names, words, strict=True)))
        found[record.ref] = record
        replace_plain(project.pull_requests, msgspec.json.encode(found))
        return found[record.ref]


def base_of(git: UserGit) -> str:
    """The branch that the work is to go into: the one that its user is on."""
    base = git.branch()
    if not base or base.startswith("muster/"):
        raise Conflict(
            f"you are on {base or 'no branch'}, into which no work goes; nothing was pushed", "--base BRANCH"
        )
    return base


def tip_of(git: UserGit, remote: str, base: str) -> str:
    """Where the branch that the work goes into was last seen; empty where nothing is known of it."""
    return git.commit_of(f"refs/remotes/{remote}/{base}") or git.commit_of(f"refs/heads/{base}")


class BranchRequests(NamedTuple):
    """What the forge has of a branch before it is pushed."""

    open: PullRequest | None
    ended: PullRequest | None
    """The one that was known last, merged or closed."""


def requests_of(forge: Forge, branch: str, known: PullRecord | None) -> BranchRequests:
    """`known`: that of before, at this forge."""
    last = None
    if known is not None:
        with suppress(NotFound):
            last = forge.view(known.number)
    if last is not None and last.own and last.state == OPEN:
        return BranchRequests(last, None)
    return BranchRequests(forge.find(branch), last if last is not None and last.own else None)


def refuse_merged(git: UserGit, target: Target, ended: PullRequest, known: PullRecord, into: str) -> None:
    """Raises Conflict where what was merged is all that there is: its branch is not pushed a second time."""
    if ended.state != MERGED or ended.base != into:
        return
    # More may have been added to it at the forge, which is not here.
    has = ("merge-base", "--is-ancestor", target.commit, ended.commit)
    if target.commit in (ended.commit, known.commit) or git.ask(*has).returncode == 0:
        raise Conflict(
            f"{ended.url} was merged into {ended.base}, with all that {target.branch} has; nothing was pushed",
            f"git fetch {known.remote}; muster why {target.ref}",
        )


def publish(
    forge: Forge,
    target: Target,
    text: str,
    *,
    remote: str,
    base: str,
    new_base: str,
    number: int | None = None,
) -> tuple[PullRecord, bool]:
    """Opens the pull request of what was pushed, or brings the open one up to date; True where it is new.

    What people have made of its title, its base and the text around ours stays, unless `new_base` is given.
    `number`: the one that was open before the push; where it has ended since, another one is not opened unasked.
    """
    body = f"{_BEGINS}\n{text}\n{_ENDS}"
    made, found = None, forge.find(target.branch) if number is None else forge.view(number)
    if found is None:
        try:
            made = forge.open(target.branch, base, target.title, body)
        except Conflict:  # another command may have opened it meanwhile
            if (found := forge.find(target.branch)) is None:
                raise
    if found is not None:
        before, _, rest = found.body.partition(_BEGINS)
        _, _, after = rest.partition(_ENDS)
        ended = found.state != OPEN
        made = found if ended else forge.update(found.number, new_base, f"{before}{body}{after}")
    assert made is not None
    record = PullRecord(
        ref=target.ref,
        task=target.task,
        remote=remote,
        branch=target.branch,
        base=made.base,
        number=made.number,
        url=made.url,
        # What came after its end is no part of it.
        commit=target.commit if made.state == OPEN else made.commit or target.commit,
        state=made.state,
    )
    return record, found is None


@dataclass(frozen=True)
class Looking:
    """At a pull request: what was said of it, and which task that is for."""

    api: Api
    git: UserGit
    forge: Forge
    now_ms: int

    def look(self, record: PullRecord) -> PullRecord:
        pull = self.forge.view(record.number)
        if not pull.own:
            raise Conflict(
                f"{pull.url} is from another repository, and nothing that `muster pr` has opened",
                f"muster pr {record.ref}",
            )
        checks = tuple(self.forge.checks(record.commit))
        comments = tuple(self.forge.comments(record.number))
        handled = {
            *record.handled,
            *(id_ for one in record.proposed if has_moved_on(self.api, one) for id_ in one.ids),
        }
        said_of = self._by_task(record, checks, comments, handled) if pull.state == OPEN else {}
        proposed = tuple(
            Proposal(
                ref=f"{task['plan']}/{task['key']}",
                task_id=task["id"],
                generation=task["generation"],
                note=note_of(pull.url, [text for _, text in fitting(lines)]),
                ids=tuple(id_ for id_, _ in fitting(lines)),
            )
            for task, lines in said_of.values()
        )
        return replace(
            record,
            state=pull.state,
            url=pull.url,
            checks=checks,
            comments=comments,
            proposed=proposed,
            handled=tuple(sorted(handled)),
            looked_at_ms=self.now_ms,
            head=pull.commit,
        )

    def has_foreign(self, record: PullRecord) -> bool:
        """Its branch has commits at the forge that we have not pushed; an older one of ours may be shown for a
        while."""
        ours = ("merge-base", "--is-ancestor", record.head, record.commit)
        return bool(record.head) and self.git.ask(*ours).returncode != 0

    def _by_task(
        self,
        record: PullRecord,
        checks: Iterable[ForgeCheck],
        comments: Iterable[Comment],
        handled: set[str],
    ) -> dict[int, tuple[Json, list[tuple[str, str]]]]:
        found: dict[int, tuple[Json, list[tuple[str, str]]]] = {}
        news: list[tuple[str, str, int | None, str]] = [
            (f"{c.name}@{record.commit}", "", None, _of_check(c)) for c in checks if c.status == FAILED
        ]
        # Nobody else's words reach an agent: whoever may comment is not yet whoever may say what is built.
        news += [(_id_of(c), c.path, c.line, _of_comment(c)) for c in comments if c.writes]
        for id_, path, line, text in news:
            task = self._task(record, path, line) if id_ not in handled else None
            if task is not None:
                found.setdefault(task["id"], (task, []))[1].append((id_, text))
        return found

    def _task(self, record: PullRecord, path: str, line: int | None) -> Json | None:
        """Whose work this place is; the newest task's where it is none's."""
        if record.task:
            return self._known(record.ref)
        commit = record.commit
        since = tip_of(self.git, record.remote, record.base) or f"{commit}~1"
        refs = authors_of(self.git, commit, path, line, since)
        for ref in filter(None, refs):
            if (task := self._known(ref)) is not None:
                return task
        return None

    def _known(self, ref: str) -> Json | None:
        try:
            found = self.api.get("/api/v1/resolve", {"ref": ref})["taskId"]
            task: Json = self.api.get(task_path(found))["task"]
        except NotFound:
            return None
        return task


def authors_of(git: UserGit, commit: str, path: str, line: int | None, since: str) -> list[str]:
    """`plan/key` of those whose work a place on a plan's branch may be: the line's, the file's, the newest's."""
    found: list[str] = []
    if path and line:
        asked = ("blame", "-s", "-l", "--first-parent", f"-L{line},{line}", commit, "--", path)
        name = text_of(git.ask(*asked).stdout).partition(" ")[0].lstrip("^")
        found += _tasks(git, "-1", name) if name else []
    if path:  # of the plan's commits that have changed it, the newest first
        found += _tasks(git, "-m", "--first-parent", "-20", commit, "--", path)
    return [*found, *(one.task for one in reversed(brought(git, commit, since)))]


def _tasks(git: UserGit, *words: str) -> list[str]:
    return text_of(git.ask("log", "--format=%(trailers:key=Task,valueonly)", *words).stdout).split()


def has_moved_on(api: Api, proposal: Proposal) -> bool:
    """Its task was retried since, or is gone."""
    try:
        generation: int = api.get(task_path(proposal.task_id))["task"]["generation"]
    except NotFound:
        return True
    return generation > proposal.generation


def due(api: Api, project: Project, plan: str | None = None) -> list[tuple[PullRecord, Proposal]]:
    """The proposed retries that nobody has started, as of the last look at the forge."""
    found = [record for record in records(project).values() if record.state == OPEN]
    return [
        (record, one)
        for record in found
        for one in record.proposed
        if plan in (None, one.ref.partition("/")[0]) and not has_moved_on(api, one)
    ]


def fitting(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """As many as one note takes; the others are for the next one."""
    sums = accumulate(len(text) for _, text in lines)
    return [line for line, chars in zip(lines, sums, strict=True) if chars <= NOTE_CHARS_MAX]


def note_of(url: str, lines: list[str]) -> str:
    return "\n".join([f"Your work was looked at, at {url}.", *lines])


def _id_of(comment: Comment) -> str:
    """One that was edited since is another one."""
    return f"{comment.id}@{hashlib.sha256(comment.text.encode()).hexdigest()[:_ID_CHARS]}"


def _of_check(check: ForgeCheck) -> str:
    where = f" ({check.url})" if check.url else ""
    return f"The check {check.name} has failed{where}: {_cut(check.said) or 'it does not say why'}"


def _of_comment(comment: Comment) -> str:
    place = f" on {comment.path}{f':{comment.line}' if comment.line else ''}" if comment.path else ""
    return f"{comment.author}{place}: {_cut(comment.text)}"


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}..."
