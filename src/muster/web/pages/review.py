"""Work is looked at, line by line, and goes on or back: what an attempt has changed, or all of a plan.

What is written is in the form until it is sent: a page keeps nothing of it at the server.  Its browser does, and
Back leads to it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from muster.hosts.detached_call import detached_call
from muster.model import commands as c
from muster.model.diffs import FileDiff, parsed
from muster.model.errors import BadInput, Conflict, MusterError, NotFound
from muster.model.forms import PLAN_ACTIONS, TASK_ACTIONS
from muster.model.json_value import Json
from muster.model.reviews import (
    BACK,
    REMARKS_MAX,
    Remark,
    refuse_other_work,
    refuse_unsent,
    review_note,
    way_back,
    work_of,
)
from muster.model.states import HELD, PauseReason
from muster.model.views import TaskFilter, TaskView
from muster.model.wording import task_name
from muster.ports.works import WorkChange
from muster.web.backend import Backend
from muster.web.holders import one_task
from muster.web.http import Reply, Request, error_reply
from muster.web.pages.forms import SEQ, ask_api, back_to, problem_of
from muster.web.pages.overview import DoneQuery
from muster.web.routes import Routes
from muster.web.visits import done_word, posted
from muster.web.works import change_of_plan, change_of_task, pull_known

routes = Routes(pages=True)

_PLACE = re.compile(r"(\d{1,6})([+-]\d{1,9})")


_ENDS = frozenset({"back", "accept"})
"""What a review comes to."""


class ReviewQuery(DoneQuery, frozen=True, kw_only=True):
    attempt: c.Count | None = None
    """None: the newest one."""
    first: c.Count = 0
    """Files from this one on."""


class _Draft(NamedTuple):
    words: str
    remarks: Mapping[str, str]
    """By place: number of the file, sign and line."""
    fresh: str = ""
    """Where one was added just now."""
    unplaced: str = ""
    """A comment that is on no line yet."""

    @property
    def unsent(self) -> bool:
        return bool(self.words or self.remarks or self.unplaced)


class _Reviewed(NamedTuple):
    """A review's page, whatever it is about."""

    change: WorkChange
    files: list[FileDiff]
    draft: _Draft
    first: int
    problem: Json | None = None


@routes.get("/tasks/{task_id:id}/review")
async def review_task(web: Backend, request: Request, task_id: int, query: ReviewQuery) -> Reply:
    """What an attempt has changed, file by file."""
    return await _task_page(web, request, task_id, query, draft=_draft_of({}), first=query.first)


@routes.post("/tasks/{task_id:id}/review")
async def judge_task(web: Backend, request: Request, task_id: int, query: ReviewQuery) -> Reply:
    """Another comment, another part of it, or all of it goes back to its agent."""
    fields = posted(request)
    do, draft = fields.get("do", ""), _draft_of(fields)
    first = _first_of(do, query.first)
    try:
        _refuse_unplaced(do, draft)
        if do not in _ENDS:
            return await _task_page(web, request, task_id, query, draft=draft, first=first)
        epoch, change = await change_of_task(web, task_id, query.attempt)
        refuse_other_work(change.base, change.head, fields.get("head", ""))
        if do == "accept":
            refuse_unsent(draft.unsent, "send it back, or empty its boxes and approve")
            action, body, button = do, {}, "approve"
        else:
            note = review_note(f"attempt {epoch}", draft.words, _remarks(await _files(change), draft))
            action, body, button = _way_back(await one_task(web, task_id)), {"note": note}, "send-back"
        path = f"/api/v1/agent-tasks/{task_id}/{action}"
        reply = await ask_api(request, path, body, if_match=fields.get(SEQ, ""))
    except MusterError as error:
        reply = error_reply(error)
    if reply.status >= 400:
        return await _task_page(
            web, request, task_id, query, draft=draft, first=first, problem=problem_of(reply)
        )
    return back_to({}, f"/tasks/{task_id}", done_word(request, button))


@routes.get("/plans/{plan}/review")
async def review_plan(web: Backend, request: Request, plan: str, query: ReviewQuery) -> Reply:
    """All that a plan's branch has, file by file."""
    return await _plan_page(web, request, plan, draft=_draft_of({}), first=query.first, done=query.done)


