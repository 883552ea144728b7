"""What is said of workers, of the crew, and of the providers of its agents."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from muster.model.commands.base import Command, Count, Id, Name, Offer, Text
from muster.model.states import STOP_BY_S, CrewStatus

StopSeconds = Annotated[float, Meta(ge=0, le=3600)]


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
    offers: dict[Name, Offer] = field(default_factory=dict)
    """What its agents are good for; an agent that is absent offers nothing special."""
    unfit: dict[Name, Text] = field(default_factory=dict)
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
    stop_by_s: StopSeconds | None = None
    """Set: what it holds is to stop with a checkpoint and be given back, within that time."""


class AddWorkers(Command, frozen=True, kw_only=True):
    """An order to whoever supervises the crew."""

    count: Annotated[int, Meta(ge=1, le=64)]
    request_id: Name
    """Repeating an order with the same id changes nothing."""


class SetCrew(Command, frozen=True, kw_only=True):
    """RUNNING gives out work, PAUSED lets what runs go on and gives out nothing new, STOPPED ends the workers."""

    status: CrewStatus


class StopCrew(Command, frozen=True, kw_only=True):
    """Every open attempt is to save a checkpoint, stop and give its task back."""

    stop_by_s: StopSeconds = STOP_BY_S
    actor: Name


class MarkWorkerDead(Command, frozen=True, kw_only=True):
    """The coordinator's word that a worker is dead or has been silent for longer than its lease."""

    worker_id: Name
    term: int
    reason: Text
    permanent: bool = True
    """False: it is on another host and may only have been cut off; when it is heard again it may go on."""
    heard_mono_ms: int | None = None
    """When the coordinator knew it to be heard last: heard since then, it lives.  None: proven dead."""


class OpenPool(Command, frozen=True, kw_only=True):
    """A person has seen to it: the provider's agents may be tried again."""

    pool: Name
    actor: Name
