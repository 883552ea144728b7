"""Every error that Muster raises on purpose, grouped by who can act on it.

* MusterError
  x CallerError: change the request
    + BadInput (exit 2, HTTP 422): BadPlan, BadConfig, TooLarge (413), UnreadEncoding (415)
    + NotFound, Ambiguous (exit 3, HTTP 404, 409)
    + NotAllowed (exit 4, HTTP 401)
    + Conflict (exit 6, HTTP 409): StaleEpoch, IllegalMove, BeingPublished, BoxesMoved, TermOver,
      PreconditionFailed (412)
  x Unavailable: wait and try again (exit 7, HTTP 503): OwnerUnavailable, StoreFull (507), TooMany (429),
    StoreAway, Contended, CommitUnknown
  x ForgeRefused: what the server asks for us refuses it (exit 4, HTTP 502)
  x StoreFault: a person must act (exit 1, HTTP 507): StoreHalted, StoreRewound, StoreMoved, StoreRefused
  x AgentUnfit: this agent cannot run here; the task is unharmed (exit 1, HTTP 500)

`message` names the cause and what was kept, `hint` the command or edit that fixes it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MusterError(Exception):
    code = "error"
    """On the wire: the class's own name, `bad_input` for BadInput."""
    exit_code = 1
    http_status = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            words = "".join(f"_{char.lower()}" if char.isupper() else char for char in cls.__name__)
            cls.code = words.strip("_").removesuffix("_error")


class CallerError(MusterError):
    pointer = ""
    """The field of a request's body that is wrong, as a JSON pointer."""
    parameter = ""
    """The parameter of its address that is wrong."""


class BadInput(CallerError):
    exit_code = 2
    http_status = 422


class TooLarge(BadInput):
    http_status = 413


class UnreadEncoding(BadInput):
    http_status = 415


class BadPlan(BadInput):
    sides: tuple[bytes, ...] = ()
    """Where git has left a conflict: all of it, as each side would have it."""


class BadConfig(BadInput):
    key = ""
    """The dotted key of the settings that is wrong, where it is one."""
    against = ""
    """The key that it does not go together with, where there is one."""


class NotFound(CallerError):
    exit_code = 3
    http_status = 404


class Ambiguous(CallerError):
    exit_code = 3
    http_status = 409


class NotAllowed(CallerError):
    exit_code = 4
    http_status = 401


class Forbidden(NotAllowed):
    """Who asks is known, and may not do this."""

    http_status = 403


class ForgeRefused(MusterError):
    """A forge, or the tool that asks it, lets this machine not do it: who asks us is known and stays so."""

    exit_code = 4
    http_status = 502


class Conflict(CallerError):
    exit_code = 6
    http_status = 409


class StaleEpoch(Conflict):
    """The attempt behind this write has ended; a newer one may hold the task."""


class PreconditionFailed(Conflict):
    """The task, or the plan, has changed since the caller has looked."""

    http_status = 412


class TermOver(Conflict):
    """Another coordinator leads now."""


class IllegalMove(Conflict):
    pass


class BeingPublished(Conflict):
    """The attempt is moving its plan's branch: how that ends is known in a moment, and decides."""

    code = "being_published"


class BoxesMoved(Conflict):
    """Boxes stood in another plan's file before, so their work would be done twice."""

    moved: tuple[Any, ...] = ()
    """A `MovedBox` each, as the engine knows it, which reads no files."""


class Unavailable(MusterError):
    exit_code = 7
    http_status = 503


class OwnerUnavailable(Unavailable):
    pass


class Overloaded(Unavailable):
    """The queue is full: backpressure, not a fault."""

    exit_code = 1
    http_status = 429


class TooMany(Unavailable):
    """One caller asks more often than it may."""

    http_status = 429
    retry_after_s = 1


class StoreFault(MusterError):
    http_status = 507


class StoreFull(Unavailable):
    """The disk is full: what was asked was not written, and works again once there is space."""

    http_status = 507


class StoreAway(Unavailable):
    """The database does not answer: nothing was written."""


class Contended(Unavailable):
    """Another transaction was in the way, as by a deadlock: nothing was written, and the same transaction may
    succeed at once."""


class CommitUnknown(Unavailable):
    """The connection broke while it committed: all of it was written, or nothing.  Asking again is safe."""


class StoreHalted(StoreFault):
    pass


class StoreRewound(StoreFault):
    pass


class StoreMoved(StoreFault):
    """Its tasks go on in a database that it was copied to; what is there is kept as it was then."""


class ProjectCopied(StoreFault):
    """The store is that of the folder that this one was copied from, until a person makes it this one's own."""


class StoreRefused(StoreFault):
    pass


class WaitTimeout(MusterError):
    """What was waited for has not happened yet; nothing was changed."""

    exit_code = 8


class AgentUnfit(MusterError):
    """The agent's binary, directory or secret is missing: the agent is marked, the task goes back unharmed."""

    secret: str | None = None
    """The name of the one that is missing, where that is why."""


def _tree(root: type[MusterError]) -> dict[str, type[MusterError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        # A class that shares its parent's code is raised where it happens, and may be made of other words.
        found = _tree(child) | found
    return found


def from_wire(code: str, message: str, hint: str) -> MusterError:
    """The error that a server reported, as the class that it was raised with there."""
    return _tree(MusterError).get(code, MusterError)(message, hint)
