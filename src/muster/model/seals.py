"""Seals over the audit: who holds the store's file but not the key cannot change what happened unseen.

A seal covers a range of events with a keyed hash (BLAKE2b) of each, so that a verdict can name the event, and
the head of the seal before it.  When retention drops a range, its seal stays as a signed stub.

With the same key an attempt's worker can prove that it was granted: a store that was put back does not know the
epochs that it had granted since (S2).  A mistyped or made-up epoch is stale, and no more than that.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from muster.model.events import Event
from muster.model.scalars import Count

_MAC_BYTES = 16
_VALUE_MARK_BYTES = 4


class Grants:
    def __init__(self, key: bytes) -> None:
        self._key = hashlib.blake2b(key, person=b"muster-grants").digest()

    def proof(self, incarnation: str, task_id: int, epoch: int, worker_id: str) -> str:
        """For the worker that the attempt is given to; `incarnation` is the store's."""
        data = f"{incarnation}/{task_id}/{epoch}/{worker_id}".encode()
        mac = hashlib.blake2b(data, key=self._key, digest_size=_MAC_BYTES, person=b"muster-grant").hexdigest()
        return f"{worker_id}.{mac}"

    def holds(self, incarnation: str, task_id: int, epoch: int, proof: str) -> bool:
        """True where this incarnation of the store has granted that epoch to the worker that the proof names."""
        worker_id, dot, _ = proof.rpartition(".")
        return bool(dot) and hmac.compare_digest(
            self.proof(incarnation, task_id, epoch, worker_id).encode(), proof.encode()
        )

    def seen(self, commit: str) -> str:
        """That commit, for a worker to carry to the next server that it comes to."""
        made = hashlib.blake2b(
            commit.encode(), key=self._key, digest_size=_MAC_BYTES, person=b"muster-commit"
        )
        return f"{commit}.{made.hexdigest()}"

    def commit_of(self, seen: str) -> str:
        """What `seen` was made of; empty for what is made up."""
        commit = seen.rpartition(".")[0]
        return commit if hmac.compare_digest(self.seen(commit).encode(), seen.encode()) else ""

    def mark(self, about: str, value: str) -> str:
        """Tells whether two values about one thing are the same, and nothing else of them."""
        data = f"{about}\0{value}".encode(errors="surrogatepass")
        return hashlib.blake2b(
            data, key=self._key, digest_size=_VALUE_MARK_BYTES, person=b"muster-value"
        ).hexdigest()


GENESIS = "0" * 64
"""What the first seal follows."""
_ID_BYTES, _MARK_BYTES = 8, 16
_ENTRY_BYTES = _ID_BYTES + _MARK_BYTES
PROBLEMS_MAX = 100

_encode = msgspec.json.Encoder().encode


class Numbered(NamedTuple):
    """An event and its number in the store."""

    id: int
    event: Event


class Seal(Struct, frozen=True, gc=False):
    to_id: Count
    from_id: Count
    count: Count
    at_ms: Count
    key_id: str
    previous: str
    """The head of the seal before."""
    marks_digest: str
    head: str
    marks: bytes
    """Of each event its number and its keyed hash; empty once the range was pruned."""
    pruned_at_ms: Count | None = None
    pruned_proof: str = ""


