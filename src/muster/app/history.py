"""What a store holds when its crew has ended, for whoever checks the promises on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from muster.stores.sqlite.history import read_history
from muster.testing.promises import Deed, History


def history_of(store: Path, deeds: Sequence[Deed]) -> History:
    return History(**read_history(store)._asdict(), deeds=deeds)
