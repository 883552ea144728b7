"""What an error of PostgreSQL's, or of the connection to it, means for whoever has asked."""

from __future__ import annotations

import re

import asyncpg

from muster.model.errors import (
    BadInput,
    CommitUnknown,
    Contended,
    MusterError,
    StoreAway,
    StoreFault,
    StoreFull,
)

_CONTENDED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
)
RACES = frozenset(
    {
        "idempotency_pkey",
        "plans_source",
        "plans_workspace_id_name_key",
        "tasks_key",
        "workspaces_name_key",
    }
)
"""What two may add at the same time, each after a look that found nothing.  Whoever adds
anything else that may be there once holds it: a second one is a bug, and would come again at each try."""
LATE = "MU001"
"""As `mark_commit` says it: the store was halted, or restored, since the transaction began."""
_DAMAGED = (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError)
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""The server is down, starts, ends, has been failed over, has no room for one more connection, or cannot read."""
_ENDED = ("is closed", "is closing", "has been released back to the pool")
"""How it says that a connection has ended, or has broken while it was held."""
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
)


TRIED_AGAIN = "the server goes on by itself once it can; what is in its way: muster doctor, in its folder"
TAKES_NO_WRITES = "PostgreSQL takes no writes, each transaction is read-only; nothing was written"
_OF_ONE = re.compile(r'(database|role) "([^"]*)"')


def classify(error: BaseException, *, committing: bool = False, host: str = "its host") -> MusterError | None:
    """None for a bug, for a refusal of Muster's own, and for what ends the program.  `host` is the database's."""
    match error:
        case MusterError():
            return None
        case asyncpg.UniqueViolationError() if error.constraint_name in RACES:
            return Contended(f"another server was faster ({error}); nothing was written", "try again")
        case asyncpg.PostgresError() if isinstance(error, _CONTENDED) or error.sqlstate == LATE:
            fix = "try again"
            if isinstance(error, asyncpg.QueryCanceledError):
                fix += "; muster doctor names a statement_timeout that is too short"
            return Contended(f"{_in_the_way(error)} ({error}); nothing was written", fix)
        case asyncpg.DiskFullError():
            return StoreFull(
                f"the disk of the database on {host} is full ({error}); nothing was written",
                f"free some room on {host}, or give it a larger disk: work goes on by itself",
            )
        case asyncpg.OutOfMemoryError():
            return StoreFull(
                f"the database on {host} has no memory left ({error}); nothing was written",
                f"free some memory on {host}: work goes on by itself",
            )
        case asyncpg.PostgresError() if isinstance(error, _DAMAGED):
            return StoreFault(
                f"PostgreSQL has found damage: {error}; nothing was written",
                "look after its disk, then restore a backup and run: muster db restored",
            )
        case asyncpg.CharacterNotInRepertoireError() | asyncpg.UntranslatableCharacterError():
            return BadInput("a text holds a character that cannot be stored (NUL); nothing was changed")
        case asyncpg.PostgresError() if isinstance(error, _REFUSED):
            return StoreFault(f"PostgreSQL refuses: {error}; nothing was changed", "muster doctor")
        case _ if isinstance(error, _AWAY) or is_closed(error):
            return _lost(error, committing=committing)
    return None


def _in_the_way(error: asyncpg.PostgresError) -> str:
    match error:
        case asyncpg.LockNotAvailableError():
            return "somebody holds a lock that this needs"
        case asyncpg.QueryCanceledError():  # pg_cancel_backend, or a statement_timeout
            return "PostgreSQL was told to break a statement off"
    return "another server was in the way"


def is_closed(error: BaseException) -> bool:
    """asyncpg says in words alone that a connection has ended; a program's own error has the same class."""
    return isinstance(error, asyncpg.InterfaceError) and str(error).endswith(_ENDED)


def _lost(error: BaseException, *, committing: bool) -> MusterError:
    said = str(error) or type(error).__name__
    if committing:
        return CommitUnknown(
            f"the connection to PostgreSQL broke while it committed ({said}): all of it was written, or nothing",
            "ask again: what was written is not written twice",
        )
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return StoreAway(f"PostgreSQL has no connection left ({said}); nothing was written", TRIED_AGAIN)
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return StoreAway(TAKES_NO_WRITES, TRIED_AGAIN)
    return StoreAway(f"PostgreSQL does not answer ({said}); nothing was written", TRIED_AGAIN)


def may_pass(error: MusterError) -> MusterError:
    """The same, where a server that is up goes on by itself once it is let in again: as a store that is away."""
    refused = isinstance(error, StoreFault) and isinstance(error.__cause__, _REFUSED)
    return StoreAway(error.message, error.hint) if refused else error


def given_up(away: StoreAway, cause: BaseException | None) -> StoreAway:
    """The same, for whoever ends with it and tries nothing again."""
    if away.hint != TRIED_AGAIN:
        return away
    fix = "start PostgreSQL, or see that it can be reached from here"
    if isinstance(cause, asyncpg.TooManyConnectionsError):
        fix = room_hint(cause)
    elif away.message == TAKES_NO_WRITES:
        fix = "muster doctor --store ADDRESS says what makes it so"
    return StoreAway(away.message, f"{fix}; then try again")


def room_hint(error: asyncpg.TooManyConnectionsError) -> str:
    """Whose limit it is stands in its words alone, and not in those of every language."""
    raised = "ALTER SYSTEM SET max_connections = NUMBER; and restart PostgreSQL"
    if one := _OF_ONE.search(str(error)):
        raised = f"ALTER {one[1].upper()} {one[2]} CONNECTION LIMIT NUMBER;"
    return f"end other connections; or with a larger NUMBER, as a superuser: {raised}"
