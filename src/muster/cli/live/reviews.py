"""Work that was looked at, with the comments that nobody was sent yet.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from muster.cli.live.dialog import Dialog, Prompt
from muster.cli.live.review import Review, ReviewedWork
from muster.cli.output import ref_of
from muster.model.errors import Conflict
from muster.model.json_value import Json
from muster.model.reviews import UNSENT, refuse_unsent
from muster.model.wording import counted

_Attempt = tuple[int, int]
"""(task id, epoch)."""


class Reviews:
    def __init__(self) -> None:
        self._found: dict[_Attempt, Review] = {}
        self._sent: dict[_Attempt, Mapping[tuple[int, str], str]] = {}
        """Nobody knows yet whether they have arrived."""

    def take(self, work: ReviewedWork, row: Json | None) -> str:
        """What was said of the same work stays; tells what was said of other work, and is gone."""
        before = self._found.get(work.of)
        same = before is not None and before.work.seen == work.seen
        remarks = before.remarks if before is not None and same else {}
        ref, plan = (ref_of(row), row["plan"]) if row is not None else (str(work.of[0]), "")
        kept = {of: one for of, one in self._found.items() if one.remarks}
        self._found = {**kept, work.of: Review(work, ref, plan, remarks)}
        gone = 0 if before is None or same else len(before.remarks)
        return f"its work has changed; {counted(gone, 'comment')} on what it was before: gone" if gone else ""

    def of(self, attempt: _Attempt | None) -> Review | None:
        return None if attempt is None else self._found.get(attempt)

    def _unsent(self, rows: Iterable[Json] | None) -> int:
        wanted = None if rows is None else {_place(row) for row in rows}
        return sum(
            len(one.remarks)
            for (task_id, _), one in self._found.items()
            if wanted is None or wanted & {task_id, f"plan {one.plan}"}
        )

    def told(self, rows: Iterable[Json] | None = None) -> str:
        """What a person is told who would leave comments behind, on work of these, or of all of it; empty: there
        are none."""
        number = self._unsent(rows)
        return f"{counted(number, 'comment')}: {UNSENT}" if number else ""

    def warned(self, dialog: Dialog) -> Dialog:
        told = self.told(dialog.rows or [dialog.row])
        dialog.says = tuple(filter(None, (*dialog.says, told)))
        return dialog

    def refused_accept(self, rows: Sequence[Json]) -> str:
        """Why these are not accepted; empty: they are."""
        written = [ref_of(row) for row in rows if self._unsent([row])]
        hint = "b sends it back, or empty its comments and accept"
        try:
            refuse_unsent(bool(written), hint)
        except Conflict as error:
            told = f"{error.message}; {error.hint}"
            return f"{', '.join(written)}: {told}" if len(rows) > 1 else told
        return ""

    def send(self, asked: Prompt) -> None:
        """Its comments are on their way, unless they come back."""
        if asked.work is not None and (review := self.of(asked.work.of)) is not None:
            self._sent[asked.work.of] = review.remarks
            review.remarks = {}

    def take_back(self, undone: Iterable[Prompt]) -> None:
        for asked in undone:
            review = None if asked.work is None else self.of(asked.work.of)
            if review is not None and asked.work is not None and review.work.seen == asked.work.seen:
                review.remarks = {**self._sent.pop(review.work.of, {}), **review.remarks}


def _place(row: Json) -> int | str:
    found: int | str = row["id"]
    return found
