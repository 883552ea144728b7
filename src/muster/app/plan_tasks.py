"""The tasks of a plan's file as the engine takes them in: each with who is to do it, in the plan's order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from muster.config.settings import Config
from muster.model.edits import OF_THE_FILE, PlanDocument, PlanTask
from muster.model.errors import BadPlan
from muster.model.json_value import Json
from muster.model.profiles import Choice, Chooser, by_words
from muster.model.states import FILE_ORDER, FREE, PHASES
from muster.plans.problems import Problems

ORDER_WORDS: Mapping[str, str] = {
    FILE_ORDER: "each task after the one before it",
    PHASES: "heading after heading, all below one at once",
    FREE: "all at once, but for what `after=` says",
}

Others = Callable[[], Collection[str]]
"""The names of agents beside those that are configured here, as `engine.known_agents` has them; asked where a
task names what is not configured."""
UNKNOWN = "which is neither configured nor offered by a worker or program"


class Chosen(NamedTuple):
    """An order of tasks, and whose word that is."""

    order: str
    why: str = ""
    """Empty where there is nothing to put in order."""
    guessed: bool = False
    """Nothing has said it."""

    @property
    def kept(self) -> str:
        """What the plan goes on in where nothing else says it."""
        return self.order if self.why else ""

    @property
    def words(self) -> str:
        return f"{self.order}: {ORDER_WORDS[self.order]}; {self.why}"


def choose_order(document: PlanDocument, config: Config, kept: str, said: str | None = None) -> Chosen:
    """`kept` is how the plan went on so far, `said` what a person says now."""
    if said is not None:
        return Chosen(said, "a person said so")
    if document.order:
        return Chosen(document.order, "its front matter says so")
    if config.plan.order is not None:
        return Chosen(config.plan.order, "`[plan] order` of muster.toml says so")
    if kept:
        return Chosen(kept, "as it was begun")
    if document.dialect_order:
        says = f": {document.dialect_says}" if document.dialect_says else ""
        return Chosen(document.dialect_order, f"it looks like {document.dialect}{says}")
    tasks = [task for task in document.tasks if not task.is_group]
    if any(task.depends_on for task in tasks):
        return Chosen(FREE, "its `after=` says what waits for what")
    if len(tasks) < 2:
        return Chosen(FREE)
    return Chosen(FILE_ORDER, "nothing in it says what waits for what", guessed=True)


class Assigned(NamedTuple):
    task: PlanTask
    agent: str | None
    """The one agent that may do it; None: any that will do."""
    profile: str | None
    choice: Choice | None
    """How its words led to the profile."""


def assign(document: PlanDocument, config: Config) -> list[Assigned]:
    """An agent that is named goes before all else, then what the task asks for, then the usual agent of
    `muster.toml`; only what is left is matched by its words."""
    chooser = Chooser(config.profiles)
    found = []
    for task in document.tasks:
        if task.is_group:
            found.append(Assigned(task, None, None, None))
            continue
        agent, choice = _agent_of(task, config), None
        if by_words(task.agent, task.profile, asks=_asks(task), usual=config.default_agent):
            choice = chooser.choose(task.title, task.description, f"{task.epic} {task.feature}")
        found.append(Assigned(task, agent, choice.profile if choice else task.profile, choice))
    return found


def _asks(task: PlanTask) -> bool:
    return bool(task.capabilities or task.target)


def _agent_of(task: PlanTask, config: Config) -> str | None:
    return task.agent or (None if _asks(task) or task.profile else config.default_agent)


def task_bodies(document: PlanDocument, config: Config, file: str, others: Others) -> list[Json]:
    """As the API takes them.  Raises BadPlan as `refuse_unmanned`."""
    refuse_unmanned(document, config, file, others)
    return [_task_body(assigned) for assigned in assign(document, config)]


def far_bodies(document: PlanDocument) -> list[Json]:
    """For a server whose settings are not known here: who does a task is chosen there."""
    return [_task_body(Assigned(task, task.agent, task.profile, None)) for task in document.tasks]


def _task_body(assigned: Assigned) -> Json:
    body: Json = to_builtins(replace(assigned.task, agent=assigned.agent, profile=assigned.profile))
    return {name: value for name, value in body.items() if name not in OF_THE_FILE}


def unknown_agents(document: PlanDocument, config: Config, others: Others) -> list[PlanTask]:
    """The tasks that are to be done, and name an agent which nobody has."""
    todo = [task for task in document.tasks if not (task.done or task.is_group)]
    strange = [task for task in todo if task.agent is not None and task.agent not in config.agents]
    known = others() if strange else ()
    return [task for task in strange if task.agent not in known]


def refuse_unmanned(document: PlanDocument, config: Config, file: str, others: Others) -> None:
    """A shell is only asked where that was said: it would run prose as a script.

    Raises BadPlan, with `file:line`, where a task has no agent.
    """
    problems, hints = Problems(file), set()
    known = ", ".join(sorted(config.agents))
    usual_hint = (
        f"write agent=NAME (known: {known}; `shell` runs a task's text as a script), "
        'or add [agents.NAME], or `agent = "NAME"` for all, to muster.toml'
    )
    unknown = {task.key for task in unknown_agents(document, config, others)}
    scripts = {agent.name for agent in config.agents.values() if agent.prompt == "script"}
    for task in document.tasks:
        if task.is_group:
            continue
        agent, name, hint = _agent_of(task, config), f"task {task.key}", usual_hint
        if task.key in unknown:
            problems.add(task.line, f"{name} wants agent {task.agent}, {UNKNOWN}")
        elif task.agent is None and not task.done and not config.general:
            problems.add(task.line, f"{name} names no agent, and none is configured")
        elif agent in scripts and not task.done and not task.description.strip():
            problems.add(task.line, f"{name} has no text, and agent {agent} runs a task's text as a script")
            hint = "write the commands below the task's line, indented"
        else:
            continue
        hints.add(hint)
    if problems:
        raise BadPlan("\n".join([*problems.told(), "nothing was added"]), "; ".join(sorted(hints)))
