"""Why a task is where it is, in one sentence, and whether a person must see to it: a pure function of its row
and a few facts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import NamedTuple

from msgspec import Struct

from muster.model.outlines import TaskOutline
from muster.model.pools import CLOSING, Pool
from muster.model.profiles import required, target_of
from muster.model.rows import ANY_AGENT, ROOM
from muster.model.secrets import setting
from muster.model.spending import OWN_BUDGET, PLAN_BUDGET
from muster.model.states import (
    ATTEMPT_OPEN,
    FINAL,
    FOR_ITS_FILE,
    HELD,
    JUDGED,
    AttemptStatus,
    CrewStatus,
    ErrorKind,
    PauseReason,
    TaskStatus,
    asks_a_person,
)
from muster.model.task import BY_HAND, CANCELLED, REMOVED
from muster.model.touches import Touching, meeting, overlap
from muster.model.views import AttemptView, PlanView, TaskView
from muster.model.wording import (
    ACCEPTED,
    EDITED_BOX,
    FOR_REVIEW,
    FOR_YOU,
    OTHERWISE,
    SENT_BACK,
    counted,
    refused_words,
)


class OfflineProgram(Struct, frozen=True):
    """An agent that serves itself, while nobody hears it."""

    since_ms: int
    """When it was heard last."""
    ended: str = ""
    """Why it has ended for good; empty: it is only silent."""
    capabilities: frozenset[str] = frozenset()
    aimed_only: bool = False


class OfflineWorker(NamedTuple):
    hostname: str
    since_ms: int
    """When it was heard last."""


class CrewFacts(Struct, frozen=True):
    """What a waiting task's row cannot know about those who could take it."""

    now_ms: int
    crew: CrewStatus
    free: Mapping[str, int]
    """Free slots by agent (and ANY_AGENT), over all living workers that can run it; an agent that nobody
    offers is absent."""
    unfit: Mapping[str, str]
    """Agents that no living worker can run, with what is missing."""
    starts_workers: bool = True
    """`muster up` does; not where servers share a store."""
    last_unfit: Mapping[str, str] = {}
    """The same of the last worker that there was, while none is up."""
    lacking: Mapping[str, str] = {}
    """Of either of them, by agent, the secret that is what is missing."""
    capabilities: Mapping[str, frozenset[str]] = {}
    """By agent, for those that a living worker can run."""
    general: frozenset[str] = frozenset()
    """Those of them that take tasks which name no agent."""
    aimed_only: frozenset[str] = frozenset()
    """Those that take only tasks which name them."""
    full_agents: Mapping[str, int] = {}
    """Agents that run as many attempts as they may at one time, with how many that is; 0: none, as long as
    another one writes in the same folder."""
    full_limits: Mapping[str, int] = {}
    """Limit keys of which no more tasks may run now."""
    paused: Mapping[str, PlanView] = {}
    """Plans that give out no work, by name."""
    closed: Mapping[str, tuple[str, Pool]] = {}
    """Agents whose provider takes no requests now, with the provider's name."""
    usual: frozenset[str] = frozenset()
    """Who takes tasks that name no agent, also where nobody could run them now."""
    touching: tuple[Touching, ...] = ()
    """Tasks that run, where it is known which files they change."""
    programs: frozenset[str] = frozenset()
    """Agents that serve themselves, heard or not."""
    offline: Mapping[str, OfflineProgram] = {}
    """Those of them that are not heard."""
    away: Mapping[str, OfflineWorker] = {}
    """Agents that only a worker of another host has offered, which is not up."""
    hosts: Mapping[str, str] = {}
    """Of workers that are on another host than the store."""
    utc_offset_s: int = 0
    """Of the clocks that the reader looks at."""


def takers(agent: str | None, capabilities: Collection[str], facts: CrewFacts) -> list[str]:
    """Which agents, of those that a living worker can run, could take a task with these wishes."""
    if agent is None and not capabilities:
        return [ANY_AGENT] if ANY_AGENT in facts.free else []
    names = (
        facts.free.keys() - {ANY_AGENT} - facts.aimed_only if agent is None else facts.free.keys() & {agent}
    )
    return sorted(
        name for name in names if frozenset(capabilities) <= facts.capabilities.get(name, frozenset())
    )


