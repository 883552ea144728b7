"""What queries give people: rows joined for reading, camelCase on the wire."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from muster.model.agents import AgentBeat
from muster.model.plan_sync import PlanSynced
from muster.model.states import AgentStatus, AttemptStatus, ErrorKind, PauseReason, StopAction, TaskStatus
from muster.model.task import CommonFields
from muster.model.usage import Usage
from muster.model.webhooks import Webhook


class ViewStruct(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all views."""


class TaskFilter(ViewStruct, frozen=True, kw_only=True):
    plan: str | None = None
    statuses: tuple[TaskStatus, ...] = ()
    delayed: bool = False
    """Of those that wait only what is tried again or begins later, as `why.state_of` calls it."""
    ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    """Tasks that carry all of these."""
    metadata: dict[str, str] = {}
    """Tasks that hold all of these."""
    text: str = ""
    """Tasks whose title has it, or their name (`plan/key`), as it stands there: nothing in it is a wildcard.

    Letters are compared without regard to case, one with one, in every alphabet and the same in all stores: `ä`
    finds `Ä`, `σ` finds `ς`, but `ss` does not find `ß`.  An accent may be a character of its own or not; a
    letter without one is another letter.
    """
    parent_task_id: int | None = None
    priority_min: int = 1
    priority_max: int = 10
    groups: bool = False
    """Groups as well; those that are asked for by their numbers come anyway."""
    after_id: int = 0
    limit: int = 500


class TaskView(CommonFields, frozen=True, kw_only=True):
    id: int
    plan: str
    key: str
    status: TaskStatus
    generation: int
    epoch: int
    seq: int
    """Of its newest event: its `ETag`."""
    unmet: int
    next_attempt_at_ms: int | None
    max_retries: int
    retries: int
    losses: int
    percent: int
    step: str
    error_kind: ErrorKind | None
    error: str
    wanted_agent: str | None
    created_at_ms: int
    updated_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    paused_reason: PauseReason | None
    question: str
    pinned_agent: str | None
    parent_task_id: int | None
    worker: str | None
    """Who holds it now, with `agent`."""
    agent: str | None
    attempt_status: AttemptStatus | None
    """Of its newest attempt, also when that has ended."""
    lingering_epoch: int | None = None
    """The attempt whose processes must be gone before the next one begins."""
    waits_for: tuple[str, ...] = ()
    """At most three of the tasks that it waits for, each with its status: `key (FAILED)`."""
    suspicion: str | None = None
    """Why its running attempt is thought to hang."""
    done_epoch: int | None = None
    """The attempt whose work is done and not published yet."""
    attempt_count: int = 0
    """Its epochs are no numbers in a row once the store was restored."""
    last_agent: str | None = None
    """Of its newest attempt, also when that has ended."""
    stop_action: StopAction | None = None
    """Why its attempt is being stopped."""
    refused: tuple[str, ...] = ()
    """What the agent of its newest attempt was not allowed to do."""
    remark: str = ""
    """What people should know of the work of its newest attempt, like that it changed nothing."""
    wish: str = ""
    """The exact command that its agent wants to be allowed, while it is paused for that."""
    state: str = ""
    """One word for where it stands."""
    at_work: bool = False
    """Something of it runs: an attempt, or what one has left behind."""
    why: str = ""
    """One sentence: why it is where it is."""
    needs_person: bool = False
    """Nothing moves it before a person does something."""
    fix: str = ""
    """The command that gets it going, where one is known."""
    budgets_used_up: tuple[str, ...] = ()
    """Of what it is paused for, or waits for: `task` for its own budget, `plan` for that of its plan."""
    actions: tuple[str, ...] = ()
    """What a person may do with it now, the most likely first; `budget` is `POST /api/v1/budgets`."""


