"""The whole command line as data, read from the parsers, for completion, the manual page and the reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from muster.cli.main import COMMANDS, GLOBALS, Parser, load


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    metavar: str
    """Empty for a flag."""
    help: str
    choices: tuple[str, ...]
    required: bool


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    """As the usage line shows it, `REF` for one."""
    many: bool
    optional: bool
    help: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CliCommand:
    path: tuple[str, ...]
    """`("task", "list")`."""
    help: str
    description: str
    arguments: tuple[Argument, ...]
    options: tuple[Option, ...]
    verbs: tuple[CliCommand, ...]

    def walk(self) -> Iterator[CliCommand]:
        yield self
        for verb in self.verbs:
            yield from verb.walk()

    def usage(self) -> str:
        """`muster task show REF [--json]`, without the options that all commands have."""
        words = ["muster", *self.path]
        if self.verbs:
            words.append("VERB")
        for option in self.options:
            text = " ".join(filter(None, (option.names[-1], option.metavar)))
            words.append(text if option.required else f"[{text}]")
        for argument in self.arguments:
            text = f"{argument.name}..." if argument.many else argument.name
            words.append(f"[{text}]" if argument.optional else text)
        return " ".join(words)


def surface() -> tuple[CliCommand, ...]:
    """All commands in the order of `muster --help`.  Imports every command's module."""
    return tuple(map(command_of, COMMANDS))


def command_of(name: str) -> CliCommand:
    module, line = COMMANDS[name]
    parser = Parser(prog=f"muster {name}", description=line)
    load(name, module).add(parser)
    return _command(parser, (name,), line)


def global_options() -> tuple[Option, ...]:
    return tuple(
        Option(names, metavar, text, choices, required=False) for names, metavar, text, choices in GLOBALS
    )


def _command(parser: argparse.ArgumentParser, path: tuple[str, ...], line: str) -> CliCommand:
    arguments: list[Argument] = []
    options: list[Option] = []
    verbs: list[CliCommand] = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        if isinstance(action, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in action._choices_actions}
            verbs += [
                _command(below, (*path, name), lines.get(name, "")) for name, below in action.choices.items()
            ]
        elif action.option_strings:
            options.append(_option(action))
        else:
            arguments.append(_argument(action))
    return CliCommand(path, line, parser.description or "", tuple(arguments), tuple(options), tuple(verbs))


def _option(action: argparse.Action) -> Option:
    flag = action.nargs == 0
    metavar = "" if flag else _metavar(action)
    return Option(tuple(action.option_strings), metavar, _help(action), _choices(action), action.required)


def _argument(action: argparse.Action) -> Argument:
    many = action.nargs in ("*", "+", argparse.REMAINDER)
    optional = action.nargs in ("?", "*", argparse.REMAINDER)
    return Argument(_metavar(action), many, optional, _help(action), _choices(action))


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, getattr(action, "known", action.choices or ())))
