"""What is said of workers, the crew and its agents' providers, and what the coordinator says under its term."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from muster.model import patterns
from muster.model.commands.base import SLOTS_MAX, Command, Offer
from muster.model.events import COORDINATOR
from muster.model.scalars import Count, Id, Name, Signed, Text
from muster.model.seals import Seal
from muster.model.states import STOP_BY_S, CrewStatus

StopSeconds = Annotated[float, Meta(ge=0, le=3600)]


class Traits(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What whoever starts a worker says of it, beside what its settings say of its agents."""

    name: Name | None = None
    capabilities: tuple[Name, ...] = ()
    """All its agents have them, for tasks that ask for such."""
    metadata: dict[Name, Text] = field(default_factory=dict)


class Register(Command, frozen=True, kw_only=True):
    worker_id: Annotated[str, Meta(pattern=patterns.WORKER.regex)]
    hostname: Name
    pid: Id
    pid_start: Count
    boot_id: Name
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] = 1
    agents: tuple[Name, ...]
    general: tuple[Name, ...] = ()
    """Those of the agents that take tasks which name none, the preferred one first."""
    offers: dict[Name, Offer] = field(default_factory=dict)
    """What its agents are good for; an agent that is absent offers nothing special."""
    unfit: dict[Name, Text] = field(default_factory=dict)
    """Agents that cannot run on this worker, with what is missing."""
    traits: Traits = Traits()
    remote: bool = False
    """It has come over the network: whatever its host is called, nobody can look after its processes."""
    gone: tuple[Name, ...] = ()
    """Earlier workers of its folder whose processes it knows to be gone, with all that they had started."""
    spoken_by: Annotated[str, Meta(max_length=300)] = ""
    """Who alone may speak for it and for its attempts, by the server's own look; empty: who runs the store."""


class Heartbeat(Command, frozen=True, kw_only=True):
    worker_id: Name
    attempts: tuple[tuple[Id, Id], ...]
    """(task id, epoch) of everything that the worker holds."""
    proofs: tuple[Annotated[str, Meta(max_length=300)], ...] = ()
    """Of these attempts, in the same order."""
    no_room: Text = ""
    """Why nothing can begin on its host, as where its disk is full; empty: nothing is in the way."""


class Deregister(Command, frozen=True, kw_only=True):
    worker_id: Name
    reason: Text = ""


class DrainWorker(Command, frozen=True, kw_only=True):
    """This one worker takes no new work, and ends when it holds nothing more."""

    worker_id: Name
    actor: Name
    stop_by_s: StopSeconds | None = None
    """Set: what it holds is to stop with a checkpoint and be given back, within that time."""


class AddWorkers(Command, frozen=True, kw_only=True):
    """An order to whoever supervises the crew."""

    count: Annotated[int, Meta(ge=1, le=64)]
    request_id: Name
    """Repeating an order with the same id changes nothing."""
    traits: Traits = Traits()
    """Of each of them."""
    actor: Name


class SetCrew(Command, frozen=True, kw_only=True):
    """RUNNING gives out work, PAUSED lets what runs go on and gives out nothing new, STOPPED ends the workers."""

    status: CrewStatus
    actor: Name = COORDINATOR
    only_task_id: Id | None = None
    """Work is given out of this task alone, until somebody says otherwise."""


class StopCrew(Command, frozen=True, kw_only=True):
    """Every open attempt is to save a checkpoint, stop and give its task back."""

    stop_by_s: StopSeconds = STOP_BY_S
    actor: Name


class MarkWorkerDead(Command, frozen=True, kw_only=True):
    """The coordinator's word that a worker is dead or has been silent for longer than its lease."""

    worker_id: Name
    term: Count
    reason: Text
    permanent: bool = True
    """False: it is on another host and may only have been cut off; when it is heard again it may go on."""
    heard_mono_ms: Signed | None = None
    """When the coordinator knew it to be heard last: heard since then, it lives.  None: proven dead."""


class RevokePermission(Command, frozen=True, kw_only=True):
    number: Id
    actor: Name


class SetBudget(Command, frozen=True, kw_only=True):
    """How much a task, or all of a plan, may cost."""

    actor: Name
    microusd: Annotated[int, Meta(ge=1, le=1 << 50)]
    task_id: Id | None = None
    plan: str = ""
    """Where it is no task's."""


