"""The branches of this host's repository.  Implements ports.branches."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from muster.hosts.detached_call import detached_call
from muster.hosts.file_lock import lock_at_once
from muster.worker.git import Repository

LOCK_S = 10.0
"""How long a worker that moves a branch is waited for."""
LOOK_S = 0.05


class LocalBranches:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    async def settle(
        self,
        branch: str,
        commit: str,
        turn: str,  # noqa: ARG002 - the lock is enough
        told: Callable[[bool], Awaitable[None]],
    ) -> bool:
        async with held(self._repository) as taken:
            if taken:
                ref = f"refs/heads/{branch}"
                await told(await detached_call(self._repository.is_ancestor, commit, ref))
            return taken


@contextlib.asynccontextmanager
async def held(repository: Repository) -> AsyncIterator[bool]:
    """The lock of `Repository.locked`, waited for without a thread; False where it was not to be had."""
    fd = os.open(repository.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline_s = time.monotonic() + LOCK_S
        while not lock_at_once(fd):
            if time.monotonic() >= deadline_s:
                yield False
                return
            await asyncio.sleep(LOOK_S)
        yield True
    finally:
        os.close(fd)
