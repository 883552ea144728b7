"""The repository of a server's project, for workers of other hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from muster.model.far_git import GitFetch, GitMoved, GitPart, GitPublish, GitReceived, GitSend


class FarGit(Protocol):
    """`plan` and `key` are those of the task."""

    async def part(self, plan: str, key: str, asked: GitFetch) -> GitPart:
        """Raises NotFound for a bundle that is not there any more."""

    async def take(self, plan: str, key: str, part: GitSend) -> GitReceived:
        """Raises BadInput for a bundle that is not what it says."""

    async def publish(
        self, plan: str, asked: GitPublish, intend: Callable[[str, str, str], Awaitable[None]]
    ) -> GitMoved:
        """`intend(branch, old, turn)` raises where the attempt may not; nobody else moves the branch from there
        between it and the move."""