class OpenPool(Command, frozen=True, kw_only=True):
    """A person has seen to it: the provider's agents may be tried again."""

    pool: Name
    actor: Name = COORDINATOR
    term: Count | None = None
    """Set where it is the coordinator's word that their time is over: one of them may try."""


class Restored(Command, frozen=True, kw_only=True):
    """A person has put an older copy of the store in place: no epoch of before may be granted again (S2)."""

    actor: Name
    incarnation: Name
    """A new random name of the store: what was granted before proves nothing any more."""
    granted: Count = 0
    """The highest epoch of before, as far as anybody knows."""
    missing: str = ""
    """What was committed and is not there any more, in words."""
    lost_head: str = ""
    """The newest head in the log that no seal has, with its proof."""
    project: str = ""
    """Whose store it is from now on."""
    copied: bool = False
    """It came with a copy of another project, which goes on with what was running (S19)."""


class NewBoot(Command, frozen=True, kw_only=True):
    """A new owner has taken over: it takes the next term, and leases of this boot get one fresh lease time,
    because nobody could renew them while there was no owner (S15)."""

    project: str = ""
    """Whose store it is, where that is not noted yet."""
    long_lived: bool = True
    """False for an owner of one command: it comes and goes, and must not keep a task for who took it by hand."""


class Lead(Command, frozen=True, kw_only=True):
    """A server that shares its store with others asks for the coordinator's place, or to keep it: one leads at a
    time, until its lease on the place ends by the store's clock."""

    server: str
    """Another one with each start: what one process was granted, its successor was not."""
    named: str
    """What people know it by."""
    lease_ms: Count
    settings: dict[str, str] = field(default_factory=dict)
    """What it has set of what all servers should have alike."""
    unheard: bool = False
    """The store was away for it: nobody could renew a lease meanwhile."""
    expects_ms: Signed | None = None
    """What the store's clock is to show, by its last answer and the time since: where it does not, it was set."""
    give_up: bool = False
    """It ends, and another one may lead at once."""
    keys: tuple[str, ...] = ()
    """The names of its keys that open secrets."""
    place: str = ""
    """Its host and folder, where one server runs at a time: it stands in the place of the one before it."""
    wrong_ms: Signed = 0
    """So far its host's clock is ahead of the store's, where that is too far."""


class Join(Command, frozen=True, kw_only=True):
    """A server begins on a store that it shares with others: what one has sealed, all of them open."""

    seal_key: str
    """The name of the key that seals the audit."""
    vault_keys: tuple[str, ...]
    """Of those that open secrets, the one first that seals them."""
    keys_given: bool = False
    """They stand in the environment."""


class FreshLeases(Command, frozen=True, kw_only=True):
    """The coordinator stood still: all leases of this boot begin anew."""

    term: Count
    heard_until_ms: Signed | None = None
    """Until then whoever called was heard, by the clock of leases; None: nobody knows."""


class SetClock(Command, frozen=True, kw_only=True):
    """The wall clock stands `offset_ms` off the clock that counts from `boot_id`'s boot.

    It has jumped by `jumped_ms` since that was noted last: what waits for a while, and not for a date, waits no
    longer and no shorter for that.
    """

    term: Count
    boot_id: str
    offset_ms: Signed
    jumped_ms: Signed


class AddSeal(Command, frozen=True, kw_only=True):
    """The sealer has signed the events that follow the last seal."""

    term: Count
    seal: Seal


class Reconcile(Command, frozen=True, kw_only=True):
    """These tasks may disagree with the facts: what does is mended."""

    term: Count
    task_ids: tuple[Id, ...]


class Repair(Command, frozen=True, kw_only=True):
    """One task of it, with the facts that its row does not hold."""

    task_id: Id
    unmet: Count
    """How many of its dependencies are really unmet."""


class Prune(Command, frozen=True, kw_only=True):
    """At most `limit` of each: output, checkpoints of ended tasks, ended sessions of browsers, idempotency keys,
    messages to webhooks, heartbeats of agents, older than that."""

    term: Count
    logs_before_ms: Count
    keys_before_ms: Count
    beats_before_ms: Count
    limit: Count


class ArchiveDone(Command, frozen=True, kw_only=True):
    """Those of these tasks that were completed before that time go out of sight."""

    term: Count
    task_ids: tuple[Id, ...]
    before_ms: Count


class PruneEvents(Command, frozen=True, kw_only=True):
    """The events of the seal that ends with `to_id`."""

    term: Count
    to_id: Count
    at_ms: Count
    proof: str
