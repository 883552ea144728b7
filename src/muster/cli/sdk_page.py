"""The reference of the SDK, read from its sources: signatures as they are written, and their docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import resources

MODULES: Mapping[str, str] = {
    "app": "Apps",
    "tasks": "Tasks of an app",
    "context": "Inside of a task",
    "client": "Clients",
    "handles": "Handles",
    "options": "Options",
    "errors": "Errors",
    "task_queue": "A queue of prompts",
    "kit": "Tests",
}
"""In the order of the page."""
NEAR: Mapping[str, tuple[str, ...]] = {
    "options": ("TaskOptions", "CallOptions", "FunctionOptions", "AgentOptions"),
    "context": ("Checkpoints",),
}
"""What nobody imports, and everybody meets: what `**options` takes, what a property gives."""
LINE = 60
"""Characters of arguments that stand on one line."""
INSIDE = frozenset(
    {"App.link", "AppTask.arguments", "MusterKit.reply", "TaskEnded.exit_code", "TaskEnded.http_status"}
)
"""What modules of Muster ask of each other, and no program."""

_EXPORT = re.compile(r"^from muster\.sdk\.(\w+) import (\w+) as", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    lines = [
        "# The Python SDK",
        "",
        "All that `import muster` has, made from its docstrings. [Python](../sdk.md) shows how it is used. "
        "Times are seconds, or texts like `30s`, `10m`, `2h`.",
    ]
    for module, title in MODULES.items():
        tree = ast.parse(_source(f"sdk/{module}.py"))
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        lines += ["", f"## {title}", "", _text(tree)]
        for name in [name for name in classes if name in _public(module)]:
            lines += _class(classes[name], classes)
    return "\n".join([*lines, ""])


def exported() -> dict[str, str]:
    """What a program may import, and the module that it is in."""
    return {name: module for module, name in _EXPORT.findall(_source("__init__.pyi"))}


def _source(path: str) -> str:
    return resources.files("muster").joinpath(path).read_text(encoding="utf-8")


def _public(module: str) -> tuple[str, ...]:
    return (*NEAR.get(module, ()), *(name for name, at in exported().items() if at == module))


def _text(node: ast.Module | ast.ClassDef | Function) -> str:
    return (ast.get_docstring(node) or "").replace(".  ", ". ")


def _class(node: ast.ClassDef, others: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    yield from ("", f"### {node.name}", "", _text(node))
    family = [
        others[name] for name in map(ast.unparse, node.bases) if name.startswith("_") and name in others
    ]
    family.append(node)
    fields = [field for one in family for field in _fields(one) if f"{node.name}.{field[0]}" not in INSIDE]
    if fields:
        yield from ("", "| name | | |", "|---|---|---|")
        yield from (f"| `{name}` | `{kind}` | {says} |".replace("  |", " |") for name, kind, says in fields)
    made = {
        function.name: function for one in family for function in one.body if isinstance(function, Function)
    }
    if node.name.startswith("Async"):
        # What its methods do is said of the class without `Async`.
        yield from ("", "```python")
        yield from (_signature(one) for one in made.values() if not one.name.startswith("_"))
        yield "```"
    else:
        for function in made.values():
            yield from _method(node.name, function)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """(name, type or value, what its docstring says) of those that stand in the class itself."""
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        match field:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                yield name, ast.unparse(kind).replace(" | ", "` or `"), _said(after)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                yield name, repr(value), _said(after)


def _said(after: ast.stmt | None) -> str:
    match after:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return _cell(text)
    return ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _method(of: str, function: Function) -> Iterator[str]:
    name, says = function.name, _text(function)
    if not says or f"{of}.{name}" in INSIDE or (name.startswith("_") and name != "__init__"):
        return
    head = ["", f"#### {of}.{name}"] if name != "__init__" else []
    shown = _signature(function) if head else f"{of}({_arguments(function)})"
    yield from (*head, "", "```python", shown, "```", "", says)


def _signature(function: Function) -> str:
    decorators = [ast.unparse(one) for one in function.decorator_list]
    back = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    if "property" in decorators:
        return f"{function.name}{back.replace(' ->', ':')}"
    called = f"{function.name}({_arguments(function)})"
    if any(one.endswith("contextmanager") for one in decorators):
        return f"with {called}"
    # An asynchronous generator is not awaited.
    waits = isinstance(function, ast.AsyncFunctionDef) and "Iterator" not in back
    return f"{'await ' if waits else ''}{called}{back}"


def _arguments(function: Function) -> str:
    """As a caller gives them."""
    text = ast.unparse(function.args).removeprefix("self").removeprefix(", ").removeprefix("/, ")
    text = re.sub(r"Unpack\[(\w+)\]", r"\1", text.removesuffix(", link: Link | None=None"))
    text = re.sub(r"(?<! )=(?! )", " = ", text)
    return text if len(text) < LINE else "\n    " + re.sub(r", (?=\*|\w+:)", ",\n    ", text) + "\n"
