"""Proof that an attempt was granted, by a key that the store's file does not hold.

A store that was put back to an older state does not know the epochs that it had granted since; whoever holds one
can prove it (S2).  Nobody else can: a mistyped or made-up epoch is stale, and no more than that.
"""

from __future__ import annotations

import hashlib
import hmac

_MAC_BYTES = 16


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
