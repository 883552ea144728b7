"""Taking work in: plans and their tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from muster.engine.groups import new_below, wait_for, with_groups
from muster.engine.inputs import Inputs
from muster.engine.new_names import refuse_unfit
from muster.engine.policy import Policy
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Enqueued
from muster.model.edits import values_of
from muster.model.errors import BadInput, Conflict, Overloaded
from muster.model.graph import find_cycle
from muster.model.input_secrets import secrets_in
from muster.model.moves.waiting import enqueued
from muster.model.names import free_name, short_slug
from muster.model.people import ATTEMPT, THE_FILE
from muster.model.profiles import Chooser, by_words, required
from muster.model.rows import LaneKey, NewTask, Plan
from muster.model.states import FailedDependency, TaskStatus
from muster.model.task import Task, TaskFields, waits_for_first
from muster.ports.found_rows import Existing
from muster.ports.locks import PLANS, Locks, locks

NUMBERED_MAX = 9
"""A tenth task of the same words gets a long one: looking for the next free one would take longer each time."""
PAGE_TASKS = 500
"""So many new tasks are held in memory before they are written; the transaction still takes all or none."""


class _Kept(NamedTuple):
    """What the store has of a new task beside what was said of it."""

    task_id: int
    body_hash: str
    """Of what its idempotency key stands for."""
    sealed: str
    """The secrets of its input context."""


class Enqueuer:
    def __init__(self, policy: Policy, inputs: Inputs) -> None:
        self.policy = policy
        self.inputs = inputs
        self._chooser = Chooser(policy.profiles)

    async def enqueue(self, view: View, command: c.Enqueue) -> Enqueued:
        """Adds what the plan does not hold yet.  Raises BadInput and adds nothing where the tasks do not fit.

        A box that was ticked in the file since completes its task, by a person's word, unless an agent may have
        ticked it.
        """
        await view.flush()  # what a neighbour in this batch has added or completed is to be seen
        found = await self._plan_for(view, command)
        known, others = await self._look_up(view, command, found)
        if (known or others) and await view.tx.lock(_decided_on(command, known, others)):
            known, others = await self._look_up(view, command, found)
        self._check(command, known.keys() | others.keys())
        secrets = _secrets_of(command, known)
        await self._check_parents(view, command)
        hashes = self._hashes(command, secrets)
        given = await self._given_before(view, command, found, hashes)
        # What has no key of its own stands below a group as well.
        command = with_groups(await self._with_keys(view, command, found, given.keys()))
        _refuse_cycle(command)
        fresh = {at: one for at, one in enumerate(command.tasks) if one.key not in known and at not in given}
        refuse_unfit(None if found else command.plan, fresh)
        # What comes as a file says itself what its groups wait for.
        below = {} if command.of_file else await new_below(view, fresh.values(), known, others)
        numbers, sealed = await self._seal(view, fresh, secrets) if secrets else ((), {})
        await self._make_room(view, sum(not spec.done for spec in fresh.values()))
        plan = found or await self._new_plan(view, command)
        if command.order not in ("", plan.task_order):
            plan = replace(plan, task_order=command.order)
            await view.tx.update_plan(plan)
        changed, completed, unproved = await self._compare(view, command, known) if known else ([], [], [])
        numbers = numbers or await view.tx.take_ids(len(fresh), view.now.wall_ms)
        ids = given | dict(zip(fresh, numbers, strict=True))
        parents = known | others
        by_key = {key: task.id for key, task in parents.items()}
        by_key |= {spec.key: ids[at] for at, spec in fresh.items() if spec.key is not None}
        done = {key for key, task in parents.items() if task.done} | set(completed)
        done |= {spec.key for spec in fresh.values() if spec.done and spec.key is not None}
        _open_groups(fresh, done)
        for number, (at, spec) in enumerate(fresh.items(), 1):
            kept = _Kept(ids[at], hashes.get(at, ""), sealed.get(at, ""))
            await self._add(view, command, plan, spec, kept, ids=by_key, done=done)
            if number % PAGE_TASKS == 0:
                await view.flush()
        for at, spec in fresh.items() if parents else ():
            self._note_failed_parents(view, spec, ids[at], parents)
        await wait_for(view, below, by_key, command.actor)
        return Enqueued(
            plan=plan.name,
            plan_id=plan.id,
            added=sum(not spec.is_group for spec in fresh.values()),
            groups_added=sum(spec.is_group for spec in fresh.values()),
            existing=sum(not spec.is_group for at, spec in enumerate(command.tasks) if at not in fresh),
            changed=tuple(changed),
            completed=tuple(completed),
            unproved=tuple(unproved),
            task_ids=tuple(
                ids[at] if at in ids else by_key[spec.key or ""] for at, spec in enumerate(command.tasks)
            ),
        )

    async def _look_up(
        self, view: View, command: c.Enqueue, plan: Plan | None
    ) -> tuple[dict[str, Existing], dict[str, Existing]]:
        """What is there of all that the command names: in its plan by key, and elsewhere by number."""
        names = _names(command)
        known = await view.tx.existing(plan.id, names) if plan and names else {}
        return known, await self._by_number(view, command, known)

    async def _with_keys(
        self, view: View, command: c.Enqueue, plan: Plan | None, given: Collection[int]
    ) -> c.Enqueue:
        """With a key for each new task that has none: the first words of its title, numbered where taken."""
        bare = {
            at: short_slug(spec.title)
            for at, spec in enumerate(command.tasks)
            if spec.key is None and at not in given
        }
        if not bare:
            return command
        taken = await view.tx.taken_keys(plan.id, set(bare.values())) if plan is not None else set[str]()
        taken |= {spec.key for spec in command.tasks if spec.key is not None}
        tasks, numbered = list(command.tasks), set[str]()
        for at, key in bare.items():
            chosen = key
            if key in taken:  # most are not: those with numbers are looked up for these alone
                names = _numbered(key)
                if plan is not None and key not in numbered:
                    numbered.add(key)
                    taken.update(await view.tx.taken_keys(plan.id, names))
                free = next((name for name in names if name not in taken), None)
                chosen = free or f"{key}-{(await view.tx.take_ids(1, view.now.wall_ms))[0]}"
            taken.add(chosen)
            tasks[at] = replace(tasks[at], key=chosen)
        return replace(command, tasks=tuple(tasks))

    async def _check_parents(self, view: View, command: c.Enqueue) -> None:
        """Raises NotFound where a task names a parent that is not there."""
        parents = {spec.parent_task_id for spec in command.tasks if spec.parent_task_id is not None}
        await view.load(parents)
        for parent_id in sorted(parents):
            view.task(parent_id)

    def _hashes(self, command: c.Enqueue, secrets: Mapping[int, Mapping[str, str]]) -> dict[int, str]:
        """What idempotency keys stand for, by the places of their tasks in the command."""
        return {
            at: self.inputs.body_hash(spec, secrets.get(at, {}))
            for at, spec in enumerate(command.tasks)
            if spec.idempotency_key is not None
        }

    async def _seal(
        self, view: View, fresh: dict[int, c.Spec], secrets: Mapping[int, Mapping[str, str]]
    ) -> tuple[Sequence[int], dict[int, str]]:
        """The numbers of new tasks, and the secrets of some, sealed for these; `fresh` has stars in their place.

        Raises what `Inputs.of_task` raises: nothing was changed so far.
        """
        numbers = await view.tx.take_ids(len(fresh), view.now.wall_ms)
        sealed = {}
        for (at, spec), number in zip(list(fresh.items()), numbers, strict=True):
            if found := secrets.get(at):
                context, sealed[at] = await self.inputs.of_task(view.tx, number, spec.input_context, found)
                fresh[at] = replace(spec, input_context=context)
        return numbers, sealed

    async def _given_before(
        self, view: View, command: c.Enqueue, plan: Plan | None, hashes: Mapping[int, str]
    ) -> dict[int, int]:
        """Tasks, by their place in the command, that an earlier request with the same idempotency key has added.

        Raises Conflict where that one asked for something else, BadInput where one key is given twice.
        """
        given: dict[int, int] = {}
        seen: set[str] = set()
        for at, spec in enumerate(command.tasks):
            if spec.idempotency_key is None:
                continue
            if spec.idempotency_key in seen:
                raise BadInput(f"idempotency key {spec.idempotency_key} is given twice; nothing was added")
            seen.add(spec.idempotency_key)
            earlier = await view.tx.idempotent(spec.idempotency_key)
            if earlier is None:
                continue
            body_hash, task_id = earlier
            there = [task.plan_id for task in await view.tx.tasks([task_id])]
            # Empty: a build before the first release has taken it in, and hashed other fields.
            same = body_hash in ("", hashes[at]) and there in ([], [plan and plan.id])
            if not same:
                raise Conflict(
                    f"idempotency key {spec.idempotency_key} was used for another task ({task_id}); "
                    "nothing was added",
                    "use a new key, or send the same body",
                )
            given[at] = task_id
        return given

    async def _compare(
        self, view: View, command: c.Enqueue, known: Mapping[str, Existing]
    ) -> tuple[list[str], list[str], list[str]]:
        """Keys: their text differs from what is kept; a tick in the file has completed them since; a tick proves
        nothing."""
        changed: list[str] = []
        completed: list[str] = []
        unproved: list[str] = []
        groups: dict[str, int] = {}
        for spec in command.tasks:
            task = known.get(spec.key) if spec.key is not None else None
            if task is None or spec.key is None:
                continue
            if spec.done and spec.is_group and not task.done:
                groups[spec.key] = task.id
            elif (
                spec.done
                and not task.done
                and (ticked := await self._tick(view, command, task.id)) is not None
            ):
                (completed if ticked else unproved).append(spec.key)
            if (task.title, task.description, task.agent) != (spec.title, spec.description, spec.agent):
                changed.append(spec.key)
        if groups:
            await view.settle()  # one whose last task was ticked as well has ended by itself
            await view.load(groups.values())
            unproved += [key for key, number in groups.items() if not view.task(number).final]
        return changed, completed, unproved

    def _note_failed_parents(
        self, view: View, spec: c.Spec, task_id: int, parents: Mapping[str, Existing]
    ) -> None:
        if spec.on_failed is not FailedDependency.BLOCK:
            for parent in spec.depends_on:
                if parent in parents and parents[parent].failed:
                    view.note_failed(parents[parent].id, task_id)

    async def _by_number(
        self, view: View, command: c.Enqueue, known: Mapping[str, Existing]
    ) -> dict[str, Existing]:
        """Dependencies that are no keys of the plan but numbers of tasks, in whatever plan."""
        keys = {spec.key for spec in command.tasks} | known.keys()
        names = {name for spec in command.tasks for name in spec.depends_on if name not in keys}
        if not names:
            return {}
        numbers = {int(name): name for name in names if name.isascii() and name.isdigit() and len(name) < 17}
        found = await view.tx.existing_ids(numbers.keys())
        return {numbers[task.id]: task for task in found}

    async def _make_room(self, view: View, count: int) -> None:
        """Raises Overloaded where more would wait than the workspace may hold."""
        waiting = await view.tx.make_room(count, self.policy.waiting_max)
        if waiting is not None:
            raise Overloaded(
                f"{waiting} tasks wait already and at most "
                f"{self.policy.waiting_max} may; none of the {count} was added",
                "let the crew catch up (muster status), or raise [task] waiting in muster.toml",
            )

    async def _plan_for(self, view: View, command: c.Enqueue) -> Plan | None:
        """None where it is a new one, and nobody else adds one meanwhile."""
        found = await self.find_plan(view, command)
        if found is None and await view.tx.lock(locks(PLANS)):
            found = await self.find_plan(view, command)
        return found

    async def find_plan(self, view: View, command: c.Enqueue) -> Plan | None:
        if command.source is not None:
            return await view.tx.plan_by_source(command.source)
        return await view.tx.plan_by_name(command.plan)

    async def _new_plan(self, view: View, command: c.Enqueue) -> Plan:
        taken = await view.tx.plan_names()
        (number,) = await view.tx.take_ids(1, view.now.wall_ms)
        plan = Plan(
            id=number,
            workspace_id=view.tx.workspace_id,
            name=free_name(command.plan, taken),
            source=command.source,
            created_at_ms=view.now.wall_ms,
            ticked_event_id=0,
        )
        await view.tx.add_plan(plan)
        return plan

    def _check(self, command: c.Enqueue, known: AbstractSet[str]) -> None:
        edges: dict[str, tuple[str, ...]] = {}
        for spec in command.tasks:
            if spec.key is None:
                continue
            if spec.key in edges:
                raise BadInput(f"task {spec.key} is given twice; nothing was added")
            edges[spec.key] = spec.depends_on
        for spec in command.tasks:
            if not spec.done and not spec.is_group:
                self.policy.refuse_bare_script(spec)
            named = [("depends on", parent) for parent in spec.depends_on]
            if spec.parent is not None:
                named.append(("belongs to", spec.parent))
            for verb, parent in named:
                if parent not in edges and parent not in known:
                    raise BadInput(
                        f"task {spec.key or spec.title} {verb} {parent}, which does not exist; "
                        "nothing was added"
                    )
        cycle = find_cycle({spec.key: (spec.parent,) for spec in command.tasks if spec.key and spec.parent})
        if cycle is not None:
            raise BadInput(f"tasks belong to each other: {' -> '.join(cycle)}; nothing was added")

    async def _tick(self, view: View, command: c.Enqueue, task_id: int) -> bool | None:
        """Whether its tick completes the task; None where it says nothing of it."""
        await view.load([task_id])
        task = view.task(task_id)
        if task.final and task.status is not TaskStatus.FAILED:
            return None
        if task.generation > 1 and command.watched_ms is None:
            # A retry came after the tick: the box is from the life before.
            return None
        if not await self.proves(view, command, task):
            return False
        view.run(task_id, c.CompleteByPerson(task_id=task_id, actor=ticker(command)))
        return True

    async def proves(self, view: View, command: c.Enqueue, task: Task) -> bool:
        """Whether a tick in the file is a person's word: no agent had the task, or could have made the tick.

        Where the file is watched, that is asked of the time since it was last seen without the tick.
        """
        if command.actor.startswith(ATTEMPT):
            return False
        if (watched_ms := command.watched_ms) is None:
            return not task.epoch and not (command.in_reach and await view.tx.worked_since(task.id))
        had = view.attempt(task.id)
        if had is not None and (had.ended_at_ms is None or had.ended_at_ms >= watched_ms):
            return False
        return not command.in_reach or not await view.tx.worked_after(watched_ms)

    async def _add(
        self,
        view: View,
        command: c.Enqueue,
        plan: Plan,
        spec: c.Spec,
        kept: _Kept,
        *,
        ids: Mapping[str, int],
        done: set[str],
    ) -> None:
        now = view.now
        parents = tuple({ids[parent]: parent in done for parent in spec.depends_on}.items())
        spec = self.policy.filled(self._with_profile(spec))
        made = view.alike.copied(
            spec,
            task_id=kept.task_id,
            plan_id=plan.id,
            actor=command.actor,
            from_file=command.of_file,
            sealed=kept.sealed,
            parents=parents,
            now=now,
        )
        if made is None:
            decision = enqueued(
                spec,
                task_id=kept.task_id,
                workspace_id=view.tx.workspace_id,
                plan_id=plan.id,
                lane_id=await view.tx.lane_id(lane_key(plan.id, spec), now.wall_ms),
                unmet=sum(not met for _, met in parents) if parents else 0,
                actor=command.actor,
                now=now,
                empty=waits_for_first(spec, of_file=command.of_file),
            )
            new = NewTask(
                **values_of(spec, now.wall_ms),
                task_id=kept.task_id,
                input_sealed=kept.sealed,
                key=spec.key,
                parent_task_id=ids[spec.parent] if spec.parent is not None else spec.parent_task_id,
                not_after_ms=spec.ends_at_ms(now.wall_ms),
                from_file=command.of_file,
                created_by=command.actor,
                created_at_ms=now.wall_ms,
                dependencies=parents,
            )
            made = view.alike.keep(spec, decision, new, now)
        decision, new = made
        view.add(decision)
        if spec.idempotency_key is not None:
            await view.tx.add_idempotent(spec.idempotency_key, kept.body_hash, kept.task_id, now.wall_ms)
        view.insert(new, decision.task)

    def _with_profile(self, spec: c.Spec) -> c.Spec:
        """With the kind of agent that its words ask for, where it is left to them."""
        asks = bool(spec.capabilities or spec.target)
        usual = self.policy.usual_agent
        if (
            spec.is_group
            or not self.policy.profiles
            or not by_words(spec.agent, spec.profile, asks=asks, usual=usual)
        ):
            return spec
        choice = self._chooser.choose(spec.title, spec.description, f"{spec.epic} {spec.feature}")
        return replace(spec, profile=choice.profile)


def _decided_on(command: c.Enqueue, known: Mapping[str, Existing], others: Mapping[str, Existing]) -> Locks:
    """Tasks that are there already: those that new ones are to wait for, which must not end meanwhile, and those
    that a tick may end."""
    fresh = {spec.key for spec in command.tasks if spec.key not in known}
    names = {name for spec in command.tasks if spec.key in fresh for name in spec.depends_on}
    names |= {spec.key for spec in command.tasks if spec.key and spec.parent and spec.parent in fresh}
    above = {spec.parent for spec in command.tasks if spec.parent and spec.key in fresh}
    ticked = {spec.key for spec in command.tasks if spec.done}
    ending = frozenset(task.id for key, task in known.items() if key in ticked and not task.done)
    # A group ends with a task below it that is done already.
    ending |= {task.id for key, task in known.items() if key in above and not task.done}
    waited_for = {task.id for found in (known, others) for name, task in found.items() if name in names}
    return Locks(tasks=ending | waited_for, ending=ending)


def _refuse_cycle(command: c.Enqueue) -> None:
    """Raises BadInput."""
    cycle = find_cycle({spec.key: spec.depends_on for spec in command.tasks if spec.key and spec.depends_on})
    if cycle is not None:
        raise BadInput(f"dependencies form a cycle: {' -> '.join(cycle)}; nothing was added")


def _open_groups(fresh: dict[int, c.Spec], done: set[str]) -> None:
    """A group is done with what is below it, whatever its box says."""
    for at, spec in reversed(fresh.items()):
        if spec.is_group and spec.done and not done.issuperset(spec.depends_on):
            fresh[at] = replace(spec, done=False)
            done.discard(spec.key or "")


def _numbered(key: str) -> list[str]:
    return [key, *(f"{key}-{number}" for number in range(2, NUMBERED_MAX + 1))]


def _names(command: c.Enqueue) -> set[str]:
    """All that the command calls tasks of its plan: looking up these, adding to a long plan costs no more."""
    names = {spec.key for spec in command.tasks if spec.key is not None}
    for spec in command.tasks:
        if spec.depends_on:
            names.update(spec.depends_on)
        if spec.parent is not None:
            names.add(spec.parent)
    return names


def sought_keys(command: c.Enqueue) -> set[str]:
    """Those that are looked up in the plan: what it names, and what new tasks without a key may be called."""
    bare = {short_slug(spec.title) for spec in command.tasks if spec.key is None}
    return _names(command).union(*map(_numbered, bare))


def _secrets_of(command: c.Enqueue, known: Collection[str]) -> dict[int, dict[str, str]]:
    """Those of input contexts, by the places of their tasks; what the plan holds already is not looked at.

    Raises BadInput.
    """
    found: dict[int, dict[str, str]] = {}
    for at, spec in enumerate(command.tasks):
        if spec.input_context and (spec.key not in known or spec.idempotency_key is not None):
            try:
                secrets = secrets_in(spec.input_context)
            except BadInput as error:
                error.pointer = f"/tasks/{at}{error.pointer}"
                raise
            if secrets:
                found[at] = secrets
    return found


def ticker(command: c.Enqueue) -> str:
    """Whose word the ticks of a plan are."""
    return command.actor if command.source is None else THE_FILE


def lane_key(plan_id: int, fields: TaskFields, pinned_agent: str | None = None) -> LaneKey:
    asks = fields.capabilities or fields.target
    return LaneKey(
        plan_id,
        pinned_agent or fields.agent or "",
        required(fields.capabilities, fields.target) if asks else (),
        fields.profile or "",
        fields.limit_key or "",
    )
