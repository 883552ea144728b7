"""Agents as rows: who is registered, who is heard, who is to take nothing more.

An agent that serves itself stands as a worker of its own, with that one agent, so that claims, leases and
sentences about waiting tasks need to know nothing of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from muster.engine.locking import held_worker
from muster.engine.notes import note
from muster.engine.view import View
from muster.engine.workers import Workers, living
from muster.model import commands as c
from muster.model.agents import AGENTS_MAX, BY_ITSELF, AgentBeat, AgentRow, Condition, stale_after_s
from muster.model.answers import AgentHeard, AgentMoved, AgentPut, Answer, Done, Registered
from muster.model.errors import BadInput, Conflict, IllegalMove, NotFound
from muster.model.events import Level
from muster.model.rows import WorkerRow, status_of, worker_view
from muster.model.states import AGENT_MOVES, AgentStatus
from muster.model.task import BY_HAND
from muster.model.webhooks import HookKind, of_worker


class Agents:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def handlers(self) -> dict[type[c.Command], Callable[[View, Any], Awaitable[Answer]]]:
        return {
            c.Register: self.register,
            c.PutAgent: self.put,
            c.MoveAgent: self.move,
            c.RemoveAgent: self.remove,
            c.BeatAgent: self.beat,
        }

    async def register(self, view: View, command: c.Register) -> Registered:
        """A worker's word, which makes rows of the agents that it runs."""
        before = await view.tx.living_workers()
        registered = await self._workers.register(view, command)
        for name in command.agents:
            known = self._row(view, name)
            if known and known.worker_id and any(worker.id == known.worker_id for worker in before):
                continue  # it goes on by itself
            offer = command.offers.get(name, c.Offer())
            served = any(name in worker.agents for worker in before)
            row = AgentRow(
                workspace_id=view.tx.workspace_id,
                name=name,
                label=known.label if known else "",
                model=offer.model,
                capabilities=offer.capabilities,
                profiles=offer.profiles,
                slots=command.slots,
                heartbeat_s=int(registered.heartbeat_s) or 1,
                stale_s=offer.lease_s or int(registered.lease_s) or 1,
                coordinator_enabled=not offer.aimed_only,
                metadata=known.metadata if known else {},
                draining=known.draining if known and served else "",
                worker_id="",
                registered_by=known.registered_by if known else command.worker_id,
                registered_at_ms=known.registered_at_ms if known else view.now.wall_ms,
            )
            if row != known:
                await self._keep(view, row)
        return registered

    async def put(self, view: View, command: c.PutAgent) -> AgentPut:
        """Raises Conflict where workers of the crew run an agent of this name."""
        name = command.agent
        if name == BY_HAND:
            raise BadInput(
                f"no agent can be called {BY_HAND!r}: tasks that people have taken are told by that"
            )
        known = self._row(view, name)
        own = await self._own_worker(view, known)
        for worker in await view.tx.living_workers():
            if name in worker.agents and worker is not own and not worker.by_itself:
                raise Conflict(
                    f"agent {name} is run by {worker.id}, with the settings of its host; nothing was changed",
                    "register under another name, or change [agents.NAME] of muster.toml",
                )
        if known is None and view.known.agent_count >= AGENTS_MAX:
            raise Conflict(
                f"there are {AGENTS_MAX} agents; nothing was changed", "DELETE /api/v1/agents/NAME"
            )
        stale_s = stale_after_s(command.heartbeat_s, command.stale_s)
        row = AgentRow(
            workspace_id=view.tx.workspace_id,
            name=name,
            label=command.label,
            model=command.model,
            capabilities=command.capabilities,
            profiles=command.profiles,
            slots=command.slots,
            heartbeat_s=command.heartbeat_s,
            stale_s=stale_s,
            coordinator_enabled=command.coordinator_enabled,
            metadata=command.metadata,
            draining=known.draining if known and own else "",
            worker_id=command.worker_id if own is None else own.id,
            registered_by=known.registered_by if known else command.actor,
            registered_at_ms=known.registered_at_ms if known else view.now.wall_ms,
        )
        await self._stand_as_worker(view, row, own)
        await self._keep(view, row)
        if command.token_hash is not None:
            await view.tx.set_agent_token(name, command.token_hash)
        if own is None:
            await note(
                view, f"agent {name}", "agent_registered", f"serves itself as {row.worker_id}", command.actor
            )
        elif row != known:
            await note(view, f"agent {name}", "agent_changed", f"changed by {command.actor}", command.actor)
        return AgentPut(added=known is None)

    async def _stand_as_worker(self, view: View, row: AgentRow, own: WorkerRow | None) -> None:
        offer = c.Offer(
            capabilities=row.capabilities,
            profiles=row.profiles,
            model=row.model,
            aimed_only=not row.coordinator_enabled,
            lease_s=row.stale_s,
        )
        general = (row.name,) if row.coordinator_enabled else ()
        if own is not None:
            changed = replace(own, slots=row.slots, offers={row.name: offer}, general=general)
            await view.tx.put_worker(changed)
            return
        registration = c.Register(
            worker_id=row.worker_id,
            hostname=BY_ITSELF,
            pid=0,
            pid_start=0,
            boot_id=view.now.boot_id,
            slots=row.slots,
            agents=(row.name,),
            general=general,
            offers={row.name: offer},
        )
        await self._workers.register(view, registration)

    async def move(self, view: View, command: c.MoveAgent) -> AgentMoved:
        """Raises IllegalMove where AGENT_MOVES has no such move."""
        row = self._named(view, command.agent)
        hosts, busy = await self._serving(view, row.name)
        before = self._status(row, hosts, busy=busy)
        to = AgentStatus.BUSY if command.to is AgentStatus.IDLE and busy else command.to
        own = await self._own_worker(view, row)
        if to is AgentStatus.DRAINING and own is not None and not busy:
            to = AgentStatus.OFFLINE  # it has nothing to finish
        if to is not before:
            if to not in AGENT_MOVES[before] or not hosts:
                raise IllegalMove(
                    f"agent {row.name} is {before}, and does not become {to} by that; nothing was changed",
                    f"PUT /api/v1/agents/{row.name}" if not hosts else "GET /api/v1/agents",
                )
            await self._become(view, row, own, command, to)
        return AgentMoved(agent=row.name, previous_status=before, status=to)

    async def _become(
        self, view: View, row: AgentRow, own: WorkerRow | None, command: c.MoveAgent, to: AgentStatus
    ) -> None:
        reason = command.reason or f"asked for by {command.actor}"
        if to is AgentStatus.DRAINING:
            await self._keep(view, replace(row, draining=reason))
        elif to in {AgentStatus.IDLE, AgentStatus.BUSY}:
            await self._keep(view, replace(row, draining=""))
            if own is not None and own.unfit:
                await view.tx.put_worker(replace(own, unfit={}, lacking={}))
            view.became_ready = True
        elif own is None:
            raise IllegalMove(
                f"agent {row.name} is run by workers of the crew, and does not become {to} by that; "
                "nothing was changed",
                "muster worker list, muster worker stop WORKER",
            )
        elif to is AgentStatus.OFFLINE:
            await self._workers.deregister(view, c.Deregister(worker_id=own.id, reason=reason))
        else:
            await self._fails(view, row, own, reason)
        said = f"{to} now: {reason}"
        await note(view, f"agent {row.name}", f"agent_{to}", said, command.actor)

    async def remove(self, view: View, command: c.RemoveAgent) -> Done:
        """Raises IllegalMove for one that is there."""
        row = self._named(view, command.agent)
        hosts, busy = await self._serving(view, row.name)
        status = self._status(row, hosts, busy=busy)
        if status is not AgentStatus.OFFLINE:
            raise IllegalMove(
                f"agent {row.name} is {status}; it was not removed",
                f"POST /api/v1/agents/{row.name}/terminate",
            )
        await view.tx.drop_agent(row.name)
        view.known.forget_agent(row)
        await note(view, f"agent {row.name}", "agent_removed", f"removed by {command.actor}", command.actor)
        return Done()

    async def beat(self, view: View, command: c.BeatAgent) -> AgentHeard:
        """Raises Conflict for one that has ended, and IllegalMove for one that workers run."""
        row = self._named(view, command.agent)
        worker = await held_worker(view.tx, row.worker_id) if row.worker_id else None
        if worker is None:
            raise IllegalMove(f"agent {row.name} is run by workers of the crew, which are heard for it")
        if worker.permanent:
            raise Conflict(f"agent {row.name} has ended: {worker.reason}", f"PUT /api/v1/agents/{row.name}")
        named: list[tuple[int, int]] = []
        if command.task_id is not None:
            await view.load([command.task_id])
            newest = view.attempt(command.task_id)
            if epoch := command.epoch or (newest.epoch if newest else 0):
                named.append((command.task_id, epoch))
        heard = await self._workers.heartbeat(view, c.Heartbeat(worker_id=worker.id, attempts=tuple(named)))
        if any(order.current for order in heard.attempts) and (command.percent is not None or command.step):
            (task_id, epoch), step = named[0], command.step or None
            view.run(task_id, c.Progress(task_id=task_id, epoch=epoch, percent=command.percent, step=step))
        if command.health is not None:
            await self._note_beat(view, row, command, command.health)
        hosts, busy = await self._serving(view, row.name)
        status = self._status(row, hosts, busy=busy)
        drain = heard.drain or bool(row.draining)
        if row.draining and not busy:
            await self._workers.deregister(view, c.Deregister(worker_id=worker.id, reason=row.draining))
            status = AgentStatus.OFFLINE
        return AgentHeard(
            status=status,
            drain=drain,
            next_expected_at_ms=view.now.wall_ms + row.heartbeat_s * 1000,
            tasks=heard.attempts,
        )

    async def _note_beat(self, view: View, row: AgentRow, command: c.BeatAgent, health: Condition) -> None:
        beat = AgentBeat(
            at_ms=view.now.wall_ms,
            status=health,
            task_id=command.task_id,
            progress_percent=command.percent,
            current_step=command.step,
            memory_mb=command.memory_mb,
            cpu_percent=command.cpu_percent,
            metadata=command.metadata,
        )
        await view.tx.add_beat(row.name, beat)
        worker = await view.tx.worker(row.worker_id)
        assert worker is not None, "it was heard"
        if health is Condition.ERROR and row.name not in worker.unfit:
            await self._fails(view, row, worker, command.step or "it says that it can do nothing")
        elif health is not Condition.ERROR and worker.unfit:
            await view.tx.put_worker(replace(worker, unfit={}, lacking={}))
            view.became_ready = True

    async def _fails(self, view: View, row: AgentRow, worker: WorkerRow, reason: str) -> None:
        await view.tx.put_worker(replace(worker, unfit={row.name: reason}, lacking={}))
        said = f"can do nothing: {reason}"
        await note(view, f"agent {row.name}", "agent_unfit", said, worker.id, level=Level.WARN)
        await view.tell(of_worker(HookKind.AGENT_FAILED, worker.id, (row.name,), reason))

    async def _serving(self, view: View, name: str) -> tuple[Sequence[WorkerRow], bool]:
        """The living workers that offer it, and whether it holds a task."""
        hosts = [worker for worker in await view.tx.living_workers() if name in worker.agents]
        held = [attempt for worker in hosts for attempt in await view.held(worker.id)]
        return hosts, any(attempt.agent == name for attempt in held)

    @staticmethod
    def _status(row: AgentRow, hosts: Sequence[WorkerRow], *, busy: bool) -> AgentStatus:
        views = [worker_view(worker, ()) for worker in hosts]
        return status_of(row.name, views, drained=bool(row.draining), busy=busy)

    @staticmethod
    async def _own_worker(view: View, row: AgentRow | None) -> WorkerRow | None:
        return await living(view, row.worker_id) if row is not None and row.worker_id else None

    def _row(self, view: View, name: str) -> AgentRow | None:
        return view.known.agent(name)

    def _named(self, view: View, name: str) -> AgentRow:
        row = self._row(view, name)
        if row is None:
            raise NotFound(f"there is no agent {name!r}", "GET /api/v1/agents")
        return row

    async def _keep(self, view: View, row: AgentRow) -> None:
        await view.tx.put_agent(row)
        view.known.know_agent(row)
