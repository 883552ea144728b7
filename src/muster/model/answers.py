"""What the engine answers: values that go over the wire as they stand (camelCase JSON)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from muster.model.permissions import Verdicts
from muster.model.states import AgentStatus, PauseReason, StopAction, TaskStatus
from muster.model.usage import Usage


class Answer(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all answers."""


class Enqueued(Answer, frozen=True, kw_only=True):
    plan: str
    plan_id: int
    added: int
    """Without groups, which are not counted as tasks."""
    existing: int
    changed: tuple[str, ...]
    """Keys whose text in the file differs from the task that is kept."""
    completed: tuple[str, ...] = ()
    """Keys that were ticked in the file since, and are completed by that."""
    unproved: tuple[str, ...] = ()
    """Keys that were ticked as well, maybe by an agent: their tasks stay as they are."""
    groups_added: int = 0
    task_ids: tuple[int, ...] = ()
    """The tasks in the order in which they were given, also those that were there already."""


class BoxesTicked(Answer, frozen=True, kw_only=True):
    plan: str
    waits: str
    """Why boxes of completed tasks are not ticked yet; empty where all are."""
    differ: tuple[str, ...] = ()
    """Keys of tasks whose boxes say otherwise than they do."""


class PlanMoved(Answer, frozen=True, kw_only=True):
    plan: str
    paused: PauseReason | None
    failures: int


class ClaimedJob(Answer, frozen=True, kw_only=True):
    """An attempt, as its worker needs to know it."""

    task_id: int
    epoch: int
    plan: str
    key: str
    agent: str
    title: str
    description: str
    note: str
    timeout_s: int
    session_key: str | None
    checkpoint: bytes | None
    proof: str = ""
    """That this attempt was granted; goes with every word on it."""
    session_usage: Usage | None = None
    refused: bool = False
    """Its provider has ended the last attempt: nobody has interrupted its session."""
    tries: bool = False
    """All other agents of its provider wait to hear whether that answers."""
    check_command: str = ""
    """As in the task's fields."""
    review: str = ""
    changes: str = ""
    accepted: int | None = None
    """The attempt whose work a person has accepted, as it was shown."""
    sent_back: str = ""
    """Why the last result was not taken; of work that was accepted: what its person was told to mend."""
    verdicts: Verdicts = {}
    """What people have allowed its agent, and denied it."""
    publishes: int | None = None
    """Set: no agent is to run; the work of this earlier attempt, by `agent`, is done and is to be published."""
    model: str | None = None
    system_prompt: str = ""
    input_context: dict[str, Any] = {}
    """With stars in place of its secrets ..."""
    has_secrets: bool = False
    """... which there are: who has the attempt asks for them."""
    lease_s: float | None = None
    """How long its holder is trusted since it was heard last, whatever it was told as it registered, perhaps by a
    server with other settings.  None: as it was told."""
    started: bool = False
    """With its claim, or before this answer was repeated."""
    expires_s: float | None = None
    """From this answer until nothing of it may begin any more; None: it does not expire."""


class Claimed(Answer, frozen=True, kw_only=True):
    jobs: tuple[ClaimedJob, ...]
    drain: bool = False
    """The crew takes no new work: the worker ends when its last attempt has."""
    stopped: bool = False
    """That is so because the server ends, and not this worker alone: one of another host may register anew, and
    is let in once the server is back."""
    over: bool = False
    """What this request was given has ended since: it gets nothing any more, a new one may."""


