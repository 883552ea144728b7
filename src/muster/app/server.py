"""A server over a store that it shares with others: the same engine, API and coordinator, without workers.

What one owner is sure of, because it alone has the store, is asked of the database here.  Nobody supervises it:
it ends with its error, and whatever has started it starts another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from muster.app.away_watch import StoreWatch, problem_of
from muster.app.channels import channels_of, plans_of
from muster.app.engine_settings import policy_of, retention_of
from muster.app.guest_owner import GuestOwner
from muster.app.key import joining, lacking_key, logged_heads, signer_of
from muster.app.parts import make_state_dir, readers_of
from muster.app.runtime import runtime_of
from muster.app.servers_run import ServersRun, note_last_end
from muster.app.shared_git import SharedGit, refuse_without
from muster.app.shared_store import refuse_own_store, store_url
from muster.config.keys import shared_settings
from muster.config.project import Project
from muster.config.settings import Config
from muster.config.values import without_password
from muster.engine.async_batch import AsyncBatcher
from muster.engine.audit import Auditor
from muster.engine.commands import Engine
from muster.engine.cycles import Cycles
from muster.engine.fence import present_term
from muster.engine.intents import Intents
from muster.engine.leader import Leader
from muster.engine.left_off import left_off_ms
from muster.engine.moved_boxes import all_left
from muster.engine.queries import Queries
from muster.engine.service import Service
from muster.engine.services.coordinator import coordinator
from muster.engine.services.mirror import Mirror
from muster.engine.services.notifier import Notifier
from muster.engine.services.reaper import Reaper, own_stall_ms
from muster.engine.services.reconciler import Reconciler
from muster.engine.services.recovery_watch import RecoveryWatch
from muster.engine.services.webhook_sender import WebhookSender
from muster.hosts.attempt_folders import LocalFolders
from muster.hosts.detached_call import detached_call
from muster.hosts.file_lock import Lock
from muster.hosts.local_host import LocalHost
from muster.hosts.plain_files import replace_plain
from muster.hosts.shared_vault import SharedVault
from muster.hosts.vault import given_keys
from muster.model.answers import AuditReport, BackedUp, BoxesTicked, Joined, KeyTaken, Led, Reconciled
from muster.model.artifacts import ArtifactPart, ArtifactReceived
from muster.model.commands import GiveUpKeys, TakeKey
from muster.model.errors import (
    BadConfig,
    BeingPublished,
    Forbidden,
    MusterError,
    StoreAway,
    StoreFault,
    Unavailable,
)
from muster.model.notify import ChannelPlan
from muster.model.numbers import ATTEMPT_ARTIFACTS_BYTES_MAX
from muster.model.plan_sync import PlanSynced
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.seals import Signer
from muster.model.secrets import VAULT_KEY
from muster.model.task import Attempt
from muster.model.webhooks import sealed_for
from muster.outbound.webhook_post import WebhookPost
from muster.ports.host import ProcessId
from muster.ports.runtime import Runtime
from muster.ports.vault import Vault
from muster.ports.works import Works
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.postgres.faults import TRIED_AGAIN
from muster.stores.postgres.files import ARTIFACT, FileKey, Part, PostgresFiles
from muster.stores.postgres.store import PostgresStore
from muster.web.backend import Backend

log = logging.getLogger(__name__)

LOOKING_S = 10.0
LOOK_S = 2.0
"""How often it looks whether another server has halted the store."""


class Server:
    """Everything that stands around it; use `async with`."""

    long_lived, unattended = True, False

    def __init__(self, project: Project, config: Config) -> None:
        self._project, self._config = project, config
        self._host = LocalHost()
        self._listening, self.login = "", True
        self.listens = asyncio.Event()
        self._policy = policy_of(config, NobodyHere.hostname)
        self.clock = SystemClock(self._host.boot_id)
        self.started_at_ms = self.clock.now().wall_ms
        self._keys = SharedVault(project.vault_key_file, given_keys())
        self.vault: Vault = self._keys
        self._id = secrets.token_hex(8)
        self._named = f"{self._host.hostname}[{os.getpid()}]"
        self._came_first: bool | None = None
        """No other server was up when this one asked for the first time; None: it has not."""
        self.first_event_id, self.left_off_ms = 0, 0
        self.first = False
        """No server has had this store before."""
        self.far_git: SharedGit | None = None
        self._reaper: Reaper | None = None
        self._services: Sequence[Service] = ()
        self._stack = contextlib.AsyncExitStack()
        self.signer: Signer
        self.store: PostgresStore
        self.runtime: Runtime
        self.batcher: AsyncBatcher
        self._led: Leader

    async def __aenter__(self) -> Self:
        """Raises OwnerUnavailable where another server runs in this folder, StoreAway where the database does not
        answer, StoreFault where it cannot be used, BadConfig where the key of what is sealed was not given."""
        project, config = self._project, self._config
        url = store_url(config.serve)
        make_state_dir(project)
        self._keys.check()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(Lock.take(project.owner_lock).release)
            refuse_own_store(project)
            self.store = await PostgresStore.open(url, project.store_witness)
            stack.push_async_callback(self.store.aclose)
            self._files = PostgresFiles(self.store)
            self.signer = signer_of(project)
            self._grants = self.signer.grants()
            self.runtime = runtime_of(config.runtime)
            stack.push_async_callback(self.runtime.aclose)
            engine = Engine(self.store, SystemChance(), self._policy, self._grants, self.vault)
            slow_ms = own_stall_ms(config.health.lease_s)
            self.batcher = AsyncBatcher(engine, self.clock.now, self.runtime.wakeups.publish, slow_ms=slow_ms)
            stack.push_async_callback(self.batcher.aclose)
            joined = await self.batcher.execute(joining(self.signer, self._keys))
            assert isinstance(joined, Joined)
            self.first, self._keys.sealing_by = joined.first, joined.vault_key
            await self._take_git()
            replace_plain(project.store_file, without_password(url).encode())
            self.first_event_id = await self.store.reads.last_event_id()
            self.left_off_ms = await left_off_ms(self.store.reads)
            self._led = Leader(
                self.clock,
                self.batcher,
                self._loops,
                server=self._id,
                named=self._named,
                place=f"{self._host.hostname}:{project.folder}",
                elapsed_ms=self.clock.elapsed_ms,
                absences=self.batcher.absences,
                settings=shared_settings(config),
                keys=self._keys.names,
                wrong_ms=lambda: self.store.clock.wrong_ms,
                hear=self._hear,
            )
            self.runtime.start()
            self._stack = stack.pop_all()
        return self

    async def _take_git(self) -> None:
        """Raises BadConfig for another repository than that of the other servers."""
        git = self._config.git
        if not (git.remote and git.worktrees):
            await refuse_without(self.store)
            return
        self.far_git = SharedGit(self._project, git.remote, self.store, self._files)
        try:
            await self.far_git.begin()
        except BadConfig:
            raise
        except Unavailable as error:
            log.warning("tasks wait for the repository: %s", error)

    async def _was_published(self, attempt: Attempt) -> bool:
        """As the reaper asks.  Raises BeingPublished while nobody can tell: nobody else gets the task."""
        intents = Intents(self.batcher, self.store.reads, self.clock, self.far_git)
        try:
            return await intents.decide(attempt) or False
        except Unavailable as error:
            raise BeingPublished(f"it waits to know what was published: {error}") from error

    async def __aexit__(self, *_: object) -> None:
        led = await self._led.give_up()
        if led is not None and not led.others_are_up:
            await note_last_end(self.backend(), self._named, led.last_term)
        await self._stack.aclose()

    def _hear(self, led: Led) -> None:
        self._keys.hear(led.vault_key, led.given_up)
        self.store.clock.servers = led.clocks
        if self._came_first is None:
            self._came_first = not led.others_are_up

    def backend(self) -> Backend:
        """That of the default workspace."""
        closing = asyncio.Event()

        @functools.cache
        def of(workspace_id: int) -> Backend:
            reads = self.store.reads.of(workspace_id)
            return Backend(
                workspace_id=workspace_id,
                of=of,
                engine=Intents(
                    self.batcher.of(workspace_id), reads, self.clock, self._branches(workspace_id)
                ),
                reads=reads,
                queries=Queries(reads, self.clock, self._policy, crew_up=True, left=all_left),
                wakeups=self.runtime.wakeups,
                owner=self if workspace_id == DEFAULT_WORKSPACE else GuestOwner(self),
                closing=closing,
                clock=self.store.clock,
                reader=readers_of(self._config),
            )

        return of(DEFAULT_WORKSPACE)

    def _branches(self, workspace_id: int) -> SharedGit | None:
        return self.far_git if workspace_id == DEFAULT_WORKSPACE else None

    async def lead(self) -> None:
        """Runs the coordinator's loops whenever no other server does."""
        await self._led.run()

    async def mind_store(self) -> None:
        """Notices that the store is halted, behind or away, tells people, and has its partitions made in time."""
        serve = self._config.serve
        watch = StoreWatch(
            f"{self._host.hostname}[{os.getpid()}]",
            serve.alert,
            serve.alert_after_s,
            post=self._post,
            elapsed_ms=self.clock.elapsed_ms,
            wall_ms=lambda: self.clock.now().wall_ms,
        )
        stalled, looking = "", None
        try:
            while True:
                # One that stands still ends no call: it is not to be waited for here.
                looking = looking or asyncio.create_task(self.store.look())
                await asyncio.wait({looking}, timeout=LOOKING_S)
                problem: MusterError | None = StoreAway("PostgreSQL does not answer", TRIED_AGAIN)
                if looking.done():
                    problem, looking = problem_of(looking) or self.store.unwritable, None
                if problem is not None and str(problem) != stalled:
                    log.warning("%s", problem)
                stalled = str(problem or "")
                await watch.note(problem)
                await asyncio.sleep(LOOK_S)
        finally:
            if looking is not None:
                looking.cancel()

    def _loops(self, term: int, led_since_ms: int) -> Sequence[Service]:
        reads, health = self.store.reads, self._config.health
        nobody = NobodyHere()
        self._reaper = Reaper(
            self.clock,
            reads,
            self.batcher,
            nobody,
            sweep=lambda: 0,
            term=term,
            lease_s=health.lease_s,
            remote_lease_s=health.remote_lease_s,
            interval_s=health.sweep_s,
            led_since_ms=led_since_ms,
            absences=self.batcher.absences,
            was_published=self._was_published,
        )
        log_turns = (self._config.log.bytes_max, self._config.log.keep)
        led = coordinator(
            self.clock,
            reads,
            self.batcher,
            term=term,
            reaper=self._reaper,
            signer=self.signer,
            elapsed_ms=self.clock.elapsed_ms,
            folders=LocalFolders(self._project.attempts_dir, self._project.log_file, turns=log_turns),
            retention=retention_of(self._config),
        )
        sender = WebhookSender(self.clock, reads, self.batcher, self._post, self._unseal, term=term)
        channels = channels_of(self._config, self._project.root, self.clock, reads, self.vault)
        base = self._config.notify.link
        notifier = Notifier(self.clock, reads, self.batcher, channels, base=base, term=term)
        first = bool(self._came_first)
        run = ServersRun(
            self.clock, self.backend(), server=self._id, named=self._named, first=first, term=term
        )
        self._came_first = False
        self._services = [*led, sender, notifier, run, *self._for_others(self._reaper)]
        return self._services

    def _for_others(self, reaper: Reaper) -> list[Service]:
        if self.runtime.state == "unused":
            return []
        reads, runtime = self.store.reads, self.runtime
        return [
            Mirror(self.clock, reads, runtime, reaper.silence_of),
            RecoveryWatch(self.clock, reads, runtime, reaper.run_once),
        ]

    def _unseal(self, sealed: str, workspace_id: int) -> str:
        return self.vault.unseal(sealed, sealed_for(workspace_id))

    @property
    def channels(self) -> tuple[ChannelPlan, ...]:
        return plans_of(self._config)

    @functools.cached_property
    def _post(self) -> WebhookPost:
        return WebhookPost(private=self._config.webhooks.private, in_thread=detached_call)

    @property
    def listening(self) -> str:
        return self._listening

    @listening.setter
    def listening(self, url: str) -> None:
        self._listening = url
        self.listens.set()

    @property
    def term(self) -> int:
        return self._led.term

    @property
    def leader(self) -> str:
        return "" if self._led.term else self._led.leader

    @property
    def differs(self) -> tuple[str, ...]:
        return self._led.differs

    @property
    def cycles(self) -> Mapping[str, Cycles]:
        return {service.name: service.cycles for service in self._services} if self.term else {}

    @property
    def absences(self) -> int:
        return self.batcher.absences()

    @property
    def seen(self) -> str:
        commit = self.store.last_commit
        return self._grants.seen(commit) if commit else ""

    async def compare(self, seen: str) -> None:
        if commit := self._grants.commit_of(seen):
            await self.store.compare(commit)

    @property
    def looked_at_ms(self) -> int | None:
        return self._reaper.looked_at_ms if self._reaper and self.term else None

    @property
    def works(self) -> Works | None:
        if self.far_git is None:
            return None
        from muster.app.shared_works import SharedWorks  # only for those who look at pages

        return SharedWorks(self.far_git, self._project)

    def halted(self) -> StoreFault | None:
        return self.store.fault

    async def change_key(self) -> None:
        """As web.backend.OwnerActions.  Raises Conflict while a server that is up does not have the new key."""
        names = self._keys.key_names()
        if names == (self._keys.sealing_by,):
            self._keys.take_new_key()
        # Else it was given one, or an earlier rotation was cut off: both go on from here.
        taken = await self.batcher.execute(TakeKey(server=self._id, keys=self._keys.key_names()))
        assert isinstance(taken, KeyTaken)
        if taken.lacking:
            raise lacking_key(self._project.vault_key_file, taken.lacking, given=self._keys.given)
        self._keys.sealing_by = taken.key

    async def give_up_keys(self) -> str:
        names = self._keys.key_names()
        old = tuple(name for name in names if name != self._keys.sealing_by)
        await self.batcher.execute(GiveUpKeys(keys=old))
        self._keys.hear(self._keys.sealing_by, old)
        if self._keys.given and old:
            return (
                f"take all keys but the first out of {VAULT_KEY} of all servers: they open nothing any more"
            )
        return ""

    async def judge_hook(self, url: str) -> str:
        return await self._post.judge(url)

    def lineage(self, pid: int) -> list[tuple[ProcessId, str]]:
        return self._host.lineage(pid)

    async def back_up(self, target: Path, force: bool) -> BackedUp:
        """Raises StoreFault: a backup is to be whole."""
        if (fault := self.halted()) is not None:
            raise fault
        return await self.store.back_up(target, force=force)

    def unwritable(self) -> MusterError | None:
        """Why nothing can be written now: that, a full disk, or a database that does not answer or is held up."""
        away = self._led.away
        return self.store.unwritable or (StoreAway(away, TRIED_AGAIN) if away else None)

    async def artifact(self, task_id: int, epoch: int, name: str) -> bytes | None:
        return await self._files.read(FileKey(task_id, epoch, ARTIFACT, name))

    async def artifact_bytes(self, task_id: int, epoch: int, name: str) -> int | None:
        return await self._files.size(FileKey(task_id, epoch, ARTIFACT, name))

    async def take_artifact(
        self, task_id: int, epoch: int, part: ArtifactPart, black: Callable[[bytes], bytes]
    ) -> ArtifactReceived:
        taken = await self._files.take(
            FileKey(task_id, epoch, ARTIFACT, part.name),
            Part(part.sha256, part.size, part.offset, part.data),
            bytes_max=ATTEMPT_ARTIFACTS_BYTES_MAX,
            keep=black,
        )
        return ArtifactReceived(received=taken.received, whole=taken.whole)

    async def verify_audit(self, workspace_id: int) -> AuditReport:
        heads = functools.partial(logged_heads, self._project)
        return await Auditor(self.store.reads, self.signer, heads, workspace_id).verify()

    async def reconcile(self) -> Reconciled:
        if self._reaper is not None and self.term:
            return await Reconciler(self._reaper, self.store.reads, self.batcher, term=self.term).reconcile()
        term = await present_term(self.store.reads)
        return await Reconciler(None, self.store.reads, self.batcher, term=term).reconcile()

    async def free_dead(self) -> None:
        """Whoever leads looks all the time, and knows no worker to be of its own host."""
        if not self.term:
            self.runtime.suspect(DEFAULT_WORKSPACE)

    async def boxes(self, plan: str, *, rewrite: bool = False) -> BoxesTicked:
        if rewrite:
            raise Forbidden(
                f"no server that shares its store has a plan's file; no box of {plan} was ticked",
                "muster plan tick FILE.md ticks those of your own copy",
            )
        return BoxesTicked(plan=plan, waits="")

    async def standing(self, found: PlanSynced) -> PlanSynced:
        return found

    async def sync_plan(
        self,
        plan: str,
        accept: bool | None,  # noqa: ARG002
        keys: tuple[str, ...],  # noqa: ARG002
        actor: str,  # noqa: ARG002
    ) -> PlanSynced:
        raise Forbidden(
            f"no server that shares its store follows a plan's file; {plan} was not changed",
            "muster plan add FILE --update sends what has changed in it, muster plan tick FILE ticks its boxes",
        )


class NobodyHere:
    """As ports.host.Host: workers are on other hosts, or as good as that, and only their leases tell of them."""

    hostname = "(database)"
    """No host is called so: every worker is on another one."""
    boot_id = ""

    def identify(self, pid: int) -> ProcessId | None:  # noqa: ARG002
        return None

    def alive(self, process: ProcessId) -> bool:  # noqa: ARG002
        return True

    def kill_marked(self, marks: Iterable[str]) -> int:  # noqa: ARG002
        return 0