def duration(ms: int) -> str:
    """`3 s`, `4 min`, `2 h`: two digits are enough for a sentence."""
    seconds = max(0, round(ms / 1000))
    if seconds < 100:
        return f"{seconds} s"
    if seconds < 100 * 60:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"


def clock_word(at_ms: int, now_ms: int, utc_offset_s: int) -> str:
    """`14:32`; with the weekday where that is not today, with the date where it is not this week."""
    zone = timedelta(seconds=utc_offset_s)
    at, now = (datetime.fromtimestamp(ms / 1000, UTC) + zone for ms in (at_ms, now_ms))
    days = (at.date() - now.date()).days
    return at.strftime("%H:%M" if not days else "%a %H:%M" if 0 < days < 7 else "%Y-%m-%d %H:%M")


class Reason(NamedTuple):
    text: str
    needs_person: bool = False
    """Nothing moves the task before a person does something, here or to what it waits for."""
    fix: str = ""
    """The command that gets it going, where one does."""


def state_of(task: TaskView | TaskOutline) -> str:
    if task.status is TaskStatus.PENDING and (task.unmet or task.is_group):
        return "blocked"
    if task.status is TaskStatus.PENDING:
        return "ready" if task.next_attempt_at_ms is None else "delayed"
    if task.attempt_status is AttemptStatus.STOPPING:
        return "stopping"
    return "delayed" if task.status is TaskStatus.ABORTED else task.status.lower()


def attempt_state(attempt: AttemptView, task: TaskView, accepted: Collection[int]) -> str:
    """Whose work was judged has ended well, whatever its status says.  `accepted`: epochs of work that was."""
    if attempt.error_kind not in JUDGED or attempt.status is not AttemptStatus.FAILED:
        return attempt.status
    newest = attempt.epoch == task.epoch
    if attempt.epoch in accepted or (newest and task.status is TaskStatus.COMPLETED):
        return ACCEPTED
    waits = task.paused_reason is PauseReason.REVIEW or task.status in FINAL
    return FOR_REVIEW if newest and waits else SENT_BACK


def at_work(task: TaskView) -> bool:
    return task.status in HELD or task.attempt_status in ATTEMPT_OPEN or task.lingering_epoch is not None


def why(task: TaskView, facts: CrewFacts) -> str:
    return reason(task, facts).text


def reason(task: TaskView, facts: CrewFacts) -> Reason:
    if task.status not in {TaskStatus.PENDING, TaskStatus.ABORTED}:
        asked = asks_a_person(task.status, task.paused_reason)
        return Reason(_told(task, facts), asked, _file_first(task))
    found = _waiting(task, facts)
    if task.done_epoch is None:
        return found
    return found._replace(
        text=f"attempt {task.done_epoch} is done, its work is to be published: {found.text}"
    )


def _told(task: TaskView, facts: CrewFacts) -> str:
    match task.status:
        case TaskStatus.ASSIGNED:
            return f"starting on {_place(task, facts)} with agent {task.agent}"
        case TaskStatus.RUNNING:
            return _running(task, facts) + _conflict(task, facts)
        case TaskStatus.COMPLETED:
            by_attempt = task.attempt_status is AttemptStatus.COMPLETED
            if task.is_group and not by_attempt:
                return "done with all that is below it"
            more = f": {task.remark}" if task.remark else ""
            more += f"; {refused_words(task.refused)}" if task.refused else ""
            return f"done by attempt {task.epoch}{more}" if by_attempt else "done by a person"
        case TaskStatus.FAILED:
            return _failed(task)
        case TaskStatus.PAUSED:
            return _paused(task)
        case TaskStatus.CANCELLED:
            return "taken out of its plan file" if task.error == REMOVED else task.error or CANCELLED
        case _:
            return "archived"


def _place(task: TaskView, facts: CrewFacts) -> str:
    host = facts.hosts.get(task.worker or "")
    return f"{task.worker} (at {host})" if host else str(task.worker)


def _running(task: TaskView, facts: CrewFacts) -> str:
    stopping = "is being stopped" if task.attempt_status is AttemptStatus.STOPPING else "running"
    progress = f", {task.percent} % {task.step}".rstrip() if task.percent or task.step else ""
    if task.agent == BY_HAND:
        return f"taken by hand, by {task.worker}{progress}"
    if task.done_epoch is not None:
        return f"attempt {task.done_epoch} has said that it is done; {_place(task, facts)} publishes its work"
    doubt = f"; {task.suspicion}" if task.suspicion else ""
    return f"{stopping} on {_place(task, facts)} with agent {task.agent}{progress}{doubt}"


