"""Clocks, chance, and hints: one may be lost, doubled or late; whoever waits polls as well."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from muster.model.task import Now

READY = "ready"
"""Some task became claimable."""
EVENTS = "events"
"""Something was written to the audit or to a log."""

PLAN_FILES = "plan files"
"""Something has happened in the folder of a plan's file."""
RECOVERY = "recovery"
"""Somebody thinks that an attempt is lost: whoever leads may look now, and not at its next tick."""


def orders_for(worker_id: str) -> str:
    """Topic of a worker: one of its attempts is to stop, or is over."""
    return f"orders:{worker_id}"


class Listener(Protocol):
    async def wait(self, timeout_s: float) -> bool:
        """True once the topic was published after this listener was made; False after `timeout_s`."""


class Wakeups(Protocol):
    def publish(self, topics: Iterable[str]) -> None:
        """May be called from any thread."""

    def wake_all(self) -> None:
        """For the end: nobody is to be kept waiting."""

    def listen(self, topic: str) -> AbstractContextManager[Listener]: ...


class Beat(NamedTuple):
    """A worker was heard, or an agent that serves itself and has a worker's id for that."""

    workspace_id: int
    worker_id: str
    tasks: tuple[int, ...]
    """That it holds."""


class LiveEvent(NamedTuple):
    """What has just been written to the audit, for whoever watches."""

    workspace_id: int
    id: int
    event: str
    task_id: int
    """0: it is about `worker_id`."""
    worker_id: str
    status: str


class WaitingTask(NamedTuple):
    id: int
    priority: int
    created_at_ms: int


class HeldTask(NamedTuple):
    workspace_id: int
    id: int
    worker_id: str
    agent: str
    session_key: str | None
    since_ms: int


class CrewMember(NamedTuple):
    """A worker that lives."""

    workspace_id: int
    id: str
    status: str
    heard_at_ms: int
    stale: bool
    """It was not heard within its lease."""


class Picture(Struct, frozen=True):
    """What the store holds now, as far as others may watch it."""

    waiting: Mapping[int, Sequence[WaitingTask]]
    """By workspace, those that a claim may find."""
    held: Sequence[HeldTask]
    crew: Sequence[CrewMember]


class Rates(Protocol):
    def asked(self, caller: str) -> int:
        """Counts a request; how many more the other servers have had of this caller, as far as known."""


RuntimeState = Literal["unused", "connected", "away"]


class Runtime(Protocol):
    """What several servers tell each other to be quicker, and show to others.

    Nothing is decided by it: all of it may be lost, doubled, late or old at any time (S14).  Nobody waits for it:
    what is told is sent later, or dropped where that cannot be.
    """

    @property
    def wakeups(self) -> Wakeups: ...

    @property
    def rates(self) -> Rates: ...

    @property
    def state(self) -> RuntimeState: ...

    @property
    def failures(self) -> int:
        """How often it could not be reached."""

    def beat(self, beat: Beat) -> None: ...

    def suspect(self, workspace_id: int, task_ids: Collection[int] = ()) -> None:
        """These may be lost: has whoever leads look."""

    async def suspects(self, workspaces: Iterable[int]) -> int:
        """How many were named since the last call, which are forgotten by that."""

    def tell(self, events: Sequence[LiveEvent]) -> None: ...

    async def show(self, picture: Picture) -> None: ...

    def start(self) -> None:
        """From now on it is kept up, on the running event loop."""

    async def aclose(self) -> None: ...


class Clock(Protocol):
    def now(self) -> Now: ...

    def utc_offset_s(self, at_ms: int) -> int:
        """What this place's clocks on the wall show more than UTC, at a wall time in milliseconds."""

    async def sleep(self, seconds: float) -> None: ...


class Chance(Protocol):
    def fraction(self) -> float:
        """Uniform in [0, 1)."""

    def name(self, length: int) -> str:
        """Random characters of [a-z0-9]."""
