"""One attempt, from its claim to its report."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from muster.hosts.given_file import given_file, handing_over
from muster.model import commands as c
from muster.model.answers import Claimed, ClaimedJob, Moved, SecretsGiven
from muster.model.errors import AgentUnfit, BadInput, Conflict, MusterError, NotFound, Unavailable
from muster.model.input_secrets import whole
from muster.model.marks import WORKER, attempt_mark
from muster.model.place import PlanPlace
from muster.model.pools import CLOSING
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.model.wording import LEFT_OUT
from muster.ports.agent import Agent, AttemptFolder, Failed, Launch, RunningProcess
from muster.ports.crew import Crew
from muster.worker.checks import said_or
from muster.worker.commits import Work
from muster.worker.context import WorkerContext
from muster.worker.ends import End, no_session
from muster.worker.handing_on import HandingOn
from muster.worker.holder import AWAY, RECONNECT_CAP_S, RECONNECT_FIRST_S
from muster.worker.keeping import Keeping
from muster.worker.notice import NoticeFile
from muster.worker.orders import Order, Orders
from muster.worker.output_reader import READ_S, OutputReader, wait_and_read
from muster.worker.port_ranges import PORTS, port_range
from muster.worker.publishing import Over
from muster.worker.reviewing import Reviewer
from muster.worker.shipping import Shipping
from muster.worker.speaking import Speaker
from muster.worker.tail import cut_output
from muster.worker.tree_looks import TreeLooks
from muster.worker.watchdog import Watchdog
from muster.worker.words import Words
from muster.worker.workdir import Workdir, workdir_of
from muster.worker.worktree import WorkMissing

log = logging.getLogger(__name__)

T = TypeVar("T")
GONE_TRY_S = 1.0
"""How long a worker tries to say that an ended attempt's processes are gone; then its lease says it."""
STOP_GRACE_S = 5.0
"""Between the rungs of the stop ladder (DESIGN.md part 6)."""
_NO_ANSWER = {*CLOSING, ErrorKind.LOST}
"""Ends that say nothing of whether the provider answers again."""


