"""What each kind of failure spends, and how long the next attempt waits."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from muster.model.states import ErrorKind


class Spend(Enum):
    """What a failed attempt costs its task."""

    RETRY = "retry"
    LOSS = "loss"
    NOTHING = "nothing"
    """Goes back to PENDING and waits for the agent's provider."""
    ROUND = "round"
    """Goes back to its agent, at once and with the reason; after the last round to a person."""
    PERSON = "person"
    """Pauses until a person has looked at it."""
    ALL = "all"
    """FAILED at once: another attempt would end the same way."""


SPENDS: dict[ErrorKind, Spend] = {
    ErrorKind.LOST: Spend.LOSS,
    ErrorKind.CRASH: Spend.RETRY,
    ErrorKind.TIMEOUT: Spend.RETRY,
    ErrorKind.INVALID: Spend.ALL,
    ErrorKind.OUT_OF_MEMORY: Spend.ALL,
    ErrorKind.RATE_LIMIT: Spend.NOTHING,
    ErrorKind.QUOTA: Spend.NOTHING,
    ErrorKind.AUTH: Spend.NOTHING,
    ErrorKind.BILLING: Spend.NOTHING,
    ErrorKind.EXPIRED: Spend.ALL,
    ErrorKind.REWORK: Spend.ROUND,
    ErrorKind.REVIEW: Spend.PERSON,
}

TIMEOUT_FACTOR_MAX = 4
"""A timeout doubles the next attempt's limit, up to this multiple of the task's own."""


class RetryPolicy(Struct, frozen=True, gc=False):
    """Seconds.  The defaults are DESIGN.md part 4's."""

    first_s: float = 30.0
    cap_s: float = 300.0
    losses_max: int = 5
    rounds_max: int = 3
    """How often work goes back to its agent before a person is asked."""


OWN_CAP_FACTOR = 10
"""A task's own first wait grows up to this multiple of it, as the usual one does."""


def for_task(policy: RetryPolicy, backoff_s: int | None) -> RetryPolicy:
    """With the first wait that a task itself asks for."""
    if backoff_s is None:
        return policy
    return replace(policy, first_s=float(backoff_s), cap_s=float(backoff_s * OWN_CAP_FACTOR))


_EXPONENT_MAX = 62


def backoff_ms(count: int, policy: RetryPolicy, jitter: float) -> int:
    """Exponential backoff with full jitter, saturating at the cap for any `count`.

    `count` is how often this has happened before (0 for the first time), `jitter` a random number in [0, 1).
    Full jitter after "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): uniform in [0, delay).
    """
    exponent = min(max(count, 0), _EXPONENT_MAX)
    delay_s = min(policy.cap_s, policy.first_s * 2.0**exponent)
    return int(delay_s * 1000 * min(max(jitter, 0.0), 1.0))
