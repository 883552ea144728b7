"""What the process that holds the store does for a workspace that has no folder here: nothing with files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from muster.engine.cycles import Cycles
from muster.model.answers import AuditReport, BackedUp, BoxesTicked, Reconciled
from muster.model.artifacts import ArtifactPart, ArtifactReceived
from muster.model.errors import Forbidden, MusterError, StoreFault
from muster.model.notify import ChannelPlan
from muster.model.plan_sync import PlanSynced
from muster.ports.host import ProcessId
from muster.ports.runtime import Runtime
from muster.web.backend import OwnerActions


class GuestOwner:
    """As web.backend.OwnerActions."""

    def __init__(self, owner: OwnerActions) -> None:
        self._owner = owner
        self.long_lived = owner.long_lived
        self.listening, self.login = owner.listening, owner.login
        self.started_at_ms = owner.started_at_ms
        self.vault = owner.vault
        self.first_event_id, self.left_off_ms = owner.first_event_id, owner.left_off_ms
        self.unattended = owner.unattended
        self.channels: tuple[ChannelPlan, ...] = ()

    @property
    def runtime(self) -> Runtime:
        return self._owner.runtime

    @property
    def term(self) -> int:
        return self._owner.term

    @property
    def differs(self) -> tuple[str, ...]:
        return self._owner.differs

    @property
    def leader(self) -> str:
        return self._owner.leader

    @property
    def cycles(self) -> Mapping[str, Cycles]:
        return self._owner.cycles

    @property
    def absences(self) -> int:
        return self._owner.absences

    @property
    def seen(self) -> str:
        return self._owner.seen

    async def compare(self, seen: str) -> None:
        await self._owner.compare(seen)

    @property
    def looked_at_ms(self) -> int | None:
        return self._owner.looked_at_ms

    @property
    def far_git(self) -> None:
        """It has no folder."""

    @property
    def works(self) -> None:
        """As far_git."""

    def halted(self) -> StoreFault | None:
        return self._owner.halted()

    def unwritable(self) -> MusterError | None:
        return self._owner.unwritable()

    async def change_key(self) -> None:
        await self._owner.change_key()

    async def give_up_keys(self) -> str:
        return await self._owner.give_up_keys()

    async def judge_hook(self, url: str) -> str:
        return await self._owner.judge_hook(url)

    def lineage(self, pid: int) -> list[tuple[ProcessId, str]]:
        return self._owner.lineage(pid)

    async def artifact(self, task_id: int, epoch: int, name: str) -> bytes | None:
        return await self._owner.artifact(task_id, epoch, name)

    async def artifact_bytes(self, task_id: int, epoch: int, name: str) -> int | None:
        return await self._owner.artifact_bytes(task_id, epoch, name)

    async def take_artifact(
        self, task_id: int, epoch: int, part: ArtifactPart, black: Callable[[bytes], bytes]
    ) -> ArtifactReceived:
        return await self._owner.take_artifact(task_id, epoch, part, black)

    async def verify_audit(self, workspace_id: int) -> AuditReport:
        return await self._owner.verify_audit(workspace_id)

    async def free_dead(self) -> None:
        await self._owner.free_dead()

    async def boxes(self, plan: str, *, rewrite: bool = False) -> BoxesTicked:  # noqa: ARG002 - it has no file
        return BoxesTicked(plan=plan, waits="")

    async def standing(self, found: PlanSynced) -> PlanSynced:
        return found

    async def sync_plan(
        self,
        plan: str,  # noqa: ARG002
        accept: bool | None,  # noqa: ARG002
        keys: tuple[str, ...],  # noqa: ARG002
        actor: str,  # noqa: ARG002
    ) -> PlanSynced:
        raise _elsewhere("plan files")

    async def back_up(self, target: Path, force: bool) -> BackedUp:  # noqa: ARG002
        raise _elsewhere("a backup")

    async def reconcile(self) -> Reconciled:
        raise _elsewhere("to reconcile the store")


def _elsewhere(what: str) -> Forbidden:
    return Forbidden(
        f"{what} is for the workspace of the folder that the server runs in; nothing was changed",
        "ask whoever runs the server",
    )
