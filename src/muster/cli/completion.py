"""`muster completion SHELL`: a static script; only the names of tasks, plans, agents and workers are asked for
while you type."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from muster.cli.context import connect, project_of
from muster.cli.output import ref_of
from muster.cli.surface import Argument, CliCommand, Option, global_options, surface


class _Shells(tuple[str, ...]):
    """What a person may ask for; the scripts may ask for names as well."""

    def __contains__(self, word: object) -> bool:
        return super().__contains__(word) or word in NAMES


SHELLS = _Shells(("bash", "zsh", "fish"))
REFS_MAX = 500
NAMES = ("refs", "plans", "agents", "workers")
"""What the scripts ask for while you type."""
_REFS = ("REF", "REF[#ATTEMPT]", "TASK")
_OF_NAME = {"plan": "plans", "agent": "agents", "worker": "workers"}
_OF_OPTION = {"PLAN": "plans", "AGENT": "agents", "REF": "refs", "REF,...": "refs"}
_INSTALL = {
    "bash": "muster completion bash > ~/.local/share/bash-completion/completions/muster",
    "zsh": "muster completion zsh > ~/.zfunc/_muster   # with fpath+=(~/.zfunc) before compinit",
    "fish": "muster completion fish > ~/.config/fish/completions/muster.fish",
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints the script. To install it:\n" + "\n".join(
        f"  {line}" for line in _INSTALL.values()
    )
    parser.add_argument("shell", metavar="|".join(SHELLS), choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    if args.shell in NAMES:
        return _names(args)
    commands = surface()
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](commands), end="")
    return 0


def _names(args: argparse.Namespace) -> int:
    """What the scripts ask for, one name in each line."""
    if args.shell == "agents":
        from muster.app.settings import load_config

        print(*sorted(load_config(project_of(args).root).agents), sep="\n")
        return 0
    with connect(args) as context:
        if args.shell == "refs":
            found = [ref_of(task) for task in context.api.get("/api/v1/agent-tasks", {"limit": REFS_MAX})]
        elif args.shell == "plans":
            found = [plan["name"] for plan in context.api.get("/api/v1/plans")]
        else:
            found = [worker["id"] for worker in context.api.get("/api/v1/workers")]
    for name in found:
        print(name)
    return 0


def _nodes(commands: Sequence[CliCommand]) -> list[CliCommand]:
    return [node for command in commands for node in command.walk()]


def _words(node: CliCommand) -> list[str]:
    """What may stand behind a command: its verbs, its options, the choices of its arguments."""
    options = [name for option in (*node.options, *global_options()) for name in option.names]
    choices = [choice for argument in node.arguments for choice in argument.choices]
    return [*(verb.path[-1] for verb in node.verbs), *choices, *options, "--help"]


def _takes(node: CliCommand) -> str:
    """Which names stand behind a command: one of NAMES, or nothing."""
    for argument in node.arguments:
        if argument.name in _REFS or argument.name.startswith("REF"):
            return "refs"
        if argument.name == "NAME" and node.path[0] in _OF_NAME:
            return _OF_NAME[node.path[0]]
    return ""


def _named_options(nodes: Sequence[CliCommand]) -> dict[str, list[str]]:
    """The options whose values are names, by what they name.  `--plan` means the same everywhere."""
    found: dict[str, list[str]] = {}
    for option in (option for node in nodes for option in node.options):
        kind = _OF_OPTION.get(option.metavar)
        if kind is not None:
            known = found.setdefault(kind, [])
            known += [name for name in option.names if name not in known]
    return found


def _takes_files(arguments: Sequence[Argument]) -> bool:
    return any(argument.name in ("PLAN", "FILE", "PATH") for argument in arguments)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _bash(commands: Sequence[CliCommand]) -> str:
    nodes = _nodes(commands)
    names = " ".join(command.path[0] for command in commands)
    paths = " ".join(f"'{' '.join(node.path)}'" for node in nodes)
    cases = [
        f"        '{' '.join(node.path)}') words={_quoted(' '.join(_words(node)))}"
        f"{f' names={_takes(node)}' if _takes(node) else ''}"
        f"{' files=1' if _takes_files(node.arguments) else ''} ;;"
        for node in nodes
    ]
    values = [
        f"        {'|'.join(option.names)}) words={_quoted(' '.join(option.choices))} names= files= ;;"
        for option in _with_choices(nodes)
    ]
    values += [
        f"        {'|'.join(options)}) words= names={kind} files= ;;"
        for kind, options in _named_options(nodes).items()
    ]
    return "\n".join(
        [
            "# bash completion for muster",
            "_muster() {",
            "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}",
            "    local at= word path words= names= files=",
            '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            '        case "$word" in -*) continue ;; esac',
            f"        for path in {paths}; do",
            '            if [ "${at:+$at }$word" = "$path" ]; then at=$path; break; fi',
            "        done",
            "    done",
            '    case "$at" in',
            f"        '') words={_quoted(names + ' --version --help')} ;;",
            *cases,
            "    esac",
            '    case "$prev" in',
            *values,
            "    esac",
            '    if [ -n "$names" ] && [[ $cur != -* ]]; then',
            '        words="$words $(muster completion $names 2>/dev/null)"',
            "    fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
            '    if [ -n "$files" ] && [[ $cur != -* ]]; then COMPREPLY+=($(compgen -f -- "$cur")); fi',
            "}",
            "complete -o default -F _muster muster musterd",
            "",
        ]
    )


def _with_choices(nodes: Sequence[CliCommand]) -> list[Option]:
    found: dict[tuple[str, ...], Option] = {}
    for option in (*global_options(), *(option for node in nodes for option in node.options)):
        if option.choices:
            found.setdefault(option.names, option)
    return list(found.values())


def _zsh(commands: Sequence[CliCommand]) -> str:
    nodes = _nodes(commands)
    top = [_described(command.path[0], command.help) for command in commands]
    cases = []
    for node in nodes:
        described = [_described(verb.path[-1], verb.help) for verb in node.verbs]
        described += [_described(choice, "") for argument in node.arguments for choice in argument.choices]
        described += [
            _described(name, option.help)
            for option in (*node.options, *global_options())
            for name in option.names
        ]
        names = f"names={_takes(node)};" if _takes(node) else ""
        files = "files=1;" if _takes_files(node.arguments) else ""
        cases.append(f"        '{' '.join(node.path)}') {names}{files} found=({' '.join(described)}) ;;")
    return "\n".join(
        [
            "#compdef muster musterd",
            "_muster() {",
            "    local at='' word names='' files=''",
            "    local -a found known",
            f"    known=({' '.join(_quoted(' '.join(node.path)) for node in nodes)})",
            "    for word in ${words[2,CURRENT-1]}; do",
            "        [[ $word == -* ]] && continue",
            '        (( ${known[(Ie)${at:+$at }$word]} )) && at="${at:+$at }$word"',
            "    done",
            '    case "$at" in',
            f"        '') found=({' '.join(top)}) ;;",
            *cases,
            "    esac",
            '    case "$words[CURRENT-1]" in',
            *(
                f"        {'|'.join(option.names)}) names='' files='' found=({' '.join(option.choices)}) ;;"
                for option in _with_choices(nodes)
            ),
            *(
                f"        {'|'.join(options)}) names={kind} files='' found=() ;;"
                for kind, options in _named_options(nodes).items()
            ),
            "    esac",
            "    (( $#found )) && _describe 'muster' found",
            "    if [[ -n $names && $PREFIX != -* ]]; then",
            '        compadd -- ${(f)"$(muster completion $names 2>/dev/null)"}',
            "    fi",
            "    if [[ -n $files ]]; then _files; fi",
            "}",
            'if [ "$funcstack[1]" = "_muster" ]; then _muster "$@"; else compdef _muster muster musterd; fi',
            "",
        ]
    )


def _described(name: str, text: str) -> str:
    return _quoted(f"{name}:{text.replace(':', '.')}") if text else _quoted(name)


def _fish(commands: Sequence[CliCommand]) -> str:
    paths = " ".join(_quoted(" ".join(node.path)) for node in _nodes(commands))
    lines = [
        "# fish completion for muster",
        f"set -g __muster_paths {paths}",
        "function __muster_path",
        "    set -l at",
        "    for word in (commandline -opc)[2..]",
        '        contains -- "$at $word" " "$__muster_paths; and set at "$at $word"',
        "    end",
        '    string trim -- "$at"',
        "end",
        "function __muster_at",
        '    test "$(__muster_path)" = "$argv"',
        "end",
        "function __muster_under",
        '    string match -q -- "$argv *" "$(__muster_path) "',
        "end",
    ]
    for program in ("muster", "musterd"):
        lines.append(f"complete -c {program} -f")
        for command in commands:
            lines.append(_fish_line(program, "__muster_at", command.path[0], command.help))
            for node in command.walk():
                lines += _fish_node(program, node)
        lines += [_fish_option(program, "", option) for option in global_options()]
    return "\n".join([*lines, ""])


def _fish_node(program: str, node: CliCommand) -> list[str]:
    path = " ".join(node.path)
    lines = [_fish_line(program, f"__muster_at {path}", verb.path[-1], verb.help) for verb in node.verbs]
    for argument in node.arguments:
        lines += [_fish_line(program, f"__muster_at {path}", choice, "") for choice in argument.choices]
    under = f"__muster_under {path}"
    if kind := _takes(node):
        lines.append(f"complete -c {program} -n {_quoted(under)} -a '(muster completion {kind} 2>/dev/null)'")
    if _takes_files(node.arguments):
        lines.append(f"complete -c {program} -n {_quoted(under)} -F")
    return lines + [_fish_option(program, under, option) for option in node.options]


def _fish_line(program: str, condition: str, word: str, text: str) -> str:
    described = f" -d {_fish_quoted(text)}" if text else ""
    return f"complete -c {program} -n {_quoted(condition)} -a {_quoted(word)}{described}"


def _fish_option(program: str, condition: str, option: Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    when = f" -n {_fish_quoted(condition)}" if condition else ""
    value = " -r" if option.metavar else ""
    if option.choices:
        value = f" -x -a {_quoted(' '.join(option.choices))}"
    elif kind := _OF_OPTION.get(option.metavar):
        value = f" -x -a '(muster completion {kind} 2>/dev/null)'"
    return f"complete -c {program}{when} {names}{value} -d {_fish_quoted(option.help)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
