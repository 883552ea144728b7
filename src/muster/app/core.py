"""What an owner holds: the store, its engine, and the coordinator's services.

Without the web server, so that a command that is an owner of its own does not load one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from muster.app.branches import LocalBranches
from muster.app.channels import channels_of, plans_of
from muster.app.engine_settings import policy_of, retention_of
from muster.app.guest_owner import GuestOwner
from muster.app.key import logged_heads, open_store, signer_of, vault_of
from muster.app.parts import local_trees, make_state_dir, readers_of, repository_of
from muster.app.plan_reader import PlanReader
from muster.app.runtime import runtime_of
from muster.config.identity import copied_error, look, settle
from muster.config.project import Project
from muster.config.settings import PROJECT_WORKDIR, Config, RuntimeSettings
from muster.engine.audit import Auditor
from muster.engine.batch import Batcher
from muster.engine.commands import Engine
from muster.engine.cycles import Cycles
from muster.engine.incarnation import PROJECT
from muster.engine.intents import Intents
from muster.engine.left_off import left_off_ms
from muster.engine.moved_boxes import OtherFiles, all_left
from muster.engine.queries import Queries
from muster.engine.service import Service
from muster.engine.services.coordinator import coordinator
from muster.engine.services.mirror import Mirror
from muster.engine.services.notifier import Notifier
from muster.engine.services.plan_looks import FileRules
from muster.engine.services.plan_standing import standing, synced
from muster.engine.services.plan_syncer import PlanSyncer
from muster.engine.services.reaper import Reaper, own_stall_ms
from muster.engine.services.reconciler import Reconciler
from muster.engine.services.recovery_watch import RecoveryWatch
from muster.engine.services.ticker import Ticker
from muster.engine.services.webhook_sender import WebhookSender
from muster.engine.services.worktree_cleaner import WorktreeCleaner
from muster.hosts.attempt_folders import (
    LocalFolders,
    attempt_folder,
    kept_artifact,
    kept_bytes,
    take_artifact,
)
from muster.hosts.detached_call import detached_call
from muster.hosts.file_lock import Lock, holder
from muster.hosts.folder_watch import FolderWatch
from muster.hosts.full_disk import NO_SPACE, full_disk
from muster.hosts.given_file import sweep
from muster.hosts.local_host import LocalHost
from muster.hosts.process_tree import kill_recorded
from muster.model.answers import AuditReport, BackedUp, BoxesTicked, Reconciled, TookOver
from muster.model.artifacts import ArtifactPart, ArtifactReceived
from muster.model.commands import NewBoot, SetCrew
from muster.model.errors import (
    MusterError,
    ProjectCopied,
    StoreFault,
    StoreFull,
    Unavailable,
)
from muster.model.notify import ChannelPlan
from muster.model.plan_sync import PlanSynced
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import CrewStatus
from muster.model.webhooks import sealed_for
from muster.plans.files import LocalPlanFiles
from muster.ports.far_git import FarGit
from muster.ports.host import ProcessId
from muster.ports.runtime import PLAN_FILES, READY
from muster.ports.vault import Vault
from muster.ports.works import Works
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.sqlite.halt import Cause, Halt
from muster.web.backend import Backend
from muster.worker.git import GitRefused, Repository

if TYPE_CHECKING:
    from muster.outbound.webhook_post import WebhookPost

log = logging.getLogger(__name__)

FIRST_LOOK_S = 2.0
"""How long whoever claims waits for a look at plans' files at most: a disk may be away."""


