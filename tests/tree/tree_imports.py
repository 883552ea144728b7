"""Who imports whom under `src/muster`, read from the syntax tree: floors, cycles, purity.

Imports inside functions and under TYPE_CHECKING count, and so does `import_module("...")`: that is where
knots hide.  Each rule returns its violations as sentences that say what to do.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT_PACKAGE = "muster"

FLOORS = {
    "model": 0,
    "ports": 1,
    "hosts": 2,
    "config": 3,
    "plans": 3,
    "client": 3,
    "runtimes": 3,
    "stores": 4,
    "agents": 4,
    "engine": 4,
    "worker": 4,
    "outbound": 4,
    "web": 5,
    "mcp": 5,
    "testing": 5,
    "app": 6,
    "sdk": 7,
    "cli": 7,
}
"""DESIGN part 5: a package imports from itself and from lower floors, never from a sibling."""

THIRD_PARTY = {
    "msgspec": frozenset(FLOORS),
    "apsw": frozenset({"stores"}),
    "cronsim": frozenset({"sdk"}),
    "httptools": frozenset({"web", "outbound"}),
    "jinja2": frozenset({"web"}),
    "nacl": frozenset({"hosts"}),
    "psutil": frozenset({"hosts"}),
    "setproctitle": frozenset({"hosts"}),
    "watchfiles": frozenset({"hosts"}),
    "yaml": frozenset({"config", "plans"}),
}
"""Who may name what others have made.  A package that nobody names is no dependency."""

GUESTS = {
    "asyncpg": frozenset({"stores"}),
    "opentelemetry": frozenset({"outbound"}),
    "pytest": frozenset({"sdk"}),
    "valkey": frozenset({"runtimes"}),
}
"""Whoever loads these modules of ours has the package already: they are its plugins, or what an extra is for."""

COMPOSED = {"engine": frozenset({"web", "app"}), "stores": frozenset({"app"})}
"""Packages that only these know; everybody else sees them through `ports`."""

IMPURE = frozenset(
    {
        *("time", "random", "secrets", "uuid"),
        *("asyncio", "concurrent", "multiprocessing", "subprocess", "threading", "signal"),
        *("io", "os", "select", "selectors", "shutil", "socket", "sqlite3", "tempfile", "urllib"),
    }
)
IMPURE_NAMES = {"pathlib": frozenset({"Path", "PosixPath", "WindowsPath"})}
IMPURE_CALLS = frozenset({"open", "input", "print"})
PATH_CALLS = frozenset(
    [
        "exists",
        "glob",
        "is_dir",
        "is_file",
        "iterdir",
        "lstat",
        "mkdir",
        "open",
        "read_bytes",
        "read_text",
        "rename",
        "replace",
        "resolve",
        "rglob",
        "rmdir",
        "stat",
        "symlink_to",
        "touch",
        "unlink",
        "write_bytes",
        "write_text",
    ]
)
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})

Edges = dict[str, set[str]]


def modules(source: Path) -> dict[str, Path]:
    """Dotted name to file, for every module under the package folder `source`."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = [source.name, *path.relative_to(source).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """Every import as (module, name); the name is empty for `import module`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=origin, names=names, level=level):
                base = _resolve(module, is_package, origin or "", level)
                yield from ((base, alias.name) for alias in names)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if _is_import_call(func):
                yield name, ""


def _resolve(module: str, is_package: bool, origin: str, level: int) -> str:
    if level == 0:
        return origin
    parts = module.split(".")
    kept = parts[: len(parts) - level + is_package]
    return ".".join([*kept, *filter(None, [origin])])


def _is_import_call(func: ast.expr) -> bool:
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return name in {"import_module", "__import__"}


def edges(source: Path) -> Edges:
    """Module to the modules of the same package tree that it imports anywhere in its text."""
    known = modules(source)
    graph: Edges = {module: set() for module in known}
    for module, path in known.items():
        for base, name in imports(_parse(path), module, path.name == "__init__.py"):
            target = f"{base}.{name}" if f"{base}.{name}" in known else base
            if target in known and target != module:
                graph[module].add(target)
            elif target not in known and target.split(".")[0] == source.name:
                graph[module].add(target)  # not written yet; its floor counts all the same
    return graph


def reachable(graph: Edges, roots: Iterable[str]) -> set[str]:
    """These, all that they import sooner or later, and the packages that it is in."""
    found: set[str] = set()
    queue = list(roots)
    while queue:
        module = queue.pop()
        if module not in found:
            found.add(module)
            queue += graph.get(module, ())
            queue += filter(None, [module.rpartition(".")[0]])
    return found


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def package(module: str) -> str:
    """The part of the program that a module belongs to: `muster.stores.sqlite.x` is `stores`."""
    return module.split(".")[1] if "." in module else ""