class Signer:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = hashlib.blake2b(key, digest_size=8, person=b"muster-keyid").hexdigest()

    def grants(self) -> Grants:
        """Proofs by the same key: it lies beside the store, and is not put back with it."""
        return Grants(self._key)

    def _mac(self, person: bytes, data: bytes, size: int = 32) -> bytes:
        return hashlib.blake2b(data, key=self._key, digest_size=size, person=person).digest()

    def mark(self, numbered: Numbered) -> bytes:
        return self._mark((numbered.id, *astuple(numbered.event)))

    def marked(self, numbered: Numbered, mark: bytes) -> bool:
        """Whether it is the event's; before the first release they were marked without their empty subject."""
        if mark == self.mark(numbered):
            return True
        whole = (numbered.id, *astuple(numbered.event))
        return not numbered.event.subject and mark == self._mark(whole[:-1])

    def _mark(self, covered: tuple[object, ...]) -> bytes:
        return self._mac(b"muster-event", _encode(covered), _MARK_BYTES)

    def head_of(self, seal: Seal) -> str:
        covered = (seal.previous, seal.from_id, seal.to_id, seal.count, seal.at_ms, seal.marks_digest)
        return self._mac(b"muster-seal", _encode(covered)).hex()

    def seal(self, events: Sequence[Numbered], previous: str, at_ms: int) -> Seal:
        """`events` are at least one, in order, and everything that follows the last seal."""
        marks = b"".join(numbered.id.to_bytes(_ID_BYTES) + self.mark(numbered) for numbered in events)
        bare = Seal(
            to_id=events[-1].id,
            from_id=events[0].id,
            count=len(events),
            at_ms=at_ms,
            key_id=self.key_id,
            previous=previous,
            marks_digest=digest(marks),
            head="",
            marks=marks,
        )
        return replace(bare, head=self.head_of(bare))

    def loss_proof(self, head: str) -> str:
        """Whoever restored the store knew that the seals up to this one in the log are lost."""
        return self._mac(b"muster-lost", head.encode()).hex()

    def prune_proof(self, seal: Seal, at_ms: int) -> str:
        return self._mac(b"muster-pruned", _encode((seal.head, at_ms))).hex()


def digest(marks: bytes) -> str:
    return hashlib.blake2b(marks, digest_size=32).hexdigest()


class Verdict:
    """Takes the seals in order, each with the events that are there up to its end."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self.head = GENESIS
        self.to_id = 0
        self.seals = 0
        self.sealed = 0
        self.pruned = 0
        self.problems: list[str] = []

    def find(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def take(self, seal: Seal, events: Sequence[Numbered]) -> None:
        self.seals += 1
        name = f"the seal of events {seal.from_id} to {seal.to_id}"
        if seal.previous != self.head:
            self.find(f"{name} does not follow the one before it: a seal is missing or was changed")
        if seal.key_id != self._signer.key_id:
            self.find(f"{name} was signed with key {seal.key_id}; .muster/key is {self._signer.key_id}")
        else:
            self._look_into(seal, events, name)
        self.head, self.to_id = seal.head, seal.to_id

    def _look_into(self, seal: Seal, events: Sequence[Numbered], name: str) -> None:
        pruned = seal.pruned_at_ms is not None
        marks_fit = pruned or digest(seal.marks) == seal.marks_digest
        if self._signer.head_of(seal) != seal.head or not marks_fit:
            self.find(f"{name} was changed: its signature does not fit")
        elif seal.pruned_at_ms is not None:
            if self._signer.prune_proof(seal, seal.pruned_at_ms) != seal.pruned_proof:
                self.find(f"events {seal.from_id} to {seal.to_id} were removed without a signature")
            self.pruned += seal.count
        else:
            self.sealed += seal.count
            self._compare(seal, events)

    def _compare(self, seal: Seal, events: Sequence[Numbered]) -> None:
        entries = [seal.marks[at : at + _ENTRY_BYTES] for at in range(0, len(seal.marks), _ENTRY_BYTES)]
        marked = {int.from_bytes(entry[:_ID_BYTES]): entry[_ID_BYTES:] for entry in entries}
        for numbered in events:
            mark = marked.pop(numbered.id, None)
            if mark is None:
                self.find(f"{_name(numbered)} was put in after the events around it were sealed")
            elif not self._signer.marked(numbered, mark):
                self.find(f"{_name(numbered)} was changed after it was sealed")
        for event_id in marked:
            self.find(f"event {event_id} is missing")


def _name(numbered: Numbered) -> str:
    event = numbered.event
    return f"event {numbered.id} ({event.event}, number {event.seq} of task {event.task_id})"
