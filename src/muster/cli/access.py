"""What `muster workspace`, `muster member` and `muster token` share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from muster.cli.context import Context, connect
from muster.cli.fields import print_rows
from muster.cli.output import Screen
from muster.model.access import Role
from muster.model.json_value import Json

ROLES = tuple(role.value for role in reversed(Role))


def add_workspace_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workspace", metavar="NAME", help="of this workspace (default: `default`)")


@contextmanager
def workspace(args: argparse.Namespace) -> Iterator[Context]:
    """A connection that speaks of the workspace which was named."""
    with connect(args) as context:
        if args.workspace is not None:
            context.api = context.api.of_workspace(args.workspace)
        yield context


def print_list(
    args: argparse.Namespace,
    path: str,
    kind: type[Struct],
    cells: Mapping[str, Callable[[Json], object]],
    *,
    none: str,
    give: str = "",
) -> int:
    """`none` is said where there are no rows; a narrow screen shortens the kind's own column, or `give`."""
    with workspace(args) as context:
        found = context.api.get(path)

    def show(screen: Screen) -> None:
        if found:
            screen.table(found, cells, give=give or kind.__name__.upper())
        else:
            screen.line(none)

    print_rows(args, found, show, names=lambda: kind.__struct_encode_fields__)
    return 0