def _conflict(task: TaskView, facts: CrewFacts) -> str:
    """What it has changed that another one of its plan has changed too: their work is to be merged."""
    near = [other for other in facts.touching if other.plan == task.plan and other.live]
    own = next((each.live for each in near if each.task_id == task.id), "")
    for other in near:
        if other.task_id != task.id and (path := meeting(own, other.live)):
            return f"; also changes {path}, which {other.name} is changing"
    return ""


def _paused(task: TaskView) -> str:
    match task.paused_reason:
        case PauseReason.QUESTION:
            return f"asks: {task.question}"
        case PauseReason.BREAKER:
            return "paused, because too many tasks of its plan failed in a row"
        case PauseReason.BUDGET:
            return _over_budget(task)
        case PauseReason.REVIEW:
            return _for_review(task)
        case PauseReason.FILE:
            return f"waits, because {OTHERWISE}: `muster plan sync {task.plan} --status` tells how"
        case PauseReason.EDIT:
            return f"waits: {EDITED_BOX}; `muster plan sync {task.plan}` does that at once"
        case PauseReason.HAND:
            return "a person is taking it over; `muster task resume` gives it back to its agent"
        case _:
            return "paused by a person"


def _file_first(task: TaskView) -> str:
    """The command for what waits only for its plan's file."""
    if task.status is not TaskStatus.PAUSED or task.paused_reason not in FOR_ITS_FILE:
        return ""
    command = f"muster plan sync {quote(task.plan)}"
    return f"{command} --status" if task.paused_reason is PauseReason.FILE else command


def _over_budget(task: TaskView) -> str:
    if OWN_BUDGET in task.budgets_used_up:
        return f"paused, its budget is used up: `muster budget {task.plan}/{task.key} USD` raises it"
    if PLAN_BUDGET in task.budgets_used_up:
        return f"paused, the budget of its plan is used up: `muster budget {task.plan} USD` raises it"
    return "paused, a budget was used up, which is higher now: `muster task resume` goes on"


def _for_review(task: TaskView) -> str:
    """A statement alone: its buttons, keys or commands stand beside it, wherever it is shown."""
    if task.error == FOR_YOU:
        return FOR_YOU
    told = "waits for a review" + (f": {task.error}" if task.error else "")
    # Its agent could not mend it; other reviews say themselves what helps.
    return (
        f"{told}; mend it there and accept it, or send it back"
        if task.error_kind is ErrorKind.REWORK
        else told
    )


def _failed(task: TaskView) -> str:
    if task.done_epoch is not None:
        attempt, times = f"{task.plan}/{task.key}#{task.done_epoch}", counted(task.losses, "time")
        return (
            f"attempt {task.done_epoch} is done, but its work could not be published {times}: "
            f"{task.error}; the work is kept (`muster attempt diff {attempt}`), `muster task retry` publishes it"
        )
    if task.error_kind is ErrorKind.LOST:
        return f"lost {counted(task.losses, 'time')}, so it is not given out again: {task.error}"
    if task.error_kind is ErrorKind.EXPIRED:
        return "its time was over before an agent could begin"
    if task.error_kind in {ErrorKind.INVALID, ErrorKind.OUT_OF_MEMORY}:
        return f"failed for good: {task.error}"
    runs = task.retries + 1
    return f"failed after {counted(runs, 'run')}: {task.error}"


def _waiting(task: TaskView, facts: CrewFacts) -> Reason:
    if task.unmet:
        more = task.unmet - len(task.waits_for)
        names = ", ".join(task.waits_for) + (f" and {more} more" if more > 0 else "")
        # Those that have ended badly are named first, with their status.
        return Reason(f"waits for {names}", any(name.endswith(")") for name in task.waits_for[:1]))
    if task.is_group:
        return Reason("a group that has no task below it yet: add one with it as `parent`")
    if task.lingering_epoch is not None:
        return Reason(f"waits until the processes of attempt {task.lingering_epoch} have stopped")
    if task.plan in facts.paused:
        return Reason(plan_paused(facts.paused[task.plan]))
    if task.next_attempt_at_ms is not None:
        return Reason(_delayed(task, task.next_attempt_at_ms, facts))
    if closed := _closed(task, facts):
        return closed
    if unfit := _last_unfit(task, facts):
        return unfit
    if facts.crew is CrewStatus.PAUSED:
        fix = "muster orchestrator resume"
        return Reason(f"the crew is paused, and takes no new tasks: `{fix}` goes on", True, fix)
    if facts.crew is not CrewStatus.RUNNING:
        return Reason(_crew_down(facts))
    return _matching(task, facts)


