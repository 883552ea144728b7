"""New tasks that come together: most of them differ from the one before by a few words only."""

from __future__ import annotations

from msgspec.structs import replace

from muster.model.commands import Spec
from muster.model.moves.decision import Decision
from muster.model.rows import NewTask
from muster.model.task import Now


class Alike:
    """Of one transaction.  To copy what was made of the last task costs a third of making it anew."""

    def __init__(self) -> None:
        self._last: tuple[Spec, Decision, NewTask, Now] | None = None

    def keep(self, spec: Spec, decision: Decision, new: NewTask, now: Now) -> tuple[Decision, NewTask]:
        self._last = None if spec.done or spec.is_group else (spec, decision, new, now)
        return decision, new

    def copied(
        self,
        spec: Spec,
        *,
        task_id: int,
        plan_id: int,
        actor: str,
        from_file: bool,
        sealed: str,
        parents: tuple[tuple[int, bool], ...],
        now: Now,
    ) -> tuple[Decision, NewTask] | None:
        """None where it is not like the last one that was made anew."""
        if self._last is None:
            return None
        kept, made, row, at = self._last
        if made.task.plan_id != plan_id or at != now or not _alike(spec, kept):
            return None
        if row.created_by != actor or row.from_file != from_file:
            return None
        unmet = sum(not met for _, met in parents) if parents else 0
        events = tuple([replace(event, task_id=task_id) for event in made.events])
        new = replace(
            row,
            task_id=task_id,
            input_sealed=sealed,
            key=spec.key,
            title=spec.title,
            description=spec.description,
            depends_on=tuple(sorted(set(spec.depends_on))) if spec.depends_on else (),
            # What is equal may be another thing all the same: 1, 1.0 and true.
            metadata=spec.metadata,
            input_context=spec.input_context,
            dependencies=parents,
        )
        return Decision(replace(made.task, id=task_id, unmet=unmet), events=events), new


def _alike(spec: Spec, kept: Spec) -> bool:
    """They differ in words and parents alone."""
    words = replace(
        spec,
        title=kept.title,
        key=kept.key,
        description=kept.description,
        depends_on=kept.depends_on,
        idempotency_key=kept.idempotency_key,
    )
    return words == kept