def floor_violations(graph: Edges) -> list[str]:
    found = []
    for importer, targets in sorted(graph.items()):
        for imported in sorted(targets):
            a, b = package(importer), package(imported)
            if a == b or not b or FLOORS.get(b, 99) < FLOORS.get(a, -1):
                continue
            found.append(
                f"{importer} (floor {FLOORS.get(a, 'none')}) may not import {imported} "
                f"(floor {FLOORS.get(b, 'none')}): put what both need on a lower floor (model, ports), "
                "or pass it in from app.py"
            )
    return found


def foreign_violations(source: Path) -> list[str]:
    """Third-party packages that are named where they have no place, or nowhere."""
    found, used = [], set()
    for module, path in modules(source).items():
        for base, _ in imports(_parse(path), module, path.name == "__init__.py"):
            top = base.partition(".")[0]
            if top in sys.stdlib_module_names or top in {ROOT_PACKAGE, source.name, ""}:
                continue
            used.add(top)
            if package(module) not in THIRD_PARTY.get(top, GUESTS.get(top, ())):
                found.append(
                    f"{module} may not import {top}: THIRD_PARTY (tests/tree/tree_imports.py) says who may"
                )
    return found + [
        f"nobody imports {name}: take it out of pyproject.toml" for name in THIRD_PARTY.keys() - used
    ]


def composition_violations(graph: Edges) -> list[str]:
    return [
        f"{importer} may not import {imported}: only {' and '.join(sorted(allowed))} may name it, "
        "others see it through ports"
        for importer, targets in sorted(graph.items())
        for imported in sorted(targets)
        if (allowed := COMPOSED.get(package(imported))) is not None
        and package(importer) not in {package(imported), *allowed}
    ]


def classes_twice(source: Path) -> list[str]:
    """A reader who searches for a class finds one."""
    found: dict[str, list[str]] = {}
    for module, path in modules(source).items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    return [
        f"class {name} stands in {' and in '.join(places)}: give one of them another name"
        for name, places in sorted(found.items())
        if len(places) > 1
    ]


def unknown_packages(graph: Edges) -> list[str]:
    return [
        f"{name!r} stands on no floor: give it one in FLOORS (tests/tree/tree_imports.py) and in the design"
        for name in sorted({package(module) for module in graph} - FLOORS.keys() - {""})
    ]


def cycles(graph: Edges) -> list[str]:
    """One shortest cycle for each module that lies on one, each cycle once."""
    found: dict[frozenset[str], str] = {}
    for start in sorted(graph):
        if path := _way_back(graph, start):
            found.setdefault(frozenset(path), " -> ".join([*path, start]))
    return [f"import cycle {text}: move what they share to a module of its own" for text in found.values()]


def _way_back(graph: Edges, start: str) -> list[str] | None:
    queue, seen = [[start]], {start}
    for path in queue:
        for target in sorted(graph.get(path[-1], ())):
            if target == start:
                return path
            if target not in seen:
                seen.add(target)
                queue.append([*path, target])
    return None


def impurities(folder: Path, *, promises: bool = False) -> list[str]:
    """What in `folder` reaches for a clock, chance, a file, another process or an event loop.

    `promises`: paths may be named, and a Protocol may say what somebody else will do.
    """
    found = []
    for path in sorted(folder.rglob("*.py")):
        tree = _parse(path)
        reasons = [
            reason
            for base, name in imports(tree, "", False)
            if (reason := _impure(base, name)) and not (promises and base in IMPURE_NAMES)
        ]
        reasons += [reason for node in ast.walk(tree) if (reason := _impure_node(node, promises))]
        found += [
            f"{path.name}: {reason}: {folder.name}/ is pure, so take it as a fact or let the caller do it"
            for reason in reasons
        ]
    return found


def _impure(base: str, name: str) -> str:
    top = base.partition(".")[0]
    if top in IMPURE or name in IMPURE_NAMES.get(base, ()) or (base in IMPURE_NAMES and not name):
        return f"imports {base}" + (f".{name}" if name else "")
    return ""


def _impure_node(node: ast.AST, promises: bool) -> str:
    match node:
        case ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant())]) if promises:
            return ""
        case ast.Call(func=ast.Attribute(attr=name)) if promises and name in PATH_CALLS:
            return f"calls {name}()"
        case ast.AsyncFunctionDef(name=name):
            return f"async def {name}"
        case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
            return f"calls {name}()"
        case ast.Attribute(
            attr=name, value=ast.Name(id="datetime" | "date") | ast.Attribute(attr="datetime" | "date")
        ):
            return f"reads the clock by {name}()" if name in CLOCK_CALLS else ""
    return ""