@routes.post("/plans/{plan}/review")
async def judge_plan(web: Backend, request: Request, plan: str, query: ReviewQuery) -> Reply:
    """Each comment goes back to the task whose work its line is."""
    fields = posted(request)
    do, draft = fields.get("do", ""), _draft_of(fields)
    first = _first_of(do, query.first)
    try:
        _refuse_unplaced(do, draft)
        if do != "back":
            return await _plan_page(web, request, plan, draft=draft, first=first)
        change = await change_of_plan(web, plan)
        refuse_other_work(change.base, change.head, fields.get("head", ""))
        reply = await _send_back(web, request, change, draft)
    except MusterError as error:
        reply = error_reply(error)
    if reply.status >= 400:
        return await _plan_page(web, request, plan, draft=draft, first=first, problem=problem_of(reply))
    return back_to({}, f"/plans/{quote(plan, safe='')}", done_word(request, "review"))


async def _send_back(web: Backend, request: Request, change: WorkChange, draft: _Draft) -> Reply:
    """Raises where one of them cannot take it: before any of them was sent."""
    remarks = _remarks(await _files(change), draft)
    if not remarks:
        raise Conflict("no comment is on a line, so it is no task's; nothing was sent", "choose a line")
    of_task: dict[int, tuple[TaskView, list[Remark]]] = {}
    for one in remarks:
        task = await _author(web, change, one)
        of_task.setdefault(task.id, (task, []))[1].append(one)
    asked = [
        (task, _way_back(task), review_note("all of its plan", draft.words, said))
        for task, said in of_task.values()
    ]
    reply = Reply(204, b"", "text/plain")
    for number, (task, action, note) in enumerate(asked):
        reply = await ask_api(request, f"/api/v1/agent-tasks/{task.id}/{action}", {"note": note})
        if reply.status >= 400 and number:
            sent = ", ".join(task_name(one.plan, one.key) for one, _, _ in asked[:number])
            raise Conflict(
                f"{sent} got theirs, and the others did not: {reply.detail}", "look at their pages"
            )
        if reply.status >= 400:
            return reply
    return reply


async def _author(web: Backend, change: WorkChange, one: Remark) -> TaskView:
    """Raises NotFound."""
    assert web.owner.works is not None, "its diff was shown"
    line = int(one.place[1:]) if one.place.startswith("+") else None
    for ref in await web.owner.works.authors(change.head, one.path, line):
        try:
            task_id, _ = await web.queries.resolve(ref)
            return await one_task(web, task_id)
        except NotFound:
            continue
    raise NotFound(f"{one.where} is no task's work; nothing was sent", "take this comment out")


def _way_back(task: TaskView) -> str:
    """Raises Conflict."""
    return way_back(task_name(task.plan, task.key), task.actions, task.why)


def _draft_of(fields: Mapping[str, str]) -> _Draft:
    remarks = {
        name.removeprefix("text."): text.strip()
        for name, text in fields.items()
        if name.startswith("text.") and _PLACE.fullmatch(name.removeprefix("text.")) and text.strip()
    }
    at, fresh, new = fields.get("at", ""), "", fields.get("new", "").strip()
    if _PLACE.fullmatch(at) and new and (at in remarks or len(remarks) < REMARKS_MAX):
        remarks[at] = f"{remarks[at]}\n{new}" if at in remarks else new
        fresh, new = at, ""
    return _Draft(fields.get("words", "").strip(), remarks, fresh, new)


def _refuse_unplaced(do: str, draft: _Draft) -> None:
    """Raises BadInput where a comment would be lost, for it is on no line."""
    if draft.unplaced and do in {"add", "back"}:
        full = len(draft.remarks) >= REMARKS_MAX
        why = f"{REMARKS_MAX} comments are one note" if full else "your comment is on no line yet"
        raise BadInput(
            f"{why}; nothing was sent, and what you wrote stands below",
            "take it out, and send the others first" if full else "choose a line, or empty its box",
        )


def _first_of(do: str, now: int) -> int:
    said, _, number = do.partition(":")
    return int(number) if said == "show" and number.isdigit() and len(number) < 7 else now


async def _files(change: WorkChange) -> list[FileDiff]:
    """Aside: of a large diff it takes a while, in which others are answered."""
    return await detached_call(lambda: parsed(change.listing, change.patch, whole=change.whole))


def _remarks(files: list[FileDiff], draft: _Draft) -> list[Remark]:
    """In the order of their places."""
    found: list[tuple[int, int, Remark]] = []
    for name, text in draft.remarks.items():
        index, place = _split(name)
        if index < len(files) and (line := files[index].line(place)) is not None:
            found.append((index, int(place[1:]), Remark(files[index].path, place, line.text, text)))
    return [one for _, _, one in sorted(found, key=lambda row: row[:2])]


