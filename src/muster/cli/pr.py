"""`muster pr`: a plan's or a task's branch as a pull request, and what is said of it as notes for retries."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import to_builtins

from muster.app.pull_request_opening import Opened, Opening
from muster.app.pull_request_targets import wanted
from muster.app.pull_requests import (
    Looking,
    Proposal,
    PullRecord,
    alone,
    has_moved_on,
    keep,
    only_follower,
    records,
)
from muster.cli.context import Context, connect, refuse_attempts
from muster.cli.output import Screen, clean, inert, note, now_ms, print_json, shell_word
from muster.cli.values import number
from muster.cli.waiting import ENDED, FOREVER_S, Waiting, duration_s
from muster.client.api import task_path
from muster.model.errors import NotFound, OwnerUnavailable, Unavailable
from muster.model.json_value import Json
from muster.model.wording import counted
from muster.outbound.forges import OPEN, PENDING

T = TypeVar("T")

ROUNDS = 3
EVERY_S = 30.0
EXIT_UNSUCCESSFUL = 5
SAID_SHOWN = 200
_LOOKS = {"passed": "completed", "failed": "attempt failed", "pending": "running"}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    opening = verbs.add_parser(
        "open",
        act=_open,
        help="push its branch, and open its pull request or bring it up to date; may be left out",
    )
    opening.add_argument("ref", metavar="PLAN|TASK")
    opening.add_argument(
        "--remote",
        metavar="NAME",
        default="",
        help="where to push (the upstream of your branch, else origin)",
    )
    opening.add_argument(
        "--base",
        metavar="BRANCH",
        default="",
        help="the branch that it is to go into (the one that you are on)",
    )
    opening.add_argument(
        "--follow",
        action="store_true",
        help="go on until it is merged or closed: failed checks and review comments start retries without asking",
    )
    opening.add_argument(
        "--rounds",
        metavar="N",
        type=number(1, 100),
        default=ROUNDS,
        help=f"with --follow: at most so many rounds of retries ({ROUNDS})",
    )
    opening.add_argument(
        "--every",
        metavar="TIME",
        type=duration_s,
        default=EVERY_S,
        help=f"with --follow: how often the forge is asked ({EVERY_S:g} s)",
    )
    opening.set_defaults(wait=FOREVER_S, goal=ENDED)
    looking = verbs.add_parser(
        "status", act=_status, help="ask the forge: checks, comments, and the retries they call for"
    )
    looking.add_argument("ref", metavar="PLAN|TASK", nargs="?", help="default: all that are open")
    retrying = verbs.add_parser(
        "retry", act=_retry, help="start the retries that `status` and `inbox` propose"
    )
    retrying.add_argument("ref", metavar="PLAN|TASK")


class _Work(Opening):
    """One command about pull requests."""

    def __init__(self, args: argparse.Namespace, context: Context) -> None:
        super().__init__(context.api, context.project)
        self.args = args
        self.context = context

    def publish(self, only: PullRecord | None = None) -> Opened:
        return self.open(self.args.ref, remote=self.args.remote, base=self.args.base, only=only)

    def looking(self, record: PullRecord) -> Looking:
        return Looking(self.context.api, self.git, self.forge(record.remote), now_ms())

    def look(self, record: PullRecord) -> PullRecord:
        return keep(self.context.project, self.looking(record).look(record))

    def retry(self, proposals: Iterable[Proposal]) -> list[Proposal]:
        """Those of them that nobody else has started meanwhile."""
        with alone(self.context.project):
            due = [one for one in proposals if not has_moved_on(self.context.api, one)]
            for one in due:
                self.context.post(task_path(one.task_id, "retry"), note=one.note, fresh=False)
        return due


def _open(args: argparse.Namespace) -> int:
    with connect(args) as context:
        refuse_attempts(context.api, "pr")
        if args.follow and context.direct:
            raise OwnerUnavailable(
                "no crew is up, so no retry would be run; nothing was pushed",
                "muster up --daemon, then again",
            )
        work = _Work(args, context)
        opened = work.publish()
        record, screen = opened.record, Screen(args.color)
        if not args.json:
            _tell_open(screen, opened)
        if not args.follow:
            if args.json:
                told = {"new": opened.new, "pushed": opened.pushed, "remarks": opened.remarks}
                print_json(_row(record) | told)
            return 0
        lock = only_follower(context.project, record.ref)
        try:
            record, code = _follow(work, record, screen)
        finally:
            lock.release()
        if args.json:
            print_json(_row(record))
        return code


def _tell_open(screen: Screen, opened: Opened) -> None:
    record = opened.record
    told = "pushed  " if opened.pushed else "no news "
    screen.line(f"{told} {clean(record.branch)} to {clean(record.remote)}: {record.commit[:9]}")
    done = "opened" if opened.new else "updated" if record.state == OPEN else record.state
    screen.line(f"{done:<8} {clean(record.url)} into {clean(record.base)}")
    for remark in opened.remarks:
        screen.line(f"note     {clean(remark)}")


class _Following:
    """Of one pull request, for as long as it takes; whatever is new about it is said once."""

    def __init__(self, work: _Work, screen: Screen) -> None:
        self.work = work
        self._screen = screen
        self._said = ""

    def say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            note(text) if self.work.args.json else self._screen.line(text)
            self._screen.stream.flush()

    def _patiently(self, act: Callable[[], T]) -> T:
        """However long the forge is away."""
        while True:
            try:
                return act()
            except OwnerUnavailable:
                raise
            except Unavailable as error:
                self.say(f"waiting  {clean(error.message)}")
                time.sleep(self.work.args.every)

    def look(self, record: PullRecord) -> PullRecord:
        return self._patiently(lambda: self.work.look(record))

    def publish(self, record: PullRecord) -> PullRecord:
        opened = self._patiently(lambda: self.work.publish(record))
        if not self.work.args.json and opened.record.state == OPEN:
            _tell_open(self._screen, opened)
        return opened.record

    def stops(self, record: PullRecord) -> int | None:
        """The exit code where nothing is left that an agent could do."""
        if record.state != OPEN:
            self.say(f"{record.state:<8} {clean(record.url)}")
            return 0 if record.state == "merged" else EXIT_UNSUCCESSFUL
        if self.work.looking(record).has_foreign(record):
            fetch = f"git fetch {shell_word(record.remote)}"
            self.say(f"stopped  {clean(record.branch)} was moved at the forge, and not by Muster: {fetch}")
            return EXIT_UNSUCCESSFUL
        if record.failed and not record.pending and not record.proposed:
            names = ", ".join(clean(check.name) for check in record.failed)
            self.say(f"failed   {names}, after a retry that was told; look at {clean(record.url)}")
            return EXIT_UNSUCCESSFUL
        return None


def _follow(work: _Work, record: PullRecord, screen: Screen) -> tuple[PullRecord, int]:
    """Until it is merged or closed, or nothing is left that an agent could do."""
    args, rounds, following = work.args, 0, _Following(work, screen)
    begun = [one.task_id for one in record.proposed if has_moved_on(work.context.api, one)]
    if begun:  # whoever followed it before has ended in the middle of a round
        waiting = Waiting(args, work.context)
        if code := waiting.code(waiting.tasks(begun)):
            return record, code
        if following.look(record).state == OPEN:
            record = following.publish(record)
    while True:
        record = following.look(record)
        if (stops := following.stops(record)) is not None:
            return record, stops
        if record.pending:
            waits = ", ".join(clean(check.name) for check in record.checks if check.status == PENDING)
            following.say(f"waiting  for {waits}")
        elif record.proposed and rounds == args.rounds:
            more = f"muster pr status {shell_word(record.ref)}"
            following.say(f"{counted(rounds, 'round')} of retries, and there is more to do: {more}")
            return record, EXIT_UNSUCCESSFUL
        elif record.proposed:
            rounds += 1
            following.say(f"round {rounds}  {', '.join(clean(one.ref) for one in record.proposed)} again")
            if code := _round(work, record):
                return record, code
            if following.look(record).state == OPEN:  # else another one is not opened unasked
                record = following.publish(record)
            continue
        else:
            following.say(f"waiting  for a review of {clean(record.url)} (Ctrl-C: stop following)")
        time.sleep(args.every)


def _round(work: _Work, record: PullRecord) -> int:
    """Runs the proposed retries; 0 once all are done."""
    waiting = Waiting(work.args, work.context)
    ids = [proposal.task_id for proposal in record.proposed]
    waiting.tasks(ids)  # somebody may have retried one of them, and it is not done
    work.retry(record.proposed)
    return waiting.code(waiting.tasks(ids))


def _status(args: argparse.Namespace) -> int:
    with connect(args) as context:
        work = _Work(args, context)
        found = records(context.project)
        if args.ref is not None:
            chosen = [_chosen(work, found)]
        else:
            chosen = [record for record in found.values() if record.state == OPEN]
        looked = [work.look(record) for record in chosen]
    if args.json:
        print_json([_row(record) for record in looked])
        return 0
    screen = Screen(args.color)
    for record in looked:
        _show(screen, record)
    if not looked:
        screen.line("no pull request is open: muster pr PLAN")
    return 0


def _chosen(work: _Work, found: dict[str, PullRecord]) -> PullRecord:
    plan, task = wanted(work.context.api, work.args.ref)
    ref = plan if task is None else f"{plan}/{task['key']}"
    if ref not in found:
        raise NotFound(f"{ref} has no pull request yet", f"muster pr {shell_word(ref)}")
    return found[ref]


def _show(screen: Screen, record: PullRecord) -> None:
    ways = f"{clean(record.branch)} into {clean(record.base)}"
    screen.line(f"{clean(record.ref)}  {record.state}  {clean(record.url)}  {ways}")
    for check in record.checks:
        badge = screen.badge(_LOOKS[check.status], "")
        screen.line(f"  {badge} {clean(check.name)}  {check.status}  {clean(check.said)[:SAID_SHOWN]}")
    for comment in record.comments:
        place = f" on {comment.path}{f':{comment.line}' if comment.line else ''}" if comment.path else ""
        who = clean(comment.author) + ("" if comment.writes else " (may not write here: shown to you only)")
        screen.line(f"  {who}{clean(place)}: {clean(comment.text)}")
    for proposal in record.proposed:
        screen.line(f"proposed note of a retry of {clean(proposal.ref)}:")
        for line in inert(proposal.note).splitlines():
            screen.line(f"  | {line}")
    if record.proposed:
        screen.line(f"next: muster pr retry {shell_word(record.ref)}")


def _retry(args: argparse.Namespace) -> int:
    with connect(args) as context:
        refuse_attempts(context.api, "pr")
        work = _Work(args, context)
        record = _chosen(work, records(context.project))
        due = work.retry(record.proposed)
        if not due:
            raise NotFound(
                f"nothing is proposed for {record.ref}", f"muster pr status {shell_word(record.ref)}"
            )
    if args.json:
        print_json([to_builtins(one) for one in due])
        return 0
    screen = Screen(args.color)
    for one in due:
        screen.line(f"{screen.badge('ready', '')} {clean(one.ref)}  starts anew, with the note")
    screen.line(f"once it is done: muster pr {shell_word(record.ref)}")
    return 0


def _row(record: PullRecord) -> Json:
    row: Json = to_builtins(record)
    return row
