"""Which task each box of an edited plan file is.  Pure.

A box is known by its name (`PlanTask.key`).  Headings are renamed, titles corrected and lines moved, which gives
boxes other names: here they are told by what is left of them.  Work is neither done twice nor dropped for that;
where it could be, a person is asked.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, compress, product
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from muster.model.commands import Enqueue, Spec
from muster.model.edits import BoxName, Doubt, KeptTask, Renamed, Vanished, is_barrier, key_part
from muster.model.names import free_name
from muster.model.titles import LIKE, LIKE_ALONE, TELLING_WORDS, corrected, likeness, plain_words
from muster.model.wording import same_or_new

T = TypeVar("T")
K = TypeVar("K")
E = TypeVar("E", bound=Enqueue)
_Pair = tuple[float, Spec, KeptTask]

LIKE_ELSEWHERE = 0.7
PLACE_COUNTS = 0.1
CLEAR_OF_OTHERS = 0.1
"""So much nearer than the next one is the one that is meant."""
PAIRS_MAX = 20_000
"""Of more titles than that, only those in one place are compared."""

_NUMBER = re.compile(r"-[0-9]+")


class Identity(NamedTuple):
    tasks: dict[str, KeptTask]
    """By the name of its box, each task that the file has."""
    renamed: tuple[Renamed, ...]
    doubts: tuple[Doubt, ...]

    @property
    def joined(self) -> tuple[KeptTask, ...]:
        """Those that were added in other ways, and have a box by now."""
        return tuple(task for task in self.tasks.values() if not task.from_file)


NOTHING_KNOWN = Identity({}, (), ())


def asked(doubts: Sequence[Doubt]) -> tuple[str, str]:
    """What a person is to say, and how: a message with its hint."""
    told = []
    for doubt in doubts:
        names = [f"{one.box} ({one.title!r}, {one.status})" for one in doubt.may_be]
        told.append(f"{doubt.box} ({doubt.title!r}) may be {' or '.join(names)}")
    first = doubts[0]
    name = first.may_be[0].box
    ids = "; with an {#id} a box is known through every edit (muster plan ids --write)"
    return (
        "\n".join(["these boxes may be tasks that are there already; nothing was changed", *told]),
        f"muster plan add FILE {same_or_new(first.box, [name])}{'' if name == first.box else ids}",
    )


def as_known(
    command: E, kept: Sequence[KeptTask], names: Iterable[BoxName]
) -> tuple[E, Identity, dict[str, str]]:
    """The plan of a file by the keys of its tasks, and which boxes they are; also, by key, the box of each new
    task whose own name another task has as its key."""
    found = _Search(command, kept, {one.name: one.task_id for one in names}).identity()
    taken = {task.key for task in kept}
    keys = {box: task.key for box, task in found.tasks.items()}
    other: dict[str, str] = {}
    for spec in command.tasks:
        box = spec.key or ""
        if box not in keys:
            keys[box] = free_name(box, taken)
            taken.add(keys[box])
            if keys[box] != box:
                other[keys[box]] = box
    if any(box != key for box, key in keys.items()):
        command = replace(command, tasks=tuple(_by_keys(spec, keys) for spec in command.tasks))
    doubts = tuple(replace(doubt, key=keys[doubt.box]) for doubt in found.doubts)
    return command, found._replace(doubts=doubts), other


def _by_keys(spec: Spec, names: Mapping[str, str]) -> Spec:
    parent = spec.parent and names.get(spec.parent, spec.parent)
    waits_for = tuple(names.get(name, name) for name in spec.depends_on)
    return replace(spec, key=names[spec.key or ""], parent=parent, depends_on=waits_for)


class _Search:
    def __init__(
        self,
        command: Enqueue,
        kept: Sequence[KeptTask],
        former: Mapping[str, int],
    ) -> None:
        self._specs = {spec.key or "": spec for spec in command.tasks}
        self._kept = kept
        self._by_key = {task.key: task for task in kept}
        # What never had a box leaves its key to one that has.
        self._by_box = {task.box: task for task in sorted(kept, key=lambda task: task.from_file)}
        self._by_id = {task.id: task for task in kept}
        self._former = former
        self._same = command.same
        self._other = frozenset(command.new_tasks)
        self._found: dict[str, KeptTask] = {}
        self._boxes: dict[int, str] = {}
        """By task, the box that it was found to be."""
        self._anew: set[str] = set()
        self._places: dict[str, str] = {}
        """What is above boxes, by what that was called."""
        self._doubts: dict[str, Doubt] = {}

    def identity(self) -> Identity:
        self._by_name()
        if self._fresh():
            self._by_title(_last_called)
            self._by_title(lambda task: plain_words(task.title))
            self._by_name_of_old()
            self._by_text()
            self._by_likeness()
            self._taken_out_before()
        return Identity(
            tasks=self._found,
            renamed=tuple(
                Renamed(key=task.key, was=task.box, box=box, anew=box in self._anew)
                for box, task in self._found.items()
                if task.box != box
            ),
            doubts=tuple(self._doubts.values()),
        )

    def _pair(self, box: str, task: KeptTask, *, anew: bool = False) -> None:
        self._found[box] = task
        self._boxes[task.id] = box
        if anew:
            self._anew.add(box)

    def _fresh(self) -> list[Spec]:
        """Boxes whose task is not known yet."""
        return [
            spec
            for box, spec in self._specs.items()
            if box not in self._found and box not in self._doubts and not is_barrier(box)
        ]

    def _missing(self) -> list[KeptTask]:
        return [
            task
            for task in self._kept
            if task.from_file and not self._is_found(task) and not is_barrier(task.key)
        ]

    # -- by the same name

    def _by_name(self) -> None:
        for box, name in self._same.items():
            task = self._by_box.get(name) or self._by_key.get(name)
            if box in self._specs and task is not None:
                self._pair(box, task)
        self._renumbered()
        twins = self._twins()
        for box, spec in self._specs.items():
            task = self._by_box.get(box)
            if task and not task.gone and self._may_join(spec, task):
                self._pair_free(box, task, twins)
        for box in self._specs:
            task = self._by_id.get(self._former.get(box, 0)) or self._by_key.get(box)
            if task is None or task.gone or {box} & (self._other | self._doubts.keys()):
                continue
            if _agrees(self._specs[box], task):
                self._pair_free(box, task, twins)  # a name that it had before, in a file that was put back

    def _may_join(self, spec: Spec, task: KeptTask) -> bool:
        """A task that never had a box: one that has its key by chance is no box of it."""
        box = spec.key or ""
        words = plain_words(spec.title), plain_words(task.title)
        if task.from_file or box in self._found or likeness(*words) >= LIKE:
            return True
        if box not in self._other:
            self._doubt(spec, [task])
        return False

    def _pair_free(self, box: str, task: KeptTask, twins: Collection[str] = ()) -> None:
        if box not in self._found and box not in twins and not self._is_found(task):
            self._pair(box, task)

    def _by_name_of_old(self) -> None:
        """What was taken out before, and stands there again; what was there until now goes first."""
        for spec in self._fresh():
            box = spec.key or ""
            task = self._by_box.get(box) or self._by_id.get(self._former.get(box, 0)) or self._by_key.get(box)
            if task and task.gone:
                self._pair_free(box, task)

    def _renumbered(self) -> None:
        """Numbers that have moved on, since something was put in or taken out before them."""
        titles = _grouped((plain_words(task.title), task) for task in self._kept if not self._is_found(task))
        for box, spec in self._specs.items():
            if box in self._found or not (box[-1:].isdigit() and _is_id(box, spec.title)):
                continue
            known, named = self._by_box.get(box), titles.get(plain_words(spec.title), [])
            if known is None or len(named) != 1 or known in named or self._is_found(named[0]):
                continue
            now = self._specs.get(named[0].box)
            if now is None or plain_words(now.title) != plain_words(named[0].title):
                self._pair(box, named[0])

    def _twins(self) -> set[str]:
        """Boxes that only a number tells apart: which is which is told by more than that.  Pairs them."""
        in_file: dict[str, list[Spec]] = {}
        for box, spec in self._specs.items():
            in_file.setdefault(_plain(box, spec.title), []).append(spec)
        before: dict[str, list[KeptTask]] = {}
        for task in self._kept:
            if task.from_file and not task.gone and not self._is_found(task):
                before.setdefault(_plain(task.box, task.title), []).append(task)
        twins = set[str]()
        for name, tasks in before.items():
            specs = [spec for spec in in_file.get(name, ()) if spec.key not in self._found]
            if len(tasks) < 2 and len(specs) < 2:
                continue
            twins.update(spec.key or "" for spec in specs)
            for told in product((True, False), repeat=3):
                left = _queues(
                    (tuple(compress((task.description, task.worked, task.box), told)), task)
                    for task in tasks
                    if not self._is_found(task)
                )
                for spec in specs:
                    same = left.get(tuple(compress((spec.description, spec.done, spec.key), told)))
                    if same and spec.key not in self._found:
                        self._pair(spec.key or "", same.popleft())
        return twins

    # -- by what is left of it

    def _by_title(self, title_of: Callable[[KeptTask], str]) -> None:
        """Equal titles: headings were renamed, lines moved."""
        missing = _grouped((title_of(task), task) for task in self._missing() if not task.gone)
        several: list[tuple[list[Spec], list[KeptTask]]] = []
        for words, specs in _grouped((plain_words(spec.title), spec) for spec in self._fresh()).items():
            tasks = missing.get(words, [])
            if not len(tasks) == len(specs) == 1:
                several.append((specs, tasks))
            elif self._is_same_work(specs[0], tasks[0]):
                self._pair(specs[0].key or "", tasks[0])
        self._find_places()
        for specs, tasks in several:
            texts = _grouped((task.description, task) for task in tasks)
            for text, same in _grouped((spec.description, spec) for spec in specs).items():
                self._pair_nearest(same, texts.get(text, []) if text else [])
            self._pair_nearest(specs, tasks)

    def _find_places(self) -> None:
        """What is above boxes is called otherwise now: as most of those say that are known."""
        now: dict[str, Counter[str]] = {}
        for box, task in self._found.items():
            now.setdefault(_above(task.box), Counter())[_above(box)] += 1
        self._places = {before: names.most_common(1)[0][0] for before, names in now.items()}

    def _pair_nearest(self, specs: Iterable[Spec], tasks: Iterable[KeptTask]) -> None:
        """Those of one title, the nearest first; what stands in one place is equally near."""
        here = _queues((self._place(spec), spec) for spec in specs if spec.key not in self._found)
        there = _queues((self._place_of(task), task) for task in tasks if not self._is_found(task))
        few = len(here) * len(there) <= PAIRS_MAX
        tried = product(here, there) if few else ((one, one) for one in here if one in there)
        near = [(self._nearness(here[one][0], there[other][0]), one, other) for one, other in tried]
        for _, one, other in sorted(near, key=itemgetter(0), reverse=True):
            while here[one] and there[other]:
                self._pair(here[one].popleft().key or "", there[other].popleft())
        if not few:  # far apart, all of them: in their order
            for spec, task in zip(chain(*here.values()), chain(*there.values()), strict=False):
                self._pair(spec.key or "", task)

    def _is_same_work(self, spec: Spec, task: KeptTask) -> bool:
        """Of equal titles in two places: not if both say something else below."""
        texts = (spec.description, task.description)
        return not all(texts) or self._in_place(spec, task) or likeness(*texts) >= LIKE

    def _nearness(self, spec: Spec, task: KeptTask) -> tuple[float, ...]:
        """How probably they are the same, of several with one title."""
        headings = likeness(f"{spec.epic}/{spec.feature}", f"{task.epic}/{task.feature}")
        kind = spec.is_group is task.is_group
        return self._in_place(spec, task), headings, kind, spec.done is task.worked

    def _place(self, spec: Spec) -> _Place:
        outer = self._found.get(spec.parent or "")
        parent = outer.key if outer else spec.parent
        return _Place(_above(spec.key or ""), spec.epic, spec.feature, parent, spec.is_group, spec.done)

    def _place_of(self, task: KeptTask) -> _Place:
        above = _above(task.box)
        where = self._places.get(above, above)
        return _Place(where, task.epic, task.feature, task.parent, task.is_group, task.worked)

    def _in_place(self, spec: Spec, task: KeptTask) -> bool:
        """Below the same headings and the same box."""
        here, there = self._place(spec), self._place_of(task)
        return bool(here.box and here.box in {there.box, _above(task.box)}) or here[1:4] == there[1:4]

    def _by_text(self) -> None:
        """Another title above the same prompt."""
        missing = _grouped(
            (task.description, task) for task in self._missing() if task.description and not task.gone
        )
        for text, specs in _grouped((spec.description, spec) for spec in self._fresh()).items():
            tasks = missing.get(text, [])
            if len(tasks) == len(specs) == 1 and len(text.split()) >= TELLING_WORDS:
                self._pair(specs[0].key or "", tasks[0], anew=not tasks[0].begun)

    def _by_likeness(self) -> None:
        """Titles that were corrected or put otherwise: surely the same, perhaps, or not."""
        pairs = self._alike()
        self._pair_certain(pairs)
        likely = _grouped((spec.key or "", task) for _, spec, task in pairs)
        for spec in self._fresh():
            begun = [
                task for task in likely.get(spec.key or "", ()) if task.begun and not self._is_found(task)
            ]
            if begun and not spec.done:
                self._doubt(spec, begun)
        for _, spec, task in pairs:
            box = spec.key or ""
            if not (box in self._found or box in self._doubts or self._is_found(task) or task.begun):
                self._pair(box, task, anew=True)

    def _alike(self) -> list[_Pair]:
        """What may be the same, the likeliest first."""
        specs, tasks = self._fresh(), [task for task in self._missing() if not task.gone]
        before = _Gaps([task.id for task in self._kept if task.from_file], self._boxes)
        now = _Gaps(list(self._specs), {box: task.id for box, task in self._found.items()})
        few = len(specs) * len(tasks) <= PAIRS_MAX
        pairs: list[_Pair] = []
        # Of a plan that was written anew as a whole, only the first is compared with the first, and so on.
        tried = product(specs, tasks) if few else zip(specs, tasks, strict=False)
        for spec, task in tried:
            box = spec.key or ""
            beside = now.of(box) == before.of(task.id, self._boxes)
            if task.begun and box in self._other:
                continue
            if _is_id(box, spec.title) and _is_id(task.box, task.title):
                continue  # two names that somebody has given
            placed = beside or self._in_place(spec, task)
            alone = beside and not spec.done and now.alone(box) and before.alone(task.id)
            least = LIKE_ALONE if alone else LIKE if placed else LIKE_ELSEWHERE
            ratio = likeness(plain_words(spec.title), plain_words(task.title))
            if ratio >= least:
                pairs.append((ratio + PLACE_COUNTS * placed, spec, task))
        return sorted(pairs, key=itemgetter(0), reverse=True)

    def _pair_certain(self, pairs: list[_Pair]) -> None:
        words = Counter(map(_words, self._specs.values())) if pairs else Counter[tuple[str, str]]()
        near: dict[str | int, list[float]] = {}
        for ratio, spec, task in pairs:
            near.setdefault(spec.key or "", []).append(ratio)
            near.setdefault(task.id, []).append(ratio)
        for ratio, spec, task in pairs:
            if spec.key in self._found or self._is_found(task):
                continue
            both = (*near[spec.key or ""], *near[task.id])
            rivals = sum(other > ratio - CLEAR_OF_OTHERS for other in both) > 2
            done_both = spec.done and task.worked
            if task.begun and words[_words(spec)] > 1:
                continue  # rather a copy of the other one than what was called nearly so
            if not rivals and (corrected(task.title, spec.title) or done_both):
                self._pair(spec.key or "", task, anew=not task.begun)

    def _is_found(self, task: KeptTask) -> bool:
        return task.id in self._boxes

    def _doubt(self, spec: Spec, tasks: Iterable[KeptTask]) -> None:
        box = spec.key or ""
        may_be = tuple(Vanished(key=t.key, box=t.box, title=t.title, status=t.status) for t in tasks)
        self._doubts[box] = Doubt(key=box, box=box, title=spec.title, may_be=may_be)

    def _taken_out_before(self) -> None:
        """Work that was done, taken out of the file, and stands there again in another place."""
        away = _grouped(
            (plain_words(task.title), task)
            for task in self._missing()
            if task.gone and task.begun and task.worked
        )
        titles = Counter(plain_words(spec.title) for spec in self._specs.values()) if away else Counter[str]()
        for spec in self._fresh():
            tasks = [task for task in away.get(plain_words(spec.title), ()) if not self._is_found(task)]
            if not tasks or spec.key in self._other:
                continue
            alike = [task for task in tasks if spec.description and task.description == spec.description]
            only = titles[plain_words(spec.title)] == 1
            if only and (len(alike) == 1 or (spec.done and len(tasks) == 1)):
                self._pair(spec.key or "", (alike or tasks)[0])
            elif not spec.done and (
                alike or len(tasks) == 1 or len(plain_words(spec.title).split()) >= TELLING_WORDS
            ):
                self._doubt(spec, alike or tasks)


class _Place(NamedTuple):
    """Where a box stands, and what else tells it from others of its title."""

    box: str
    """The name of the headings and boxes above it."""
    epic: str
    feature: str
    parent: str | None
    """The key of the task above it."""
    is_group: bool
    done: bool


def _above(box: str) -> str:
    return box.rpartition("/")[0]


class _Gaps:
    """Where, in their order, things stand between those that are known."""

    def __init__(self, order: Iterable[Any], known: Mapping[Any, Any]) -> None:
        self._of: dict[Any, tuple[Any, Any]] = {}
        begin, inside = None, list[Any]()
        for one in [*order, None]:
            if one is None or one in known:
                self._of |= dict.fromkeys(inside, (begin, one))
                begin, inside = one, []
            else:
                inside.append(one)
        self._count = Counter(self._of.values())

    def of(self, one: Any, names: Mapping[Any, Any] | None = None) -> tuple[Any, Any]:
        """The known ones before and behind it, by these names."""
        begin, end = self._of[one]
        return (begin, end) if names is None else (names.get(begin), names.get(end))

    def alone(self, one: Any) -> bool:
        return self._count[self._of[one]] == 1


def _is_id(box: str, title: str) -> bool:
    """Whether it was named by an id or a code, and not by its title."""
    return _plain(box, title).rpartition("/")[2] != (key_part(title) or "task")


def _plain(box: str, title: str) -> str:
    """The name of a box without the number that tells it from others of its title."""
    name = key_part(title) or "task"
    start, slash, last = box.rpartition("/")
    if last.startswith(name) and _NUMBER.fullmatch(last, len(name)):
        return start + slash + name
    return box


def _words(spec: Spec) -> tuple[str, str]:
    return plain_words(spec.title), spec.description


def _agrees(spec: Spec, task: KeptTask) -> bool:
    """Whether a name from before can still mean that task."""
    return _is_id(spec.key or "", spec.title) or plain_words(spec.title) == plain_words(task.title)


def _last_called(task: KeptTask) -> str:
    """Its title in the file, as its box tells it: what is done keeps the title under which it was done."""
    return task.box.rpartition("/")[2].replace("-", " ")


def _queues(pairs: Iterable[tuple[K, T]]) -> dict[K, deque[T]]:
    return {name: deque(group) for name, group in _grouped(pairs).items()}


def _grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for name, one in pairs:
        groups.setdefault(name, []).append(one)
    return groups