class Owner:
    """Everything that stands around one open store; use `async with`."""

    def __init__(
        self, project: Project, config: Config, *, long_lived: bool = True, clock: SystemClock | None = None
    ) -> None:
        """`long_lived`: this is no owner of one command only.  A `clock` instead of the system's is for tests."""
        self.long_lived = long_lived
        self.listening, self.login = "", True
        self.term, self.leader = 0, ""
        self.differs: tuple[str, ...] = ()
        self._project = project
        self._config = config
        self._host = LocalHost()
        self.refused: GitRefused | None = None
        """Why git gives no repository: an owner for one command does without, but for what needs one."""
        self._repository = self._found()
        agents = config.agents.values()
        shared = self._repository is None and self.refused is None
        self._in_reach = shared or any(a.workdir == PROJECT_WORKDIR for a in agents)
        writers = config.writers if shared else frozenset()
        self._policy = policy_of(config, self._host.hostname, writers=writers)
        self.clock = clock or SystemClock(self._host.boot_id)
        self.started_at_ms = self.clock.now().wall_ms
        self._keys = vault_of(project)
        self.vault: Vault = self._keys
        self._stack = contextlib.ExitStack()
        self._reaper: Reaper | None = None
        self._reconciler: Reconciler | None = None
        self._led_since_ms: int | None = None
        self._services: list[Service] = []
        self.first_event_id, self.left_off_ms = 0, 0

    def _found(self) -> Repository | None:
        """Raises GitRefused, where agents would run."""
        try:
            return repository_of(self._config, self._project)
        except GitRefused as error:
            if self.long_lived:
                raise
            self.refused = error
            return None

    def _needed(self) -> Repository | None:
        """For what cannot do without one.  Raises GitRefused."""
        if self.refused is not None:
            raise self.refused
        return self._repository

    async def __aenter__(self) -> Self:
        """Raises OwnerUnavailable where another owner holds the store, StoreFault where it cannot be used,
        BadConfig where the key of what is sealed was not given."""
        make_state_dir(self._project)
        with contextlib.ExitStack() as stack:
            stack.callback(Lock.take(self._project.owner_lock).release)
            if self.long_lived:  # one command may need no key
                self._keys.check()
            standing = look(self._project)
            self._host = LocalHost(standing.id if standing.copied else settle(self._project))
            self.store = open_store(self._project)
            stack.callback(self.store.close)
            self.first_event_id = await self.store.reads.last_event_id()
            self.left_off_ms = await left_off_ms(self.store.reads)
            made_by = await self.store.reads.store_meta(PROJECT) or self._host.project
            if standing.copied or made_by != self._host.project:
                error = copied_error(self._project, standing)
                self.store.halted = Halt(Cause.FOREIGN, error.message)
            self.signer = signer_of(self._project)
            # A command that is its own owner ends before anybody would hear it.
            self.runtime = runtime_of(self._config.runtime if self.long_lived else RuntimeSettings())
            self.wakeups = self.runtime.wakeups
            self._core = Engine(self.store, SystemChance(), self._policy, self.signer.grants(), self.vault)
            self.batcher = Batcher(
                self._core,
                self.clock.now,
                self.wakeups.publish,
                slow_ms=own_stall_ms(self._config.health.lease_s),
            )
            stack.callback(self.batcher.close)
            self._reader = PlanReader(self._project, self._config, in_reach=self._in_reach)
            # Plans with files are those of the folder itself.
            self._reads, own = self.store.reads.of(DEFAULT_WORKSPACE), self.batcher.of(DEFAULT_WORKSPACE)
            self._engine = OtherFiles(own, self._reader.titles, in_thread=detached_call)
            self._branches = None if self._repository is None else LocalBranches(self._repository)
            self.files = LocalPlanFiles(folder=self._project.root)
            self.ticker = Ticker(
                self.clock,
                self._reads,
                own,
                self.files,
                in_thread=detached_call,
            )
            self.syncer = self._make_syncer()
            self._watch = FolderWatch(lambda: self.wakeups.publish([PLAN_FILES]))
            stack.callback(self._watch.end)
            self.runtime.start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runtime.aclose()
        await asyncio.to_thread(self._stack.close)

    def backend(self) -> Backend:
        """That of the default workspace."""
        closing = asyncio.Event()

        @functools.cache
        def of(workspace_id: int) -> Backend:
            local = workspace_id == DEFAULT_WORKSPACE
            reads = self.store.reads.of(workspace_id)
            engine = self._engine if local else self.batcher.of(workspace_id)
            left = self._engine.left if local else all_left
            return Backend(
                workspace_id=workspace_id,
                of=of,
                engine=Intents(engine, reads, self.clock, self._branches),
                reads=reads,
                queries=Queries(reads, self.clock, self._policy, crew_up=self.long_lived, left=left),
                wakeups=self.wakeups,
                owner=self if local else GuestOwner(self),
                closing=closing,
                reader=readers_of(self._config),
            )

        return of(DEFAULT_WORKSPACE)

    def lineage(self, pid: int) -> list[tuple[ProcessId, str]]:
        return self._host.lineage(pid)

    @property
    def cycles(self) -> Mapping[str, Cycles]:
        return {service.name: service.cycles for service in self._services}

    @property
    def absences(self) -> int:
        return self.batcher.absences()

    @property
    def seen(self) -> str:
        """Its witness knows what it has committed."""
        return ""

    async def compare(self, seen: str) -> None:
        """Nothing: no other server could have told it."""

    @property
    def looked_at_ms(self) -> int | None:
        return self._reaper.looked_at_ms if self._reaper else None

    async def verify_audit(self, workspace_id: int) -> AuditReport:
        heads = functools.partial(logged_heads, self._project)
        auditor = Auditor(self.store.reads, self.signer, heads, workspace_id)
        return await auditor.verify()

    @functools.cached_property
    def far_git(self) -> FarGit | None:
        """Raises GitRefused."""
        if (repository := self._needed()) is None:
            return None
        from muster.app.far_git import LocalGit  # only for workers of other hosts

        return LocalGit(repository, self._project)

    @functools.cached_property
    def works(self) -> Works | None:
        """Raises GitRefused."""
        if (repository := self._needed()) is None:
            return None
        from muster.app.works import LocalWorks  # only for those who look at pages

        works = LocalWorks(repository, self._project)
        self._stack.callback(works.close)
        return works

    async def change_key(self) -> None:
        self._keys.take_new_key()

    async def give_up_keys(self) -> str:
        return self._keys.forget_old_keys()

    def halted(self) -> StoreFault | None:
        """Why nothing is written any more."""
        return self.store.fault

    @property
    def unattended(self) -> bool:
        return not self.long_lived and holder(self._project.supervisor_lock) is None

    def unwritable(self) -> MusterError | None:
        """Why nothing can be written now: that, or a full disk, until there is space."""
        full = full_disk(self._project.state_dir)
        return self.halted() or (StoreFull(full, "df -h; work goes on by itself") if full else None)

    async def artifact(self, task_id: int, epoch: int, name: str) -> bytes | None:
        folder = attempt_folder(self._project.attempts_dir, task_id, epoch)
        return await asyncio.to_thread(kept_artifact, folder, name)

    async def artifact_bytes(self, task_id: int, epoch: int, name: str) -> int | None:
        return kept_bytes(attempt_folder(self._project.attempts_dir, task_id, epoch), name)

    async def take_artifact(
        self, task_id: int, epoch: int, part: ArtifactPart, black: Callable[[bytes], bytes]
    ) -> ArtifactReceived:
        root = self._project.attempts_dir
        try:
            return await asyncio.to_thread(take_artifact, root, task_id, epoch, part, black)
        except OSError as error:
            fault = StoreFull if error.errno in NO_SPACE else Unavailable
            raise fault(
                f"{part.name} cannot be kept at the server: {error}; nothing was noted", ""
            ) from error

    async def back_up(self, target: Path, force: bool) -> BackedUp:
        """Everybody else is answered meanwhile.  Raises StoreFault: a backup is to be whole."""
        if (fault := self.halted()) is not None and not isinstance(fault, ProjectCopied):
            raise fault
        return await self.store.back_up(target, force=force)

    async def tick_boxes(self, plan: str | None = None) -> str:
        """Now and not at the ticker's next look, of this plan or of all; why some boxes wait, if any does."""
        fault = self.halted()
        return fault.message if fault is not None else await self.ticker.catch_up(plan)

    async def sync_plan(
        self, plan: str, accept: bool | None, keys: tuple[str, ...], actor: str
    ) -> PlanSynced:
        """As PlanSyncer.sync and decide; StoreFault where nothing is written any more."""
        if (fault := self.halted()) is not None:
            raise fault
        if accept is None:
            return await synced(plan, self.syncer, self.ticker)
        return await self.syncer.decide(plan, accept, keys, actor)

    async def standing(self, found: PlanSynced) -> PlanSynced:
        return await standing(found, self.syncer, self.ticker)

    async def boxes(self, plan: str, *, rewrite: bool = False) -> BoxesTicked:
        """Ticks what is due, or if `rewrite` all boxes of what is done; which boxes differ all the same."""
        if rewrite and self.halted() is None:
            waits = await self.syncer.rewrite(plan)
        else:
            waits = await self.tick_boxes(plan)
        return BoxesTicked(plan=plan, waits=waits, differ=await self.syncer.differing(plan))

    async def take_over(self) -> None:
        """Adopts the running workers under a new term."""
        self._led_since_ms = self.clock.now().mono_ms
        took = await self.batcher.execute(NewBoot(project=self._host.project))
        assert isinstance(took, TookOver)
        killed = kill_recorded(self._project.attempts_dir, self._host)
        sweep(self._project.attempts_dir)
        self.term = took.term
        log.info("term %d: adopted %d attempts, killed %d leftovers", took.term, took.adopted, killed)

    def _make_syncer(self) -> PlanSyncer:
        reader, plan = self._reader, self._config.plan
        return PlanSyncer(
            self.clock,
            self._reads,
            self._engine,
            self.files,
            self.ticker,
            policy=self._policy,
            rules=FileRules(debounce_s=plan.debounce_s, settle_s=plan.settle_s, in_reach=self._in_reach),
            wanted=reader.wanted,
            left=self._engine.left,
            looked=self._open_claims,
            head_of=reader.head_of,
            follow=lambda sources: self._watch.follow(reader.paths(sources)),
            wakeups=self.wakeups,
            in_thread=detached_call,
        )

    def _make_reaper(self) -> Reaper:
        health = self._config.health
        reaper = Reaper(
            self.clock,
            self.store.reads,
            self.batcher,
            self._host,
            sweep=lambda: kill_recorded(self._project.attempts_dir, self._host),
            term=self.term,
            lease_s=health.lease_s,
            remote_lease_s=health.remote_lease_s,
            interval_s=health.sweep_s,
            led_since_ms=self._led_since_ms,
            detached_call=asyncio.to_thread,
            absences=self.batcher.absences,
            was_published=Intents(self.batcher, self.store.reads, self.clock, self._branches).settle,
        )
        self._reaper = reaper
        self._reconciler = Reconciler(reaper, self.store.reads, self.batcher, term=self.term)
        return reaper

    async def stop_crews(self) -> None:
        for workspace in await self.store.reads.workspaces():
            await self.batcher.of(workspace.id).execute(SetCrew(status=CrewStatus.STOPPED))

    async def free_dead(self) -> None:
        if self._reaper is None:
            self.runtime.suspect(DEFAULT_WORKSPACE)  # whoever leads looks
            return
        with contextlib.suppress(MusterError):  # the next look says what is wrong
            await self._reaper.run_once()

    async def reconcile(self) -> Reconciled:
        """Also for an owner of one command: it leads then, so it takes a term for that."""
        if self._reconciler is None:
            took = await self.batcher.execute(NewBoot(long_lived=False))
            assert isinstance(took, TookOver)
            self.term = took.term
            self._make_reaper()
        assert self._reconciler is not None
        return await self._reconciler.reconcile()

    def _open_claims(self) -> None:
        if self._core.claims.closed_ms is not None:
            self._core.claims.closed_ms = None
            self.wakeups.publish([READY])

    async def services(self) -> list[Service]:
        """Until plans and their files were compared, nothing is given out: what waits may be otherwise by now."""
        if await self._reads.plan_sources():
            self._core.claims.closed_ms = int(FIRST_LOOK_S * 1000)
        led = coordinator(
            self.clock,
            self.store.reads,
            self.batcher,
            term=self.term,
            reaper=self._make_reaper(),
            signer=self.signer,
            elapsed_ms=self.clock.elapsed_ms,
            folders=LocalFolders(
                self._project.attempts_dir,
                self._project.log_file,
                turns=(self._config.log.bytes_max, self._config.log.keep),
            ),
            retention=retention_of(self._config),
        )
        own = [self.ticker, self._sender(), self._notifier(), self.syncer, *self._clearers()]
        self._services = [*led, *own, *self._for_others()]
        return self._services

    def _for_others(self) -> list[Service]:
        if self.runtime.state == "unused" or self._reaper is None:
            return []
        reads, runtime, reaper = self.store.reads, self.runtime, self._reaper
        return [
            Mirror(self.clock, reads, runtime, reaper.silence_of),
            RecoveryWatch(self.clock, reads, runtime, reaper.run_once),
        ]

    def _sender(self) -> WebhookSender:
        def unseal(sealed: str, workspace_id: int) -> str:
            return self.vault.unseal(sealed, sealed_for(workspace_id))

        post = self._post
        return WebhookSender(self.clock, self.store.reads, self.batcher, post, unseal, term=self.term)

    def _notifier(self) -> Notifier:
        reads, base = self.store.reads, self._config.notify.link
        channels = channels_of(self._config, self._project.root, self.clock, reads, self.vault)
        return Notifier(self.clock, reads, self.batcher, channels, base=base, term=self.term)

    @property
    def channels(self) -> tuple[ChannelPlan, ...]:
        return plans_of(self._config)

    @functools.cached_property
    def _post(self) -> WebhookPost:
        # A command that is its own owner tells nobody, and needs no client.
        from muster.outbound.webhook_post import WebhookPost

        return WebhookPost(private=self._config.webhooks.private, in_thread=detached_call)

    async def judge_hook(self, url: str) -> str:
        return await self._post.judge(url)

    def _clearers(self) -> list[Service]:
        if self._repository is None:
            return []
        trees = local_trees(self._repository, self._project)
        kept_s, keep_done = self._config.retention.trees_s, self._config.git.keep
        return [WorktreeCleaner(self.clock, self.store.reads, trees, kept_s=kept_s, keep_done=keep_done)]
