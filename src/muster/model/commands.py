"""The commands of a task's life, as values.

The worker protocol sends them as they stand (camelCase JSON), so there is no second set of shapes to keep in
step.  `epoch` is the fencing token: together with `task_id` it names the one attempt that may act.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from muster.model.seals import Seal
from muster.model.states import CrewStatus, ErrorKind, FailedDependency, PauseReason, StopAction

Text = Annotated[str, Meta(max_length=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
NUMBER_MAX = 1 << 53
"""Largest integer that every JSON parser keeps exact."""
Count = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Id = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Priority = Annotated[int, Meta(ge=1, le=10)]
SortKey = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Seconds = Annotated[int, Meta(ge=1, le=366 * 86400)]
LeaseSeconds = Annotated[float, Meta(ge=1, le=7 * 86400)]
TokenHash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
ExitCode = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 32)]

CHECKPOINT_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 1 << 20
LOG_CHUNK_BYTES_MAX = 256 << 10
LOG_BYTES_MAX = 16 << 20
"""Per attempt and in the store; the rest stays in the file on the worker's host."""


class Command(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Base of all commands."""


class Spec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A new task, as it is to be: the texts go into the row unread."""

    title: str
    description: str = ""
    key: str | None = None
    """Identity within its plan."""
    agent: str | None = None
    """The one agent that may take it; None: any."""
    capabilities: tuple[str, ...] = ()
    """What the agent must be able to do."""
    profile: str | None = None
    """The kind of agent that is preferred for it."""
    priority: Priority = 5
    """High first."""
    sort_key: SortKey = 0
    """Among tasks of one priority, low first."""
    limit_key: str | None = None
    """Tasks of one key share a limit on how many run at the same time."""
    not_before_ms: Annotated[int, Meta(ge=0)] | None = None
    """Wall time of the earliest start."""
    expires_at_ms: Annotated[int, Meta(ge=0)] | None = None
    """Wall time after which no attempt is to begin."""
    on_failed: FailedDependency = FailedDependency.BLOCK
    idempotency_key: str | None = None
    parent_task_id: int | None = None
    """Who spawned it; not a dependency."""
    parent: str | None = None
    """The same, as a key of its plan."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    timeout_s: Seconds = 7200
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    depends_on: tuple[str, ...] = ()
    """Keys within the same plan."""
    done: bool = False
    epic: str = ""
    feature: str = ""
    created_by: str = ""


class Offer(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """What an agent is good for."""

    capabilities: tuple[Name, ...] = ()
    profiles: tuple[Name, ...] = ()


class Enqueue(Command, frozen=True, kw_only=True):
    """Adds the tasks of a plan that it does not hold yet; what it holds stays as it is."""

    plan: Name
    source: str | None
    """The plan file's absolute path; the plan's identity.  None for tasks that came without a file."""
    tasks: tuple[Spec, ...]
    actor: Name


class Claim(Command, frozen=True, kw_only=True):
    worker_id: Name
    request_id: Name
    """Repeating a claim with the same id gives the same attempts: a lost answer strands nothing."""
    slots: Annotated[int, Meta(ge=1, le=1000)] = 1


class AttemptCommand(Command, frozen=True, kw_only=True):
    """Base of all commands that an attempt's holder may give."""

    task_id: Id
    epoch: Id
    proof: Annotated[str, Meta(max_length=300)] = ""
    """What came with the claim.  A store that does not know the epoch, and has granted it, was rewound (S2)."""


class Start(AttemptCommand, frozen=True, kw_only=True):
    token_hash: TokenHash
    session_key: Text | None = None


class Renew(AttemptCommand, frozen=True, kw_only=True):
    """One attempt's share of its worker's heartbeat."""

    fresh: bool = False
    """The owner itself stood still and could hear nobody: the time to stop in begins anew as well (S15)."""


class Progress(AttemptCommand, frozen=True, kw_only=True):
    percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    step: Annotated[str, Meta(max_length=500)] | None = None
    estimated_completion_at_ms: Annotated[int, Meta(ge=0)] | None = None
    """Wall time at which the agent expects to be done."""


class SaveCheckpoint(AttemptCommand, frozen=True, kw_only=True):
    """One that was taken before the last one, and comes after it, is accepted and dropped (S16)."""

    data: bytes
    taken_us: Count = 0
    """When it was taken, in microseconds ..."""
    taken_on: Annotated[str, Meta(max_length=200)] = ""
    """... on this clock, told by its boot; two of different clocks stand in the order in which they come."""


class AddArtifact(AttemptCommand, frozen=True, kw_only=True):
    name: Name
    location: Text


class Declare(AttemptCommand, frozen=True, kw_only=True):
    """The agent's own word on how it ended, before its process has.  The worker's report settles it."""

    kind: ErrorKind | None = None
    text: Annotated[str, Meta(max_length=RESULT_BYTES_MAX)] = "null"
    """The result as JSON, or the failure's message."""


class Suspect(AttemptCommand, frozen=True, kw_only=True):
    """The attempt's process lives and shows no progress; or it does again, with no evidence."""

    evidence: Annotated[str, Meta(max_length=2000)] = ""


class Ask(AttemptCommand, frozen=True, kw_only=True):
    """The agent needs a person's word: the task pauses, its slot is free, the answer resumes it."""

    question: Annotated[str, Meta(min_length=1, max_length=10_000)]


class Complete(AttemptCommand, frozen=True, kw_only=True):
    result: Annotated[str, Meta(max_length=RESULT_BYTES_MAX)] | None = None
    """JSON."""
    exit_code: ExitCode | None = None


class Fail(AttemptCommand, frozen=True, kw_only=True):
    kind: ErrorKind
    message: Text
    exit_code: ExitCode | None = None
    retry_after_s: Annotated[float, Meta(ge=0, le=30 * 86400)] | None = None


class Release(AttemptCommand, frozen=True, kw_only=True):
    reason: Text
    unfit_agent: Text | None = None
    """Set where the agent cannot run on this worker: what is missing."""


class AppendLog(AttemptCommand, frozen=True, kw_only=True):
    stream: Annotated[str, Meta(pattern="^(stdout|stderr)$")]
    offset: Count
    """Position of the first byte in the stream; a chunk that is already known is accepted and dropped."""
    data: bytes


class Gone(AttemptCommand, frozen=True, kw_only=True):
    """The processes of an attempt that somebody else has ended are gone: its task may be given out again."""

    term: int | None = None
    """Set where it is the coordinator's word: the worker is dead, or its lease is over."""


class RequestStop(AttemptCommand, frozen=True, kw_only=True):
    action: StopAction
    stop_by_s: float
    actor: Name


class Reap(AttemptCommand, frozen=True, kw_only=True):
    """The coordinator's word that an attempt's holder is gone."""

    term: int
    reason: Text
    proven: bool
    """True: the holder's process is known to be dead.  False: its lease ran out."""
    tree_killed: bool = True
    """Whether the attempt's processes were killed first, as they are on the coordinator's own host."""


class Readopt(AttemptCommand, frozen=True, kw_only=True):
    """A worker that was given up is heard again, its process still at work, and nobody has taken the task."""


class Take(Command, frozen=True, kw_only=True):
    """A person, or a program outside of Muster, takes a task by hand: granted and started in one go."""

    task_id: Id
    actor: Name
    token_hash: TokenHash
    """Also tells a repetition from another claim."""
    lease_s: LeaseSeconds | None = None
    """None: as configured."""


class Extend(AttemptCommand, frozen=True, kw_only=True):
    """The holder by hand is still at it."""

    actor: Name
    lease_ms: int | None = None
    """None: as long as the last one."""


class GiveBack(AttemptCommand, frozen=True, kw_only=True):
    """The holder by hand is done with it, one way or another; by default it goes back to the queue."""

    actor: Name
    done: bool = False
    failed: ErrorKind | None = None
    text: Annotated[str, Meta(max_length=RESULT_BYTES_MAX)] = ""
    """The result as JSON, or the failure's message."""


class Promote(Command, frozen=True, kw_only=True):
    """A due task may be claimed again: by the coordinator (`term`), or by a person who wants it now."""

    task_id: int
    term: int | None = None
    actor: Name = "coordinator"


class Expire(Command, frozen=True, kw_only=True):
    """The task's time is over before an attempt could begin."""

    task_id: int
    term: int


class Overdue(Command, frozen=True, kw_only=True):
    """The task should be done by its agent's own estimate: a notice first, later a stop that costs nothing."""

    task_id: int
    term: int


class DropAim(Command, frozen=True, kw_only=True):
    """The picked agent did not take the task in time: any agent may."""

    task_id: int
    term: int
    lane_id: int = 0
    """Filled in by the engine: the lane of the task without its aim."""


class Pause(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name
    reason: PauseReason = PauseReason.USER


class Resume(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name


class AnswerQuestion(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name
    text: Annotated[str, Meta(min_length=1, max_length=10_000)]


class Transfer(Command, frozen=True, kw_only=True):
    """To another agent: a running attempt is stopped with a checkpoint first."""

    task_id: int
    actor: Name
    agent: Name
    lane_id: int = 0
    """Filled in by the engine: the lane of the task with its new aim."""
    timeout_s: Annotated[float, Meta(gt=0, le=7 * 86400)] = 600.0


class Skip(Command, frozen=True, kw_only=True):
    """The task is not wanted, and its children go on without it."""

    task_id: int
    actor: Name
    reason: Text = ""


class Depend(Command, frozen=True, kw_only=True):
    """The task is to wait for these as well."""

    task_id: int
    actor: Name
    depends_on: Annotated[tuple[Id, ...], Meta(min_length=1, max_length=1000)]
    unmet: int = 0
    """Filled in by the engine: how many of them are new to it and not done."""


class Archive(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name


class Cancel(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name
    reason: Text = ""
    removed: bool = False
    """It was taken out of its plan file, and lives again once it stands there again."""


class Retry(Command, frozen=True, kw_only=True):
    """Opens a new generation."""

    task_id: int
    actor: Name
    note: Text = ""
    fresh: bool = False
    """From the start, not from the last checkpoint."""


class CompleteByPerson(Command, frozen=True, kw_only=True):
    task_id: int
    actor: Name


class Grant(Command, frozen=True, kw_only=True):
    """One task of a claim: the engine has matched it with this worker and agent."""

    task_id: int
    worker_id: str
    agent: str
    request_id: str
    lease_ms: int
    base: int = 0
    """Filled in by the engine: epochs up to this one may have been granted before the store was restored."""


class Unblock(Command, frozen=True, kw_only=True):
    """`count` of the task's dependencies are done: follows their completion in the same transaction."""

    task_id: int
    count: Annotated[int, Meta(ge=1)]


class Register(Command, frozen=True, kw_only=True):
    worker_id: Annotated[str, Meta(pattern="^worker-[a-z0-9]{8}$")]
    hostname: Name
    pid: Id
    pid_start: Count
    boot_id: Name
    slots: Annotated[int, Meta(ge=1, le=1000)] = 1
    agents: tuple[Name, ...]
    general: tuple[Name, ...] = ()
    """Those of the agents that take tasks which name none, the preferred one first."""
    offers: dict[Name, Offer] = {}
    """What its agents are good for; an agent that is absent offers nothing special."""
    unfit: dict[Name, Text] = {}
    """Agents that cannot run on this worker, with what is missing."""


class Heartbeat(Command, frozen=True, kw_only=True):
    worker_id: Name
    attempts: tuple[tuple[Id, Id], ...]
    """(task id, epoch) of everything that the worker holds."""
    proofs: tuple[Annotated[str, Meta(max_length=300)], ...] = ()
    """Of these attempts, in the same order."""


class Deregister(Command, frozen=True, kw_only=True):
    worker_id: Name
    reason: Text = ""


class DrainWorker(Command, frozen=True, kw_only=True):
    """This one worker takes no new work, and ends when it holds nothing more."""

    worker_id: Name
    actor: Name
    stop_by_s: float | None = None
    """Set: what it holds is to stop with a checkpoint and be given back, within that time."""


class AddWorkers(Command, frozen=True, kw_only=True):
    """An order to whoever supervises the crew."""

    count: Annotated[int, Meta(ge=1, le=64)]
    request_id: Name
    """Repeating an order with the same id changes nothing."""


class SetTicked(Command, frozen=True, kw_only=True):
    """The plan's boxes are ticked for all completions up to this event."""

    plan_id: int
    event_id: int


class PausePlan(Command, frozen=True, kw_only=True):
    plan: Name
    actor: Name


class ResumePlan(Command, frozen=True, kw_only=True):
    """Also after the breaker has paused it: its count begins anew."""

    plan: Name
    actor: Name


class Restored(Command, frozen=True, kw_only=True):
    """A person has put an older copy of the store in place: no epoch of before may be granted again (S2)."""

    actor: Name
    incarnation: Name
    """A new random name of the store: what was granted before proves nothing any more."""


class SetClock(Command, frozen=True, kw_only=True):
    """The wall clock stands `offset_ms` off the clock that counts from `boot_id`'s boot.

    It has jumped by `jumped_ms` since that was noted last: what waits for a while, and not for a date, waits no
    longer and no shorter for that.
    """

    term: int
    boot_id: str
    offset_ms: int
    jumped_ms: int


class AddSeal(Command, frozen=True, kw_only=True):
    """The sealer has signed the events that follow the last seal."""

    term: int
    seal: Seal


class Reconcile(Command, frozen=True, kw_only=True):
    """These tasks may disagree with the facts: what does is mended."""

    term: int
    task_ids: tuple[int, ...]


class Mend(Command, frozen=True, kw_only=True):
    """One task of it, with the facts that its row does not hold."""

    task_id: int
    unmet: int
    """How many of its dependencies are really unmet."""
    in_line: bool
    """Whether a claim would find it."""


class Prune(Command, frozen=True, kw_only=True):
    """At most `limit` of each: output and checkpoints of ended tasks, idempotency keys, older than that."""

    term: int
    logs_before_ms: int
    keys_before_ms: int
    limit: int


class PruneEvents(Command, frozen=True, kw_only=True):
    """The events of the seal that ends with `to_id`."""

    term: int
    to_id: int
    at_ms: int
    proof: str


class SetCrew(Command, frozen=True, kw_only=True):
    """RUNNING gives out work; anything else lets the workers finish what they hold and end."""

    status: CrewStatus


class StopCrew(Command, frozen=True, kw_only=True):
    """Every open attempt is to save a checkpoint, stop and give its task back."""

    stop_by_s: float
    actor: Name


class NewBoot(Command, frozen=True, kw_only=True):
    """A new owner has taken over: it takes the next term, and leases of this boot get one fresh lease time,
    because nobody could renew them while there was no owner (S15)."""


class FreshLeases(Command, frozen=True, kw_only=True):
    """The coordinator stood still: all leases of this boot begin anew."""

    term: int


class BuryWorker(Command, frozen=True, kw_only=True):
    """The coordinator's word that a worker is dead or has been silent for longer than its lease."""

    worker_id: Name
    term: int
    reason: Text
    for_good: bool = True
    """False: it is on another host and may only have been cut off; when it is heard again it may go on."""
    heard_mono_ms: int | None = None
    """When the coordinator knew it to be heard last: heard since then, it lives.  None: proven dead."""
