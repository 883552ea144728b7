"""What a store holds when its crew has ended, for whoever checks the promises on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from muster.stores.sqlite.history import denials, read_history
from muster.testing.promises import Deed, History


def history_of(store: Path, deeds: Sequence[Deed]) -> History:
    return History(**read_history(store)._asdict(), deeds=deeds)


def allowed_changes(store: Path) -> list[str]:
    """Ways to change an event that the database does not refuse; each was tried, and undone."""
    return [word for word, refusal in denials(store).items() if not refusal]
