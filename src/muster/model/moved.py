"""Boxes that stood in another plan's file before: the same work, which nobody is to do twice.  Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from muster.model.commands import Enqueue, Spec
from muster.model.edits import MovedBox, Namesake, is_barrier
from muster.model.errors import BoxesMoved
from muster.model.titles import TELLING_WORDS, plain_words, titles_alike

RECENT_MS = 24 * 3600 * 1000
"""So long after its end a task is still looked at: whoever moves its box may have the file of yesterday open."""
NAMED_MAX = 5


def refusal(moved: Sequence[MovedBox], file: str | None) -> BoxesMoved:
    """Of all of them; `file` is where they stand now."""
    source = moved[0].task.source
    there = [one.task for one in moved if one.task.source == source]
    names = [f"{task.plan}/{task.key} ({task.status.lower()})" for task in there[:NAMED_MAX]]
    more = f" and {len(moved) - len(names)} more" if len(moved) > len(names) else ""
    error = BoxesMoved(
        f"{file or 'this plan'} has boxes that stood in {source} before: {', '.join(names)}{more}; nothing was "
        "changed",
        f"tick what is done, and muster plan add {shlex.quote(source)} --update takes the rest out of "
        f"plan {there[0].plan}; --new-task NAME for what is other work, --new if all of it is",
    )
    error.moved = tuple(moved)
    return error


class Boxes:
    """Of one file, told by their names and titles alone."""

    def __init__(self, titles: Mapping[str, str]) -> None:
        """By the boxes' names."""
        self.titles = titles
        self._by_words: dict[str, list[str]] = {}
        for name, title in titles.items():
            if len((words := plain_words(title)).split()) >= TELLING_WORDS:
                self._by_words.setdefault(words, []).append(name)

    @property
    def telling(self) -> list[str]:
        """Titles that are not met twice by chance."""
        return [self.titles[names[0]] for names in self._by_words.values()]

    def find(self, box: str, title: str) -> list[str]:
        """The names of those that may be the same work as a box of another file."""
        own = self.titles.get(box)
        if own is not None and (own == title or titles_alike(own, title)):
            return [box]
        return self._by_words.get(plain_words(title), [])


def fresh_boxes(command: Enqueue, known: Enqueue, keys: Collection[str]) -> dict[str, Spec]:
    """What would be new work, by the names of boxes; `known` is the same plan by the keys of its tasks, of which
    these are new."""
    said = {*command.new_tasks}
    return {
        box: spec
        for asked, spec in zip(command.tasks, known.tasks, strict=True)
        if spec.key in keys
        and (box := asked.key or "") not in said
        and not (spec.done or spec.is_group or is_barrier(box))
    }


def same_work(
    boxes: Boxes, keys: Mapping[str, str], known: Iterable[Namesake], apart: Collection[int]
) -> tuple[MovedBox, ...]:
    """`apart` are tasks of other plans that are other work."""
    return tuple(
        MovedBox(key=keys[box], box=box, title=boxes.titles[box], task=one)
        for one in known
        if one.id not in apart
        for box in boxes.find(one.box, one.title)
    )
