"""A workspace with a row in every table, named after its number."""

from __future__ import annotations

from store_rows import NOW, make_attempt, make_event, make_worker, new_task, writes

from muster.model.access import Member, Role, Token
from muster.model.agents import AgentBeat, AgentRow, Condition
from muster.model.commands import AppendLog
from muster.model.plan_sync import SyncState
from muster.model.rows import DEFAULT_WORKSPACE, LaneKey, Plan, Workspace
from muster.model.seals import Seal
from muster.model.secrets import Secret
from muster.model.states import AttemptStatus, PauseReason, TaskStatus
from muster.model.task import Artifact, Checkpoint
from muster.model.webhooks import HookKind, NewMessage, WebhookRow
from muster.ports.store import Store, Transaction, Tx


def mark(tenant: int) -> str:
    """Stands in every text of the tenant's rows."""
    return f"tenant{tenant}"


async def fill(store: Store, tenant: int) -> None:
    async def work(transaction: Transaction) -> None:
        if tenant != DEFAULT_WORKSPACE:
            await transaction.add_workspace(Workspace(tenant, mark(tenant), NOW.wall_ms))
        tx = transaction.of(tenant)
        await _tasks(tx)
        await _people(tx)

    await store.transact(work)


async def _tasks(tx: Tx) -> None:
    tenant = tx.workspace_id
    first, name = 1000 * tenant, mark(tenant)
    plan = Plan(first, tenant, name, f"/{name}.md", NOW.wall_ms, 0)
    paused = Plan(first + 9, tenant, f"{name}-paused", None, NOW.wall_ms, 0, paused_reason=PauseReason.USER)
    lane = await tx.lane_id(LaneKey(first, name, (), "", ""), NOW.wall_ms)
    own = {"workspace_id": tenant, "plan_id": first, "lane_id": lane}
    due = {"next_attempt_at_ms": 1, "expires_at_ms": 1, "pinned_until_ms": 1, "pinned_agent": name}
    running = {"status": TaskStatus.RUNNING, "epoch": 1, "overdue_at_ms": 1, "touches": name}
    over = {"epoch": 1, "status": TaskStatus.COMPLETED, "ended_at_ms": 1}
    parent, held = first + 1, first + 2
    await tx.add_plan(plan)
    await tx.add_plan(paused)
    await tx.write(
        writes(
            new_tasks=[
                new_task(parent, f"{name}-a", title=name, from_file=True, **own),
                new_task(held, f"{name}-b", after=((parent, False),), **own, **running, limit_key=name),
                new_task(first + 3, f"{name}-c", title=name, **own, **due, status=TaskStatus.ABORTED),
                new_task(first + 4, f"{name}-d", **own, **over, lingering_epoch=1),
                new_task(first + 5, **own, status=TaskStatus.FAILED, error=name),
            ],
            opened=[
                make_attempt(held, 1, worker_id=f"worker-{name}", agent=name, live_diff=name),
                make_attempt(first + 4, 1, status=AttemptStatus.COMPLETED, refused=f'["{name}"]'),
            ],
            events=[
                make_event(parent, 1, message=name),
                make_event(held, 1, previous_status=TaskStatus.RUNNING, new_status=TaskStatus.COMPLETED),
                make_event(0, tenant, subject=f"token {name}"),
            ],
            checkpoints=[Checkpoint(held, 1, 1, 1, name.encode())],
            artifacts=[Artifact(held, 1, name, name, 1)],
            logs=[AppendLog(task_id=held, epoch=1, stream="stdout", offset=0, data=name.encode())],
            results=[(parent, f'"{name}"', name)],
        ),
        NOW,
    )
    await tx.set_boxes(first, {f"{name}-box": parent})
    await tx.set_sync_state(first, SyncState(owed={f"{name}-a": True}))
    await tx.add_idempotent(name, name, parent, 1)
    assert await tx.make_room(1, 10) is None


async def _people(tx: Tx) -> None:
    tenant = tx.workspace_id
    number, name = 1000 * tenant, mark(tenant)
    await tx.put_worker(make_worker(f"worker-{name}", workspace_id=tenant))
    await tx.put_member(Member(name, Role.ADMIN, 1))
    await tx.add_token(Token(number, tenant, name, name, Role.ADMIN, (), name, 1, None, None, None), name)
    await tx.put_agent(AgentRow(tenant, name, name, "", (), (), 1, 5, 15, True, {}, "", "", name, 1))
    await tx.set_agent_token(name, name)
    await tx.add_beat(name, AgentBeat(1, next(iter(Condition)), None, None, name, None, None, {}))
    await tx.add_webhook(WebhookRow(number, tenant, f"https://{name}", (), name, 1), name)
    await tx.add_messages([NewMessage(number, name, next(iter(HookKind)), name, name, 1, 1)])
    await tx.put_secret(Secret(name, name, 1), name)
    await tx.set_meta("name", name)
    await tx.add_seal(Seal(number, 1, 1, 1, name, "", "", name, name.encode()))
