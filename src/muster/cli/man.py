"""`muster man`: the manual page, made from the parsers, and the pages of the docs that are made from the code."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from muster import __version__
from muster.cli.main import EXIT_CODES
from muster.cli.surface import Argument, CliCommand, Option, global_options, surface

_ABOUT = "Runs a crew of AI agents on a plan, and never loses a task."
_PAGES = {
    "http": "the HTTP API",
    "sdk": "the Python SDK",
    "mcp": "the tools for agents",
    "settings": "all settings",
}
_REFERENCES = (
    "A task is named plan/key, key, its number, an unambiguous prefix of these, @last (the newest) or "
    "@failed (the "
    "newest that failed). plan/key#2 is its second attempt."
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prints the manual page: muster man | man -l -"
    pages = parser.add_mutually_exclusive_group()
    pages.add_argument("--markdown", action="store_true", help="as a page of the documentation")
    for name, says in _PAGES.items():
        pages.add_argument(
            f"--{name}", action="store_true", help=f"{says} instead, as a page of the documentation"
        )


def run(args: argparse.Namespace) -> int:
    chosen = next((name for name in _PAGES if getattr(args, name)), "")
    if chosen:
        print(_page(chosen), end="")
        return 0
    commands = surface()
    print(markdown(commands) if args.markdown else roff(commands), end="")
    return 0


def _page(name: str) -> str:
    if name == "http":
        from muster.web.app import declared
        from muster.web.openapi import document
        from muster.web.reference_page import chapter

        return chapter(document(declared()))
    if name == "sdk":
        from muster.cli import sdk_page

        return sdk_page.page()
    from muster.cli import reference_pages

    return reference_pages.mcp_page() if name == "mcp" else reference_pages.settings_page()


def markdown(commands: Sequence[CliCommand]) -> str:
    lines = ["# Commands", "", "Every command and its options, made from what it reads."]
    lines += ["", _REFERENCES, "", "## Everywhere", ""]
    lines += _md_options(global_options())
    lines += ["", "| exit code | means |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    for command in commands:
        for node in command.walk():
            lines += _md_command(node)
    return "\n".join([*lines, ""])


def _md_command(node: CliCommand) -> Iterator[str]:
    yield from ("", f"{'##' if len(node.path) == 1 else '###'} muster {' '.join(node.path)}", "")
    yield _sentence(node.help)
    extra = node.description if node.description not in ("", node.help) else ""
    if extra:
        yield from ("", _md_text(extra))
    if node.verbs:
        yield from ("", *(f"- `{' '.join(verb.path)}`: {verb.help}" for verb in node.verbs))
        return
    yield from ("", "```text", node.usage(), "```")
    shown = [_md_argument(argument) for argument in node.arguments if argument.help or argument.choices]
    shown += _md_options(node.options)
    if shown:
        yield from ("", *shown)


def _md_text(text: str) -> str:
    """Indented lines of a description are examples."""
    return "\n".join(
        f"    {line.strip()}" if line.startswith(" ") else f"{line}\n" for line in text.splitlines()
    ).rstrip()


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text and not text.endswith(".") else text


def _md_argument(argument: Argument) -> str:
    return f"- `{argument.name}`: {argument.help or ', '.join(argument.choices)}"


def _md_options(options: Sequence[Option]) -> list[str]:
    return [f"- `{_option_text(option)}`: {_option_help(option)}".rstrip(": ") for option in options]


def _option_text(option: Option) -> str:
    return ", ".join(option.names) + (f" {option.metavar}" if option.metavar else "")


def _option_help(option: Option) -> str:
    missing = [choice for choice in option.choices if choice not in option.help]
    return f"{option.help} (one of {', '.join(option.choices)})".strip() if missing else option.help


def roff(commands: Sequence[CliCommand]) -> str:
    lines = [f'.TH MUSTER 1 "" "muster {__version__}" "Muster"', ".SH NAME"]
    lines += [r"muster \- runs a crew of AI agents on a plan", ".SH SYNOPSIS", ".B muster", ".I COMMAND"]
    lines += ["[ARGUMENTS]", ".SH DESCRIPTION", _roff(_ABOUT), ".PP", _roff(_REFERENCES)]
    lines += [".SH COMMANDS"]
    for command in commands:
        for node in command.walk():
            if not node.verbs:
                lines += [".TP", f".B {_roff(node.usage())}", _roff(_sentence(node.help))]
                lines += _roff_details(node)
    lines += [".SH OPTIONS OF ALL COMMANDS"]
    for option in global_options():
        lines += [".TP", f".B {_roff(_option_text(option))}", _roff(option.help)]
    lines += [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES.items():
        lines += [".TP", f".B {code}", _roff(meaning)]
    return "\n".join([*lines, ""])


def _roff_details(node: CliCommand) -> Iterator[str]:
    rows = [(argument.name, argument.help) for argument in node.arguments if argument.help]
    rows += [(_option_text(option), _option_help(option)) for option in node.options]
    for name, text in rows:
        yield from (".RS", ".TP", f".B {_roff(name)}", _roff(text), ".RE")


def _roff(text: str) -> str:
    """No line may begin as a request, and a hyphen must stay one that can be copied."""
    flat = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{flat}" if flat.startswith((".", "'")) else flat
