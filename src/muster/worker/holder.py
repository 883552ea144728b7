"""What every worker does, whatever its attempts are: it claims, and keeps the leases of what it holds alive.

A thread for each slot, and one to be heard.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.answers import Claimed, ClaimedJob, HeartbeatAnswer
from muster.model.errors import Conflict, MusterError, NotAllowed, StoreFault, Unavailable
from muster.ports.crew import Crew
from muster.ports.runtime import Chance
from muster.worker.lease_guard import LOOK_S, NEVER_FROZEN, LeaseGuard, boot_s, margin_s
from muster.worker.orders import Order, Orders
from muster.worker.room import ROOM_LOOK_S

log = logging.getLogger(__name__)

CLAIM_WAIT_S = 25.0
BROKEN = 70
"""Exit code of a worker that met a bug (EX_SOFTWARE of sysexits.h)."""
DRAIN_LOOK_S = 0.02
ORDERS_PENDING_S = 0.5
"""Between heartbeats while orders are being carried out: the next change is soon to come."""
AWAY = (Unavailable, StoreFault)
"""Nothing can be written now; whoever waits may go on later."""
RECONNECT_FIRST_S = 0.1
RECONNECT_CAP_S = 2.0


class Holder:
    """`run` returns when the worker has drained or was declared dead."""

    claim_wait_s = CLAIM_WAIT_S

    def __init__(
        self,
        crew: Crew,
        chance: Chance,
        registration: c.Register,
        *,
        orphan_grace_s: float,
        threads: int | None = None,
    ) -> None:
        """`threads` claim and run; without it one for each slot."""
        self._crew = crew
        self._chance = chance
        self._registration = registration
        self._worker_id = registration.worker_id
        self._threads = threads or registration.slots
        self._orphan_grace_s = orphan_grace_s
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], Orders] = {}
        self._draining = threading.Event()
        self._declared_dead = False
        self._asked_to_end = False
        self._server_stopped = False
        self._without_room = ""
        """What the last look has found: who beats does not look, since a disk may hold it up."""
        self._not_allowed: NotAllowed | None = None
        """Its token counts no more."""
        self._finished = threading.Event()
        self._heartbeat_s = 5.0
        self._heard_s = time.monotonic()
        self._renewed_s = boot_s()
        """When the last heartbeat was sent that was answered."""
        self.lease_s = 15.0
        self._lease_s: float | None = None
        """Set where this worker is to freeze what it cannot renew."""

    # -- what kind of worker it is

    def _unfit(self) -> dict[str, str]:
        """Agents that cannot run here, with what is missing."""
        return {}

    def _no_room(self) -> str:
        """Why nothing can begin on this host now; empty: it can."""
        return ""

    def _new_claim(self) -> c.Claim:
        """It keeps its id until it was given something: a lost answer is told again."""
        return c.Claim(worker_id=self._worker_id, request_id=self._chance.name(16))

    def _run_jobs(self, jobs: Sequence[ClaimedJob], then: c.Claim) -> Claimed | None:
        """What comes next, where the end of an attempt has brought it.  Never raises but for a bug."""
        raise NotImplementedError

    def _broken(self) -> None:
        """A bug.  A worker with a slot less would look healthy; a dead one is replaced, and its task with it."""
        log.exception("this worker is broken")
        os._exit(BROKEN)

    # -- what they all do

    def drain(self) -> None:
        """Takes no new work.  From any thread, but not from a signal handler, which may interrupt `run`."""
        self._asked_to_end = True
        self._draining.set()

    @property
    def to_come_back(self) -> bool:
        """It has drained only because its server was stopped."""
        return self._server_stopped and not self._asked_to_end

    def _drain_as_told(self, *, stopped: bool) -> None:
        if stopped and not self._server_stopped:
            log.info("the server was stopped: nothing new is begun, and what runs is finished")
        # The last word counts: this worker may be asked to end while it finishes.
        self._server_stopped = stopped
        self._draining.set()

    def run(self) -> bool:
        """Works until drained; False when the owner has declared this worker dead.  Raises NotAllowed."""
        if not self._register():
            return True
        self._thread(self._beat, "heartbeat").start()
        if self._lease_s is not None:
            self._thread(self._guard, "guard").start()
        for n in range(self._threads):
            self._thread(self._slot, f"slot-{n}").start()
        # A slot may still be held in a claim then; whatever that brings is given back with our goodbye.
        self._draining.wait()
        while self._busy():
            time.sleep(DRAIN_LOOK_S)
        self._finished.set()
        if self._not_allowed is not None:
            raise self._not_allowed
        # Decided before the goodbye: after it, a claim that is still held is told that the worker has ended.
        declared_dead = self._declared_dead
        if not declared_dead:
            try:
                self._crew.deregister(c.Deregister(worker_id=self._worker_id, reason="drained"))
            except MusterError as error:
                log.info("could not say goodbye: %s", error)
        return not declared_dead

    def _thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """None of ours may end unseen."""

        def minded() -> None:
            try:
                work()
            except BaseException:
                self._broken()

        return threading.Thread(target=minded, name=name, daemon=True)

    @contextlib.contextmanager
    def _holding(self, jobs: Sequence[ClaimedJob]) -> Iterator[list[Orders]]:
        """Their leases are kept alive, and what is ordered is heard."""
        made = {(job.task_id, job.epoch): Orders(self._guarded(job), job.proof) for job in jobs}
        with self._lock:
            self._held |= made
        try:
            yield list(made.values())
        finally:
            with self._lock:
                for key in made:
                    del self._held[key]
            for orders in made.values():
                orders.close()

    def _guarded(self, job: ClaimedJob) -> LeaseGuard:
        return NEVER_FROZEN if self._lease_s is None else LeaseGuard(job.lease_s or self._lease_s)

    def _busy(self) -> bool:
        with self._lock:
            return bool(self._held)

    def _register(self) -> bool:
        """False where it was drained before anybody has answered."""
        command = replace(self._registration, unfit=self._unfit())
        wait_s, told = RECONNECT_FIRST_S, False
        while not self._draining.is_set():
            try:
                registered = self._crew.register(command)
                self._heartbeat_s, self.lease_s = registered.heartbeat_s, registered.lease_s
                self._lease_s = registered.lease_s if registered.freeze else None
                return True
            except AWAY as error:
                if self._left_alone():
                    raise
                if not told:
                    log.info("waits for its server: %s", error)
                told = True
                time.sleep(wait_s)
                wait_s = min(RECONNECT_CAP_S, wait_s * 2)
        return False

    def _left_alone(self) -> bool:
        return time.monotonic() - self._heard_s > self._orphan_grace_s

    def _may_claim(self) -> bool:
        """Looks each time: what is claimed where it cannot begin is kept from a host that has room."""
        self._without_room = self._no_room()
        return not self._without_room and not self._draining.is_set()

    def _slot(self) -> None:
        try:
            claim, claimed = self._new_claim(), None
            # What an attempt's end has brought while we drain is given back with our goodbye.
            while not self._draining.is_set():
                if claimed is None and not self._may_claim():
                    self._draining.wait(ROOM_LOOK_S)
                    continue
                claimed = claimed or self._claim(claim)
                if claimed is None:
                    continue
                if claimed.jobs or claimed.over:
                    claim = self._new_claim()
                if claimed.drain:
                    self._drain_as_told(stopped=claimed.stopped)
                claimed = self._run_jobs(claimed.jobs, claim) if claimed.jobs else None
        except NotAllowed as error:
            self._not_allowed = error
            self._die()

    def _claim(self, command: c.Claim) -> Claimed | None:
        """None where we drain; a claim whose answer was lost is repeated until it is known."""
        wait_s = RECONNECT_FIRST_S
        while True:
            try:
                return self._crew.claim(command, wait_s=self.claim_wait_s)
            except AWAY as error:
                log.debug("no owner: %s", error)
                if self._draining.is_set():
                    return None
                time.sleep(wait_s)
                wait_s = min(RECONNECT_CAP_S, wait_s * 2)
            except Conflict as error:
                if not self._finished.is_set():  # else it was held while we said goodbye
                    log.warning("%s", error)
                    self._die()
                return None

    def _shortest_s(self) -> float:
        """Of the leases that this worker has."""
        with self._lock:
            held = [orders.lease_guard.lease_s for orders in self._held.values()]
        return min((lease_s for lease_s in held if lease_s is not None), default=self.lease_s)

    def _guard(self) -> None:
        """No call to the owner may hold this thread up: that is when it is needed."""
        while not self._finished.wait(min(LOOK_S, margin_s(self._shortest_s()) / 4)):
            with self._lock:
                held = tuple(self._held.values())
            for orders in held:
                orders.lease_guard.look()

    def _beat(self) -> None:
        """Leases are renewed from this thread alone: no agent, disk or log can hold it up."""
        wait_s = RECONNECT_FIRST_S
        while not self._finished.is_set():
            with self._lock:
                held, proofs = tuple(self._held), tuple(orders.proof for orders in self._held.values())
            heartbeat = c.Heartbeat(
                worker_id=self._worker_id, attempts=held, proofs=proofs, no_room=self._without_room
            )
            sent_s = boot_s()
            try:
                answer = self._crew.heartbeat(
                    heartbeat, wait_s=min(self._heartbeat_s, self._shortest_s() / 3)
                )
                wait_s, self._heard_s = RECONNECT_FIRST_S, time.monotonic()
                self._renewed_s = sent_s
            except MusterError as error:
                log.debug("heartbeat: %s", error)
                if self._left_alone():
                    log.warning("no owner for %g s: this worker and its agents end", self._orphan_grace_s)
                    self._die()
                self._finished.wait(wait_s)
                wait_s = min(RECONNECT_CAP_S, wait_s * 2)
                continue
            if self._finished.is_set():
                return  # it was held while we said goodbye
            if self._obey(answer, sent_s):
                self._finished.wait(ORDERS_PENDING_S)

    def _obey(self, answer: HeartbeatAnswer, sent_s: float) -> bool:
        """True when there are orders that are not carried out yet."""
        if not answer.known:
            log.warning("the owner has given this worker up: it ends")
            self._die()
        elif answer.drain:
            self._drain_as_told(stopped=answer.stopped)
        pending = answer.drain
        for order in answer.attempts:
            with self._lock:
                orders = self._held.get((order.task_id, order.epoch))
            if orders is None:
                continue
            orders.notice = order.notice
            if order.current:
                orders.lease_guard.heard(sent_s)
            if not order.current:
                orders.give(Order.ABANDON)
                pending = True
            elif order.stop is not None:
                orders.give(Order.STOP)
                pending = True
        return pending

    def _die(self) -> None:
        """Somebody else may hold our tasks by now: every process of ours has to go."""
        self._declared_dead = True
        self._draining.set()
        with self._lock:
            for orders in self._held.values():
                orders.give(Order.ABANDON)
