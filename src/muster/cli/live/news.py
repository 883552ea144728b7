"""What the feed brings to the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from muster.cli.live.dialog import Prompt
from muster.cli.live.review import ReviewedWork
from muster.model.access import Right
from muster.model.json_value import Json


class News(NamedTuple):
    """What the feed has brought."""

    tasks: Sequence[Json] | None = None
    """All tasks that may be shown; None: as before."""
    status: Json | None = None
    needs: Json | None = None
    """What waits for a person."""
    detail: Json | None = None
    """All of the task whose page is open."""
    work: ReviewedWork | None = None
    """What the attempt that is reviewed has changed."""
    no_work: str = ""
    """Why that cannot be shown."""
    coming: Json | None = None
    """What the merge of a plan's branch would bring, once it was asked for."""
    rights: frozenset[Right] | None = None
    """What who looks may do; None: as before."""
    log: Sequence[str] = ()
    """New whole lines of the chosen attempt."""
    log_of: tuple[int, int] | None = None
    """(task id, epoch) that `log` belongs to."""
    link: str = "live"
    """Or why not."""
    told: str = ""
    """How the last request ended; empty: nothing new."""
    undone: Sequence[Prompt] = ()
    """What was asked for and is not known to be done."""
    again: Prompt | None = None
    """The one of them whose plan is not as it was seen: to be asked anew, with `told`."""
    cut: bool = False
    """There are more tasks that wait than were asked for."""
