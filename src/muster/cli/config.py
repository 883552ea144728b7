"""`muster config`: what is set and where, and the settings of other orchestrators."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

from muster.app.settings import load_with_origins
from muster.cli.context import project_of, start_folder
from muster.cli.fields import add_fields, answer, print_rows
from muster.cli.output import Screen, note
from muster.config.keys import settings
from muster.config.layers import Layers
from muster.config.project import FILE_NAME, ROOT_VARIABLE, Project
from muster.config.settings import Config, cores
from muster.model.errors import BadInput, Conflict
from muster.model.json_value import Json
from muster.model.wording import counted

_FILE_BYTES_MAX = 1 << 20


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    showing = verbs.add_parser("show", act=_show, help="every setting with its value")
    showing.add_argument("--origin", action="store_true", help="also where each comes from")
    add_fields(showing)
    taking = verbs.add_parser(
        "import", act=_import, help=f"what another orchestrator's settings are in {FILE_NAME}"
    )
    taking.add_argument("file", metavar="FILE", help="a JSON or YAML file")
    taking.add_argument("--write", action="store_true", help=f"write {FILE_NAME}, where there is none yet")


def _show(args: argparse.Namespace) -> int:
    project = project_of(args)
    config, layers = load_with_origins(project.root)
    rows: list[Json] = [{"key": "root", "value": str(project.root), "origin": _root_origin(args)}]
    for key, value in settings(config):
        shown, origin = _effective(key, value, config, layers)
        rows.append({"key": key, "value": shown, "origin": origin})

    def show(screen: Screen) -> None:
        cells: dict[str, Callable[[Json], object]] = {"KEY": itemgetter("key")}
        cells["VALUE"] = lambda row: _written(row["value"])
        if args.origin:
            cells["FROM"] = itemgetter("origin")
        screen.table(rows, cells, give="VALUE")

    print_rows(args, rows, show, names=tuple)  # `root` is always there
    return 0


def _written(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _root_origin(args: argparse.Namespace) -> str:
    if args.root is not None:
        return f"command line: -C {args.root}"
    if os.environ.get(ROOT_VARIABLE):
        return f"environment variable: {ROOT_VARIABLE}"
    return "default: the nearest folder upwards that is a project"


def _effective(key: str, value: object, config: Config, layers: Layers) -> tuple[object, str]:
    """(the value that holds, where it comes from)."""
    if origin := layers.origin(key):
        return value, origin
    if key == "workers.count" and value is None:
        return config.workers.number(cores()), "default: one per core, at most 4"
    if key == "health.lease" and (beat := layers.origin("health.heartbeat")):
        return value, f"default: three times health.heartbeat, {beat}"
    if key == "task.backoff.first" and layers.origin("task.backoff.max"):
        return value, "default: not more than task.backoff.max"
    if key == "task.backoff.max" and layers.origin("task.backoff.first"):
        return value, "default: not less than task.backoff.first"
    return value, "default"


def _import(args: argparse.Namespace) -> int:
    from muster.config.importing import import_settings

    path = Path(args.file)
    imported = import_settings(_text(path), path.name)
    target = Project(start_folder(args.root)).config_file
    if args.write:
        _write(target, imported.toml)
    elif not args.json:
        note(f"read as {imported.kind}; --write makes it {FILE_NAME}")
    taken = [
        {"key": one.setting.target, "value": one.value, "from": one.key, "line": one.line}
        for one in imported.taken
    ]
    aside = [{"from": one.key, "line": one.line, "note": one.setting.note} for one in imported.aside]
    told = {
        "kind": imported.kind,
        "written": str(target) if args.write else None,
        "settings": taken,
        "notCarriedOver": aside,
        "toml": imported.toml,
    }
    wrote = f"Wrote    {target}: {counted(len(taken), 'setting')}, read as {imported.kind}"
    lines = (wrote, "Next     muster config show --origin") if args.write else (imported.toml.rstrip("\n"),)
    return answer(args, told, *lines)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise BadInput(
                f"{path} has more than {_FILE_BYTES_MAX} bytes; nothing was written", "name a settings file"
            )
        return data.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", "name a file that you can read") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 (byte {error.start})", "save it as UTF-8") from error


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Conflict(
            f"{target} is there already; nothing was written",
            "without --write the settings are printed instead",
        ) from None
    except OSError as error:
        raise BadInput(
            f"cannot write {target}: {error.strerror}", "choose a folder that you may write to"
        ) from error
