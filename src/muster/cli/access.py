"""What `muster workspace`, `muster member` and `muster token` share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from muster.cli.context import Context, connect
from muster.model.access import Role

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
