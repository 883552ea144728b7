"""What the coordinator and its store say to themselves, under its term."""

from __future__ import annotations

from muster.model.commands.base import Command, Name
from muster.model.seals import Seal


class Restored(Command, frozen=True, kw_only=True):
    """A person has put an older copy of the store in place: no epoch of before may be granted again (S2)."""

    actor: Name
    incarnation: Name
    """A new random name of the store: what was granted before proves nothing any more."""
    granted: int = 0
    """The highest epoch of before, as far as anybody knows."""
    missing: str = ""
    """What was committed and is not there any more, in words."""
    lost_head: str = ""
    """The newest head in the log that no seal has, with its proof."""
    project: str = ""
    """Whose store it is from now on."""
    copied: bool = False
    """It came with a copy of another project, which goes on with what was running (S19)."""


class NewBoot(Command, frozen=True, kw_only=True):
    """A new owner has taken over: it takes the next term, and leases of this boot get one fresh lease time,
    because nobody could renew them while there was no owner (S15)."""

    project: str = ""
    """Whose store it is, where that is not noted yet."""
    long_lived: bool = True
    """False for an owner of one command: it comes and goes, and must not keep a task for who took it by hand."""


class FreshLeases(Command, frozen=True, kw_only=True):
    """The coordinator stood still: all leases of this boot begin anew."""

    term: int


class SetClock(Command, frozen=True, kw_only=True):
    """The wall clock stands `offset_ms` off the clock that counts from `boot_id`'s boot.

    It has jumped by `jumped_ms` since that was noted last: what waits for a while, and not for a date, waits no
    longer and no shorter for that.
    """

    term: int
    boot_id: str
    offset_ms: int
    jumped_ms: int


class AddSeal(Command, frozen=True, kw_only=True):
    """The sealer has signed the events that follow the last seal."""

    term: int
    seal: Seal


class Reconcile(Command, frozen=True, kw_only=True):
    """These tasks may disagree with the facts: what does is mended."""

    term: int
    task_ids: tuple[int, ...]


class Repair(Command, frozen=True, kw_only=True):
    """One task of it, with the facts that its row does not hold."""

    task_id: int
    unmet: int
    """How many of its dependencies are really unmet."""


class Prune(Command, frozen=True, kw_only=True):
    """At most `limit` of each: output and checkpoints of ended tasks, idempotency keys, older than that."""

    term: int
    logs_before_ms: int
    keys_before_ms: int
    limit: int


class PruneEvents(Command, frozen=True, kw_only=True):
    """The events of the seal that ends with `to_id`."""

    term: int
    to_id: int
    at_ms: int
    proof: str