class AttemptView(ViewStruct, frozen=True, kw_only=True):
    epoch: int
    generation: int
    status: AttemptStatus
    worker: str
    agent: str
    assigned_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    error_kind: ErrorKind | None
    error: str
    exit_code: int | None
    checkpoints: int
    log_bytes: int
    session_key: str | None = None
    usage: Usage | None = None
    refused: tuple[str, ...] = ()
    """What its agent was not allowed to do."""
    remark: str = ""
    """What people should know of its work that is done."""
    host: str = ""
    """Its worker's; empty: it has none, or that is not known any more."""
    agent_kind: str = ""
    """Of its agent, as its worker has said (`command`, `claude-code`, ...): how its output is read."""
    state: str = ""
    """How it stands, in words: its `status`, or of work that is judged `for review`, `sent back`, `accepted`."""


class EventView(ViewStruct, frozen=True, kw_only=True):
    id: int
    task_id: int
    plan: str
    key: str
    seq: int
    at_ms: int
    level: str
    event: str
    message: str
    previous_status: TaskStatus | None
    new_status: TaskStatus
    generation: int
    epoch: int
    actor: str
    subject: str = ""
    """What it is about where that is no task, plan or store: `token 12`, `worker worker-a1b2c3d4`."""
    details: dict[str, Any] = {}
    """For programs: `exitCode`, `kind`, and the `stackTrace` of a function that failed."""
    session_key: str | None = None
    """Of the agent's conversation in this attempt."""


class LogChunk(ViewStruct, frozen=True, kw_only=True):
    stream: str
    offset: int
    at_ms: int
    data: bytes


class AgentView(ViewStruct, frozen=True, kw_only=True):
    name: str
    status: AgentStatus
    workers: int
    """Those that can run it."""
    holds: tuple[str, ...]
    """`plan/key#epoch` of its open attempts."""
    problem: str
    """What is missing where it cannot run."""


class RegisteredAgent(ViewStruct, frozen=True, kw_only=True):
    """An agent as a row, with what it does now."""

    id: str
    """What tasks call it."""
    name: str
    """What people call it."""
    status: AgentStatus
    model: str
    capabilities: tuple[str, ...]
    profiles: tuple[str, ...]
    max_concurrent_tasks: int
    """Of one that workers run: on each of them."""
    heartbeat_interval_s: int
    stale_threshold_s: int
    coordinator_enabled: bool
    """False: it takes only tasks that name it."""
    metadata: dict[str, Any]
    draining: str
    """Why it is to take nothing more."""
    problem: str
    """Why it can do nothing."""
    serves_itself: bool
    """A program speaks for it; else workers of the crew run it."""
    workers: int
    """Those that can run it."""
    holds: tuple[str, ...]
    """`plan/key#epoch` of its open attempts."""
    registered_by: str
    registered_at_ms: int
    last_seen_at_ms: int | None
    """When it, or a worker that runs it, was heard last; None: that is not known any more."""


class AgentHealth(ViewStruct, frozen=True, kw_only=True):
    agent_id: str
    status: str
    """`healthy`, `degraded`, `error`, or `stale` where nobody has heard of it in time."""
    problem: str
    last_seen_at_ms: int | None
    next_expected_at_ms: int | None
    """None: it is not expected to be heard."""
    beat: AgentBeat | None
    """Its last word, of one that serves itself."""


class PlanView(ViewStruct, frozen=True, kw_only=True):
    id: int
    name: str
    source: str | None
    counts: dict[str, int]
    """Tasks by status."""
    paused: PauseReason | None = None
    budget_used_up: bool = False
    """It is paused for that: it goes on once its budget is raised."""
    failures: int = 0
    """Tasks that failed for good since one was completed."""
    order: str = ""
    """How its tasks follow each other, where its file does not say it; empty: that was never asked."""
    usage: Usage | None = None
    """What its attempts have cost together, those of archived tasks included."""


class PlanProgress(ViewStruct, frozen=True, kw_only=True):
    plan: PlanView
    settled: bool
    """Everything is final, or only a person can move what is left."""


