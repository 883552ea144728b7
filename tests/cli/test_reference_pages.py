"""The references that are made from the code: they are current, and they are whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import muster
from muster.cli.sdk_page import INSIDE, exported
from muster.config.keys import AGENT_KEYS, KEYS
from muster.mcp.server import TOOLS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["sdk", "mcp", "settings"])
def test_the_page_is_what_the_code_says(cli, name):
    made = cli("man", f"--{name}").out
    assert page(name) == made, f"./run muster man --{name} > docs/reference/{name}.md"


def test_one_page_at_a_time(refused):
    refused("man", "--sdk", "--mcp", code=2, message="not allowed with argument")


def test_all_that_a_program_imports_is_explained():
    sections = dict(re.findall(r"(?m)^### (\w+)\n+(.+)$", page("sdk")))
    assert exported().keys() == set(dir(muster)) - {one for one in dir(muster) if not one[0].isupper()}
    for name in exported():
        assert re.match(r"[A-Z`].*[.;:]", sections[name]), f"{name} has no docstring"


def test_what_is_left_out_is_there():
    for name in INSIDE:
        owner, _, member = name.partition(".")
        assert hasattr(getattr(muster, owner), member), f"{name} is gone: take it out of INSIDE"


def test_every_key_and_every_tool_has_its_line():
    for key in (*KEYS, *AGENT_KEYS):
        assert f"\n| `{key.path}` | " in page("settings")
    for name, tool in TOOLS.items():
        _, _, section = page("mcp").partition(f"\n## {name}\n")
        assert re.findall(r"(?m)^\| `(\w+)` ", section.partition("\n## ")[0]) == [*tool.inputs]
