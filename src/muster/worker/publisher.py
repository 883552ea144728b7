"""The way of finished work to its plan's branch: collected, merged, checked on the merged tree, moved, once."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from muster.worker.publishing import Collected, NotPublished, Publishing, SentBack


class PublishedWork(NamedTuple):
    changed: bool
    large: tuple[str, ...]
    others: tuple[str, ...] = ()
    """As in Merged."""
    left_out: str = ""
    """As in Collected."""
    there: bool = False
    """As in Merged."""
    mended: str = ""
    """As in Collected."""


class Stopped(NotPublished):
    """Somebody wants the attempt to end; what is done is published later."""


class Publisher:
    """`check` runs the check in the tree and returns why it has not passed, empty where it has; None: no check.

    `intend` is as in Publishing.advance; `stopping` is asked while others have their turn.
    """

    def __init__(
        self,
        publishing: Publishing,
        *,
        check: Callable[[], str] | None,
        intend: Callable[[str, str, str], bool],
        stopping: Callable[[], bool],
    ) -> None:
        self._publishing = publishing
        self._check = check
        self._intend = intend
        self._stopping = stopping

    def publish(self, *, merge: bool) -> PublishedWork:
        """Without `merge` the work stays on the task's own branch, checked there.

        Raises SentBack, ForReview, Over, Stopped, and GitFailed where publishing is to be tried again.
        """
        collected = self._publishing.collect()
        if not merge:
            return self._on_its_own_branch(collected)
        with self._turn():
            while True:
                merged = self._publishing.merge(collected.commit)
                self._look_at(merged.new)
                if self._publishing.advance(merged, self._intend):
                    return PublishedWork(
                        merged.changed,
                        collected.large,
                        merged.others,
                        collected.left_out,
                        merged.there,
                        collected.mended,
                    )

    def _on_its_own_branch(self, collected: Collected) -> PublishedWork:
        self._look_at(collected.commit)
        self._publishing.hand_in()
        changed = self._publishing.changed(collected.commit)
        return PublishedWork(changed, collected.large, left_out=collected.left_out, mended=collected.mended)

    def _look_at(self, commit: str) -> None:
        if self._check is None:
            return
        self._publishing.show(commit)
        try:
            why = self._check()
        finally:
            self._publishing.tidy()
        if why:
            raise SentBack(why)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One task of a plan at a time where a check is run: what it has seen is what the branch gets."""
        if self._check is None:
            yield
            return
        tree = self._publishing.tree
        name = f"muster-merge-{hashlib.sha256(tree.plan.encode()).hexdigest()[:16]}.lock"
        with tree.repository.locked(name, while_waiting=self._heed):
            yield

    def _heed(self) -> None:
        if self._stopping():
            raise Stopped("stopped while others had their turn to merge")
