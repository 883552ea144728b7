"""What a worker needs from an agent CLI, and from the processes that it starts for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.model.usage import Usage


class Job(Struct, frozen=True, kw_only=True):
    """One attempt as the agent sees it."""

    task_id: int
    epoch: int
    ref: str
    """`plan/key`, for people."""
    title: str
    prompt: str
    session_key: str | None
    """The session of an earlier attempt by this agent, to be resumed where that can be."""
    checkpoint: bytes | None
    """The last acknowledged checkpoint of an earlier attempt, whole."""
    timeout_s: float
    note: str = ""
    """What a person wants this attempt to know."""
    sent_back: str = ""
    """Why the result of the last attempt was not taken."""
    told: str = ""
    """What it should know of the folder that it works in."""
    place: str = ""
    """Where the task stands in its plan, in words for an agent whose session begins."""
    session_usage: Usage | None = None
    """What the session had cost in all when it was last heard of."""
    may_ask: bool = False
    """Somebody hears it ask for what it may not do by itself; without that it is refused at once."""
    refused: bool = False
    """It was ended by its provider: nothing has interrupted it, it only goes on."""
    diff: str = ""
    """What earlier attempts have changed, where that is known."""
    model: str | None = None
    """That of the task; None: the agent's own."""
    system_prompt: str = ""
    """What the task adds to the agent's own instructions."""
    input_context: Mapping[str, Any] = {}
    """What it is given to work with, with stars in place of secrets."""
    input_file: Path | None = None
    """Where all of that stands while its process runs; None: it has no secrets."""


class Home(Struct, frozen=True, kw_only=True):
    """Where an agent lives that has not the user's HOME."""

    path: Path
    """Its HOME: no other worker's agent has the same."""
    shared: Path
    """One folder for all workers: a session that goes on with another worker is found there."""


class AttemptFolder(Struct, frozen=True, kw_only=True):
    """The files of one attempt on the worker's host, under `.muster/attempts/<task>/<epoch>/`."""

    path: Path

    @property
    def stdout(self) -> Path:
        return self.path / "stdout"

    @property
    def stderr(self) -> Path:
        return self.path / "stderr"

    @property
    def prompt(self) -> Path:
        return self.path / "prompt.md"

    @property
    def script(self) -> Path:
        return self.path / "script"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def notice(self) -> Path:
        """What the coordinator has to say to the agent while it works; absent while there is nothing."""
        return self.path / "notice"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def input_context(self) -> Path:
        """What the task gives its agent to work with, as JSON."""
        return self.path / "input.json"

    @property
    def identity(self) -> Path:
        """Whose attempt it is, for Muster's tools."""
        return self.path / "identity.json"

    @property
    def hand_over(self) -> Path:
        return self.path / "handover.md"


class Talk(Struct, frozen=True, kw_only=True):
    """What is said to a CLI that takes messages while it works.  It ends once its standard input is closed."""

    first: bytes
    """Its task."""
    stop: bytes
    """Asks it to stop what it does, and to sum up."""
    message: Callable[[str], bytes] | None = None
    """What tells it something more in between; None: nothing can."""


class Launch(Struct, frozen=True, kw_only=True):
    """A process to start.  `env` is complete: nothing of the worker's own environment is added to it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    stdin: Path | None = None
    """None is /dev/null: agent CLIs hang on an open, silent pipe."""
    talk: Talk | None = None
    """Standard input is a pipe then, in place of `stdin`: `talk.first` is written to it, and it stays open."""
    interrupts: bool = True
    """It ends by an interrupt.  One that does not is terminated at once."""
    limits: Limits = Limits()
    unlogged: bytes = b""
    """Lines of its output that begin so are for its adapter alone; empty: none."""
    idle_bytes_per_s: int = 64
    """What it writes while it does nothing: no more than that is no progress."""
    session_key: str | None = None
    """The session that this process opens or resumes, where it is known before it starts."""
    begins: str = ""
    """What it goes on from, for people; empty for a first attempt."""


class Exit(Struct, frozen=True, kw_only=True):
    """How a process ended, as the kernel told it."""

    code: int
    """Exit code, or minus the signal's number."""
    stopped_by_us: bool = False
    timed_out: bool = False
    given_up: bool = False
    """We ended it after its last word, or while it waited for its provider: the code says nothing."""
    at_s: float | None = None
    """Unix time; None where nobody needs it."""
    out_of_memory: str = ""
    """How the kernel has killed it for want of memory, as it says itself; empty where it does not."""


