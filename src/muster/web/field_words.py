"""What the code says of the fields of its structs: the text below each of them."""

from __future__ import annotations

import ast
import inspect
import sys
from itertools import pairwise

Words = dict[str, str]


class FieldWords:
    """Reads each module once; to be let go of after use."""

    def __init__(self) -> None:
        self._modules: dict[str, dict[str, Words]] = {}

    def of(self, shape: type) -> Words:
        """By field, those of its bases included; "" is the class itself."""
        found: Words = {}
        for one in reversed(shape.__mro__):
            if one.__module__ == "builtins" or one.__module__.startswith("msgspec"):
                continue
            found = {name: text for name, text in found.items() if name} | self._read(one.__module__).get(
                one.__name__, {}
            )
        return found

    def _read(self, module: str) -> dict[str, Words]:
        if module not in self._modules:
            body = ast.parse(inspect.getsource(sys.modules[module])).body
            self._modules[module] = {one.name: _words(one) for one in body if isinstance(one, ast.ClassDef)}
        return self._modules[module]


def _words(shape: ast.ClassDef) -> Words:
    found = {"": _flat(ast.get_docstring(shape) or "")}
    for field, text in pairwise(shape.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                found[name] = _flat(said)
    return found


def _flat(text: str) -> str:
    return " ".join(text.split())
