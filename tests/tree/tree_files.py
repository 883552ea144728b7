"""Rules for the files of the repository: sizes, leftovers, links, unused SQL, the lock file."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import count
from pathlib import Path

LINES_MAX = 500
FUNCTION_LINES_MAX = 60
MEASURED = frozenset({".py", ".sql", ".sh", ".html", ".css", ".js"})

LOCK_HOSTS = frozenset({"pypi.org", "files.pythonhosted.org"})

_CACHES = frozenset({"__pycache__", "node_modules", "build", "dist"})
_MACHINE_PATH = re.compile(
    r"(?<![\w.}~*-])/(?:work|root|home/\w+|Users/\w+|opt/(?:wheels|pypi)[\w-]*)(?:/|(?=[\s\"'`]|$))"
)
_MARK_WORD = r"\b(?:TO" + r"DO|FIX" + r"ME)\b"
_MARK = re.compile(_MARK_WORD)
_MARK_IN_TEXT = re.compile(_MARK_WORD + r"\s*[:(]|<!--\s*" + _MARK_WORD)
_LINK = re.compile(r"(?<!!)\[[^\]\[]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|!\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)")
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
_ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)")
_KINDS = {".py", ".pyi", ".jsonl", ".md", ".sql", ".tsv", ".toml", ".lock", ".html", ".css", ".js", ".svg"}
_NAMES = {".gitignore", "mkdocs.yml", "py.typed", "run", "LICENSE"}
_HIDDEN = {".ci", ".gitignore"}


def repository_files(root: Path) -> list[Path]:
    """What is or would be committed; where git does not answer, every file that is no cache."""
    git = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        top = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--show-cdup"], capture_output=True, text=True, check=True
        )
        if top.stdout.strip():  # the checkout lies in another repository, which may ignore all of it
            raise FileNotFoundError(root)
        listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split("\0")
        paths = [root / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for path in root.rglob("*") if not _is_cache(path.relative_to(root))]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def _is_cache(path: Path) -> bool:
    hidden = any(part.startswith(".") and part not in _HIDDEN for part in path.parts)
    return hidden or bool(_CACHES.intersection(path.parts))


def text_of(path: Path) -> str | None:
    """None where the file is no UTF-8 text."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (UnicodeDecodeError, FileNotFoundError):
        return None
    return None if "\0" in text else text


def sizes(root: Path, folders: Iterable[str]) -> dict[str, int]:
    """Lines by `path` and by `path::function`, for what is measured under the folders."""
    found = {}
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in MEASURED or (text := text_of(path)) is None:
                continue
            name = path.relative_to(root).as_posix()
            found[name] = len(text.splitlines())
            if path.suffix == ".py":
                found |= {f"{name}::{at}": lines for at, lines in _functions(ast.parse(text, name), "")}
    return found


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        name = f"{prefix}{getattr(child, 'name', '')}"
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, (child.end_lineno or child.lineno) - child.lineno + 1
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _functions(child, f"{name}." if named else prefix)


