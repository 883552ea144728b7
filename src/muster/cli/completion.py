"""`muster completion SHELL`: a script that asks `muster completion words` what may stand where you type."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from muster.cli.context import connect, project_of
from muster.cli.main import COMMANDS
from muster.cli.output import ref_of
from muster.cli.surface import CliCommand, Option, command_of, global_options
from muster.model.errors import BadInput


class _Shells(tuple[str, ...]):
    """What a person may ask for; the scripts ask for words."""

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or word == WORDS


SHELLS = _Shells(("bash", "zsh", "fish"))
WORDS = "words"
REFS_MAX = 500
_OF_NAME = {"plan": "plans", "agent": "agents", "worker": "workers"}
_OF_OPTION = {"PLAN": "plans", "AGENT": "agents", "REF": "refs", "REF,...": "refs"}
_INSTALL = {
    "bash": "muster completion bash > ~/.local/share/bash-completion/completions/muster",
    "zsh": "muster completion zsh > ~/.zfunc/_muster   # with fpath+=(~/.zfunc) before compinit",
    "fish": "muster completion fish > ~/.config/fish/completions/muster.fish",
}
_BASH = r"""# bash completion for muster
_muster() {
    local IFS=$'\n'
    COMPREPLY=($(muster completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _muster muster musterd
"""
_ZSH = r"""#compdef muster musterd
_muster() {
    local -a found
    found=(${(f)"$(muster completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    found=("${(@)found//:/\\:}")
    found=("${(@)found/$'\t'/:}")
    if (( $#found )); then _describe 'muster' found; else _files; fi
}
if [ "$funcstack[1]" = "_muster" ]; then _muster "$@"; else compdef _muster muster musterd; fi
"""
_FISH = r"""# fish completion for muster
function __muster_words
    set -l now (commandline -ct)
    set -l found (muster completion words -- (commandline -opc)[2..] "$now" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$now"
    end
end
complete -c muster -f -a '(__muster_words)'
complete -c musterd -f -a '(__muster_words)'
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints the script. To install it:\n" + "\n".join(
        f"  {line}" for line in _INSTALL.values()
    )
    parser.add_argument("shell", metavar="|".join(SHELLS), choices=SHELLS)
    parser.add_argument("line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    if args.shell != WORDS:
        if args.line:
            raise BadInput(
                f"muster completion knows no argument {args.line[0]!r}", "muster completion --help"
            )
        print({"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[args.shell], end="")
        return 0
    *before, current = args.line or [""]
    for word, text in _words(args, before, current):
        if word.startswith(current):
            print(f"{word}\t{text}" if text else word)
    return 0


def _words(args: argparse.Namespace, before: Sequence[str], current: str) -> Iterator[tuple[str, str]]:
    """What may stand behind `before`, each with what it means."""
    node = _node(before)
    options = [*(node.options if node else ()), *global_options()]
    last = next((o for o in options if o.metavar and before and before[-1] in o.names), None)
    if last is not None:
        yield from ((word, "") for word in last.choices or _names(args, _OF_OPTION.get(last.metavar, "")))
    elif current.startswith("-"):
        yield from _flags(options)
    elif node is None:
        yield from ((name, text) for name, (_, text) in COMMANDS.items())
    else:
        yield from ((verb.path[-1], verb.help) for verb in node.verbs)
        for argument in node.arguments:
            yield from ((choice, "") for choice in argument.choices)
        yield from ((name, "") for name in _names(args, _kind(node)))
        if not node.verbs and not node.arguments:
            yield from _flags(options)


def _flags(options: Sequence[Option]) -> Iterator[tuple[str, str]]:
    yield from ((name, option.help) for option in options for name in option.names)
    yield from (("--help", ""), ("--version", ""))


def _node(before: Sequence[str]) -> CliCommand | None:
    """The command, or its verb, that was typed; None before there is one."""
    node = None
    for word in before:
        if node is None:
            node = command_of(word) if word in COMMANDS else None
        else:
            node = next((verb for verb in node.verbs if verb.path[-1] == word), node)
    return node


def _kind(node: CliCommand) -> str:
    """Which names stand behind a command."""
    for argument in node.arguments:
        if argument.name == "TASK" or argument.name.startswith("REF"):
            return "refs"
        if argument.name == "NAME" and node.path[0] in _OF_NAME:
            return _OF_NAME[node.path[0]]
    return ""


def _names(args: argparse.Namespace, kind: str) -> list[str]:
    if kind == "agents":
        from muster.app.settings import load_config

        return sorted(load_config(project_of(args).root).agents)
    if not kind:
        return []
    with connect(args) as context:
        if kind == "refs":
            return [ref_of(task) for task in context.api.get("/api/v1/agent-tasks", {"limit": REFS_MAX})]
        if kind == "plans":
            return [plan["name"] for plan in context.api.get("/api/v1/plans")]
        return [worker["id"] for worker in context.api.get("/api/v1/workers")]
