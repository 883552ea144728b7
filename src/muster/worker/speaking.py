"""What an agent is told while it works."""

from __future__ import annotations

from collections import Counter

from muster.model.notices import paragraphs
from muster.ports.agent import RunningProcess, Talk


class Speaker:
    """Says each notice once, by the standard input of an agent that takes messages; others read the file."""

    def __init__(self, process: RunningProcess, talk: Talk | None) -> None:
        self._process = process
        self._message = None if talk is None else talk.message
        self._said: Counter[str] = Counter()
        self._limits = False

    def tell(self, notice: str, limits: str) -> list[str]:
        """What it was told now.  `limits` is a notice of how much it has used, which changes all the time."""
        parts = Counter(paragraphs(notice))
        self._said &= parts  # what was taken back may be due again
        fresh = [*(parts - self._said).elements()]
        fresh += [limits] if limits and not self._limits else []
        if self._message is None or not fresh:
            return []
        if not self._process.say(b"".join(map(self._message, fresh))):
            return []
        self._said = parts
        self._limits = self._limits or bool(limits)
        return fresh
