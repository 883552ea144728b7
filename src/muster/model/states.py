"""The states of tasks, attempts, workers and agents, and the moves between them.

`TASK_MOVES` and `ATTEMPT_MOVES` are the whole truth about which state may follow which.  `machine.decide` is the
only producer of moves; whatever it decides is checked against them.  A worker has no such table: each of its
heartbeats says anew what it is.  An agent is what its workers, its attempts and people make it, along
`AGENT_MOVES`.
"""

from __future__ import annotations

from enum import StrEnum


class TaskStatus(StrEnum):
    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    ABORTED = "ABORTED"
    CANCELLED = "CANCELLED"
    ARCHIVED = "ARCHIVED"


class AttemptStatus(StrEnum):
    ASSIGNED = "assigned"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    LOST = "lost"
    RELEASED = "released"
    CANCELLED = "cancelled"


class WorkerStatus(StrEnum):
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    STOPPING = "stopping"
    DEAD = "dead"


class AgentStatus(StrEnum):
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"
    OFFLINE = "offline"
    ERROR = "error"


_G = AgentStatus
AGENT_MOVES: dict[AgentStatus, frozenset[AgentStatus]] = {
    _G.IDLE: frozenset({_G.BUSY, _G.DRAINING, _G.OFFLINE, _G.ERROR}),
    _G.BUSY: frozenset({_G.IDLE, _G.DRAINING, _G.OFFLINE, _G.ERROR}),
    _G.DRAINING: frozenset({_G.IDLE, _G.BUSY, _G.OFFLINE, _G.ERROR}),
    # What is gone, or can do nothing, has nothing to finish.
    _G.ERROR: frozenset({_G.IDLE, _G.BUSY, _G.OFFLINE}),
    _G.OFFLINE: frozenset({_G.IDLE, _G.BUSY, _G.ERROR}),
}


def agent_status(*, served: bool, fit: bool, draining: bool, busy: bool) -> AgentStatus:
    """`served`: somebody who lives would run it; `fit`: and can."""
    if not served:
        return _G.OFFLINE
    if draining:
        return _G.DRAINING
    if busy:
        return _G.BUSY
    return _G.IDLE if fit else _G.ERROR


class CrewStatus(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    ERROR = "ERROR"


class ErrorKind(StrEnum):
    """Why an attempt ended without a result.  `retry.POLICY` says what each kind spends."""

    LOST = "lost"
    CRASH = "crash"
    INVALID = "invalid"
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    AUTH = "auth"
    BILLING = "billing"
    OUT_OF_MEMORY = "out_of_memory"
    EXPIRED = "expired"
    REWORK = "rework"
    """Said to be done, and not to be taken as it is: it goes back to its agent."""
    REVIEW = "review"
    """Said to be done, and a person has to say what becomes of it."""


JUDGED = frozenset({ErrorKind.REWORK, ErrorKind.REVIEW})
"""Its agent has ended well; what it has made is looked at."""

STOP_BY_S = 15.0
"""How long a stop on request may take: both rungs of the stop ladder, and some air."""


class StopAction(StrEnum):
    """What becomes of a task once the process of its attempt has been stopped on request."""

    RELEASE = "release"
    PAUSE = "pause"
    TRANSFER = "transfer"


class PauseReason(StrEnum):
    USER = "user"
    QUESTION = "question"
    BUDGET = "budget"
    REVIEW = "review"
    BREAKER = "breaker"
    HAND = "hand"
    """A person takes it over as soon as its agent has stopped: somebody works on it."""
    EDIT = "edit"
    """Its box was edited, or is gone: nobody begins it before that is taken in."""
    FILE = "file"
    """Its box says otherwise than it does, and a person is asked which of them holds."""


TAKE_OVER_S = 30.0
"""How long that person has for it once the agent has stopped: nobody tells of one who was killed meanwhile."""

BY_A_PERSON = frozenset({PauseReason.USER, PauseReason.HAND})
"""Who has paused it has not forgotten it, and may take it."""
FOR_ITS_FILE = frozenset({PauseReason.EDIT, PauseReason.FILE})
"""What is asked of a plan's file is asked for all its tasks together."""


class FailedDependency(StrEnum):
    """What a task does when one of its dependencies has failed or was cancelled."""

    BLOCK = "block"
    SKIP = "skip"
    RUN = "run"


_T = TaskStatus
FINAL = frozenset({_T.COMPLETED, _T.FAILED, _T.CANCELLED, _T.ARCHIVED})
HELD = frozenset({_T.ASSIGNED, _T.RUNNING})
MAY_BEGIN = frozenset({_T.PENDING, _T.ABORTED})
"""Now, or once its time has come and what it waits for is done."""

TASK_MOVES: dict[TaskStatus, frozenset[TaskStatus]] = {
    _T.PENDING: frozenset({_T.ASSIGNED, _T.RUNNING, _T.PAUSED, _T.COMPLETED, _T.FAILED, _T.CANCELLED}),
    _T.ASSIGNED: frozenset(
        {_T.RUNNING, _T.PENDING, _T.PAUSED, _T.COMPLETED, _T.ABORTED, _T.FAILED, _T.CANCELLED}
    ),
    _T.RUNNING: frozenset({_T.PENDING, _T.PAUSED, _T.COMPLETED, _T.ABORTED, _T.FAILED, _T.CANCELLED}),
    _T.PAUSED: frozenset({_T.PENDING, _T.COMPLETED, _T.CANCELLED}),
    _T.ABORTED: frozenset({_T.PENDING, _T.ASSIGNED, _T.RUNNING, _T.PAUSED, _T.FAILED, _T.CANCELLED}),
    _T.COMPLETED: frozenset({_T.PENDING, _T.ARCHIVED}),
    _T.FAILED: frozenset({_T.PENDING, _T.COMPLETED, _T.CANCELLED, _T.ARCHIVED}),
    _T.CANCELLED: frozenset({_T.PENDING, _T.ARCHIVED}),
    _T.ARCHIVED: frozenset(),
}

_A = AttemptStatus
ATTEMPT_OPEN = frozenset({_A.ASSIGNED, _A.RUNNING, _A.STOPPING})
_ENDED = frozenset({_A.COMPLETED, _A.FAILED, _A.LOST, _A.RELEASED, _A.CANCELLED})
ATTEMPT_MOVES: dict[AttemptStatus, frozenset[AttemptStatus]] = {
    _A.ASSIGNED: frozenset({_A.RUNNING, _A.STOPPING}) | _ENDED,
    _A.RUNNING: frozenset({_A.STOPPING}) | _ENDED,
    _A.STOPPING: _ENDED,
} | {ended: frozenset() for ended in _ENDED}
ATTEMPT_MOVES[_A.LOST] = frozenset({_A.ASSIGNED, _A.RUNNING})  # readopt

FILE_ORDER, PHASES, FREE = ORDERS = ("file", "phases", "free")
"""How tasks of a plan follow each other: each after the one before; heading after heading; only by `after=`."""


def asks_a_person(status: TaskStatus, paused: PauseReason | None) -> bool:
    """Whether that status alone says that nothing moves the task before a person does something."""
    waits = status is TaskStatus.PAUSED and paused not in BY_A_PERSON | FOR_ITS_FILE
    return waits or status is TaskStatus.FAILED
