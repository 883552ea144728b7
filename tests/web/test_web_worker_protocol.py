"""The worker's protocol: what a worker says, and what the owner takes in, are the same list."""

from __future__ import annotations

import ast
from pathlib import Path

import muster.worker
from muster.model import commands as c
from muster.ports.crew import COMMANDS


def test_every_command_that_a_worker_makes_has_a_name_on_the_wire() -> None:
    made = set()
    for path in Path(muster.worker.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="c"), attr=name)):
                    made.add(getattr(c, name))
    commands = {shape for shape in made if isinstance(shape, type) and issubclass(shape, c.Command)}
    assert len(commands) > 8
    assert commands - set(COMMANDS.values()) == set()