class Completed(Struct, frozen=True, kw_only=True):
    result: bytes | None = None
    """JSON."""
    spoken: bool = False
    """It is only what the agent said last: a result that it has reported on purpose comes before it."""
    refused: tuple[str, ...] = ()
    """What it was not allowed to do, and went on without."""


class Failed(Struct, frozen=True, kw_only=True):
    kind: ErrorKind
    message: str
    reset_at_s: float | None = None
    """Unix time at which the provider takes requests again, where it has said so."""
    session_gone: bool = False
    """The CLI knows nothing of the session any more: the next attempt is to begin a new one."""
    unopened: bool = False
    """The CLI has given up by itself before it had opened a session: one that it was to resume cannot be."""


Outcome = Completed | Failed


class SessionSeen(Struct, frozen=True):
    """The agent's output has named its session."""

    key: str


class Step(Struct, frozen=True):
    """The agent does something now: a tool that it uses, a provider that it waits for."""

    text: str
    percent: int | None = None
    """How far it is by its own list of what is to do; None where it keeps none, or has not changed it."""


class PermissionAsked(Struct, frozen=True):
    """The agent wants to do what it may not do by itself, and waits until it is told (`Job.may_ask`)."""

    question: str
    """For a person."""
    command: str
    """Exactly what it wants to do; empty: it wants to know something."""
    yes: bytes
    """What it is told by its standard input where that is allowed ..."""
    no: bytes
    """... and where it is not."""


class Reported(Struct, frozen=True):
    """A message of the agent holds a report to Muster: it may not run `muster report`, or need not."""

    verb: str
    """progress, checkpoint, ask, or keep: this file of a merge is right as it lies there."""
    text: str


AgentEvent = SessionSeen | Step | PermissionAsked | Reported


class Did(StrEnum):
    """What an entry of a transcript is about."""

    MESSAGE = "message"
    TOOL = "tool"
    RESULT = "result"
    ERROR = "error"
    RETRY = "retry"
    """Its CLI tries its provider again."""
    COST = "cost"
    OUTPUT = "output"
    """A line as it was printed."""


class Entry(Struct, frozen=True, kw_only=True):
    """Something that an agent said or did, for people."""

    did: Did
    text: str
    tool: str = ""
    """The tool that is used; `text` is its target."""
    goes_on: bool = False
    """A part of the same message as the entry before."""


class Retrying(Struct, frozen=True, kw_only=True):
    """The provider has refused the agent, and its CLI tries again by itself."""

    refusal: Failed
    """Its outcome, should it be given up now."""
    tries: int
    """How many have been refused, one after the other."""
    delay_s: float = 0.0
    """How long it said that it waits until the next one; infinite where it would never get through."""

    @property
    def step(self) -> str:
        number = self.tries + 1
        ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
        return f"waits for the provider, {number}{ending} try: {self.refusal.message}"


class AgentStream(Protocol):
    """The output of one attempt: bytes in, events out, and in the end what it all means.

    Owns no process, clock or loop.
    """

    @property
    def costs(self) -> bool:
        """Its agent pays for a model."""

    @property
    def usage(self) -> Usage | None:
        """What this attempt has cost so far; None where the agent tells nothing of it."""

    @property
    def session_usage(self) -> Usage | None:
        """What its session has cost in all, to be handed on to the next attempt."""

    @property
    def ended(self) -> bool:
        """The agent has said how its work ended, and nothing after that: its process has nothing left to do."""

    @property
    def waiting(self) -> Retrying | None:
        """Set while its CLI waits for a provider that has refused it.

        It is let to do so for a while; then it is ended, and the refusal is its outcome.
        """

    @property
    def answered(self) -> bool:
        """The model has said something since the process began."""

    def feed(self, data: bytes) -> list[AgentEvent]:
        """Takes the next bytes of standard output, cut anywhere.  Never raises: what is unknown is skipped."""

    def close(self) -> None:
        """Its process has ended, and all output was fed: what its CLI has noted of its cost is read now."""

    def outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        """What this end means, once all output was fed.  Never raises."""