class Moved(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """Where a task stands after a command."""

    task_id: int
    status: TaskStatus
    epoch: int
    generation: int
    gives_way: bool = False
    """Another attempt tries whether their provider answers: this one is to end, and waits for that."""
    next: Claimed | None = None
    """What the command's `then` was given; None without one, and where the claim itself was refused."""


class Taken(Answer, frozen=True, kw_only=True):
    """A task that somebody has taken by hand."""

    job: ClaimedJob
    holder: str
    lease_ends_at_ms: int
    """On the wall clock, as it stands now."""


class Held(Answer, frozen=True, kw_only=True):
    """How long an attempt by hand is trusted now, and what its holder is to know."""

    task_id: int
    epoch: int
    lease_ends_at_ms: int
    stop: StopAction | None = None
    """Set: it is to be given back."""
    notice: str = ""


class AttemptOrder(Answer, frozen=True, kw_only=True):
    """What a heartbeat's answer says of one attempt."""

    task_id: int
    epoch: int
    current: bool
    """False: the attempt is over; its process tree must go at once."""
    stop: StopAction | None = None
    notice: str = ""
    """What the agent is to be told; empty: nothing, or not any more."""


class HeartbeatAnswer(Answer, frozen=True, kw_only=True):
    known: bool
    """False: the worker was declared dead; it registers anew under another name."""
    drain: bool
    stopped: bool = False
    """As in Claimed."""
    attempts: tuple[AttemptOrder, ...]
    seen: str = ""
    """The newest commit of this server: the worker's next heartbeats bring it, to whichever server, as the header
    `Muster-Seen`, so that a database which is behind it is noticed."""


class Registered(Answer, frozen=True, kw_only=True):
    heartbeat_s: float
    lease_s: float
    freeze: bool = False
    """The worker is not on the store's host, which could not kill its agents: before a lease ends that it
    cannot renew, it stops their process trees (L5)."""
    own: WorkerToken | None = None
    """Goes with every other word over the network; None: nothing has to."""


class WorkerToken(Answer, frozen=True, kw_only=True):
    token: str
    """A JWT, bound to its workspace, to the worker and to its agents."""
    token_s: int
    """How long it counts."""


class TookOver(Answer, frozen=True, kw_only=True):
    """A new owner's term, and how many running attempts it has adopted."""

    term: int
    adopted: int


class Joined(Answer, frozen=True, kw_only=True):
    first: bool
    """No server has had this store before."""
    vault_key: str
    """The name of the key that all of them seal by."""


class KeyTaken(Answer, frozen=True, kw_only=True):
    key: str
    """The name of the key that seals."""
    lacking: tuple[str, ...]
    """Servers that are up and do not have the new one: it does not seal so long."""


class SealedDropped(Answer, frozen=True, kw_only=True):
    """What was sealed by a key that is lost."""

    secrets: tuple[str, ...]
    webhooks: tuple[str, ...]
    """Their addresses."""


class Led(Answer, frozen=True, kw_only=True):
    """Who leads: the server that has asked, if `term` is one."""

    term: int = 0
    leader: str = ""
    """What people know the server by that leads; empty: none does."""
    settings: dict[str, str] = field(default_factory=dict)
    """Those of the leader, where that is another server."""
    took: bool = False
    """It leads from now on, and did not before."""
    vault_key: str = ""
    """The name of the key that all servers seal by."""
    given_up: tuple[str, ...] = ()
    """Those of keys that nothing is sealed by any more."""
    at_ms: int = 0
    """By the store's clock."""
    others_are_up: bool = False
    """Other servers of the store, as far as is known."""
    clocks: dict[str, int] = field(default_factory=dict)
    """Servers that are up and whose clock is wrong, and by how many milliseconds it is ahead of the store's."""
    last_term: int = 0
    """Told to who ends: whoever leads from now on has a higher one."""


class AuditReport(Answer, frozen=True, kw_only=True):
    whole: bool
    problems: tuple[str, ...]
    """Each names the event or the seal; at most 100."""
    seals: int
    sealed: int
    """Events that are there and sealed."""
    unsealed: int
    """Newer ones, which the sealer has not come to yet: an edit of one of them does not show."""
    pruned: int
    """Events that retention has dropped, with a signature."""
    lost: int
    """Seals that the log knows, and that were lost before the store was restored."""
    head: str


class BackedUp(Answer, frozen=True, kw_only=True):
    path: str
    bytes: int
    tasks: int
    schema: int


class StoreRestored(Answer, frozen=True, kw_only=True):
    base: int
    """Epochs begin above it."""
    missing: str = ""
    """What was committed and is not there any more, in words."""
    closed: str = ""
    """What is sealed and cannot be opened, in words."""
    lost: int = 0
    """Attempts that were ended, because they run for the project that this one was copied from."""


class WorkersOrdered(Answer, frozen=True, kw_only=True):
    """How many workers were ordered by hand since the store was made, this order included."""

    total: int


class Reconciled(Answer, frozen=True, kw_only=True):
    dead_workers_found: int = 0
    expired_claims_released: int = 0
    orphaned_tasks_recovered: int = 0
    """Tasks that were held by no attempt."""
    stale_states_fixed: int = 0
    """Tasks whose place in line, dependencies or open attempt disagreed with the facts."""


class Pruned(Answer, frozen=True, kw_only=True):
    """How many rows went."""

    logs: int = 0
    checkpoints: int = 0
    keys: int = 0
    events: int = 0
    messages: int = 0
    beats: int = 0
    sessions: int = 0


class AgentPut(Answer, frozen=True, kw_only=True):
    added: bool
    """It was not there before."""


class AgentMoved(Answer, frozen=True, kw_only=True):
    agent: str
    previous_status: AgentStatus
    status: AgentStatus


class AgentHeard(Answer, frozen=True, kw_only=True):
    status: AgentStatus
    drain: bool
    """It is to take nothing more, and to end once it holds nothing."""
    next_expected_at_ms: int
    """Wall time by which it is to be heard again."""
    tasks: tuple[AttemptOrder, ...]
    """What is to become of the task that it has named; empty where nobody has begun that."""


class WorkspaceAdded(Answer, frozen=True, kw_only=True):
    id: int
    name: str


class TokenAdded(Answer, frozen=True, kw_only=True):
    id: int
    expires_at_ms: int | None


class WebhookAdded(Answer, frozen=True, kw_only=True):
    id: int


class MessagesQueued(Answer, frozen=True, kw_only=True):
    messages: int
    """How many are to be sent."""


class SealedSecrets(Answer, frozen=True, kw_only=True):
    """As the store has them, by name."""

    sealed: dict[str, str]
    inputs: str = ""
    """Those of the task's input context; empty: it has none, or nobody has asked."""


class Resealed(Answer, frozen=True, kw_only=True):
    tasks: int
    """So many have the secrets of their input context sealed anew."""
    lost: int
    """And so many as they were, since nobody can open them."""
    after: int | None
    """Go on after this task; None: that was all."""


class SecretsGiven(Answer, frozen=True, kw_only=True):
    values: dict[str, str]
    """By name."""
    missing: dict[str, str]
    """Why they are, by name."""
    inputs: dict[str, str] = {}
    """Secrets of the task's input context, by JSON pointer."""
    inputs_lost: bool = False
    """These cannot be opened."""


class Done(Answer, frozen=True, kw_only=True):
    """Nothing to tell but that it was written."""