class WorkerView(ViewStruct, frozen=True, kw_only=True):
    id: str
    hostname: str
    pid: int | None
    """None: it is a program that serves itself, and no process that anybody here knows."""
    status: str
    agents: tuple[str, ...]
    unfit: dict[str, str]
    holds: tuple[str, ...]
    """`plan/key#epoch` of its open attempts."""
    last_seen_at_ms: int
    slots: int = 1
    registered_at_ms: int = 0
    ended_at_ms: int | None = None
    reason: str = ""
    """Why it has ended, or is to end."""
    name: str | None = None
    capabilities: tuple[str, ...] = ()
    """That it was started with, beside those of its agents."""
    metadata: dict[str, str] = {}


class ClaimView(ViewStruct, frozen=True, kw_only=True):
    """An open attempt, seen as a claim: who holds what, and for how long."""

    task_id: int
    plan: str
    key: str
    title: str
    epoch: int
    holder: str
    agent: str
    by_hand: bool
    status: AttemptStatus
    claimed_at_ms: int
    lease_ends_at_ms: int
    """On the wall clock; every renewal moves it."""
    expired: bool
    """The lease is over, and the coordinator has not freed the task yet."""


class CrewView(ViewStruct, frozen=True, kw_only=True):
    """Costs the same however many tasks there are."""

    crew: str
    workers: tuple[WorkerView, ...]
    last_event_id: int
    workers_ordered: int = 0
    """How many workers were ever added by hand; the supervisor starts what is new of it."""
    last_unfit: dict[str, str] = {}
    """While no worker is up: agents that the last one could not run, with what was missing."""


class StatusView(CrewView, frozen=True, kw_only=True):
    plans: tuple[PlanView, ...]
    agents: tuple[AgentView, ...] = ()
    usage_by_agent: dict[str, Usage] = {}
    usage_by_day: dict[str, Usage] = {}
    """By the date in UTC on which the attempts began."""


class Inbox(ViewStruct, frozen=True, kw_only=True):
    """What waits for a person."""

    tasks: tuple[TaskView, ...]
    complete: bool
    """False where there is more than was looked at."""
    files: tuple[PlanSynced, ...] = ()
    """Plans that are not in step with their files."""
    webhooks: tuple[Webhook, ...] = ()
    """Those that were disabled, because nothing was taken there."""
    channels: dict[str, str] = {}
    """Where people are told nothing any more, and why."""


class TaskDetail(ViewStruct, frozen=True, kw_only=True):
    task: TaskView
    attempts: tuple[AttemptView, ...]
    events: tuple[EventView, ...]
    blocks: tuple[str, ...]
    artifacts: tuple[tuple[str, str], ...]
    result: str | None
    log_tail: str
    output_result: Any = None
    """The result, as the JSON that it is."""
    summary: str = ""
    """What its agent, or who has done it, says of the result."""
    input_context: dict[str, Any] = {}
    """What its agent is given to work with, with stars in place of secrets."""
    created_by: str = ""
    usage: Usage | None = None
    """What its attempts have cost together."""


class TaskTexts(Struct, frozen=True, gc=False):
    """What only who looks at a single task is shown."""

    result: str | None = None
    """JSON."""
    summary: str = ""
    input_context: dict[str, Any] = {}
    created_by: str = ""


class JobText(Struct, frozen=True, gc=False):
    """What a claim hands over besides the state."""

    task_id: int
    plan: str
    key: str
    title: str
    description: str
    model: str | None
    system_prompt: str
    check_command: str
    review: str
    changes: str
    input_context: str
    """JSON."""
    has_secrets: bool
    """Some of its values are sealed."""
    session_key: str | None
    """Of the newest earlier attempt by the same agent; empty where its session is gone."""
    session_usage: str | None
    checkpoint: bytes | None
    done_by: str | None
    """The agent whose work is done and not published yet."""
