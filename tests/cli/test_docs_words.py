"""Each `muster` command that a page names, in its text as in its blocks, is one that the parsers know, with these
options; what a page shows as a session is run by test_docs.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.cli.surface import CliCommand, global_options, surface

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = ROOT / "docs" / "reference" / "commands.md"
_BLOCK = re.compile(r"^```[^\n`]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(muster [^`]+)`")
_SHOWN = re.compile(r"^(?:\S*[$#] |(?:[A-Z_]+=\S* )+)*(muster .+)$", re.MULTILINE)
OF_ALL = {"pr"}
"""What may name a plan in place of a verb."""
KNOWN = {command.path[0]: command for command in surface()}
OPTIONS = {name: bool(option.metavar) for option in global_options() for name in option.names} | {
    "--help": False
}


def named(page: Path) -> Iterator[str]:
    text = page.read_text("utf-8")
    for body in _BLOCK.findall(text):
        for line in _SHOWN.findall(body):
            yield from (part for part in re.split(r"(?:&&|;|\|\|?) +(?=muster )", line))
    yield from (" ".join(one.split()) for one in _INLINE.findall(_BLOCK.sub("", text)))


def without_globals(words: list[str]) -> list[str]:
    """What is said before the noun."""
    while words and words[0] in OPTIONS:
        words = words[2 if OPTIONS[words[0]] else 1 :]
    return words


def wrong_in(said: str) -> str:
    """What of it nobody knows; empty where all is known.  `a|b` stands for each of them."""
    words = without_globals(
        re.sub(r" +(#|[<>|;&]|-- ).*", "", said).replace("[", " ").replace("]", " ").split()[1:]
    )
    if not words or not re.fullmatch(r"[a-z|-]+", words[0]):
        return ""  # `muster COMMAND`, or an option of all
    nouns = words[0].split("|")
    if strange := [noun for noun in nouns if noun not in KNOWN]:
        return strange[0]
    meant: list[CliCommand] = [KNOWN[noun] for noun in nouns]
    verbs = {verb.path[-1]: verb for command in meant for verb in command.verbs}
    if verbs and len(words) > 1 and re.fullmatch(r"[a-z|-]+", words[1]) and not words[1].startswith("-"):
        strange = [verb for verb in words[1].split("|") if verb not in verbs]
        if strange and words[0] not in OF_ALL:
            return f"{words[0]} {strange[0]}"
        meant = meant if strange else [verbs[verb] for verb in words[1].split("|")]
    options = {
        name for command in meant for one in command.walk() for option in one.options for name in option.names
    }
    for word in words:
        for option in re.findall(r"^(--[a-z][a-z-]*|-[a-zA-Z])(?:=|$|\|)", word):
            if option not in options | OPTIONS.keys():
                return f"{' '.join(meant[0].path)} {option}"
    return ""


@pytest.mark.parametrize("page", [page for page in PAGES if page != GENERATED], ids=lambda page: page.name)
def test_a_page_names_no_command_or_option_that_is_not_there(page: Path) -> None:
    assert [(said, wrong) for said in named(page) if (wrong := wrong_in(said))] == []


def test_what_is_not_there_would_be_found() -> None:
    for said, wrong in [
        ("muster tsak list", "tsak"),
        ("muster task lst", "task lst"),
        ("muster task list --staus x", "task list --staus"),
        ("muster secrets set|lst", "secrets lst"),
        ("muster --server URL serve --lisen", "serve --lisen"),
    ]:
        assert wrong_in(said) == wrong
    assert len([said for page in PAGES for said in named(page)]) > 400
