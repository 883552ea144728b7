"""A web server's backend on a real store and engine, for tests without the coordinator's loops."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muster.agents.transcript import Reader
from muster.app.plan_reader import titles_of
from muster.engine.audit import Auditor
from muster.engine.batch import Batcher
from muster.engine.cycles import Cycles
from muster.engine.moved_boxes import OtherFiles
from muster.engine.policy import Policy
from muster.engine.queries import Queries
from muster.hosts.attempt_folders import attempt_folder, kept_artifact, kept_bytes, take_artifact
from muster.hosts.local_host import LocalHost
from muster.hosts.vault import KeyVault
from muster.model.answers import AuditReport, BackedUp, BoxesTicked, Reconciled
from muster.model.artifacts import ArtifactPart, ArtifactReceived
from muster.model.errors import MusterError, StoreFault
from muster.model.notify import ChannelPlan
from muster.model.plan_sync import PlanSynced
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.seals import Signer
from muster.outbound.webhook_post import WebhookPost
from muster.ports.host import ProcessId
from muster.ports.works import Works
from muster.runtimes.local import LocalRuntime, LocalWakeups, SystemClock
from muster.stores.sqlite.copies import back_up
from muster.stores.sqlite.store import SqliteStore
from muster.web.backend import Backend

SIGNER = Signer(b"k" * 32)


class ServedOwner:
    """What an owner does besides commands and queries."""

    term = 1
    leader = ""
    long_lived = True
    differs = ()
    looked_at_ms = None
    first_event_id, left_off_ms, unattended = 0, 0, False
    far_git = None
    works: Works | None = None
    reader: Callable[[str, str], Reader] = staticmethod(lambda *_: Reader())
    absences = 0
    seen = ""
    listening = ""
    login = True
    channels: tuple[ChannelPlan, ...] = ()

    def __init__(self, store: SqliteStore, path: Path) -> None:
        self.started_at_ms = int(time.time() * 1000)
        self.cycles: dict[str, Cycles] = {}
        self._store = store
        self.vault = KeyVault(path.with_name("vault.key"))
        self._path = path
        self.backups = 0
        """How many it has made."""
        self.ticked: list[str] = []
        self.waits = ""

    @functools.cached_property
    def runtime(self) -> LocalRuntime:
        return LocalRuntime()

    def lineage(self, pid: int) -> list[tuple[ProcessId, str]]:
        return LocalHost().lineage(pid)

    async def change_key(self) -> None:
        self.vault.take_new_key()

    async def give_up_keys(self) -> str:
        return self.vault.forget_old_keys()

    async def judge_hook(self, url: str) -> str:
        return await WebhookPost(private=True, in_thread=asyncio.to_thread).judge(url)

    async def compare(self, seen: str) -> None:
        """Nothing."""

    def halted(self) -> StoreFault | None:
        return None

    def unwritable(self) -> MusterError | None:
        return self.halted()

    async def back_up(self, target: Path, force: bool) -> BackedUp:
        report = await asyncio.to_thread(back_up, self._path, target, force=force)
        self.backups += 1
        return BackedUp(path=str(target), bytes=report.bytes, tasks=report.tasks, schema=report.schema)

    async def artifact(self, task_id: int, epoch: int, name: str) -> bytes | None:
        return kept_artifact(attempt_folder(self._path.parent / "attempts", task_id, epoch), name)

    async def artifact_bytes(self, task_id: int, epoch: int, name: str) -> int | None:
        return kept_bytes(attempt_folder(self._path.parent / "attempts", task_id, epoch), name)

    async def take_artifact(
        self, task_id: int, epoch: int, part: ArtifactPart, black: Callable[[bytes], bytes]
    ) -> ArtifactReceived:
        return take_artifact(self._path.parent / "attempts", task_id, epoch, part, black)

    async def verify_audit(self, workspace_id: int) -> AuditReport:
        return await Auditor(self._store.reads, SIGNER, list, workspace_id).verify()

    async def free_dead(self) -> None: ...

    async def reconcile(self) -> Reconciled:
        return Reconciled()

    async def standing(self, found: PlanSynced) -> PlanSynced:
        return found

    async def boxes(self, plan: str, *, rewrite: bool = False) -> BoxesTicked:
        self.ticked.append(plan)
        return BoxesTicked(plan=plan, waits=self.waits)


def backend(
    owner: Any, store: SqliteStore, batcher: Batcher, clock: SystemClock, wakeups: LocalWakeups
) -> Backend:
    """That of the default workspace."""

    @functools.cache
    def of(workspace_id: int) -> Backend:
        files = OtherFiles(batcher.of(workspace_id), lambda source: titles_of(Path(source)))
        reads = store.reads.of(workspace_id)
        return Backend(
            workspace_id=workspace_id,
            of=of,
            engine=files,
            reads=reads,
            queries=Queries(reads, clock, Policy(), left=files.left),
            wakeups=wakeups,
            owner=owner,
            reader=owner.reader,
        )

    return of(DEFAULT_WORKSPACE)
