"""An agent whose session begins is told where its task stands in its plan; scripts are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_sessions import project, prompts  # noqa: F401 - a fixture

from muster_command import run_muster as muster

PLAN = """\
# Site

## Shop

- [ ] Cart
  - [x] Form
  - [ ] Test "it"
    run it
  - [ ] Ship
    ship it
- [ ] Other
  other

## Blog

- [ ] Blog
  write it
"""
ABOUT_TEST = """\
Test "it"

run it

This task is one of the plan "site".
Its headings there: "Shop"
It is a part of: "Cart"
The task before it: "Form", done
The task after it: "Ship", not begun
"""
KEPT = 'The plan is kept in "plan.md".  Do not edit that file and tick no boxes'


def told(folder: Path) -> dict[str, str]:
    """By the first line."""
    return {text.partition("\n")[0]: text for _, _, text in prompts(folder)}


def test_it_knows_its_plan_headings_parent_and_neighbours(project: Path) -> None:  # noqa: F811
    (project / "plan.md").write_text(PLAN)
    done = muster(project, "run", "plan.md", "--order", "file", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    said = told(project)
    assert said['Test "it"'].startswith(ABOUT_TEST) and KEPT in said['Test "it"']
    assert "The task before it: \"Test 'it'\", done" in said["Ship"] and "after it" not in said["Ship"]
    assert "It is a part of" not in said["Blog"] and "before it" not in said["Blog"]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("[plan]\nprompt = '{plan}: see {file}, not {parent}!'\n", False),
        ("[plan]\nprompt = 'Task of {plan}, in {file}.'\n", 'Task of "plan", in "plan.md".'),
        ("[plan]\nprompt = ''\n", False),
        ("[plan]\nprotect = false\n", False),
        ("[plan]\nprotect = false\nprompt = 'In {file}.'\n", 'In "plan.md".'),
    ],
)
def test_what_is_said_can_be_changed(project: Path, settings: str, wanted: str) -> None:  # noqa: F811
    config = (project / "muster.toml").read_text()
    (project / "muster.toml").write_text(config + settings)
    (project / "plan.md").write_text("# Plan\n- [ ] A {#a}\n  do it\n")
    assert muster(project, "run", "plan.md").returncode == 0
    ((_, _, text),) = prompts(project)
    assert text.startswith("A\n\ndo it\n\n" + (f"{wanted}\n\nTo report" if wanted else "To report"))


def test_a_command_is_told_where_it_asks_for_it(tmp_path: Path) -> None:
    script = 'printf "%s\\0" "$@" > got'
    for name, agent in (("plain", '"{prompt}"'), ("asks", '"{prompt}", "{place}"')):
        folder = tmp_path / name
        folder.mkdir()
        command = f"agent = 'a'\n[agents.a]\ncommand = ['sh', '-c', '{script}', 'sh', {agent}]\n"
        (folder / "muster.toml").write_text(command)
        (folder / "plan.md").write_text("# Plan\n- [ ] A {#a}\n  do it\n")
        assert muster(folder, "run", "plan.md").returncode == 0
    got = {name: (tmp_path / name / "got").read_text().split("\0") for name in ("plain", "asks")}
    assert got["plain"] == ["A\n\ndo it", ""]
    assert got["asks"][0] == "A\n\ndo it" and got["asks"][1].startswith("This task is one of the plan")


def test_a_misspelt_placeholder_is_refused(project: Path) -> None:  # noqa: F811
    config = (project / "muster.toml").read_text()
    (project / "muster.toml").write_text(config + "[plan]\nprompt = 'In {flie}'\n")
    refused = muster(project, "config", "show", "--json")
    assert refused.returncode == 2
    error = json.loads(refused.stderr)["error"]
    assert error["message"] == "muster.toml:11: plan.prompt: {flie} stands for nothing"
    assert error["hint"] == "did you mean 'file'?"
