"""`muster plan from`: an agent writes a plan from words; a person sees it before anything is added."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NoReturn

from msgspec import to_builtins
from msgspec.structs import replace

from muster.app.agents import agent_of
from muster.app.plan_tasks import choose_order
from muster.app.plan_writer import MATERIAL_CHARS_MAX, PlanProposal, ask_for_plan, writer_of
from muster.app.settings import load_config
from muster.cli.context import project_of
from muster.cli.output import YELLOW, Screen, clean, inert, note, print_json, shell_word, usage_words
from muster.cli.plan_file import STDIN
from muster.cli.plan_import import add_written, source_of, write_plan
from muster.cli.plan_takers import show_takers, takers
from muster.cli.values import agreed
from muster.config.project import Project
from muster.model.edits import PlanDocument
from muster.model.errors import BadInput, Conflict, MusterError, NotFound
from muster.model.json_value import Json
from muster.model.wording import counted
from muster.plans.answers import commands_of
from muster.plans.importers import github
from muster.plans.importers.writing import WrittenPlan
from muster.plans.markdown import parse
from muster.plans.order import ordered

SUFFIX = ".plan.md"
"""Of the name that it gets from its title: no CLI takes such a file for its own instructions."""
NAME_CHARS_MAX = 60
_PATHS = (".md", ".json", ".txt", ".markdown")


def run(args: argparse.Namespace) -> int:
    printed = args.out == STDIN
    if printed and (args.add or args.json):
        raise BadInput("--out - prints the plan alone", "leave out --add and --json, or --out")
    project = project_of(args)
    config = load_config(project.root)
    writer = writer_of(config, args.agent)
    material = _material(args.words)
    if args.out and not printed:
        _refuse_place(Path(args.out), force=args.force)
    agent = agent_of(writer, config, project)
    note(f"{agent.name} writes it: {agent.about}")
    asked = ask_for_plan(
        agent,
        config,
        project.root,
        material,
        timeout_s=float(args.timeout),
        tell=lambda problem: note(f"its answer cannot be taken, so it is asked again: {problem}"),
        watch=_step,
    )
    if asked.plan is None:
        _fail(asked, agent.name, project)
    plan = asked.plan
    if printed:
        print(inert(plan.text) if sys.stdout.isatty() else plan.text, end="")
        for line in (*plan.lost, _spent(asked)):
            note(line)
        return 0
    path = _write(args, plan, project)
    document = parse(plan.text, path.name)
    chosen = choose_order(document, config, "")
    document = replace(ordered(document, chosen.order), name=plan.name)
    if args.json:
        told: Json = {"agent": agent.name, "file": str(path), "answers": len(asked.spent), "lost": plan.lost}
        told |= {"usage": None if asked.usage is None else to_builtins(asked.usage)}
        told |= {"commands": commands_of(document), **takers(document, config, chosen)}
        told |= {"added": add_written(args, plan, path) if args.add else None}
        print_json(told)
        return 0
    shown, screen = _seen_from_here(path), Screen(args.color)
    print(inert(plan.text))
    show_takers(args, document, config, chosen=chosen)
    screen.line(f"Wrote    {clean(shown)}: {counted(plan.tasks, 'task')}; {_spent(asked)}")
    for line in plan.lost:
        screen.line(f"Left out {clean(line.removeprefix('not carried over: '))}")
    _tell_commands(document, screen)
    if args.add or (_is_asked() and agreed(f"add plan {plan.name}?")):
        add_written(args, plan, path)
        print("Next     muster up works on it")
    else:
        print(f"Next     muster run {shell_word(shown)} adds and runs it")
    return 0


def _step(text: str) -> None:
    """Of an agent that may well read for minutes."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(clean(text), file=sys.stderr, flush=True)


def _material(words: str) -> str:
    """Raises BadInput, BadPlan and NotFound."""
    text = words
    if words == STDIN or _is_file(words):
        source = source_of(words)
        text = github.texts(source) or source.file()
    text = inert(text.replace("\r\n", "\n"))
    if not text.strip():
        raise BadInput("there are no words to make a plan from", "muster plan from 'what is to be done'")
    if len(text) > MATERIAL_CHARS_MAX:
        raise BadInput(
            f"more than {MATERIAL_CHARS_MAX:,} characters to make a plan from", "give it a part of that"
        )
    return text


def _is_file(words: str) -> bool:
    """Raises NotFound for what can only be meant as one, BadInput for a folder."""
    path = Path(words)
    try:
        if path.is_dir():
            raise BadInput(f"{words} is a folder", "name a file in it, or write a sentence")
        found = path.exists()
    except (OSError, ValueError):  # too long for a name
        return False
    if not found and words.endswith(_PATHS) and not any(map(str.isspace, words)):
        raise NotFound(f"{words}: no such file", "name one that is there, or write a sentence")
    return found


def _refuse_place(path: Path, *, force: bool) -> None:
    """Before the agent is paid for it."""
    if not path.parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.parent}", "--out FILE in a folder that is there")
    if path.is_dir() or (not force and (path.exists() or path.is_symlink())):
        raise Conflict(
            f"{path} is there already; nobody was asked", "--out FILE for another name, or --force"
        )


def _write(args: argparse.Namespace, plan: WrittenPlan, project: Project) -> Path:
    """Where no name is given, the first that is free."""
    names = (f"{plan.name[:NAME_CHARS_MAX]}{end}{SUFFIX}" for end in _ends())
    for path in [Path(args.out)] if args.out else (project.root / name for name in names):
        try:
            write_plan(path, plan.text, force=args.force)
        except Conflict as error:
            if args.out:
                raise Conflict(f"{error.message}{_kept(plan.text, project)}", error.hint) from None
        except BadInput as error:
            raise BadInput(f"{error.message}{_kept(plan.text, project)}", error.hint) from None
        else:
            return path
    raise AssertionError("there is always another number")


def _ends() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in count(2))


def _kept(text: str, project: Project) -> str:
    """The end of a sentence: where `text` is to be found.  It is for people to read, so nothing hides in it."""
    if not text.strip():
        return "; there is nothing to keep of it"
    data = inert(text.replace("\r\n", "\n")).encode(errors="replace")
    for end in _ends():
        path = project.root / f"plan-answer{end}.txt"
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        except OSError as error:
            return f"; what it wrote cannot be kept: {error.strerror}"
        break
    return f"; what it wrote is kept in {_seen_from_here(path)}"


def _seen_from_here(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _fail(asked: PlanProposal, agent: str, project: Project) -> NoReturn:
    what = counted(len(asked.spent), "answer")
    why = f"{agent} has written no plan ({what}): {asked.problem}{_kept(asked.answer, project)}"
    raise MusterError(f"{why}; {_spent(asked)}", asked.hint)


def _spent(asked: PlanProposal) -> str:
    seconds = f"{sum(one.seconds for one in asked.spent):.0f} s"
    return f"{seconds}, {usage_words(to_builtins(asked.usage))}" if asked.usage else seconds


def _tell_commands(document: PlanDocument, screen: Screen) -> None:
    found = commands_of(document)
    if found:
        screen.line(screen.paint("These commands will run in your project, each to check its task:", YELLOW))
    for key, command in found.items():
        screen.line(f"  {clean(key)}: {clean(command)}")


def _is_asked() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
