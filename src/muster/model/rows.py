"""Rows beside the task's own: workspaces, plans, lanes, workers."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.model.agents import SELF_PREFIX
from muster.model.commands import Offer
from muster.model.profiles import GENERAL_PURPOSE
from muster.model.states import AgentStatus, PauseReason, WorkerStatus, agent_status
from muster.model.task import TaskFields
from muster.model.views import AgentView, TaskView, WorkerView

DEFAULT_WORKSPACE = 1
"""Each store has it: on a laptop nobody needs another one."""

NOTHING_SPECIAL = Offer()
ANY_AGENT = ""
"""Stands for the agent of tasks that name none."""
ROOM = "(room)"
"""Stands for room on a worker's disk, beside the names of secrets: none has such a name."""


class Workspace(Struct, frozen=True, gc=False, rename="camel"):
    """A tenant: everything belongs to one."""

    id: int
    name: str
    created_at_ms: int


class Plan(Struct, frozen=True, gc=False):
    id: int
    workspace_id: int
    name: str
    source: str | None
    created_at_ms: int
    ticked_event_id: int
    """Boxes are ticked for completions up to this event."""
    failures: int = 0
    """Tasks that failed for good since one was completed."""
    paused_reason: PauseReason | None = None
    """Set: the plan gives out no work."""
    event_seq: int = 0
    """Number of the plan's own last event."""
    task_order: str = ""
    """One of `edits.ORDERS`, kept for a file that does not say it."""


class LaneKey(NamedTuple):
    """What makes two tasks stand in one lane."""

    plan_id: int
    agent: str
    capabilities: tuple[str, ...]
    """With its target: see `model.targets`."""
    profile: str
    limit_key: str


class Lane(Struct, frozen=True, gc=False):
    """What a claim is matched against: all tasks of one lane can be taken by the same agents."""

    id: int
    workspace_id: int
    plan_id: int
    agent: str
    """Empty: any agent."""
    capabilities: tuple[str, ...]
    profile: str
    """Empty: any kind of agent is as good as another."""
    limit_key: str
    """Empty: no shared limit."""

    def agents_for(self, worker: WorkerRow) -> list[str]:
        """Which of a worker's agents may do this lane's tasks, those of the preferred kind first.

        A task that names no agent goes to the general ones, or to one that offers what it asks for.
        """
        names: tuple[str, ...]
        if self.agent:
            if self.agent not in worker.agents:
                return []
            names = (self.agent,)
        else:
            special = (name for name in worker.agents if name not in worker.general)
            able = (*worker.general, *(name for name in special if self._asks_for(worker.offer(name))))
            names = tuple(name for name in able if not worker.offer(name).aimed_only)
        fit = [
            name
            for name in names
            if name not in worker.unfit and set(self.capabilities) <= set(worker.offer(name).capabilities)
        ]
        return sorted(fit, key=lambda name: self._distance(worker.offer(name))) if len(fit) > 1 else fit

    def _asks_for(self, offer: Offer) -> bool:
        return bool(self.capabilities) or bool(self.profile and self.profile in offer.profiles)

    def mismatch(self, offer: Offer) -> int:
        """1 where an agent with a preference of its own would rather do something else, 0 otherwise.

        An agent that names no profile takes everything in the plan's order.
        """
        return int(self._distance(offer) > 1)

    def _distance(self, offer: Offer) -> int:
        """0 for an agent of the preferred kind, 1 for one of no particular kind, 2 for one of another kind."""
        if self.profile in ("", GENERAL_PURPOSE) or self.profile in offer.profiles:
            return 0
        return 2 if offer.profiles else 1