class Agent(Protocol):
    """One configured agent: how it is started, how its output is read, what its end means."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str:
        """What a person should know before it is let loose: how it is started, and what it may do."""

    def check(self) -> None:
        """Raises AgentUnfit where this agent cannot run on this host."""

    def launch(self, job: Job, folder: AttemptFolder, *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Writes the prompt and the checkpoint into `folder` and says what to start.

        Raises AgentUnfit where the agent is at fault, BadInput where the task is, and Unavailable where the
        host cannot take the files now.
        """

    def stream(self, job: Job, launch: Launch) -> AgentStream:
        """Reads the output of the process that `launch` has started for `job`."""


class TreeUsage(NamedTuple):
    """What a process tree uses, and has used since it began."""

    processes: int
    memory_bytes: int
    """Private memory, now."""
    cpu_s: float
    """Seconds of processor time, so far; never falls."""
    written_bytes: int
    """Handed to the kernel for writing, so far; never falls.  0 where the host does not count it."""
    states: tuple[str, ...]
    """What its processes are doing, for people: `claude 4711 sleeping`."""


class RunningProcess(Protocol):
    """A started process and its whole tree."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """The exit code once the root process has ended (minus the signal's number), else None."""

    def wait(self, timeout_s: float, *, wake_fd: int | None = None) -> int | None:
        """Blocks until the root ends, `wake_fd` becomes readable or the time is over; then as `poll`."""

    def usage(self) -> TreeUsage:
        """Of the tree; also notes its processes for `sweep`."""

    def starved(self) -> str:
        """How the kernel has killed it, or a part of it, for want of memory; empty where nothing says so.

        Of a root that was killed by signal 9, or has exit code 137.  Also after the sweep.
        """

    @property
    def frozen(self) -> bool:
        """Between `freeze` and `thaw`."""

    def freeze(self) -> int:
        """Stops the whole tree where it stands; returns how many processes that are.  From any thread.

        0 where some of the tree still moves.
        """

    def thaw(self) -> int:
        """Lets what `freeze` has stopped go on; returns how many processes that were.  From any thread."""

    @property
    def talks(self) -> bool:
        """Its standard input is open: it ends only some time after `hang_up`."""

    def say(self, data: bytes) -> bool:
        """Hands it on by its standard input.  False where that is closed, or has not taken what came before."""

    def hang_up(self) -> None:
        """Closes the standard input that `Launch.talk` has opened, once all before is written.  Never blocks."""

    def stop(self, *, grace_s: float, on_step: Callable[[str], None]) -> int:
        """The stop ladder: ask or interrupt, `grace_s`, TERM to the group, `grace_s`, KILL, then sweep.

        Asked is who can be by `Launch.talk`; all others get an interrupt.  Calls `on_step` with the name of each
        rung that it takes.  Returns the root's exit code.
        """

    def kill(self) -> int:
        """KILL the whole tree at once, without the ladder."""

    def sweep(self) -> int:
        """KILL every process of the tree that outlived the root; returns how many there were."""


class Launcher(Protocol):
    def start(self, launch: Launch, folder: AttemptFolder, *, mark: str) -> RunningProcess:
        """Starts the process in a session of its own, output to the folder's files, `mark` (`NAME=value`)
        in its environment.  In the end `sweep`, `stop` or `kill` it, always: that also reaps the root.

        Raises AgentUnfit where the binary or the directory is missing or not executable, BadInput where the
        arguments cannot be passed (too long), and Unavailable where the host has no room for a process now.
        """
