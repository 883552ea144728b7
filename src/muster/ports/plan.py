"""Where plans are kept, and where finished tasks are ticked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class PlanFiles(Protocol):
    def tick(self, path: str, keys: Collection[str]) -> frozenset[str]:
        """Ticks the boxes of these tasks in the plan file and returns the keys whose boxes are now ticked.

        A key that the file no longer holds is left out.  Keeps every other byte, and never overwrites an edit
        made meanwhile.  Raises BadPlan where the file cannot be read as a plan now (the caller tries later).
        """
