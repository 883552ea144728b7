"""The fences: against a store that was put back (S2), and against a coordinator whose term is over (S10)."""

from __future__ import annotations

import hmac

from muster.model.commands import AttemptCommand
from muster.model.errors import NotFound, StaleEpoch, StoreRewound, TermOver
from muster.model.seals import Grants
from muster.model.task import Attempt, Task
from muster.ports.locks import TERM, TERM_SHARED, locks
from muster.ports.store import Common, Transaction, Tx


class Incarnation:
    """This incarnation of the store.  Without `grants` it gives no proofs and believes none."""

    def __init__(
        self, grants: Grants | None = None, incarnation: str = "", base: int = 0, sessions_after: int = 0
    ) -> None:
        self._grants = grants
        self._incarnation = incarnation
        self.base = base
        """Epochs up to this one may have been granted before the store was restored."""
        self.sessions_after = sessions_after
        """Sessions of attempts up to this epoch are those of the project that this one was copied from."""

    def proof(self, attempt: Attempt) -> str:
        if self._grants is None:
            return ""
        return self._grants.proof(self._incarnation, attempt.task_id, attempt.epoch, attempt.worker_id)

    def granted(self, attempt: Attempt, proof: str) -> bool:
        """Whether that is the proof which came with this very attempt."""
        return self._grants is None or hmac.compare_digest(self.proof(attempt), proof)

    def check(self, task: Task | None, attempt: Attempt | None, command: AttemptCommand) -> None:
        """Nothing for what the store knows.

        Raises StoreRewound where the command proves that its attempt was granted by this incarnation, and the
        store does not know it or knows it as another worker's; without such a proof NotFound or StaleEpoch, which
        is what a wrong or made-up epoch gets.
        """
        if task is not None and command.epoch <= task.epoch and not _of_another(attempt, command):
            return
        name = f"attempt {command.epoch} of task {command.task_id}"
        if self._proves(command):
            known = f"attempt {task.epoch}" if task is not None else "no such task"
            raise StoreRewound(f"{name} was granted, and the store knows {known}")
        if task is None:
            raise NotFound(f"there is no task {command.task_id}", "muster task list")
        raise StaleEpoch(
            f"{name} was not granted by this store; nothing was changed", "stop this attempt's process"
        )

    def _proves(self, command: AttemptCommand) -> bool:
        if self._grants is None or not command.proof:
            return False
        return self._grants.holds(self._incarnation, command.task_id, command.epoch, command.proof)


def _of_another(attempt: Attempt | None, command: AttemptCommand) -> bool:
    """The same epoch, granted to two workers: what comes before and after a backup's return."""
    if not command.proof or attempt is None or attempt.epoch != command.epoch:
        return False
    return command.proof.rpartition(".")[0] != attempt.worker_id


_TERM = "term"


async def present_term(tx: Common | Transaction) -> int:
    return int(await tx.store_meta(_TERM) or 0)


async def take_term(tx: Transaction) -> int:
    await tx.lock(locks(TERM))
    term = await present_term(tx) + 1
    await tx.set_store_meta(_TERM, str(term))
    return term


async def check_term(tx: Tx | Transaction, term: int) -> None:
    """Raises TermOver where another coordinator has taken over since `term` was taken."""
    await tx.lock(TERM_SHARED)
    present = await present_term(tx)
    if term != present:
        raise TermOver(f"this coordinator's term {term} is over; term {present} leads now")
