"""Which tests prove which promise of the design: the marks `@pytest.mark.promise("S1", ...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

PROMISES = (
    *(f"S{number}" for number in range(1, 21)),
    *(f"L{number}" for number in range(1, 6)),
)


def marks(files: Iterable[Path]) -> dict[str, list[str]]:
    """Tests by the promises that they are marked with."""
    found: dict[str, list[str]] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                    for argument in mark.args:
                        assert isinstance(argument, ast.Constant), "a promise is named as it stands"
                        found.setdefault(str(argument.value), []).append(f"{path.name}::{node.name}")
    return found


def promise_violations(marked: Mapping[str, object]) -> list[str]:
    missing = [f"no test is marked with promise {name}" for name in PROMISES if name not in marked]
    unknown = [f"there is no promise {name}" for name in marked if name not in PROMISES]
    return missing + unknown