def _crew_down(facts: CrewFacts) -> str:
    return f"the crew is {facts.crew.lower()}: `muster up` goes on"


def plan_paused(plan: PlanView) -> str:
    if plan.paused is PauseReason.BREAKER:
        return (
            f"plan {plan.name} is paused, because {plan.failures} of its tasks failed in a row: "
            f"`muster plan resume {plan.name}` goes on"
        )
    if plan.paused is PauseReason.BUDGET and plan.budget_used_up:
        return f"plan {plan.name} is paused, its budget is used up: `muster budget {plan.name} USD` raises it"
    return f"plan {plan.name} is paused: `muster plan resume {plan.name}` goes on"


def _delayed(task: TaskView, at_ms: int, facts: CrewFacts) -> str:
    wait_ms = at_ms - facts.now_ms
    if task.error_kind is None:
        return f"begins in {duration(wait_ms)}" if wait_ms > 0 else "its time has come"
    when = f"retry in {duration(wait_ms)}" if wait_ms > 0 else "retry is due"
    match task.error_kind:
        case ErrorKind.LOST:
            return f"{when}, its holder was lost: {task.error}"
        case ErrorKind.REWORK:
            return f"goes back to its agent: {task.error}"
        case kind if kind in CLOSING or task.done_epoch is not None:
            return f"{when}: {task.error}"
        case _:
            return f"{when}, run {task.retries} of {task.max_retries + 1} failed: {task.error}"


def _matching(task: TaskView, facts: CrewFacts) -> Reason:
    wanted = task.pinned_agent or task.wanted_agent or ANY_AGENT
    if not facts.free and not facts.unfit and wanted not in {*facts.offline, *facts.away}:
        how = "muster up" if facts.starts_workers else "muster worker start --server URL"
        return Reason(f"no worker is up: `{how}` starts some")
    names = takers(wanted or None, required(task.capabilities, task.target), facts)
    if names:
        return Reason(_among(names, task, facts))
    # Once there is room it goes on by itself.
    by_person = facts.lacking.get(wanted) != ROOM
    return Reason(_nobody(task, wanted, facts), by_person, _setting(wanted, facts))


def _setting(wanted: str, facts: CrewFacts) -> str:
    lacked = facts.lacking.get(wanted, "")
    return "" if lacked == ROOM else setting(lacked)


def _nobody(task: TaskView, wanted: str, facts: CrewFacts) -> str:
    """Why no agent can take it."""
    needs = required(task.capabilities, task.target)
    if offline := _offline(wanted, needs, facts):
        return offline
    if needs and wanted not in facts.unfit and (wanted == ANY_AGENT or wanted in facts.free):
        return _nobody_offers(needs, wanted, facts)
    if wanted in facts.unfit:
        return (
            f"agent {facts.unfit[wanted]}"
            if wanted == ANY_AGENT
            else f"agent {wanted} cannot run: {facts.unfit[wanted]}"
        )
    if wanted == ANY_AGENT:
        return "it names no agent and there is none for such tasks: set `agent` in muster.toml"
    if (last := facts.away.get(wanted)) is not None:
        since = clock_word(last.since_ms, facts.now_ms, facts.utc_offset_s)
        return (
            f"no worker that is up offers agent {wanted}; the last one was on {last.hostname} (heard at "
            f"{since}): start one there again, `muster worker start --server URL`"
        )
    return (
        f"no worker offers agent {wanted}: add [agents.{wanted}] to muster.toml and start the crew anew, "
        f"or start the app {wanted}"
    )


def _offline(wanted: str, needs: tuple[str, ...], facts: CrewFacts) -> str:
    """Which program could take it, were it there; empty where none could."""
    for name, program in sorted(facts.offline.items()):
        meant = name == wanted or (wanted == ANY_AGENT and not program.aimed_only)
        if not meant or not program.capabilities.issuperset(needs):
            continue
        since = clock_word(program.since_ms, facts.now_ms, facts.utc_offset_s)
        if program.ended:
            return (
                f"agent {name}, a program, has ended (heard last at {since}): {program.ended}; it takes tasks "
                f"again once it is started and registers itself (PUT /api/v1/agents/{name})"
            )
        return (
            f"agent {name}, a program, is offline (heard last at {since}): it takes tasks again once it is "
            f"started and heard (POST /api/v1/agents/{name}/heartbeat)"
        )
    return ""


