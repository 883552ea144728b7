"""What the routes stand on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct, field

from muster.agents.transcript import Reader
from muster.engine.cycles import Cycles
from muster.engine.queries import Queries
from muster.model.answers import AuditReport, BackedUp, BoxesTicked, Reconciled
from muster.model.artifacts import ArtifactPart, ArtifactReceived
from muster.model.errors import MusterError, StoreFault
from muster.model.notify import ChannelPlan
from muster.model.plan_sync import PlanSynced
from muster.ports.engine import Execute
from muster.ports.far_git import FarGit
from muster.ports.host import ProcessId
from muster.ports.runtime import Runtime, Wakeups
from muster.ports.store import Reads
from muster.ports.store_clock import StoreClock
from muster.ports.vault import Vault
from muster.ports.works import Works
from muster.web.event_counts import EventCounts
from muster.web.feed import EventFeed
from muster.web.http import Request
from muster.web.reckonings import Reckonings
from muster.web.sent_forms import SentForms

POLL_S = 1.0
"""Longest wait for a hint before looking for oneself."""


class OwnerActions(Protocol):
    """What the process that holds the store does besides commands and queries."""

    long_lived: bool
    """False for an owner of one command."""
    started_at_ms: int
    vault: Vault
    first_event_id: int
    """Up to this event all has happened before it began."""
    left_off_ms: int
    """When a crew was last heard of before that."""
    listening: str
    """Where others reach it, as a URL; empty: nowhere."""
    login: bool
    """Whether they need a token there."""

    @property
    def unattended(self) -> bool:
        """No crew is up, and nobody is about to start one."""

    @property
    def channels(self) -> Sequence[ChannelPlan]:
        """Where its settings have people told, by their names."""

    @property
    def runtime(self) -> Runtime:
        """What it and other servers tell each other."""

    @property
    def term(self) -> int:
        """Its term as coordinator; 0 while it does not lead."""

    @property
    def leader(self) -> str:
        """Which other server leads in its place; empty: it does, or nobody."""

    @property
    def differs(self) -> tuple[str, ...]:
        """Settings of its own that are not those of the server that leads, each in words."""

    @property
    def cycles(self) -> Mapping[str, Cycles]:
        """Those of the coordinator's loops, by their names."""

    @property
    def absences(self) -> int:
        """How often the store was away."""

    @property
    def seen(self) -> str:
        """Its newest commit, for workers to bring to other servers of its store; empty where there are none."""

    async def compare(self, seen: str) -> None:
        """Nothing is written any more where the store is behind what a worker has seen."""

    @property
    def looked_at_ms(self) -> int | None:
        """Wall time of the coordinator's last look at all workers and leases."""

    @property
    def far_git(self) -> FarGit | None:
        """None: tasks have no working trees."""

    @property
    def works(self) -> Works | None:
        """None: what tasks have made is in no repository that is here."""

    def halted(self) -> StoreFault | None:
        """Why nothing is written any more."""

    def unwritable(self) -> MusterError | None:
        """Why nothing can be written now: that, or a full disk, until there is space."""

    async def change_key(self) -> None:
        """A new key seals from now on; what older ones have sealed can still be opened.  Raises Conflict where
        it is for others to give it."""

    async def give_up_keys(self) -> str:
        """Only what the newest one has sealed can be opened from now on.  What a person has to do for that, or
        nothing."""

    async def judge_hook(self, url: str) -> str:
        """Why nothing is sent to this address now, though that may change; empty where it is.

        Raises BadInput where nothing can ever be sent there.
        """

    def lineage(self, pid: int) -> list[tuple[ProcessId, str]]:
        """As `LocalHost.lineage`: a process and what has started it, with the marks of attempts."""

    async def back_up(self, target: Path, force: bool) -> BackedUp:
        """To that file, over another one if so said."""

    async def artifact(self, task_id: int, epoch: int, name: str) -> bytes | None:
        """What is kept on this host of what an attempt has made; None: nothing."""

    async def artifact_bytes(self, task_id: int, epoch: int, name: str) -> int | None:
        """How long that is."""

    async def take_artifact(
        self, task_id: int, epoch: int, part: ArtifactPart, black: Callable[[bytes], bytes]
    ) -> ArtifactReceived:
        """What is kept is `black` of it.  Raises BadInput where it is not what was announced, and Unavailable."""

    async def verify_audit(self, workspace_id: int) -> AuditReport: ...

    async def reconcile(self) -> Reconciled: ...

    async def free_dead(self) -> None:
        """What dead workers of this host hold is free when this returns."""

    async def sync_plan(
        self, plan: str, accept: bool | None, keys: tuple[str, ...], actor: str
    ) -> PlanSynced:
        """Takes in what has changed in the plan's file, now; or a person's word on what waits, of these tasks or
        of all.  Raises NotFound."""

    async def standing(self, found: PlanSynced) -> PlanSynced:
        """What was found, with what differs between the plan and its file now and is neither taken in nor asked
        about, and with why boxes wait.  Nothing is changed."""

    async def boxes(self, plan: str, *, rewrite: bool = False) -> BoxesTicked:
        """Ticks the boxes of what the plan of this name has completed since, or if `rewrite` ever, now."""


class OwnClock:
    """Of a store that has no other clock than this host's."""

    servers: Mapping[str, int] = MappingProxyType({})

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Backend(Struct, frozen=True, kw_only=True):
    """One workspace's: what is asked through it finds nothing of any other."""

    workspace_id: int
    of: Callable[[int], Backend]
    """That of another workspace."""
    engine: Execute
    reads: Reads
    queries: Queries
    wakeups: Wakeups
    owner: OwnerActions
    clock: StoreClock = field(default_factory=OwnClock)
    """Whether a token counts is told by it."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    feeds: dict[str, EventFeed] = field(default_factory=dict)
    """Those that somebody follows, or has followed."""
    reckonings: Reckonings = field(default_factory=Reckonings)
    sent_forms: SentForms = field(default_factory=SentForms)
    counts: EventCounts = field(default_factory=EventCounts)
    reader: Callable[[str, str], Reader] = lambda *_: Reader()
    """How the output of the agent of this name is read."""

    def shut_down(self) -> None:
        """Ends the owner; whoever waits for an answer still gets one."""
        self.closing.set()
        self.wakeups.wake_all()

    async def hold(
        self, request: Request, topic: str, wait_s: float, look: Callable[[], Awaitable[bool]]
    ) -> None:
        """Returns once `look` says so, after `wait_s`, when the caller has gone, or when the owner ends.

        Raises NotAllowed once the caller would not be let in any more: what waits is looked at for nobody else.
        """
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + wait_s
        with self.wakeups.listen(topic) as listener:
            while not self.closing.is_set() and not request.gone and not await look():
                left_s = deadline_s - clock()
                if left_s <= 0:
                    return
                await listener.wait(min(left_s, POLL_S))
                await request.let_in_again()
