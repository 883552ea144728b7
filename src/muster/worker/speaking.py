"""What an agent is told while it works."""

from __future__ import annotations

from muster.model.notices import paragraphs
from muster.ports.agent import RunningProcess, Talk


class Speaker:
    """Says each notice once, by the standard input of an agent that takes messages; others read the file."""

    def __init__(self, process: RunningProcess, talk: Talk | None) -> None:
        self._process = process
        self._message = None if talk is None else talk.message
        self._said: set[str] = set()
        self._limits = False

    def tell(self, notice: str, limits: str) -> list[str]:
        """What it was told now.  `limits` is a notice of how much it has used, which changes all the time."""
        fresh = [part for part in paragraphs(notice) if part not in self._said]
        fresh += [limits] if limits and not self._limits else []
        if self._message is None or not fresh:
            return []
        if not self._process.say(b"".join(map(self._message, fresh))):
            return []
        self._said.update(fresh)
        self._limits = self._limits or bool(limits)
        return fresh