def _last_unfit(task: TaskView, facts: CrewFacts) -> Reason | None:
    """Why the crew that was up last could not begin it; None while one is up, or where it could."""
    wanted = task.pinned_agent or task.wanted_agent or ANY_AGENT
    missing = facts.last_unfit.get(wanted)
    if missing is None:
        return None
    agent = f"agent {missing}" if wanted == ANY_AGENT else f"agent {wanted} cannot run: {missing}"
    return Reason(f"{agent}; mend that, then `muster up`", True, _setting(wanted, facts))


def _closed(task: TaskView, facts: CrewFacts) -> Reason | None:
    """Where every agent that could do it waits for its provider: which, until when, and what helps."""
    wanted = task.pinned_agent or task.wanted_agent
    able = [wanted] if wanted else sorted(facts.usual)
    if not able or any(name not in facts.closed for name in able):
        return None
    name, (provider, pool) = able[0], facts.closed[able[0]]
    fix = f"muster agent resume {name}"
    resume = f"`{fix}`"
    if pool.until_ms is None:
        word = "billing" if pool.kind is ErrorKind.BILLING else "login"
        said = f"the {word} of {provider} needs a person: {pool.reason}; then {resume}"
    elif pool.closed(facts.now_ms):
        what = "the quota of " if pool.kind is ErrorKind.QUOTA else ""
        until = clock_word(pool.until_ms, facts.now_ms, facts.utc_offset_s)
        said = f"waits for {what}{provider} (until {until}): {pool.reason}; {resume} tries it now"
    else:
        said = f"waits for {provider}, another task tries whether it answers: {pool.reason}; "
        said += f"{resume} lets all try now"
    down = "" if facts.crew is CrewStatus.RUNNING else f"; {_crew_down(facts)}"
    return Reason(said + down, pool.until_ms is None, fix)


def _among(names: list[str], task: TaskView, facts: CrewFacts) -> str:
    """Some agent can do it: what keeps it from beginning now."""
    for other in facts.touching if task.touches else ():
        if other.plan == task.plan and overlap(task.touches, other.declared):
            return f"waits for {other.name}, which changes the same files ({other.declared})"
        if other.plan == task.plan and (path := meeting(task.touches, other.live)):
            return f"waits for {other.name}, which has changed {path}"
    most = facts.full_limits.get(task.limit_key or "")
    if most is not None:
        return f"waits for its turn: {most} of {most} tasks of limit {task.limit_key} run already"
    able = sorted(facts.general) if names == [ANY_AGENT] else names
    if able and all(name in facts.full_agents for name in able):
        places = facts.full_agents[able[0]]
        if not places:
            return "waits for its turn: one agent at a time writes in this folder"
        return f"waits for agent {able[0]}, which does {places} of {places} tasks already"
    if any(facts.free[name] for name in names):
        return "ready, a worker takes it now"
    return "waits for a free worker"


def _nobody_offers(needs: tuple[str, ...], wanted: str, facts: CrewFacts) -> str:
    offered = facts.capabilities if wanted == ANY_AGENT else {wanted: facts.capabilities.get(wanted, ())}
    known = {name for names in offered.values() for name in names}
    missing = [name for name in needs if name not in known] or list(needs)
    targets = [name for name in map(target_of, missing) if name]
    nobody = wanted == ANY_AGENT
    if targets:
        who = "no agent serves" if nobody else f"agent {wanted} does not serve"
        return f"{who} {targets[0]}: add it to agents.{wanted or 'NAME'}.targets in muster.toml"
    who = "no agent offers" if nobody else f"agent {wanted} does not offer"
    if wanted in facts.programs:
        return (
            f"{who} {' and '.join(missing)}: it is a program, which says what it can do when it registers "
            f"(`capabilities` of PUT /api/v1/agents/{wanted})"
        )
    where = f"agents.{wanted or 'NAME'}.capabilities"
    return f"{who} {' and '.join(missing)}: add it to {where} in muster.toml"
