"""`muster plan import`: what another tool keeps becomes a plan file, or a plan."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from msgspec.structs import replace

from muster.cli.context import connect
from muster.cli.output import clean, inert, note, print_json, shell_word
from muster.cli.plan_file import (
    STDIN,
    Given,
    add_plan,
    follow,
    in_order,
    others_of,
    plan_body,
    refuse_file_of,
)
from muster.model.errors import BadInput, BadPlan, Conflict, NotFound
from muster.model.json_value import Json
from muster.model.wording import counted, near
from muster.plans import importers
from muster.plans.importers.source import ToolFiles
from muster.plans.importers.writing import WrittenPlan

BYTES_MAX = 64 << 20
LOST_SHOWN_MAX = 20
_HOMES = ("", "backlog/", ".backlog/", ".taskmaster/", ".beads/")
"""Where tools keep their files, seen from the folder that is named."""
_FILES = (
    "tasks/tasks.json",
    "tasks.json",
    "issues.jsonl",
    "beads.jsonl",
    "*.md",
    "tasks/*.md",
    "completed/*.md",
)


def run(args: argparse.Namespace) -> int:
    source = source_of(args.source, args.tag)
    if args.format and args.format not in importers.IMPORTERS:
        known = ", ".join(importers.IMPORTERS)
        raise BadInput(
            f"unknown format {args.format!r}{near(args.format, importers.IMPORTERS)}", f"one of {known}"
        )
    form, why = (args.format, "--format says so") if args.format else importers.recognised(source)
    imported = importers.read(source, form, title=args.name)
    out = args.out or ("" if args.add else f"{imported.name}.md")
    if out == STDIN:
        if args.add:
            raise BadInput("--out - prints the plan, and --add adds one", "leave one of them out")
        print(inert(imported.text) if sys.stdout.isatty() else imported.text, end="")
        for line in imported.lost:
            note(line)
        return 0
    told: Json = {"format": form, "why": why, "file": out or None, "plan": imported.name}
    told |= {"tasks": imported.tasks, "lost": imported.lost}
    if out:
        write_plan(Path(out), imported.text, force=args.force)
    if not args.json:
        print(f"Read     {clean(args.source)} as {form}: {clean(why)}")
        if out:
            print(f"Wrote    {clean(out)}: {counted(imported.tasks, 'task')}", flush=True)
        _tell_lost(imported)
    if args.add:
        told["plan"] = add_written(args, imported, Path(out) if out else None)
    if args.json:
        print_json(told)
    elif not args.add:
        print(f"Next     muster run {shell_word(out)} --dry-run shows who would get what")
    return 0


def _tell_lost(imported: WrittenPlan) -> None:
    for number, line in enumerate(imported.lost[:LOST_SHOWN_MAX]):
        print(f"{'        ' if number else 'Missing '} {clean(line)}")
    if len(imported.lost) > LOST_SHOWN_MAX:
        print(f"         and {len(imported.lost) - LOST_SHOWN_MAX} more; --json lists all")


def add_written(args: argparse.Namespace, imported: WrittenPlan, path: Path | None) -> str:
    from muster.app.settings import load_config
    from muster.plans.files import read_plan
    from muster.plans.markdown import parse

    if path is not None:
        given = Given(read_plan(path), path)
    else:
        given = Given(replace(parse(imported.text, "stdin"), name=imported.name), None)
    with connect(args) as context:
        config, project = load_config(context.project.root), context.project
        refuse_file_of(context.api, given)
        follow(args, context.api, project, given)
        given, chosen = in_order(args, context.api, given, config, given.source(project), ask=False)
        content = plan_body(given, config, project, others_of(context, given), chosen)
        say = (lambda _: None) if args.json else (lambda text: print(clean(text), flush=True))
        return add_plan(context.api, content, say)


def write_plan(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        if path.read_bytes() != text.encode():
            raise Conflict(
                f"{path} is there already, with something else in it; nothing was written",
                "--out FILE for another name, --force to write over it",
            ) from None
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror}", "--out FILE names another place"
        ) from error


def source_of(name: str, tag: str = "") -> ToolFiles:
    """Raises BadPlan, NotFound and BadInput."""
    if name == STDIN:
        data = sys.stdin.buffer.read(BYTES_MAX + 1) if sys.stdin is not None else b""
        return ToolFiles("stdin", {"stdin": _bounded(data, "stdin")}, tag)
    path = Path(name)
    try:
        if not path.is_dir():
            return ToolFiles(name, {path.name: _read(path)}, tag)
        found = {file for home in _HOMES for pattern in _FILES for file in path.glob(home + pattern)}
        files = {str(file.relative_to(path)): _read(file) for file in sorted(found) if file.is_file()}
    except FileNotFoundError:
        raise NotFound(
            f"{name}: no such file or folder", "name what the other tool keeps its tasks in"
        ) from None
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror}", "see `ls -l` of it") from error
    if not files:
        raise NotFound(
            f"{name}: there is none of {', '.join(_FILES)} in this folder",
            "name the file or the folder that the other tool keeps its tasks in",
        )
    return ToolFiles(path.resolve().name, files, tag)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return _bounded(file.read(BYTES_MAX + 1), str(path))


def _bounded(data: bytes, name: str) -> bytes:
    if len(data) > BYTES_MAX:
        raise BadPlan(f"{name}: larger than {BYTES_MAX >> 20} MiB", "Export a part of it.")
    return data
