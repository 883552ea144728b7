"""`muster artifact`: what the attempts of a task have made."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from muster.cli.context import Context, connect
from muster.cli.fields import add_fields, names_of, print_rows
from muster.cli.output import Screen, clean, note
from muster.client.api import quoted, task_path
from muster.model.errors import BadInput, NotFound
from muster.model.json_value import Json


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="what the attempts of a task have made")
    getting = verbs.add_parser("get", act=_get, help="write what one holds to stdout, or to a file")
    for verb in (listing, getting):
        verb.add_argument("ref", metavar="REF[#ATTEMPT]", help="all its attempts where none is named")
    getting.add_argument("name", metavar="NAME", help="of the newest attempt that has made one of this name")
    getting.add_argument(
        "-o", "--output", metavar="FILE", help="where to write it; stdout where it is left out, or -"
    )
    add_fields(listing)


_CELLS: Mapping[str, Callable[[Json], object]] = {
    "NAME": lambda made: clean(made["name"]),
    "ATTEMPT": lambda made: made["epoch"],
    "BYTES": lambda made: "not here" if made["bytes"] is None else made["bytes"],
    "LOCATION": lambda made: clean(made["location"]),
}


def _made(context: Context, reference: str) -> tuple[int, list[Json]]:
    """The task, and what it has made: in the attempt that is named, else in all of them, the newest one last."""
    task_id, epoch = context.task_id(reference)
    rows: list[Json] = context.api.get(task_path(task_id, "artifacts"))
    return task_id, [row for row in rows if epoch in (None, row["epoch"])]


def _list(args: argparse.Namespace) -> int:
    with connect(args) as context:
        _, made = _made(context, args.ref)

    def show(screen: Screen) -> None:
        screen.table(made, _CELLS, give="LOCATION", look=lambda _: "ready", empty="it has made nothing yet")

    print_rows(args, made, show, names=lambda: names_of("ArtifactView"))
    return 0


def _get(args: argparse.Namespace) -> int:
    with connect(args) as context:
        task_id, made = _made(context, args.ref)
        epochs = [row["epoch"] for row in made if row["name"] == args.name]
        if not epochs:
            raise NotFound(f"{args.ref} has no artifact {args.name!r}", f"muster artifact list {args.ref}")
        data = context.api.fetch(task_path(task_id, f"artifacts/{epochs[-1]}/{quoted(args.name)}/content"))
    if args.output not in (None, "-"):
        try:
            Path(args.output).write_bytes(data)
        except OSError as error:
            raise BadInput(
                f"{args.output} cannot be written: {error.strerror}", "-o FILE names another place"
            ) from None
        note(f"{len(data)} bytes written to {args.output}")
    else:
        sys.stdout.buffer.write(data)
    return 0
