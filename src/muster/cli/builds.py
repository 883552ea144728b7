"""The tests and builds that a repository names itself: what its agents will want to run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

USUAL = ("test", "tests", "check", "lint", "typecheck", "build")
_TARGET = re.compile(r"^([\w-]+)\s*:(?!=)", re.MULTILINE)
_RUNNERS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}


def builds_of(root: Path) -> list[str]:
    """`make test`, `npm run build`, `pytest`, ... as the files of this folder tell."""
    found = [*_make(root), *_node(root), *_python(root)]
    if (root / "Cargo.toml").is_file():
        found += ["cargo test", "cargo check", "cargo build"]
    if (root / "go.mod").is_file():
        found += ["go test", "go vet", "go build"]
    return list(dict.fromkeys(found))


def _make(root: Path) -> Iterator[str]:
    for name in ("GNUmakefile", "makefile", "Makefile"):
        if text := _read(root / name):
            targets = set(_TARGET.findall(text))
            yield from (f"make {target}" for target in USUAL if target in targets)
            return


def _node(root: Path) -> Iterator[str]:
    try:
        package = json.loads(_read(root / "package.json") or "{}")
    except ValueError:
        return
    scripts = package.get("scripts") if isinstance(package, dict) else None
    runner = next((name for lock, name in _RUNNERS.items() if (root / lock).exists()), "npm")
    for name in USUAL:
        if isinstance(scripts, dict) and name in scripts:
            yield f"{runner} test" if name == "test" else f"{runner} run {name}"


def _python(root: Path) -> Iterator[str]:
    text = _read(root / "pyproject.toml")
    before = "uv run " if (root / "uv.lock").exists() else ""
    for tool, command in (("pytest", "pytest"), ("ruff", "ruff check"), ("mypy", "mypy")):
        if tool in text:
            yield before + command


def _read(path: Path) -> str:
    """Empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