class WorkerRow(Struct, frozen=True, gc=False):
    id: str
    workspace_id: int
    hostname: str
    pid: int
    pid_start: int
    """Start time of the process, so that a reused pid is not mistaken for it."""
    boot_id: str
    """Of the coordinator's machine, when the worker was heard last."""
    slots: int
    agents: tuple[str, ...]
    general: tuple[str, ...]
    """Those of its agents that take tasks which name none, in order of preference."""
    offers: dict[str, Offer]
    unfit: dict[str, str] = {}
    """Agents that cannot run on this worker, with what is missing."""
    lacking: dict[str, str] = {}
    """Those of them for which a secret is missing, with its name, or room on its disk (ROOM)."""
    status: WorkerStatus = WorkerStatus.IDLE
    registered_at_ms: int = 0
    last_seen_at_ms: int = 0
    heard_mono_ms: int = 0
    """When it was last heard, on the monotonic clock of its boot."""
    ended_at_ms: int | None = None
    permanent: bool = False
    """Ended, and not only cut off."""
    reason: str = ""
    """Why it has ended; while it lives: why it is to end."""
    name: str | None = None
    capabilities: tuple[str, ...] = ()
    """That it was started with: its offers have them as well."""
    metadata: dict[str, str] = {}
    spoken_by: str = ""
    """Who alone may speak for it over the network; empty: nobody, only who runs the store."""

    @property
    def by_itself(self) -> bool:
        """It is an agent that serves itself, and no process that anybody here has started."""
        return self.id.startswith(SELF_PREFIX)

    @property
    def lease_ms(self) -> int:
        """What its agents ask for; 0: nothing of their own."""
        return 1000 * max((offer.lease_s or 0 for offer in self.offers.values()), default=0)

    @property
    def draining(self) -> bool:
        """It was asked to end, and is not to get more work."""
        return self.ended_at_ms is None and bool(self.reason)

    def offer(self, agent: str) -> Offer:
        return self.offers.get(agent, NOTHING_SPECIAL)

    def unfit_for(self, agent: str, why: str, secret: str | None) -> WorkerRow:
        lacked = {} if secret is None else {agent: secret}
        lacking = _without(self.lacking, {agent}) | lacked
        return replace(self, unfit=self.unfit | {agent: why}, lacking=lacking)

    def with_room(self, no_room: str) -> WorkerRow:
        """`no_room`: why nothing can begin on its host; empty: who could not for that may be tried again."""
        found = self.given({ROOM})
        stopped = [agent for agent in found.agents if agent not in found.unfit] if no_room else []
        if not stopped:
            return found
        unfit, lacking = dict.fromkeys(stopped, no_room), dict.fromkeys(stopped, ROOM)
        return replace(found, unfit=found.unfit | unfit, lacking=found.lacking | lacking)

    def given(self, what: Collection[str]) -> WorkerRow:
        """Agents that could not run without these may be tried again."""
        again = {agent for agent, lacked in self.lacking.items() if lacked in what}
        if not again:
            return self
        return replace(self, unfit=_without(self.unfit, again), lacking=_without(self.lacking, again))

    def all_unfit(self) -> dict[str, str]:
        """What it cannot run, with what is missing; under ANY_AGENT why no task that names no agent is for it."""
        if not self.general or any(name not in self.unfit for name in self.general):
            return self.unfit
        first = self.general[0]
        return self.unfit | {ANY_AGENT: f"{first} cannot run: {self.unfit[first]}"}

    def all_lacking(self) -> dict[str, str]:
        """Where a secret or room is what is missing, its name, as `all_unfit` has them."""
        first = self.general[0] if ANY_AGENT in self.all_unfit() else ANY_AGENT
        return self.lacking | {ANY_AGENT: self.lacking[first]} if first in self.lacking else self.lacking


def _without(by_agent: dict[str, str], agents: Container[str]) -> dict[str, str]:
    return {agent: said for agent, said in by_agent.items() if agent not in agents}


_SHOWN = frozenset(WorkerView.__struct_fields__)


def worker_view(worker: WorkerRow, holds: tuple[str, ...]) -> WorkerView:
    """The row says what the last heartbeat knew; an attempt may have begun or ended since."""
    status = worker.status
    if worker.draining:
        status = WorkerStatus.STOPPING
    elif status in {WorkerStatus.IDLE, WorkerStatus.BUSY}:
        status = WorkerStatus.BUSY if holds else WorkerStatus.IDLE
    shared = {name: value for name, value in asdict(worker).items() if name in _SHOWN}
    return WorkerView(**shared | {"status": status, "holds": holds, "pid": worker.pid or None})


def status_of(agent: str, hosts: Collection[WorkerView], *, drained: bool, busy: bool) -> AgentStatus:
    """`hosts`: the living workers that offer it."""
    fit = [worker for worker in hosts if agent not in worker.unfit]
    ending = bool(fit) and all(worker.status == WorkerStatus.STOPPING for worker in fit)
    return agent_status(served=bool(hosts), fit=bool(fit), draining=drained or ending, busy=busy)


def agent_views(
    workers: Sequence[WorkerView], held: Sequence[TaskView], drained: Container[str] = ()
) -> list[AgentView]:
    """What each agent does, told from the workers that offer it and the tasks that it holds."""
    found = []
    for name in sorted({agent for worker in workers for agent in worker.agents}):
        hosts = [worker for worker in workers if name in worker.agents]
        fit = [worker for worker in hosts if name not in worker.unfit]
        mine = [task for task in held if task.agent == name]
        holds = tuple(f"{task.plan}/{task.key}#{task.epoch}".lstrip("/") for task in mine)
        status = status_of(name, hosts, drained=name in drained, busy=bool(holds))
        problem = next((worker.unfit[name] for worker in hosts if name in worker.unfit), "")
        found.append(AgentView(name=name, status=status, workers=len(fit), holds=holds, problem=problem))
    return found


class NewTask(TaskFields, frozen=True, kw_only=True):
    """A task that is being added: what is no state of it goes into the row from here.

    Its times are as they were wished, whatever its state says by now.
    """

    task_id: int
    key: str | None
    parent_task_id: int | None
    not_after_ms: int | None
    """`expires_at_ms`, which its state forgets."""
    created_by: str
    created_at_ms: int
    dependencies: tuple[tuple[int, bool], ...]
    """(parent's id, whether it is done already)."""
    from_file: bool = False
    """It came with a plan file, so the file may take it out again."""
    input_sealed: str = ""
    """The secrets of its input context, which itself has stars in their place; empty: there are none."""