def _split(name: str) -> tuple[int, str]:
    matched = _PLACE.fullmatch(name)
    assert matched is not None, "only such are kept"
    return int(matched[1]), matched[2]


async def _task_page(
    web: Backend,
    request: Request,
    task_id: int,
    query: ReviewQuery,
    *,
    draft: _Draft,
    first: int,
    problem: Json | None = None,
) -> Reply:
    from muster.web.pages.render import json_of

    found = await web.queries.task(task_id)  # before the work: its buttons are for nothing newer than that
    task = found.task
    try:
        epoch, change = await change_of_task(web, task_id, query.attempt)
    except NotFound as error:
        if query.attempt is not None and all(one.epoch != query.attempt for one in found.attempts):
            raise
        name = task_name(task.plan, task.key)
        return _nothing(request, f"/tasks/{task_id}", name, error, running=task.at_work)
    awaited = task.paused_reason is PauseReason.REVIEW
    return await _page(
        request,
        "review_task.html",
        _Reviewed(change, await _files(change), draft, first, problem),
        steers=f"/api/v1/agent-tasks/{task_id}/{BACK[0]}",
        done=query.done,
        task=json_of(task),
        epoch=epoch,
        epochs=[one.epoch for one in found.attempts],
        awaited=awaited,
        goes_back=any(action in task.actions for action in BACK),
        pull=await pull_known(web, task.plan, task.key),
        task_actions=TASK_ACTIONS,
    )


async def _plan_page(
    web: Backend,
    request: Request,
    plan: str,
    *,
    draft: _Draft,
    first: int,
    done: str = "",
    problem: Json | None = None,
) -> Reply:
    running = await web.queries.tasks(TaskFilter(plan=plan, statuses=tuple(HELD), limit=1))
    try:
        change = await change_of_plan(web, plan)
    except NotFound as error:
        name = (await web.queries.plan(plan)).plan.name
        return _nothing(request, f"/plans/{quote(plan, safe='')}", name, error, running=bool(running))
    return await _page(
        request,
        "review_plan.html",
        _Reviewed(change, await _files(change), draft, first, problem),
        steers=f"/api/v1/agent-tasks/0/{BACK[0]}",
        done=done,
        plan=plan,
        merged=change.base == change.head,
        goes_back=change.base != change.head,
        pull=await pull_known(web, plan),
        plan_actions=PLAN_ACTIONS,
    )


def _nothing(request: Request, path: str, name: str, error: NotFound, *, running: bool) -> Reply:
    """A button has led here: that there is nothing to look at is no mistake of who has pressed it."""
    from muster.web.pages.render import page

    return page(
        request,
        "review_none.html",
        what="Review",
        verb="look at",
        path=path,
        name=name,
        why=error.message,
        hint=error.hint,
        running=running,
    )


async def _page(request: Request, template: str, seen: _Reviewed, *, steers: str, **content: Any) -> Reply:
    from muster.web.pages.diff_rows import Written, shown_files
    from muster.web.pages.render import may_of, page

    files, draft = seen.files, seen.draft
    notes, elsewhere = {}, []
    for name, text in draft.remarks.items():
        index, place = _split(name)
        if index < len(files) and files[index].line(place) is not None:
            where = Remark(files[index].path, place, "", "").where
            notes[index, place] = Written(name, where, text, name == draft.fresh)
    may = may_of(request)("POST", steers)
    marks = content["goes_back"] and may
    parts = await detached_call(lambda: shown_files(files, seen.first, notes, marks=marks))
    on_page = {one.number for one in parts}
    elsewhere = [note for (index, _), note in notes.items() if index not in on_page]
    after = parts[-1].number + 1 if parts else 0
    return page(
        request,
        template,
        files=files,
        parts=parts,
        first=seen.first,
        after=after if after < len(files) else None,
        elsewhere=elsewhere,
        full=len(draft.remarks) >= REMARKS_MAX,
        marks=marks,
        may_send=may,
        words=draft.words,
        unplaced=draft.unplaced,
        keep=request.method == "POST",
        problem=seen.problem,
        head=work_of(seen.change.base, seen.change.head),
        added=sum(file.added or 0 for file in files),
        removed=sum(file.removed or 0 for file in files),
        **content,
    )
