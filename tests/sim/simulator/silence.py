"""How many agents are silent at one time: what the reaper's brake must do, and may do (S15)."""

from __future__ import annotations

from dataclasses import dataclass

AGENTS_MIN, SHARE = 10, 0.55
DOUBT = 2
"""So many agents more or less may the reaper have counted, a moment before or after."""
TICKS_MS = 2_000
LOOK_MS = 1_000
"""A reaper looks twice a second, and a slow disk takes its time for what it writes between."""


@dataclass(frozen=True)
class Silence:
    """Of one moment."""

    held: int
    silent: int

    @property
    def surely(self) -> bool:
        return self.held >= AGENTS_MIN + DOUBT and self.silent > SHARE * self.held + DOUBT

    @property
    def maybe(self) -> bool:
        return self.held >= AGENTS_MIN - DOUBT and self.silent > SHARE * self.held - DOUBT


class BrakeWatch:
    """Follows what a reaper sees since its owner leads."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._given_up_ms: list[int] = []
        self._looked_ms = 0
        self._maybe_from_ms: int | None = None
        """The last look at which the reaper had no cause yet: it may have looked right after it."""
        self._surely_from_ms: int | None = None
        self._quiet_from_ms: int | None = None

    def given_up(self, now_ms: int) -> None:
        self._given_up_ms.append(now_ms)

    def look(self, held: int, silent: int, now_ms: int, *, over: bool) -> Silence:
        """`silent` for half a lease and longer; `over`: one of them for the whole of it."""
        self._given_up_ms = [at_ms for at_ms in self._given_up_ms if now_ms - at_ms < self._lease_ms]
        gone = len(self._given_up_ms)
        seen = Silence(held + gone, silent + gone)
        if seen.maybe and over and self._maybe_from_ms is None:
            self._maybe_from_ms = self._looked_ms
        self._looked_ms = now_ms
        if not seen.surely:
            self._surely_from_ms = None
        elif self._surely_from_ms is None:
            self._surely_from_ms = now_ms
        if over or gone:
            self._quiet_from_ms = None
        elif self._quiet_from_ms is None:
            self._quiet_from_ms = now_ms
        elif now_ms - self._quiet_from_ms > TICKS_MS:
            self._maybe_from_ms = None
        return seen

    @property
    def longer_ms(self) -> int:
        """So much longer than a lease may a silent attempt be held."""
        return self._lease_ms if self._maybe_from_ms is not None else 0

    def is_on(self, now_ms: int) -> bool:
        """Whether nobody may be given up for silence alone."""
        seen_ms = now_ms - (now_ms if self._surely_from_ms is None else self._surely_from_ms)
        return seen_ms > LOOK_MS and now_ms < (self._maybe_from_ms or 0) + self._lease_ms