def size_violations(measured: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """`allowed` lists offenders with their size; it may only shrink."""
    found = []
    for name, lines in measured.items():
        limit = FUNCTION_LINES_MAX if "::" in name else LINES_MAX
        if lines > allowed.get(name, limit):
            found.append(f"{name} has {lines} lines, {allowed.get(name, limit)} are allowed: split it")
        elif name in allowed and lines <= limit:
            found.append(f"{name} has {lines} lines and needs no exception: take it out of OVERSIZE")
        elif lines < allowed.get(name, lines):
            found.append(f"{name} has shrunk to {lines} lines: lower its entry in OVERSIZE")
    gone = [name for name in allowed if name not in measured]
    return found + [f"{name} is gone: take it out of OVERSIZE" for name in gone]


def strays(root: Path, files: Iterable[Path]) -> list[str]:
    """Files that nobody meant to add: a hidden folder of some program, a package, an archive."""
    found = (path.relative_to(root) for path in files)
    return [
        f"{path}: no file of this kind or place belongs to the repository"
        for path in found
        if (path.suffix not in _KINDS and path.name not in _NAMES and not _is_given(path))
        or any(part.startswith(".") and part not in _HIDDEN for part in path.parts)
    ]


def _is_given(path: Path) -> bool:
    """What a test has other programs say, what other programs read of us, and the documentation's pictures."""
    given = path.suffix == ".json" and path.parts[0] == "tests"
    pictured = path.suffix == ".png" and path.parts[:2] == ("docs", "pictures")
    return given or pictured or path.parts[0] == "deploy"


def machine_paths(root: Path, files: Iterable[Path]) -> list[str]:
    found = []
    for path, number, line in _lines(files):
        if match := _MACHINE_PATH.search(line):
            found.append(
                f"{path.relative_to(root)}:{number} names {match.group()!r}, a path of one machine: "
                "make it relative, or take it from the environment"
            )
    return found


def leftovers(root: Path, files: Iterable[Path]) -> list[str]:
    """Marks of unfinished work: in comments of Python, and before a colon or bracket in any text."""
    found = []
    for path in files:
        numbers = {n for _, n, line in _lines([path]) if _MARK_IN_TEXT.search(line)}
        if path.suffix == ".py":
            numbers |= {n for n, comment in _comments(path) if _MARK.search(comment)}
        found += [
            f"{path.relative_to(root)}:{number} marks unfinished work: finish it, or open an issue for it"
            for number in sorted(numbers)
        ]
    return found


def _lines(files: Iterable[Path]) -> Iterator[tuple[Path, int, str]]:
    for path in files:
        for number, line in enumerate((text_of(path) or "").splitlines(), 1):
            yield path, number, line


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text_of(path) or "").readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def unused_sql(source: Path) -> list[str]:
    """SQL files that no string in Python names; a folder that is read whole may be named instead."""
    named = {
        part
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for part in [node.value, node.value.rpartition("/")[2]]
    }
    found = []
    for path in sorted(source.rglob("*.sql")):
        by_name = {file.name for file in path.parent.glob("*.sql")} & named
        read_whole = not by_name and path.parent.name in named and not any(path.parent.glob("*.py"))
        if path.name not in by_name and not read_whole:
            found.append(f"{path.relative_to(source)} is loaded by nothing: load it by name, or delete it")
    return found


def lock_violations(text: str) -> list[str]:
    """A lock file may name the public index only."""
    hosts = set(re.findall(r"\w+://([^/\"]+)", text)) - LOCK_HOSTS
    local = re.findall(r"source = \{ (?:path|directory|url|git) = .*", text)
    return [
        f"uv.lock names {name!r}: make it anew with `uv lock` without UV_* and PIP_* variables"
        for name in [*sorted(hosts), *local]
    ]


def broken_links(root: Path, pages: Iterable[Path]) -> list[str]:
    found = []
    anchors = cache(_anchors)
    for page in pages:
        for number, target in _links(page):
            if problem := _link_problem(root, page, target, anchors):
                found.append(f"{page.relative_to(root)}:{number} links to {target!r}: {problem}")
    return found


def _prose(page: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a markdown page outside fenced code."""
    fence = ""
    for number, line in enumerate((text_of(page) or "").splitlines(), 1):
        if match := _FENCE.match(line):
            mark = match.group(1)
            fence = "" if fence and mark.startswith(fence) else fence or mark
        elif not fence:
            yield number, line


def _links(page: Path) -> Iterator[tuple[int, str]]:
    for number, line in _prose(page):
        bare = re.sub(r"`[^`]*`", lambda code: "x" * len(code.group()), line)
        for match in [*_LINK.finditer(bare), *_REFERENCE.finditer(bare)]:
            target = next(group for group in match.groups() if group)
            if not re.match(r"[a-z][a-z0-9+.-]*:|//", target, re.IGNORECASE):
                yield number, target


def _link_problem(root: Path, page: Path, target: str, anchors: Callable[[Path], set[str]]) -> str:
    name, _, anchor = target.partition("#")
    aimed = page if not name else (page.parent / name).resolve()
    if not aimed.exists():
        return "there is no such file; correct the link"
    if not aimed.resolve().is_relative_to(root.resolve()):
        return "it lies outside the repository; link to the public page"
    if anchor and aimed.suffix == ".md" and anchor not in anchors(aimed):
        return f"that page has no heading {anchor!r}; correct the anchor"
    return ""


def _anchors(page: Path) -> set[str]:
    """The ids that GitHub gives to a page's headings, and those set by hand."""
    found: set[str] = set()
    for _, line in _prose(page):
        found.update(_ANCHOR.findall(line))
        if match := _HEADING.match(line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            names = (f"{slug}-{again}" if again else slug for again in count())
            found.add(next(name for name in names if name not in found))
    return found
