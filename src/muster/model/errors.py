"""Every error that Muster raises on purpose, grouped by who can act on it.

* MusterError
  x CallerError: change the request
    + BadInput (exit 2, HTTP 422): BadPlan, BadConfig
    + NotFound, Ambiguous (exit 3, HTTP 404, 409)
    + NotAllowed (exit 4, HTTP 401)
    + Conflict (exit 6, HTTP 409): StaleEpoch, IllegalMove, TermOver
  x Unavailable: wait and try again (exit 7, HTTP 503): OwnerUnavailable, StoreFull (507)
  x StoreFault: a person must act (exit 1, HTTP 507): StoreHalted, StoreRewound, StoreRefused
  x AgentUnfit: this agent cannot run here; the task is unharmed (exit 1, HTTP 500)

`message` names the cause and what was kept, `hint` the command or edit that fixes it.
"""

from __future__ import annotations


class MusterError(Exception):
    code = "error"
    exit_code = 1
    http_status = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class CallerError(MusterError):
    code = "caller"


class BadInput(CallerError):
    code = "bad_input"
    exit_code = 2
    http_status = 422


class BadPlan(BadInput):
    code = "bad_plan"


class BadConfig(BadInput):
    code = "bad_config"
    key = ""
    """The dotted key of the settings that is wrong, where it is one."""
    against = ""
    """The key that it does not go together with, where there is one."""


class NotFound(CallerError):
    code = "not_found"
    exit_code = 3
    http_status = 404


class Ambiguous(CallerError):
    code = "ambiguous"
    exit_code = 3
    http_status = 409


class NotAllowed(CallerError):
    code = "not_allowed"
    exit_code = 4
    http_status = 401


class Conflict(CallerError):
    code = "conflict"
    exit_code = 6
    http_status = 409


class StaleEpoch(Conflict):
    """The attempt behind this write has ended; a newer one may hold the task."""

    code = "stale_epoch"


class TermOver(Conflict):
    """Another coordinator leads now."""

    code = "term_over"


class IllegalMove(Conflict):
    code = "illegal_move"


class Unavailable(MusterError):
    code = "unavailable"
    exit_code = 7
    http_status = 503


class OwnerUnavailable(Unavailable):
    code = "owner_unavailable"


class Overloaded(Unavailable):
    """The queue is full: backpressure, not a fault."""

    code = "overloaded"
    exit_code = 1
    http_status = 429


class StoreFault(MusterError):
    code = "store_fault"
    http_status = 507


class StoreFull(Unavailable):
    """The disk is full: what was asked was not written, and works again once there is space."""

    code = "store_full"
    http_status = 507


class StoreHalted(StoreFault):
    code = "store_halted"


class StoreRewound(StoreFault):
    code = "store_rewound"


class ProjectCopied(StoreFault):
    """The store is that of the folder that this one was copied from, until a person makes it this one's own."""

    code = "project_copied"


class StoreRefused(StoreFault):
    code = "store_refused"


class WaitTimeout(MusterError):
    """What was waited for has not happened yet; nothing was changed."""

    code = "wait_timeout"
    exit_code = 8


class AgentUnfit(MusterError):
    """The agent's binary or directory is missing: the agent is marked, the task goes back unharmed."""

    code = "agent_unfit"


def _tree(root: type[MusterError]) -> dict[str, type[MusterError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def from_wire(code: str, message: str, hint: str) -> MusterError:
    """The error that a server reported, as the class that it was raised with there."""
    return _tree(MusterError).get(code, MusterError)(message, hint)