class Runner:
    """Runs in a thread of its own; `orders` may come from others, `then` is what is claimed at its end."""

    def __init__(
        self,
        crew: Crew,
        around: WorkerContext,
        job: ClaimedJob,
        orders: Orders,
        *,
        then: Callable[[], c.Claim | None] = lambda: None,
    ) -> None:
        self._crew = crew
        self._around = around
        self._job = job
        self._orders = orders
        self._words = Words(job)
        self._place = PlanPlace()
        self._then = then
        self._following: Claimed | None = None
        self._trees = around.trees
        self._folder = AttemptFolder(path=around.attempts_dir / str(job.task_id) / str(job.epoch))
        self._input_file = given_file(around.attempts_dir, job.task_id, job.epoch)
        self._notice = NoticeFile(self._folder.notice)
        self._begun = False
        """The owner may know of a start, so it may wait for the process to be gone."""
        self._settled = False
        """The owner has taken our word on how the attempt ended."""
        self._suspected = ""
        self._usage: Usage | None = None
        self._looks: TreeLooks | None = None
        self._ref = f"{job.plan}/{job.key}"
        self._shipping = Shipping(job, self._folder, lambda chunk: crew.report(self._proved(chunk)))

    def run(self) -> Claimed | None:
        """What was claimed at its end.  Never raises for what the agent, the task or the owner does."""
        agent = self._around.agents.get(self._job.agent)
        try:
            if self._job.publishes is not None:
                self._publish_only()
            elif agent is None:
                raise AgentUnfit(f"this worker has no agent {self._job.agent}", "muster doctor")
            else:
                self._attempt(agent)
        except AgentUnfit as error:
            self._settle(self._words.unfit(error))
        except (BadInput, WorkMissing) as error:
            kind = ErrorKind.INVALID if isinstance(error, BadInput) else ErrorKind.CRASH
            self._settle(self._words.failure(kind, f"{error.message}; {error.hint}"))
        except (Conflict, NotFound, Over) as error:
            log.info("attempt %s#%s is over: %s", self._job.task_id, self._job.epoch, error)
        except (Unavailable, OSError) as error:
            self._settle(self._in_the_way(error))
        finally:
            self._around.given.let_go(self._job)
        if self._begun and not self._settled:
            self._say_gone()
        return self._following

    def _in_the_way(self, error: Unavailable | OSError) -> c.Finish:
        """What is said where this host does not allow what has to be done."""
        hint = getattr(error, "hint", "")
        if no_room := self._around.room.refused(error, begun=self._begun):
            return self._words.no_room(no_room, hint, begun=self._begun)
        # It spends a retry: what the host does not allow now must not be tried at full speed for ever.
        message = f"this worker's host is in the way: {error}{hint and f'; {hint}'}"
        return self._words.failure(ErrorKind.CRASH, message, done=True)

    def _attempt(self, agent: Agent) -> None:
        self._folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with port_range() as port:
            self._work(agent, self._workdir(), port)

    def _publish_only(self) -> None:
        """The agent of an earlier attempt is done: no other one runs."""
        workdir = self._workdir()
        start = c.Start(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            token_hash=hashlib.sha256(secrets.token_bytes(32)).hexdigest(),
        )
        self._begun = True
        if self._report(start):
            with contextlib.suppress(AgentUnfit, BadInput):  # its agent's, which its commits may tell
                self._given(self._job.agent, inputs=True)
            self._folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._conclude(workdir, self._words.complete())

    def _workdir(self) -> Workdir:
        around, job = self._around, self._job

        def look() -> bool:
            self._place = self._crew.place(job.task_id)
            return True

        if around.upstream is not None:
            self._trees = around.upstream.trees(self._crew, job, self._ask)
        trees = self._trees
        if job.agent in around.places or (trees is not None and trees.protects):
            self._patiently(look)
        workdir = workdir_of(job, around.root, trees, self._place.plan_files)
        workdir.begin()
        return workdir

    def _ask(self, call: Callable[[], T]) -> T:
        """However long the owner is away.  Raises Over once the attempt is."""
        found: list[T] = []

        def once() -> bool:
            found.append(call())
            return True

        if not self._patiently(once):
            raise Over(f"attempt {self._job.epoch} of {self._ref} is over")
        return found[0]

    def _work(self, agent: Agent, workdir: Workdir, port: int | None) -> None:
        # With the proof of the grant: a store that was put back knows neither this attempt nor its token.
        token = f"{secrets.token_urlsafe(32)}.{self._job.proof}"
        place = self._place.told(self._around.places.get(self._job.agent, ""))
        job = self._words.job(workdir.told, workdir.diff() if self._job.epoch > 1 else "", place)
        env = self._environment(token, workdir, port)
        given = self._given(self._job.agent, inputs=True)
        if self._job.has_secrets:
            job = replace(job, input_file=self._input_file)
        launch = agent.launch(job, self._folder, cwd=workdir.cwd, extra_env=env)
        stream = agent.stream(job, launch)
        # Started before the process is: a worker that dies in between has lost an attempt that may have run.
        start = c.Start(
            task_id=self._job.task_id,
            epoch=self._job.epoch,
            token_hash=hashlib.sha256(token.encode()).hexdigest(),
            session_key=launch.session_key,
            usage=Usage(estimated=True) if stream.costs else None,
            session_usage=stream.session_usage,
        )
        self._begun = True
        if not self._report(start):
            return
        if place := workdir.place:
            self._report(self._words.work(place))
        self._looks = workdir.looks()
        if launch.begins:
            self._tell(launch.begins)
        if not self._set_up(workdir, launch):
            return
        output_reader = OutputReader(self._job, self._folder.stdout, stream, launch.session_key)
        self._shipping.stdout.skip = launch.unlogged
        launch = replace(launch, env={**launch.env, **given.values})
        with self._handing_over(given.inputs):
            end = self._carry_out(launch, output_reader)
        if end.abandoned:
            self._keeping(workdir).keep_if_room()
            return
        workdir.decide(output_reader.decided)
        ended = end.exit
        word = self._word_of(end)
        if word is None:
            outcome = stream.outcome(ended, self._folder)
            if isinstance(outcome, Failed) and no_session(self._job, launch, stream, outcome):
                self._account(output_reader, forget=True)
            if self._job.tries and (not isinstance(outcome, Failed) or outcome.kind not in _NO_ANSWER):
                self._report(c.Provider(task_id=self._job.task_id, epoch=self._job.epoch))
            word = self._words.on(outcome, ended, self._folder.path, workdir.cwd)
        self._conclude(workdir, word)

    def _given(self, agent: str, *, inputs: bool = False) -> SecretsGiven:
        """Its secrets, and with `inputs` those of the task.

        Raises AgentUnfit where it cannot run without one that is missing, BadInput where they cannot be opened.
        """
        given = self._around.given.ask(self._crew, self._job, agent, self._patiently, inputs=inputs)
        self._shipping.black_out(self._around.given.blackout)
        # Workers of earlier attempts may have been killed before they had.
        self._around.given.black_out(self._folder.path.parent)
        return given

    def _handing_over(self, inputs: Mapping[str, str]) -> contextlib.AbstractContextManager[None]:
        """The input context with its secrets, for as long as the agent's process runs: nobody else reads it."""
        if not self._job.has_secrets:
            return contextlib.nullcontext()
        context = whole(self._job.input_context, inputs)
        return handing_over(self._input_file, msgspec.json.encode(context))

    def _set_up(self, workdir: Workdir, launch: Launch) -> bool:
        """Makes the place ready to work in.  False where the attempt is over."""
        command = workdir.setup()
        if not command:
            return True
        end = self._carry_out(replace(launch, argv=("sh", "-c", command), stdin=None, talk=None))
        if end.abandoned:
            return False
        word = self._word_of(end)
        if word is None and end.code == 0:
            workdir.was_set_up()
            return True
        message = f"git.setup ended with exit code {end.exit_code}: {command}"
        self._settle(word or self._words.failure(ErrorKind.CRASH, message, end.exit_code))
        return False

    def _carry_out(self, launch: Launch, output_reader: OutputReader | None = None) -> End:
        """Runs one process to its end, and sends on all that it printed.  Nothing of its tree is left."""
        mark = attempt_mark(self._around.worker_id, self._job.task_id, self._job.epoch)
        process = self._around.launcher.start(launch, self._folder, mark=mark)
        try:
            with self._orders.lease_guard.guarding(process):
                end = self._watch(process, launch, output_reader)
            if self._orders.given is Order.ABANDON:
                process.kill()
                self._account_abandoned(output_reader)
                return end._replace(abandoned=True)
            end = end._replace(exit_code=self._end(process, end), starved=process.starved())
        except BaseException:
            # Whatever went wrong here: nobody else may get the task while this process lives.
            process.kill()
            raise
        finally:
            self._around.given.black_out(self._folder.path)
        self._ship_all()
        if output_reader is not None:
            # The last words decide how it ended, unless that is known already.
            output_reader.close(READ_S if end.verdict is not None else math.inf, by_itself=end.by_itself)
            self._account(output_reader)
            self._usage = output_reader.usage
        cut_output(self._folder, launch.limits)
        return end

    def _account_abandoned(self, output_reader: OutputReader | None) -> None:
        """What it has cost was paid all the same: its attempt has asked, or was given up."""
        if output_reader is not None:
            output_reader.close()
            with contextlib.suppress(*AWAY):
                output_reader.tell(self._send, last=True)

    def _settle(self, word: c.Finish, *, keeps_slot: bool = True) -> bool:
        self._settled = self._report(replace(word, then=self._then()) if keeps_slot else word)
        return self._settled

    def _say_gone(self) -> None:
        """Whoever has ended the attempt may have the task done again: not while its processes live."""
        gone = c.ProcessesExited(task_id=self._job.task_id, epoch=self._job.epoch)
        deadline_s = time.monotonic() + GONE_TRY_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(*AWAY):
                self._send(gone)
                return
            time.sleep(RECONNECT_FIRST_S)

    def _word_of(self, end: End) -> c.Finish | None:
        """What is to be reported where that does not depend on the agent."""
        if end.verdict is not None:
            return self._words.failure(end.verdict.kind, end.verdict.message, end.exit_code)
        if end.asked is not None:
            return self._words.asks(end.asked)
        return self._words.release("stopped on request") if end.stopped else None

    def _conclude(self, workdir: Workdir, word: c.Finish) -> None:
        """Keeps the work, hands it on where the attempt succeeded, and reports how it ended."""
        word = self._around.given.blackout.of(word)
        if isinstance(word, c.Complete):
            workdir.sign(self._words.signature(word, self._usage))
        work, word = self._keeping(workdir).put_away(word)
        if work is not None and not self._show(work):
            return  # another attempt has the task: what we made is kept, and goes no further
        if isinstance(word, c.Complete):
            word = self._handing_on(workdir).settle(word)
        # Nobody is to wait for a task while we clear.
        settled = self._settle(word, keeps_slot=not workdir.apart)
        if settled and isinstance(word, c.Complete) and LEFT_OUT not in " ".join(word.refused):
            workdir.clear()

    def _keeping(self, workdir: Workdir) -> Keeping:
        return Keeping(workdir, self._words, self._job.timeout_s, tell=self._tell, orders=self._orders)

    def _tell(self, step: str) -> None:
        with contextlib.suppress(*AWAY):
            self._send(self._words.step(step))

    def _handing_on(self, workdir: Workdir) -> HandingOn:
        env = {**self._around.env, **self._environment("", workdir, None)}
        return HandingOn(
            self._job,
            workdir,
            self._words,
            trees=self._trees,
            check=said_or(self._job.check_command, self._around.checks, self._job),
            review=said_or(self._job.review, self._around.reviews, self._job),
            reviewer=Reviewer(
                self._job,
                self._around.agents,
                self._folder,
                self._around.rubric,
                env,
                lambda name: self._given(name).values,
                self._carry_out,
                self._usage,
            ),
            env=env,
            stdout=self._folder.stdout,
            report=self._report,
            run=self._carry_out,
            stopping=lambda: self._orders.given is not None,
            blackout=self._around.given.blackout,
        )

    def _show(self, work: Work) -> bool:
        """Tells what the attempt has made.  False where it is over: this is the fence before its work goes on."""
        return self._report(self._words.work(str(work)))

    def _watch(self, process: RunningProcess, launch: Launch, output_reader: OutputReader | None) -> End:
        """Until the process ends, an order comes, its time is over or it may not go on."""
        deadline_s = time.monotonic() + self._job.timeout_s
        agent, idle = self._job.agent, launch.idle_bytes_per_s
        watchdog = Watchdog(launch.limits, self._folder, agent, now_s=time.monotonic(), idle_bytes_per_s=idle)
        speaker = Speaker(process, launch.talk)
        while True:
            left_s = deadline_s + self._orders.lease_guard.stood_still_s - time.monotonic()
            if left_s <= 0:
                return End(timed_out=True)
            exit_code = wait_and_read(process, min(watchdog.look_s, left_s), self._orders, output_reader)
            if exit_code is not None:
                return End(code=exit_code)
            if self._orders.given is not None:
                self._orders.seen()
                return End(stopped=True)
            reader = output_reader
            if reader is not None and (reader.asked or reader.lingers or reader.refused):
                return End(asked=reader.asked, lingers=reader.lingers, refused=reader.refused)
            verdict = watchdog.look(process.usage(), time.monotonic(), frozen=process.frozen)
            if verdict is not None:
                return End(verdict=verdict)
            self._notice.show(filter(None, [self._orders.notice, watchdog.notice]))
            with contextlib.suppress(*AWAY):
                for told in speaker.tell(self._orders.notice, watchdog.notice):
                    self._send(self._words.step(f"is told: {told}"))
                self._doubt(watchdog.suspicion)
            # An owner that is away for a while must not keep us from watching: the files keep the output.
            with contextlib.suppress(*AWAY):
                if self._shipping.ship() and self._looks is not None:
                    self._looks.tell(self._job, self._send)
                if output_reader is not None:
                    output_reader.listen()
                    output_reader.tell(self._send)

    def _end(self, process: RunningProcess, end: End) -> int:
        """Ends the tree in the way that its end asks for; returns the root's exit code."""
        if end.code is not None:
            process.sweep()
            return end.code
        if end.verdict is not None:
            log.warning("attempt %s#%s: %s", self._job.task_id, self._job.epoch, end.verdict.message)
        if end.refused or (end.verdict is not None and end.verdict.urgent):
            # Asked to stop, it would note in its session that somebody has interrupted it.
            return process.kill()
        return process.stop(grace_s=STOP_GRACE_S, on_step=self._step)

    def _doubt(self, suspicion: str) -> None:
        """Tells once that the attempt seems to hang, and once that it does not.  Raises Unavailable."""
        if suspicion != self._suspected:
            self._send(self._words.doubt(suspicion))
            self._suspected = suspicion

    def _account(self, output_reader: OutputReader, *, forget: bool = False) -> None:
        """Tells what the attempt has cost, however long the owner is away."""

        def tell() -> bool:
            if forget:
                output_reader.forget_session(self._send)
            else:
                output_reader.tell(self._send, last=True)
            return True

        self._patiently(tell)

    def _send(self, command: c.AttemptCommand) -> Moved | None:
        """For what an attempt can do without: a refusal is noted, no more.  Raises what is AWAY."""
        try:
            return self._crew.report(self._proved(command))
        except AWAY:
            raise
        except MusterError as error:
            log.info("%s of %s#%s: %s", type(command).__name__, command.task_id, command.epoch, error)
            return None

    def _environment(self, token: str, workdir: Workdir, port: int | None) -> dict[str, str]:
        ports = {} if port is None else {"MUSTER_PORT_BASE": str(port), "MUSTER_PORT_COUNT": str(PORTS)}
        return {
            **workdir.env,
            **ports,
            "MUSTER_WORKDIR": str(workdir.cwd),
            WORKER: self._around.worker_id,
            "MUSTER_ROOT": str(self._around.root),
            **self._around.reach(),
            **({"MUSTER_TOKEN": token} if token else {}),
            "MUSTER_NOTICE": str(self._folder.notice),
        }

    def _step(self, name: str) -> None:
        log.info("attempt %s#%s: %s", self._job.task_id, self._job.epoch, name)

    def _ship_all(self) -> None:
        while self._patiently(self._shipping.ship):
            pass
        self._shipping.skip_to_the_end()
        while self._patiently(self._shipping.ship):
            pass

    def _report(self, command: c.AttemptCommand) -> bool:
        """Tells the owner, however long it is away.  False where the attempt is over already."""

        def send() -> bool:
            sent_s = self._orders.lease_guard.now_s()
            try:
                moved = self._crew.report(self._proved(command))
                if isinstance(command, c.Finish) and command.then is not None:
                    self._following = moved.next
                if isinstance(command, c.Start):  # the one report that renews the lease
                    self._orders.lease_guard.heard(sent_s)
            except Conflict as error:
                log.info("%s of %s#%s: %s", type(command).__name__, command.task_id, command.epoch, error)
                return False
            return True

        return self._patiently(send)

    def _proved(self, command: c.AttemptCommand) -> c.AttemptCommand:
        return replace(self._around.given.blackout.of(command), proof=self._job.proof)

    def _patiently(self, call: Callable[[], bool]) -> bool:
        wait_s = RECONNECT_FIRST_S
        while self._orders.given is not Order.ABANDON:
            try:
                return call()
            except AWAY:
                time.sleep(wait_s)
                wait_s = min(RECONNECT_CAP_S, wait_s * 2)
        return False
